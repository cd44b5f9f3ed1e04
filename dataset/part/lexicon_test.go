package part

import (
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/column"
)

// TestLexicon: a word keeps its number, and there are as many as two bytes count.
func TestLexicon(t *testing.T) {
	x := newLexicon()
	for range 2 {
		for i := range MaxDictionary {
			if n, ok := x.number([]byte(strconv.Itoa(i))); !ok || int(n) != i {
				t.Fatalf("word %d has number %d, %v", i, n, ok)
			}
		}
	}
	if n, ok := x.number([]byte("one more")); ok {
		t.Fatalf("it has number %d", n)
	}
	words := x.array()
	defer words.Release()
	for _, i := range []int{0, 255, 65535} {
		if got := words.(interface{ Value(int) string }).Value(i); words.Len() != MaxDictionary || got != strconv.Itoa(i) {
			t.Errorf("word %d of %d is %q", i, words.Len(), got)
		}
	}
}

// TestWholeDictionary: a column with as many distinct values as a dictionary may have is stored by numbers, and one more makes it plain.
func TestWholeDictionary(t *testing.T) {
	for distinct, want := range map[int]arrow.Type{MaxDictionary: arrow.DICTIONARY, MaxDictionary + 1: arrow.STRING} {
		text := NewBuilder(column.Type{ID: column.UTF8}, distinct)
		for i := range distinct {
			if err := text.Bytes([]byte(strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
		b := text.Finish()
		defer b.Release()
		got := arrow.STRING
		if encoded := encode([]arrow.Array{b, b}); encoded != nil {
			got = encoded[1].DataType().ID()
			for _, row := range []int{0, 300, distinct - 1} {
				if v := encoded[1].ValueStr(row); v != b.ValueStr(row) {
					t.Errorf("row %d is %q, want %q", row, v, b.ValueStr(row))
				}
			}
		}
		if got != want {
			t.Errorf("%d distinct values: %v, want %v", distinct, got, want)
		}
	}
}
