package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// echo is the call that is measured: its answer is its request.
var echo = rpc.Define("bench.echo", rpc.Bytes{}, rpc.Bytes{})

const (
	// rpcSampled is how many calls go to one whose time is taken, where many are in
	// flight: two looks at the clock would be a tenth of such a call.
	rpcSampled = 16
)

// rpc measures small calls: of goroutines that each call and wait, or of one that keeps a fixed number under way.
func (c *client) rpc() error {
	switch {
	case c.spec.InStep:
		return c.inStep()
	case c.spec.Inflight == 0:
		return c.callers()
	}
	return c.inflight()
}

func (c *client) inflight() error {
	rounds := c.spec.Rounds
	if rounds == 0 {
		rounds = c.inflightRounds()
	}
	run := c.oneByOne
	if c.spec.Inflight > 1 {
		run = func(n int) (samples, error) { return c.windowed(n, true) }
	}
	if _, err := run(max(rounds/10, c.spec.Inflight)); err != nil {
		return err
	}
	f, err := c.openFloor()
	if err != nil {
		return err
	}
	before, err := c.allocs()
	if err != nil {
		return err
	}
	var rates, unheld samples
	calls := 0
	turn := func(turn int) (samples, error) {
		c.say("calls", float64(turn)/rpcTurns)
		n := max(rounds/rpcTurns, c.spec.Inflight)
		start := time.Now()
		s, err := run(n)
		if err != nil {
			return nil, err
		}
		rates = append(rates, float64(n)/time.Since(start).Seconds())
		calls += n
		if c.spec.Inflight > 1 {
			start = time.Now()
			if _, err := c.windowed(n, false); err != nil {
				return nil, err
			}
			unheld = append(unheld, float64(n)/time.Since(start).Seconds())
			calls += n
		}
		return s, nil
	}
	rtt, err := c.floored(f, "rtt", rpcTurns, rounds, turn)
	if err != nil {
		return err
	}
	after, err := c.allocs()
	if err != nil {
		return err
	}
	c.r.Set("inflight", c.spec.Inflight)
	c.r.Set("handler", c.spec.handler())
	c.r.Set("rtt_ns_p50", rtt.p(0.5))
	c.r.Set("rtt_ns_p99", rtt.p(0.99))
	c.r.Set("calls_per_s", rates.p(0.5))
	if len(unheld) > 0 {
		c.r.Set("calls_per_s_unheld", unheld.p(0.5))
	}
	c.r.Set("allocs_per_op", allocsPerOp(before, after, calls))
	c.r.Set("payload_bytes", c.spec.Bytes)
	c.r.Set("calls", calls)
	return nil
}

// inflightRounds is how many calls are made by default: fewer of large ones, and beside a load, where each takes milliseconds.
func (c *client) inflightRounds() int {
	rounds := 200_000
	if c.spec.scheme.Local() && c.spec.Inflight > 1 {
		rounds = 1_000_000
	}
	if c.spec.Loaded {
		rounds = loadedRounds
	}
	return max(min(rounds, rpcVolume/c.spec.Bytes), rpcTurns)
}

const (
	rpcPayload = "12345678"
	// rpcVolume is how many bytes of requests are sent by default, at most.
	rpcVolume = 128 << 20
	// loadedRounds is how many calls of one goroutine are made beside a load.
	loadedRounds = 4000
)

// payload is a request of the benchmark's.
func (c *client) payload() []byte {
	b := make([]byte, c.spec.Bytes)
	for i := range b {
		b[i] = rpcPayload[i%len(rpcPayload)]
	}
	return b
}

// echoChecked is how much is compared at the beginning, in the middle and at the end of an answer. To compare all of a long one would be a
// part of what is measured.
const echoChecked = 64

// checkEcho compares an answer with its request.
func checkEcho(req, resp []byte) error {
	if len(resp) != len(req) {
		return fmt.Errorf("the answer to a request of %d bytes has %d", len(req), len(resp))
	}
	n := min(echoChecked, len(req))
	for _, at := range []int{0, (len(req) - n) / 2, len(req) - n} {
		if want, got := req[at:at+n], resp[at:at+n]; !bytes.Equal(got, want) {
			return fmt.Errorf("the answer has %x at byte %d, the request %x", got, at, want)
		}
	}
	return nil
}

// handler is how the server's handler runs, as flag and field say it.
func (r *role) handler() string {
	if r.Inline {
		return "inline"
	}
	return "blocking"
}

// oneByOne makes n calls, each after the answer to the one before.
func (c *client) oneByOne(n int) (samples, error) {
	ctx := context.Background() // the calls have the default deadline
	req, resp := c.payload(), make([]byte, 0, c.spec.Bytes)
	return each(n, func() (err error) {
		resp, err = echo.CallInto(ctx, c.station.rpc, c.eps[0], req, resp)
		if err != nil {
			return err
		}
		return checkEcho(req, resp)
	})
}

// flight is a call under way.
type flight struct {
	call  rpc.Started[[]byte, []byte]
	began time.Time // zero: its time is not taken
}

// windowed makes n calls, as many as there shall be under way at any time: whenever
// the oldest is answered, it takes what other answers are there and starts as many
// again, which leave together if it is to hold them.
func (c *client) windowed(n int, hold bool) (samples, error) {
	var s samples
	p, ep := c.station.rpc, c.eps[0]
	ctx := context.Background() // the calls have the default deadline
	req, resp := c.payload(), make([]byte, 0, c.spec.Bytes)
	ring := make([]flight, c.spec.Inflight)
	started, ended := 0, 0
	for ended < n {
		var err error
		if hold {
			ep.Hold()
		}
		for ; started < n && started-ended < len(ring); started++ {
			f := &ring[started%len(ring)]
			if f.began = (time.Time{}); started%rpcSampled == 0 {
				f.began = time.Now()
			}
			if f.call, err = echo.Start(ctx, p, ep, req); err != nil {
				break
			}
		}
		if errors.Is(err, fabric.ErrBackpressure) && started > ended {
			err = nil // those that are under way first
		}
		if hold {
			ep.Release()
		}
		if err != nil {
			return nil, err
		}
		for first := true; ended < started && (first || ring[ended%len(ring)].call.Poll()); first = false {
			f := &ring[ended%len(ring)]
			if resp, err = f.call.WaitInto(ctx, resp); err != nil {
				return nil, err
			}
			if err := checkEcho(req, resp); err != nil {
				return nil, err
			}
			if !f.began.IsZero() {
				s = append(s, float64(time.Since(f.began)))
			}
			ended++
		}
	}
	return s, nil
}
