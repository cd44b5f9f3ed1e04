package bench

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// chase measures one pointer chase at a time over a permutation that all
// servers hold a part of: by a function that hops on by itself, by the same
// chase as a handler deployed beforehand, and by one Get per hop. The first two
// read what other servers on this machine have where it is mapped.
func (c *client) chase() error {
	table, keys, err := c.table()
	if err != nil {
		return err
	}
	if c.spec.Code == nil && c.spec.Count == 1 && c.spec.scheme.Local() {
		if err := c.window(table); err != nil {
			return err
		}
	}
	img, err := c.spec.image("chase")
	if err != nil {
		return err
	}
	f, err := c.rt.PrepareAs(img, table, c.spec.wish())
	if err != nil {
		return err
	}
	defer f.Close()
	mem, err := c.nearby(keys)
	if err != nil {
		return err
	}
	rounds := c.spec.Rounds
	if rounds == 0 {
		rounds = 2000
	}
	next := permutation(c.spec.Rows, c.spec.Seed)
	ways := []*way{
		{name: "inject", run: c.injected(f)},
		{name: "am", run: c.deployed()},
		{name: "get", run: c.gets(mem)},
	}
	if c.spec.Code == nil && (!c.spec.scheme.Local() || c.spec.Count > 1) {
		if err := c.firstUse(table); err != nil {
			return err
		}
	}
	for _, w := range ways {
		if err := w.warm(c, next, max(rounds/20, 10)); err != nil {
			return err
		}
	}
	const turns = chaseTurns
	for turn := range turns {
		c.say("chase: injected, deployed, fetched", float64(turn)/turns)
		for _, w := range ways {
			if err := w.measure(c, max(rounds/turns, 1)); err != nil {
				return err
			}
		}
	}
	for _, w := range ways {
		c.r.Set(w.name+"_chases_per_s", w.perSecond())
		c.r.Set(w.name+"_us_p50", w.times.p(0.5)/1e3)
	}
	c.r.Set("inject_over_get", ways[0].perSecond()/ways[2].perSecond())
	c.r.Set("inject_over_am", ways[0].perSecond()/ways[1].perSecond())
	c.r.Set("depth", c.spec.Depth)
	c.r.Set("rows", c.spec.Rows)
	c.r.Set("table_bytes", c.spec.Rows*8)
	c.r.Set("chases_each", len(ways[0].times))
	return c.headers(f)
}

// nearby makes the servers' shards usable here, and tells each server the keys to the others': a function has them from the shard table.
func (c *client) nearby(keys []fabric.Key) (mem []*fabric.Remote, err error) {
	var all []byte
	for i, k := range keys {
		r, err := c.eps[i].Import(c.ctx, k)
		if err != nil {
			return nil, err
		}
		mem, all = append(mem, r), k.Append(all)
	}
	for _, ep := range c.eps {
		if err := c.ask(ep, idNear, all); err != nil {
			return nil, err
		}
	}
	return mem, nil
}

func walk(next []uint64, row uint64, depth int) uint64 {
	for range depth {
		row = next[row]
	}
	return row
}

// way is one way to chase.
type way struct {
	name  string
	run   func(start uint64) (end uint64, err error)
	times samples
}

// warm chases n times and checks the answers.
func (w *way) warm(c *client, next []uint64, n int) error {
	for range n {
		start := c.rand.Uint64N(uint64(c.spec.Rows))
		got, err := w.run(start)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		if want := walk(next, start, c.spec.Depth); got != want {
			return fmt.Errorf("%s: a chase from %d ended at %d, not at %d", w.name, start, got, want)
		}
	}
	return nil
}

func (w *way) measure(c *client, n int) error {
	for range n {
		start := c.rand.Uint64N(uint64(c.spec.Rows))
		t := time.Now()
		if _, err := w.run(start); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		w.times = append(w.times, float64(time.Since(t)))
	}
	return nil
}

// perSecond is from the median: one chase is in flight at a time.
func (w *way) perSecond() float64 { return 1e9 / w.times.p(0.5) }

// table is the shard table of the servers' permutation.
func (c *client) table() (*cluster.Table, []fabric.Key, error) {
	t := &cluster.Table{Name: "bench", Version: 1, Kind: cluster.Raw, Sharding: sharding(c.spec)}
	var keys []fabric.Key
	for _, s := range c.spec.Servers {
		k, err := fabric.DecodeKey(s.Key)
		if err != nil {
			return nil, nil, err
		}
		keys = append(keys, k)
		t.Shards = append(t.Shards, cluster.Shard{Element: s.Name, Incarnation: s.Incarnation, Addrs: []string{s.Addr},
			Windows: []cluster.Window{{Key: k, Size: s.Size}}})
	}
	t.FillRows()
	return t, keys, nil
}

func (c *client) injected(f *inject.Function) func(uint64) (uint64, error) {
	payload, reply := make([]byte, 16), make([]byte, 0, 64)
	t := f.Table()
	return func(start uint64) (uint64, error) {
		binary.LittleEndian.PutUint64(payload, start)
		binary.LittleEndian.PutUint64(payload[8:], uint64(c.spec.Depth))
		element, _, _ := t.Owner(start)
		got, err := f.Do(c.ctx, inject.Root{Element: element, Payload: payload}, reply[:0])
		if err != nil {
			return 0, err
		}
		return xrdma.ChaseResult(got)
	}
}

func (c *client) deployed() func(uint64) (uint64, error) {
	msg := make([]byte, 24)
	shards := sharding(c.spec)
	return func(start uint64) (uint64, error) {
		binary.LittleEndian.PutUint64(msg, start)
		binary.LittleEndian.PutUint64(msg[8:], uint64(c.spec.Depth))
		binary.LittleEndian.PutUint64(msg[16:], uint64(c.el.Incarnation()))
		element, _, _ := shards.Owner(start)
		err := c.ask(c.eps[element], idChase, msg)
		return c.last.Load(), err
	}
}

func (c *client) gets(mem []*fabric.Remote) func(uint64) (uint64, error) {
	word := make([]byte, 8)
	shards := sharding(c.spec)
	return func(row uint64) (uint64, error) {
		for range c.spec.Depth {
			element, local, _ := shards.Owner(row)
			if err := mem[element].Get(c.ctx, word, local*8); err != nil {
				return 0, err
			}
			row = binary.LittleEndian.Uint64(word)
		}
		return row, nil
	}
}

// firstUse measures a function that no server has seen: sent, compiled, run,
// answered. Every round's function is another one, by its name alone, so that no cache
// anywhere knows it.
func (c *client) firstUse(table *cluster.Table) error {
	var s samples
	for i := range 20 {
		img, err := renamed(xrdma.Chase(), fmt.Sprintf("chase-%x-%d", c.spec.Seed, i))
		if err != nil {
			return err
		}
		t := time.Now()
		f, err := c.rt.Prepare(img, table)
		if err != nil {
			return err
		}
		_, err = f.Do(c.ctx, inject.Root{Element: 0, Payload: xrdma.ChaseArgs(0, 0)}, nil)
		if err != nil {
			return err
		}
		s = append(s, float64(time.Since(t)))
		f.Close()
	}
	c.r.Set("first_use_us", s.p(0.5)/1e3)
	c.r.Set("first_use_us_max", s.p(1)/1e3)
	c.r.Set("image_bytes", xrdma.Chase().Size())
	return nil
}

// headers measures what a cached injection has on the wire besides its payload.
func (c *client) headers(f *inject.Function) error {
	payload := xrdma.ChaseArgs(0, 0)
	const n = 64
	before := c.eps[0].Stats()
	for range n {
		if _, err := f.Do(c.ctx, inject.Root{Element: 0, Payload: payload}, nil); err != nil {
			return err
		}
	}
	after := c.eps[0].Stats()
	sent, frames := after.NormalBytes-before.NormalBytes, after.NormalFrames-before.NormalFrames
	if frames != n {
		return fmt.Errorf("%d injections took %d messages", n, frames)
	}
	c.r.Set("header_bytes", int(sent/n)-len(payload)+frameHeaderBytes)
	c.r.Set("frame_header_bytes", frameHeaderBytes)
	return nil
}

// frameHeaderBytes is what both transports put before a frame's body.
const frameHeaderBytes = 4
