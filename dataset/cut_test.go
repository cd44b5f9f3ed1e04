package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
)

var errCut = errors.New("the disk is gone")

// cutInput is an Input of which only so many bytes can be read.
type cutInput struct {
	Input
	data []byte
}

func (c cutInput) Open() (Stream, error) {
	r := io.MultiReader(bytes.NewReader(c.data), goneDisk{})
	return &stream{raw: r, close: func() error { return nil }}, nil
}

type goneDisk struct{}

func (goneDisk) Read([]byte) (int, error) { return 0, errCut }

// A reading that fails where rows could end is no end: the rows before it are not taken for all.
func TestReadingFails(t *testing.T) {
	for _, c := range []struct {
		format Format
		data   []byte
	}{
		{Arrow, arrowStream(t)},
		{CSV, []byte("a,b\n1,x\n2,y\n3,z\n")},
		{NDJSON, []byte("{\"a\":1}\n{\"a\":2}\n")},
	} {
		for size := range len(c.data) {
			in := cutInput{NewText("x."+string(c.format), c.data), c.data[:size]}
			if _, err := loaded(t, Options{Format: c.format}, in); err == nil {
				t.Errorf("%s: the first %d bytes of %d, and then a disk that fails, were taken for the whole", c.format, size, len(c.data))
			}
		}
	}
}

// eofColumns fails with an error that has io.EOF in it.
type eofColumns struct{ columnar }

func (eofColumns) Next(context.Context) ([]arrow.Array, error) {
	return nil, fmt.Errorf("page 3: its header is damaged: %w", io.EOF)
}
func (eofColumns) Place() (done, total int64) { return 0, 1 }
func (eofColumns) Close()                     {}

type eofFormat struct{ columnFormat }

func (eofFormat) open(context.Context, Input, Phase, column.Schema) (columnar, error) {
	return eofColumns{}, nil
}

// A library's error for what is cut off within a file often has io.EOF in it; it is an error all the same.
func TestEndWithinFile(t *testing.T) {
	f := &files{format: eofFormat{}, inputs: []Input{NewText("x.parquet", nil)}}
	if _, err := f.Next(t.Context()); err == nil || err == io.EOF {
		t.Errorf("a file whose pages are damaged was taken for one that ends there: %v", err)
	}
}

// Rows of a program are asked for before any node is: it may take longer than a node waits for a load that does nothing.
func TestChunksGatheredFirst(t *testing.T) {
	s := column.Schema{{Name: "a", Type: column.Type{ID: column.I64}}}
	left := 3
	p, err := ScanChunks(t.Context(), &Chunks{Name: "rows", Columns: s, Next: func(context.Context) ([]arrow.Array, error) {
		if left == 0 {
			return nil, io.EOF
		}
		left--
		b := part.NewBuilder(s[0].Type, 1)
		b.Bits(uint64(left))
		return []arrow.Array{b.Finish()}, nil
	}}, Options{})
	if err != nil || left != 0 {
		t.Fatalf("%d chunks are to be asked for while nodes wait, %v", left, err)
	}
	if err := p.Fill(t.Context(), Discard{}); err != nil || p.Rows != 3 {
		t.Errorf("%d rows, %v", p.Rows, err)
	}
}

// A shard has no more than it may, whatever it has grown by.
func TestCheckShard(t *testing.T) {
	part := uint64(MaxShardBytes / 4)
	if err := CheckShard([]uint64{part, part, part, part}); err != nil {
		t.Error(err)
	}
	if err := CheckShard([]uint64{part, part, part, part, 1}); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if err := CheckShard([]uint64{1 << 63, 1 << 63}); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

// Text that is not UTF-8 is no matter of its type, and a number beyond f32 is not infinite.
func TestBadValues(t *testing.T) {
	_, err := loaded(t, Options{Format: CSV}, text("x.csv", "a\nx\n\xff\n"))
	if err == nil || !strings.Contains(err.Error(), "is not UTF-8") || strings.Contains(err.Error(), "--types") {
		t.Error(err)
	}
	_, err = loaded(t, Options{Format: CSV, ColumnTypes: types(t, "a:f32")}, text("x.csv", "a\nInf\n3e38\n-1e39\n"))
	if err == nil || !strings.Contains(err.Error(), `line 4: column a: "-1e39" does not fit f32`) {
		t.Error(err)
	}
}

// A shard without rows has no encoding: it does not make that of the others a mixed one.
func TestEncodingOfFewRows(t *testing.T) {
	p, err := loaded(t, Options{Format: CSV, Spread: Spread{Elements: 3}}, NewText("in", []byte("n,text\n1,a\n")))
	if err != nil {
		t.Fatal(err)
	}
	if p.Stats[0].Encoding != part.EncodingPlain || p.Stats[1].Encoding == part.EncodingMixed {
		t.Errorf("%+v", p.Stats)
	}
}
