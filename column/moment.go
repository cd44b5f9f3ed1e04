package column

import (
	"encoding/binary"
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
	if len(text) < len(time.DateOnly) {
		return m, false
	}
	two, ok1 := dateForm.read(text)
	year, month := 100*two.at(0)+two.at(2), two.at(5)
	day, rest, ok2 := digits(text[8:], 2)
	if !ok1 || !ok2 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) {
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
	if len(text) <= len("15:04") || text[len("15:04")] != ':' {
		hour, rest, ok1 := digits(text, 2)
		minute, rest, ok2 := afterByte(rest, ':', 2)
		return (hour*60 + minute) * 60e9, 0, rest, ok1 && ok2 && hour <= 23 && minute <= 59
	}
	if len(text) < len(time.TimeOnly) {
		return 0, 0, nil, false
	}
	two, ok := clockForm.read(text)
	hour, minute, second := two.at(0), two.at(3), two.at(6)
	if !ok || hour > 23 || minute > 59 || second > 59 {
		return 0, 0, nil, false
	}
	nanos, rest = ((hour*60+minute)*60+second)*1e9, text[len(time.TimeOnly):]
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

// form is eight bytes of which some are digits.
type form struct{ text, spare uint64 } // spare is what can be added to a digit, or to another byte's difference from text, without a carry into the highest bit

var (
	dateForm  = formOf("0000-00-")
	clockForm = formOf("00:00:00")
)

func formOf(text string) (f form) {
	f.text = binary.LittleEndian.Uint64([]byte(text))
	for i := range 8 {
		spare := uint64(0x7f)
		if isDigit(text[i]) {
			spare -= 9
		}
		f.spare |= spare << (8 * i)
	}
	return f
}

// twos are at each byte the number that the digit there and the next one make.
type twos uint64

func (t twos) at(i int) int64 { return int64(t >> (8 * i) & 0xff) }

// read reads eight bytes of that form at once.
func (f form) read(text []byte) (t twos, ok bool) {
	d := binary.LittleEndian.Uint64(text) ^ f.text
	return twos(10*d + d>>8), (d|(d+f.spare))&0x8080808080808080 == 0
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
	y := uint64(year + 400) // no year is below 0, so this one is not either
	return int64(365*y+y/4-y/100+y/400) + (153*(month-3)+2)/5 + day - 1 - 146097 - 719468
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
		var err error
		if seconds, err = InZone(seconds, zone); err != nil {
			return 0, err
		}
	}
	unit := &counts[t.Unit]
	if seconds > unit.most || seconds < -unit.most {
		return 0, errFit
	}
	return seconds*unit.per + m.Nanos%1e9/unit.nanos, nil
}

// InZone is the moment, in seconds since 1970, at which clocks of a zone show what those of UTC show at wall: an error if they never do, or twice.
func InZone(wall int64, zone *time.Location) (int64, error) {
	at := time.Unix(wall, 0).UTC()
	t := time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), 0, zone)
	seconds, offset := t.Unix(), offsetOf(t)
	if seconds+offset != wall {
		return 0, fmt.Errorf("clocks of %v were put forward past it, so it does not exist there: write it with an offset, as in +01:00", zone)
	}
	for _, days := range [...]int{-1, 1} {
		other := offsetOf(t.Add(time.Duration(days) * 24 * time.Hour))
		if other != offset && offsetOf(time.Unix(wall-other, 0).In(zone)) == other {
			return 0, fmt.Errorf("clocks of %v were put back, so it exists twice there: write it with an offset, as in +01:00", zone)
		}
	}
	return seconds, nil
}

// offsetOf is how many seconds clocks are ahead of UTC.
func offsetOf(t time.Time) int64 {
	_, offset := t.Zone()
	return int64(offset)
}

// counts are, by Unit, how many a second has, how many nanoseconds one has, and the most seconds that fit into 64 bits.
var counts = [...]struct{ per, nanos, most int64 }{
	Second:      {1, 1e9, math.MaxInt64 - 1},
	Millisecond: {1e3, 1e6, math.MaxInt64/1000 - 1},
	Microsecond: {1e6, 1e3, math.MaxInt64/1_000_000 - 1},
	Nanosecond:  {1e9, 1, math.MaxInt64/1_000_000_000 - 1},
}
