package structs

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/wherry-fabric/wherry/column"
)

// Scanner reads rows into structs of one type.
type Scanner struct {
	typ     reflect.Type
	fields  []field
	columns []int // of the fields
	schema  column.Schema
	batch   arrow.RecordBatch
	get     []func(row int, into reflect.Value) error
}

// NewScanner finds the columns of a struct's fields; columns that it has no field for are passed over.
func NewScanner(t reflect.Type, s column.Schema) (*Scanner, error) {
	fs, err := fields(t)
	if err != nil {
		return nil, err
	}
	out := &Scanner{typ: t, fields: fs, schema: s}
	for _, f := range fs {
		i := s.Index(f.column.Name)
		if i < 0 {
			return nil, fmt.Errorf("%w: %v.%s: there is no column %q; there are %s: name one in the tag, or leave the field out with wherry:\"-\"", ErrStruct, t, f.name, f.column.Name, strings.Join(s.Names(), ", "))
		}
		out.columns = append(out.columns, i)
	}
	return out, nil
}

// Batch has the following rows read from a batch.
func (s *Scanner) Batch(rec arrow.RecordBatch) error {
	s.batch, s.get = rec, nil
	for i, f := range s.fields {
		c := s.schema[s.columns[i]]
		get, err := getter(f, c.Type, rec.Column(s.columns[i]))
		if err != nil {
			return fmt.Errorf("%w: %v.%s: column %q: %w", ErrStruct, s.typ, f.name, c.Name, err)
		}
		s.get = append(s.get, get)
	}
	return nil
}

// Scan reads a row of the batch into a struct.
func (s *Scanner) Scan(row int, into reflect.Value) error {
	for i, f := range s.fields {
		v := into.Field(f.index)
		if s.batch.Column(s.columns[i]).IsNull(row) {
			if !f.nullable {
				return fmt.Errorf("%w: %v.%s: column %q has a missing value: make the field a pointer, or ask with --where '!isnull(…)'", ErrStruct, s.typ, f.name, f.column.Name)
			}
			v.SetZero()
			continue
		}
		if f.nullable {
			p := reflect.New(f.typ)
			v.Set(p)
			v = p.Elem()
		}
		if err := s.get[i](row, v); err != nil {
			return fmt.Errorf("%w: %v.%s: column %q: %w", ErrStruct, s.typ, f.name, f.column.Name, err)
		}
	}
	return nil
}

type setter = func(row int, into reflect.Value) error

// getter reads values of an array into a field.
func getter(f field, t column.Type, a arrow.Array) (setter, error) {
	k := f.typ.Kind()
	switch a := a.(type) {
	case *array.Timestamp:
		if f.typ == timeType {
			return instants(t, func(r int) int64 { return int64(a.Value(r)) })
		}
	case *array.Date32:
		if f.typ == timeType {
			return func(r int, into reflect.Value) error {
				into.Set(reflect.ValueOf(time.Unix(int64(a.Value(r))*86400, 0).UTC()))
				return nil
			}, nil
		}
	case *array.Duration:
		if f.typ == durationType {
			unit := int64(time.Second) / t.Unit.PerSecond()
			return func(r int, into reflect.Value) error {
				if v := int64(a.Value(r)); v > math.MaxInt64/unit || v < math.MinInt64/unit {
					return fmt.Errorf("%d%v does not fit a time.Duration", v, t.Unit)
				}
				into.SetInt(int64(a.Value(r)) * unit)
				return nil
			}, nil
		}
	case *array.Boolean:
		if k == reflect.Bool {
			return func(r int, into reflect.Value) error { into.SetBool(a.Value(r)); return nil }, nil
		}
	case *array.String:
		if k == reflect.String {
			return func(r int, into reflect.Value) error { into.SetString(strings.Clone(a.Value(r))); return nil }, nil
		}
	case *array.Dictionary:
		if words, ok := a.Dictionary().(*array.String); ok && k == reflect.String {
			return func(r int, into reflect.Value) error {
				into.SetString(strings.Clone(words.Value(a.GetValueIndex(r))))
				return nil
			}, nil
		}
	case *array.Decimal128:
		if k == reflect.String {
			return func(r int, into reflect.Value) error { into.SetString(a.Value(r).ToString(int32(t.Scale))); return nil }, nil
		}
	case interface{ Value(int) []byte }:
		if f.typ == addrType && t.Extension == column.IP {
			return func(r int, into reflect.Value) error {
				into.Set(reflect.ValueOf(netip.AddrFrom16([16]byte(a.Value(r))).Unmap()))
				return nil
			}, nil
		}
		if k == reflect.String && t.Extension != column.NoExtension {
			return func(r int, into reflect.Value) error {
				into.SetString(string(t.Extension.Append(nil, a.Value(r))))
				return nil
			}, nil
		}
		if f.typ.Kind() == reflect.Slice && f.typ.Elem().Kind() == reflect.Uint8 {
			return func(r int, into reflect.Value) error { into.SetBytes(append([]byte{}, a.Value(r)...)); return nil }, nil
		}
		if f.typ.Kind() == reflect.Array && f.typ.Elem().Kind() == reflect.Uint8 && f.typ.Len() == t.Width {
			return func(r int, into reflect.Value) error { reflect.Copy(into, reflect.ValueOf(a.Value(r))); return nil }, nil
		}
	}
	if get := numbers(k, a); get != nil {
		return get, nil
	}
	return nil, fmt.Errorf("a column of type %v does not go into a %v", t, f.typ)
}

func instants(t column.Type, at func(int) int64) (setter, error) {
	zone, err := t.Location()
	if err != nil {
		return nil, fmt.Errorf("this machine does not know the zone: %w", err)
	}
	per := t.Unit.PerSecond()
	return func(r int, into reflect.Value) error {
		v := at(r)
		s := v / per
		if v%per < 0 {
			s--
		}
		into.Set(reflect.ValueOf(time.Unix(s, (v-s*per)*(1e9/per)).In(zone)))
		return nil
	}, nil
}

// numbers reads numbers into a field of that kind; nil if one of the two is none.
func numbers(k reflect.Kind, a arrow.Array) setter {
	switch a := a.(type) {
	case *array.Int8:
		return signed(k, a.Int8Values())
	case *array.Int16:
		return signed(k, a.Int16Values())
	case *array.Int32:
		return signed(k, a.Int32Values())
	case *array.Int64:
		return signed(k, a.Int64Values())
	case *array.Uint8:
		return unsigned(k, a.Uint8Values())
	case *array.Uint16:
		return unsigned(k, a.Uint16Values())
	case *array.Uint32:
		return unsigned(k, a.Uint32Values())
	case *array.Uint64:
		return unsigned(k, a.Uint64Values())
	case *array.Float32:
		return floating(k, a.Float32Values())
	case *array.Float64:
		return floating(k, a.Float64Values())
	}
	return nil
}

func signed[T ~int8 | ~int16 | ~int32 | ~int64](k reflect.Kind, v []T) setter {
	if k < reflect.Int || k > reflect.Uint64 {
		return nil
	}
	return func(r int, into reflect.Value) error { return setInteger(into, int64(v[r]), uint64(v[r]), v[r] < 0) }
}

func unsigned[T ~uint8 | ~uint16 | ~uint32 | ~uint64](k reflect.Kind, v []T) setter {
	if k < reflect.Int || k > reflect.Uint64 {
		return nil
	}
	return func(r int, into reflect.Value) error { return setInteger(into, int64(v[r]), uint64(v[r]), false) }
}

// setInteger sets a field to an integer that it holds.
func setInteger(into reflect.Value, i int64, u uint64, negative bool) error {
	switch k := into.Kind(); {
	case k >= reflect.Int && k <= reflect.Int64:
		if !negative && u > math.MaxInt64 || into.OverflowInt(i) {
			break
		}
		into.SetInt(i)
		return nil
	case k >= reflect.Uint && k <= reflect.Uint64:
		if negative || into.OverflowUint(u) {
			break
		}
		into.SetUint(u)
		return nil
	}
	if negative {
		return fmt.Errorf("%d does not fit a %v", i, into.Type())
	}
	return fmt.Errorf("%d does not fit a %v", u, into.Type())
}

func floating[T ~float32 | ~float64](k reflect.Kind, v []T) setter {
	if k != reflect.Float32 && k != reflect.Float64 {
		return nil
	}
	return func(r int, into reflect.Value) error {
		if f := float64(v[r]); into.OverflowFloat(f) {
			return fmt.Errorf("%g does not fit a %v", f, into.Type())
		}
		into.SetFloat(float64(v[r]))
		return nil
	}
}
