package travel_test

import (
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// town is some desks, all peers of each other: desk i is peer i+1 of the others.
type town struct {
	desks []*desk
	now   travel.Instant
	image travel.ID
	bind  *travel.Binding // at desk 0
}

const second = travel.Instant(time.Second)

func newTown(t *testing.T, n int, l travel.Limits) *town {
	w := &town{}
	for i := range n {
		w.desks = append(w.desks, newDesk(t, uint64(i+1), l))
	}
	for i := range n {
		for k := range n {
			if i != k {
				w.join(t, i, k, true)
			}
		}
	}
	for _, d := range w.desks {
		w.image = d.put([]byte("image"))
	}
	b, err := w.desks[0].core.Bind(0, w.image, travel.ID{})
	if err != nil {
		t.Fatal(err)
	}
	w.bind = b
	for i := range n {
		b.Elements = append(b.Elements, uint64(i+1))
	}
	b.Name = "walk"
	return w
}

// join makes desk k a peer of desk i.
func (w *town) join(t *testing.T, i, k int, member bool) {
	t.Helper()
	err := w.desks[i].core.PeerUp(w.now, travel.Peer(k+1), travel.PeerInfo{Incarnation: uint64(k + 1), Name: string(rune('a' + k)), Member: member, Injector: true})
	if err != nil {
		t.Fatal(err)
	}
}

// settle delivers everything until nothing is under way, except what drop
// says. Runs that may begin are returned, with the desk they are at.
func (w *town) settle(t *testing.T, drop func(from int, m sentMsg) bool) (runs []placed) {
	t.Helper()
	for again := true; again; {
		again = false
		for i, d := range w.desks {
			for _, m := range d.take() {
				again = true
				if drop != nil && drop(i, m) {
					continue
				}
				to := w.desks[m.to-1]
				r, err := to.core.Recv(w.now, travel.Peer(i+1), m.kind, m.body)
				if err != nil {
					t.Fatalf("desk %d: %v from %d: %v", m.to-1, m.kind, i, err)
				}
				if r != nil {
					to.core.Own(r)
					runs = append(runs, placed{to, r})
				}
			}
		}
		for _, d := range w.desks {
			for _, id := range d.asked {
				d.core.ObjectArrived(w.now, id)
			}
			d.asked = nil
			for r := d.core.NextRun(); r != nil; r = d.core.NextRun() {
				runs = append(runs, placed{d, r})
			}
		}
	}
	return runs
}

type placed struct {
	d *desk
	r *travel.Run
}

// pass lets time go by, and everything that is due happen.
func (w *town) pass(t *testing.T, d travel.Instant) []placed {
	t.Helper()
	w.now += d
	for _, d := range w.desks {
		d.core.Tick(w.now)
	}
	return w.settle(t, nil)
}

func (w *town) start(t *testing.T, a travel.StartArgs, to ...travel.Peer) travel.FutureID {
	t.Helper()
	a.Binding = w.bind
	if a.Deadline == 0 {
		a.Deadline = w.now + second
	}
	for _, p := range to {
		a.Roots = append(a.Roots, travel.Root{To: p, Payload: []byte("go")})
	}
	id, err := w.desks[0].core.Start(w.now, &a)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// one is the only run that may begin.
func (w *town) one(t *testing.T, runs []placed) placed {
	t.Helper()
	if len(runs) != 1 {
		t.Fatalf("%d runs may begin, want 1", len(runs))
	}
	return runs[0]
}

// outcome is how the only future ended.
func (w *town) outcome(t *testing.T) error {
	t.Helper()
	if n := len(w.desks[0].ended); n != 1 {
		t.Fatalf("%d futures ended, want 1", n)
	}
	return w.desks[0].ended[0].Err
}

// empty checks that nothing is left once time has passed.
func (w *town) empty(t *testing.T) {
	t.Helper()
	for range 5 {
		w.pass(t, second)
	}
	for i, d := range w.desks {
		if s := d.core.Sizes(); s != (travel.Sizes{}) {
			t.Errorf("desk %d still holds %+v", i, s)
		}
	}
}

func (p placed) finish(w *town, e travel.End) { p.d.core.Finish(w.now, p.r, e) }
