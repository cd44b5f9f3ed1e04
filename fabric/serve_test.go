package fabric

import (
	"errors"
	"strings"
	"testing"
)

// TestTooManyOperations: a peer that has more operations under way than it was told it may is cut off, and
// leaves nothing pinned; one that has as many as it may is served.
func TestTooManyOperations(t *testing.T) {
	const most = 8
	for _, c := range []struct {
		name string
		id   FrameID
		may  int // of Gets twice as many: their answers may be on their way still when the peer has them
	}{{"Puts", framePut, most}, {"Gets", frameGet, 2 * most}} {
		t.Run(c.name, func(t *testing.T) {
			e := loneElement(t, 1, Limits{OpsPerEndpoint: most})
			seg, err := e.NewSegment(1<<20, Writable)
			if err != nil {
				t.Fatal(err)
			}
			key, err := seg.Key(RightsAll)
			if err != nil {
				t.Fatal(err)
			}
			hostile, link := attach(t, e, 2)
			honest, _ := attach(t, e, 3)
			link.room = 0 // it reads none of its answers
			ask := func(ep *Endpoint, op int) error {
				return ep.Frame(c.id, appendAccess(nil, uint32(op), key.ref(), 0, inlineGetBytes+1))
			}
			for i := range c.may {
				if err := errors.Join(ask(hostile, i), ask(honest, i)); err != nil {
					t.Fatalf("%d of them: %v", i+1, err)
				}
				e.Progress()
				if c.id == framePut { // the honest one goes on with each before the next
					if err := honest.Frame(framePutData, append(bulkHead(nil, uint32(i), bulkLast, 0), make([]byte, inlineGetBytes+1)...)); err != nil {
						t.Fatal(err)
					}
				}
			}
			err = ask(hostile, c.may)
			if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), "more than 8") {
				t.Fatalf("one more: %v", err)
			}
			hostile.Lost(err) // which is what a transport does about that
			if err := errors.Join(ask(honest, c.may), honest.Err()); err != nil {
				t.Errorf("an honest peer: %v", err)
			}
			if !link.closed || len(e.Endpoints()) != 1 || hostile.Busy() {
				t.Error("the hostile peer has something under way still")
			}
			honest.Close()
			seg.Close()
			if n := e.LentBytes(); n != 0 {
				t.Errorf("%d bytes stay pinned", n)
			}
		})
	}
	t.Run("one Put twice", func(t *testing.T) {
		e := loneElement(t, 1, Limits{})
		ep, _ := attach(t, e, 2)
		put := appendAccess(nil, 7, keyRef{}, 0, 5000)
		if err := ep.Frame(framePut, put); err != nil {
			t.Fatal(err)
		}
		if err := ep.Frame(framePut, put); !errors.Is(err, ErrProtocol) {
			t.Errorf("announced again: %v", err)
		}
	})
}
