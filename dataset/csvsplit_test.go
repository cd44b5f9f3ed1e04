package dataset

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// records is what a csvReader says of a text: records with their lines, and errors.
func records(in io.Reader, comma byte) (all []string) {
	c := newCSVReader(newLineReader("in", in, 128), comma)
	for {
		fields, err := c.record()
		if bad := (*LineError)(nil); errors.As(err, &bad) {
			all = append(all, err.Error())
			continue
		}
		if err != nil {
			return append(all, err.Error())
		}
		text := fmt.Sprintf("%d–%d:", c.first, c.lines.line)
		for i, f := range fields {
			text += fmt.Sprintf(" %q %v", f, c.inQuotesAt(i))
		}
		all = append(all, text)
	}
}

// TestSplit: records that are split in blocks are those of encoding/csv, and those that are split line by line, which is what happens where a reader
// gives a byte at a time.
func TestSplit(t *testing.T) {
	pieces := []string{"a", "bc", ",", ",", ";", "\n", "\r\n", "\n\n", "\"", "\"\"", "\"q,\n\"", "é", "\xac\xa2\x8a", "some longer text ", strings.Repeat("x", 70), "\r", "7", "\x00"}
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		var text strings.Builder
		for range r.IntN(300) {
			piece := pieces[r.IntN(len(pieces))]
			if strings.Contains(piece, `"`) && r.IntN(8) > 0 { // most records have none
				piece = "text"
			}
			text.WriteString(piece)
		}
		for _, comma := range []byte{',', ';'} {
			got, want := records(strings.NewReader(text.String()), comma), records(iotest.OneByteReader(strings.NewReader(text.String())), comma)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d: %q, separated by %q: %s", seed, text.String(), comma, diff)
			}
			sameAsEncodingCSV(t, text.String(), comma)
		}
	}
}

// TestSplitRoom: a reader keeps the room for a record's fields, though each record has a quote behind others that have none.
func TestSplitRoom(t *testing.T) {
	const rows = 200
	c := newCSVReader(newLineReader("in", strings.NewReader(strings.Repeat("1,2,3,4,5,6,7,8,\"x\"\n", rows+2)), DefaultLineBytes), ',')
	if n := testing.AllocsPerRun(rows, func() {
		if _, err := c.record(); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Errorf("%v allocations for each record", n)
	}
}

// TestManyFields: a record has a bounded number of fields, however it is read, and further ones can be read.
func TestManyFields(t *testing.T) {
	for _, first := range []string{"", `""`} {
		for _, n := range []int{maxFields, maxFields + 1} {
			text := first + strings.Repeat(",", n-1) + "\nx\n" + strings.Repeat("y", blockBytes) + "\n"
			for _, in := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
				c := newCSVReader(newLineReader("in", in, DefaultLineBytes), ',')
				fields, err := c.record()
				switch {
				case n == maxFields && (err != nil || len(fields) != n):
					t.Errorf("%d fields: %d, %v", n, len(fields), err)
				case n > maxFields && (!errors.Is(err, errFields) || err.Error() != "in: line 1: it has more than 65536 columns"):
					t.Errorf("%d fields: %d, %v", n, len(fields), err)
				}
				if fields, err = c.record(); err != nil || len(fields) != 1 || string(fields[0]) != "x" {
					t.Errorf("behind %d fields: %q, %v", n, fields, err)
				}
			}
		}
	}
}

// Where there is one column an empty line is a missing value, as it is written; empty text stands in quotes.
func TestOneColumn(t *testing.T) {
	filler := strings.Repeat("x\n\n", 100) // more than a block
	for _, c := range []struct {
		o          Options
		data, want string
	}{
		{Options{Format: CSV}, "a\n1\n\n3\n\n", ""},
		{Options{Format: CSV}, "a\n\n\n\"\"\nx\n\"y\nz\"\n\n", ""},
		{Options{Format: CSV}, "a\n" + filler, ""},
		{Options{Format: CSV}, "a\r\n1\r\n\r\n2", "a\n1\n\n2\n"},
		{Options{Format: CSV, NoHeader: true}, "1\n\n2\n", "c1\n1\n\n2\n"},
		{Options{Format: CSV, NoHeader: true}, "\n\r\n1\n\n2\n", "c1\n\n\n1\n\n2\n"},
		{Options{Format: CSV, NoHeader: true}, "\n\"\"\nx\n", "c1\n\n\"\"\nx\n"},
		{Options{Format: CSV, NoHeader: true}, "\n\n1,2\n\n3,4\n", "c1,c2\n1,2\n3,4\n"},
		{Options{Format: CSV, NoHeader: true}, "\n" + filler, "c1\n\n" + filler},
		{Options{Format: CSV, Schema: mustSchema(t, "s:str")}, "\nx\n", "s\n\nx\n"},
		{Options{Format: CSV, Schema: mustSchema(t, "s:str")}, "x\n\n\"\"\n", "s\nx\n\n\"\"\n"},
		{Options{Format: CSV}, "a,b\n1,2\n\n3,4\n\n", "a,b\n1,2\n3,4\n"},
	} {
		if c.want == "" {
			c.want = c.data
		}
		if _, got, err := columnsText(t, 2, c.o, text("x", c.data)); err != nil || got != c.want {
			t.Errorf("%q: %q, %v, want %q", c.data, got, err, c.want)
		}
	}
}
