package cluster

import (
	"context"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/schema"
)

// Rows of fixed width, and graphs, lie in an Arrow file each shard: the windows that functions see are buffers of it.

// FixedColumn is the column that records are: of the only field's type, or bytesN if there are several fields, a C struct of N bytes.
// ok is false for rows with text.
func FixedColumn(s *schema.Schema) (c column.Column, ok bool) {
	l, err := s.Layout()
	if err != nil || l.HasStr || len(s.Fields) == 0 {
		return c, false
	}
	c = column.Column{Name: "row", Type: column.Type{ID: column.Bytes, Width: int(l.Size)}}
	if len(s.Fields) == 1 {
		c.Name = s.Fields[0].Name
		if t, err := column.Parse(string(s.Fields[0].Type)); err == nil && t.Size() == int(l.Size) { // not bool: of columns it is a bit
			c.Type = t
		}
	}
	return c, true
}

// File is the window that is the Arrow file in which a shard's other windows lie, -1 if there is none. It is for readers: functions do
// not have it in their memory.
func (t *Table) File() int {
	if len(t.Shards) == 0 {
		return -1
	}
	return FileOf(t.Kind, len(t.Shards[0].Windows))
}

// FileOf is Table.File of a shard that has so many windows.
func FileOf(k Kind, windows int) int {
	switch {
	case k == Records && windows == FixedWindows:
		return FixedFile
	case k == CSR && windows == GraphFileWindows:
		return GraphFile
	}
	return -1
}

// Import makes a shard's window usable at an endpoint of its element. A peer maps a whole segment only: of a window in a file that is the file's.
func (t *Table) Import(ctx context.Context, ep *fabric.Endpoint, element, window int) (*fabric.Remote, error) {
	s, file := &t.Shards[element], t.File()
	key := s.Windows[window].Key
	if file < 0 || !InFile(window, file) || s.Windows[window].Size == 0 || s.Windows[file].Key.IsZero() {
		return ep.Import(ctx, key)
	}
	whole, err := ep.Import(ctx, s.Windows[file].Key)
	if err != nil || !whole.Mapped() {
		return ep.Import(ctx, key)
	}
	var sizes []uint64
	for i, w := range s.Windows[:file] {
		if InFile(i, file) {
			sizes = append(sizes, w.Size)
		}
	}
	at, _ := column.Places(sizes)
	return whole.Part(key, at[window]) // those in the file are the first
}

// InFile reports whether a window lies in the file that is window file (Table.File).
func InFile(window, file int) bool {
	return window < file && (file != FixedFile || window == FixedValues)
}

// DataBytes is what a shard's windows hold, of these sizes; what they lie in does not count.
func DataBytes(k Kind, sizes []uint64) (total uint64) {
	file := FileOf(k, len(sizes))
	for i, n := range sizes {
		if file < 0 || InFile(i, file) {
			total += n
		}
	}
	return total
}

// Readable are the columns of a dataset that is read by columns: those of kind Columns, or the one that records are.
func (t *Table) Readable() (column.Schema, bool) {
	switch {
	case t.Kind == Columns:
		return t.Columns, true
	case t.Kind == Records && t.File() >= 0:
		c, ok := FixedColumn(&t.Schema)
		return column.Schema{c}, ok
	}
	return nil, false
}

// Weighted reports whether a graph's edges have weights.
func (t *Table) Weighted() bool {
	for _, s := range t.Shards {
		if len(s.Windows) < WeightedWindows || s.Windows[FwdWeightsWindow].Size != 2*s.Windows[FwdTargetsWindow].Size {
			return false
		}
	}
	return t.Kind == CSR
}
