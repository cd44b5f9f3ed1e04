package travel_test

import (
	"fmt"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestFetchesShared: functions that one principal declares and never sends, or sends a chunk of, leave others' functions places and memory to come in.
func TestFetchesShared(t *testing.T) {
	const size = travel.ChunkBytes * 6
	for _, chunks := range []bool{false, true} {
		h := newHall(t, 2, 100, travel.Limits{Fetches: 8, ObjectBytes: size, FetchBytes: 8 * size})
		silent := func(from int, m sentMsg) bool { return from == 0 && m.to == 2 && m.kind == travel.KindNeed } // eve answers nothing
		if chunks {                                                                                             // or the first chunk only
			silent = func(from int, m sentMsg) bool { return from == 1 && m.kind == travel.KindCode && m.body[36] != 0 }
		}
		start := func(i int, name string) {
			c := h.desks[i].core
			b, err := c.Bind(h.now, h.desks[i].put(append([]byte(name), make([]byte, size-len(name))...)), travel.ID{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Unbind(b)
			if _, err := c.Start(h.now, &travel.StartArgs{Binding: b, Deadline: h.now + 100*second, Roots: []travel.Root{{To: 1, Payload: []byte("1 1")}}}); err != nil {
				t.Fatal(err)
			}
		}
		for k := range 20 {
			start(1, fmt.Sprint("eve's ", k))
		}
		h.settle(t, silent)
		if n := h.desks[0].core.Sizes(); n.Fetches != 6 || n.FetchBytes > 6*size {
			t.Errorf("chunks %t: 20 of one principal have %d fetches of 8, and %d bytes", chunks, n.Fetches, n.FetchBytes)
		}
		start(2, "ann's")
		if runs := h.settle(t, silent); len(runs) != 1 {
			t.Errorf("chunks %t: ann's function does not come in: %v", chunks, h.desks[2].ended)
		}
	}
}
