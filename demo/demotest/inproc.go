// Package demotest has what the demo's parts are tested with: a [Backend] whose
// elements are in this process, and [Check], which every Backend must pass.
//
// The elements of the in-process Backend see only their own windows and speak only by
// messages, as injected functions do, so each operation here is also the plainest account of what
// the function that travels has to do.
package demotest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/demo"
)

// Sizes that the in-process Backend charges: a message's header, and what a read asks with.
const (
	headBytes = 26
	readBytes = 24
)

// Backend is elements in this process. One goroutine uses it.
type Backend struct {
	layout  demo.Layout
	shards  []demo.Shard
	traffic demo.Traffic
	// Fail, if set, is asked before every read and injection; its error is returned.
	Fail func() error
}

// New lends shards, which must not change afterwards.
func New(l demo.Layout, shards []demo.Shard) *Backend {
	return &Backend{layout: l, shards: shards}
}

// Traffic is the sum so far.
func (b *Backend) Traffic(context.Context) (demo.Traffic, error) { return b.traffic, nil }

// Get copies from an element's window.
func (b *Backend) Get(ctx context.Context, r demo.Read) error {
	if err := b.enter(ctx); err != nil {
		return err
	}
	if r.Element < 0 || r.Element >= len(b.shards) || int(r.Window) >= len(b.shards[r.Element].Windows) {
		return fmt.Errorf("demotest: there is no window %d at element %d", r.Window, r.Element)
	}
	w := b.shards[r.Element].Windows[r.Window]
	if r.Offset > uint64(len(w)) || uint64(len(r.Dst)) > uint64(len(w))-r.Offset {
		return fmt.Errorf("demotest: a read of %d bytes at %d of window %d, which has %d", len(r.Dst), r.Offset, r.Window, len(w))
	}
	copy(r.Dst, w[r.Offset:])
	b.traffic.Messages += 2
	b.traffic.FromClient += headBytes + readBytes
	b.traffic.ToClient += headBytes + uint64(len(r.Dst))
	return nil
}

// GetMany is one Get after the other: nothing is to be gained in one process.
func (b *Backend) GetMany(ctx context.Context, reads []demo.Read) error {
	for _, r := range reads {
		if err := b.Get(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (b *Backend) enter(ctx context.Context) error {
	if b.Fail != nil {
		if err := b.Fail(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// message is what elements send each other: pairs of a vertex and a word.
type message struct {
	to    int
	depth int // how many messages led here, this one included
	items []item
}

type item struct {
	vertex uint32
	word   uint64
	from   uint32
}

const itemBytes = 16

// run is one injection under way.
type run struct {
	b     *Backend
	queue []message
	depth int // the deepest message so far
}

// send gives the items to their owners, one message each.
func (r *run) send(from, depth int, items []item) {
	perElement := make([][]item, len(r.b.shards))
	for _, it := range items {
		e, _ := r.b.layout.Owner(uint64(it.vertex))
		perElement[e] = append(perElement[e], it)
	}
	for e, list := range perElement {
		if len(list) == 0 {
			continue
		}
		size := uint64(headBytes + itemBytes*len(list))
		r.b.traffic.Messages++
		if from < 0 {
			r.b.traffic.FromClient += size
		} else {
			r.b.traffic.Between += size
		}
		r.depth = max(r.depth, depth)
		r.queue = append(r.queue, message{e, depth, list})
	}
}

// deliver hands out messages, oldest first, until there are none.
func (r *run) deliver(ctx context.Context, handle func(m message) error) error {
	for len(r.queue) > 0 {
		if err := r.b.enter(ctx); err != nil {
			return err
		}
		m := r.queue[0]
		r.queue = r.queue[1:]
		if err := handle(m); err != nil {
			return err
		}
	}
	return nil
}

// reply charges one answer of n bytes from each of so many elements.
func (r *run) reply(elements, n int) int {
	r.b.traffic.Messages += uint64(elements)
	r.b.traffic.ToClient += uint64(elements*headBytes + n)
	return r.depth + 1
}

// row reads a vertex's row at its own element.
func (b *Backend) row(v uint32, offsets, targets demo.Window) ([]uint32, error) {
	e, i := b.layout.Owner(uint64(v))
	if e >= len(b.shards) || i >= b.shards[e].Rows {
		return nil, fmt.Errorf("demotest: there is no vertex %d", v)
	}
	o := b.shards[e].Windows[offsets][8*i:]
	from, to := binary.LittleEndian.Uint64(o), binary.LittleEndian.Uint64(o[8:])
	raw := b.shards[e].Windows[targets][4*from : 4*to]
	row := make([]uint32, len(raw)/4)
	for k := range row {
		row[k] = binary.LittleEndian.Uint32(raw[4*k:])
	}
	return row, nil
}

var errCall = errors.New("demotest: the call makes no sense")

// Inject answers a call.
func (b *Backend) Inject(ctx context.Context, c *demo.Call) (*demo.Reply, error) {
	if err := b.enter(ctx); err != nil {
		return nil, err
	}
	for _, v := range slices.Concat(c.Starts, []uint32{c.Goal}) {
		if uint64(v) >= b.layout.Vertices {
			return nil, fmt.Errorf("%w: vertex %d of %d", errCall, v, b.layout.Vertices)
		}
	}
	if len(c.Starts) == 0 && c.Op != demo.OpMostDirect && c.Op != demo.OpInside {
		return nil, fmt.Errorf("%w: it starts nowhere", errCall)
	}
	r := &run{b: b}
	switch c.Op {
	case demo.OpClosure:
		return r.closure(ctx, c)
	case demo.OpPath:
		return r.path(ctx, c)
	case demo.OpDependents:
		return r.dependents(ctx, c)
	case demo.OpMostDirect:
		return r.mostDirect(c)
	case demo.OpInside:
		return r.inside(c)
	case demo.OpChase:
		return r.chase(ctx, c)
	}
	return nil, fmt.Errorf("%w: operation %d", errCall, c.Op)
}
