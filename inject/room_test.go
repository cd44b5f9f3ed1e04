package inject

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// atHand is an instance that notes when it goes back.
type atHand struct {
	abi.Instance
	name string
	gone *[]string
}

func (a atHand) Release() { *a.gone = append(*a.gone, a.name) }

// fullBound has no room.
type fullBound struct{ why error }

func (fullBound) Need(uint64) uint64                  { return 1 }
func (b fullBound) Reserve(uint64) (abi.Place, error) { return nil, b.why }
func (fullBound) Close()                              {}

// TestSparesThatLeave: whoever waits for its own share makes its own instances at hand leave; whoever lacks room in all, everybody's.
func TestSparesThatLeave(t *testing.T) {
	for _, c := range []struct {
		why  error
		room travel.Room
		gone string
	}{
		{fmt.Errorf("busy: %w", abi.ErrShareBusy), travel.RoomShare, "[alice]"},
		{fmt.Errorf("busy: %w", abi.ErrEngineBusy), travel.RoomShort, "[alice bob]"},
		{errors.New("closed"), travel.RoomTaken, "[]"},
	} {
		var gone []string
		rt := &Runtime{}
		for _, name := range []string{"bob", "alice"} {
			b := &bound{principal: name, spare: atHand{name: name, gone: &gone}, listed: true}
			rt.spares = append(rt.spares, b)
		}
		h := &host{rt: rt, principal: "alice", bound: &bound{principal: "alice", run: fullBound{c.why}}}
		if room := (*effects)(rt).Reserve(&travel.Run{User: h}); room != c.room {
			t.Errorf("%v: %v, want %v", c.why, room, c.room)
		}
		for _, r := range rt.release {
			r.Release()
		}
		if fmt.Sprint(gone) != c.gone {
			t.Errorf("%v: %v leave, want %v", c.why, gone, c.gone)
		}
		if h.place != nil {
			if _, err := h.place.Acquire(context.Background()); err != c.why {
				t.Errorf("%v, want %v", err, c.why)
			}
		}
	}
}
