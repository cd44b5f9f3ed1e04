package debgraph

import (
	"cmp"
	"strings"
)

// CompareVersions orders two Debian version strings as Debian Policy 5.6.12
// says: by epoch, then upstream version, then revision; it returns a negative number, 0 or a
// positive one. Any string is accepted: what is no digit sorts letters before
// the rest and a tilde before everything, the end included.
func CompareVersions(a, b string) int {
	ae, au, ar := splitVersion(a)
	be, bu, br := splitVersion(b)
	return cmp.Or(compareDigits(ae, be), compareVersionPart(au, bu), compareVersionPart(ar, br))
}

func splitVersion(v string) (epoch, upstream, revision string) {
	if e, rest, ok := strings.Cut(v, ":"); ok {
		epoch, v = e, rest
	}
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		return epoch, v[:i], v[i+1:]
	}
	return epoch, v, ""
}

// compareVersionPart alternates between runs of non-digits, compared by
// weight, and runs of digits, compared as numbers of any length.
func compareVersionPart(a, b string) int {
	for a != "" || b != "" {
		an, bn := digitsFrom(a), digitsFrom(b)
		if c := compareNonDigits(a[:an], b[:bn]); c != 0 {
			return c
		}
		a, b = a[an:], b[bn:]
		ad, bd := digitsEnd(a), digitsEnd(b)
		if c := compareDigits(a[:ad], b[:bd]); c != 0 {
			return c
		}
		a, b = a[ad:], b[bd:]
	}
	return 0
}

func compareNonDigits(a, b string) int {
	for i := range max(len(a), len(b)) {
		var wa, wb int
		if i < len(a) {
			wa = weight(a[i])
		}
		if i < len(b) {
			wb = weight(b[i])
		}
		if wa != wb {
			return wa - wb
		}
	}
	return 0
}

// weight orders a non-digit byte; the end of a part weighs 0.
func weight(c byte) int {
	switch {
	case c == '~':
		return -1
	case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
		return int(c)
	default:
		return int(c) + 256
	}
}

// compareDigits compares two runs of digits as numbers, without a limit on
// their length; an empty run is 0.
func compareDigits(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// digitsFrom is where the first digit is, or the length.
func digitsFrom(s string) int {
	for i := range len(s) {
		if isDigit(s[i]) {
			return i
		}
	}
	return len(s)
}

// digitsEnd is how many digits s starts with.
func digitsEnd(s string) int {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return i
		}
	}
	return len(s)
}
