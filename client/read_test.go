package client

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/schema"
)

// claimed is a reader of a table of one shard that claims so many rows of a text and its heap.
func claimed(t *testing.T, rows, heap uint64) *Reader {
	t.Helper()
	s := schema.Schema{Fields: []schema.Field{{Name: "a", Type: schema.Str}, {Name: "b", Type: schema.Str}}}
	layout, err := s.Layout()
	if err != nil {
		t.Fatal(err)
	}
	table := &cluster.Table{Name: "d", Kind: cluster.Records, Schema: s, Rows: rows, Sharding: cluster.BlockOf([]uint64{rows}),
		Shards: []cluster.Shard{{Element: "n1", Addrs: []string{"tcp://127.0.0.1:1"}, Incarnation: 1, Rows: rows,
			Windows: []cluster.Window{{Size: rows * uint64(layout.Size)}, {Size: heap}}}}}
	if err := table.Validate(); err != nil {
		t.Fatal(err)
	}
	return &Reader{Table: table, layout: layout}
}

// TestRowsAreBounded: a table may claim more rows than there is memory for.
func TestRowsAreBounded(t *testing.T) {
	r := claimed(t, 1<<40, 0)
	for _, n := range []uint64{1 << 40, MaxReadBytes/16 + 1} {
		if _, err := r.Rows(t.Context(), 0, n); !errors.Is(err, control.ErrRequest) {
			t.Errorf("%d rows: %v", n, err)
		}
	}
}

// TestTextIsBounded: what records say of their text may be anything too.
func TestTextIsBounded(t *testing.T) {
	type ref struct{ at, n uint32 }
	for name, tc := range map[string]struct {
		rows [][2]ref
		at   uint64
		size uint64
		err  error
	}{
		"one after the other": {rows: [][2]ref{{{100, 3}, {103, 4}}, {{0, 0}, {107, 5}}}, at: 100, size: 12},
		"none":                {rows: [][2]ref{{{1 << 31, 0}, {7, 0}}}},
		"all that may be":     {rows: [][2]ref{{{1, MaxReadBytes - 1}, {MaxReadBytes, 1}}}, at: 1, size: MaxReadBytes},
		"far apart":           {rows: [][2]ref{{{0, 1}, {1 << 31, 1}}}, err: errText},
		"the same one often":  {rows: [][2]ref{{{0, MaxReadBytes / 2}, {0, MaxReadBytes / 2}}, {{0, 1}, {0, 0}}}, err: errText},
	} {
		t.Run(name, func(t *testing.T) {
			r := claimed(t, uint64(len(tc.rows)), 1<<40)
			s := &share{count: uint64(len(tc.rows))}
			for _, row := range tc.rows {
				for _, ref := range row {
					s.records = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(s.records, ref.at), ref.n)
				}
			}
			err := r.measure(map[uint32]*share{0: s})
			if !errors.Is(err, tc.err) || tc.err == nil && (s.textAt != tc.at || s.textBytes != tc.size) {
				t.Errorf("%v, %d bytes at %d", err, s.textBytes, s.textAt)
			}
		})
	}
	if size := claimed(t, 1, 1).layout.Size; size != 16 {
		t.Fatalf("records of two texts have %d bytes", size)
	}
}
