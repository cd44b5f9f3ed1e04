package invoke

import (
	"encoding/binary"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/query"
	"github.com/wherry-fabric/wherry/schema"
)

// TestAskedOwnsKeys: a condition on a key never leaves out the element that the key's rows were dealt to: of columns by column.KeyBytes, of
// records by the bytes of the field, which may be fewer.
func TestAskedOwnsKeys(t *testing.T) {
	counts := []uint64{1, 1, 1, 1, 1, 1, 1}
	table := cluster.Table{Name: "t", Sharding: cluster.KeyedOf("id", counts), Rows: uint64(len(counts))}
	for i := range counts {
		table.Shards = append(table.Shards, cluster.Shard{Element: string(rune('a' + i)), Rows: 1})
	}
	records, columns := table.Clone(), table.Clone()
	records.Kind, records.Schema = cluster.Records, schema.Schema{Fields: []schema.Field{{Name: "id", Type: schema.U32}}}
	columns.Kind, columns.Columns = cluster.Columns, column.Schema{{Name: "id", Type: column.Type{ID: column.U32}}}
	for _, c := range []struct {
		table *cluster.Table
		owner uint32
	}{
		{records, table.Sharding.KeyOwner(binary.LittleEndian.AppendUint32(nil, 5))},
		{columns, table.Sharding.KeyOwner(column.KeyBytes(nil, 5))},
	} {
		p, err := query.Make(query.Query{Where: "id == 5"}, column.Schema{{Name: "id", Type: column.Type{ID: column.U32}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := owners(c.table, p); got != nil && (len(got) != 1 || got[0] != c.owner) {
			t.Errorf("%v: %d are asked, the rows are at %d", c.table.Kind, got, c.owner)
		} else if c.table.Kind == cluster.Columns && got == nil {
			t.Error("of columns all elements are asked")
		}
	}
}
