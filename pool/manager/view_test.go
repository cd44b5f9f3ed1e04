package manager

import (
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

// TestLoadBehind: a load that began before transactions of this manager takes none of them from its view, or a later one would be decided without.
func TestLoadBehind(t *testing.T) {
	b := newBench(t, "c0")
	b.blind = true
	b.hold = func(e any) bool { _, ok := e.(Load); return ok }
	id := b.core.load()
	list, rev, err := b.store.Get(t.Context(), prefix)
	b.turn()
	b.ask(1, pool.CreateRequest{Name: "x", Size: 1})
	b.want(1)
	b.hold = func(e any) bool { _, ok := e.(Commit); return ok }
	b.held = nil
	b.ask(2, pool.CreateRequest{Name: "y", Size: 1})
	if len(b.held) != 1 {
		t.Fatalf("a region is to be committed: %+v", b.held)
	}
	b.hold = nil
	b.core.Loaded(b.now, id, list, rev, err)
	b.carryOut(b.held[0])
	b.want(2)
	b.ask(3, pool.CreateRequest{Name: "x", Size: 1})
	for range 30 {
		b.tick()
	}
	if r, ok := b.replies[3]; !ok || !errors.Is(r.Err, pool.ErrExists) {
		t.Errorf("x is made anew: %+v", r)
	}
}

// TestLateOutcome: a transaction whose outcome comes after the watch has told that it was made, and undone, leaves nothing in the view.
func TestLateOutcome(t *testing.T) {
	b := newBench(t, "c0")
	b.hold = func(e any) bool { _, ok := e.(Commit); return ok }
	b.ask(1, pool.CreateRequest{Name: "x", Size: 1})
	if len(b.held) != 1 {
		t.Fatalf("a region is to be committed: %+v", b.held)
	}
	e := b.held[0].(Commit)
	rev, err := b.store.Commit(t.Context(), e.Txn)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range e.Txn.Put {
		if p.Key != keyPlaced {
			b.commit(cluster.Txn{Put: []cluster.Pair{{Key: keyPlaced}}, Remove: []string{p.Key}})
		}
	}
	b.turn()
	b.core.Committed(b.now, e.ID, rev, nil)
	if v := &b.core.view; len(v.regions)+len(v.names) > 0 || v.components["c0"].placed != 0 {
		t.Errorf("%+v, %v, and %d bytes of c0 are taken", v.regions, v.names, v.components["c0"].placed)
	}
}

// TestTwoLives: a component that two of a region's places are at, the first an earlier life, has the extents of the second, once.
func TestTwoLives(t *testing.T) {
	b := newBench(t, "c0", "c1")
	const size = 64 << 20
	r := &record{Region: pool.FirstManaged, Epoch: 1, Made: 1, Name: "x", State: ready, Size: size, Parts: []part{{1, size}},
		Places: []place{{Name: "c0", Incarnation: 7, Lost: true}, {Name: "c0", Incarnation: 1}}}
	taken := func(want uint64) {
		t.Helper()
		if b.turn(); b.core.view.components["c0"].placed != want {
			t.Errorf("%d bytes of c0 are taken, and should be %d", int64(b.core.view.components["c0"].placed), want)
		}
	}
	b.commit(cluster.Txn{Put: []cluster.Pair{put(r)}})
	taken(size)
	b.commit(cluster.Txn{Remove: []string{keyComponent + "c0"}})
	b.turn()
	b.enter("c0", "sim://c0")
	taken(size)
	b.commit(cluster.Txn{Remove: []string{regionKey(r.Region)}})
	taken(0)
}
