package dataset

import (
	"errors"
	"regexp"
	"strings"
)

var (
	errNoObject = errors.New("it is not a JSON object")
	errHalf     = errors.New(`it has an escape from \ud800 to \udfff that is half a character, or bytes that are no UTF-8`)
	errNested   = errors.New("it is an object or a list, want a single value")
	errTwice    = errors.New("it stands twice")
)

// escapedReplacement is U+FFFD as an escape: encoding/json puts that character where there is none, too.
var escapedReplacement = regexp.MustCompile(`(?i)\\ufffd`)

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
