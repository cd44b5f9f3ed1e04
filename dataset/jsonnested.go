package dataset

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/schema"
)

var (
	errNoList   = errors.New("it is no list")
	errNoStruct = errors.New("it is no object")
)

// jsonPutter adds a value as JSON has it, which is known to be valid, and may be null.
type jsonPutter func(b *part.Builder, value []byte) error

// jsonPutterOf makes a type's jsonPutter. A type that was inferred from something takes only values of which inference makes it.
func jsonPutterOf(t column.Type, nulls []string, from *evidence) (jsonPutter, error) {
	var within []jsonPutter
	for _, f := range t.Fields() {
		seen := from.item()
		if t.ID == column.Struct {
			seen = from.member(f.Name)
		}
		put, err := jsonPutterOf(f.Type, nulls, seen)
		if err != nil {
			return nil, err
		}
		within = append(within, put)
	}
	switch t.ID {
	case column.List:
		return putList(within[0]), nil
	case column.Struct:
		return putStruct(t.Fields().Names(), within), nil
	}
	put, err := putterOf(t, from != nil)
	return func(b *part.Builder, value []byte) error {
		text := value
		switch value[0] {
		case 'n':
			b.Null()
			return nil
		case '"':
			var err error
			if text, err = unquote(value, nil); err != nil {
				return err
			}
			if missingText(text, true, nulls) {
				b.Null()
				return nil
			}
		case '{', '[':
			if t.ID != column.UTF8 {
				return errNested
			}
		}
		if err := from.takes(value, t); err != nil {
			return err
		}
		return put(b, text)
	}, err
}

func putList(put jsonPutter) jsonPutter {
	return func(b *part.Builder, value []byte) error {
		switch value[0] {
		case 'n':
			b.Null()
			return nil
		case '[':
		default:
			return fmt.Errorf("%s: %w", clipped(value), errNoList)
		}
		n := 0
		err := eachItem(value, func(item []byte) error {
			if err := put(b.Within(0), item); err != nil {
				return fmt.Errorf("[%d]: %w", n, err)
			}
			n++
			return nil
		})
		if err != nil {
			return err
		}
		return b.Close()
	}
}

// eachItem hands out the values of a list.
func eachItem(list []byte, item func([]byte) error) error {
	for i := skipSpace(list, 1); list[i] != ']'; {
		end := skipValue(list, i)
		if err := item(list[i:end]); err != nil {
			return err
		}
		if i = skipSpace(list, end); list[i] == ',' {
			i = skipSpace(list, i+1)
		}
	}
	return nil
}

func putStruct(names []string, put []jsonPutter) jsonPutter {
	index := map[string]int{}
	for i, name := range names {
		index[name] = i
	}
	return func(b *part.Builder, value []byte) error {
		switch value[0] {
		case 'n':
			b.Null()
			return nil
		case '{':
		default:
			return fmt.Errorf("%s: %w", clipped(value), errNoStruct)
		}
		done := make([]bool, len(names))
		err := eachMember(value, func(name string, value []byte) error {
			i, ok := index[name]
			switch {
			case !ok && !utf8.ValidString(name):
				return checkName([]byte(name))
			case !ok:
				return fmt.Errorf("it has a member %.80q, and its type has no such field; %s", name, schema.Suggest(name, names))
			case done[i]:
				return fmt.Errorf("%s: %w", name, errTwice)
			}
			done[i] = true
			if err := put[i](b.Within(i), value); err != nil {
				return fmt.Errorf(".%s: %w", name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, is := range done {
			if !is {
				b.Within(i).Null()
			}
		}
		return b.Close()
	}
}

// eachMember hands out the members of an object.
func eachMember(object []byte, member func(name string, value []byte) error) error {
	for i := skipSpace(object, 1); object[i] != '}'; {
		end := skipString(object, i)
		name, err := unquote(object[i:end], nil)
		if err != nil {
			return fmt.Errorf("the name of a member: %w", err)
		}
		i = skipSpace(object, skipSpace(object, end)+1) // the colon
		end = skipValue(object, i)
		if err := member(string(name), object[i:end]); err != nil {
			return err
		}
		if i = skipSpace(object, end); object[i] == ',' {
			i = skipSpace(object, i+1)
		}
	}
	return nil
}

// clone is a deep copy.
func (e evidence) clone() evidence {
	e.names, e.index, e.within = slices.Clone(e.names), maps.Clone(e.index), slices.Clone(e.within)
	for i := range e.within {
		e.within[i] = e.within[i].clone()
	}
	return e
}

// maxInferredFields bounds the fields of a struct that is inferred: objects with more are rather maps, whose names are data.
const maxInferredFields = 128

// seeJSON takes in a value as JSON has it, so deep within others.
func (e *evidence) seeJSON(value []byte, nulls []string, depth int) {
	switch value[0] {
	case 'n':
	case '"':
		text := value[1 : len(value)-1]
		if missingText(text, true, nulls) {
			return
		}
		var one evidence
		if one.see(text); one.is < guessDate { // a string of digits is text
			one.is = guessText
		}
		e.fine = e.fine || one.fine
		e.join(one.is)
	case '[', '{':
		if depth == column.MaxNesting {
			e.is, e.mixed, e.torn = guessText, true, true
			return
		}
		if value[0] == '[' {
			e.seeList(value, nulls, depth)
		} else {
			e.seeObject(value, nulls, depth)
		}
	default:
		e.see(value)
	}
}

func (e *evidence) seeList(value []byte, nulls []string, depth int) {
	if e.join(guessList); e.is != guessList {
		return
	}
	if e.within == nil {
		e.within = make([]evidence, 1)
	}
	_ = eachItem(value, func(item []byte) error {
		e.within[0].seeJSON(item, nulls, depth+1)
		return nil
	})
}

func (e *evidence) seeObject(value []byte, nulls []string, depth int) {
	if e.join(guessStruct); e.is != guessStruct {
		return
	}
	if e.index == nil {
		e.index = map[string]int{}
	}
	err := eachMember(value, func(name string, value []byte) error {
		i, ok := e.index[name]
		if !ok {
			if i = len(e.within); i == maxInferredFields || name == "" || len(name) > column.MaxNameBytes {
				return errNested
			}
			e.index[name], e.names, e.within = i, append(e.names, name), append(e.within, evidence{})
		}
		e.within[i].seeJSON(value, nulls, depth+1)
		return nil
	})
	if err != nil {
		e.is, e.mixed, e.torn = guessText, true, true
	}
}

// isTorn reports lists and objects that are no column of such, here or within.
func (e *evidence) isTorn() bool {
	return e.torn || slices.ContainsFunc(e.within, func(w evidence) bool { return w.isTorn() })
}

// nestedType is the type of lists and objects that were seen; false: objects without members, or a type whose text is too long.
func (e *evidence) nestedType() (t column.Type, ok bool) {
	if len(e.within) == 0 {
		return t, false
	}
	if e.is == guessList {
		t = column.ListOf(e.within[0].columnType())
	} else {
		var fields column.Schema
		for i, name := range e.names {
			fields = append(fields, column.Column{Name: name, Type: e.within[i].columnType()})
		}
		t = column.StructOf(fields)
	}
	return t, t.Validate() == nil
}
