package part

import (
	"math"

	"github.com/wherry-fabric/wherry/column"
)

// Ways to store a column's text.
const (
	EncodingPlain      = "plain"
	EncodingDictionary = "dictionary"
	EncodingMixed      = "mixed" // some parts the one way, some the other
)

// Stats are what the values of a column, or of some of its rows, are like.
type Stats struct {
	Nulls    uint64 `json:"nulls"`
	Bytes    uint64 `json:"bytes"` // of values and offsets, without words of dictionaries
	Encoding string `json:"encoding,omitempty"`
	// Least and Most are the least and the greatest value as 64 bits, if Bounded: integers with their sign, floats as f64.
	Bounded bool   `json:"bounded,omitempty"`
	Least   uint64 `json:"least,omitempty"`
	Most    uint64 `json:"most,omitempty"`
	// Open: some values have no bounds, such as NaN and text, so all together have none.
	Open bool `json:"open,omitempty"`
}

// Add takes in what further values of type t are like.
func (s *Stats) Add(t column.Type, more Stats) {
	s.Nulls += more.Nulls
	s.Bytes += more.Bytes
	switch {
	case s.Encoding == "":
		s.Encoding = more.Encoding
	case more.Encoding != s.Encoding && more.Encoding != "": // "": there are no values
		s.Encoding = EncodingMixed
	}
	s.Open = s.Open || more.Open
	switch {
	case s.Open:
		s.Bounded, s.Least, s.Most = false, 0, 0
	case !more.Bounded:
	case !s.Bounded:
		s.Bounded, s.Least, s.Most = true, more.Least, more.Most
	default:
		if Less(t, more.Least, s.Least) {
			s.Least = more.Least
		}
		if Less(t, s.Most, more.Most) {
			s.Most = more.Most
		}
	}
}

// Less orders bounds of columns of type t.
func Less(t column.Type, a, b uint64) bool {
	switch t.ID {
	case column.U8, column.U16, column.U32, column.U64:
		return a < b
	case column.F32, column.F64:
		return math.Float64frombits(a) < math.Float64frombits(b)
	}
	return int64(a) < int64(b)
}
