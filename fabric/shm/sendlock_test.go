package shm

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// lender is a Receiver that lends the transport the lock it holds over Send. No callback may come with it held.
type lender struct {
	recorder
	tb testing.TB
	mu sync.Mutex
}

func (r *lender) SendLock() *sync.Mutex { return &r.mu }

func (r *lender) free(what string) {
	if !r.mu.TryLock() {
		r.tb.Errorf("%s came with the lent lock held", what)
		return
	}
	r.mu.Unlock()
}

func (r *lender) Frame(id fabric.FrameID, body []byte) error {
	r.free("Frame")
	return r.recorder.Frame(id, body)
}

func (r *lender) Writable()             { r.free("Writable"); r.recorder.Writable() }
func (r *lender) Lost(err error)        { r.free("Lost"); r.recorder.Lost(err) }
func (r *lender) FD(tag uint64, fd int) { r.free("FD"); r.recorder.FD(tag, fd) }

func (r *lender) send(l *link, class fabric.Class, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return l.Send(testID, class, nil, make([]byte, n))
}

// lent links a transport with a lender to one with a plain recorder.
func lent(t *testing.T, cfg Config) (tr *Transport, l *link, r *lender, peer *end) {
	t.Helper()
	peer = &end{t: newTransport(t, cfg), r: &recorder{}}
	tr, r = newTransport(t, cfg), &lender{tb: t}
	addr := uniqueName()
	ch, err := listen(peer.t, addr, func() fabric.Receiver { return peer.r })
	must(t, err)
	l, err = dial(tr, addr, r)
	must(t, err)
	s := <-ch
	must(t, s.err)
	peer.l = s.l
	return tr, l, r, peer
}

// TestLentLock: frames, room, descriptors and the end all pass, and no callback finds the lock taken.
func TestLentLock(t *testing.T) {
	tr, l, r, peer := lent(t, Config{Slots: 64})
	sent := 0
	for r.send(l, fabric.Normal, 8) == nil {
		sent++
	}
	fds := 0
	r.fd = func(_ uint64, fd int) { fds++; os.NewFile(uintptr(fd), "").Close() }
	must(t, peer.l.SendFD(1, 0))
	must(t, peer.l.Send(testID, fabric.Normal, nil, nil))
	until(t, "frames, room and a descriptor", func() bool {
		return peer.r.frames == sent && r.writable > 0 && r.frames == 1 && fds == 1
	}, tr, peer.t)
	must(t, r.send(l, fabric.Normal, 3000))
	must(t, peer.l.Close())
	until(t, "the end", func() bool { return r.lost != nil }, tr, peer.t)
	if err := r.send(l, fabric.Reserved, 8); err != fabric.ErrLinkClosed {
		t.Errorf("Send after the end: %v", err)
	}
}

// TestLentLockHeld: while a sender holds the lock nothing closes, breaks or unmaps what it writes to.
func TestLentLockHeld(t *testing.T) {
	for name, c := range map[string]struct {
		before, meanwhile func(tr *Transport, l *link, peer *end)
	}{
		"Close":  {nil, func(_ *Transport, l *link, _ *end) { l.Close() }},
		"SendFD": {nil, func(_ *Transport, l *link, _ *end) { l.SendFD(1, 0) }},
		"break":  {nil, func(_ *Transport, l *link, _ *end) { l.fail(ErrProtocol) }},
		"the peer's end, found by Poll": {func(_ *Transport, _ *link, peer *end) { peer.l.Close(); peer.poll() },
			func(tr *Transport, l *link, _ *end) {
				for l.state.Load() == stateOpen {
					tr.Poll(64, never)
				}
			}},
		"unmap": {func(_ *Transport, l *link, _ *end) { l.Close() }, func(tr *Transport, l *link, _ *end) {
			for tr.links[l.idx].Load() != nil {
				tr.Poll(64, never)
			}
			l.unmap() // which has happened, or waits
		}},
		"the transport's Close": {func(_ *Transport, l *link, _ *end) { l.Close() }, func(tr *Transport, _ *link, _ *end) { tr.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			tr, l, r, peer := lent(t, Config{})
			if c.before != nil {
				c.before(tr, l, peer)
			}
			r.mu.Lock()
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.meanwhile(tr, l, peer)
			}()
			select {
			case <-done:
				t.Error("it did not wait for the sender")
			case <-time.After(20 * time.Millisecond):
			}
			l.Send(testID, fabric.Normal, nil, make([]byte, 3000)) // into memory that must still be there
			if l.torn {
				t.Error("the link was unmapped under a sender")
			}
			r.mu.Unlock()
			select {
			case <-done:
			case <-time.After(patience):
				t.Fatal("it still waits")
			}
		})
	}
}
