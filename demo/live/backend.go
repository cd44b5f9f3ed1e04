// Package live is the demo on the real fabric: a [Backend] whose elements are
// nodes, a [Cluster] of node processes on this machine, and loading the demo's data onto nodes.
//
// # Model
//
// A Backend belongs to one dataset that a client has loaded. Its reads are one-sided Gets, its injections
// are ready functions (package xrdma) that start at the nodes and reply to the client. Nothing
// of the demo is installed at a node.
//
// # Traffic
//
// What the client sends, it counts by itself; what nodes send to it and to each
// other, it asks them (control.CallTraffic). Bytes are the bodies of all frames on the connections: data,
// requests, credit and reports, without what the transport puts before each. Where memory is
// mapped (shm) a Get sends nothing; it counts as one message with its payload.
package live

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/demo"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// ErrRead says that a read is of no window, or leaves it.
var ErrRead = errors.New("live: there is nothing to read")

// Backend is a demo.Backend over nodes. One goroutine uses it.
type Backend struct {
	client  *client.Client
	table   *cluster.Table
	layout  demo.Layout
	next    []uint64
	eps     []*fabric.Endpoint // by element
	remotes [][]*fabric.Remote // by element and window; nil: nothing there
	funcs   map[string]*inject.Function
	meter   meter
	mapped  demo.Traffic // of Gets that sent nothing
	ops     []fabric.Op  // under way, the oldest first
	one     [1]demo.Read
}

var _ demo.Backend = (*Backend)(nil)

// functions are those that a Backend starts; each is sent where it is first needed.
var functions = []string{"chase", "closure", "degrees", "dependents", "inside", "path", "topdeg"}

// Open makes a Backend for a dataset that was loaded with this layout. next is the
// chase's table, nil for a graph: a chase does not tell how often it moved on, so that is counted here.
func Open(ctx context.Context, c *client.Client, name string, l demo.Layout, next []uint64) (*Backend, error) {
	rights := "r"
	if next != nil {
		rights = "rw"
	}
	table, err := c.Table(ctx, name, rights)
	if err != nil {
		return nil, err
	}
	b := &Backend{client: c, table: table, layout: l, next: next, funcs: map[string]*inject.Function{}}
	if err := b.open(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("live: dataset %s: %w", name, err)
	}
	return b, nil
}

func (b *Backend) open(ctx context.Context) error {
	if err := b.checkLayout(); err != nil {
		return err
	}
	for e, s := range b.table.Shards {
		ep, err := b.client.Endpoint(ctx, s.Element)
		if err != nil {
			return err
		}
		windows := make([]*fabric.Remote, len(s.Windows))
		for w, window := range s.Windows {
			if window.Size == 0 || w == b.table.File() {
				continue
			}
			if windows[w], err = b.table.Import(ctx, ep, e, w); err != nil {
				return err
			}
		}
		b.eps, b.remotes = append(b.eps, ep), append(b.remotes, windows)
	}
	for _, name := range functions {
		img, err := xrdma.Lookup(name)
		if err != nil {
			return err
		}
		if b.funcs[name], err = b.client.Runtime().Prepare(img, b.table); err != nil {
			return err
		}
	}
	return b.meter.calibrate(ctx, b)
}

// checkLayout holds the layout against what was loaded.
func (b *Backend) checkLayout() error {
	l, t := &b.layout, b.table
	if len(t.Shards) != l.Elements || t.Rows != l.Vertices || len(l.WindowBytes) != l.Elements {
		return fmt.Errorf("it has %d rows on %d elements, the layout %d on %d", t.Rows, len(t.Shards), l.Vertices, l.Elements)
	}
	for e, s := range t.Shards {
		if first, rows := l.Block(e); first != s.FirstRow || rows != s.Rows {
			return fmt.Errorf("element %d has %d rows from %d, the layout %d from %d", e, s.Rows, s.FirstRow, rows, first)
		}
		for w, n := range l.WindowBytes[e] {
			if w >= len(s.Windows) || s.Windows[w].Size != n {
				return fmt.Errorf("window %d of element %d does not have the %d bytes of the layout", w, e, n)
			}
		}
	}
	return nil
}

// Close lets go of the functions.
func (b *Backend) Close() {
	for _, f := range b.funcs {
		if f != nil {
			f.Close()
		}
	}
	b.funcs = nil
}

// remote checks a read and finds its memory.
func (b *Backend) remote(r *demo.Read) (*fabric.Remote, error) {
	if r.Element < 0 || r.Element >= len(b.remotes) || int(r.Window) >= len(b.remotes[r.Element]) {
		return nil, fmt.Errorf("%w: window %d of element %d", ErrRead, r.Window, r.Element)
	}
	m := b.remotes[r.Element][r.Window]
	if m == nil {
		return nil, fmt.Errorf("%w: window %d of element %d is empty", ErrRead, r.Window, r.Element)
	}
	return m, nil
}

// count counts a Get that sends nothing.
func (b *Backend) count(m *fabric.Remote, r *demo.Read) {
	if m.Mapped() {
		b.mapped.Messages++
		b.mapped.ToClient += uint64(len(r.Dst))
	}
}

// Get reads and waits.
func (b *Backend) Get(ctx context.Context, r demo.Read) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	m, err := b.remote(&r)
	if err != nil {
		return err
	}
	b.count(m, &r)
	return m.Get(ctx, r.Dst, r.Offset)
}

// GetMany has as many reads under way as the endpoints allow, and waits for all.
func (b *Backend) GetMany(ctx context.Context, reads []demo.Read) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	at := 0
	err := b.startAll(ctx, reads, &at)
	for ; at < len(b.ops); at++ {
		if err != nil { // the buffers must be quiet before they go
			b.ops[at].Forget()
		} else {
			err = b.ops[at].Wait(ctx)
		}
	}
	clear(b.ops)
	b.ops = b.ops[:0]
	return err
}

// startAll starts all reads; those before *at have ended.
func (b *Backend) startAll(ctx context.Context, reads []demo.Read, at *int) error {
	for i := range reads {
		r := &reads[i]
		m, err := b.remote(r)
		if err != nil {
			return err
		}
		b.count(m, r)
		for {
			op := m.StartGet(r.Dst, r.Offset)
			if !op.Poll() {
				b.ops = append(b.ops, op)
				break
			}
			err := op.Wait(ctx)
			if err == nil {
				break
			}
			if !errors.Is(err, fabric.ErrBackpressure) || *at == len(b.ops) {
				return err
			}
			oldest := b.ops[*at]
			*at++
			if err := oldest.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// setNext changes an entry of the chase's table, one-sided, and returns once it is there.
func (b *Backend) setNext(ctx context.Context, index, value uint64) error {
	e, row := b.layout.Owner(index)
	m, err := b.remote(&demo.Read{Element: e, Window: demo.ChaseNext})
	if err != nil {
		return err
	}
	if err := m.Put(ctx, binary.LittleEndian.AppendUint64(nil, value), 8*row); err != nil {
		return err
	}
	return b.eps[e].Flush(ctx) // a function that comes next may be faster than a Put
}

// Transports are the schemes of the connections, each once.
func (b *Backend) Transports() []string {
	var out []string
	for _, ep := range b.eps {
		if scheme, _, err := fabric.SplitAddr(ep.RemoteAddr()); err == nil && !slices.Contains(out, scheme) {
			out = append(out, scheme)
		}
	}
	return out
}
