package column

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrType says that a type's text is not one; the message says why.
var ErrType = errors.New("column: bad type")

// ID is a type without its parameters.
type ID uint8

// The types that columns have.
const (
	Invalid ID = iota
	I8
	I16
	I32
	I64
	U8
	U16
	U32
	U64
	F32
	F64
	Bool
	Date32
	Time32
	Time64
	Timestamp
	Duration
	Decimal128
	UTF8
	Binary
	Bytes // of a fixed number
	List
	Struct
)

var ids = [...]string{Invalid: "invalid", I8: "i8", I16: "i16", I32: "i32", I64: "i64", U8: "u8", U16: "u16", U32: "u32", U64: "u64",
	F32: "f32", F64: "f64", Bool: "bool", Date32: "date32", Time32: "time32", Time64: "time64", Timestamp: "timestamp",
	Duration: "duration", Decimal128: "decimal128", UTF8: "utf8", Binary: "binary", Bytes: "bytes", List: "list", Struct: "struct"}

func (id ID) String() string {
	if int(id) < len(ids) {
		return ids[id]
	}
	return fmt.Sprintf("ID(%d)", uint8(id))
}

// Unit is what a time, a timestamp or a duration counts.
type Unit uint8

// Units.
const (
	Second Unit = iota
	Millisecond
	Microsecond
	Nanosecond
)

var units = []string{Second: "s", Millisecond: "ms", Microsecond: "us", Nanosecond: "ns"}

func (u Unit) String() string { return units[u&3] }

// PerSecond is how many there are in a second.
func (u Unit) PerSecond() int64 { return [...]int64{1, 1e3, 1e6, 1e9}[u&3] }

const (
	// MaxPrecision is the most digits of a decimal128.
	MaxPrecision = 38
	// MaxWidth bounds the bytes of a value of fixed width.
	MaxWidth = 65535
	// MaxZoneBytes bounds the name of a time zone.
	MaxZoneBytes = 64
)

// Type is what a column's values are. The zero Type is invalid; types are comparable.
type Type struct {
	ID    ID
	Unit  Unit   // of Time32, Time64, Timestamp and Duration
	Zone  string // of Timestamp: "" is local time, of no zone
	Width int    // of Bytes
	// Extension is what the values of Bytes mean, if they have 16.
	Extension Extension
	// Precision and Scale are those of Decimal128.
	Precision, Scale int
	// Of is the text of what a List has, or of a Struct's fields as Schema.List writes them: so types stay comparable.
	Of string
}

// String is the type's text form, which Parse reads.
func (t Type) String() string {
	switch t.ID {
	case Time32, Time64, Duration:
		return fmt.Sprintf("%v[%v]", t.ID, t.Unit)
	case Timestamp:
		if t.Zone != "" {
			return fmt.Sprintf("timestamp[%v, %s]", t.Unit, t.Zone)
		}
		return fmt.Sprintf("timestamp[%v]", t.Unit)
	case Decimal128:
		return fmt.Sprintf("decimal128(%d, %d)", t.Precision, t.Scale)
	case Bytes:
		if t.Extension != NoExtension {
			return t.Extension.String()
		}
		return fmt.Sprintf("bytes%d", t.Width)
	case List, Struct:
		return t.text()
	}
	return t.ID.String()
}

// MarshalText is the text form.
func (t Type) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads it.
func (t *Type) UnmarshalText(text []byte) (err error) {
	*t, err = Parse(string(text))
	return err
}

// Parse reads a type's text form.
func Parse(text string) (Type, error) { return parse(text, 0) }

// parse reads a type that is so deep within others.
func parse(text string, depth int) (Type, error) {
	if t, nested, err := parseNested(text, depth); nested {
		return t, err
	}
	if t, ok := extended(text); ok {
		return t, nil
	}
	name, inner, bracket := text, "", byte(0)
	if i := strings.IndexAny(text, "[("); i >= 0 {
		closing := map[byte]string{'[': "]", '(': ")"}[text[i]]
		if !strings.HasSuffix(text, closing) {
			return Type{}, fmt.Errorf("%w %.80q: %q is not closed", ErrType, text, text[i])
		}
		name, inner, bracket = text[:i], text[i+1:len(text)-1], text[i]
	}
	if digits, ok := strings.CutPrefix(name, "bytes"); ok && bracket == 0 {
		width, err := strconv.Atoi(digits)
		if err != nil || width < 1 || width > MaxWidth || strconv.Itoa(width) != digits {
			return Type{}, fmt.Errorf("%w %.80q: bytesN takes N from 1 to %d", ErrType, text, MaxWidth)
		}
		return Type{ID: Bytes, Width: width}, nil
	}
	id := ID(max(slices.Index(ids[:Bytes], name), 0))
	if id == Invalid {
		return Type{}, fmt.Errorf("%w: there is no type %.80q; there are i8 to i64, u8 to u64, f32, f64, bool, date32, time32[UNIT], time64[UNIT], timestamp[UNIT], timestamp[UNIT, ZONE], duration[UNIT], decimal128(DIGITS, SCALE), utf8, binary, bytesN, uuid, ip, list<TYPE> and struct<NAME:TYPE, …>", ErrType, text)
	}
	t := Type{ID: id}
	if err := t.parameters(bracket, inner); err != nil {
		return Type{}, fmt.Errorf("%w %.80q: %w", ErrType, text, err)
	}
	return t, t.Validate()
}

// parameters reads what stands in a type's brackets.
func (t *Type) parameters(bracket byte, inner string) error {
	first, second, two := strings.Cut(inner, ",")
	first, second = strings.TrimSpace(first), strings.TrimSpace(second)
	switch t.ID {
	case Time32, Time64, Timestamp, Duration:
		u := slices.Index(units, first)
		if bracket != '[' || u < 0 || two && (t.ID != Timestamp || second == "") {
			return fmt.Errorf("want %v[UNIT], where UNIT is s, ms, us or ns", t.ID)
		}
		t.Unit, t.Zone = Unit(u), second
	case Decimal128:
		p, err1 := strconv.Atoi(first)
		s, err2 := strconv.Atoi(second)
		if bracket != '(' || err1 != nil || err2 != nil {
			return errors.New("want decimal128(DIGITS, SCALE)")
		}
		t.Precision, t.Scale = p, s
	default:
		if bracket != 0 {
			return fmt.Errorf("%v takes nothing in brackets", t.ID)
		}
	}
	return nil
}

// Validate reports parameters that a type cannot have.
func (t Type) Validate() error {
	if t.Nested() {
		return t.validateNested()
	}
	if t.ID == Invalid || t.ID > Struct {
		return fmt.Errorf("%w: %v", ErrType, t.ID)
	}
	bare := t
	switch t.ID {
	case Time32:
		if t.Unit > Millisecond {
			return fmt.Errorf("%w %v: time32 counts s or ms; use time64", ErrType, t)
		}
		bare.Unit = 0
	case Time64:
		if t.Unit < Microsecond {
			return fmt.Errorf("%w %v: time64 counts us or ns; use time32", ErrType, t)
		}
		bare.Unit = 0
	case Timestamp:
		if len(t.Zone) > MaxZoneBytes || strings.ContainsAny(t.Zone, ",[]") {
			return fmt.Errorf("%w: a zone %.80q; give its name, as in Europe/Berlin, or an offset, as in +01:00", ErrType, t.Zone)
		}
		bare.Unit, bare.Zone = 0, ""
	case Duration:
		bare.Unit = 0
	case Decimal128:
		if t.Precision < 1 || t.Precision > MaxPrecision || t.Scale < 0 || t.Scale > t.Precision {
			return fmt.Errorf("%w %v: it has 1 to %d digits, and a scale from 0 to that", ErrType, t, MaxPrecision)
		}
		bare.Precision, bare.Scale = 0, 0
	case Bytes:
		if t.Width < 1 || t.Width > MaxWidth {
			return fmt.Errorf("%w %v: N is from 1 to %d", ErrType, t, MaxWidth)
		}
		if t.Extension > IP || t.Extension != NoExtension && t.Width != ExtensionBytes {
			return fmt.Errorf("%w: %v of %d bytes, it has %d", ErrType, t.Extension, t.Width, ExtensionBytes)
		}
		bare.Width, bare.Extension = 0, NoExtension
	}
	if bare != (Type{ID: t.ID}) {
		return fmt.Errorf("%w: %v has parameters that are not its own", ErrType, t.ID)
	}
	return nil
}

// Size is the bytes of a value of fixed width; 0 for bool, whose values are bits, and for text and binary.
func (t Type) Size() int {
	switch t.ID {
	case I8, U8:
		return 1
	case I16, U16:
		return 2
	case I32, U32, F32, Date32, Time32:
		return 4
	case I64, U64, F64, Time64, Timestamp, Duration:
		return 8
	case Decimal128:
		return 16
	case Bytes:
		return t.Width
	}
	return 0
}

// Varies reports whether values differ in length.
func (t Type) Varies() bool { return t.ID == UTF8 || t.ID == Binary }

// Location is the zone of a timestamp; UTC if it has none.
func (t Type) Location() (*time.Location, error) {
	if t.Zone == "" || t.Zone == "UTC" {
		return time.UTC, nil
	}
	if at, err := time.Parse("-07:00", t.Zone); err == nil {
		return at.Location(), nil
	}
	return time.LoadLocation(t.Zone)
}
