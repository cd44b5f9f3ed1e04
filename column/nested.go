package column

import (
	"fmt"
	"strings"
)

const (
	// MaxNesting bounds lists and structs within each other: whoever reads such a type goes that deep.
	MaxNesting = 8
	// MaxTypeBytes bounds a type's text, which a shard table has for each column.
	MaxTypeBytes = 4096
	// MaxTypesBytes bounds the texts of a schema's lists and structs together: an element reads them all, of whatever table it is sent.
	MaxTypesBytes = 256 << 10
)

// ListOf is the type of lists of values of a type, any of which may be missing.
func ListOf(t Type) Type { return Type{ID: List, Of: t.String()} }

// StructOf is the type of structs with these fields, any of which may be missing.
func StructOf(fields Schema) Type { return Type{ID: Struct, Of: fields.List()} }

// Nested reports lists and structs.
func (t Type) Nested() bool { return t.ID == List || t.ID == Struct }

// Fields are what a nested type's values are made of: a struct's fields, or of a list one, called item. All are nullable. None of other types,
// and of a type that is not valid.
func (t Type) Fields() Schema {
	switch t.ID {
	case List:
		if of, err := Parse(t.Of); err == nil {
			return Schema{{Name: "item", Type: of, Nullable: true}}
		}
	case Struct:
		if s, err := ParseList(t.Of); err == nil {
			return s
		}
	}
	return nil
}

// parseNested reads list<TYPE> and struct<NAME:TYPE, …>, so deep within others; false: the text is of another type.
func parseNested(text string, depth int) (t Type, nested bool, err error) {
	id := List
	inner, ok := strings.CutPrefix(text, "list<")
	if !ok {
		if inner, ok = strings.CutPrefix(text, "struct<"); !ok {
			return t, false, nil
		}
		id = Struct
	}
	if inner, ok = strings.CutSuffix(inner, ">"); !ok {
		return t, true, fmt.Errorf("%w %.80q: \"<\" is not closed", ErrType, text)
	}
	if len(text) > MaxTypeBytes {
		return t, true, fmt.Errorf("%w %.80q: its text has %d bytes, at most %d are allowed", ErrType, text, len(text), MaxTypeBytes)
	}
	if depth == MaxNesting {
		return t, true, fmt.Errorf("%w %.80q: lists and structs within each other go at most %d deep", ErrType, text, MaxNesting)
	}
	if id == List {
		of, err := parse(strings.TrimSpace(inner), depth+1)
		if err != nil {
			return t, true, err
		}
		return ListOf(of), true, nil
	}
	fields, err := parseList(inner, depth+1)
	if err == nil {
		err = fields.validateNames() // the types were just parsed: to read them again at each depth doubles the work with each
	}
	if err != nil {
		return t, true, fmt.Errorf("%w %.80q: %w", ErrType, text, err)
	}
	return StructOf(fields), true, nil
}

// validateNested reports a list or a struct of what cannot be in one.
func (t Type) validateNested() error {
	got, nested, err := parseNested(t.text(), 0)
	if err == nil && (!nested || got != t) {
		err = fmt.Errorf("%w %.80q: it would be written %.80q", ErrType, t.text(), got.text())
	}
	return err
}

func (t Type) text() string { return t.ID.String() + "<" + t.Of + ">" }
