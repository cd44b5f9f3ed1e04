package schema

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// ErrArgument says that a value does not fit its field.
var ErrArgument = errors.New("schema: bad value")

// ValueError is a text that is no value of a type.
type ValueError struct {
	Type Type
	Text string // cut short if it is long
	Why  string // "" if it is simply not of that form
}

func (e *ValueError) Error() string {
	article := "a"
	if e.Type.IsSigned() || e.Type.IsFloat() {
		article = "an"
	}
	msg := fmt.Sprintf("%q is not %s %s", e.Text, article, e.Type)
	if e.Why != "" {
		msg += ": " + e.Why
	}
	return msg
}

// Unwrap makes errors.Is(err, ErrArgument) hold.
func (e *ValueError) Unwrap() error { return ErrArgument }

func badValue(t Type, text []byte, why string) error {
	return &ValueError{Type: t, Text: clip(string(text)), Why: why}
}

// Codec reads and writes values of one type: Type.Codec looks the type up
// once, for many values. The zero Codec is of no type and refuses all.
type Codec struct {
	typ  Type
	code uint32
	size uint32
}

// Codec is the type's codec; that of no type if t is none.
func (t Type) Codec() Codec {
	i, _ := t.info()
	return Codec{typ: t, code: i.code, size: i.size}
}

// Type is the codec's type.
func (c Codec) Type() Type { return c.typ }

// Size is Type.Size.
func (c Codec) Size() int { return int(c.size) }

// IsStr reports whether the type is Str.
func (c Codec) IsStr() bool { return c.code == codeStr }

func (c Codec) signed() bool  { return c.code >= codeI8 && c.code <= codeI64 }
func (c Codec) integer() bool { return c.code >= codeI8 && c.code <= codeU64 }
func (c Codec) float() bool   { return c.code == codeF32 || c.code == codeF64 }

// PutText parses text as a value of a fixed-size type into dst, which must be
// Size() bytes. Integers are decimal or 0x…, floats what strconv reads, bools
// true/false/1/0, bytesN 2N hex digits. Str and Column have no value of their
// own and are refused.
func (c Codec) PutText(dst, text []byte) error {
	t := c.typ
	switch c.code {
	case codeI8, codeI16, codeI32, codeI64:
		v, err := c.parseSigned(text)
		if err != nil {
			return err
		}
		putUint(dst, uint64(v))
	case codeU8, codeU16, codeU32, codeU64:
		v, err := c.parseUnsigned(text)
		if err != nil {
			return err
		}
		putUint(dst, v)
	case codeF32, codeF64:
		v, err := strconv.ParseFloat(string(text), 8*int(c.size))
		if errors.Is(err, strconv.ErrRange) {
			return badValue(t, text, "out of range")
		} else if err != nil {
			return badValue(t, text, "")
		}
		if c.code == codeF32 {
			binary.LittleEndian.PutUint32(dst, math.Float32bits(float32(v)))
		} else {
			binary.LittleEndian.PutUint64(dst, math.Float64bits(v))
		}
	case codeBool:
		switch string(text) {
		case "true", "1", "True", "TRUE":
			dst[0] = 1
		case "false", "0", "False", "FALSE":
			dst[0] = 0
		default:
			return badValue(t, text, "write true or false")
		}
	case codeStr, codeColumn:
		return badValue(t, text, "it has no value of a fixed size")
	case 0:
		return fmt.Errorf("%w: %q is not a type", ErrArgument, clip(string(t)))
	default:
		n := int(c.size)
		if len(text) != 2*n {
			return badValue(t, text, fmt.Sprintf("write %d hex digits", 2*n))
		}
		if _, err := hex.Decode(dst[:n], text); err != nil {
			return badValue(t, text, fmt.Sprintf("write %d hex digits", 2*n))
		}
	}
	return nil
}

// PutText is Codec.PutText, for one value.
func (t Type) PutText(dst, text []byte) error { return t.Codec().PutText(dst, text) }

// AppendText is Codec.AppendText, for one value.
func (t Type) AppendText(dst, src []byte) []byte { return t.Codec().AppendText(dst, src) }

// putUint stores v's low bytes, as many as dst has.
func putUint(dst []byte, v uint64) {
	switch len(dst) {
	case 1:
		dst[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(dst, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(dst, uint32(v))
	case 8:
		binary.LittleEndian.PutUint64(dst, v)
	}
}

// getUint reads an unsigned integer of 1, 2, 4 or 8 bytes.
func getUint(src []byte) uint64 {
	switch len(src) {
	case 1:
		return uint64(src[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(src))
	case 4:
		return uint64(binary.LittleEndian.Uint32(src))
	default:
		return binary.LittleEndian.Uint64(src)
	}
}

// getInt reads a signed integer of 1, 2, 4 or 8 bytes.
func getInt(src []byte) int64 {
	shift := 64 - 8*len(src)
	return int64(getUint(src)<<shift) >> shift
}

// magnitude parses digits, decimal or 0x…; over says that 64 bits do not hold them.
func magnitude(text []byte) (v uint64, ok, over bool) {
	if len(text) > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X') {
		v, err := strconv.ParseUint(string(text[2:]), 16, 64)
		return v, err == nil, errors.Is(err, strconv.ErrRange)
	}
	if len(text) == 0 {
		return 0, false, false
	}
	for _, c := range text {
		d := uint64(c - '0')
		if d > 9 {
			return 0, false, false
		}
		over = over || v > math.MaxUint64/10 || v == math.MaxUint64/10 && d > math.MaxUint64%10
		v = v*10 + d
	}
	return v, !over, over
}

func (c Codec) parseUnsigned(text []byte) (uint64, error) {
	limit := uint64(math.MaxUint64) >> (64 - 8*c.size)
	v, ok, over := magnitude(text)
	if over || ok && v > limit {
		return 0, badValue(c.typ, text, fmt.Sprintf("out of range, the greatest is %d", limit))
	}
	if !ok {
		why := ""
		if len(text) > 1 && text[0] == '-' {
			if _, ok, over := magnitude(text[1:]); ok || over {
				why = "it cannot be negative"
			}
		}
		return 0, badValue(c.typ, text, why)
	}
	return v, nil
}

func (c Codec) parseSigned(text []byte) (int64, error) {
	digits, negative := text, false
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		digits, negative = text[1:], text[0] == '-'
	}
	limit := uint64(1) << (8*c.size - 1)
	v, ok, over := magnitude(digits)
	if over || ok && (v > limit || v == limit && !negative) {
		return 0, badValue(c.typ, text, fmt.Sprintf("out of range, it goes from -%d to %d", limit, limit-1))
	}
	if !ok {
		return 0, badValue(c.typ, text, "")
	}
	if negative {
		return -int64(v), nil
	}
	return int64(v), nil
}

// AppendText appends the text of a value of a fixed-size type: what PutText
// reads back. Floats have as many digits as they need.
func (c Codec) AppendText(dst, src []byte) []byte {
	switch c.code {
	case codeI8, codeI16, codeI32, codeI64:
		return strconv.AppendInt(dst, getInt(src), 10)
	case codeU8, codeU16, codeU32, codeU64:
		return strconv.AppendUint(dst, getUint(src), 10)
	case codeF32:
		return strconv.AppendFloat(dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(src))), 'g', -1, 32)
	case codeF64:
		return strconv.AppendFloat(dst, math.Float64frombits(binary.LittleEndian.Uint64(src)), 'g', -1, 64)
	case codeBool:
		return strconv.AppendBool(dst, src[0] != 0)
	default:
		return hex.AppendEncode(dst, src)
	}
}
