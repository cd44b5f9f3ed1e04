package fabric

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frame is one that a fake link took.
type frame struct {
	id   FrameID
	body []byte
}

// fakeLink is a Link in memory. It takes room frames, or all if room is < 0.
type fakeLink struct {
	mu     sync.Mutex
	frames []frame
	room   int
	full   bool
	closed bool
	lent   *sync.Mutex // the Receiver's SendLock, held over each Send
	bare   int         // Sends without it
}

func (l *fakeLink) Features() LinkFeatures { return LinkFeatures{} }

func (l *fakeLink) Send(id FrameID, class Class, head, body []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lent != nil && l.lent.TryLock() {
		l.lent.Unlock()
		l.bare++
	}
	switch {
	case l.closed:
		return ErrLinkClosed
	case l.room == 0 && class == Normal || l.room == -1<<30:
		l.full = true
		return ErrLinkFull
	}
	if l.room > 0 {
		l.room--
	}
	l.frames = append(l.frames, frame{id, append(bytes.Clone(head), body...)})
	return nil
}

func (l *fakeLink) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}

// take is what was sent since the last take.
func (l *fakeLink) take() []frame {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.frames
	l.frames = nil
	return f
}

// loneElement is driven by the test, on a clock that stands still.
func loneElement(t testing.TB, inc Incarnation, l Limits) *Element {
	t.Helper()
	e, err := New(Config{Name: "lone", Manual: true, Now: func() int64 { return 1 }, Incarnation: inc, Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// attach gives e an endpoint whose frames end up in a fakeLink.
func attach(t testing.TB, e *Element, peer Incarnation) (*Endpoint, *fakeLink) {
	t.Helper()
	link := &fakeLink{room: -1}
	ep, err := (*Layer)(e).Attach(PeerHello{Name: "peer", Incarnation: peer, Limits: e.cfg.Limits}, func(r Receiver) (Link, error) {
		link.lent = r.(SendLocker).SendLock()
		return link, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if link.bare > 0 {
			t.Errorf("%d frames were sent without the lock that SendLock lends", link.bare)
		}
	})
	return ep, link
}

// patience bounds every wait that a bug could make endless.
const patience = 2 * time.Minute

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// deliver hands a frame to an endpoint as a transport does: bulk frames by
// Place if place says so.
func deliver(ep *Endpoint, f frame, place bool) error {
	if !place || !BulkFrame(f.id) || len(f.body) < PlaceHeadBytes {
		return ep.receiver().Frame(f.id, f.body)
	}
	head, data := f.body[:PlaceHeadBytes], f.body[PlaceHeadBytes:]
	dst, err := ep.receiver().Place(f.id, head, len(data))
	if err != nil {
		return err
	}
	copy(dst, data)
	return ep.receiver().Placed(f.id, head, len(data))
}
