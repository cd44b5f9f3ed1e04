package part

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/wherry-fabric/wherry/column"
)

var (
	// ErrPart says that bytes are not a valid part; the message says why.
	ErrPart = errors.New("part: bad part")
	// ErrLimit says that data exceeds a limit; the message says which, and what to do.
	ErrLimit = errors.New("part: too large")
)

// simple are the types without parameters.
var simple = map[column.ID]arrow.DataType{
	column.I8: arrow.PrimitiveTypes.Int8, column.I16: arrow.PrimitiveTypes.Int16, column.I32: arrow.PrimitiveTypes.Int32, column.I64: arrow.PrimitiveTypes.Int64,
	column.U8: arrow.PrimitiveTypes.Uint8, column.U16: arrow.PrimitiveTypes.Uint16, column.U32: arrow.PrimitiveTypes.Uint32, column.U64: arrow.PrimitiveTypes.Uint64,
	column.F32: arrow.PrimitiveTypes.Float32, column.F64: arrow.PrimitiveTypes.Float64, column.Bool: arrow.FixedWidthTypes.Boolean,
	column.Date32: arrow.FixedWidthTypes.Date32, column.UTF8: arrow.BinaryTypes.String, column.Binary: arrow.BinaryTypes.Binary,
}

// ArrowType is a column's type as Arrow has it; text is plain there.
func ArrowType(t column.Type) arrow.DataType {
	unit := arrow.TimeUnit(t.Unit) // both count from seconds down
	switch t.ID {
	case column.Time32:
		return &arrow.Time32Type{Unit: unit}
	case column.Time64:
		return &arrow.Time64Type{Unit: unit}
	case column.Timestamp:
		return &arrow.TimestampType{Unit: unit, TimeZone: t.Zone}
	case column.Duration:
		return &arrow.DurationType{Unit: unit}
	case column.Decimal128:
		return &arrow.Decimal128Type{Precision: int32(t.Precision), Scale: int32(t.Scale)}
	case column.Bytes:
		return &arrow.FixedSizeBinaryType{ByteWidth: t.Width}
	case column.List:
		return arrow.ListOfField(arrowField(t.Fields()[0]))
	case column.Struct:
		return arrow.StructOf(ArrowSchema(t.Fields()).Fields()...)
	}
	return simple[t.ID]
}

// ColumnType is the inverse of ArrowType, but for what a column's bytes mean, which its field says. A dictionary has the type of its values.
func ColumnType(t arrow.DataType) (column.Type, error) {
	var out column.Type
	switch t := t.(type) {
	case *arrow.DictionaryType:
		return ColumnType(t.ValueType)
	case *arrow.Time32Type:
		out = column.Type{ID: column.Time32, Unit: column.Unit(t.Unit)}
	case *arrow.Time64Type:
		out = column.Type{ID: column.Time64, Unit: column.Unit(t.Unit)}
	case *arrow.TimestampType:
		out = column.Type{ID: column.Timestamp, Unit: column.Unit(t.Unit), Zone: t.TimeZone}
	case *arrow.DurationType:
		out = column.Type{ID: column.Duration, Unit: column.Unit(t.Unit)}
	case *arrow.Decimal128Type:
		out = column.Type{ID: column.Decimal128, Precision: int(t.Precision), Scale: int(t.Scale)}
	case *arrow.FixedSizeBinaryType:
		out = column.Type{ID: column.Bytes, Width: t.ByteWidth}
	case *arrow.ListType:
		of, err := fieldType(t.ElemField())
		if err != nil {
			return out, err
		}
		out = column.ListOf(of)
	case *arrow.StructType:
		var fields column.Schema
		for _, f := range t.Fields() {
			of, err := fieldType(f)
			if err != nil {
				return out, fmt.Errorf("field %q: %w", f.Name, err)
			}
			fields = append(fields, column.Column{Name: f.Name, Type: of})
		}
		if err := fields.Validate(); err != nil {
			return out, err
		}
		out = column.StructOf(fields)
	default:
		for id, a := range simple {
			if arrow.TypeEqual(a, t) {
				out = column.Type{ID: id}
			}
		}
		if out.ID == column.Invalid {
			return out, fmt.Errorf("%w: columns of Arrow type %v are not supported: write it as another type, such as date32, f32 or decimal128, or leave the column out", column.ErrType, t)
		}
	}
	return out, out.Validate()
}

// extensionNames are what Arrow calls extensions: uuid is one of its own, of addresses it has none.
var extensionNames = map[column.Extension]string{column.UUID: "arrow.uuid", column.IP: "wherry.ip"}

// arrowField is a column as Arrow has it.
func arrowField(c column.Column) arrow.Field {
	f := arrow.Field{Name: c.Name, Type: ArrowType(c.Type), Nullable: c.Nullable}
	if name := extensionNames[c.Type.Extension]; name != "" {
		f.Metadata = arrow.NewMetadata([]string{ipc.ExtensionTypeKeyName, ipc.ExtensionMetadataKeyName}, []string{name, ""})
	}
	return f
}

// fieldType is the type of a field's column. An extension that is none of ours is what it is stored as.
func fieldType(f arrow.Field) (column.Type, error) {
	t, err := ColumnType(f.Type)
	if err != nil || t != (column.Type{ID: column.Bytes, Width: column.ExtensionBytes}) {
		return t, err
	}
	t.Extension = ExtensionOf(f)
	return t, nil
}

// ExtensionOf is what a field says that its values mean.
func ExtensionOf(f arrow.Field) column.Extension {
	name, _ := f.Metadata.GetValue(ipc.ExtensionTypeKeyName)
	for e, is := range extensionNames {
		if name == is {
			return e
		}
	}
	return column.NoExtension
}

// ArrowSchema is a dataset's columns as Arrow has them, all text plain.
func ArrowSchema(s column.Schema) *arrow.Schema {
	fields := make([]arrow.Field, len(s))
	for i, c := range s {
		fields[i] = arrowField(c)
	}
	return arrow.NewSchema(fields, nil)
}

// Columns is the inverse of ArrowSchema.
func Columns(s *arrow.Schema) (column.Schema, error) {
	out := make(column.Schema, s.NumFields())
	for i, f := range s.Fields() {
		t, err := fieldType(f)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		out[i] = column.Column{Name: f.Name, Type: t, Nullable: f.Nullable}
	}
	return out, out.Validate()
}

// ParseSchema reads a schema as the Arrow project's programs keep it in a Parquet file's metadata: a message in base64.
func ParseSchema(text string) (s *arrow.Schema, err error) {
	defer recovered(&err)
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPart, err)
	}
	if len(b) < messagePrefix {
		return nil, fmt.Errorf("%w: its schema has %d bytes", ErrPart, len(b))
	}
	r, err := ipc.NewReader(&messages{r: bufio.NewReader(bytes.NewReader(b)), most: maxMessageHead})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPart, err)
	}
	defer r.Release()
	return r.Schema(), nil
}
