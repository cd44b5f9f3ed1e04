package client

import (
	"context"
	"fmt"
	"sync"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
)

const (
	// slotBytes is one piece of data on its way to a node.
	slotBytes = 256 << 10
	// slotsPerNode are the pieces on their way to one node at once: enough to
	// cover a round trip at the speed of memory.
	slotsPerNode = 16
	// batchPieces is how many are named in one request.
	batchPieces = 4
	// stagingBytes bounds the pieces of all nodes together.
	stagingBytes = 128 << 20
)

// stage makes the memory that nodes fetch their shards from, and a key for each
// node to its own part of it.
func (l *loading) stage() error {
	slots := min(slotsPerNode, max(1, stagingBytes/slotBytes/len(l.nodes)))
	part := uint64(slots) * slotBytes
	var err error
	if l.staging, err = l.c.el.NewSegment(part*uint64(len(l.nodes)), fabric.Sealed); err != nil {
		return fmt.Errorf("memory to load from: %w", err)
	}
	for i, t := range l.nodes {
		t.base = uint64(i) * part
		if t.staging, err = l.staging.KeyRange(t.base, part, fabric.RightRead); err != nil {
			return err
		}
		t.slots = make(chan int, slots)
		for s := range slots {
			t.slots <- s
		}
	}
	return nil
}

// sink is the dataset.Sink that writes to the windows of other nodes: it puts
// pieces into the staging memory and has the nodes fetch them, several at once.
type sink struct {
	l      *loading
	ctx    context.Context
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	mu  sync.Mutex
	err error
}

func newSink(ctx context.Context, l *loading) *sink {
	s := &sink{l: l}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// Create makes a node's windows.
func (s *sink) Create(ctx context.Context, element uint32, sizes []uint64) error {
	t := s.l.nodes[element]
	t.sizes = append(t.sizes, sizes...)
	_, err := ask[control.Nothing](ctx, s.l.c, t.ep, control.CallAlloc, control.AllocRequest{Load: s.l.id, Kind: s.l.plan.Kind, Sizes: sizes, Writable: s.l.spec.Writable})
	return err
}

// WriteAt puts bytes where the node can fetch them, and tells it so once there
// are a few pieces.
func (s *sink) WriteAt(ctx context.Context, element uint32, window int, p []byte, offset uint64) error {
	t := s.l.nodes[element]
	for len(p) > 0 {
		slot, err := s.slot(ctx, t)
		if err != nil {
			return err
		}
		from := uint64(slot) * slotBytes
		n := copy(s.l.staging.Bytes()[t.base+from:][:slotBytes], p)
		t.batch = append(t.batch, control.Piece{Window: window, Offset: offset, From: from, Size: uint64(n)})
		if len(t.batch) == batchPieces {
			s.flush(t)
		}
		p, offset = p[n:], offset+uint64(n)
	}
	return nil
}

// slot takes a free place in the staging memory. What waits to be told of is
// told first if there is none: only then will one become free.
func (s *sink) slot(ctx context.Context, t *target) (int, error) {
	select {
	case slot := <-t.slots:
		return slot, nil
	default:
	}
	s.flush(t)
	select {
	case slot := <-t.slots:
		return slot, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// flush tells a node what there is to fetch.
func (s *sink) flush(t *target) {
	if len(t.batch) == 0 {
		return
	}
	req := control.FillRequest{Load: s.l.id, Pieces: t.batch}
	t.batch = nil
	s.work.Go(func() {
		if _, err := ask[control.Nothing](s.ctx, s.l.c, t.ep, control.CallFill, req); err != nil {
			s.fail(err)
		}
		for _, p := range req.Pieces {
			t.slots <- int(p.From / slotBytes)
		}
	})
}

// fail keeps the first error and stops the load.
func (s *sink) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	s.cancel(err)
}

// wait sends what is left, and returns when nothing is on its way any more.
func (s *sink) wait() error {
	for _, t := range s.l.nodes {
		s.flush(t)
	}
	s.work.Wait()
	s.cancel(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
