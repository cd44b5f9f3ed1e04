package component

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

// manager is who places regions.
var manager = cluster.Principal{Name: "manager", Caps: cluster.CapMember}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDestroyWhileResized: an item's bytes come back to the region once, and not behind its end, whatever size the region gets while they are zeroed.
func TestDestroyWhileResized(t *testing.T) {
	c, _ := newComponent(t, 1<<30, Limits{})
	const small, large = 64 << 10, 32 << 20
	region, err := c.Create(ann, nil, &pool.CreateRequest{Name: "r", Size: large})
	must(t, err)
	ref := pool.NameRequest{Region: region.Region}
	data := bytes.Repeat([]byte{1}, large)
	for range 30 {
		it, err := c.CreateItem(ann, &pool.ItemCreateRequest{NameRequest: ref, Size: large})
		must(t, err)
		copy(c.regions[region.Region].extents[0].seg.Bytes(), data)
		var work sync.WaitGroup
		work.Go(func() {
			if err := c.DestroyItem(ann, &pool.ItemRequest{NameRequest: ref, Number: it.Number}); err != nil {
				t.Error(err)
			}
		})
		work.Go(func() {
			for {
				if _, err := c.Resize(ann, &pool.ResizeRequest{NameRequest: ref, Size: small}); err == nil {
					break
				} else if !errors.Is(err, pool.ErrSpec) { // the item is there
					t.Error(err)
					break
				}
			}
			if _, err := c.Resize(ann, &pool.ResizeRequest{NameRequest: ref, Size: large}); err != nil {
				t.Error(err)
			}
		})
		work.Wait()
		free := c.regions[region.Region].dir.space.free
		if len(free) != 1 || free[0] != (pool.Range{Size: large}) {
			t.Fatalf("%v of %d bytes are free", free, large)
		}
	}
}

// TestItemsOfPlacedRegion: where a manager makes a region smaller, items that had bytes there end, none is put behind the end, and whoever gets what
// they had elsewhere sees zeros. One that is put where the region grew stays.
func TestItemsOfPlacedRegion(t *testing.T) {
	c, _ := newComponent(t, 1<<30, Limits{})
	const part = 128 << 10
	epoch := uint64(0)
	id := uint16(pool.FirstManaged)
	ref := pool.NameRequest{Region: id}
	place := func(size uint64, drop []pool.Range, parts ...pool.Range) {
		t.Helper()
		epoch++
		must(t, c.Reserve(manager, &pool.ReserveRequest{EpochRequest: pool.EpochRequest{Region: id, Epoch: epoch, Made: 1, Size: size, Owner: "ann"}, Parts: parts}))
		if drop != nil {
			must(t, c.Release(manager, &pool.ReleaseRequest{Region: id, Epoch: epoch, Parts: drop}))
		}
	}
	item := func(size uint64) *item {
		t.Helper()
		i, err := c.CreateItem(ann, &pool.ItemCreateRequest{NameRequest: ref, Size: size})
		must(t, err)
		return c.regions[id].dir.items[i.Number]
	}
	none := func(size uint64) {
		t.Helper()
		if _, err := c.CreateItem(ann, &pool.ItemCreateRequest{NameRequest: ref, Size: size}); !errors.Is(err, pool.ErrMemory) {
			t.Errorf("an item of %d bytes: %v", size, err)
		}
	}
	first, second := pool.Range{Size: part}, pool.Range{Off: part, Size: part}
	place(2*part, nil, first, second)
	old := item(part + part/2) // it has bytes of both extents
	for _, p := range old.pieces {
		copy(p.seg.Bytes(), bytes.Repeat([]byte{7}, part/2))
	}
	place(part, []pool.Range{second}, first)
	if c.regions[id].dir.items[old.id] != nil || c.items != 0 {
		t.Error("an item that has lost bytes is still there")
	}
	for _, p := range item(part).pieces {
		if !bytes.Equal(p.seg.Bytes(), make([]byte, part)) {
			t.Error("an item begins with what was another's")
		}
	}
	none(64)

	place(part/2, nil, first) // in the extent that is left
	item(part / 2)
	none(64)
	place(part, nil, first)
	last := item(part / 2)
	copy(last.pieces[0].seg.Bytes()[part/2:], "mine")
	none(64)
	place(2*part, nil, first, second)
	if !bytes.HasPrefix(last.pieces[0].seg.Bytes()[part/2:], []byte("mine")) {
		t.Error("an item has lost bytes as its region grew")
	}
	item(part)
	none(64)
}
