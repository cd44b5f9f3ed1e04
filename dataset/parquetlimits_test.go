package dataset

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/wherry-fabric/wherry/dataset/part"
)

// headed is a file of one page whose header says something else of it.
func headed(t *testing.T, whole []byte, change func(h *format.PageHeader)) Input {
	t.Helper()
	file, err := parquet.OpenFile(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	var protocol thrift.CompactProtocol
	m := &file.Metadata().RowGroups[0].Columns[0].MetaData
	first := firstPage(m)
	in := bytes.NewReader(whole[first : first+m.TotalCompressedSize])
	var h format.PageHeader
	if err := thrift.NewDecoder(protocol.NewReader(in)).Decode(&h); err != nil {
		t.Fatal(err)
	}
	body := whole[first+m.TotalCompressedSize-int64(in.Len()):][:h.CompressedPageSize]
	change(&h)
	head, err := thrift.Marshal(&protocol, &h)
	if err != nil {
		t.Fatal(err)
	}
	out := append(append([]byte(parquetMagic), head...), body...)
	m.DataPageOffset, m.TotalCompressedSize = int64(len(parquetMagic)), int64(len(out)-len(parquetMagic))
	footer, err := thrift.Marshal(&protocol, file.Metadata())
	if err != nil {
		t.Fatal(err)
	}
	n := len(footer)
	out = append(append(out, footer...), byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	return NewText("second.parquet", append(out, parquetMagic...))
}

// One value that is too large is not called too many rows.
func TestParquetLargeValue(t *testing.T) {
	o := Options{Format: Parquet}
	if err := o.prepare(); err != nil {
		t.Fatal(err)
	}
	o.Progress = func(Phase, int64, int64) {}
	for want, large := range map[string]func(b *part.Builder) error{
		`x.parquet: row group 0, column "b": row 1 of the file: part: too large: a value of 129 MiB, at most 128 MiB are loaded: split it into several, or leave its column out`: func(b *part.Builder) error {
			return b.Bytes(make([]byte, part.MaxTextBytes+1))
		},
	} {
		r, err := parquetFormat{&o}.start(parquetInput(t, []wide{{A: "x"}, {A: "y"}}), PhaseFill)
		if err != nil {
			t.Fatal(err)
		}
		put := r.shapes[1].put
		r.shapes[1].put = func(b *part.Builder, v parquet.Value) error {
			if b.Rows() == 1 {
				return large(b)
			}
			return put(b, v)
		}
		if _, err := r.Next(t.Context()); err == nil || !strings.Contains(failed(NewText("x.parquet", nil), err).Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		r.Close()
	}
}

// A page that is too large, or says that it has less than nothing, is refused with the file's name, of several files too; what is damaged is called so.
func TestParquetPageSizes(t *testing.T) {
	type row struct {
		A int64 `parquet:"a"`
	}
	good := parquetInput(t, []row{{1}, {2}})
	whole, err := os.ReadFile(good.(*File).name)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(h *format.PageHeader)
		kind   error
		want   []string
	}{
		"large":         {func(h *format.PageHeader) { h.UncompressedPageSize = 1200 << 20 }, ErrTooLarge, []string{`second.parquet: row group 0, column "a": `, "page 0 has 1200 MiB, at most 1024 MiB are read: write the file again with smaller pages"}},
		"below nothing": {func(h *format.PageHeader) { h.UncompressedPageSize = -7 }, ErrInput, []string{`second.parquet: row group 0, column "a": page 0: its header says that it has -7 bytes: it is damaged: copy or write the file again`}},
		"packed":        {func(h *format.PageHeader) { h.CompressedPageSize = -7 }, ErrInput, []string{`second.parquet: row group 0, column "a": page 0: its header says that it has -7 bytes: it is damaged: copy or write the file again`}},
	} {
		_, err := loaded(t, Options{Format: Parquet}, good, headed(t, whole, c.change))
		for _, want := range c.want {
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "second.parquet") != 1 || strings.Count(err.Error(), "copy or write") > 1 {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}
