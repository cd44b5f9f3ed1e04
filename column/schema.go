package column

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// ErrSchema says that a schema is not valid; the message says why.
var ErrSchema = errors.New("column: bad schema")

const (
	// MaxColumns bounds a schema: a shard table has each column's name and type.
	MaxColumns = 1024
	// MaxNameBytes bounds a column's name.
	MaxNameBytes = 255
)

// Column is one column of a dataset.
type Column struct {
	Name     string `json:"name"`
	Type     Type   `json:"type"`
	Nullable bool   `json:"nullable,omitempty"` // values may be missing
}

// Schema is a dataset's columns, in their order.
type Schema []Column

// Validate reports what a schema must not have.
func (s Schema) Validate() error {
	if err := s.validateNames(); err != nil {
		return err
	}
	texts := 0
	for _, c := range s {
		if texts += len(c.Type.Of); texts > MaxTypesBytes {
			return fmt.Errorf("%w: the types of its lists and structs have more than %d bytes of text together", ErrSchema, MaxTypesBytes)
		}
		if err := c.Type.Validate(); err != nil {
			return fmt.Errorf("%w: column %q: %w", ErrSchema, c.Name, err)
		}
	}
	return nil
}

// validateNames is Validate of columns whose types are known to be valid.
func (s Schema) validateNames() error {
	if len(s) == 0 || len(s) > MaxColumns {
		return fmt.Errorf("%w: %d columns, it takes 1 to %d", ErrSchema, len(s), MaxColumns)
	}
	seen := make(map[string]int, len(s))
	for i, c := range s {
		if c.Name == "" || len(c.Name) > MaxNameBytes || !utf8.ValidString(c.Name) {
			return fmt.Errorf("%w: column %d is called %.300q: a name is 1 to %d bytes of UTF-8", ErrSchema, i+1, c.Name, MaxNameBytes)
		}
		if other, twice := seen[c.Name]; twice {
			return fmt.Errorf("%w: columns %d and %d are both called %q: rename one", ErrSchema, other+1, i+1, c.Name)
		}
		seen[c.Name] = i
	}
	return nil
}

// Index is the number of the column with that name; -1 if there is none.
func (s Schema) Index(name string) int {
	return slices.IndexFunc(s, func(c Column) bool { return c.Name == name })
}

// Names are the columns' names.
func (s Schema) Names() []string {
	out := make([]string, len(s))
	for i, c := range s {
		out[i] = c.Name
	}
	return out
}

// String lists names and types, for people.
func (s Schema) String() string {
	var b strings.Builder
	for i, c := range s {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s:%v", c.Name, c.Type)
	}
	return b.String()
}

// InOrder is the schema with its columns in the order of another one, which has the same, and their numbers here; nil if it has others.
func (s Schema) InOrder(of Schema) (out Schema, from []int) {
	if len(of) != len(s) {
		return nil, nil
	}
	for _, c := range of {
		i := s.Index(c.Name)
		if i < 0 {
			return nil, nil
		}
		out, from = append(out, s[i]), append(from, i)
	}
	return out, from
}

// Differs says in words how two schemas differ; "" if they do not. Whether values may be missing is no difference.
func (s Schema) Differs(other Schema) string {
	for i, c := range s {
		switch j := other.Index(c.Name); {
		case j < 0:
			return fmt.Sprintf("column %q is missing", c.Name)
		case other[j].Type != c.Type:
			return fmt.Sprintf("column %q is %v, not %v", c.Name, other[j].Type, c.Type)
		case j != i:
			return fmt.Sprintf("column %q is number %d, not %d", c.Name, j+1, i+1)
		}
	}
	if len(other) > len(s) {
		return fmt.Sprintf("it has %d columns, not %d", len(other), len(s))
	}
	return ""
}
