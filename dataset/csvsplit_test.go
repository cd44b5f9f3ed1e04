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

// TestSplit: records that are split in blocks are those that are split line by line, which is what happens where a reader gives a byte at a time.
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
		}
	}
}
