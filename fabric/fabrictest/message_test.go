package fabrictest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/layer"
)

// messageCore is what the fabric does with messages, whatever the transport.
func messageCore() []check {
	return []check{
		{"bad ids", messageBadIDs},
		{"bounds of Post", messagePostBounds},
		{"unknown ids", messageUnknown},
		{"handlers", messageHandlers},
	}
}

func messageBadIDs(r *rig) {
	a, _, ab, _ := r.pair()
	for _, id := range []fabric.FrameID{0, 5, fabric.FirstMessageID - 1, fabric.MaxFrameID + 1, 1<<16 - 1} {
		if ab.Send(r.Ctx, id, nil, nil) == nil || ab.Post(id, nil, nil) == nil || a.Handle(id, func(fabric.Message) {}) == nil {
			r.Errorf("id %d passed for a message's", id)
		}
	}
	r.Must(a.Handle(idData, func(fabric.Message) {}))
	if a.HandleRetaining(idData, func(fabric.Message) {}) == nil {
		r.Error("two handlers for one id")
	}
	if a.Handle(idKeep, nil) == nil || a.HandleRetaining(idKeep, nil) == nil || a.Layer(layer.Pass{}).HandleReturned(idKeep, nil) == nil {
		r.Error("no handler passed for one")
	}
	r.Must(a.Layer(layer.Pass{}).HandleReturned(idKeep, func(fabric.Message) {}))
	if a.Layer(layer.Pass{}).HandleReturned(idKeep, func(fabric.Message) {}) == nil || a.Layer(layer.Pass{}).HandleReturned(idReply, func(fabric.Message) {}) == nil {
		r.Error("two handlers for what comes back with one id, or one for what never does")
	}
}

func messagePostBounds(r *rig) {
	_, b, ab, _ := r.pair(smallWindow)
	var k keeper
	r.Must(b.HandleRetaining(idKeep, k.handle))
	sent := 0
	var err error
	for ; err == nil; sent++ {
		err = ab.Post(idKeep, numbered(sent, 8), make([]byte, 992))
	}
	sent--
	if !errors.Is(err, fabric.ErrBackpressure) || sent < 256 || sent > 1000 {
		r.Fatalf("after %d posted messages: %v; want ErrBackpressure after about 384 KiB", sent, err)
	}
	if err := ab.TrySend(idKeep, nil, numbered(sent, 8)); !errors.Is(err, fabric.ErrBackpressure) {
		r.Fatalf("TrySend past a full outbox: %v", err)
	}
	ctx, cancel := context.WithTimeout(r.Ctx, 20*time.Millisecond)
	defer cancel()
	if err := ab.WaitRoom(ctx); !errors.Is(err, context.DeadlineExceeded) {
		r.Errorf("WaitRoom without room: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- ab.Send(r.Ctx, idKeep, nil, numbered(sent, 8)) }()
	k.releaseAll(r, uint64(sent+1))
	r.Must(<-done)
	r.Must(ab.WaitRoom(r.Ctx))
	r.wantCount("posted, then sent", &k.counted, uint64(sent+1))
	k.release()
}

func messageUnknown(r *rig) {
	a, b, ab, _ := r.pair(smallWindow)
	var got, back counted
	b.Handle(idData, func(m fabric.Message) { got.take(m.Body) })
	r.Must(a.Layer(layer.Pass{}).HandleReturned(idNobody, func(m fabric.Message) {
		if m.From != ab || m.ID != idNobody || len(m.Body) > 32 {
			r.Errorf("message %d from %v comes back with %d bytes", m.ID, m.From, len(m.Body))
		}
		back.take(m.Body)
	}))
	for i := range 600 { // more than the window: their credit comes back
		r.Must(ab.Send(r.Ctx, idNobody, nil, numbered(i, 8+i)))
		r.Must(ab.Post(fabric.MaxFrameID, nil, make([]byte, 100)))
		r.Must(ab.Send(r.Ctx, idData, nil, numbered(i, 8)))
	}
	r.wantCount("among unknown ones", &got, 600)
	r.wantCount("of those that nobody handles", &back, 600) // each comes back
}

func messageHandlers(r *rig) {
	a, b, ab, ba := r.pair()
	la, lb := a.Layer(layer.Pass{}), b.Layer(layer.Pass{})
	la.SetTag(ab, 7)
	got := make(chan fabric.Message, 1)
	b.Handle(idData, func(m fabric.Message) { got <- m })
	r.Must(ab.Send(r.Ctx, idData, nil, []byte("x")))
	m := <-got
	if m.From != ba || m.ID != idData {
		r.Errorf("message %d from %v", m.ID, m.From)
	}
	if la.Tag(ab) != 7 || lb.Tag(ba) != 0 {
		r.Error("Tag is not the endpoint's own")
	}
	if ab.Name() != b.Name() || ab.Element() != a.Element || len(ab.Addrs()) != 1 || ab.Addrs()[0] != b.addr || ab.RemoteAddr() == "" {
		r.Errorf("endpoint %v: name %q, addresses %q", ab, ab.Name(), ab.Addrs())
	}
	// A handler may post, also to its own sender, without bound on depth.
	done := make(chan struct{})
	var hops atomic.Int64
	hop := func(m fabric.Message) {
		switch n := hops.Add(1); {
		case n < 200:
			m.From.Post(idEcho, nil, m.Body)
		case n == 200:
			close(done)
		}
	}
	a.Handle(idEcho, hop)
	b.Handle(idEcho, hop)
	r.Must(ab.Post(idEcho, nil, []byte("hop")))
	r.Within(patience/2, "200 hops", func() error { <-done; return nil })
}
