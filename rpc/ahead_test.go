package rpc

import (
	"errors"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
)

// mutePeer is an element that listens over tcp and is driven by hand.
func mutePeer(t testing.TB, manual bool) *fabric.Element {
	t.Helper()
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: "mute", Transports: []fabric.Transport{tr}, Manual: manual})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { el.Close() })
	return el
}

// TestGivenUpWhileFetched gives calls up whose large answers are being fetched, from a peer that does not let
// them be: their memory counts until nobody fills it any more.
func TestGivenUpWhileFetched(t *testing.T) {
	const size = 1 << 20
	a := newSide(t, "a", Limits{MaxBytes: size, BulkBytes: 2 * size})
	ep := connect(t, a, &side{el: mutePeer(t, true)}, "tcp://127.0.0.1:0")
	c := a.p.conn(ep)
	comes := func() Future { // and what is said of its answer
		f, err := a.p.Start(t.Context(), ep, "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		at := ref{fabric.Key{Owner: ep.Incarnation(), Size: size, Rights: fabric.RightRead}, size}
		var head [responseBytes]byte
		(&response{id: f.r.id, lent: true}).put(&head)
		if err := c.onResponse(at.append(head[:])); err != nil {
			t.Fatal(err)
		}
		return f
	}
	for range 2 {
		comes().Forget()
	}
	left := comes()
	if n := a.p.ahead.Load(); n != 2*size || !left.Poll() {
		t.Errorf("%d bytes are being fetched for nobody, which count as %d; the third answer: fetched too: %v", 2*size, n, !left.Poll())
	}
	time.AfterFunc(20*time.Millisecond, func() { ep.Close() })
	if _, err := left.Wait(t.Context()); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("the third: %v", err)
	}
	waitFor(t, "nothing counts at the end", func() bool { return a.p.ahead.Load() == 0 })
}
