package column

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Moment is a date, or a date and a time of day, as it was written.
type Moment struct {
	Days   int64 // since 1970-01-01
	Nanos  int64 // of the day
	Timed  bool  // a time of day was given
	Digits int   // of the second's fraction, without zeros at the end
	Zoned  bool  // an offset was given
	Offset int64 // its seconds, east of UTC
}

// ReadMoment reads a date, as in 2026-03-01, or a moment, as in 2026-03-01T12:00:00.5Z, 2026-03-01 12:00:00+01:00 or 2026-03-01 12:00. It does not allocate.
func ReadMoment(text []byte) (m Moment, ok bool) {
	year, rest, ok1 := digits(text, 4)
	month, rest, ok2 := afterByte(rest, '-', 2)
	day, rest, ok3 := afterByte(rest, '-', 2)
	if !ok1 || !ok2 || !ok3 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) {
		return m, false
	}
	m.Days = civilDays(year, month, day)
	if len(rest) == 0 {
		return m, true
	}
	if rest[0] != 'T' && rest[0] != ' ' {
		return m, false
	}
	m.Timed = true
	if m.Nanos, m.Digits, rest, ok = readClock(rest[1:]); !ok {
		return m, false
	}
	return m, m.readOffset(rest)
}

// ReadClock reads a time of day, as in 12:30 or 12:30:01.5: its nanoseconds, and how many digits its fraction has.
func ReadClock(text []byte) (nanos int64, fraction int, ok bool) {
	nanos, fraction, rest, ok := readClock(text)
	return nanos, fraction, ok && len(rest) == 0
}

func readClock(text []byte) (nanos int64, fraction int, rest []byte, ok bool) {
	hour, rest, ok1 := digits(text, 2)
	minute, rest, ok2 := afterByte(rest, ':', 2)
	if !ok1 || !ok2 || hour > 23 || minute > 59 {
		return 0, 0, nil, false
	}
	nanos = (hour*60 + minute) * 60e9
	if len(rest) == 0 || rest[0] != ':' {
		return nanos, 0, rest, true
	}
	second, rest, ok3 := digits(rest[1:], 2)
	if !ok3 || second > 59 {
		return 0, 0, nil, false
	}
	nanos += second * 1e9
	if len(rest) < 2 || rest[0] != '.' || !isDigit(rest[1]) {
		return nanos, 0, rest, true
	}
	n, unit := 0, int64(1e8)
	for rest = rest[1:]; len(rest) > 0 && isDigit(rest[0]); rest = rest[1:] {
		if n++; n > 9 {
			return 0, 0, nil, false
		}
		if d := int64(rest[0] - '0'); d != 0 {
			nanos += d * unit
			fraction = n
		}
		unit /= 10
	}
	return nanos, fraction, rest, true
}

func (m *Moment) readOffset(rest []byte) bool {
	switch {
	case len(rest) == 0:
		return true
	case len(rest) == 1 && (rest[0] == 'Z' || rest[0] == 'z'):
		m.Zoned = true
		return true
	case rest[0] != '+' && rest[0] != '-':
		return false
	}
	hour, after, ok := digits(rest[1:], 2)
	if !ok || hour > 23 {
		return false
	}
	minute := int64(0)
	if len(after) > 0 {
		if after[0] == ':' {
			after = after[1:]
		}
		if minute, after, ok = digits(after, 2); !ok || minute > 59 || len(after) > 0 {
			return false
		}
	}
	m.Zoned, m.Offset = true, hour*3600+minute*60
	if rest[0] == '-' {
		m.Offset = -m.Offset
	}
	return true
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// digits reads exactly n of them.
func digits(text []byte, n int) (v int64, rest []byte, ok bool) {
	if len(text) < n {
		return 0, nil, false
	}
	for _, b := range text[:n] {
		if !isDigit(b) {
			return 0, nil, false
		}
		v = 10*v + int64(b-'0')
	}
	return v, text[n:], true
}

func afterByte(text []byte, b byte, n int) (v int64, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != b {
		return 0, nil, false
	}
	return digits(text[1:], n)
}

func daysIn(year, month int64) int64 {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// civilDays is the days from 1970-01-01 to a date of the Gregorian calendar: years begin in March here, so that the leap day comes last.
func civilDays(year, month, day int64) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	era := year / 400 // year is not negative: four digits
	of := year - era*400
	if year < 0 {
		era, of = -1, year+400
	}
	dayOfYear := (153*(month-3)+2)/5 + day - 1
	return era*146097 + of*365 + of/4 - of/100 + dayOfYear - 719468
}

var (
	errOffset = errors.New("it has an offset from UTC, and the column has no zone: give the type one, as in timestamp[us, UTC]")
	errFit    = errors.New("it does not fit into 64 bits of that unit")
)

// Count is what a column of type t holds for a moment: days, or units since 1970. A moment without an offset is in the column's zone, which Location found.
func (m *Moment) Count(t Type, zone *time.Location) (int64, error) {
	if t.ID == Date32 {
		if m.Timed {
			return 0, errors.New("it has a time of day, which a date would lose: give the type timestamp[us]")
		}
		return m.Days, nil
	}
	if need := int(t.Unit) * 3; m.Digits > need {
		return 0, fmt.Errorf("its seconds have %d digits behind the point, %v counts %d", m.Digits, t, need)
	}
	seconds := m.Days*86400 + m.Nanos/1e9
	switch {
	case m.Zoned && t.Zone == "":
		return 0, errOffset
	case m.Zoned:
		seconds -= m.Offset
	case zone != nil && zone != time.UTC:
		at := time.Unix(seconds, 0).UTC()
		seconds = time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), 0, zone).Unix()
	}
	per := t.Unit.PerSecond()
	if limit := math.MaxInt64/per - 1; seconds > limit || seconds < -limit {
		return 0, errFit
	}
	return seconds*per + m.Nanos%1e9/(1e9/per), nil
}
