// Package structs has Go structs as rows of columns: a field is a column.
//
// # Model
//
// A field's tag names its column, and may name its type: `wherry:"user id"`, `wherry:"when,timestamp[ms, UTC]"`, `wherry:"-"` for a
// field that is none. Without a tag the column has the field's name. A pointer is a column whose values may be missing. A last word key, as in
// `wherry:"user id,key"`, makes the column the dataset's key: rows with equal keys lie on one node.
//
// A Writer makes chunks of rows; a Scanner reads rows of record batches into structs. Neither keeps what it is given.
//
// # Errors
//
// ErrStruct names the field, the column, and what would fit.
package structs

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/column"
)

// ErrStruct says that a struct, or a value in it, does not go with columns; the message says which field and why.
var ErrStruct = errors.New("structs: bad struct")

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	addrType     = reflect.TypeFor[netip.Addr]()
)

// field is a field that is a column.
type field struct {
	index    int
	name     string // of the field
	column   column.Column
	nullable bool         // it is a pointer
	typ      reflect.Type // of its value
	given    bool         // the tag names a type
	key      bool
}

// fields are those of a struct, in its order.
func fields(t reflect.Type) ([]field, error) {
	if t.Kind() != reflect.Struct || t == timeType {
		return nil, fmt.Errorf("%w: a row is a struct, not %v", ErrStruct, t)
	}
	var out []field
	for i := range t.NumField() {
		sf := t.Field(i)
		tag, tagged := sf.Tag.Lookup("wherry")
		if tag == "-" || !sf.IsExported() && !tagged {
			continue
		}
		if !sf.IsExported() {
			return nil, fmt.Errorf("%w: %v.%s has a tag and is not exported: begin its name with a capital letter", ErrStruct, t, sf.Name)
		}
		f := field{index: i, name: sf.Name, typ: sf.Type}
		if f.typ.Kind() == reflect.Pointer {
			f.nullable, f.typ = true, f.typ.Elem()
		}
		if err := f.read(tag); err != nil {
			return nil, fmt.Errorf("%w: %v.%s: %w", ErrStruct, t, sf.Name, err)
		}
		if i := slices.IndexFunc(out, func(f field) bool { return f.key }); i >= 0 && f.key {
			return nil, fmt.Errorf("%w: %v: both %s and %s are called its key: a dataset has one", ErrStruct, t, out[i].name, f.name)
		}
		out = append(out, f)
	}
	return out, nil
}

// read takes a tag's name and type.
func (f *field) read(tag string) error {
	name, option, has := strings.Cut(tag, ",")
	if name = strings.TrimSpace(name); name == "" {
		name = f.name
	}
	f.column = column.Column{Name: name, Nullable: f.nullable}
	option = strings.TrimSpace(option)
	if i := strings.LastIndexByte(option, ',') + 1; strings.TrimSpace(option[i:]) == "key" { // a type may have a comma in it
		f.key, option = true, strings.TrimSpace(option[:max(i-1, 0)])
	}
	var err error
	if has && option != "" {
		f.given = true
		f.column.Type, err = column.Parse(option)
	} else {
		f.column.Type, err = usual(f.typ)
	}
	return err
}

// usual is the column type of a Go type.
func usual(t reflect.Type) (column.Type, error) {
	switch t {
	case timeType:
		return column.Type{ID: column.Timestamp, Unit: column.Microsecond, Zone: "UTC"}, nil
	case durationType:
		return column.Type{ID: column.Duration, Unit: column.Nanosecond}, nil
	case addrType:
		return column.Extended(column.IP), nil
	}
	if id, ok := kinds[t.Kind()]; ok {
		return column.Type{ID: id}, nil
	}
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return column.Type{ID: column.Binary}, nil
	case t.Kind() == reflect.Array && t.Elem().Kind() == reflect.Uint8:
		out := column.Type{ID: column.Bytes, Width: t.Len()}
		return out, out.Validate()
	}
	return column.Type{}, fmt.Errorf("a %v is no column: there are numbers, bool, string, []byte, [N]byte, time.Time, time.Duration, netip.Addr, and pointers to them for values that may be missing; leave a field out with the tag wherry:\"-\"", t)
}

var kinds = map[reflect.Kind]column.ID{
	reflect.Int: column.I64, reflect.Int8: column.I8, reflect.Int16: column.I16, reflect.Int32: column.I32, reflect.Int64: column.I64,
	reflect.Uint: column.U64, reflect.Uint8: column.U8, reflect.Uint16: column.U16, reflect.Uint32: column.U32, reflect.Uint64: column.U64,
	reflect.Float32: column.F32, reflect.Float64: column.F64, reflect.Bool: column.Bool, reflect.String: column.UTF8,
}

// Schema is the columns that structs of type T are.
func Schema[T any]() (column.Schema, error) {
	fs, err := fields(reflect.TypeFor[T]())
	if err != nil {
		return nil, err
	}
	var out column.Schema
	for _, f := range fs {
		out = append(out, f.column)
	}
	if err := out.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %v: %w", ErrStruct, reflect.TypeFor[T](), err)
	}
	return out, nil
}
