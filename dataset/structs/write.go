package structs

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// Writer makes chunks of structs of type T.
type Writer[T any] struct {
	Columns column.Schema
	Key     string // the column whose tag says key; "": none does
	fields  []field
	put     []func(*part.Builder, reflect.Value) error
	cols    []*part.Builder
	rows    int
	total   uint64
}

// NewWriter finds T's columns.
func NewWriter[T any]() (*Writer[T], error) {
	w := &Writer[T]{}
	var err error
	if w.Columns, err = Schema[T](); err != nil {
		return nil, err
	}
	if w.fields, err = fields(reflect.TypeFor[T]()); err != nil {
		return nil, err
	}
	for _, f := range w.fields {
		put, err := putter(f)
		if err != nil {
			return nil, fmt.Errorf("%w: %v.%s: %w", ErrStruct, reflect.TypeFor[T](), f.name, err)
		}
		if w.put = append(w.put, put); f.key {
			w.Key = f.column.Name
		}
	}
	return w, nil
}

// firstRows is the room that a chunk begins with: few rows take little.
const firstRows = 1 << 10

// Add adds a row; full says that Finish is due.
func (w *Writer[T]) Add(row *T) (full bool, err error) {
	if w.cols == nil {
		for _, c := range w.Columns {
			w.cols = append(w.cols, part.NewBuilder(c.Type, firstRows))
		}
	}
	v := reflect.ValueOf(row).Elem()
	for i, f := range w.fields {
		value := v.Field(f.index)
		if f.nullable {
			if value.IsNil() {
				w.cols[i].Null()
				continue
			}
			value = value.Elem()
		}
		if err := w.put[i](w.cols[i], value); err != nil {
			return false, fmt.Errorf("%w: row %d, column %q: %w", ErrStruct, w.total, f.column.Name, err)
		}
		full = full || w.cols[i].TextBytes() > part.MaxTextBytes/4
	}
	w.rows++
	w.total++
	return full || w.rows == part.ChunkRows, nil
}

// Finish makes a chunk of the rows added; nil if there are none.
func (w *Writer[T]) Finish() []arrow.Array {
	if w.rows == 0 {
		return nil
	}
	var out []arrow.Array
	for _, b := range w.cols {
		out = append(out, b.Finish())
	}
	w.cols, w.rows = nil, 0
	return out
}

// putter adds a field's values to its column.
func putter(f field) (func(*part.Builder, reflect.Value) error, error) {
	t := f.column.Type
	number := t.Size() > 0 && t.Size() <= 8 && t.ID != column.Bytes
	switch k := f.typ.Kind(); {
	case f.typ == timeType:
		return putTime(t)
	case f.typ == durationType && t.ID == column.Duration:
		unit := int64(time.Second) / t.Unit.PerSecond()
		return func(b *part.Builder, v reflect.Value) error {
			if v.Int()%unit != 0 {
				return fmt.Errorf("%v has more digits than %v counts", time.Duration(v.Int()), t)
			}
			b.Bits(uint64(v.Int() / unit))
			return nil
		}, nil
	case k >= reflect.Int && k <= reflect.Int64 && number && t.ID != column.F32 && t.ID != column.F64:
		least, most := bounds(t)
		return func(b *part.Builder, v reflect.Value) error {
			if n := v.Int(); n < least || n > 0 && uint64(n) > most {
				return fmt.Errorf("%d does not fit %v", n, t)
			}
			b.Bits(uint64(v.Int()))
			return nil
		}, nil
	case k >= reflect.Uint && k <= reflect.Uint64 && number && t.ID != column.F32 && t.ID != column.F64:
		_, most := bounds(t)
		return func(b *part.Builder, v reflect.Value) error {
			if v.Uint() > most {
				return fmt.Errorf("%d does not fit %v", v.Uint(), t)
			}
			b.Bits(v.Uint())
			return nil
		}, nil
	case (k == reflect.Float32 || k == reflect.Float64) && (t.ID == column.F64 || t.ID == column.F32 && k == reflect.Float32):
		return func(b *part.Builder, v reflect.Value) error { b.Float(v.Float()); return nil }, nil
	case k == reflect.Bool && t.ID == column.Bool:
		return func(b *part.Builder, v reflect.Value) error { b.Bool(v.Bool()); return nil }, nil
	case k == reflect.String && (t.ID == column.UTF8 || t.ID == column.Decimal128 || t.Extension != column.NoExtension):
		return putString(t), nil
	case f.typ == addrType && t.Extension == column.IP:
		return func(b *part.Builder, v reflect.Value) error {
			a := v.Interface().(netip.Addr)
			if !a.IsValid() || a.Zone() != "" {
				return fmt.Errorf("%v is no address of all networks: use *netip.Addr where there is none", a)
			}
			as := a.As16()
			return b.Bytes(as[:])
		}, nil
	case k == reflect.Slice && t.ID == column.Binary:
		return func(b *part.Builder, v reflect.Value) error { return b.Bytes(v.Bytes()) }, nil
	case k == reflect.Array && t.ID == column.Bytes && t.Width == f.typ.Len():
		return func(b *part.Builder, v reflect.Value) error { return b.Bytes(v.Bytes()) }, nil
	}
	return nil, fmt.Errorf("a %v cannot be a column of type %v", f.typ, t)
}

// putString adds text, or what it stands for.
func putString(t column.Type) func(*part.Builder, reflect.Value) error {
	return func(b *part.Builder, v reflect.Value) error {
		var is [16]byte
		var err error
		switch text := v.String(); {
		case t.ID == column.Decimal128:
			is, err = column.ReadDecimal([]byte(text), t)
		case t.Extension != column.NoExtension:
			is, err = t.Extension.Read(text)
		case !utf8.ValidString(text):
			return fmt.Errorf("%.60q is not UTF-8: use []byte", text)
		default:
			return b.Bytes([]byte(text))
		}
		if err != nil {
			return err
		}
		return b.Bytes(is[:])
	}
}

// bounds are what a type of at most 8 bytes holds.
func bounds(t column.Type) (least int64, most uint64) {
	switch bits := 8 * t.Size(); t.ID {
	case column.U8, column.U16, column.U32, column.U64:
		return 0, math.MaxUint64 >> (64 - bits)
	case column.Time32, column.Time64:
		return 0, uint64(t.Unit.PerSecond())*part.DaySeconds - 1
	default:
		return -1 << (bits - 1), 1<<(bits-1) - 1
	}
}

// putTime keeps the unit that the column counts; what is finer is cut off.
func putTime(t column.Type) (func(*part.Builder, reflect.Value) error, error) {
	switch t.ID {
	case column.Timestamp, column.Date32:
	default:
		return nil, fmt.Errorf("a time.Time cannot be a column of type %v", t)
	}
	if _, err := t.Location(); err != nil {
		return nil, fmt.Errorf("%v: this machine does not know the zone: %w", t, err)
	}
	per := t.Unit.PerSecond()
	return func(b *part.Builder, v reflect.Value) error {
		at := v.Interface().(time.Time)
		if t.ID == column.Date32 {
			y, m, d := at.Date()
			b.Bits(uint64(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400))
			return nil
		}
		if t.Zone == "" { // what the clock shows there
			at = time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), time.UTC)
		}
		if limit := math.MaxInt64/per - 1; at.Unix() > limit || at.Unix() < -limit {
			return fmt.Errorf("%v does not fit %v: use *time.Time where there is none, or a coarser unit", at, t)
		}
		b.Bits(uint64(at.Unix()*per + int64(at.Nanosecond())/(1e9/per)))
		return nil
	}, nil
}
