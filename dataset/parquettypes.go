package dataset

import (
	"errors"
	"fmt"
	"math/big"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// putter adds a value that is there to a column.
type putter = func(*part.Builder, parquet.Value) error

func putInt32(b *part.Builder, v parquet.Value) error { b.Bits(uint64(int64(v.Int32()))); return nil }
func putInt64(b *part.Builder, v parquet.Value) error { b.Bits(uint64(v.Int64())); return nil }
func putBytes(b *part.Builder, v parquet.Value) error { return b.Bytes(v.ByteArray()) }

func putText(b *part.Builder, v parquet.Value) error {
	text := v.ByteArray()
	if !utf8.Valid(text) {
		return fmt.Errorf("%.60q is not UTF-8: write the column as binary, or mend the text where it comes from", text)
	}
	return b.Bytes(text)
}

func putNone(*part.Builder, parquet.Value) error {
	return errors.New("a value in a column that says it has none: it is damaged")
}

// physical are the types of columns that say no more than how they are stored.
var physical = map[parquet.Kind]struct {
	id  column.ID
	put putter
}{
	parquet.Boolean:   {column.Bool, func(b *part.Builder, v parquet.Value) error { b.Bool(v.Boolean()); return nil }},
	parquet.Int32:     {column.I32, putInt32},
	parquet.Int64:     {column.I64, putInt64},
	parquet.Float:     {column.F32, func(b *part.Builder, v parquet.Value) error { b.Float(float64(v.Float())); return nil }},
	parquet.Double:    {column.F64, func(b *part.Builder, v parquet.Value) error { b.Float(v.Double()); return nil }},
	parquet.ByteArray: {column.Binary, putBytes},
}

// parquetType is what a column becomes; as is its field in the file's Arrow metadata, which knows zones, durations and extensions.
func parquetType(leaf *parquet.Column, as arrow.Field) (column.Type, putter, error) {
	kind := leaf.Type().Kind()
	put := putInt32
	if kind == parquet.Int64 {
		put = putInt64
	}
	var logical format.LogicalTypeValue
	if l := leaf.Type().LogicalType(); l != nil {
		logical = l.Value
	}
	switch l := logical.(type) {
	case *format.StringType, *format.EnumType, *format.JsonType:
		return column.Type{ID: column.UTF8}, putText, nil
	case *format.DateType:
		return column.Type{ID: column.Date32}, put, nil
	case *format.IntType:
		id := map[int8]column.ID{8: column.I8, 16: column.I16, 32: column.I32, 64: column.I64}[l.BitWidth]
		if id != column.Invalid && !l.IsSigned {
			id += column.U8 - column.I8
		}
		t := column.Type{ID: id}
		if d, ok := as.Type.(*arrow.DurationType); ok && id == column.I64 { // Parquet has no such type
			t = column.Type{ID: column.Duration, Unit: column.Unit(d.Unit)}
		}
		return t, put, t.Validate()
	case *format.TimestampType:
		t := column.Type{ID: column.Timestamp, Unit: parquetUnit(l.Unit)}
		if l.IsAdjustedToUTC {
			t.Zone = "UTC"
			if at, ok := as.Type.(*arrow.TimestampType); ok && at.TimeZone != "" {
				t.Zone = at.TimeZone
			}
		}
		return t, put, t.Validate()
	case *format.TimeType:
		t := column.Type{ID: column.Time64, Unit: parquetUnit(l.Unit)}
		if t.Unit == column.Millisecond {
			t.ID = column.Time32
		}
		return t, put, t.Validate()
	case *format.DecimalType:
		t := column.Type{ID: column.Decimal128, Precision: int(l.Precision), Scale: int(l.Scale)}
		return t, putDecimal(kind), t.Validate()
	case *format.UUIDType:
		return column.Extended(column.UUID), putBytes, nil
	case *format.NullType: // text, as a column without values is elsewhere
		return column.Type{ID: column.UTF8}, putNone, nil
	case nil:
	default:
		return column.Type{}, nil, fmt.Errorf("its type %s cannot be loaded yet", parquetTypeName(leaf))
	}
	switch p, ok := physical[kind]; {
	case ok:
		return column.Type{ID: p.id}, p.put, nil
	case kind == parquet.FixedLenByteArray && as.Type != nil && as.Type.ID() == arrow.FLOAT16: // which the library takes for bytes
		return column.Type{}, nil, errors.New("its type float16 cannot be loaded yet")
	case kind == parquet.FixedLenByteArray:
		t := column.Type{ID: column.Bytes, Width: leaf.Type().Length()}
		if e := part.ExtensionOf(as); t.Width == column.ExtensionBytes {
			t.Extension = e
		}
		return t, putBytes, t.Validate()
	case kind == parquet.Int96:
		return column.Type{ID: column.Timestamp, Unit: column.Nanosecond}, putInt96, nil
	}
	return column.Type{}, nil, fmt.Errorf("its type %s cannot be loaded yet", parquetTypeName(leaf))
}

func parquetUnit(u format.TimeUnit) column.Unit {
	switch u.Value.(type) {
	case *format.MilliSeconds:
		return column.Millisecond
	case *format.NanoSeconds:
		return column.Nanosecond
	}
	return column.Microsecond
}

// unixEpochJulian is the Julian day of 1970-01-01.
const unixEpochJulian = 2440588

// putInt96 adds a time as old programs write it: nanoseconds of a Julian day.
func putInt96(b *part.Builder, v parquet.Value) error {
	w := v.Int96()
	days := int64(w[2]) - unixEpochJulian
	ns := new(big.Int).Mul(big.NewInt(days), big.NewInt(86_400e9))
	if ns.Add(ns, big.NewInt(int64(uint64(w[1])<<32|uint64(w[0])))); !ns.IsInt64() {
		return errors.New("a time that does not fit into 64 bits of nanoseconds")
	}
	b.Bits(uint64(ns.Int64()))
	return nil
}

// decimalBytes is the width of decimal128.
const decimalBytes = 16

// putDecimal adds a decimal, which is stored as an integer, or as bytes with the highest first.
func putDecimal(kind parquet.Kind) putter {
	return func(b *part.Builder, v parquet.Value) error {
		var big []byte
		switch kind {
		case parquet.Int32:
			n := v.Int32()
			big = []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
		case parquet.Int64:
			n := v.Int64()
			big = []byte{byte(n >> 56), byte(n >> 48), byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
		default:
			big = v.ByteArray()
		}
		fill := byte(0)
		if len(big) > 0 && big[0] >= 0x80 {
			fill = 0xff
		}
		for ; len(big) > decimalBytes; big = big[1:] {
			if big[0] != fill || (big[1]^fill) >= 0x80 {
				return errors.New("a decimal that does not fit into 128 bits")
			}
		}
		var out [decimalBytes]byte
		for i := range out {
			out[i] = fill
			if i < len(big) {
				out[i] = big[len(big)-1-i]
			}
		}
		return b.Bytes(out[:])
	}
}
