package travel_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestOwnWay: of two workers one keeps scratch and the other waits for room. It is ended only if nobody else will give any back: not while another
// function waits to send, has its room and is about to begin, or has ended and its room is still being cleared.
func TestOwnWay(t *testing.T) {
	const look = 60 * travel.Instant(time.Millisecond)
	for _, other := range []string{"nobody", "sends", "begins", "is cleared"} {
		for _, share := range []bool{false, true} { // what is short: of the principal, or of the element
			h := newHall(t, 2, 2, travel.Limits{})
			them, c := 2, h.desks[0].core
			if share {
				h.free, h.share, them = 9, 2, 1
			}
			h.ask(1, 1, travel.StartArgs{Stateful: true})
			first := h.runs[0]
			if err := c.HoldState(first.r, "scratch"); err != nil {
				t.Fatal(err)
			}
			h.ask(them, 1, travel.StartArgs{})
			second := h.runs[1]
			first.r.User = nil
			if err := c.Forward(h.now, first.r, travel.Self, []byte("1 2")); err != nil { // a function of its own needs room of its own
				t.Fatal(err)
			}
			first.finish(h.town, travel.End{})
			delete(h.has, first.r)
			h.runs = h.runs[1:]
			h.begin(h.settle(t, nil))
			if c.Sizes().Awaiting != 1 {
				t.Fatalf("%s: %d wait", other, c.Sizes().Awaiting)
			}
			free := func() {
				h.free++
				h.taken[h.has[second.r].name]--
			}
			switch other {
			case "nobody":
				free()
				second.finish(h.town, travel.End{})
				h.settle(t, nil)
			case "sends":
				c.Wait(h.now, second.r)
			case "begins":
				c.Await(h.now, second.r, 1)
				free()
				second.r.User = h.has[second.r]
				c.RoomFreed()
			case "is cleared":
				second.finish(h.town, travel.End{})
				h.settle(t, nil)
				h.desks[0].freeing = true
			}
			for _, d := range h.desks {
				d.ended = nil
			}
			h.now += look
			c.Tick(h.now)
			h.now += look
			c.Tick(h.now)
			begun := h.settle(t, nil)
			if (len(begun) > 0) != (other == "begins") {
				t.Errorf("%s, share %v: %d begin", other, share, len(begun))
			}
			o := h.desks[1].ended
			if ends := len(o) == 1; ends != (other == "nobody") || ends && (!errors.Is(o[0].Err, travel.ErrBackpressure) || !strings.Contains(o[0].Err.Error(), "another function of the same call")) {
				t.Errorf("%s, share %v: %+v", other, share, o)
			}
		}
	}
}
