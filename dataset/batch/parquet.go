package batch

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/parquet-go/parquet-go"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// arrowSchemaKey is where the Arrow project's programs look for what Parquet's own types do not say: zones, durations, seconds.
const arrowSchemaKey = "ARROW:schema"

// parquetRows is how many rows are handed to the library at once: it keeps a row group's pages, not its rows.
const parquetRows = 1024

// parquetWriter writes a Parquet file: each batch is a row group.
type parquetWriter struct {
	w       *parquet.Writer
	columns column.Schema
	rows    []parquet.Row
}

// ordered is a group whose fields stay in their order; parquet.Group sorts them by name.
type ordered struct {
	parquet.Group
	fields []parquet.Field
}

func (o ordered) Fields() []parquet.Field { return o.fields }

type field struct {
	parquet.Node
	name string
}

func (f field) Name() string                           { return f.name }
func (f field) Value(base reflect.Value) reflect.Value { return base } // of Go structs, which are not written here

func newParquetWriter(w io.Writer, columns column.Schema) (*parquetWriter, error) {
	root := group(columns)
	schema, err := arrowMessage(columns)
	if err != nil {
		return nil, err
	}
	return &parquetWriter{columns: columns,
		w: parquet.NewWriter(w, parquet.NewSchema("schema", root), parquet.Compression(&parquet.Zstd), parquet.KeyValueMetadata(arrowSchemaKey, schema))}, nil
}

// group is columns, or a struct's fields.
func group(columns column.Schema) ordered {
	out := ordered{Group: parquet.Group{}}
	for _, c := range columns {
		n := parquetNode(c.Type)
		if c.Nullable {
			n = parquet.Optional(n)
		}
		out.Group[c.Name], out.fields = n, append(out.fields, field{n, c.Name})
	}
	return out
}

// arrowMessage is a schema as an IPC message, in base64: what a stream begins with.
func arrowMessage(columns column.Schema) (string, error) {
	var b bytes.Buffer
	if err := ipc.NewWriter(&b, ipc.WithSchema(part.ArrowSchema(columns))).Close(); err != nil {
		return "", fmt.Errorf("batch: %w", err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), nil
}

func parquetUnit(u column.Unit) parquet.TimeUnit {
	switch u {
	case column.Nanosecond:
		return parquet.Nanosecond
	case column.Microsecond:
		return parquet.Microsecond
	}
	return parquet.Millisecond // seconds too, which Parquet does not have
}

func parquetNode(t column.Type) parquet.Node {
	switch t.ID {
	case column.I8, column.I16, column.I32, column.I64:
		return parquet.Int(8 * t.Size())
	case column.U8, column.U16, column.U32, column.U64:
		return parquet.Uint(8 * t.Size())
	case column.F32:
		return parquet.Leaf(parquet.FloatType)
	case column.F64:
		return parquet.Leaf(parquet.DoubleType)
	case column.Bool:
		return parquet.Leaf(parquet.BooleanType)
	case column.Date32:
		return parquet.Date()
	case column.Time32, column.Time64:
		return parquet.TimeAdjusted(parquetUnit(t.Unit), false)
	case column.Timestamp:
		return parquet.TimestampAdjusted(parquetUnit(t.Unit), t.Zone != "")
	case column.Decimal128:
		return parquet.Decimal(t.Scale, t.Precision, parquet.FixedLenByteArrayType(t.Size()))
	case column.UTF8:
		return parquet.String()
	case column.Binary:
		return parquet.Leaf(parquet.ByteArrayType)
	case column.Bytes:
		if t.Extension == column.UUID {
			return parquet.UUID()
		}
		return parquet.Leaf(parquet.FixedLenByteArrayType(t.Width))
	case column.List:
		return parquet.List(parquet.Optional(parquetNode(t.Fields()[0].Type)))
	case column.Struct:
		return group(t.Fields())
	}
	return parquet.Leaf(parquet.Int64Type) // a duration
}

func int32s[T ~int8 | ~int16 | ~int32 | ~uint8 | ~uint16 | ~uint32](v []T, times int32) func(int) parquet.Value {
	return func(r int) parquet.Value { return parquet.Int32Value(int32(v[r]) * times) }
}

func int64s[T ~int64 | ~uint64](v []T, times int64) func(int) parquet.Value {
	return func(r int) parquet.Value { return parquet.Int64Value(int64(v[r]) * times) }
}

// parquetValues gives the values of an array that are there; t is its column's type.
func parquetValues(t column.Type, a arrow.Array) func(int) parquet.Value {
	times := int64(1)
	if t.Unit == column.Second && (t.ID == column.Time32 || t.ID == column.Timestamp) {
		times = 1000
	}
	switch a := a.(type) {
	case *array.Int8:
		return int32s(a.Int8Values(), 1)
	case *array.Int16:
		return int32s(a.Int16Values(), 1)
	case *array.Int32:
		return int32s(a.Int32Values(), 1)
	case *array.Int64:
		return int64s(a.Int64Values(), 1)
	case *array.Uint8:
		return int32s(a.Uint8Values(), 1)
	case *array.Uint16:
		return int32s(a.Uint16Values(), 1)
	case *array.Uint32:
		return int32s(a.Uint32Values(), 1)
	case *array.Uint64:
		return int64s(a.Uint64Values(), 1)
	case *array.Float32:
		return func(r int) parquet.Value { return parquet.FloatValue(a.Value(r)) }
	case *array.Float64:
		return func(r int) parquet.Value { return parquet.DoubleValue(a.Value(r)) }
	case *array.Boolean:
		return func(r int) parquet.Value { return parquet.BooleanValue(a.Value(r)) }
	case *array.Date32:
		return int32s(a.Date32Values(), 1)
	case *array.Time32:
		return int32s(a.Time32Values(), int32(times))
	case *array.Time64:
		return int64s(a.Time64Values(), 1)
	case *array.Timestamp:
		return int64s(a.TimestampValues(), times)
	case *array.Duration:
		return int64s(a.DurationValues(), 1)
	case *array.Decimal128:
		return func(r int) parquet.Value {
			b := a.Value(r).BigInt().FillBytes
			return parquet.FixedLenByteArrayValue(complement(b, a.Value(r).Sign() < 0))
		}
	case *array.String:
		return func(r int) parquet.Value { return parquet.ByteArrayValue([]byte(a.Value(r))) }
	case *array.Binary:
		return func(r int) parquet.Value { return parquet.ByteArrayValue(a.Value(r)) }
	}
	return func(r int) parquet.Value { return parquet.FixedLenByteArrayValue(a.(*array.FixedSizeBinary).Value(r)) }
}

// complement is a decimal's two's complement, the highest byte first.
func complement(fill func([]byte) []byte, minus bool) []byte {
	b := fill(make([]byte, 16))
	if !minus {
		return b
	}
	carry := true
	for i := range slices.Backward(b) {
		b[i] = ^b[i]
		if carry {
			b[i]++
			carry = b[i] == 0
		}
	}
	return b
}

// write writes a batch as a row group.
func (p *parquetWriter) write(columns []arrow.Array, rows int) error {
	var s shredder
	var leaves []shred
	for i, a := range columns {
		leaves = append(leaves, s.of(p.columns[i].Type, a, p.columns[i].Nullable, 0))
	}
	for first := 0; first < rows; first += parquetRows {
		p.rows = p.rows[:0]
		for r := first; r < min(rows, first+parquetRows); r++ {
			for i := range leaves {
				leaves[i].add(r, 0, 0)
			}
			p.rows = append(p.rows, s.row())
		}
		if _, err := p.w.WriteRows(p.rows); err != nil {
			return fmt.Errorf("batch: parquet: %w", err)
		}
	}
	return p.w.Flush()
}

// shredder takes rows apart into the values of leaves, as Parquet has them: each with the list that it goes on with (its repetition level), and
// how far down on its path something is there (its definition level).
type shredder struct {
	leaves [][]parquet.Value
}

// shred takes one column apart, or what is within it. add is for a value of a row or a list, none for one that is not there.
type shred struct {
	add  func(i, repetition, definition int)
	none func(repetition, definition int)
}

// row joins the values of a row, leaf by leaf.
func (s *shredder) row() parquet.Row {
	n := 0
	for _, values := range s.leaves {
		n += len(values)
	}
	out := make(parquet.Row, 0, n)
	for i, values := range s.leaves {
		out = append(out, values...)
		s.leaves[i] = values[:0]
	}
	return out
}

// of takes an array apart, which is so many lists deep.
func (s *shredder) of(t column.Type, a arrow.Array, nullable bool, lists int) shred {
	there := 0
	if nullable {
		there = 1
	}
	switch a := a.(type) {
	case *array.List:
		values := a.ListValues()
		of := s.of(t.Fields()[0].Type, values, true, lists+1)
		return shred{none: of.none, add: func(i, repetition, definition int) {
			from, to := a.ValueOffsets(i)
			switch {
			case a.IsNull(i):
				of.none(repetition, definition)
			case from == to:
				of.none(repetition, definition+there)
			}
			for k := from; k < to; k++ {
				of.add(int(k), repetition, definition+there+1)
				repetition = lists + 1
			}
		}}
	case *array.Struct:
		var of []shred
		for i, f := range t.Fields() {
			of = append(of, s.of(f.Type, a.Field(i), true, lists))
		}
		none := func(repetition, definition int) {
			for i := range of {
				of[i].none(repetition, definition)
			}
		}
		return shred{none: none, add: func(i, repetition, definition int) {
			if a.IsNull(i) {
				none(repetition, definition)
				return
			}
			for k := range of {
				of[k].add(i, repetition, definition+there)
			}
		}}
	}
	leaf, value := len(s.leaves), parquetValues(t, a)
	s.leaves = append(s.leaves, nil)
	none := func(repetition, definition int) {
		s.leaves[leaf] = append(s.leaves[leaf], parquet.NullValue().Level(repetition, definition, leaf))
	}
	return shred{none: none, add: func(i, repetition, definition int) {
		if a.IsNull(i) {
			none(repetition, definition)
			return
		}
		s.leaves[leaf] = append(s.leaves[leaf], value(i).Level(repetition, definition+there, leaf))
	}}
}
