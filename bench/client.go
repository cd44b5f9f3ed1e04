package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// client is the side that measures.
type client struct {
	*station
	spec   *role
	ctx    context.Context
	in     *json.Decoder // what else it is told
	w      *json.Encoder
	r      Result
	pongs  atomic.Uint64
	want   uint64
	gotAll func() bool
	last   atomic.Uint64 // body of the last answer
	token  token
	rand   *rand.Rand
	aside  uint64 // allocations made for the floor, and to say how far this is
}

func runClient(ctx context.Context, spec *role, in *json.Decoder, w io.Writer, graph Load) error {
	c := &client{spec: spec, ctx: ctx, in: in, w: json.NewEncoder(w), rand: rand.New(rand.NewPCG(spec.Seed, 7))}
	err := c.run(graph)
	if err == nil {
		err = c.r.Err()
	}
	if err != nil {
		return c.w.Encode(note{Error: err.Error()})
	}
	return c.w.Encode(note{Result: &c.r})
}

func (c *client) run(graph Load) (err error) {
	if c.station, err = newStation(c.spec, false); err != nil {
		return err
	}
	defer c.close()
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	c.ctx = ctx // ends with the first server that is lost: no call waits for its answer
	c.el.Watch(func(*fabric.Endpoint) {}, func(ep *fabric.Endpoint, err error) { cancel(fmt.Errorf("lost %s: %w", ep.Name(), err)) })
	c.hear()
	if err := c.dialAll(c.ctx, c.spec.Servers); err != nil {
		return err
	}
	c.r.Set("clock_ns", clockCost())
	switch c.spec.Kind {
	case "verbs":
		return c.verbs()
	case "chase":
		return c.chase()
	case "inject":
		return c.inject()
	case "rpc":
		return c.rpc()
	case "bulk":
		if c.spec.Call > 0 {
			return c.bulkCall()
		}
		return c.bulk()
	case "pool":
		return c.pool()
	case "dev":
		return c.drive()
	case victimKind:
		return c.victim()
	case "crowd":
		return c.crowd()
	case "excache":
		return c.excache()
	case "ring":
		return c.ring()
	case "rounds":
		return c.rounds(graph)
	case "scan":
		if c.spec.GiB > 0 {
			return c.scanLarge()
		}
		return c.scan()
	case "query":
		return c.query()
	case "load":
		return c.load()
	case "hostile":
		return c.hostile()
	case "codegen":
		return c.codegen()
	}
	return fmt.Errorf("no benchmark %q", c.spec.Kind)
}

// hear registers what servers answer with.
func (c *client) hear() {
	c.gotAll = func() bool { return c.pongs.Load() >= c.want }
	answer := func(m fabric.Message) {
		if len(m.Body) >= 8 {
			c.last.Store(binary.LittleEndian.Uint64(m.Body))
		}
		c.pongs.Add(1)
	}
	for _, id := range []fabric.FrameID{idPong, idChased, idAlloc} {
		c.el.Handle(id, answer)
	}
	c.el.Handle(idRing, c.onRing)
}

func (c *client) say(text string, done float64) {
	before := mallocs()
	c.w.Encode(note{Text: text, Done: done})
	c.aside += mallocs() - before
}

// ask sends an active message and waits for its answer.
func (c *client) ask(ep *fabric.Endpoint, id fabric.FrameID, body []byte) error {
	c.want = c.pongs.Load() + 1
	if err := ep.Send(c.ctx, id, nil, body); err != nil {
		return err
	}
	return c.el.WaitFor(c.ctx, c.gotAll)
}

// samples are durations of one kind of operation.
type samples []float64

// p is a percentile, 0 to 1.
func (s samples) p(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	slices.Sort(s)
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

// clockCost is what reading the clock adds to a sample, ns: a tenth of the round trip of
// a Send through shared memory.
func clockCost() float64 {
	s := make(samples, 1000)
	for i := range s {
		t := time.Now()
		s[i] = float64(time.Since(t))
	}
	return s.p(0.5)
}

// each times f n times, one by one.
func each(n int, f func() error) (samples, error) { return batched(n, 1, f) }

// batched times f in batches, less what reading the clock adds: for what takes no longer than that.
// A sample is a batch's mean.
func batched(n, batch int, f func() error) (samples, error) {
	s := make(samples, n)
	clock := clockCost()
	for i := range s {
		t := time.Now()
		for range batch {
			if err := f(); err != nil {
				return nil, err
			}
		}
		s[i] = max(float64(time.Since(t))-clock, 0) / float64(batch)
	}
	return s, nil
}

// verbBatch is how many one-sided operations are timed together.
const verbBatch = 64

func (c *client) verbs() error {
	rounds := c.spec.Rounds
	if rounds == 0 {
		rounds = 100_000
	}
	ep := c.eps[0]
	key, err := fabric.DecodeKey(c.spec.Servers[0].Key)
	if err != nil {
		return err
	}
	mem, err := ep.Import(c.ctx, key)
	if err != nil {
		return err
	}
	all := c.verbList(ep, mem)
	for _, v := range all { // warm up: fault the pages in
		if _, err := each(rounds/10, v.f); err != nil {
			return err
		}
	}
	f, err := c.openFloor()
	if err != nil {
		return err
	}
	before, err := c.allocs()
	if err != nil {
		return err
	}
	ops := 0
	const turns = verbTurns // of each, interleaved
	if _, err := c.floored(f, "send", turns, rounds, func(turn int) (samples, error) {
		c.say("send, get, put, fetch-add", float64(turn)/turns)
		for _, v := range all {
			n, err := v.measure(rounds / turns)
			if err != nil {
				return nil, err
			}
			ops += n
		}
		sends := all[0].times
		return sends[len(sends)-rounds/turns:], nil
	}); err != nil {
		return err
	}
	after, err := c.allocs()
	if err != nil {
		return err
	}
	for _, v := range all {
		c.r.Set(v.name+"_ns_p50", v.times.p(0.5))
		c.r.Set(v.name+"_ns_p99", v.times.p(0.99))
	}
	// The samples themselves are some hundred allocations in all.
	c.r.Set("allocs_per_op", allocsPerOp(before, after, ops))
	c.r.Set("mapped", mem.Mapped())
	c.r.Set("message_bytes", 8)
	c.r.Set("segment_bytes", verbSpan)
	c.r.Set("one_sided_batch", all[1].batch)
	c.r.Set("operations", ops)
	return nil
}

// verb is one operation that is timed.
type verb struct {
	name  string
	f     func() error
	batch int // timed together
	times samples
}

// verbSpan is the memory whose words are picked at random.
const verbSpan = 1 << 20

// verbList is what verbs measures: Send and its answer, Get, Put, fetch-add.
func (c *client) verbList(ep *fabric.Endpoint, mem *fabric.Remote) []*verb {
	word := make([]byte, 8)
	offset := func() uint64 { return c.rand.Uint64N(verbSpan/8) * 8 }
	batch := 1
	if mem.Mapped() {
		batch = verbBatch
	}
	return []*verb{
		{name: "send_rtt", batch: 1, f: func() error { return c.ask(ep, idPing, word) }},
		{name: "get_8b", batch: batch, f: func() error { return mem.Get(c.ctx, word, offset()) }},
		{name: "put_8b", batch: batch, f: func() error { return mem.Put(c.ctx, word, offset()) }},
		{name: "fetch_add", batch: batch, f: func() error {
			_, err := mem.Atomic(c.ctx, fabric.FetchAdd(1), 8, offset())
			return err
		}},
	}
}

// measure takes about n samples and returns the operations made.
func (v *verb) measure(n int) (ops int, err error) {
	var s samples
	if v.batch == 1 {
		s, err = each(n, v.f)
		ops = n
	} else {
		s, err = batched(n/verbShare, v.batch, v.f)
		ops = n / verbShare * v.batch
	}
	v.times = append(v.times, s...)
	return ops, err
}

// allocs counts allocations so far: of each server, and last of this process.
func (c *client) allocs() ([]uint64, error) {
	var all []uint64
	for _, ep := range c.eps {
		c.want = c.pongs.Load() + 2 // before the first may come
		if err := ep.Send(c.ctx, idPing, nil, make([]byte, 8)); err != nil {
			return nil, err
		}
		if err := ep.Post(idAllocs, nil, nil); err != nil {
			return nil, err
		}
		if err := c.el.WaitFor(c.ctx, c.gotAll); err != nil {
			return nil, err
		}
		all = append(all, c.last.Load())
	}
	return append(all, mallocs()-c.aside), nil
}
