package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// callersTurn is how long a turn of the callers lasts, if no number of calls is given: in three seconds of them no
	// pause of the runtime's or the kernel's weighs much. Beside a load each process is on its CPU for some
	// milliseconds at a time, and a turn has to have many of those.
	callersTurn = 150 * time.Millisecond
	loadedTurn  = 500 * time.Millisecond
	// callersTimes bounds the times that are kept, of all callers and turns together: 8 MiB. Calls
	// after them count, and their times do not.
	callersTimes = 1 << 20
)

// validateCalls fills in the defaults of what says how calls are made, and reports what does not go together.
func (c *Config) validateCalls() error {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.ServerCPUs, 1)
	if err := c.validateClients(); err != nil {
		return err
	}
	def(&c.Processes, 1)
	switch {
	case c.Callers != 0 && c.Inflight != 0:
		return fmt.Errorf("bench: %d callers, and %d calls in flight from one goroutine: one or the other", c.Callers, c.Inflight)
	case c.Callers < 0 || c.Callers > MaxInflight:
		return fmt.Errorf("bench: %d callers: between 1 and %d", c.Callers, MaxInflight)
	case c.Inflight < 0 || c.Inflight > MaxInflight:
		return fmt.Errorf("bench: %d calls in flight: between 1 and %d", c.Inflight, MaxInflight)
	case c.ServerCPUs < 1 || c.ServerCPUs > 2:
		return fmt.Errorf("bench: a server on %d CPUs: 1 or 2", c.ServerCPUs)
	case c.ServerCPUs == 2 && !c.Pin:
		return errors.New("bench: a server on 2 CPUs, and no pinning: one or the other")
	case c.ServerCPUs == 2 && c.SameCPU:
		return errors.New("bench: a server on 2 CPUs, and all processes on one: one or the other")
	}
	if c.Inflight == 0 {
		def(&c.Callers, 1)
	}
	if c.Kind == "rpc" {
		def(&c.Bytes, len(rpcPayload))
		switch {
		case c.Bytes < 1 || c.Bytes > MaxCallBytes:
			return fmt.Errorf("bench: requests of %d bytes: between 1 and %d", c.Bytes, MaxCallBytes)
		case c.Bytes*c.Callers > MaxCallersBytes:
			return fmt.Errorf("bench: %d callers with requests of %d bytes: at most %d bytes together", c.Callers, c.Bytes, MaxCallersBytes)
		}
	}
	return nil
}

// validateClients reports what does not go together of client processes, their time, and calls with large answers.
func (c *Config) validateClients() error {
	switch {
	case c.Processes < 0 || c.Processes > MaxProcesses:
		return fmt.Errorf("bench: %d client processes: between 1 and %d", c.Processes, MaxProcesses)
	case c.Processes > 1 && (c.Callers > 1 || c.Inflight != 0):
		return fmt.Errorf("bench: %d client processes, and several callers or calls in flight: each process has one caller", c.Processes)
	case c.Processes > 1 && c.Rounds != 0:
		return fmt.Errorf("bench: %d client processes, and a number of rounds: they call for as long as a turn lasts (Config.Turn, --turn)", c.Processes)
	case c.Turn < 0 || c.Turn > MaxTurn || c.Turn != 0 && c.Turn < time.Millisecond:
		return fmt.Errorf("bench: a turn of %v: between 1 ms and %v", c.Turn, MaxTurn)
	case c.Turn != 0 && (c.Inflight != 0 || c.Rounds != 0):
		return fmt.Errorf("bench: a turn of %v, and calls in flight or a number of rounds, which say themselves how many calls a turn has: one or the other", c.Turn)
	case c.Call < 0 || c.Call > MaxCallBytes:
		return fmt.Errorf("bench: answers of %d bytes: between 1 and %d", c.Call, MaxCallBytes)
	case c.Call > 0 && (c.Bytes != 0 && c.Bytes != c.Call || c.WithSends):
		return fmt.Errorf("bench: calls with answers of %d bytes, and transfers or sends beside them: one or the other", c.Call)
	}
	if c.Call > 0 {
		c.Bytes = c.Call // the server's segment, which is copied from
	}
	return nil
}

// caller is a goroutine that calls and waits, again and again.
type caller struct {
	req, resp []byte
	number    uint32 // of the caller, in each of its requests
	calls     uint32 // so far, likewise
	stamp     [8]byte
	times     samples
}

// callTurn is one turn of all callers. It ends at a time, or after a number of calls.
type callTurn struct {
	end  time.Time    // zero: left counts
	left atomic.Int64 // calls that may still begin
	fail atomic.Bool  // a caller has failed: the others end too
}

// more reports whether another call may begin, now being the time.
func (t *callTurn) more(now time.Time) bool {
	switch {
	case t.fail.Load():
		return false
	case t.end.IsZero():
		return t.left.Add(-1) >= 0
	}
	return now.Before(t.end)
}

// newCallTurn is a turn of that length, or of n calls if n is not 0.
func newCallTurn(length time.Duration, n int) *callTurn {
	t := &callTurn{}
	t.left.Store(int64(n))
	if n == 0 {
		t.end = time.Now().Add(length)
	}
	return t
}

// newCallers makes the callers, and room for their times.
func (c *client) newCallers() []*caller {
	all := make([]*caller, c.spec.Callers)
	for i := range all {
		all[i] = &caller{req: c.payload(), resp: make([]byte, 0, c.spec.Bytes), number: uint32(i), times: make(samples, 0, callersTimes/len(all))}
	}
	return all
}

// call calls and looks at the answer: whether it is this caller's, and to this call.
func (w *caller) call(c *client) (err error) {
	w.calls++
	binary.LittleEndian.PutUint32(w.stamp[:], w.calls)
	binary.LittleEndian.PutUint32(w.stamp[4:], w.number)
	copy(w.req[max(len(w.req)-len(w.stamp), 0):], w.stamp[:])
	copy(w.req, w.stamp[:])
	// The call has the default deadline.
	if w.resp, err = echo.CallInto(context.Background(), c.station.rpc, c.eps[0], w.req, w.resp); err != nil {
		return err
	}
	return checkEcho(w.req, w.resp)
}

// run calls until the turn is over, and takes the times of most of its calls. The end of one call is the beginning of the next, so the
// clock is read once for each.
func (w *caller) run(c *client, t *callTurn, most int, clock float64) (calls int, err error) {
	room := min(len(w.times)+most, cap(w.times))
	for last := time.Now(); t.more(last); calls++ {
		if err := w.call(c); err != nil {
			t.fail.Store(true)
			return calls, err
		}
		now := time.Now()
		if len(w.times) < room {
			w.times = append(w.times, max(float64(now.Sub(last))-clock, 0))
		}
		last = now
	}
	return calls, nil
}

// together has all callers call for one turn.
func (c *client) together(all []*caller, t *callTurn) (calls int, perSecond float64, err error) {
	clock, most := clockCost(), callersTimes/rpcTurns/len(all)
	errs, each := make([]error, len(all)), make([]int, len(all))
	var wg sync.WaitGroup
	began := time.Now()
	for i, w := range all {
		wg.Go(func() { each[i], errs[i] = w.run(c, t, most, clock) })
	}
	wg.Wait()
	took := time.Since(began)
	for _, n := range each {
		calls += n
	}
	return calls, float64(calls) / took.Seconds(), errors.Join(errs...)
}

// callers measures goroutines that each make a call, wait for its answer, and make the next: all on one endpoint.
func (c *client) callers() error {
	all := c.newCallers()
	n := 0
	if c.spec.Rounds != 0 {
		n = max(c.spec.Rounds/rpcTurns, len(all))
	}
	length := callersTurn
	switch {
	case c.spec.Turn != 0:
		length = c.spec.Turn
	case c.spec.Loaded:
		length = loadedTurn
	}
	if _, _, err := c.together(all, newCallTurn(2*length, n)); err != nil { // warm up
		return err
	}
	for _, w := range all {
		w.times = w.times[:0]
	}
	before, err := c.allocs()
	if err != nil {
		return err
	}
	calls := 0
	var rates samples
	for turn := range rpcTurns {
		c.say("calls", float64(turn)/rpcTurns)
		made, rate, err := c.together(all, newCallTurn(length, n))
		if err != nil {
			return err
		}
		calls += made
		rates = append(rates, rate)
	}
	after, err := c.allocs()
	if err != nil {
		return err
	}
	var rtt samples
	for _, w := range all {
		rtt = append(rtt, w.times...)
	}
	c.r.Set("callers", len(all))
	c.r.Set("handler", c.spec.handler())
	c.r.Set("calls_per_s", rates.p(0.5))
	c.r.Set("calls_per_s_min", rates.p(0))
	c.r.Set("rtt_ns_p50", rtt.p(0.5))
	c.r.Set("rtt_ns_p99", rtt.p(0.99))
	c.r.Set("rtt_ns_max", rtt.p(1))
	c.r.Set("allocs_per_op", allocsPerOp(before, after, calls))
	c.r.Set("payload_bytes", c.spec.Bytes)
	c.r.Set("calls", calls)
	return nil
}
