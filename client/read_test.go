package client

import (
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/schema"
)

// claimed is a reader of a table of one shard that claims so many rows of 16 bytes.
func claimed(t *testing.T, rows uint64) *Reader {
	t.Helper()
	s := schema.Schema{Fields: []schema.Field{{Name: "a", Type: schema.U64}, {Name: "b", Type: schema.F64}}}
	layout, err := s.Layout()
	if err != nil {
		t.Fatal(err)
	}
	table := &cluster.Table{Name: "d", Kind: cluster.Records, Schema: s, Rows: rows, Sharding: cluster.BlockOf([]uint64{rows}),
		Shards: []cluster.Shard{{Element: "n1", Addrs: []string{"tcp://127.0.0.1:1"}, Incarnation: 1, Rows: rows,
			Windows: []cluster.Window{{Size: rows * uint64(layout.Size)}}}}}
	if err := table.Validate(); err != nil {
		t.Fatal(err)
	}
	return &Reader{Table: table, layout: layout}
}

// TestRowsAreBounded: a table may claim more rows than there is memory for.
func TestRowsAreBounded(t *testing.T) {
	r := claimed(t, 1<<40)
	for _, n := range []uint64{1 << 40, MaxReadBytes/16 + 1} {
		if _, err := r.Rows(t.Context(), 0, n); !errors.Is(err, control.ErrRequest) {
			t.Errorf("%d rows: %v", n, err)
		}
	}
}
