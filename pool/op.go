package pool

import (
	"context"

	"github.com/wherry-fabric/wherry/fabric"
)

// Op is an operation that was started. Its buffer is its own until Wait or Forget has returned; exactly one of them ends it.
type Op struct {
	m    *Memory
	verb string
	off  uint64
	n    int
	err  error // it failed at once
	op   fabric.Op
	more []fabric.Op // of further extents
}

// StartGet starts a Get. Where no more operations can be under way, the Op has failed with fabric.ErrBackpressure.
func (m *Memory) StartGet(dst []byte, off uint64) Op {
	o := Op{m: m, verb: "get", off: off, n: len(dst)}
	if r, within := m.one(off, len(dst)); r != nil {
		o.op = r.StartGet(dst, within)
		return o
	}
	o.err = m.pieces("get", off, uint64(len(dst)), func(p piece) error {
		o.more = append(o.more, p.e.remote.StartGet(dst[p.from:p.to], p.within))
		return nil
	})
	return o
}

// StartPut starts a Put. Where no more operations can be under way, the Op has failed with fabric.ErrBackpressure.
func (m *Memory) StartPut(src []byte, off uint64) Op {
	o := Op{m: m, verb: "put", off: off, n: len(src)}
	if r, within := m.one(off, len(src)); r != nil {
		o.op = r.StartPut(src, within)
		return o
	}
	o.err = m.pieces("put", off, uint64(len(src)), func(p piece) error {
		o.more = append(o.more, p.e.remote.StartPut(src[p.from:p.to], p.within))
		return nil
	})
	return o
}

// Poll reports whether Wait would return at once.
func (o Op) Poll() bool {
	for _, m := range o.more {
		if !m.Poll() {
			return false
		}
	}
	return o.op.Poll()
}

// Component is where the first byte lies; "" where that is not known.
func (o Op) Component() string {
	if e, _, _ := o.m.view.Load().locate(o.off); e != nil {
		return e.home.component
	}
	return ""
}

// Wait drives progress until the operation has ended, and returns its error. When the context ends first, the operation is given up.
func (o Op) Wait(ctx context.Context) error {
	if o.err != nil {
		return o.err
	}
	err := o.op.Wait(ctx)
	for _, m := range o.more { // each must end
		if e := m.Wait(ctx); err == nil {
			err = e
		}
	}
	if err != nil {
		return o.m.failed(o.verb, o.off, o.n, err)
	}
	return nil
}

// Forget gives the operation up without waiting for its end. Its buffer is not touched any more when Forget returns.
func (o Op) Forget() {
	o.op.Forget()
	for _, m := range o.more {
		m.Forget()
	}
}
