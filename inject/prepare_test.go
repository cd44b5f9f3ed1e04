package inject_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// TestPreparedByContent: what earlier calls prepared serves later ones only for the same table, whatever it is called.
func TestPreparedByContent(t *testing.T) {
	_, nodes := mesh(t, 2, fabric.Balanced)
	table, _ := permutation(t, nodes, 64)
	for round := range 3 {
		for i := range 40 { // more than are kept
			table.Version = uint64(1 + i%25)
			table.Shards[0].Element = fmt.Sprintf("renamed%d.%d", i%25, i%2)
			f, err := nodes[0].rt.Prepare(xrdma.Chase(), table)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Table(); got == table || got.Version != table.Version || got.Shards[0].Element != table.Shards[0].Element {
				t.Errorf("round %d, table %d: prepared for version %d of %s", round, i, got.Version, got.Shards[0].Element)
			}
			f.Close()
		}
	}
}

// TestImageIsFound: an image is found by its identity once a function of it was prepared, without the signatures of the copy that was.
func TestImageIsFound(t *testing.T) {
	_, nodes := mesh(t, 1, fabric.Balanced)
	rt, plain := nodes[0].rt, xrdma.Echo()
	if rt.Image(plain.ID()) != nil {
		t.Fatal("an image is there that nobody prepared")
	}
	signed, err := plain.Sign(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	f, err := rt.Prepare(signed, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	got := rt.Image(plain.ID())
	if got == nil || got.CopyID() != plain.CopyID() || !bytes.Equal(got.Encode(), plain.Encode()) {
		t.Errorf("found %v, not the image that was prepared", got)
	}
}

// TestPreparedIsBounded: a table that was prepared is kept by the cache of objects, within its limit, and by nothing else.
func TestPreparedIsBounded(t *testing.T) {
	_, nodes := mesh(t, 1, fabric.Balanced)
	rt := nodes[0].rt
	table, _ := permutation(t, nodes, 64)
	prepare := func() *cluster.Table {
		t.Helper()
		f, err := rt.Prepare(xrdma.Chase(), table)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return f.Table()
	}
	first := prepare()
	if prepare() != first {
		t.Error("a table is parsed again though the cache has it")
	}
	rt.LimitCache(rt.Stats().CacheBytes) // from here on something has to go for each table that is new
	for range 3 {
		table.Version++
		prepare()
	}
	table.Version -= 3
	if rt.Stats().Evicted == 0 {
		t.Fatal("nothing was evicted")
	}
	rt.LimitCache(1)
	if _, err := rt.Prepare(xrdma.Chase(), table); !errors.Is(err, travel.ErrLimit) {
		t.Errorf("a table beyond the cache's limit: %v", err)
	}
	rt.LimitCache(64 << 20)
	if prepare() == first {
		t.Error("a table that the cache had given up is still kept")
	}
}

// TestStartNamesElements: an error of Start names eight elements and counts the others, however many branches were to begin at each.
func TestStartNamesElements(t *testing.T) {
	var elements []string
	for i := range 11 {
		elements = append(elements, fmt.Sprintf("e%d", i))
	}
	for most, want := range map[int]string{0: "", 1: " on e0", 2: " on e0, e1", 8: " on e0, e1, e2, e3, e4, e5, e6, e7", 11: " on e0, e1, e2, e3, e4, e5, e6, e7 and 3 more"} {
		var roots []inject.Root
		for range 3 {
			for i := range most {
				roots = append(roots, inject.Root{Element: uint32(i)})
			}
		}
		if got := inject.Begins(elements, roots); got != want {
			t.Errorf("%d elements, %d branches: %q, want %q", most, len(roots), got, want)
		}
	}
}
