package pool

import (
	"context"
	"fmt"
)

// CopyTo copies n bytes at off to another region, or elsewhere in this one; they do not pass through this
// machine. Ranges that overlap are refused.
func (m *Memory) CopyTo(ctx context.Context, off uint64, dst *Region, dstOff, n uint64) error {
	from, to := m.view.Load(), dst.view.Load()
	if err := from.within("copy", off, n); err != nil {
		return err
	}
	if err := to.within("copy", dstOff, n); err != nil {
		return err
	}
	if m == &dst.Memory && off < dstOff+n && dstOff < off+n && n > 0 {
		return from.fail("copy", off, n, fmt.Errorf("%w: %d bytes at %d and at %d overlap: copy in parts", ErrSpec, n, off, dstOff))
	}
	for _, s := range steps(from, to, off, dstOff, n) {
		if s.from.ep != s.to.ep {
			return from.failAt(s.from.component, "copy", off, n, fmt.Errorf("%w: region %s is at %s: between two components, get and put", ErrSpec, to.label(), s.to.component))
		}
		if err := m.pool.tell(ctx, s.to.component, CallCopy, CopyRequest{s.from.ref, s.fromOff, s.to.ref, s.toOff, s.size}); err != nil {
			return err
		}
	}
	return nil
}

// step is what one component copies from one component, itself or another, in one go.
type step struct {
	from, to       *home
	fromOff, toOff uint64 // in the components' words
	size           uint64
}

// steps cut a copy into what lies at one component at either end.
func steps(from, to *view, off, dstOff, n uint64) (list []step) {
	from.each(off, n, func(p piece) error {
		return to.each(dstOff+p.from, p.to-p.from, func(q piece) error {
			s := step{p.e.home, q.e.home, p.e.at + p.within + q.from, q.e.at + q.within, q.to - q.from}
			if k := len(list) - 1; k >= 0 && list[k].from == s.from && list[k].to == s.to && list[k].fromOff+list[k].size == s.fromOff && list[k].toOff+list[k].size == s.toOff {
				list[k].size += s.size
			} else {
				list = append(list, s)
			}
			return nil
		})
	})
	return list
}
