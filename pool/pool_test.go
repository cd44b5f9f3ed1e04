package pool

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/fabric"
)

// TestTable: a table that a component made up is refused, whatever is wrong with it.
func TestTable(t *testing.T) {
	const unit = fabric.SegmentAlign
	key := func(size uint64) []byte {
		return fabric.Key{Owner: 1, Size: size, Rights: fabric.RightsAll}.Append(nil)
	}
	extent := func(off, size uint64) Extent { return Extent{Off: off, Size: size, Key: key(size)} }
	good := func() Table {
		return Table{Info: Info{Region: 1, Size: 3*unit + 44}, Parts: []Extent{extent(0, 2*unit), extent(2*unit, unit), {Off: 3 * unit, Size: 44, Key: key(99)}}}
	}
	table := good()
	if _, err := table.keys(); err != nil {
		t.Fatal(err)
	}
	table.Parts[1] = Extent{Off: 2 * unit, Size: unit, Component: "n2", Lost: true}
	if _, err := table.keys(); err != nil {
		t.Errorf("a lost extent has no key: %v", err)
	}
	for what, spoil := range map[string]func(*Table){
		"no extents":         func(t *Table) { t.Parts = nil },
		"no aligned borders": func(t *Table) { t.Parts[0], t.Parts[1] = extent(0, 2*unit-8), extent(2*unit-8, unit+8) },
		"a gap":              func(t *Table) { t.Parts[1].Off++ },
		"an overlap":         func(t *Table) { t.Parts[1].Off-- },
		"too short":          func(t *Table) { t.Size++ },
		"too long":           func(t *Table) { t.Size-- },
		"an empty extent":    func(t *Table) { t.Parts[2].Size = 0 },
		"an extent wraps":    func(t *Table) { t.Parts[2].Size = ^uint64(0) - 99 },
		"a smaller key":      func(t *Table) { t.Parts[0].Key = key(2*unit - 1) },
		"no key":             func(t *Table) { t.Parts[0].Key = nil },
		"no number":          func(t *Table) { t.Region = 0 },
		"nothing":            func(t *Table) { t.Size, t.Parts = 0, nil },
		"more than possible": func(t *Table) { t.Size = MaxRegionBytes + 1 },
		"too many extents":   func(t *Table) { t.Parts = make([]Extent, MaxExtents+1) },
	} {
		table := good()
		spoil(&table)
		if _, err := table.keys(); err == nil {
			t.Errorf("%s: it is taken", what)
		}
	}
}

// TestFind: whatever sizes extents have, the one that has a byte is found, and none beyond the end.
func TestFind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := new(view)
		size := uint64(0)
		for _, n := range rapid.SliceOfN(rapid.OneOf(rapid.Uint64Range(1, 3), rapid.Uint64Range(1, 1<<10), rapid.Just(uint64(1<<14))), 1, 200).Draw(t, "sizes") {
			v.extents = append(v.extents, extent{off: size, size: n * fabric.SegmentAlign})
			size += n * fabric.SegmentAlign
		}
		cut := rapid.Uint64Range(0, fabric.SegmentAlign-1).Draw(t, "cut") // the last may have any size
		v.extents[len(v.extents)-1].size -= cut
		size -= cut
		if v.index(); len(v.slots) > maxSlots {
			t.Fatalf("%d slots", len(v.slots))
		}
		for i := range v.extents {
			e := &v.extents[i]
			for _, off := range []uint64{e.off, e.off + e.size/2, e.off + e.size - 1} {
				if v.find(off) != e {
					t.Fatalf("%d is not found in extent %d, which has %d bytes at %d", off, i, e.size, e.off)
				}
			}
		}
		for _, off := range []uint64{size, size + 1, size + 1<<20, 1 << 48, ^uint64(0)} {
			if v.find(off) != nil {
				t.Fatalf("%d of %d is found", off, size)
			}
		}
	})
}

func TestAddress(t *testing.T) {
	a := MakeAddress(7, MaxRegionBytes-1)
	if a.Region() != 7 || a.Offset() != MaxRegionBytes-1 || !strings.HasPrefix(a.String(), "7:0xffff") {
		t.Errorf("%v: %d, %d", a, a.Region(), a.Offset())
	}
}

// TestItemWithoutBytes: a directory that has none of an item's bytes says who has; in blocks every component has some.
func TestItemWithoutBytes(t *testing.T) {
	head := &ItemTable{ItemInfo: ItemInfo{Size: 100, Parts: []ItemPart{{}, {Size: 100}}}}
	if err := head.Validate(); err != nil {
		t.Error(err)
	}
	part := &ItemTable{ItemInfo: ItemInfo{Size: 100}, Here: 100}
	head.Spread = 64
	if _, err := itemView(t.Context(), nil, []*ItemTable{head, part}, []*fabric.Endpoint{nil, nil}); !errors.Is(err, ErrMoved) {
		t.Errorf("blocks at a component that has none: %v", err)
	}
	head.Parts = nil
	if err := head.Validate(); err == nil {
		t.Error("an item that is nowhere")
	}
}
