package batch

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/wherry-fabric/wherry/column"
)

// cell writes the values of a column.
type cell struct {
	text func(b []byte, row int) []byte
	bare bool // JSON has such values without quotes
	json func(b []byte, row int) []byte
}

// appendJSON writes text as JSON has it.
func appendJSON(b []byte, text string) []byte {
	return closeJSON(append(append(b, '"'), text...), len(b)+1)
}

// closeJSON ends the JSON string whose text begins at b[at], after its quote, and escapes what JSON does not allow in it or a terminal would act on.
func closeJSON(b []byte, at int) []byte {
	for i := at; i < len(b); i++ {
		if c := b[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return append(appendEscaped(b[:i], string(b[i:])), '"')
		}
	}
	return append(b, '"')
}

func appendEscaped(b []byte, text string) []byte {
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\r':
			b = append(b, `\r`...)
		case control(r) || r == '\u2028' || r == '\u2029': // the last two end lines in JavaScript
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// control reports whether a terminal acts on r instead of showing it.
func control(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }

// Printable is text that a terminal shows as it is: control characters, and bytes that are not UTF-8, become U+FFFD.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if control(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
}

// append writes a value as JSON has it.
func (c *cell) append(b []byte, a arrow.Array, r int) []byte {
	switch {
	case a.IsNull(r):
		return append(b, "null"...)
	case c.bare:
		return c.json(b, r)
	}
	return closeJSON(c.text(append(b, '"'), r), len(b)+1)
}

// lists are JSON's in text too.
func lists(t column.Type, a *array.List) cell {
	values := a.ListValues()
	of := cellOf(t.Fields()[0].Type, values)
	return number(func(b []byte, r int) []byte {
		from, to := a.ValueOffsets(r)
		b = append(b, '[')
		for i := from; i < to; i++ {
			if i > from {
				b = append(b, ',')
			}
			b = of.append(b, values, int(i))
		}
		return append(b, ']')
	})
}

// structs are JSON's objects.
func structs(t column.Type, a *array.Struct) cell {
	fields := t.Fields()
	of := make([]cell, len(fields))
	for i, f := range fields {
		of[i] = cellOf(f.Type, a.Field(i))
	}
	return number(func(b []byte, r int) []byte {
		b = append(b, '{')
		for i, f := range fields {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendJSON(b, f.Name), ':')
			b = of[i].append(b, a.Field(i), r)
		}
		return append(b, '}')
	})
}

func number(text func([]byte, int) []byte) cell { return cell{text: text, bare: true, json: text} }

func signed[T ~int8 | ~int16 | ~int32 | ~int64](v []T) cell {
	return number(func(b []byte, r int) []byte { return strconv.AppendInt(b, int64(v[r]), 10) })
}

func unsigned[T ~uint8 | ~uint16 | ~uint32 | ~uint64](v []T) cell {
	return number(func(b []byte, r int) []byte { return strconv.AppendUint(b, uint64(v[r]), 10) })
}

func floating[T ~float32 | ~float64](v []T, bits int) cell {
	c := number(func(b []byte, r int) []byte { return strconv.AppendFloat(b, float64(v[r]), 'g', -1, bits) })
	c.json = func(b []byte, r int) []byte {
		if f := float64(v[r]); math.IsNaN(f) || math.IsInf(f, 0) { // JSON has no such numbers
			return appendJSON(b, strconv.FormatFloat(f, 'g', -1, bits))
		}
		return c.text(b, r)
	}
	return c
}

// Text is a value of a column of type t, as text formats have it.
func Text(t column.Type, a arrow.Array, row int) string { return string(cellOf(t, a).text(nil, row)) }

func text(t func(b []byte, r int) []byte) cell { return cell{text: t} }

// cellOf makes the cells of an array; t is its column's type.
func cellOf(t column.Type, a arrow.Array) cell {
	switch a := a.(type) {
	case *array.List:
		return lists(t, a)
	case *array.Struct:
		return structs(t, a)
	case *array.Int8:
		return signed(a.Int8Values())
	case *array.Int16:
		return signed(a.Int16Values())
	case *array.Int32:
		return signed(a.Int32Values())
	case *array.Int64:
		return signed(a.Int64Values())
	case *array.Uint8:
		return unsigned(a.Uint8Values())
	case *array.Uint16:
		return unsigned(a.Uint16Values())
	case *array.Uint32:
		return unsigned(a.Uint32Values())
	case *array.Uint64:
		return unsigned(a.Uint64Values())
	case *array.Float32:
		return floating(a.Float32Values(), 32)
	case *array.Float64:
		return floating(a.Float64Values(), 64)
	case *array.Boolean:
		return number(func(b []byte, r int) []byte { return strconv.AppendBool(b, a.Value(r)) })
	case *array.String:
		return text(func(b []byte, r int) []byte { return append(b, a.Value(r)...) })
	case *array.Dictionary:
		words := a.Dictionary().(*array.String)
		return text(func(b []byte, r int) []byte { return append(b, words.Value(a.GetValueIndex(r))...) })
	case *array.Binary:
		return text(func(b []byte, r int) []byte { return hex.AppendEncode(b, a.Value(r)) })
	case *array.FixedSizeBinary:
		if t.Extension != column.NoExtension {
			return text(func(b []byte, r int) []byte { return t.Extension.Append(b, a.Value(r)) })
		}
		return text(func(b []byte, r int) []byte { return hex.AppendEncode(b, a.Value(r)) })
	case *array.Date32:
		return text(func(b []byte, r int) []byte {
			return time.Unix(int64(a.Value(r))*86400, 0).UTC().AppendFormat(b, time.DateOnly)
		})
	case *array.Timestamp:
		return timestamps(t, a)
	case *array.Decimal128:
		return text(func(b []byte, r int) []byte { return append(b, a.Value(r).ToString(int32(t.Scale))...) })
	}
	return text(func(b []byte, r int) []byte { return append(b, a.ValueStr(r)...) }) // times of day, durations
}

// timestamps are written in their column's zone; those of no zone without an offset.
func timestamps(t column.Type, a *array.Timestamp) cell {
	layout := "2006-01-02T15:04:05.999999999Z07:00"
	zone, err := t.Location()
	if t.Zone == "" {
		layout = "2006-01-02T15:04:05.999999999"
	}
	if err != nil { // this machine does not know the zone
		zone = time.UTC
	}
	per := t.Unit.PerSecond()
	return text(func(b []byte, r int) []byte {
		v := int64(a.Value(r))
		s := v / per
		if v%per < 0 {
			s--
		}
		return time.Unix(s, (v-s*per)*(1e9/per)).In(zone).AppendFormat(b, layout)
	})
}
