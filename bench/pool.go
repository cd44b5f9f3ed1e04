package bench

import (
	"bytes"
	"context"
	"errors"
	"log/slog"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/component"
)

const (
	// poolPage is what a Get or Put moves, and poolElement what a gather has of each element.
	poolPage    = 4 << 10
	poolElement = 64
	// poolElements is how many elements are gathered.
	poolElements = 64
	// poolRegion has two extents: the memory that is used lies in the second.
	poolRegion = 2 * component.MinExtentBytes
)

// servePool makes the server a component.
func (s *station) servePool() error {
	account := component.NewAccount(component.Bounds{Bytes: poolRegion, Pool: poolRegion, Principal: poolRegion})
	return control.ServePool(s.rpc, component.New(s.el, account, component.Limits{}), slog.New(slog.DiscardHandler), func() error { return nil })
}

// pool measures Gets and Puts of a page of a region in turns with the verbs on memory of the same size, and one gather of many elements
// in turns with as many Gets that are under way together.
func (c *client) pool() error {
	asker := control.NewAsker(c.station.rpc, func(context.Context, string) (*fabric.Endpoint, error) { return c.eps[0], nil })
	r, err := pool.New(asker).CreateRegion(c.ctx, c.spec.Servers[0].Name, pool.Spec{Size: poolRegion, Leased: true})
	if err != nil {
		return err
	}
	mem, err := c.remote()
	if err != nil {
		return err
	}
	const base = component.MinExtentBytes
	page := make([]byte, poolPage)
	for at := uint64(0); at < verbSpan; at += poolPage { // fault both in, with the same bytes
		for i := range page {
			page[i] = byte(c.rand.Uint32())
		}
		if err := errors.Join(r.Put(c.ctx, page, base+at), mem.Put(c.ctx, page, at)); err != nil {
			return err
		}
	}
	offset := func() uint64 { return c.rand.Uint64N(verbSpan/poolPage) * poolPage }
	ways := []*verb{
		{name: "get_4k", f: func() error { return r.Get(c.ctx, page, base+offset()) }},
		{name: "verb_get_4k", f: func() error { return mem.Get(c.ctx, page, offset()) }},
		{name: "put_4k", f: func() error { return r.Put(c.ctx, page, base+offset()) }},
		{name: "verb_put_4k", f: func() error { return mem.Put(c.ctx, page, offset()) }},
	}
	// Gathered before anything is overwritten: what comes can be compared.
	gather, err := c.gathers(r, base, mem)
	if err != nil {
		return err
	}
	_, allocs, err := c.takeTurns(ways, c.bulkRounds())
	if err != nil {
		return err
	}
	if _, _, err := c.takeTurns(gather, c.bulkRounds()/10); err != nil {
		return err
	}
	for _, w := range ways {
		c.r.Set(w.name+"_ns_p50", w.times.p(0.5))
	}
	c.r.Set("get_over_verb", ways[0].times.p(0.5)/ways[1].times.p(0.5))
	c.r.Set("put_over_verb", ways[2].times.p(0.5)/ways[3].times.p(0.5))
	for _, w := range gather {
		c.r.Set(w.name+"_us_p50", w.times.p(0.5)/1e3)
	}
	c.r.Set("gather_over_gets", gather[0].times.p(0.5)/gather[1].times.p(0.5))
	c.r.Set("allocs_per_op", allocs)
	c.r.Set("mapped", mem.Mapped())
	c.r.Set("region_bytes", r.Size())
	c.r.Set("extents", r.Info().Extents)
	c.r.Set("element_bytes", poolElement)
	c.r.Set("operations_each", len(ways[0].times)*c.leastBatch())
	return nil
}

// gathers are the two ways to many elements. Both are tried once, and must bring the same.
func (c *client) gathers(r *pool.Region, base uint64, mem *fabric.Remote) ([]*verb, error) {
	index, offsets := make([]uint64, poolElements), make([]uint64, poolElements)
	one, other := make([]byte, poolElements*poolElement), make([]byte, poolElements*poolElement)
	choose := func() {
		for i := range index {
			offsets[i] = c.rand.Uint64N(verbSpan/poolElement) * poolElement
			index[i] = (base + offsets[i]) / poolElement
		}
	}
	var ops [poolElements]fabric.Op
	gets := func() error {
		held := c.eps[0].Hold() // else each is a system call
		for i, off := range offsets {
			ops[i] = mem.StartGet(other[i*poolElement:(i+1)*poolElement], off)
		}
		if held {
			c.eps[0].Release()
		}
		var first error
		for _, o := range ops {
			if err := o.Wait(c.ctx); first == nil {
				first = err
			}
		}
		return first
	}
	choose()
	if err := errors.Join(r.GatherIndexed(c.ctx, one, poolElement, index), gets()); err != nil {
		return nil, err
	}
	if !bytes.Equal(one, other) {
		return nil, errors.New("what was gathered and what was got differ")
	}
	return []*verb{
		{name: "gather_64", f: func() error { choose(); return r.GatherIndexed(c.ctx, one, poolElement, index) }},
		{name: "gets_64", f: func() error { choose(); return gets() }},
	}, nil
}
