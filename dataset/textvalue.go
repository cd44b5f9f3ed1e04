package dataset

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/schema"
)

// textPutter adds a value, as text files have it, to a column. It does not keep the text.
type textPutter func(b *part.Builder, text []byte) error

// putterOf makes a type's textPutter. A type that was inferred takes only text of which inference makes it.
func putterOf(t column.Type, inferred bool) (textPutter, error) {
	switch t.ID {
	case column.I8, column.I16, column.I32, column.I64:
		return putSigned(t, inferred), nil
	case column.U8, column.U16, column.U32, column.U64:
		return putUnsigned(t, inferred), nil
	case column.F32, column.F64:
		return putFloat(t, inferred), nil
	case column.Bool:
		return putBool(inferred), nil
	case column.Date32, column.Timestamp:
		return putMoment(t, inferred)
	case column.Time32, column.Time64:
		return putClock(t), nil
	case column.Duration:
		return putDuration(t), nil
	case column.Decimal128:
		return func(b *part.Builder, text []byte) error {
			v, err := column.ReadDecimal(text, t)
			if err != nil {
				return err
			}
			return b.Bytes(v[:])
		}, nil
	case column.UTF8:
		return putUTF8, nil
	case column.Binary, column.Bytes:
		if t.Extension != column.NoExtension {
			return putExtension(t.Extension), nil
		}
		return putHex(t), nil
	}
	if t.Nested() {
		return nil, fmt.Errorf("%w: text cannot become %v: lists and structs are loaded from ndjson, parquet and arrow", ErrOptions, t)
	}
	return nil, fmt.Errorf("%w: text cannot become %v", ErrOptions, t)
}

// clipped is text for a message.
func clipped(text []byte) string {
	if len(text) > 60 {
		return strconv.Quote(string(text[:60])) + "…"
	}
	return strconv.Quote(string(text))
}

// mostDigits is how many always fit into 64 bits.
const mostDigits = 19

// readInteger reads a decimal integer: its magnitude and sign. ok is false if the text is none; fits, if it needs more than 64 bits.
func readInteger(text []byte) (v uint64, negative, ok, fits bool) {
	if len(text) > 1 && (text[0] == '-' || text[0] == '+') {
		negative, text = text[0] == '-', text[1:]
	}
	if len(text) == 0 {
		return 0, false, false, false
	}
	fits = true
	if len(text) <= mostDigits {
		for _, c := range text {
			if c -= '0'; c > 9 {
				return 0, false, false, false
			}
			v = 10*v + uint64(c)
		}
		return v, negative, true, true
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false, false, false
		}
		hi, lo := bits.Mul64(v, 10)
		sum, carry := bits.Add64(lo, uint64(c-'0'), 0)
		if hi|carry != 0 {
			fits = false
		}
		v = sum
	}
	return v, negative, true, fits
}

// notA says that text is no integer, and which types would take it.
func notA(text []byte, t column.Type) error {
	_, err := strconv.ParseFloat(string(text), 64)
	if places := len(text) - 1 - bytes.IndexByte(text, '.'); err == nil && plainFloat(text) {
		if !bytes.ContainsAny(text, "eEnN") && places < len(text) && places <= 38 {
			return fmt.Errorf("%s is no %v: f64 takes it, or decimal128(38, %d)", clipped(text), t, places)
		}
		return fmt.Errorf("%s is no %v: f64 takes it", clipped(text), t)
	}
	return fmt.Errorf("%s is no %v", clipped(text), t)
}

func putSigned(t column.Type, inferred bool) textPutter {
	most := uint64(1)<<(8*t.Size()-1) - 1
	return func(b *part.Builder, text []byte) error {
		v, negative, ok, fits := readInteger(text)
		switch {
		case !ok:
			return notA(text, t)
		case !fits || !negative && v > most || negative && v > most+1:
			return fmt.Errorf("%s does not fit %v, which holds %d to %d", clipped(text), t, -int64(most)-1, most)
		case inferred && (text[0] == '+' || leadingZero(text)):
			return givenOnly(text, t)
		case negative:
			v = -v
		}
		b.Bits(v)
		return nil
	}
}

func putUnsigned(t column.Type, inferred bool) textPutter {
	most := uint64(math.MaxUint64) >> (64 - 8*t.Size())
	return func(b *part.Builder, text []byte) error {
		v, negative, ok, fits := readInteger(text)
		switch {
		case !ok:
			return notA(text, t)
		case !fits || v > most || negative && v > 0:
			return fmt.Errorf("%s does not fit %v, which holds 0 to %d", clipped(text), t, most)
		case inferred && (text[0] == '+' || leadingZero(text)):
			return givenOnly(text, t)
		}
		b.Bits(v)
		return nil
	}
}

// exactTens are the powers of ten that a float64 holds exactly.
var exactTens = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// readFloat reads what most numbers look like: at most 15 digits and a small exponent, for which one division or multiplication of exact numbers is
// rounded right (Clinger, "How to read floating point numbers accurately", 1990). ok is false for all else, which package strconv reads.
func readFloat(text []byte) (v float64, ok bool) {
	i, negative := 0, false
	if len(text) > 0 && text[0] == '-' {
		i, negative = 1, true
	}
	whole, n, scale, point := uint64(0), 0, 0, false
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			whole = 10*whole + uint64(c-'0')
			n++
			if point {
				scale++
			}
		case c == '.' && !point:
			point = true
		default:
			return 0, false
		}
	}
	if n == 0 || n > 15 {
		return 0, false
	}
	if v = float64(whole) / exactTens[scale]; negative {
		v = -v
	}
	return v, true
}

// betweenF32 reports that a number of readFloat lies exactly in the middle between two of f32. The text it was rounded from may lie nearer to one of them.
func betweenF32(v float64) bool { return math.Float64bits(v)&(1<<29-1) == 1<<28 }

func putFloat(t column.Type, inferred bool) textPutter {
	return func(b *part.Builder, text []byte) error {
		if v, ok := readFloat(text); ok && (t.ID == column.F64 || !betweenF32(v)) && !(inferred && leadingZero(text)) {
			b.Float(v)
			return nil
		}
		v, err := strconv.ParseFloat(string(text), 8*t.Size())
		if err != nil && !errors.Is(err, strconv.ErrRange) || !plainFloat(text) {
			return fmt.Errorf("%s is no number", clipped(text))
		}
		if err != nil {
			return fmt.Errorf("%s does not fit %v", clipped(text), t)
		}
		if inferred {
			if g := classify(text, &evidence{}); g != guessFloat && g != guessInt {
				return givenOnly(text, t)
			}
		}
		b.Float(v)
		return nil
	}
}

// plainFloat refuses what only Go writes: hexadecimal digits and underscores.
func plainFloat(text []byte) bool {
	for _, c := range text {
		if c == 'x' || c == 'X' || c == '_' {
			return false
		}
	}
	return true
}

func readBool(text []byte) (v, ok bool) {
	switch string(text) {
	case "true", "True", "TRUE":
		return true, true
	case "false", "False", "FALSE":
		return false, true
	}
	return false, false
}

func putBool(inferred bool) textPutter {
	return func(b *part.Builder, text []byte) error {
		v, ok := readBool(text)
		if !ok && len(text) == 1 && (text[0] == '0' || text[0] == '1') {
			if inferred {
				return givenOnly(text, column.Type{ID: column.Bool})
			}
			v, ok = text[0] == '1', true
		}
		if !ok {
			return fmt.Errorf("%s is no bool: true, false, 1 or 0", clipped(text))
		}
		b.Bool(v)
		return nil
	}
}

func putMoment(t column.Type, inferred bool) (textPutter, error) {
	zone, err := t.Location()
	if err != nil {
		return nil, fmt.Errorf("%w: %v: this machine does not know the zone: %w", ErrOptions, t, err)
	}
	timed, zoned := t.ID == column.Timestamp, t.Zone != ""
	return func(b *part.Builder, text []byte) error {
		m, ok := column.ReadMoment(text)
		if !ok {
			return putCount(b, text, t, inferred)
		}
		v, err := m.Count(t, zone)
		if err != nil {
			return fmt.Errorf("%s: %w", clipped(text), err)
		}
		if inferred && (m.Zoned != zoned || m.Timed && !timed) {
			return givenOnly(text, t)
		}
		b.Bits(uint64(v))
		return nil
	}, nil
}

// putCount adds a moment that is given as a count of its unit.
func putCount(b *part.Builder, text []byte, t column.Type, inferred bool) error {
	v, negative, number, fits := readInteger(text)
	switch {
	case t.ID == column.Date32:
		return fmt.Errorf("%s is no %v, as in 2026-03-01", clipped(text), t)
	case !number:
		return fmt.Errorf("%s is no %v, as in 2026-03-01T12:00:00Z", clipped(text), t)
	case !fits || v > math.MaxInt64:
		return fmt.Errorf("%s does not fit %v", clipped(text), t)
	case inferred:
		return givenOnly(text, t)
	case negative:
		v = -v
	}
	b.Bits(v)
	return nil
}

func putClock(t column.Type) textPutter {
	unit := int64(1e9) / t.Unit.PerSecond()
	return func(b *part.Builder, text []byte) error {
		nanos, _, ok := column.ReadClock(text)
		if !ok {
			return fmt.Errorf("%s is no time of day, as in 12:30:00", clipped(text))
		}
		if nanos%unit != 0 {
			return fmt.Errorf("%s has more digits than %v counts", clipped(text), t)
		}
		b.Bits(uint64(nanos / unit))
		return nil
	}
}

func putDuration(t column.Type) textPutter {
	unit := int64(1e9) / t.Unit.PerSecond()
	return func(b *part.Builder, text []byte) error {
		if v, negative, ok, fits := readInteger(text); ok && fits && v <= math.MaxInt64 {
			if negative {
				v = -v
			}
			b.Bits(v)
			return nil
		}
		d, err := time.ParseDuration(string(text))
		if err != nil {
			return fmt.Errorf("%s is no duration: a number of %v, or as in 1h2m3s", clipped(text), t.Unit)
		}
		if int64(d)%unit != 0 {
			return fmt.Errorf("%s has more digits than %v counts", clipped(text), t)
		}
		b.Bits(uint64(int64(d) / unit))
		return nil
	}
}

func putUTF8(b *part.Builder, text []byte) error {
	if !utf8.Valid(text) {
		return notUTF8(text)
	}
	return b.Bytes(text)
}

func putExtension(e column.Extension) textPutter {
	return func(b *part.Builder, text []byte) error {
		v, err := e.Read(string(text))
		if err != nil {
			return err
		}
		return b.Bytes(v[:])
	}
}

func putHex(t column.Type) textPutter {
	var buf []byte
	return func(b *part.Builder, text []byte) error {
		var err error
		if buf, err = hex.AppendDecode(buf[:0], text); err != nil {
			return fmt.Errorf("%s is not written in hexadecimal digits", clipped(text))
		}
		if t.ID == column.Bytes && len(buf) != t.Width {
			return fmt.Errorf("%s has %d bytes, %v has %d", clipped(text), len(buf), t, t.Width)
		}
		return b.Bytes(buf)
	}
}

// putFixed reads what rows of fixed width and parameters of functions have: that is what put reads, and more (integers as 0x…).
func putFixed(t schema.Type, put textPutter) textPutter {
	codec, value := t.Codec(), make([]byte, t.Size())
	return func(b *part.Builder, text []byte) error {
		if put(b, text) == nil {
			return nil
		}
		if err := codec.PutText(value, text); err != nil {
			return err
		}
		return b.Bytes(value)
	}
}
