package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/column"
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

func (eofFormat) open(context.Context, Input, column.Schema) (columnar, error) {
	return eofColumns{}, nil
}

// A library's error for what is cut off within a file often has io.EOF in it; it is an error all the same.
func TestEndWithinFile(t *testing.T) {
	f := &files{format: eofFormat{}, inputs: []Input{NewText("x.parquet", nil)}}
	if _, err := f.Next(t.Context()); err == nil || err == io.EOF {
		t.Errorf("a file whose pages are damaged was taken for one that ends there: %v", err)
	}
}
