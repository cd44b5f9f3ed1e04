package schema

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Kinds of types that Field.OneOf may name for a Column, beside types themselves.
const (
	KindInteger = "integer" // i8 to u64
	KindFloat   = "float"   // f32, f64
	KindBytes   = "bytes"   // of any fixed length
)

// RowNumber, as the only OneOf of an integer parameter or result field, says that it is the number of a row of the dataset; a
// vertex is a row of a graph. This package cannot tell which rows there are: who knows the dataset looks at it (package invoke does).
const RowNumber = "row"

// rangeSign stands between the ends of a range, as in "0..254"; both belong to it.
const rangeSign = ".."

// IsRow reports whether the field is the number of a row.
func (f *Field) IsRow() bool {
	return f.Type.IsInteger() && len(f.OneOf) == 1 && f.OneOf[0] == RowNumber
}

// kind is the type's kind, "" if it has none but itself.
func (t Type) kind() string {
	_, fixed := t.BytesLen()
	switch {
	case t.IsInteger():
		return KindInteger
	case t.IsFloat():
		return KindFloat
	case fixed:
		return KindBytes
	}
	return ""
}

// checkBounds checks what holds of OneOf in every schema.
func (f *Field) checkBounds() error {
	if len(f.OneOf) > MaxOneOf {
		return fmt.Errorf("one_of has %d values, at most %d are allowed", len(f.OneOf), MaxOneOf)
	}
	for i, v := range f.OneOf {
		if len(v) > MaxOneOfBytes {
			return fmt.Errorf("one_of: %q has %d bytes, at most %d are allowed", clip(v), len(v), MaxOneOfBytes)
		}
		if slices.Index(f.OneOf, v) < i {
			return fmt.Errorf("one_of: %q stands twice", v)
		}
	}
	return nil
}

// checkOneOf checks that a parameter's OneOf are values of its type, or kinds of columns, or of an integer ranges or RowNumber.
func (f *Field) checkOneOf() error {
	if f.IsRow() {
		return nil
	}
	var cell [MaxBytesN]byte
	for _, v := range f.OneOf {
		switch t := Type(v); {
		case f.Type == Str:
		case f.Type.IsInteger() && strings.Contains(v, rangeSign):
			if _, err := f.inRange(v, cell[:f.Type.Size()]); err != nil {
				return fmt.Errorf("one_of: %w", err)
			}
		case f.Type != Column:
			if err := f.Type.PutText(cell[:f.Type.Size()], []byte(v)); err != nil {
				return fmt.Errorf("one_of: %w", err)
			}
		case t == Column || !t.Valid() && v != KindInteger && v != KindFloat && v != KindBytes:
			return fmt.Errorf("one_of: %q is neither a type of columns nor %s, %s or %s", v, KindInteger, KindFloat, KindBytes)
		}
	}
	return nil
}

// inRange reports whether an integer, value being its bytes, lies in a range; the error says what is wrong with the range.
func (f *Field) inRange(text string, value []byte) (bool, error) {
	from, to, ok := strings.Cut(text, rangeSign)
	if !ok {
		return false, nil
	}
	c := f.Type.Codec()
	low, high := make([]byte, len(value)), make([]byte, len(value))
	if err := c.PutText(low, []byte(from)); err != nil {
		return false, err
	}
	if err := c.PutText(high, []byte(to)); err != nil {
		return false, err
	}
	if c.less(high, low) {
		return false, fmt.Errorf("the range %q ends before it begins", text)
	}
	return !c.less(value, low) && !c.less(high, value), nil
}

// less compares two integers of a type.
func (c Codec) less(a, b []byte) bool {
	if c.signed() {
		return getInt(a) < getInt(b)
	}
	return getUint(a) < getUint(b)
}

// among refuses a value, value being its bytes, that OneOf does not name, in this way or another: 0x1 is 1.
func (f *Field) among(text string, value []byte) error {
	if len(f.OneOf) == 0 || f.IsRow() || f.Type == Str && slices.Contains(f.OneOf, text) {
		return nil
	}
	one := make([]byte, len(value))
	for _, v := range f.OneOf {
		if f.Type != Str && f.Type.PutText(one, []byte(v)) == nil && bytes.Equal(one, value) {
			return nil
		}
		if f.Type.IsInteger() {
			if in, _ := f.inRange(v, value); in { // a bad range was refused by checkOneOf
				return nil
			}
		}
	}
	only := f.OneOf[0]
	switch from, to, ranged := strings.Cut(only, rangeSign); {
	case len(f.OneOf) > 1:
		return fmt.Errorf("%q is none of %s", clip(text), listed(f.OneOf))
	case ranged && f.Type.IsInteger():
		return fmt.Errorf("%q is out of range, it goes from %s to %s", clip(text), from, to)
	}
	return fmt.Errorf("%q is not possible, only %s is", clip(text), only)
}

// takes refuses a column of a type that OneOf does not name.
func (f *Field) takes(column string, t Type) error {
	if len(f.OneOf) == 0 || slices.Contains(f.OneOf, string(t)) || slices.Contains(f.OneOf, t.kind()) {
		return nil
	}
	return fmt.Errorf("column %s is of type %s; it must be one of %s", column, t, strings.Join(f.OneOf, ", "))
}
