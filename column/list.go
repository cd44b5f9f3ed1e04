package column

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseList reads names and types as a command line has them: "status:u16, when:timestamp[us, UTC]". A name that has a comma,
// a colon or a bracket stands in double quotes. Columns are nullable.
func ParseList(text string) (Schema, error) { return parseList(text, 0) }

func parseList(text string, depth int) (Schema, error) {
	var out Schema
	seen := map[string]bool{} // to look through those before it would take milliseconds of the longest text
	for rest := strings.TrimSpace(text); rest != ""; {
		name, after, err := listedName(rest)
		if err != nil {
			return nil, err
		}
		end := listedEnd(after)
		t, err := parse(strings.TrimSpace(after[:end]), depth)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", name, err)
		}
		if seen[name] {
			return nil, fmt.Errorf("%w: column %q stands twice", ErrSchema, name)
		}
		seen[name] = true
		out = append(out, Column{Name: name, Type: t, Nullable: true})
		rest = strings.TrimSpace(strings.TrimPrefix(after[end:], ","))
	}
	return out, nil
}

// listedName takes a name and its colon off.
func listedName(text string) (name, rest string, err error) {
	if text[0] == '"' {
		quoted, err := strconv.QuotedPrefix(text)
		if err == nil {
			name, err = strconv.Unquote(quoted)
		}
		if err == nil {
			rest = strings.TrimSpace(text[len(quoted):])
		}
	} else {
		end := strings.IndexAny(text, ":,")
		if end < 0 {
			end = len(text)
		}
		name, rest = strings.TrimSpace(text[:end]), text[end:]
	}
	if name == "" || !strings.HasPrefix(rest, ":") {
		return "", "", fmt.Errorf("%w: %.80q: want name:type, name:type, …; a name with a comma, a colon or a bracket stands in double quotes", ErrSchema, text)
	}
	return name, rest[1:], nil
}

// listedEnd is where a type ends: at a comma outside of brackets.
func listedEnd(text string) int {
	depth := 0
	quoted := false // a name within a struct
	for i := 0; i < len(text); i++ {
		c := text[i]
		if quoted {
			if c == '\\' {
				i++
			}
			quoted = c != '"'
			continue
		}
		switch c {
		case '"':
			quoted = true
		case '[', '(', '<':
			depth++
		case ']', ')', '>':
			depth--
		case ',':
			if depth <= 0 {
				return i
			}
		}
	}
	return len(text)
}

// List is s as ParseList reads it.
func (s Schema) List() string {
	var b strings.Builder
	for i, c := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		name := c.Name
		if strings.ContainsAny(name, ",:\"[]()<>") || strings.TrimSpace(name) != name {
			name = strconv.Quote(name)
		}
		fmt.Fprintf(&b, "%s:%v", name, c.Type)
	}
	return b.String()
}
