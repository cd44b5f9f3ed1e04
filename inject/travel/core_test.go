package travel_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
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
	b.Name = "walk"
	return w
}

// join makes desk k a peer of desk i.
func (w *town) join(t *testing.T, i, k int, member bool) {
	t.Helper()
	err := w.desks[i].core.PeerUp(travel.Peer(k+1), travel.PeerInfo{Incarnation: uint64(k + 1), Name: string(rune('a' + k)), Member: member, Injector: true})
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

func TestOneHop(t *testing.T) {
	w := newTown(t, 2, travel.Limits{})
	trace := &travel.Trace{TraceID: [16]byte{1}, Flags: 1}
	w.start(t, travel.StartArgs{Trace: trace, Hops: 9}, 2)
	p := w.one(t, w.settle(t, nil))
	if got, ok := p.r.Trace(); !ok || got != *trace || p.r.Hops() != 9 || string(p.r.Payload) != "go" || p.r.Origin() != 1 || p.r.Branch() != 0 {
		t.Errorf("the run has trace %v %v, hops %d, payload %q, origin %d", got, ok, p.r.Hops(), p.r.Payload, p.r.Origin())
	}
	p.finish(w, travel.End{HasResult: true, Result: []byte("answer")})
	sent := p.d.take()
	if len(sent) != 1 || sent[0].kind != travel.KindDone || len(sent[0].body) != 9+len("answer") {
		t.Fatalf("the target sent %v, want one DONE of 9 bytes and the answer", sent)
	}
	w.desks[0].deliverFrom(t, w.now, 2, sent)
	if err := w.outcome(t); err != nil || string(w.desks[0].parts[0]) != "answer" {
		t.Fatalf("ended with %v and %q", err, w.desks[0].parts)
	}
	if s := w.desks[0].core.Sizes(); s != (travel.Sizes{}) {
		t.Errorf("the origin still holds %+v", s)
	}
	if s := w.desks[1].core.Sizes(); s != (travel.Sizes{}) {
		t.Errorf("the target still holds %+v", s)
	}
	w.empty(t)
	if c := w.desks[1].core.Counters(); c.Acks != 0 || c.Runs != 1 {
		t.Errorf("a one-hop injection cost %d ACKs and %d runs", c.Acks, c.Runs)
	}
}

func (d *desk) deliverFrom(t *testing.T, now travel.Instant, from travel.Peer, msgs []sentMsg) {
	t.Helper()
	for _, m := range msgs {
		if _, err := d.core.Recv(now, from, m.kind, m.body); err != nil {
			t.Fatal(err)
		}
	}
}

// TestErrors: how each failure reads at the origin.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		args travel.StartArgs
		do   func(t *testing.T, w *town, p placed)
		is   []error
		text []string
	}{
		{"function", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			p.finish(w, travel.End{Code: travel.CodeFunction, Status: -7, Text: "row 5 is missing"})
		}, []error{travel.ErrRemote}, []string{"status -7", "row 5 is missing", " on b"}},
		{"hops", travel.StartArgs{Hops: 1}, func(t *testing.T, w *town, p placed) {
			if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
				t.Fatal(err)
			}
			p.finish(w, travel.End{})
			p = w.one(t, w.settle(t, nil))
			p.r.Binding().Name = "walk"
			if err := p.d.core.Forward(w.now, p.r, 2, nil); !errors.Is(err, travel.ErrHopLimit) || !p.r.Ended() {
				t.Fatalf("a forward with no hops left gives %v", err)
			}
			p.finish(w, travel.End{Code: travel.CodeTrap, Text: "not this"})
		}, []error{travel.ErrRemote, travel.ErrHopLimit}, []string{"walk used up its hop budget on c (a budget of 1; at most 4095 can be given)"}},
		{"no such peer", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			if err := p.d.core.Forward(w.now, p.r, 77, nil); !errors.Is(err, travel.ErrPeerLost) {
				t.Fatal(err)
			}
			p.finish(w, travel.End{})
		}, []error{travel.ErrPeerLost}, []string{"peer number 77"}},
		{"backpressure", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			p.d.full = true
			if _, err := p.d.core.Fork(w.now, p.r, 3, nil, nil); !errors.Is(err, travel.ErrBackpressure) {
				t.Fatal(err)
			}
			p.d.full = false
			p.d.core.Writable(1)
			p.finish(w, travel.End{})
		}, []error{travel.ErrBackpressure}, nil},
		{"too large", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			p.finish(w, travel.End{HasResult: true, Result: make([]byte, travel.MaxMessageBytes)})
		}, []error{travel.ErrLimit}, []string{"send it in parts"}},
		{"too large a payload", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			if err := p.d.core.Forward(w.now, p.r, 3, make([]byte, travel.MaxMessageBytes)); !errors.Is(err, travel.ErrLimit) {
				t.Fatal(err)
			}
			p.finish(w, travel.End{})
		}, []error{travel.ErrLimit}, nil},
		{"failed after it moved", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
				t.Fatal(err)
			}
			if err := p.d.core.Forward(w.now, p.r, 3, nil); !errors.Is(err, travel.ErrEnded) {
				t.Fatalf("a second forward gives %v", err)
			}
			p.finish(w, travel.End{Code: travel.CodeTrap, Text: "out of bounds"})
			q := w.one(t, w.settle(t, nil))
			if len(q.d.stops) != 1 {
				t.Error("the moved branch was not stopped")
			}
			q.finish(w, travel.End{})
		}, []error{travel.ErrRemote}, []string{"trapped", "out of bounds"}},
		{"parts", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			for range 4 {
				if err := p.d.core.Part(w.now, p.r, []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.d.core.Part(w.now, p.r, []byte("x")); !errors.Is(err, travel.ErrPartLimit) {
				t.Fatal(err)
			}
			p.finish(w, travel.End{})
		}, []error{travel.ErrLimit}, nil},
		{"forks", travel.StartArgs{Branches: 5}, func(t *testing.T, w *town, p placed) {
			for range 5 {
				if _, err := p.d.core.Fork(w.now, p.r, 3, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			p.finish(w, travel.End{})
			for _, q := range w.settle(t, nil) {
				q.finish(w, travel.End{})
			}
		}, []error{travel.ErrForkLimit}, nil},
		{"peer lost", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			w.desks[0].core.PeerLost(w.now, 2, errors.New("reset by peer"))
			p.d.core.PeerLost(w.now, 1, nil)
			p.finish(w, travel.End{})
		}, []error{travel.ErrPeerLost, travel.ErrOutcomeUnknown}, []string{"element b", "reset by peer", "branch 0"}},
		{"deadline", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			w.pass(t, 2*second)
			if len(p.d.stops) != 1 {
				t.Error("the run was not stopped")
			}
			if err := p.d.core.Forward(w.now, p.r, 3, nil); !errors.Is(err, travel.ErrCanceled) {
				t.Errorf("a forward of a stopped run gives %v", err)
			}
			p.finish(w, travel.End{})
		}, []error{travel.ErrDeadline}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTown(t, 3, travel.Limits{Parts: 4})
			w.start(t, c.args, 2)
			c.do(t, w, w.one(t, w.settle(t, nil)))
			w.settle(t, nil)
			err := w.outcome(t)
			for _, is := range c.is {
				if !errors.Is(err, is) {
					t.Errorf("%v is not %v", err, is)
				}
			}
			for _, text := range c.text {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
			w.empty(t)
		})
	}
}

// TestCustody: at any time the holder and its predecessor know of a branch.
func TestCustody(t *testing.T) {
	w := newTown(t, 4, travel.Limits{})
	w.start(t, travel.StartArgs{}, 2)
	p := w.one(t, w.settle(t, nil))
	for i, to := range []travel.Peer{3, 4, 2, 3} {
		if err := p.d.core.Forward(w.now, p.r, to, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		from := p.d
		p.finish(w, travel.End{})
		p = w.one(t, w.settle(t, nil))
		w.pass(t, 25e6) // ACCEPTED goes out
		w.pass(t, 25e6) // and RELEASED
		for k, d := range w.desks {
			want := 0
			if d == from {
				want = 1
			}
			if n := d.core.Sizes().Records; n != want {
				t.Errorf("after hop %d desk %d has %d records, want %d", i, k, n, want)
			}
		}
	}
	p.finish(w, travel.End{})
	w.settle(t, nil)
	if err := w.outcome(t); err != nil {
		t.Error(err)
	}
	w.empty(t)
}

// TestLostWithItsHolder: the predecessor of a lost element reports, though the
// origin never sent anything there.
func TestLostWithItsHolder(t *testing.T) {
	w := newTown(t, 4, travel.Limits{})
	w.start(t, travel.StartArgs{}, 2)
	for _, to := range []travel.Peer{3, 4} {
		p := w.one(t, w.settle(t, nil))
		if err := p.d.core.Forward(w.now, p.r, to, nil); err != nil {
			t.Fatal(err)
		}
		p.finish(w, travel.End{})
	}
	w.one(t, w.settle(t, nil))
	w.pass(t, 2e6)
	w.pass(t, 2e6)
	for _, d := range w.desks[:3] {
		d.core.PeerLost(w.now, 4, errors.New("power cut"))
	}
	w.settle(t, nil)
	var lost *travel.PeerLostError
	if err := w.outcome(t); !errors.As(err, &lost) || lost.Element != "d" || lost.Incarnation != 4 || !lost.MayHaveRun {
		t.Fatalf("ended with %v", err)
	}
}

// TestForkLists: a branch that makes more forks than one message names.
func TestForkLists(t *testing.T) {
	const forks = 1500
	for _, at := range []travel.Peer{2, travel.Self} {
		w := newTown(t, 3, travel.Limits{})
		w.start(t, travel.StartArgs{}, at)
		p := w.one(t, w.settle(t, nil))
		var rest []placed
		for i := range forks {
			if _, err := p.d.core.Fork(w.now, p.r, 3, nil, fmt.Append(nil, i)); err != nil {
				t.Fatal(err)
			}
			if i%100 == 0 {
				rest = append(rest, w.settle(t, nil)...)
				rest = append(rest, w.pass(t, 1)...)
			}
		}
		p.finish(w, travel.End{})
		for {
			rest = append(rest, w.settle(t, nil)...)
			if len(rest) == 0 {
				break
			}
			for _, q := range rest {
				q.finish(w, travel.End{HasResult: true, Result: q.r.Payload})
			}
			rest = rest[:0]
		}
		if err := w.outcome(t); err != nil || len(w.desks[0].parts) != forks {
			t.Fatalf("at %d: ended with %v and %d pieces", at, err, len(w.desks[0].parts))
		}
		if n := w.desks[0].ended[0].Branches; n != forks+1 {
			t.Errorf("at %d: %d branches", at, n)
		}
		w.empty(t)
	}
}

// TestCarriesForks: a branch forks, sends parts, and then moves on: who
// finishes it announces all.
func TestCarriesForks(t *testing.T) {
	w := newTown(t, 3, travel.Limits{})
	w.start(t, travel.StartArgs{}, 2)
	p := w.one(t, w.settle(t, nil))
	for i := range 3 {
		if _, err := p.d.core.Fork(w.now, p.r, 3, nil, []byte("fork")); err != nil {
			t.Fatal(err)
		}
		if err := p.d.core.Part(w.now, p.r, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.d.core.Forward(w.now, p.r, 3, []byte("on")); err != nil {
		t.Fatal(err)
	}
	p.finish(w, travel.End{})
	runs := w.settle(t, nil)
	if len(runs) != 4 {
		t.Fatalf("%d runs, want 4", len(runs))
	}
	for _, q := range runs {
		if q.r.Branch() == 0 {
			if err := q.d.core.Part(w.now, q.r, []byte{3}); err != nil {
				t.Fatal(err)
			}
			q.finish(w, travel.End{})
		}
	}
	w.settle(t, nil)
	if len(w.desks[0].ended) != 0 {
		t.Fatal("it completed without its forks")
	}
	for _, q := range runs {
		if q.r.Branch() != 0 {
			q.finish(w, travel.End{HasResult: true, Result: []byte{9}})
		}
	}
	w.settle(t, nil)
	if err := w.outcome(t); err != nil || len(w.desks[0].parts) != 7 {
		t.Fatalf("ended with %v and %v", err, w.desks[0].parts)
	}
	w.empty(t)
}

// TestCancelBeforeArrival: a branch that arrives after its CANCEL never runs.
func TestCancelBeforeArrival(t *testing.T) {
	w := newTown(t, 2, travel.Limits{})
	f := w.start(t, travel.StartArgs{}, 2)
	late := w.desks[0].take()
	if err := w.desks[0].core.Cancel(w.now, f); err != nil {
		t.Fatal(err)
	}
	if err := w.desks[0].core.Cancel(w.now, f); !errors.Is(err, travel.ErrNoFuture) {
		t.Errorf("a second Cancel gives %v", err)
	}
	if err := w.outcome(t); !errors.Is(err, travel.ErrCanceled) {
		t.Errorf("ended with %v", err)
	}
	w.settle(t, nil)
	w.desks[1].deliverFrom(t, w.now, 1, late)
	if n := w.desks[1].core.Counters().Runs; n != 0 || len(w.settle(t, nil)) != 0 {
		t.Fatalf("%d runs of a canceled invocation", n)
	}
	w.empty(t)
}

// TestState: scratch is one branch's at a time, and is freed when the future
// ends, also where no branch ended.
func TestState(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		w := newTown(t, 3, travel.Limits{})
		f := w.start(t, travel.StartArgs{Stateful: true}, 2, 2)
		runs := w.settle(t, nil)
		p := w.one(t, runs)
		if err := p.d.core.HoldState(p.r, "mine"); err != nil || p.r.State() != "mine" || !p.r.Stateful() {
			t.Fatal(err, p.r.State())
		}
		if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
			t.Fatal(err)
		}
		if err := p.d.core.HoldState(p.r, "late"); !errors.Is(err, travel.ErrEnded) {
			t.Errorf("holding state after the branch moved gives %v", err)
		}
		there := w.one(t, w.settle(t, nil)) // at the third element
		p.finish(w, travel.End{})
		next := w.one(t, w.settle(t, nil))
		if next.d != p.d || next.r.State() != "mine" {
			t.Fatal("the second branch did not get its turn")
		}
		if err := next.d.core.Forward(w.now, next.r, 3, nil); err != nil {
			t.Fatal(err)
		}
		next.finish(w, travel.End{})
		if n := len(w.settle(t, nil)); n != 0 {
			t.Fatal("two branches run at once")
		}
		if err := there.d.core.HoldState(there.r, "theirs"); err != nil {
			t.Fatal(err)
		}
		if cancel {
			if err := w.desks[0].core.Cancel(w.now, f); err != nil {
				t.Fatal(err)
			}
		}
		last := w.settle(t, nil)
		if there.d.freed > 0 {
			t.Error("freed under a run")
		}
		there.finish(w, travel.End{})
		for _, q := range append(last, w.settle(t, nil)...) {
			q.finish(w, travel.End{})
		}
		w.settle(t, nil)
		if there.d.freed != 1 {
			t.Errorf("cancel=%v: state freed %d times at the last element", cancel, there.d.freed)
		}
		_ = w.outcome(t)
		if w.desks[1].freed != 1 {
			t.Errorf("cancel=%v: state freed %d times at the first element", cancel, w.desks[1].freed)
		}
		w.empty(t)
	}
}

// TestRefuses: who may inject, forward, and for whom.
func TestRefuses(t *testing.T) {
	t.Run("not an injector", func(t *testing.T) {
		w := &town{desks: []*desk{newDesk(t, 1, travel.Limits{}), newDesk(t, 2, travel.Limits{})}}
		w.image = w.desks[0].put([]byte("image"))
		w.bind, _ = w.desks[0].core.Bind(0, w.image, travel.ID{})
		w.join(t, 0, 1, true)
		if err := w.desks[1].core.PeerUp(1, travel.PeerInfo{Incarnation: 1, Name: "client"}); err != nil {
			t.Fatal(err)
		}
		w.start(t, travel.StartArgs{}, 2)
		if n := len(w.settle(t, nil)); n != 0 {
			t.Fatalf("%d runs", n)
		}
		if err := w.outcome(t); !errors.Is(err, travel.ErrRefused) || errors.Is(err, travel.ErrOutcomeUnknown) {
			t.Errorf("ended with %v", err)
		}
		w.empty(t)
	})
	t.Run("origin unknown", func(t *testing.T) {
		w := newTown(t, 3, travel.Limits{})
		w.desks[2].core.PeerLost(w.now, 1, nil)
		w.start(t, travel.StartArgs{}, 2)
		p := w.one(t, w.settle(t, nil))
		if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
			t.Fatal(err)
		}
		p.finish(w, travel.End{})
		w.settle(t, func(from int, m sentMsg) bool { return from == 0 && m.to == 3 })
		if err := w.outcome(t); !errors.Is(err, travel.ErrRefused) || !strings.Contains(err.Error(), "no endpoint") {
			t.Errorf("ended with %v", err)
		}
	})
	t.Run("not a member", func(t *testing.T) {
		w := newTown(t, 3, travel.Limits{})
		w.desks[2].core.PeerLost(w.now, 2, nil)
		w.join(t, 2, 1, false)
		w.start(t, travel.StartArgs{}, 2)
		p := w.one(t, w.settle(t, nil))
		if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
			t.Fatal(err)
		}
		p.finish(w, travel.End{})
		if n := len(w.settle(t, nil)); n != 0 {
			t.Fatalf("%d runs", n)
		}
		if err := w.outcome(t); !errors.Is(err, travel.ErrRefused) || !strings.Contains(err.Error(), "no member") {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestStartRefuses: what Start says no to, having started nothing.
func TestStartRefuses(t *testing.T) {
	w := newTown(t, 2, travel.Limits{Branches: 10})
	gone, _ := w.desks[0].core.Bind(0, travel.ID{9}, travel.ID{})
	root := []travel.Root{{To: 2}}
	for name, c := range map[string]struct {
		a    travel.StartArgs
		want error
	}{
		"no binding":    {travel.StartArgs{Roots: root, Deadline: second}, travel.ErrNoCode},
		"no code":       {travel.StartArgs{Binding: gone, Roots: root, Deadline: second}, travel.ErrNoCode},
		"no roots":      {travel.StartArgs{Binding: w.bind, Deadline: second}, travel.ErrLimit},
		"no time":       {travel.StartArgs{Binding: w.bind, Roots: root}, travel.ErrDeadline},
		"too long":      {travel.StartArgs{Binding: w.bind, Roots: root, Deadline: 1 << 60}, travel.ErrLimit},
		"hops":          {travel.StartArgs{Binding: w.bind, Roots: root, Deadline: second, Hops: travel.MaxHops + 1}, travel.ErrHopLimit},
		"branches":      {travel.StartArgs{Binding: w.bind, Roots: root, Deadline: second, Branches: 11}, travel.ErrForkLimit},
		"roots":         {travel.StartArgs{Binding: w.bind, Roots: make([]travel.Root, 11), Deadline: second}, travel.ErrForkLimit},
		"no peer":       {travel.StartArgs{Binding: w.bind, Roots: []travel.Root{{To: 2}, {To: 5}}, Deadline: second}, travel.ErrNoPeer},
		"large payload": {travel.StartArgs{Binding: w.bind, Roots: []travel.Root{{To: 2, Payload: make([]byte, 65536)}}, Deadline: second}, travel.ErrTooLarge},
	} {
		if _, err := w.desks[0].core.Start(0, &c.a); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	w.desks[0].core.Unbind(gone)
	for _, p := range w.settle(t, nil) {
		p.finish(w, travel.End{})
	}
	if len(w.desks[0].ended) != 0 {
		t.Error("Complete was called for what did not start")
	}
	w.empty(t)
}

// TestOutbox: reports that find no room wait; a peer that takes none is severed.
func TestOutbox(t *testing.T) {
	w := newTown(t, 2, travel.Limits{OutboxBytes: 600})
	var runs []placed
	for range 20 {
		w.start(t, travel.StartArgs{}, 2)
		runs = append(runs, w.settle(t, nil)...)
	}
	w.desks[1].full = true
	for i, p := range runs {
		if i == 4 {
			w.desks[1].full = false
			w.pass(t, 2e6) // Tick finds room
			if n := len(w.desks[0].ended); n != 4 {
				t.Fatalf("%d of 4 reports came out of the outbox", n)
			}
			w.desks[1].full = true
		}
		p.finish(w, travel.End{HasResult: true, Result: []byte("some result")})
		if n := p.d.core.Sizes().OutboxBytes; n > 600 {
			t.Fatalf("%d bytes in the outbox", n)
		}
	}
	if fmt.Sprint(w.desks[1].sever) != "[1]" {
		t.Fatalf("severed %v, want peer 1, once", w.desks[1].sever)
	}
	w.desks[1].core.PeerLost(w.now, 1, errors.New("severed"))
	w.desks[0].core.PeerLost(w.now, 2, errors.New("severed"))
	if n := len(w.desks[0].ended); n != 20 {
		t.Fatalf("%d of 20 futures ended", n)
	}
	for i, o := range w.desks[0].ended {
		if (o.Err == nil) != (i < 4) {
			t.Errorf("future %d ended with %v", i, o.Err)
		}
	}
	w.empty(t)
}

// TestCode: objects of all sizes come over, once, from whoever has them.
func TestCode(t *testing.T) {
	for _, size := range []int{1, 1000, travel.InlineObjectBytes, travel.InlineObjectBytes + 1, travel.ChunkBytes * 4, travel.ChunkBytes*9 + 1} {
		w := newTown(t, 3, travel.Limits{})
		id := w.desks[0].put(bytes.Repeat([]byte{7}, size))
		table := w.desks[0].put(bytes.Repeat([]byte{8}, size/2+1))
		b, err := w.desks[0].core.Bind(w.now, id, table)
		if err != nil {
			t.Fatal(err)
		}
		w.bind = b
		for range 5 { // all before any ACK
			w.start(t, travel.StartArgs{}, 2)
		}
		runs := w.settle(t, nil)
		if len(runs) != 5 {
			t.Fatalf("%d bytes: %d runs", size, len(runs))
		}
		delete(w.desks[1].store, id) // the middle one has lost it since; the origin has it
		for _, p := range runs {
			if err := p.d.core.Forward(w.now, p.r, 3, nil); !errors.Is(err, nil) {
				t.Fatal(err)
			}
			p.finish(w, travel.End{})
		}
		runs = w.settle(t, nil)
		if len(runs) != 5 || !bytes.Equal(w.desks[2].store[id], w.desks[0].store[id]) {
			t.Fatalf("%d bytes: %d runs at the third element", size, len(runs))
		}
		for _, p := range runs {
			p.finish(w, travel.End{})
		}
		w.settle(t, nil)
		if n := len(w.desks[0].ended); n != 5 {
			t.Fatalf("%d of 5 ended", n)
		}
		w.empty(t)
		w.desks[0].core.Unbind(b)
		if w.desks[2].pins[id] != 0 {
			t.Errorf("%d bytes: still pinned %d times", size, w.desks[2].pins[id])
		}
	}
}

// TestNoCode: an object that nobody gives fails who waits for it, and says so.
func TestNoCode(t *testing.T) {
	for _, silent := range []bool{false, true} {
		w := newTown(t, 2, travel.Limits{})
		id := w.desks[0].put(make([]byte, 100_000))
		b, _ := w.desks[0].core.Bind(w.now, id, travel.ID{})
		w.bind = b
		w.start(t, travel.StartArgs{Deadline: 100 * second}, 2)
		if silent {
			w.settle(t, func(_ int, m sentMsg) bool { return m.kind == travel.KindNeed })
			for range 20 {
				w.now += second
				w.desks[1].core.Tick(w.now)
				w.settle(t, func(_ int, m sentMsg) bool { return m.kind == travel.KindNeed })
			}
		} else {
			inject := w.desks[0].take()
			delete(w.desks[0].store, id)
			w.desks[1].deliverFrom(t, w.now, 1, inject)
			w.settle(t, nil)
		}
		err := w.outcome(t)
		if !errors.Is(err, travel.ErrNoCode) || !strings.Contains(err.Error(), id.String()) {
			t.Errorf("silent=%v: ended with %v", silent, err)
		}
		w.empty(t)
	}
}

// TestTooManyWait: what there is no room to hold fails its branch, and only that.
func TestTooManyWait(t *testing.T) {
	w := newTown(t, 2, travel.Limits{Running: 2, HeldRuns: 3})
	for range 7 {
		w.start(t, travel.StartArgs{}, 2)
	}
	var held, rest []placed
	for held = w.settle(t, nil); len(held) > 0; held = rest {
		if n := w.desks[1].core.Sizes().Running; n > 2 {
			t.Fatalf("%d run at once", n)
		}
		for _, p := range held {
			p.finish(w, travel.End{})
		}
		rest = w.settle(t, nil)
	}
	good, full := 0, 0
	for _, o := range w.desks[0].ended {
		if o.Err == nil {
			good++
		} else if errors.Is(o.Err, travel.ErrBackpressure) {
			full++
		}
	}
	if good != 5 || full != 2 {
		t.Errorf("%d ended well, %d for want of room; want 5 and 2", good, full)
	}
	w.empty(t)
}

// TestCancelFollowsCustody: who the origin cannot reach hears of the end from
// who sent it a branch.
func TestCancelFollowsCustody(t *testing.T) {
	w := newTown(t, 4, travel.Limits{})
	f := w.start(t, travel.StartArgs{}, 2)
	p := w.one(t, w.settle(t, nil))
	for _, to := range []travel.Peer{3, 4} {
		if _, err := p.d.core.Fork(w.now, p.r, to, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	forks := w.settle(t, nil)
	if len(forks) != 2 {
		t.Fatalf("%d forks run", len(forks))
	}
	if err := w.desks[0].core.Cancel(w.now, f); err != nil {
		t.Fatal(err)
	}
	passed := 0
	w.settle(t, func(from int, m sentMsg) bool {
		if from == 1 && m.kind == travel.KindCancel {
			passed++
		}
		return from == 0 && m.to != 2
	})
	if passed != 2 {
		t.Errorf("%d CANCELs were passed on, want 2", passed)
	}
	for _, q := range append(forks, p) {
		if len(q.d.stops) != 1 {
			t.Errorf("desk %p has stopped %d runs", q.d, len(q.d.stops))
		}
		q.finish(w, travel.End{})
	}
	w.empty(t)
}

// TestSlotsAreReused: more functions than there are bindings, one after the
// other: each message runs its own.
func TestSlotsAreReused(t *testing.T) {
	w := newTown(t, 2, travel.Limits{Bindings: 2})
	w.desks[0].core.Unbind(w.bind)
	for round := range 3 {
		for i := range 40 {
			id := w.desks[0].put([]byte{byte(i)})
			b, err := w.desks[0].core.Bind(w.now, id, travel.ID{})
			if err != nil {
				t.Fatal(err)
			}
			w.bind = b
			for range 3 {
				w.start(t, travel.StartArgs{}, 2)
				p := w.one(t, w.settle(t, nil))
				if p.r.Binding().Image != id {
					t.Fatalf("round %d: function %d ran as %v", round, i, p.r.Binding().Image)
				}
				p.finish(w, travel.End{})
				w.settle(t, nil)
			}
			w.desks[0].core.Unbind(b)
			w.now += 1000
		}
	}
	held, err := w.desks[0].core.Bind(w.now, w.image, travel.ID{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.desks[0].core.Bind(w.now, travel.ID{1}, travel.ID{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.desks[0].core.Bind(w.now, travel.ID{2}, travel.ID{}); !errors.Is(err, travel.ErrLimit) {
		t.Errorf("a third binding in two slots gives %v", err)
	}
	w.desks[0].core.Unbind(held)
	w.desks[0].core.Unbind(other)
	w.empty(t)
}

// TestUnknownHandle: a receiver that has no declaration says so, and gets it
// with the next message.
func TestUnknownHandle(t *testing.T) {
	w := newTown(t, 2, travel.Limits{})
	once := func() error {
		w.desks[0].ended = nil
		w.start(t, travel.StartArgs{}, 2)
		for _, p := range w.settle(t, nil) {
			p.finish(w, travel.End{})
		}
		w.settle(t, nil)
		return w.outcome(t)
	}
	if err := once(); err != nil {
		t.Fatal(err)
	}
	w.start(t, travel.StartArgs{}, 2)
	m := w.desks[0].take()[0]
	m.body[4]++ // another slot
	w.desks[1].deliverFrom(t, w.now, 1, []sentMsg{m})
	w.desks[0].ended = nil
	w.settle(t, nil)
	if err := w.outcome(t); !errors.Is(err, travel.ErrRefused) || !errors.Is(err, travel.ErrNoCode) {
		t.Fatalf("an unknown handle gives %v", err)
	}
	if err := once(); err != nil {
		t.Fatalf("after that: %v", err)
	}
	w.empty(t)
}
