package travel_test

import (
	"fmt"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

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
