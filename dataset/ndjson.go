package dataset

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/wherry-fabric/wherry/column"
)

var (
	errNoObject = errors.New("it is not a JSON object")
	errHalf     = errors.New(`it has an escape from \ud800 to \udfff that is half a character: mend it where the file comes from`)
	errNotUTF8  = errors.New("is not UTF-8")
	errNested   = errors.New("it is an object or a list, want a single value")
	errTwice    = errors.New("it stands twice")
)

// escapedReplacement is U+FFFD as an escape: encoding/json puts that character where there is none, too.
var escapedReplacement = regexp.MustCompile(`(?i)\\ufffd`)

// notUTF8 is the error of text that has bytes of something else.
func notUTF8(text []byte) error {
	return fmt.Errorf("%s %w: convert the file (iconv -f LATIN1 -t UTF-8)", clipped(text), errNotUTF8)
}

// checkName finds a name that no column can have.
func checkName(name []byte) error {
	switch {
	case len(name) == 0:
		return errors.New("the name of a member is empty: name it, or give the columns that are to be loaded (--schema)")
	case !utf8.Valid(name):
		return fmt.Errorf("the name of a member: %w", notUTF8(name))
	case len(name) > column.MaxNameBytes:
		return fmt.Errorf("the name of a member, %.60q…, has %d bytes, at most %d are allowed: shorten it, or give the columns that are to be loaded (--schema)", name, len(name), column.MaxNameBytes)
	}
	return nil
}

// checkWithin finds a name within a value that is no text, so deep within others.
func checkWithin(value []byte, depth int) error {
	switch {
	case depth == column.MaxNesting:
	case value[0] == '[':
		return eachItem(value, func(item []byte) error { return checkWithin(item, depth+1) })
	case value[0] == '{':
		return eachMember(value, func(name string, value []byte) error {
			if !utf8.ValidString(name) {
				return checkName([]byte(name))
			}
			return checkWithin(value, depth+1)
		})
	}
	return nil
}

func replaced(s string) int { return strings.Count(s, "\ufffd") }

// The following walk over JSON that is known to be valid.

func skipSpace(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r' {
		i++
	}
	return i
}

// skipString returns the place behind the string that starts at i.
func skipString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// skipValue returns the place behind the value that starts at i.
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		for depth := 0; ; {
			switch b[i] {
			case '"':
				i = skipString(b, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	}
	for b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] > ' ' {
		i++
	}
	return i
}
