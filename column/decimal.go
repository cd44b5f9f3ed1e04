package column

import (
	"bytes"
	"fmt"
	"math/bits"
	"strconv"
)

// clipped is text for a message.
func clipped(text []byte) string {
	if len(text) > 60 {
		return strconv.Quote(string(text[:60])) + "…"
	}
	return strconv.Quote(string(text))
}

// widerDecimal says which type takes a number that does not fit a decimal.
func widerDecimal(text []byte, t Type) string {
	whole, behind, _ := bytes.Cut(bytes.TrimLeft(text, "+-0"), []byte("."))
	scale := max(t.Scale, len(bytes.TrimRight(behind, "0")))
	digits := max(t.Precision-t.Scale, len(whole)) + scale
	if digits > MaxPrecision {
		return "no decimal128 has as many digits: f64 takes it, rounded, and utf8 as it is"
	}
	return fmt.Sprintf("decimal128(%d, %d) takes it", digits, scale)
}

// ReadDecimal reads an exact decimal, as the 16 bytes of a decimal128 of type t.
func ReadDecimal(text []byte, t Type) (out [16]byte, err error) {
	hi, lo := uint64(0), uint64(0)
	negative, point, seen := false, -1, false
	count := 0 // of digits that count
	push := func(d uint64) {
		if count > 0 || d != 0 {
			count++
		}
		if count > MaxPrecision {
			return
		}
		carry, l := bits.Mul64(lo, 10)
		l, c := bits.Add64(l, d, 0)
		hi, lo = hi*10+carry+c, l
	}
	for i, c := range text {
		switch {
		case i == 0 && (c == '-' || c == '+'):
			negative = c == '-'
		case c == '.' && point < 0:
			point = 0
		case c >= '0' && c <= '9':
			seen = true
			if point == t.Scale {
				if c != '0' {
					return out, fmt.Errorf("%s has more than %d digits behind the point: %v would lose them; %s", clipped(text), t.Scale, t, widerDecimal(text, t))
				}
				continue
			}
			if point >= 0 {
				point++
			}
			push(uint64(c - '0'))
		default:
			return out, fmt.Errorf("%s is no %v", clipped(text), t)
		}
	}
	if !seen {
		return out, fmt.Errorf("%s is no %v", clipped(text), t)
	}
	for range t.Scale - max(point, 0) {
		push(0)
	}
	if count > t.Precision {
		return out, fmt.Errorf("%s does not fit %v: it has more than %d digits before the point; %s", clipped(text), t, t.Precision-t.Scale, widerDecimal(text, t))
	}
	if negative {
		var borrow uint64
		lo, borrow = bits.Sub64(0, lo, 0)
		hi, _ = bits.Sub64(0, hi, borrow)
	}
	for i := range 8 {
		out[i], out[8+i] = byte(lo>>(8*i)), byte(hi>>(8*i))
	}
	return out, nil
}
