package wasmcode

import (
	"fmt"
	"unicode/utf8"
)

// Error says what is wrong with a binary and where.
type Error struct {
	Section  string // "code", "import", …; "" for the file as a whole
	Function int    // index in the function index space, imports included; -1 outside of one
	Offset   int    // from the start of the binary
	Msg      string
}

func (e *Error) Error() string {
	where := "wasm"
	if e.Section != "" {
		where += ": " + e.Section + " section"
	}
	if e.Function >= 0 {
		where += fmt.Sprintf(", function %d", e.Function)
	}
	return fmt.Sprintf("%s, offset %#x: %s", where, e.Offset, e.Msg)
}

// reader walks over a part of a binary. The first failure sticks: from then on it
// reads zeros, so that loops only check err once a round.
type reader struct {
	b       []byte // the binary up to the part's end; offsets are the file's
	pos     int
	section string
	fn      int
	err     error
}

func (r *reader) fail(format string, args ...any) { r.failAt(r.pos, format, args...) }

func (r *reader) failAt(offset int, format string, args ...any) {
	if r.err == nil {
		r.err = &Error{Section: r.section, Function: r.fn, Offset: offset, Msg: fmt.Sprintf(format, args...)}
	}
	r.pos = len(r.b)
}

func (r *reader) ok() bool { return r.err == nil }

func (r *reader) left() int { return len(r.b) - r.pos }

func (r *reader) u8() byte {
	if r.pos >= len(r.b) {
		r.fail("the data ends in the middle of an item")
		return 0
	}
	c := r.b[r.pos]
	r.pos++
	return c
}

// u32 reads an unsigned LEB128 number of at most 32 bits.
func (r *reader) u32() uint32 {
	if r.pos < len(r.b) && r.b[r.pos] < 0x80 {
		r.pos++
		return uint32(r.b[r.pos-1])
	}
	start := r.pos
	var x uint64
	for shift := 0; shift < 35; shift += 7 {
		c := r.u8()
		x |= uint64(c&0x7f) << shift
		if c < 0x80 {
			if x > 1<<32-1 {
				r.failAt(start, "a number does not fit in 32 bits")
				return 0
			}
			return uint32(x)
		}
	}
	r.failAt(start, "a 32-bit number takes more than 5 bytes")
	return 0
}

// signed reads a signed LEB128 number of the given width (32, 33 or 64 bits).
func (r *reader) signed(bits uint) int64 {
	start := r.pos
	var x int64
	for shift := uint(0); shift < bits; shift += 7 {
		c := r.u8()
		if r.err != nil {
			return 0
		}
		x |= int64(c&0x7f) << shift
		if c&0x80 != 0 {
			continue
		}
		if used := bits - shift; used < 7 {
			// The unused bits of the last byte must repeat the sign.
			if top := int8(c<<1) >> used; top != 0 && top != -1 {
				r.failAt(start, "a number does not fit in %d bits", bits)
				return 0
			}
		}
		if shift+7 < 64 && c&0x40 != 0 {
			x |= -1 << (shift + 7)
		}
		return x
	}
	r.failAt(start, "a %d-bit number takes too many bytes", bits)
	return 0
}

func (r *reader) take(n int, what string) []byte {
	if n < 0 || n > r.left() {
		r.fail("%s of %d bytes leaves its section (%d bytes left)", what, n, r.left())
		return nil
	}
	b := r.b[r.pos : r.pos+n]
	r.pos += n
	return b
}

// count reads the length of a vector whose items take at least one byte each.
func (r *reader) count(what string, limit int) int {
	at := r.pos
	n := r.u32()
	switch {
	case int64(n) > int64(limit):
		r.failAt(at, "%d %s; the limit is %d", n, what, limit)
		return 0
	case int64(n) > int64(r.left()):
		r.failAt(at, "%d %s in %d bytes", n, what, r.left())
		return 0
	}
	return int(n)
}

func (r *reader) name(what string) string {
	at := r.pos
	n := r.u32()
	if n > MaxNameBytes {
		r.failAt(at, "%s of %d bytes; the limit is %d", what, n, MaxNameBytes)
		return ""
	}
	b := r.take(int(n), what)
	if !utf8.Valid(b) {
		r.failAt(at, "%s is not UTF-8", what)
		return ""
	}
	return string(b)
}

// index reads an index and checks that it is below n.
func (r *reader) index(what string, n int) uint32 {
	at := r.pos
	i := r.u32()
	if r.err == nil && int64(i) >= int64(n) {
		r.failAt(at, "%s %d, but there are %d", what, i, n)
		return 0
	}
	return i
}
