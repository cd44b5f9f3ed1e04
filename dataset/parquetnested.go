package dataset

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// Parquet has the values of a list or a struct in a column for each leaf, with two numbers a value (after the paper on Dremel): the
// repetition level says which list goes on with it, the definition level how far down on its path something is there. shape puts
// them together again.
type shape struct {
	typ    column.Type
	there  int      // the definition level from which on a value is there
	put    putter   // of a leaf
	leaf   int      // the leaf, or the first one within it, by number in parquetReader.leaves
	leaves int      // that are within it
	items  *shape   // of a list
	some   int      // of a list: the definition level from which on it has a value
	goesOn int      // of a list: the repetition level of its values but the first
	fields []*shape // of a struct
}

// shapeOf finds out what a column is; as is its field in the file's Arrow metadata, empty if it says nothing.
func (r *parquetReader) shapeOf(c *parquet.Column, as arrow.Field, depth int) (*shape, error) {
	if depth > column.MaxNesting {
		return nil, fmt.Errorf("its lists and groups go more than %d deep within each other: write the file again with flatter columns", column.MaxNesting)
	}
	if c.Repeated() { // a list without a group of its own: it is there always
		return r.listOf(c.MaxDefinitionLevel()-1, c, as, func() (*shape, error) { return r.bodyOf(c, itemOf(as), depth+1) })
	}
	return r.bodyOf(c, as, depth)
}

// bodyOf is what a column is but for its being repeated.
func (r *parquetReader) bodyOf(c *parquet.Column, as arrow.Field, depth int) (*shape, error) {
	if c.Leaf() {
		t, put, err := parquetType(c, as)
		s := &shape{typ: t, there: c.MaxDefinitionLevel(), put: put, leaf: len(r.leaves), leaves: 1}
		r.leaves = append(r.leaves, c)
		return s, err
	}
	within := c.Columns()
	if len(within) == 1 && within[0].Repeated() && isList(c) {
		list := within[0]
		return r.listOf(c.MaxDefinitionLevel(), list, as, func() (*shape, error) {
			one := list.Columns()
			if list.Leaf() || len(one) != 1 || list.Name() == "array" || list.Name() == c.Name()+"_tuple" { // as old programs write lists, and maps
				return r.bodyOf(list, itemOf(as), depth+1)
			}
			return r.shapeOf(one[0], itemOf(as), depth+1)
		})
	}
	s := &shape{there: c.MaxDefinitionLevel(), leaf: len(r.leaves)}
	var fields column.Schema
	for _, f := range within {
		field, err := r.shapeOf(f, fieldOf(as, f.Name()), depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		s.fields, fields = append(s.fields, field), append(fields, column.Column{Name: f.Name(), Type: field.typ})
	}
	s.typ, s.leaves = column.StructOf(fields), len(r.leaves)-s.leaf
	if len(fields) == 0 {
		return nil, errors.New("it is a group without columns")
	}
	return s, s.typ.Validate()
}

// listOf is a list whose repeated column is given; it is there from a definition level on.
func (r *parquetReader) listOf(there int, repeated *parquet.Column, as arrow.Field, items func() (*shape, error)) (*shape, error) {
	s := &shape{there: there, some: repeated.MaxDefinitionLevel(), goesOn: repeated.MaxRepetitionLevel(), leaf: len(r.leaves)}
	var err error
	if s.items, err = items(); err != nil {
		return nil, err
	}
	s.typ, s.leaves = column.ListOf(s.items.typ), len(r.leaves)-s.leaf
	return s, s.typ.Validate()
}

// isList reports columns that say they are a list or a map.
func isList(c *parquet.Column) bool {
	l := c.Type().LogicalType()
	if l == nil {
		return false
	}
	switch l.Value.(type) {
	case *format.ListType, *format.MapType:
		return true
	}
	return false
}

func itemOf(as arrow.Field) arrow.Field {
	if l, ok := as.Type.(arrow.ListLikeType); ok {
		return l.ElemField()
	}
	return arrow.Field{}
}

func fieldOf(as arrow.Field, name string) arrow.Field {
	if s, ok := as.Type.(*arrow.StructType); ok {
		f, _ := s.FieldByName(name)
		return f
	}
	return arrow.Field{}
}

// flat reports columns of one value a row.
func (s *shape) flat() bool { return s.put != nil }

// peek is the next value of a leaf.
func (p *pageReader) peek() (parquet.Value, error) {
	if len(p.ahead) == 0 {
		var err error
		if p.ahead, err = p.next(pageValues); err != nil {
			return parquet.Value{}, err
		}
	}
	return p.ahead[0], nil
}

// pop takes the value that was looked at.
func (p *pageReader) pop() { p.ahead = p.ahead[1:] }

// nested reads n lists or structs.
func (r *parquetReader) nested(s *shape, n int) (arrow.Array, error) {
	b := part.NewBuilder(s.typ, n)
	before := 0
	for b.Rows() < n {
		for _, p := range r.pages[s.leaf:][:s.leaves] {
			v, err := p.peek()
			if err == io.EOF {
				return nil, spoilt(fmt.Errorf("it ends %d rows early", n-b.Rows()))
			}
			if err != nil {
				return nil, err
			}
			if v.RepetitionLevel() != 0 {
				return nil, spoilt(fmt.Errorf("row %d of the file: it is damaged: its leaves have lists of different lengths", r.done+int64(b.Rows())))
			}
		}
		err := r.assemble(s, b)
		if text := b.TextBytes(); err == nil && (text-before > 1<<20 || b.Rows() == n) {
			err = r.take(uint64(text - before))
			before = text
		}
		if errors.Is(err, part.ErrText) {
			err = fmt.Errorf("%w: %s", err, part.SplitRow)
		}
		if err != nil {
			return nil, fmt.Errorf("row %d of the file: %w", r.done+int64(b.Rows()), err)
		}
	}
	return b.Finish(), nil
}

// assemble adds one value.
func (r *parquetReader) assemble(s *shape, b *part.Builder) error {
	first := r.pages[s.leaf]
	v, err := first.peek()
	switch {
	case err == io.EOF:
		return spoilt(errors.New("it is damaged: a leaf ends early"))
	case err != nil:
		return err
	case v.DefinitionLevel() < s.there:
		b.Null()
		return r.pass(s)
	case s.put != nil:
		if v.IsNull() {
			return spoilt(errors.New("it is damaged: a value is missing that is said to be there"))
		}
		err := s.put(b, v)
		first.pop()
		return err
	case s.fields != nil:
		for i, f := range s.fields {
			if err := r.assemble(f, b.Within(i)); err != nil {
				return err
			}
		}
		return b.Close()
	}
	if v.DefinitionLevel() < s.some {
		if err := r.pass(s); err != nil {
			return err
		}
		return b.Close()
	}
	for more := true; more; {
		if err := r.assemble(s.items, b.Within(0)); err != nil {
			return err
		}
		if err := b.Room(); err != nil {
			return err
		}
		v, err := first.peek()
		if err != nil && err != io.EOF {
			return err
		}
		more = err == nil && v.RepetitionLevel() == s.goesOn
	}
	return b.Close()
}

// pass takes the value that each leaf has for something that is not there.
func (r *parquetReader) pass(s *shape) error {
	for _, p := range r.pages[s.leaf:][:s.leaves] {
		if _, err := p.peek(); err == io.EOF {
			return spoilt(errors.New("it is damaged: a leaf ends early"))
		} else if err != nil {
			return err
		}
		p.pop()
	}
	return nil
}
