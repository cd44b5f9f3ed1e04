package dataset

import (
	"context"
	"fmt"
)

// Sink takes the windows of a dataset's shards. All calls come from the goroutine in Plan.Fill.
type Sink interface {
	// Create makes windows of one element, all zeros; a size of 0 needs no memory. Of records and graphs every
	// element is created once, before anything is written; of columns each part's windows come behind those
	// that the element has, when the part is full.
	Create(ctx context.Context, element uint32, sizes []uint64) error
	// WriteAt copies p to a window at an offset, inside of the size it was created
	// with. p is the caller's again when WriteAt returns.
	WriteAt(ctx context.Context, element uint32, window int, p []byte, offset uint64) error
}

// Mapped is a Sink whose windows (all, or some of them) lie in this process's memory.
type Mapped interface {
	Sink
	// Memory is a window's memory, at least of the size it was created with, or
	// nil if it lies elsewhere. It is written directly until Fill returns.
	Memory(element uint32, window int) []byte
}

// Buffers is a Sink in ordinary memory: for tests, and for what stays in the process.
type Buffers struct {
	windows map[uint32][][]byte
}

// Create makes the windows.
func (b *Buffers) Create(_ context.Context, element uint32, sizes []uint64) error {
	if b.windows == nil {
		b.windows = map[uint32][][]byte{}
	}
	for _, n := range sizes {
		b.windows[element] = append(b.windows[element], make([]byte, n))
	}
	return nil
}

// WriteAt copies into a window.
func (b *Buffers) WriteAt(_ context.Context, element uint32, window int, p []byte, offset uint64) error {
	mem := b.Memory(element, window)
	if offset > uint64(len(mem)) || uint64(len(p)) > uint64(len(mem))-offset {
		return fmt.Errorf("dataset: %d bytes at %d do not fit window %d of element %d, which has %d", len(p), offset, window, element, len(mem))
	}
	copy(mem[offset:], p)
	return nil
}

// Memory is a window.
func (b *Buffers) Memory(element uint32, window int) []byte { return b.windows[element][window] }

// Discard is a Sink that keeps nothing: for loads that only try whether the input can be loaded.
type Discard struct{}

// Create makes nothing.
func (Discard) Create(context.Context, uint32, []uint64) error { return nil }

// WriteAt writes nowhere.
func (Discard) WriteAt(context.Context, uint32, int, []byte, uint64) error { return nil }

const (
	// bufferBytes is what is gathered of a window before it is written: enough
	// for a transfer to be worth its round trip.
	bufferBytes = 256 << 10
	// allBuffersBytes bounds the buffers of all windows together.
	allBuffersBytes = 64 << 20
	minBufferBytes  = 4 << 10
)

// bufferFor is the size of each buffer if so many windows have one.
func bufferFor(windows int) int {
	return max(minBufferBytes, min(bufferBytes, allBuffersBytes/max(windows, 1)))
}

// windowWriter fills a window from its start to its end.
type windowWriter struct {
	sink    Sink
	element uint32
	window  int
	size    uint64
	done    uint64 // written or gathered
	buf     []byte // gathered
}

func newWindowWriter(sink Sink, element uint32, window int, size uint64, buffer int) *windowWriter {
	return &windowWriter{sink: sink, element: element, window: window, size: size, buf: make([]byte, 0, min(uint64(buffer), size))}
}

func (w *windowWriter) write(ctx context.Context, p []byte) error {
	if uint64(len(p)) > w.size-w.done {
		return fmt.Errorf("%w: window %d of element %d has more than its %d bytes", ErrChanged, w.window, w.element, w.size)
	}
	if len(w.buf) == 0 && len(p) > cap(w.buf) { // gathering it would be a copy more
		w.done += uint64(len(p))
		return w.sink.WriteAt(ctx, w.element, w.window, p, w.done-uint64(len(p)))
	}
	for len(p) > 0 {
		n := copy(w.buf[len(w.buf):cap(w.buf)], p)
		w.buf = w.buf[:len(w.buf)+n]
		w.done += uint64(n)
		p = p[n:]
		if len(w.buf) == cap(w.buf) {
			if err := w.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *windowWriter) flush(ctx context.Context) error {
	if len(w.buf) == 0 {
		return nil
	}
	err := w.sink.WriteAt(ctx, w.element, w.window, w.buf, w.done-uint64(len(w.buf)))
	w.buf = w.buf[:0]
	return err
}

// finish writes what is left, and checks that the window is full.
func (w *windowWriter) finish(ctx context.Context) error {
	if w.done != w.size {
		return fmt.Errorf("%w: window %d of element %d got %d bytes of %d", ErrChanged, w.window, w.element, w.done, w.size)
	}
	return w.flush(ctx)
}
