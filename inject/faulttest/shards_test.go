package faulttest

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
)

// dealt is a table whose rows are sharded otherwise.
func (g *grid) dealt(s cluster.Sharding) *cluster.Table {
	t := g.table(10, fabric.RightRead, number)
	s.Elements, s.Rows = t.Sharding.Elements, t.Sharding.Rows
	t.Sharding = s
	t.FillRows()
	return t
}

// TestWhereRowsAre covers: what shard_rows, row and owner answer for each kind
// of sharding, and on a table whose rows are not in ranges an error that says so.
func TestWhereRowsAre(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 3, nil, nil)
	faults := guestImage(t, "faults", nil)
	words := func(b []byte) (list []uint64) {
		for ; len(b) >= 8; b = b[8:] {
			list = append(list, binary.LittleEndian.Uint64(b))
		}
		return list
	}
	for name, s := range map[string]cluster.Sharding{
		"block":  {Kind: cluster.Block},
		"bounds": {Kind: cluster.Block, Bounds: []uint64{0, 10, 20, 30}},
		"cyclic": {Kind: cluster.Cyclic},
		"hash":   {Kind: cluster.Hash},
	} {
		table := g.dealt(s)
		f := g.prepare(g.client, faults, table)
		for e := range uint32(3) {
			got, err := f.Do(within(t, patience), inject.Root{Element: 1, Payload: order(21, e, 0)}, nil)
			if table.Sharding.Contiguous() {
				if w := words(got); err != nil || len(w) != 2 || w[0] != uint64(e)*10 || w[1] != 10 {
					t.Errorf("%s: element %d holds %v, %v", name, e, w, err)
				}
			} else {
				says(t, err, "status -12", "n1", "words", "scattered over the elements ("+name+")", "--shard block")
			}
			for local := range uint64(10) {
				want, _ := table.Row(e, local)
				got, err := f.Do(within(t, patience), inject.Root{Payload: order(22, e, local)}, nil)
				if w := words(got); err != nil || len(w) != 3 || w[0] != want || w[1] != uint64(e) || w[2] != local {
					t.Errorf("%s: row %d of element %d, its owner, its index there: %v, %v; want row %d", name, local, e, w, err, want)
				}
			}
			_, err = f.Do(within(t, patience), inject.Root{Payload: order(22, e, 10)}, nil)
			says(t, err, "status -1", "faults")
		}
		_, err := f.Do(within(t, patience), inject.Root{Payload: order(21, 3, 0)}, nil)
		says(t, err, "status -1", "faults")
		_, err = f.Do(within(t, patience), inject.Root{Payload: order(22, 3, 0)}, nil)
		says(t, err, "status -1", "faults")
		// What it does wrong besides has nothing to do with its rows.
		_, err = f.Do(within(t, patience), inject.Root{Payload: order(99, 0, 0)}, nil)
		says(t, err, "status -12", "this element does not do that")
	}
	g.serves()
}

// TestRangesWanted covers: a function whose manifest wants ranges of rows is
// refused on a table that has none before anything is sent.
func TestRangesWanted(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	img := guestImage(t, "faults", func(m *image.Manifest) { m.Ranges = true })
	for _, kind := range []cluster.ShardKind{cluster.Cyclic, cluster.Hash} {
		_, err := g.client.rt.Prepare(img, g.dealt(cluster.Sharding{Kind: kind}))
		if !errors.Is(err, inject.ErrRanges) {
			t.Errorf("%v: %v", kind, err)
		}
		says(t, err, "faults", "needs block sharding", "words", kind.String(), "--shard block")
	}
	f := g.prepare(g.client, img, g.plain())
	if _, err := f.Do(within(t, patience), inject.Root{Payload: order(0, 0, 0)}, nil); err != nil {
		t.Error(err)
	}
	g.prepare(g.client, img, nil) // without data there are no rows either

	one := newGrid(t, 1, nil, nil)
	f = one.prepare(one.client, img, one.dealt(cluster.Sharding{Kind: cluster.Cyclic}))
	got, err := f.Do(within(t, patience), inject.Root{Payload: order(21, 0, 0)}, nil)
	if err != nil || len(got) != 16 || got[8] != 10 {
		t.Errorf("one element holds every row, in ranges or not: %x, %v", got, err)
	}
}
