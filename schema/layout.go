package schema

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrSchema says that a schema is not valid; the message says which field and why.
var ErrSchema = errors.New("schema: not valid")

// Layout is where the fields of a record lie: as a C compiler would place them
// in a struct, each at a multiple of its alignment, the whole rounded up to the
// largest alignment.
type Layout struct {
	Offsets []uint32 // of each field
	Size    uint32   // of the record
	Align   uint32   // of the record; 1 if there are no fields
	HasStr  bool     // a field is text, so records come with a heap
	Codecs  []Codec  // of each field
}

// Layout places the fields. It returns an error if the schema is not valid.
func (s *Schema) Layout() (Layout, error) {
	if err := s.Validate(); err != nil {
		return Layout{}, err
	}
	return s.place(), nil
}

// RecordBytes is the size of a record, 0 for a schema that is not valid.
func (s *Schema) RecordBytes() uint32 {
	if s.Validate() != nil {
		return 0
	}
	return s.place().Size
}

// place computes the layout of fields whose types are known to be types.
func (s *Schema) place() Layout {
	l := Layout{Offsets: make([]uint32, len(s.Fields)), Codecs: make([]Codec, len(s.Fields)), Align: 1}
	for i, f := range s.Fields {
		info, _ := f.Type.info()
		l.Codecs[i] = f.Type.Codec()
		l.Offsets[i] = roundUp(l.Size, info.align)
		l.Size = l.Offsets[i] + info.size
		l.Align = max(l.Align, info.align)
		l.HasStr = l.HasStr || f.Type == Str
	}
	l.Size = roundUp(l.Size, l.Align)
	return l
}

func roundUp(n, align uint32) uint32 { return (n + align - 1) &^ (align - 1) }

// Index is the position of the field called name, -1 if there is none.
func (s *Schema) Index(name string) int {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			return i
		}
	}
	return -1
}

// Names lists the fields' names in order.
func (s *Schema) Names() []string {
	names := make([]string, len(s.Fields))
	for i := range s.Fields {
		names[i] = s.Fields[i].Name
	}
	return names
}

// Validate checks what holds for every schema: number of fields, names, types,
// merges and the size of a record. A schema without fields is valid.
func (s *Schema) Validate() error {
	if len(s.Fields) > MaxFields {
		return fmt.Errorf("%w: %d fields, at most %d are allowed", ErrSchema, len(s.Fields), MaxFields)
	}
	seen := make(map[string]bool, len(s.Fields))
	for i := range s.Fields {
		f := &s.Fields[i]
		if err := f.validate(); err != nil {
			return fmt.Errorf("%w: field %d: %w", ErrSchema, i+1, err)
		}
		if seen[f.Name] {
			return fmt.Errorf("%w: field %d: the name %q is used twice", ErrSchema, i+1, f.Name)
		}
		seen[f.Name] = true
	}
	if size := s.place().Size; size > MaxRecordBytes {
		return fmt.Errorf("%w: a record takes %d bytes, at most %d are allowed", ErrSchema, size, MaxRecordBytes)
	}
	return nil
}

func (f *Field) validate() error {
	if err := ValidateName(f.Name); err != nil {
		return err
	}
	if !f.Type.Valid() {
		return fmt.Errorf("%s: %q is not a type (types are %s, N from 1 to %d)", f.Name, clip(string(f.Type)), typeNames, MaxBytesN)
	}
	if len(f.Help) > MaxHelpBytes {
		return fmt.Errorf("%s: help has %d bytes, at most %d are allowed", f.Name, len(f.Help), MaxHelpBytes)
	}
	if f.Default != nil && len(*f.Default) > MaxDefaultBytes {
		return fmt.Errorf("%s: default has %d bytes, at most %d are allowed", f.Name, len(*f.Default), MaxDefaultBytes)
	}
	if err := f.checkBounds(); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	switch f.Merge {
	case MergeNone, MergeKey:
	case MergeSum:
		if !f.Type.IsInteger() && !f.Type.IsFloat() {
			return fmt.Errorf("%s: only numbers can be merged with %q, not %s", f.Name, f.Merge, f.Type)
		}
	case MergeMin, MergeMax:
		if f.Type == Column {
			return fmt.Errorf("%s: a column cannot be merged", f.Name)
		}
	case MergeCount:
		if !f.Type.IsInteger() {
			return fmt.Errorf("%s: a count must be an integer, not %s", f.Name, f.Type)
		}
	default:
		return fmt.Errorf("%s: merge %q is unknown (key, sum, min, max, count, or nothing)", f.Name, clip(f.Merge))
	}
	return nil
}

// ValidateName checks a field's name: a C identifier of at most MaxNameBytes.
func ValidateName(name string) error {
	if name == "" {
		return errors.New("a field needs a name")
	}
	if len(name) > MaxNameBytes {
		return fmt.Errorf("the name %q has %d bytes, at most %d are allowed", clip(name), len(name), MaxNameBytes)
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return fmt.Errorf("the name %q must be letters, digits and _, and not start with a digit", name)
		}
	}
	return nil
}

// Identifier makes a name of a text as ValidateName wants it, but for the length: what
// cannot stand in a name becomes "_".
func Identifier(text string) string {
	out := make([]byte, 0, len(text)+1)
	for i := range len(text) {
		c := text[i]
		switch {
		case c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
		case '0' <= c && c <= '9':
			if i == 0 {
				out = append(out, '_')
			}
		default:
			c = '_'
		}
		out = append(out, c)
	}
	return string(out)
}

// ValidateDataset checks the schema of a dataset's rows: at least one field, no
// columns, defaults or merges.
func (s *Schema) ValidateDataset() error {
	if err := s.Validate(); err != nil {
		return err
	}
	if len(s.Fields) == 0 {
		return fmt.Errorf("%w: a dataset's rows need at least one field", ErrSchema)
	}
	for _, f := range s.Fields {
		switch {
		case f.Type == Column:
			return fmt.Errorf("%w: %s: only a parameter can be a column", ErrSchema, f.Name)
		case f.Default != nil:
			return fmt.Errorf("%w: %s: a dataset's field has no default", ErrSchema, f.Name)
		case len(f.OneOf) > 0:
			return fmt.Errorf("%w: %s: only a parameter has one_of", ErrSchema, f.Name)
		case f.Merge != MergeNone:
			return fmt.Errorf("%w: %s: a dataset's field is not merged", ErrSchema, f.Name)
		}
	}
	return nil
}

// ValidateParams checks a function's parameters: no merges, and every default
// is a value of its type, and one of those that it takes.
func (s *Schema) ValidateParams() error {
	if err := s.Validate(); err != nil {
		return err
	}
	for _, f := range s.Fields {
		if f.Merge != MergeNone {
			return fmt.Errorf("%w: %s: a parameter is not merged", ErrSchema, f.Name)
		}
		if err := f.checkOneOf(); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrSchema, f.Name, err)
		}
		if f.Default == nil {
			continue
		}
		if err := f.checkDefault(); err != nil {
			return fmt.Errorf("%w: %s: default: %w", ErrSchema, f.Name, err)
		}
	}
	return nil
}

func (f *Field) checkDefault() error {
	var cell [MaxBytesN]byte
	value := cell[:f.Type.Size()]
	switch f.Type {
	case Column:
		return ValidateName(*f.Default)
	case Str:
	default:
		if err := f.Type.PutText(value, []byte(*f.Default)); err != nil {
			return err
		}
	}
	return f.among(*f.Default, value)
}

// ValidateResult checks a function's result rows: at least one field, no
// columns or defaults, and either no field or every field merged.
func (s *Schema) ValidateResult() error {
	if err := s.Validate(); err != nil {
		return err
	}
	if len(s.Fields) == 0 {
		return fmt.Errorf("%w: result rows need at least one field", ErrSchema)
	}
	merged := s.Merges()
	for _, f := range s.Fields {
		switch {
		case f.Type == Column:
			return fmt.Errorf("%w: %s: only a parameter can be a column", ErrSchema, f.Name)
		case f.Default != nil:
			return fmt.Errorf("%w: %s: a result has no default", ErrSchema, f.Name)
		case len(f.OneOf) > 0 && !f.IsRow():
			return fmt.Errorf("%w: %s: of a result one_of can only say that a field is a row: [%q]", ErrSchema, f.Name, RowNumber)
		case merged && f.Merge == MergeNone:
			return fmt.Errorf("%w: %s: other fields are merged, so this one needs a merge too (key, sum, min, max or count)", ErrSchema, f.Name)
		}
	}
	return nil
}

// Merges reports whether any field is merged.
func (s *Schema) Merges() bool {
	for _, f := range s.Fields {
		if f.Merge != MergeNone {
			return true
		}
	}
	return false
}

// clipBytes is how much of a bad value a message shows.
const clipBytes = 64

// clip shortens a value for a message.
func clip(s string) string {
	if len(s) <= clipBytes {
		return s
	}
	return s[:clipBytes] + "… (" + strconv.Itoa(len(s)) + " bytes)"
}
