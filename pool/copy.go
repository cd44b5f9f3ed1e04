package pool

import (
	"context"
	"fmt"
)

// Bytes is a Region or an Item.
type Bytes interface{ memory() *Memory }

func (m *Memory) memory() *Memory { return m }

// CopyTo copies n bytes at off to another region or item, or elsewhere in this one; they do not pass through this
// machine: the component that gets them copies them, or fetches them from the one that has them. Ranges that overlap are refused.
func (m *Memory) CopyTo(ctx context.Context, off uint64, dst Bytes, dstOff, n uint64) error {
	return m.Copy(ctx, off, dst, dstOff, n, nil)
}

// Copy is CopyTo that says after each part, of at most MaxCopyBytes, how many bytes are there. When the context ends, the component that copies stops.
func (m *Memory) Copy(ctx context.Context, off uint64, dst Bytes, dstOff, n uint64, progress func(done uint64)) error {
	to := dst.memory()
	a, b := m.view.Load(), to.view.Load()
	if err := a.within("copy", off, n); err != nil {
		return err
	}
	if err := b.within("copy", dstOff, n); err != nil {
		return err
	}
	if m == to && off < dstOff+n && dstOff < off+n && n > 0 {
		return a.fail("copy", off, n, fmt.Errorf("%w: %d bytes at %d and at %d overlap: copy in parts", ErrSpec, n, off, dstOff))
	}
	done := uint64(0)
	for _, s := range steps(a, b, off, dstOff, n) {
		if err := m.copyStep(ctx, &s); err != nil {
			return a.failAt(s.from.component, "copy", off, n, fmt.Errorf("to %d of %s at %s: %w", dstOff, b.label(), s.to.component, err))
		}
		if done += s.size; progress != nil {
			progress(done)
		}
	}
	return nil
}

func (m *Memory) copyStep(ctx context.Context, s *step) error {
	if s.from.ep == s.to.ep {
		return m.pool.tell(ctx, s.to.component, CallCopy, CopyRequest{s.from.ref, s.fromOff, s.to.ref, s.toOff, s.size})
	}
	keys := new(ReadReply)
	if _, err := m.pool.ask.Ask(ctx, s.from.component, CallRead, ReadRequest{s.from.ref, s.fromOff, s.size}, keys); err != nil {
		return err
	}
	return m.pool.tell(ctx, s.to.component, CallPull, PullRequest{To: s.to.ref, ToOff: s.toOff, From: s.from.component, Pieces: keys.Pieces})
}

// step is what one component copies from one component, itself or another, in one go.
type step struct {
	from, to       *home
	fromOff, toOff uint64 // in the components' words
	size           uint64
}

// steps cut a copy into what lies at one component at either end, at most MaxCopyBytes each.
func steps(from, to *view, off, dstOff, n uint64) (list []step) {
	from.each(off, n, func(p piece) error {
		return to.each(dstOff+p.from, p.to-p.from, func(q piece) error {
			s := step{p.e.home, q.e.home, p.e.at + p.within + q.from, q.e.at + q.within, q.to - q.from}
			if k := len(list) - 1; k >= 0 && list[k].from == s.from && list[k].to == s.to && list[k].fromOff+list[k].size == s.fromOff && list[k].toOff+list[k].size == s.toOff {
				s.fromOff, s.toOff, s.size = list[k].fromOff, list[k].toOff, list[k].size+s.size
				list = list[:k]
			}
			for s.size > MaxCopyBytes {
				part := s
				part.size = MaxCopyBytes
				list = append(list, part)
				s.fromOff, s.toOff, s.size = s.fromOff+MaxCopyBytes, s.toOff+MaxCopyBytes, s.size-MaxCopyBytes
			}
			list = append(list, s)
			return nil
		})
	})
	return list
}
