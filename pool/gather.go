package pool

import (
	"context"
	"fmt"
	"sync"
)

// Gather copies len(dst)/size elements of size bytes into dst: those numbered first, first+stride, … Element i lies at i × size. From where the
// region is not mapped they come with one request to each component, not one for each element.
func (m *Memory) Gather(ctx context.Context, dst []byte, size int, first, stride uint64) error {
	return m.move(ctx, "gather", dst, Pick{Size: size, First: first, Stride: stride})
}

// GatherIndexed is Gather of the elements that index names, one for each element of dst.
func (m *Memory) GatherIndexed(ctx context.Context, dst []byte, size int, index []uint64) error {
	return m.move(ctx, "gather", dst, Pick{Size: size, Index: named(index)})
}

// Scatter copies src to elements of size bytes: those numbered first, first+stride, … Where a number occurs twice, one of its elements stays.
func (m *Memory) Scatter(ctx context.Context, src []byte, size int, first, stride uint64) error {
	return m.move(ctx, "scatter", src, Pick{Size: size, First: first, Stride: stride})
}

// ScatterIndexed is Scatter to the elements that index names, one for each element of src.
func (m *Memory) ScatterIndexed(ctx context.Context, src []byte, size int, index []uint64) error {
	return m.move(ctx, "scatter", src, Pick{Size: size, Index: named(index)})
}

// named makes no numbers an empty list, which is not nil.
func named(index []uint64) []uint64 {
	if index == nil {
		return []uint64{}
	}
	return index
}

// move moves elements between a buffer and the memory.
func (m *Memory) move(ctx context.Context, op string, buf []byte, p Pick) error {
	v := m.view.Load()
	if p.Size <= 0 || p.Size > MaxPickedBytes || len(buf)%max(p.Size, 1) != 0 || p.Index != nil && len(p.Index) != len(buf)/p.Size {
		return v.fail(op, 0, uint64(len(buf)), fmt.Errorf("%w: a buffer of %d bytes for elements of %d bytes, at most %d, and %d numbers", ErrSpec, len(buf), p.Size, MaxPickedBytes, len(p.Index)))
	}
	p.Count = len(buf) / p.Size
	for i := range p.Count {
		if off, ok := p.Off(i, v.info.Size); !ok || p.wraps() {
			return v.fail(op, off, uint64(p.Size), fmt.Errorf("%w: element %d of %d bytes, and it has %d bytes", ErrRange, p.number(i), p.Size, v.info.Size))
		}
	}
	switch {
	case v.closed:
		return v.fail(op, 0, uint64(len(buf)), ErrClosed)
	case v.mapped:
		return m.moveEach(ctx, op, buf, &p)
	case len(v.homes) == 1:
		return m.moveAt(ctx, v, v.homes[0], op, buf, p)
	case v.item != nil: // elements have other numbers at each component
		return m.moveStarted(ctx, op, buf, &p)
	}
	return m.moveSorted(ctx, v, op, buf, &p)
}

// moveEach moves elements one by one.
func (m *Memory) moveEach(ctx context.Context, op string, buf []byte, p *Pick) error {
	for i := range p.Count {
		off := p.number(i) * uint64(p.Size)
		element := buf[i*p.Size : (i+1)*p.Size]
		var err error
		if op == "gather" {
			err = m.Get(ctx, element, off)
		} else {
			err = m.Put(ctx, element, off)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// moveWindow is how many elements are under way at a time where they are moved by an operation each: well below what a connection takes.
const moveWindow = 128

// moveStarted moves elements with an operation each, many at a time.
func (m *Memory) moveStarted(ctx context.Context, op string, buf []byte, p *Pick) error {
	var ops [moveWindow]Op
	for from := 0; from < p.Count; from += moveWindow {
		to := min(from+moveWindow, p.Count)
		for i := from; i < to; i++ {
			off, element := p.number(i)*uint64(p.Size), buf[i*p.Size:(i+1)*p.Size]
			if op == "gather" {
				ops[i-from] = m.StartGet(element, off)
			} else {
				ops[i-from] = m.StartPut(element, off)
			}
		}
		var err error
		for _, o := range ops[:to-from] { // each must end
			if e := o.Wait(ctx); err == nil {
				err = e
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// moveAt has one component move elements, which all lie there.
func (m *Memory) moveAt(ctx context.Context, v *view, h *home, op string, buf []byte, p Pick) error {
	p.Region, p.Item, p.Epoch = h.ref.Region, h.ref.Item, h.ref.Epoch
	step := min(MaxPickedBytes/p.Size, MaxPicked)
	for from := 0; from < p.Count; from += step {
		part := p
		part.Count = min(step, p.Count-from)
		if p.Index != nil {
			part.Index = p.Index[from : from+part.Count]
		} else {
			part.First = p.number(from)
		}
		if err := m.request(ctx, h, op, buf[from*p.Size:(from+part.Count)*p.Size], &part); err != nil {
			return v.failAt(h.component, op, 0, uint64(len(buf)), err)
		}
	}
	return nil
}

// request has the component move elements.
func (m *Memory) request(ctx context.Context, h *home, op string, buf []byte, p *Pick) error {
	b := p.Append(make([]byte, 0, pickHeadBytes+8*len(p.Index)+len(buf)))
	if op == "scatter" {
		_, err := m.pool.ask.Call(ctx, h.ep, CallScatter, append(b, buf...))
		return err
	}
	answer, err := m.pool.ask.Call(ctx, h.ep, CallGather, b)
	if err == nil && len(answer) != len(buf) {
		err = fmt.Errorf("%d bytes came, and %d were asked for: is it another version?", len(answer), len(buf))
	}
	copy(buf, answer)
	return err
}

// sorted are the elements of one component.
type sorted struct {
	index []uint64 // their numbers
	of    []int    // which of the operation's they are
	buf   []byte
	err   error
}

// moveSorted moves elements that lie at several components: all components at once, each those that it has whole; the rest one by one.
func (m *Memory) moveSorted(ctx context.Context, v *view, op string, buf []byte, p *Pick) error {
	lists := map[*home]*sorted{}
	var split []int
	for i := range p.Count {
		off := p.number(i) * uint64(p.Size)
		e, _, run := v.locate(off)
		if run < uint64(p.Size) || e.remote == nil {
			split = append(split, i)
			continue
		}
		l := lists[e.home]
		if l == nil {
			l = new(sorted)
			lists[e.home] = l
		}
		l.index, l.of = append(l.index, p.number(i)), append(l.of, i)
		l.buf = append(l.buf, buf[i*p.Size:(i+1)*p.Size]...)
	}
	for _, i := range split {
		one := Pick{Size: p.Size, Count: 1, First: p.number(i)}
		if err := m.moveEach(ctx, op, buf[i*p.Size:(i+1)*p.Size], &one); err != nil {
			return err
		}
	}
	var work sync.WaitGroup
	for h, l := range lists {
		work.Go(func() { l.err = m.moveAt(ctx, v, h, op, l.buf, Pick{Size: p.Size, Count: len(l.of), Index: l.index}) })
	}
	work.Wait()
	for _, l := range lists {
		if l.err != nil {
			return l.err
		}
		if op == "gather" {
			for k, i := range l.of {
				copy(buf[i*p.Size:(i+1)*p.Size], l.buf[k*p.Size:])
			}
		}
	}
	return nil
}
