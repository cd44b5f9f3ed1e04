package pool

import (
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
)

// TestTable: a table that a component made up is refused, whatever is wrong with it.
func TestTable(t *testing.T) {
	key := func(size uint64) []byte {
		return fabric.Key{Owner: 1, Size: size, Rights: fabric.RightsAll}.Append(nil)
	}
	good := func() Table {
		return Table{Info{Region: 1, Size: 300}, []Extent{{0, 128, key(128)}, {128, 128, key(128)}, {256, 44, key(44)}}}
	}
	table := good()
	if err := table.Validate(); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(*Table){
		"no extents":           func(t *Table) { t.Parts = nil },
		"extents of two sizes": func(t *Table) { t.Parts[0], t.Parts[1] = Extent{0, 120, key(120)}, Extent{120, 136, key(136)} },
		"a larger last one":    func(t *Table) { t.Size, t.Parts = 300, []Extent{{0, 128, key(128)}, {128, 172, key(172)}} },
		"no power of two":      func(t *Table) { t.Parts = []Extent{{0, 150, key(150)}, {150, 150, key(150)}} },
		"a gap":                func(t *Table) { t.Parts[1].Off++ },
		"an overlap":           func(t *Table) { t.Parts[1].Off-- },
		"too short":            func(t *Table) { t.Size++ },
		"too long":             func(t *Table) { t.Size-- },
		"an empty extent":      func(t *Table) { t.Parts[2].Size = 0 },
		"an extent wraps":      func(t *Table) { t.Parts[2].Size = ^uint64(0) - 99 },
		"another key":          func(t *Table) { t.Parts[0].Key = key(129) },
		"no key":               func(t *Table) { t.Parts[0].Key = nil },
		"no number":            func(t *Table) { t.Region = 0 },
		"nothing":              func(t *Table) { t.Size, t.Parts = 0, nil },
		"more than possible":   func(t *Table) { t.Size = MaxRegionBytes + 1 },
		"too many extents":     func(t *Table) { t.Parts = make([]Extent, MaxExtents+1) },
	} {
		table := good()
		spoil(&table)
		if table.Validate() == nil {
			t.Errorf("%s: it is taken", what)
		}
	}
}

func TestAddress(t *testing.T) {
	a := MakeAddress(7, MaxRegionBytes-1)
	if a.Region() != 7 || a.Offset() != MaxRegionBytes-1 || !strings.HasPrefix(a.String(), "7:0xffff") {
		t.Errorf("%v: %d, %d", a, a.Region(), a.Offset())
	}
}
