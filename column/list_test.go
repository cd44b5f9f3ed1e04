package column

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

func TestLists(t *testing.T) {
	text := `status:u16, when:timestamp[us, UTC],"a,b:c":decimal128(10, 2), user id:i64`
	s, err := ParseList(text)
	if err != nil || len(s) != 4 || s[1].Type.Zone != "UTC" || s[2].Name != "a,b:c" || s[3].Name != "user id" {
		t.Fatalf("%v, %v", s, err)
	}
	if again, err := ParseList(s.List()); err != nil || again.Differs(s) != "" {
		t.Errorf("%s: %v, %v", s.List(), again, err)
	}
	for _, bad := range []string{"status", ":u8", "a:u8,a:u8", "a:u99", `"a:u8`, "a:u8,,b:u8", "a u8"} {
		if s, err := ParseList(bad); err == nil || !errors.Is(err, ErrSchema) && !errors.Is(err, ErrType) {
			t.Errorf("%q: %v, %v", bad, s, err)
		}
	}
}

// Moments are what package time reads in the same text.
func TestMomentsAgainstTime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	typ := Type{ID: Timestamp, Unit: Nanosecond, Zone: "Europe/Berlin"}
	for range 2000 {
		at := time.Unix(r.Int64N(8e9)-4e9, r.Int64N(1e9))
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999", "2006-01-02T15:04", time.DateOnly, "2006-01-02T15:04:05-0700"} {
			text := at.In(berlin).Format(layout)
			want, err := time.ParseInLocation(layout, text, berlin)
			if err != nil {
				t.Fatal(err)
			}
			m, ok := ReadMoment([]byte(text))
			if !ok {
				t.Fatalf("%q is no moment", text)
			}
			if got, err := m.Count(typ, berlin); err != nil || got != want.UnixNano() {
				t.Fatalf("%q: %d, %v, want %d", text, got, err, want.UnixNano())
			}
		}
	}
	for year := range 10000 {
		text := time.Date(year, 2, 28, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
		m, ok := ReadMoment([]byte(text))
		if want := time.Date(year, 2, 28, 0, 0, 0, 0, time.UTC).Unix() / 86400; !ok || m.Days != want {
			t.Fatalf("%s: day %d, want %d", text, m.Days, want)
		}
	}
}

// TestMomentBytes: whatever byte stands at one place of a moment, it is read as package time reads it, or refused.
func TestMomentBytes(t *testing.T) {
	const moment = "2024-02-29T10:09:08"
	for at := range moment {
		for b := range 256 {
			text := []byte(moment)
			text[at] = byte(b)
			m, ok := ReadMoment(text)
			var want time.Time
			err := errors.New("not tried")
			for _, layout := range []string{"2006-01-02T15:04:05", time.DateTime, "2006-01-02T15:04-07"} {
				if err != nil {
					want, err = time.Parse(layout, string(text))
				}
			}
			if got := m.Days*86400e9 + m.Nanos - m.Offset*1e9; ok != (err == nil) || ok && (got != want.UnixNano() || !m.Timed) {
				t.Errorf("%q: %+v, %v, want %v, %v", text, m, ok, want, err)
			}
		}
	}
}

func TestBadMoments(t *testing.T) {
	for _, text := range []string{"", "2026", "2026-13-01", "2026-02-29", "2026-02-2", "2026-02-01T", "2026-02-01T24:00", "2026-02-01T12", "2026-02-01 12:00:60", "2026-02-01x",
		"2026-02-01T12:00:00.", "2026-02-01T12:00:00.1234567890", "2026-02-01T12:00:00+1", "2026-02-01T12:00:00+01:0", "2026-02-01T12:00Zz"} {
		if m, ok := ReadMoment([]byte(text)); ok {
			t.Errorf("%q is %+v", text, m)
		}
	}
	m, _ := ReadMoment([]byte("2026-02-01T12:00:00.125+01:00"))
	for _, typ := range []string{"timestamp[ms]", "timestamp[s, UTC]", "date32"} {
		typ, err := Parse(typ)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := m.Count(typ, time.UTC); err == nil {
			t.Errorf("%v: %d", typ, v)
		}
	}
}
