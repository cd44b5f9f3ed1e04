package dataset

import (
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/internal/shell"
)

// A type that was inferred comes from the first rows. Later text is taken only in the forms from which inference makes that type: what a given type
// would take beside them (007 and +5 as integers, 1 as a bool, a count as a moment, a local time as one of UTC) means something else as a rule.

// errForm is about text that the type would take if it were given.
var errForm = errors.New("is taken only where the type")

// forms are ways to write a JSON value.
type forms uint8

const (
	formString forms = 1 << iota
	formBare         // a number or a bool
	formList
	formObject
)

// formOf is how a value is written, which is not null.
func formOf(value []byte) forms {
	switch value[0] {
	case '"':
		return formString
	case '[':
		return formList
	case '{':
		return formObject
	}
	return formBare
}

// forms are those of the values that e has seen.
func (e *evidence) forms() forms {
	switch e.is {
	case guessBool, guessInt, guessFloat:
		return formBare
	case guessList:
		return formList
	case guessStruct:
		return formObject
	case guessText:
		if e.mixed {
			return formString | formBare
		}
	}
	return formString
}

// takes reports in its error that a value, which is not null, is written as none was from which a type was inferred. It decides about a column that had no
// value. e may be nil: the type was given.
func (e *evidence) takes(value []byte, t column.Type) error {
	if e == nil {
		return nil
	}
	if e.is == guessNothing && t.ID == column.UTF8 {
		return e.decide(value, true)
	}
	form := formOf(value)
	switch {
	case e.forms()&form == 0:
		return fmt.Errorf("%s is %s: it %w %v is given", clipped(value), form, errForm, t)
	case form == formObject && t.ID == column.UTF8 && len(e.within) == 0 && value[skipSpace(value, 1)] != '}': // before, no object had a member
		return givenOnly(value, t)
	}
	return nil
}

func (f forms) String() string {
	switch f {
	case formString:
		return "a string"
	case formBare:
		return "not a string"
	case formList:
		return "a list"
	}
	return "an object"
}

// item is what the type of a list's values was inferred from; nil: it was given.
func (e *evidence) item() *evidence {
	if e == nil || len(e.within) == 0 {
		return nil
	}
	return &e.within[0]
}

// member is what the type of a member of objects was inferred from; nil: it was given.
func (e *evidence) member(name string) *evidence {
	if e == nil {
		return nil
	}
	i, ok := e.index[name]
	if !ok {
		return nil
	}
	return &e.within[i]
}

// givenOnly is the error of text that a type takes where it is given.
func givenOnly(text []byte, t column.Type) error {
	return fmt.Errorf("%s %w %v is given", clipped(text), errForm, t)
}

// of is what a column's type was inferred from; nil: it was given.
func (n *Inference) of(c column.Column) *evidence {
	if n == nil {
		return nil
	}
	return n.seen[c.Name]
}

// late is the error of a value that the type of its column, which was inferred, does not hold.
func (n *Inference) late(c column.Column, value []byte, json bool, err error) error {
	was := n.of(c)
	if was == nil {
		return err
	}
	rows := "the first row"
	if n.Rows != 1 {
		rows = fmt.Sprintf("the first %d rows", n.Rows)
	}
	e := was.clone()
	if json {
		e.seeJSON(value, nil, 0)
	} else {
		e.see(value)
	}
	typed := func(t column.Type) string {
		return "--types " + shell.Quote(column.Schema{{Name: c.Name, Type: t}}.List())
	}
	other := e.columnType()
	if was.is == guessNothing {
		return fmt.Errorf("%w; %s had no value, so its type is not known: give it (%s)", err, rows, typed(other))
	}
	if e.isTorn() || other == c.Type {
		other = column.Type{ID: column.UTF8}
	}
	ways := fmt.Sprintf("give another (%s)", typed(other))
	switch {
	case c.Type.ID == column.UTF8:
		ways = fmt.Sprintf("give it (%s), and such values are taken as they are written", typed(c.Type))
	case errors.Is(err, errForm):
		ways = fmt.Sprintf("give it (%s), or another (%s)", typed(c.Type), typed(other))
	}
	if !json || value[0] == '"' {
		ways += ", or say that such text is a missing value (--null)"
	}
	return fmt.Errorf("%w; that type was inferred from %s: %s", err, rows, ways)
}
