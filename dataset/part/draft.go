package part

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/column"
)

// Draft is a part in the making: chunks in memory.
type Draft struct {
	chunks [][]arrow.Array // by chunk, then by column
	rows   uint64
	bytes  uint64
	schema *arrow.Schema // once it is sealed
	size   uint64
}

// NewDraft begins a part.
func NewDraft() *Draft { return &Draft{} }

// Add adds count rows of the arrays, from first on, in chunks. It retains the arrays.
func (d *Draft) Add(columns []arrow.Array, first, count int) {
	for ; count > 0; first, count = first+ChunkRows, count-ChunkRows {
		chunk := make([]arrow.Array, len(columns))
		for i, a := range columns {
			chunk[i] = array.NewSlice(a, int64(first), int64(first+min(count, ChunkRows)))
			d.bytes += bytesOf(chunk[i])
		}
		d.chunks = append(d.chunks, chunk)
		d.rows += uint64(min(count, ChunkRows))
	}
}

// bytesOf is about what an array's values take.
func bytesOf(a arrow.Array) uint64 {
	n := uint64(a.Len())
	if n == 0 {
		return 0
	}
	switch a := a.(type) {
	case *array.String:
		return 4*n + uint64(len(a.ValueBytes()))
	case *array.Binary:
		return 4*n + uint64(len(a.ValueBytes()))
	case *array.List:
		from, _ := a.ValueOffsets(0)
		_, to := a.ValueOffsets(int(n) - 1)
		values := array.NewSlice(a.ListValues(), from, to)
		defer values.Release()
		return 4*n + bytesOf(values)
	case *array.Struct:
		all := n / 8
		for i := range a.NumField() {
			all += bytesOf(a.Field(i))
		}
		return all
	}
	if t, ok := a.DataType().(arrow.FixedWidthDataType); ok { // a dictionary's numbers too
		return (n*uint64(t.BitWidth()) + 7) / 8
	}
	return n
}

// Rows and Chunks are how many there are; Bytes is about what they take.
func (d *Draft) Rows() uint64   { return d.rows }
func (d *Draft) Chunks() uint32 { return uint32(len(d.chunks)) }
func (d *Draft) Bytes() uint64  { return d.bytes }

// Seal decides how text is stored, and how long the part will be; columns are those of the arrays. Nothing can be added after it.
func (d *Draft) Seal(columns column.Schema) error {
	if err := d.join(); err != nil {
		return err
	}
	fields := ArrowSchema(columns).Fields()
	for c := range fields {
		if columns[c].Type.ID != column.UTF8 || len(d.chunks) == 0 {
			continue
		}
		all := make([]arrow.Array, len(d.chunks))
		for i := range all {
			all[i] = d.chunks[i][c]
		}
		encoded := encode(all)
		for i, a := range encoded {
			d.chunks[i][c].Release()
			d.chunks[i][c] = a
			fields[c].Type = a.DataType()
		}
	}
	d.schema = arrow.NewSchema(fields, nil)
	var n counter
	if err := d.Write(&n); err != nil {
		return err
	}
	d.size = uint64(n)
	return nil
}

// join makes one chunk of neighbours that are small, such as those of many small files.
func (d *Draft) join() error {
	var out [][]arrow.Array
	for first := 0; first < len(d.chunks); {
		end, rows, bytes := first, 0, uint64(0)
		for ; end < len(d.chunks); end++ {
			n, more := d.chunks[end][0].Len(), uint64(0)
			for _, a := range d.chunks[end] {
				more += bytesOf(a)
			}
			if end > first && (rows+n > ChunkRows || bytes+more > joinedBytes) {
				break
			}
			rows, bytes = rows+n, bytes+more
		}
		chunk, err := concatenate(d.chunks[first:end])
		if err != nil {
			return err
		}
		out, first = append(out, chunk), end
	}
	d.chunks = out
	return nil
}

// joinedBytes is the most that neighbours have together which become one chunk.
const joinedBytes = 8 << 20

// concatenate makes one chunk of several, which it lets go.
func concatenate(chunks [][]arrow.Array) ([]arrow.Array, error) {
	if len(chunks) == 1 {
		return chunks[0], nil
	}
	out := make([]arrow.Array, len(chunks[0]))
	column := make([]arrow.Array, len(chunks))
	for c := range out {
		for i := range chunks {
			column[i] = chunks[i][c]
		}
		a, err := array.Concatenate(column, memory.DefaultAllocator)
		if err != nil {
			return nil, fmt.Errorf("part: %w", err)
		}
		out[c] = a
	}
	for _, chunk := range chunks {
		for _, a := range chunk {
			a.Release()
		}
	}
	return out, nil
}

// Stats are what the columns have, once the part is sealed.
func (d *Draft) Stats() []Stats {
	out := make([]Stats, d.schema.NumFields())
	for _, chunk := range d.chunks {
		for c, a := range chunk {
			t, err := ColumnType(a.DataType())
			if err != nil { // the arrays are of columns' types
				continue
			}
			s := Stats{Nulls: uint64(a.NullN()), Bytes: bytesOf(a), Encoding: EncodingPlain}
			if a.DataType().ID() == arrow.DICTIONARY {
				s.Encoding = EncodingDictionary
			}
			s.Least, s.Most, s.Bounded = bounds(a)
			s.Open = !s.Bounded && a.NullN() < a.Len()
			out[c].Add(t, s)
		}
	}
	return out
}

// counter counts what is written.
type counter uint64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// Size is how long the part is, once it is sealed.
func (d *Draft) Size() uint64 { return d.size }

// Write writes the part.
func (d *Draft) Write(w io.Writer) error {
	out, err := ipc.NewFileWriter(w, ipc.WithSchema(d.schema))
	if err != nil {
		return err
	}
	for _, chunk := range d.chunks {
		rec := array.NewRecordBatch(d.schema, chunk, int64(chunk[0].Len()))
		err := out.Write(rec)
		rec.Release()
		if err != nil {
			return fmt.Errorf("part: %w", err)
		}
	}
	return out.Close()
}

// Release lets go of the chunks.
func (d *Draft) Release() {
	for _, chunk := range d.chunks {
		for _, a := range chunk {
			a.Release()
		}
	}
	d.chunks = nil
}
