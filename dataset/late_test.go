package dataset

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	writer "github.com/wherry-fabric/wherry/dataset/batch"
)

// A value behind the rows from which a type was inferred is taken as inference would have taken it, or refused: never as something else.
func TestLateValues(t *testing.T) {
	for _, c := range []struct{ first, later string }{
		{"1", "007"}, {"1", "+5"}, {"-1", "-05"}, {"18446744073709551615", "007"},
		{"1.5", "+1.5"}, {"1.5", "infinity"}, {"1.5", "NAN"}, {"1.5", "01.5"}, {"1.5", "true"},
		{"true", "1"}, {"true", "0"}, {"True", "t"},
		{"2020-01-01", "2020-01-01T00:00:00"}, {"2020-01-01", "20200101"}, {"2020-01-01", "2020-01-01T00:00:00Z"},
		{"2020-01-01T00:00:00", "20200101"}, {"2020-01-01T00:00:00", "5"}, {"2020-01-01T00:00:00", "2020-01-01T00:00:00Z"},
		{"2020-01-01T00:00:00Z", "5"}, {"2020-01-01T00:00:00Z", "2020-01-01T00:00:00"}, {"2020-01-01T00:00:00Z", "2020-01-01"},
	} {
		_, got, err := columnsText(t, 1, Options{Format: CSV}, text("x", "a,b\n"+c.first+",0\n"), text("y", "a,b\n"+c.first+",0\n"+c.later+",0\n"))
		if err == nil || !strings.Contains(err.Error(), "y: line 3: column a: ") || !strings.Contains(err.Error(), "--types '") {
			t.Errorf("%s, then %s: %q, %v", c.first, c.later, got, err)
		}
		if c.later == "NAN" || c.later == "t" {
			continue
		}
		// What was inferred is taken in full where it is given.
		p, _, err := columnsText(t, 1, Options{Format: CSV}, text("x", "a,b\n"+c.first+",0\n"))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := columnsText(t, 1, Options{Format: CSV, ColumnTypes: p.Columns}, text("x", "a,b\n"+c.later+",0\n")); strings.Contains(fmt.Sprint(err), errForm.Error()) {
			t.Errorf("%s as %s: %v", c.later, p.Columns.List(), err)
		}
	}
}

// The same for JSON, where a string is something else than a number, deep within others too.
func TestLateJSON(t *testing.T) {
	for _, c := range []struct{ first, later, says string }{
		{`5`, `"007"`, "is a string"}, {`5`, `"5"`, "is a string"}, {`1.5`, `"1.5"`, "is a string"}, {`true`, `"true"`, "is a string"},
		{`"x"`, `5`, "is not a string"}, {`"x"`, `true`, "is not a string"}, {`"x"`, `[1]`, "is a list"}, {`"x"`, `{"b":1}`, "is an object"},
		{`"2020-01-01"`, `5`, "is not a string"}, {`"2020-01-01"`, `"20200101"`, "no date32"}, {`"2020-01-01T00:00:00"`, `"5"`, "is taken only"},
		{`[1]`, `["1"]`, "is a string"}, {`["x"]`, `[1]`, "is not a string"}, {`[[true]]`, `[[1]]`, "is taken only"}, {`[]`, `[1]`, "first value"},
		{`{"b":1}`, `{"b":"1"}`, "is a string"}, {`{"b":{"c":"x"}}`, `{"b":{"c":7}}`, "is not a string"}, {`{}`, `{"b":1}`, "is taken only"}, {`{"b":null}`, `{"b":1}`, "first value"},
		{`5`, `1e400`, "is no i64"}, {`[1]`, `5`, "no list"}, {`5`, `[1]`, "a list"},
	} {
		_, got, err := columnsText(t, 1, Options{Format: NDJSON}, text("x", `{"a":`+c.first+"}\n"), text("y", `{"a":`+c.first+"}\n"+`{"a":`+c.later+"}\n"))
		if err == nil || !strings.Contains(err.Error(), "y: line 2: column a: ") || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "--types '") {
			t.Errorf("%s, then %s: %q, %v", c.first, c.later, got, err)
		}
	}
}

// Random columns: two files, of which only the first is sampled, give what one file with the rows of both gives, or an error.
func TestLateLikeEarly(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 29))
	plain := []string{"0", "1", "-7", "-0", "007", "+5", "18446744073709551615", "9223372036854775808", "1.5", "1.50", "+1.5", "01.5", ".5", "1e3", "1e400", "NaN", "nan", "inf", "Infinity", "-inf",
		"true", "FALSE", "t", "2020-01-01", "20200101", "2020-01-01T00:00:00", "2020-01-01 10:00:00.5", "2020-01-01T00:00:00Z", "2020-01-01T10:00:00+01:00", "2020-01-01T00:00:00.123456789Z", "x", "1_000", "0x10"}
	var bare []string
	for _, s := range []string{"0", "1", "-7", "18446744073709551615", "9223372036854775808", "1.5", "1.50", "1e3", "1e400", "true", "false", "null"} {
		bare = append(bare, s, "["+s+"]", `{"b":`+s+`}`)
	}
	for _, s := range plain {
		bare = append(bare, `"`+s+`"`, `["`+s+`"]`)
	}
	bare = append(bare, "[]", "{}", `{"b":{"c":1}}`, `{"b":{"c":"x"}}`, `{"c":1}`)
	for _, f := range []struct {
		format Format
		out    writer.Format
		values []string
		head   string
		row    string
	}{{CSV, writer.CSV, plain, "a,b\n", "%s,0\n"}, {NDJSON, writer.NDJSON, bare, "", "{\"a\":%s}\n"}} {
		same, refused := 0, 0
		for range 1000 {
			var rows []string
			like := r.IntN(len(f.values))
			for range 2 + r.IntN(3) {
				v := like
				if r.IntN(2) == 0 {
					v = r.IntN(len(f.values))
				}
				rows = append(rows, fmt.Sprintf(f.row, f.values[v]))
			}
			at := 1 + r.IntN(len(rows)-1)
			first, later := strings.Join(rows[:at], ""), strings.Join(rows[at:], "")
			_, want, wantErr := loadedAs(t, f.out, 1, Options{Format: f.format}, text("x", f.head+first+later))
			p, got, err := loadedAs(t, f.out, 1, Options{Format: f.format}, text("x", f.head+first), text("y", f.head+later))
			switch {
			case err != nil:
				refused++
			case wantErr != nil:
				t.Errorf("%q, then %q: %q, where one file is refused: %v", first, later, got, wantErr)
			case got != want:
				t.Errorf("%q, then %q: as %s\n%s\nwant\n%s", first, later, p.Columns.List(), got, want)
			default:
				same++
			}
		}
		if same < 100 || refused < 100 {
			t.Errorf("%s: %d loads gave the same, %d were refused", f.format, same, refused)
		}
	}
}

// A file without rows says nothing about types: the next one does, if it has the same columns.
func TestRowlessFirst(t *testing.T) {
	p, got, err := columnsText(t, 1, Options{Format: CSV}, text("x", "a,b\n"), text("y", "b,a\n"), text("z", "b,a\n2.5,1\n"), text("w", "a,b\n3,4\n"))
	if err != nil || p.Inferred.Types != "b:f64,a:i64" || p.Inferred.Rows != 1 || got != "b,a\n2.5,1\n4,3\n" {
		t.Errorf("%+v, %q, %v", p, got, err)
	} else if len(p.Files) != 4 || p.Files[0].Sampled != 0 || p.Files[2].Sampled != 1 || p.Files[3].Rows != 1 {
		t.Errorf("%+v", p.Files)
	}
	if _, _, err := columnsText(t, 1, Options{Format: CSV}, text("x", "a,b\n"), text("y", "a,c\n1,2\n")); err == nil || !strings.Contains(err.Error(), `x has a column "b"`) {
		t.Error(err)
	}
	if p, got, err := columnsText(t, 1, Options{Format: CSV}, text("x", "a,b\n"), text("y", "a,b\n")); err != nil || got != "a,b\n" || p.Columns.List() != "a:utf8,b:utf8" {
		t.Errorf("%+v, %q, %v", p, got, err)
	}
}

// Local times in a zone are taken where they exist once.
func TestLocalTimes(t *testing.T) {
	for _, c := range []struct{ zone, at, want string }{
		{"Europe/Berlin", "2026-03-29 01:59:59", "2026-03-29T01:59:59+01:00"}, {"Europe/Berlin", "2026-03-29 02:00", "does not exist"}, {"Europe/Berlin", "2026-03-29 02:59:59", "does not exist"},
		{"Europe/Berlin", "2026-03-29 03:00", "2026-03-29T03:00:00+02:00"}, {"Europe/Berlin", "2026-10-25 01:59:59", "2026-10-25T01:59:59+02:00"}, {"Europe/Berlin", "2026-10-25 02:00", "exists twice"},
		{"Europe/Berlin", "2026-10-25 02:59:59", "exists twice"}, {"Europe/Berlin", "2026-10-25 03:00", "2026-10-25T03:00:00+01:00"}, {"Europe/Berlin", "2026-10-25T02:30:00+01:00", "2026-10-25T02:30:00+01:00"},
		{"Europe/Berlin", "1800-01-01", "1800-01-01T00:00:00+00:53"}, {"America/Sao_Paulo", "2018-11-04", "does not exist"}, {"Pacific/Apia", "2011-12-30 12:00", "does not exist"}, {"Asia/Tokyo", "2026-03-29 02:30", "2026-03-29T02:30:00+09:00"},
		{"America/New_York", "2199-11-03 01:30", "exists twice"}, {"UTC", "2026-03-29 02:30", "2026-03-29T02:30:00Z"},
	} {
		_, got, err := columnsText(t, 1, Options{Format: CSV, ColumnTypes: types(t, "a:timestamp[us, "+c.zone+"]")}, text("x", "a,b\n"+c.at+",1\n"))
		if strings.HasPrefix(c.want, "2") || strings.HasPrefix(c.want, "1") {
			if err != nil || !strings.HasPrefix(got, "a,b\n"+c.want) {
				t.Errorf("%s in %s: %q, %v", c.at, c.zone, got, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), "x: line 2: column a: ") || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.zone) {
			t.Errorf("%s in %s: %q, %v, want %s", c.at, c.zone, got, err, c.want)
		}
	}
}

// Text that is written otherwise is named, with what converts it.
func TestStrangeText(t *testing.T) {
	for data, want := range map[string]string{
		"\x1f\x8b\x08\x00": "x: it is compressed by gzip: give its name the ending .gz", "\x28\xb5\x2f\xfd,": "zstd: give its name the ending .zst", "BZh91AY&SY": "bzip2: decompress", "\xfd7zXZ\x00": "xz: decompress", "PK\x03\x04,": "zip: decompress",
		"\xff\xfea\x00\n\x00": "x: it is UTF-16: convert it (iconv", "\xfe\xff\x00a\x00\n": "x: it is UTF-16", "a,b\r1,2\r3,4\r": "x: its lines end with a carriage return alone",
	} {
		for _, format := range []Format{CSV, NDJSON} {
			if _, _, err := columnsText(t, 1, Options{Format: format}, text("x", data)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s of %q: %v, want %q", format, data, err, want)
			}
		}
	}
	for _, data := range []string{"{\"a\":1}\r{\"a\":\"x\"}\r", " {\"a\":{}} \r\r {\"a\":{}}"} { // carriage returns apart from text are JSON's
		if _, _, err := columnsText(t, 1, Options{Format: NDJSON}, text("x", data)); err == nil || !strings.Contains(err.Error(), "x: its lines end with a carriage return alone: convert them (tr") {
			t.Errorf("%q: %v", data, err)
		}
	}
	if _, got, err := columnsText(t, 1, Options{Format: NDJSON}, text("x", "{\r\"a\":\r1}\r")); err != nil || got != "a\n1\n" {
		t.Errorf("one object on lines of its own: %q, %v", got, err)
	}
}
