package dataset

import (
	"fmt"
	"math"
	"strconv"

	"github.com/wherry-fabric/wherry/column"
)

// guess is what the values of a column that were seen so far can be.
type guess uint8

const (
	guessNothing guess = iota // none is there
	guessBool
	guessInt
	guessFloat
	guessDate
	guessLocal  // a timestamp without an offset
	guessMoment // one with an offset
	guessText
	guessList
	guessStruct
)

// evidence is what a column's values are inferred from.
type evidence struct {
	is       guess
	negative bool // integers below zero
	large    bool // integers above i64
	fine     bool // moments that need nanoseconds
	mixed    bool // of several kinds, which have text in common only

	torn   bool       // some values are lists or objects and others are not, or objects have too many members
	within []evidence // of a list its values, of objects their members
	names  []string
	index  map[string]int
}

// see takes one value in.
func (e *evidence) see(text []byte) {
	if e.is == guessText && e.mixed {
		return
	}
	e.join(classify(text, e))
}

// decide takes in the first value of a column that became text because it had none: an error, unless it is text.
func (e *evidence) decide(written []byte, json bool) error {
	var first evidence
	if json {
		first.seeJSON(written, nil, 0)
	} else {
		first.see(written)
	}
	if first.is != guessText {
		return fmt.Errorf("%s is its first value", clipped(written))
	}
	e.is = guessText
	return nil
}

// classify says what a value is, and notes its size.
func classify(text []byte, e *evidence) guess {
	if len(text) == 0 {
		return guessText
	}
	switch c := text[0]; {
	case c >= '0' && c <= '9' || c == '-' || c == '.':
		if v, negative, ok, fits := readInteger(text); ok {
			switch {
			case leadingZero(text): // a number would not be written so again: a post code, perhaps
				return guessText
			case !fits || negative && v > -math.MinInt64:
				return guessText
			}
			e.negative = e.negative || negative && v > 0
			e.large = e.large || v > math.MaxInt64 && !negative
			return guessInt
		}
		if m, ok := column.ReadMoment(text); ok {
			e.fine = e.fine || m.Digits > 6
			switch {
			case !m.Timed:
				return guessDate
			case m.Zoned:
				return guessMoment
			}
			return guessLocal
		}
		if looksFloat(text) && !leadingZero(text) {
			return guessFloat
		}
	case c == 't' || c == 'T' || c == 'f' || c == 'F':
		if _, ok := readBool(text); ok {
			return guessBool
		}
	case c == 'N' || c == 'I' || c == 'n' || c == 'i':
		switch string(text) {
		case "NaN", "nan", "Inf", "inf":
			return guessFloat
		}
	}
	return guessText
}

func leadingZero(text []byte) bool {
	if text[0] == '-' {
		text = text[1:]
	}
	return len(text) > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9'
}

func looksFloat(text []byte) bool {
	if _, ok := readFloat(text); ok {
		return true
	}
	if !plainFloat(text) {
		return false
	}
	_, err := strconv.ParseFloat(string(text), 64)
	return err == nil
}

// join makes e what its values and one more have in common.
func (e *evidence) join(g guess) {
	was := e.is
	switch {
	case was == guessNothing || was == g:
		e.is = g
	case g == guessNothing:
	case was == guessInt && g == guessFloat || was == guessFloat && g == guessInt:
		e.is = guessFloat
	case was == guessDate && g == guessLocal || was == guessLocal && g == guessDate:
		e.is = guessLocal
	default:
		e.torn = e.torn || was >= guessList || g >= guessList
		e.is, e.mixed = guessText, true
	}
	if e.is == guessInt && e.negative && e.large { // no type has both
		e.is, e.mixed = guessText, true
	}
}

// columnType is the narrowest type that the values have; text where there were none.
func (e *evidence) columnType() column.Type {
	unit := column.Microsecond
	if e.fine {
		unit = column.Nanosecond
	}
	switch e.is {
	case guessBool:
		return column.Type{ID: column.Bool}
	case guessInt:
		if e.large {
			return column.Type{ID: column.U64}
		}
		return column.Type{ID: column.I64}
	case guessFloat:
		return column.Type{ID: column.F64}
	case guessDate:
		return column.Type{ID: column.Date32}
	case guessLocal:
		return column.Type{ID: column.Timestamp, Unit: unit}
	case guessMoment:
		return column.Type{ID: column.Timestamp, Unit: unit, Zone: "UTC"}
	}
	if e.is == guessList || e.is == guessStruct {
		if t, ok := e.nestedType(); ok {
			return t
		}
	}
	return column.Type{ID: column.UTF8}
}

// Inference says which types a load found out by itself.
type Inference struct {
	// Rows is how many rows, from the first, were looked at.
	Rows int64 `json:"rows"`
	// Types are the columns whose types were not given, as --types takes them.
	Types string `json:"types"`

	seen map[string]*evidence // by column
}

// rowless reports that types were to be inferred and no row was there.
func (n *Inference) rowless() bool { return n.seen != nil && n.Rows == 0 }
