package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func genSharding() *rapid.Generator[Sharding] {
	return rapid.Custom(func(t *rapid.T) Sharding {
		elements := rapid.Uint32Range(1, 9).Draw(t, "elements")
		switch rapid.IntRange(0, 4).Draw(t, "form") {
		case 0:
			return Sharding{Kind: Cyclic, Elements: elements, Rows: rapid.Uint64Range(0, 50).Draw(t, "rows")}
		case 1:
			return Sharding{Kind: Hash, Elements: elements, Rows: rapid.Uint64Range(0, 50).Draw(t, "rows")}
		case 2:
			return Sharding{Kind: Block, Elements: elements, Rows: rapid.Uint64Range(0, 50).Draw(t, "rows")}
		case 3:
			return BlockOf(rapid.SliceOfN(rapid.Uint64Range(0, 10), int(elements), int(elements)).Draw(t, "counts"))
		default:
			return KeyedOf("k", rapid.SliceOfN(rapid.Uint64Range(0, 10), int(elements), int(elements)).Draw(t, "counts"))
		}
	})
}

// TestShardingIsABijection goes through all rows both ways.
func TestShardingIsABijection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genSharding().Draw(t, "sharding")
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		held := make([]uint64, s.Elements)
		for row := range s.Rows {
			e, local, ok := s.Owner(row)
			if !ok || e >= s.Elements {
				t.Fatalf("row %d: element %d, ok %v", row, e, ok)
			}
			// Rows come to an element in their order: loading only appends.
			if local != held[e] {
				t.Fatalf("row %d: local %d at element %d, which has %d so far", row, local, e, held[e])
			}
			held[e]++
			if back, ok := s.GlobalRow(e, local); !ok || back != row {
				t.Fatalf("row %d: element %d local %d is row %d %v", row, e, local, back, ok)
			}
			if first, _ := s.ElementRows(e); local == 0 && first != row || s.Contiguous() && first+local != row {
				t.Fatalf("row %d: element %d begins at %d", row, e, first)
			}
		}
		for e := range s.Elements {
			if _, n := s.ElementRows(e); n != held[e] {
				t.Fatalf("element %d: %d rows, it has %d", e, n, held[e])
			}
			if row, ok := s.GlobalRow(e, held[e]); ok {
				t.Fatalf("element %d has row %d beyond its last", e, row)
			}
		}
		if s.Bounds == nil && slices.Max(held)-slices.Min(held) > 1 {
			t.Fatalf("uneven: %v", held)
		}
		if _, _, ok := s.Owner(s.Rows); ok {
			t.Fatal("a row beyond the last has an owner")
		}
		if _, ok := s.GlobalRow(s.Elements, 0); ok {
			t.Fatal("an element beyond the last has a row")
		}
		if a, b := s.ElementRows(s.Elements); a != 0 || b != 0 {
			t.Fatal("an element beyond the last has rows")
		}
	})
}

// TestShardingLarge checks the arithmetic where products are large.
func TestShardingLarge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Sharding{Kind: rapid.SampledFrom([]ShardKind{Block, Cyclic, Hash}).Draw(t, "kind"),
			Elements: rapid.Uint32Range(1, MaxElements).Draw(t, "elements"), Rows: rapid.Uint64Range(1, MaxRows).Draw(t, "rows")}
		row := rapid.Uint64Range(0, s.Rows-1).Draw(t, "row")
		e, local, ok := s.Owner(row)
		back, ok2 := s.GlobalRow(e, local)
		if !ok || !ok2 || back != row {
			t.Fatalf("row %d: element %d local %d, back %d", row, e, local, back)
		}
		sum := uint64(0)
		for e := range s.Elements {
			_, n := s.ElementRows(e)
			sum += n
		}
		if sum != s.Rows {
			t.Fatalf("elements hold %d rows of %d", sum, s.Rows)
		}
		if _, ok := s.GlobalRow(e, ^uint64(0)); ok {
			t.Fatal("local number wrapped")
		}
	})
}

func TestShardingErrors(t *testing.T) {
	tests := []struct {
		s    Sharding
		want string
	}{
		{Sharding{}, "kind 0 is unknown"},
		{Sharding{Kind: Block}, "0 elements, it takes 1 to 1024"},
		{Sharding{Kind: Block, Elements: 1025}, "1025 elements"},
		{Sharding{Kind: Cyclic, Elements: 1, Rows: MaxRows + 1}, "rows, at most"},
		{Sharding{Kind: Block, Elements: 1, Key: "k"}, "has no key"},
		{Sharding{Kind: Hash, Elements: 1, Key: strings.Repeat("k", 256)}, "1 to 255 bytes"},
		{Sharding{Kind: Hash, Elements: 1, Key: "k"}, "needs bounds"},
		{Sharding{Kind: Cyclic, Elements: 1, Bounds: []uint64{0, 0}}, "has no bounds"},
		{Sharding{Kind: Block, Elements: 2, Bounds: []uint64{0, 0}}, "2 bounds for 2 elements"},
		{Sharding{Kind: Block, Elements: 1, Rows: 2, Bounds: []uint64{0, 1}}, "want 0 to 2"},
		{Sharding{Kind: Block, Elements: 3, Rows: 2, Bounds: []uint64{0, 2, 1, 2}}, "ascending"},
		{BlockOf(nil), "0 elements"},
	}
	for _, tt := range tests {
		if err := tt.s.Validate(); !errors.Is(err, ErrSharding) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want …%s…", tt.s, err, tt.want)
		}
	}
	if _, err := ParseShardKind("blok"); err == nil || !strings.Contains(err.Error(), `did you mean "block"`) {
		t.Error(err)
	}
}

// TestHashIsStable pins what functions compute too.
func TestHashIsStable(t *testing.T) {
	for key, want := range map[string]uint64{"": 0xefd01f60ba992926, "a": 0x82a2a958a9bece5b, "wherry": 0x6e35c7261e5b8291} {
		if got := HashKey([]byte(key)); got != want {
			t.Errorf("%q: %#x, want %#x", key, got, want)
		}
	}
	s := KeyedOf("k", make([]uint64, 5))
	n := make([]int, 5)
	for i := range 10000 {
		n[s.KeyOwner([]byte{byte(i), byte(i >> 8)})]++
	}
	if slices.Min(n) < 1800 || slices.Max(n) > 2200 {
		t.Errorf("keys are spread unevenly: %v", n)
	}
}

func TestOwnerDoesNotAllocate(t *testing.T) {
	for _, s := range []Sharding{{Kind: Block, Elements: 3, Rows: 100}, {Kind: Hash, Elements: 3, Rows: 100}, BlockOf([]uint64{50, 50})} {
		if n := testing.AllocsPerRun(100, func() { s.Owner(70); s.GlobalRow(1, 3) }); n != 0 {
			t.Errorf("%v: %v allocations", s.Kind, n)
		}
	}
}

func BenchmarkOwner(b *testing.B) {
	for _, s := range []Sharding{{Kind: Block, Elements: 7, Rows: 1 << 30}, {Kind: Cyclic, Elements: 7, Rows: 1 << 30},
		{Kind: Hash, Elements: 7, Rows: 1 << 30}, BlockOf([]uint64{1 << 28, 1 << 28, 1 << 28, 1 << 28})} {
		b.Run(s.Kind.String(), func(b *testing.B) {
			b.ReportAllocs()
			row := uint64(0)
			for b.Loop() {
				s.Owner(row)
				row = (row + 12345677) & (1<<30 - 1)
			}
		})
	}
}

// TestHeld covers what people are told of an element's rows, and which
// shardings are ranges.
func TestHeld(t *testing.T) {
	tests := []struct {
		s      Sharding
		e      uint32
		want   string
		ranges bool
	}{
		{Sharding{Kind: Block, Elements: 4, Rows: 4000}, 1, "rows 1000 to 1999", true},
		{BlockOf([]uint64{2, 0, 1}), 0, "rows 0 to 1", true},
		{BlockOf([]uint64{2, 0, 1}), 1, "no rows", true},
		{BlockOf([]uint64{2, 0, 1}), 2, "row 2", true},
		{KeyedOf("k", []uint64{2, 3}), 1, "rows 2 to 4", true},
		{Sharding{Kind: Cyclic, Elements: 4, Rows: 4000}, 1, "every 4th row from 1", false},
		{Sharding{Kind: Cyclic, Elements: 2, Rows: 3}, 0, "every 2nd row from 0", false},
		{Sharding{Kind: Cyclic, Elements: 3, Rows: 30}, 2, "every 3rd row from 2", false},
		{Sharding{Kind: Cyclic, Elements: 12, Rows: 30}, 2, "every 12th row from 2", false},
		{Sharding{Kind: Cyclic, Elements: 21, Rows: 30}, 2, "every 21st row from 2", false},
		{Sharding{Kind: Cyclic, Elements: 4, Rows: 2}, 3, "no rows", false},
		{Sharding{Kind: Cyclic, Elements: 1, Rows: 9}, 0, "rows 0 to 8", true},
		{Sharding{Kind: Hash, Elements: 4, Rows: 4000}, 3, "one of every 4 rows, by hash", false},
		{Sharding{Kind: Hash, Elements: 1, Rows: 9}, 0, "rows 0 to 8", true},
	}
	for _, tt := range tests {
		if got := tt.s.Held(tt.e); got != tt.want || tt.s.Contiguous() != tt.ranges {
			t.Errorf("%+v: element %d holds %q, ranges %v; want %q, %v", tt.s, tt.e, got, tt.s.Contiguous(), tt.want, tt.ranges)
		}
		table := Table{Sharding: tt.s, Shards: make([]Shard, tt.s.Elements)}
		table.FillRows()
		first, count, ranges, ok := table.Range(tt.e)
		wantFirst, wantCount := tt.s.ElementRows(tt.e)
		if !tt.ranges {
			wantFirst, wantCount = 0, 0
		}
		if first != wantFirst || count != wantCount || ranges != tt.ranges || !ok {
			t.Errorf("%+v: element %d: range %d %d %v %v", tt.s, tt.e, first, count, ranges, ok)
		}
		if _, _, _, ok := table.Range(tt.s.Elements); ok {
			t.Errorf("%+v: an element beyond the last has a range", tt.s)
		}
	}
}
