package dataset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readAll reads a text and keeps nothing of it.
func readAll(text string, o Options) (*Plan, error) {
	p, err := Scan(context.Background(), NewText("in", []byte(text)), o)
	if err == nil {
		err = p.Fill(context.Background(), Discard{})
	}
	return p, err
}

func TestLineErrors(t *testing.T) {
	s, packed := "name:str,status:u16", mustSchema(t, "name:u8,status:u16")
	tests := []struct {
		o    Options
		text string
		want string
	}{
		{Options{Format: CSV}, "x,1\ny,abc\n", `in: line 2: column status: "abc" is no u16`},
		{Options{Format: CSV}, "x,1\n\"a\nb\",70000\n", `in: line 2: column status: "70000" does not fit u16, which holds 0 to 65535; quotes make it go on to line 3`},
		{Options{Format: CSV}, "x,1\n\n\"a\nb\"\n", `in: line 3: it has 1 columns, want 2; quotes make it go on to line 4`},
		{Options{Format: CSV}, "x,1\n\ny\n", `in: line 3: it has 1 columns, want 2`},
		{Options{Format: CSV}, "name,status\nx,1\n", `in: line 1: column status: "status" is no u16; if this line has the columns' names, say so (--header)`},
		{Options{Format: CSV, Schema: packed, Packed: true}, "1,\n", `in: line 1: column status: it is missing; such fields can be loaded as zero (--empty-is-zero)`},
		{Options{Format: CSV}, "Host,HTTP status\nx,1\n", `in: line 1: column status: "HTTP status" is no u16; if this line has the columns' names, say so (--header)`},
		{Options{Format: CSV}, "host,path,status\nx,/,1\n", `in: line 1: it has 3 columns, want 2; if this line has the columns' names, say so (--header): columns that the schema does not name are then left out`},
		{Options{Format: CSV}, "x;1\n", `in: line 1: it has 1 columns, want 2; if another byte than ',' separates them, name it (--separator)`},
		{Options{Format: CSV}, "x\"y,1\n", `in: line 1: a quote (") stands inside`},
		{Options{Format: CSV}, "\"x\"y,1\n", `in: line 1: a field's closing quote`},
		{Options{Format: CSV}, "x,1\n\"x,1\ny,1\n", `in: line 2: a quoted field is not closed`},
		{Options{Format: CSV, LineBytes: 16}, "x,1\n" + strings.Repeat("y", 19) + ",1\n", `in: line 2: the line is longer than allowed (--line-bytes): it has more than 16 bytes`},
		{Options{Format: CSV, LineBytes: 16}, "x,1\n\"" + strings.Repeat("y\n", 9) + "\",1\n", `in: line 2: the line is longer than allowed (--line-bytes): a quoted field makes it more than 16 bytes, if its quote is meant to be open`},
		{Options{Format: CSV, Header: true}, "", "in is empty: not even a header"},
		{Options{Format: CSV, Header: true}, "name,stat\n", `in: its header has no column "status"; did you mean "stat"?`},
		{Options{Format: CSV, Header: true}, "name,status,name\n", `in: its header has the column "name" twice`},
		{Options{Format: NDJSON}, "{\"name\":\"x\",\"status\":1}\n[]\n", `in: line 2: it is not a JSON object`},
		{Options{Format: NDJSON}, "{\"name\":\"x\",\"status\":1", `in: line 1: it is not a JSON object`},
		{Options{Format: CSV, Schema: packed, Packed: true}, "1,70000\n", `in: line 1: column status: "70000" is not a u16: out of range, the greatest is 65535`},
		{Options{Format: CSV, Schema: packed, Packed: true}, "name,status\n", `in: line 1: column name: "name" is not a u8; if this line has the columns' names, say so (--header)`},
		{Options{Format: CSV, Schema: packed, Packed: true, Header: true}, "", "in is empty: not even a header"},
		{Options{Format: NDJSON, Schema: packed, Packed: true}, "{\"name\":1}", `in: line 1: column status: it is missing; such fields can be loaded as zero (--empty-is-zero)`},
		{Options{Format: NDJSON, Schema: packed, Packed: true}, "{\"name\":1,\"status\":null}", `column status: it is missing`},
		{Options{Format: NDJSON}, "{\"name\":\"x\",\"status\":1.5}", `column status: "1.5" is no u16`},
		{Options{Format: NDJSON}, "{\"name\":\"x\",\"status\":[1]}", `column status: it is an object or a list`},
		{Options{Format: NDJSON}, `{"name":"\ud800","status":1}`, `column name: it has an escape from \ud800 to \udfff that is half a character`},
		{Options{Format: NDJSON}, `{"name":"\ufffd\uDC00\uFFFD�","status":1}`, `column name: it has an escape`},
		{Options{Format: NDJSON}, "{\"name\":\"x\",\"status\":1,\"status\":1}", `column status: it stands twice`},
		{Options{Format: RawFile, Schema: mustSchema(t, "a:bool")}, "\x01\x00\x02", `in: record 2: column a: 2 is not a bool`},
		{Options{Format: RawFile, Schema: mustSchema(t, "a:u32")}, "\x01\x00\x02\x00\x01", `in: its last 1 bytes are no whole record of 4 bytes (a:u32)`},
		{Options{Format: RawFile, Schema: mustSchema(t, "a:u8,b:bool")}, "\x01\x00\x02", `in: its last 1 bytes are no whole record`},
	}
	for _, tt := range tests {
		if tt.o.Schema == nil {
			tt.o.Schema = mustSchema(t, s)
		}
		_, err := readAll(tt.text, tt.o)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want …%s…", tt.text, err, tt.want)
			continue
		}
		if line := (*LineError)(nil); !errors.As(err, &line) && !errors.Is(err, ErrInput) {
			t.Errorf("%q: %v is of no kind", tt.text, err)
		}
	}
}

func TestSkipBad(t *testing.T) {
	var text strings.Builder
	for i := range 100 {
		switch {
		case i%10 == 3:
			text.WriteString("x\n")
		case i%10 == 7:
			text.WriteString("\"bad\" quote,1\n")
		case i == 50:
			text.WriteString(strings.Repeat("long", 100) + ",1\n")
		default:
			fmt.Fprintf(&text, "n%d,%d\n", i, i)
		}
	}
	o := Options{Format: CSV, Schema: mustSchema(t, "name:str,status:u16"), SkipBad: -1, LineBytes: 64}
	p, b := load(t, NewText("in", []byte(text.String())), o, true)
	if p.Bad.Count != 21 || len(p.Bad.First) != MaxBadShown || p.Rows != 79 || p.Bad.First[0].Line != 4 {
		t.Errorf("%d bad, %d rows, first %v", p.Bad.Count, p.Rows, p.Bad.First)
	}
	if rows := allRows(t, p, b); rows[45][0] != "n57" && rows[78][0] != "n99" {
		t.Error(rows)
	}
	o.SkipBad = 21
	load(t, NewText("in", []byte(text.String())), o, true)
	o.SkipBad = 20
	_, err := readAll(text.String(), o)
	if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "more than 20 bad lines (--skip-bad); the first: in: line 4: ") {
		t.Error(err)
	}
	o.SkipBad = 1
	if _, err := readAll(text.String(), o); err == nil || !strings.Contains(err.Error(), "more than 1 bad line (") {
		t.Error(err)
	}
}

// TestSkipOpenQuote: a quote that nobody closes costs the line it stands on, whatever
// ends the search for its other end.
func TestSkipOpenQuote(t *testing.T) {
	rows := func(from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, "n%d,%d\r\n", i, i)
		}
		return b.String()
	}
	long := strings.Repeat("long", 1000) + ",1\n"
	tests := []struct {
		name, text string
		lineBytes  int
		bad        []int64 // numbers of the bad lines
		count      uint64
	}{
		{"until the end", rows(0, 10) + "\"open,3\n" + rows(10, 1010), 0, []int64{11}, 1010},
		{"until the limit", rows(0, 10) + "\"open,3\n" + rows(10, 1010), 64, []int64{11}, 1010},
		{"until a quoted field", rows(0, 10) + "\"open,3\n" + rows(10, 20) + "\"a \"\"name\"\"\",5\n" + rows(20, 30), 0, []int64{11}, 31},
		{"until a quoted field with a line end", rows(0, 10) + "\"open,3\n" + rows(10, 20) + "\"a\nname\",5\n" + rows(20, 30), 0, []int64{11}, 31},
		{"until a bare quote", "\"open,3\n" + rows(0, 10) + "\",x\",5\n" + rows(10, 20), 0, []int64{1}, 21},
		{"until the next one", "\"open,3\n" + rows(0, 10) + "\"open,4\n" + rows(10, 20) + "\"open,5\n" + rows(20, 30), 0, []int64{1, 12, 23}, 30},
		{"until a long line", "\"open,3\n" + rows(0, 3) + long + rows(3, 10), 64, []int64{1, 5}, 10},
		{"long line at once", "\"open,3\n" + long + rows(0, 10), 64, []int64{1, 2}, 10},
		{"in a later field", "a,1\n2,\"open\n" + rows(0, 10), 0, []int64{2}, 11},
		{"on the last line", rows(0, 10) + "\"open,3", 0, []int64{11}, 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Format: CSV, Schema: mustSchema(t, "name:str,n:u16"), SkipBad: int64(len(tt.bad)), LineBytes: tt.lineBytes}
			p, b := load(t, NewText("in", []byte(tt.text)), o, true)
			var bad []int64
			for _, e := range p.Bad.First {
				bad = append(bad, e.Line)
			}
			if diff := cmp.Diff(tt.bad, bad); diff != "" || p.Bad.Count != int64(len(tt.bad)) || p.Rows != tt.count {
				t.Errorf("%d bad, %d rows, want %d: %v, lines %s", p.Bad.Count, p.Rows, tt.count, p.Bad.First, diff)
			}
			next := 0 // every row of rows, in its order
			for _, row := range allRows(t, p, b) {
				if row[0] == fmt.Sprint("n", next) && row[1] == fmt.Sprint(next) {
					next++
				}
			}
			if want := strings.Count(tt.text, "\r"); next != want {
				t.Errorf("%d rows follow each other, want %d", next, want)
			}
		})
	}
}
