package bench

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

const (
	// bulkVolume is how many bytes each way moves by default.
	bulkVolume = 4 << 30
	// putsBeside is how many Puts are kept running beside timed messages: while one ends and is
	// started again, another runs.
	putsBeside = 2
)

// bulk measures large transfers, one at a time, and memory copies of the same
// size between the same buffers, where they are mapped; elsewhere between
// buffers like them.
func (c *client) bulk() error {
	size := c.spec.Bytes
	mem, local, err := c.bulkMemory(size)
	if err != nil {
		return err
	}
	buf := local[0]
	if err := c.checkBulk(mem, buf, local[1]); err != nil {
		return err
	}
	ways := []*verb{
		{name: "get", f: func() error { return mem.Get(c.ctx, buf, 0) }},
		{name: "put", f: func() error { return mem.Put(c.ctx, buf, 0) }},
		{name: "memcpy", f: copying(mem, fabric.RightRead, func(there []byte) { copy(buf, there[:size]) })},
		{name: "memcpy_back", f: copying(mem, fabric.RightWrite, func(there []byte) { copy(there[:size], buf) })},
	}
	if !mem.Mapped() {
		ways[2].f = func() error { copy(buf, local[1]); return nil }
		ways[3].f = func() error { copy(local[1], buf); return nil }
	}
	rounds := c.bulkRounds()
	if err := c.bulkWays(ways, rounds); err != nil {
		return err
	}
	if c.spec.WithSends {
		return c.sendsBeside(mem, local, rounds)
	}
	return nil
}

// bulkRounds is how many transfers of each kind are made: as told, or about bulkVolume in all.
func (c *client) bulkRounds() int {
	if c.spec.Rounds != 0 {
		return c.spec.Rounds
	}
	return min(max(bulkVolume/c.spec.Bytes, 200), 20_000)
}

// copying copies from or to a peer's mapped memory, as plain as it gets.
func copying(mem *fabric.Remote, need fabric.Rights, fn func(there []byte)) func() error {
	return func() error { return mem.Access(need, 0, mem.Size(), fn) }
}

// bulkMemory is what a transfer or a copy of size bytes moves between: the server's segment, and buffers of the client's.
func (c *client) bulkMemory(size int) (mem *fabric.Remote, local [][]byte, err error) {
	if mem, err = c.remote(); err != nil {
		return nil, nil, err
	}
	local, err = c.localBuffers(size)
	return mem, local, err
}

// remote is the server's segment.
func (c *client) remote() (*fabric.Remote, error) {
	key, err := fabric.DecodeKey(c.spec.Servers[0].Key)
	if err != nil {
		return nil, err
	}
	return c.eps[0].Import(c.ctx, key)
}

// localBuffers are the client's: of segments, as the server's is, and faulted in.
func (c *client) localBuffers(size int) ([][]byte, error) {
	var local [][]byte
	for range putsBeside {
		seg, err := c.el.NewSegment(uint64(size), fabric.Writable)
		if err != nil {
			return nil, err
		}
		b := seg.Bytes()
		for i := range b {
			b[i] = byte(c.rand.Uint32())
		}
		local = append(local, b)
	}
	return local, nil
}

// checkBulk puts and gets once, and compares.
func (c *client) checkBulk(mem *fabric.Remote, a, b []byte) error {
	if err := mem.Put(c.ctx, a, 0); err != nil {
		return err
	}
	if err := mem.Get(c.ctx, b, 0); err != nil {
		return err
	}
	if !bytes.Equal(a, b) {
		return errors.New("what was put and what was got differ")
	}
	return nil
}

// leastBulk is what is moved at least between two looks at the clock.
const leastBulk = 16 << 10

// leastBatch is how many of the operations measured are timed together.
func (c *client) leastBatch() int { return max(leastBulk/c.spec.Bytes, 1) }

// takeTurns measures the ways in turns, and returns the operations made and the allocations of each.
func (c *client) takeTurns(ways []*verb, rounds int) (ops int, allocs float64, err error) {
	var names []string
	for _, w := range ways {
		names = append(names, w.name)
		if _, err := each(max(rounds/10, 1), w.f); err != nil {
			return 0, 0, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	before, err := c.allocs()
	if err != nil {
		return 0, 0, err
	}
	batch := c.leastBatch()
	for turn := range bulkTurns {
		c.say(strings.Join(names, ", "), float64(turn)/bulkTurns)
		for _, w := range ways {
			s, err := batched(max(rounds/bulkTurns, 1), batch, w.f)
			if err != nil {
				return 0, 0, fmt.Errorf("%s: %w", w.name, err)
			}
			w.times = append(w.times, s...)
			ops += len(s) * batch
		}
	}
	after, err := c.allocs()
	if err != nil {
		return 0, 0, err
	}
	return ops, allocsPerOp(before, after, ops), nil
}

// bulkWays measures Gets, Puts and copies, and says what they come to.
func (c *client) bulkWays(ways []*verb, rounds int) error {
	_, allocs, err := c.takeTurns(ways, rounds)
	if err != nil {
		return err
	}
	size := float64(c.spec.Bytes)
	for _, w := range ways {
		c.r.Set(w.name+"_gbytes_per_s", size/w.times.p(0.5))
	}
	c.r.Set("get_over_memcpy", ways[2].times.p(0.5)/ways[0].times.p(0.5))
	c.r.Set("put_over_memcpy", ways[3].times.p(0.5)/ways[1].times.p(0.5))
	c.r.Set("get_ns_p99", ways[0].times.p(0.99))
	c.r.Set("put_ns_p99", ways[1].times.p(0.99))
	c.r.Set("allocs_per_op", allocs)
	c.r.Set("bytes", c.spec.Bytes)
	c.r.Set("transfers_each", len(ways[0].times)*c.leastBatch())
	return nil
}

// sendsBeside times an active message and its answer while Puts run all the time.
// On mapped memory a Put is over when it was started: there they alternate.
func (c *client) sendsBeside(mem *fabric.Remote, local [][]byte, rounds int) error {
	ops := make([]fabric.Op, len(local))
	word := make([]byte, 8)
	var s samples
	puts := 0
	renew := func() error {
		for i, o := range ops {
			if !o.Poll() {
				continue
			}
			if err := o.Wait(c.ctx); err != nil {
				return err
			}
			ops[i] = mem.StartPut(local[i], 0)
			puts++
		}
		return nil
	}
	n := rounds * 2
	start := time.Now()
	for i := range n {
		if i%(n/20+1) == 0 {
			c.say("messages beside Puts", float64(i)/float64(n))
		}
		if err := renew(); err != nil {
			return err
		}
		t := time.Now()
		if err := c.ask(c.eps[0], idPing, word); err != nil {
			return err
		}
		s = append(s, float64(time.Since(t)))
	}
	took := time.Since(start)
	for _, o := range ops {
		if err := o.Wait(c.ctx); err != nil {
			return err
		}
	}
	c.r.Set("send_rtt_ns_p50", s.p(0.5))
	c.r.Set("send_rtt_ns_p99", s.p(0.99))
	c.r.Set("send_rtt_ns_max", s.p(1))
	c.r.Set("put_beside_gbytes_per_s", float64(puts)*float64(c.spec.Bytes)/float64(took))
	c.r.Set("puts_beside", puts)
	c.r.Set("sends", len(s))
	return nil
}
