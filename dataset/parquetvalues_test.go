package dataset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	writer "github.com/wherry-fabric/wherry/dataset/batch"
)

// smallFiles are files of pyarrow, by name.
func smallFiles(t testing.TB, pattern string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata/parquet", pattern+".parquet"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%d files, %v", len(names), err)
	}
	out := map[string][]byte{}
	for _, name := range names {
		if out[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// rewritten is a file with other pages: change returns what a page has.
func rewritten(t testing.TB, whole []byte, change func(column string, h *format.PageHeader, body []byte) []byte) Input {
	t.Helper()
	file, err := parquet.OpenFile(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	var protocol thrift.CompactProtocol
	m, out := file.Metadata(), []byte(parquetMagic)
	for g := range m.RowGroups {
		for c := range m.RowGroups[g].Columns {
			column := &m.RowGroups[g].Columns[c].MetaData
			first, start := firstPage(column), len(out)
			in := bytes.NewReader(whole[first : first+column.TotalCompressedSize])
			for in.Len() > 0 {
				var h format.PageHeader
				if err := thrift.NewDecoder(protocol.NewReader(in)).Decode(&h); err != nil {
					t.Fatal(err)
				}
				body := make([]byte, h.CompressedPageSize)
				if _, err := io.ReadFull(in, body); err != nil {
					t.Fatal(err)
				}
				body = change(column.PathInSchema[0], &h, body)
				h.CompressedPageSize, h.UncompressedPageSize, h.CRC = int32(len(body)), int32(len(body)), 0
				if h.Type == format.DictionaryPage {
					column.DictionaryPageOffset = int64(len(out))
				} else {
					column.DataPageOffset = int64(len(out))
				}
				head, err := thrift.Marshal(&protocol, &h)
				if err != nil {
					t.Fatal(err)
				}
				out = append(append(out, head...), body...)
			}
			column.TotalCompressedSize = int64(len(out) - start)
		}
	}
	footer, err := thrift.Marshal(&protocol, m)
	if err != nil {
		t.Fatal(err)
	}
	out = binary.LittleEndian.AppendUint32(append(out, footer...), uint32(len(footer)))
	return NewText("x.parquet", append(out, parquetMagic...))
}

// stale fills the library's buffers with values that no other file of the tests has.
func stale(t *testing.T) {
	t.Helper()
	rows := make([]struct {
		N int64  `parquet:"n"`
		S string `parquet:"s"`
	}, 300)
	for i := range rows {
		rows[i].N, rows[i].S = 0x5151515151515151, "stale stale stale"
	}
	for n := 1; n <= len(rows); n *= 3 {
		if _, err := loaded(t, Options{Format: Parquet}, parquetInput(t, rows[:n])); err != nil {
			t.Fatal(err)
		}
	}
}

func tableOf(t testing.TB, in Input) (string, error) {
	_, table, err := loadedAs(t, writer.NDJSON, 1, Options{Format: Parquet}, in)
	return table, err
}

// All files of the same values are the same table.
func TestParquetSmallFiles(t *testing.T) {
	want := ""
	for name, data := range smallFiles(t, "*") {
		got, err := tableOf(t, NewText(name, data))
		if want == "" {
			want = got
		}
		if err != nil || got != want {
			t.Errorf("%s: %v, %s\nwant %s", name, err, got, want)
		}
	}
}

// A page that is cut anywhere, in any encoding, is refused with its place, unless what is cut off has no value: never has it values of another page.
func TestParquetCutPages(t *testing.T) {
	for name, data := range smallFiles(t, "none-*") {
		want, err := tableOf(t, NewText(name, data))
		if err != nil {
			t.Fatal(err)
		}
		for _, column := range []string{"ok", "i32", "i64", "f64", "text", "id", "words"} {
			for _, dictionary := range []bool{false, true} {
				for cut, there := 1, true; there; cut++ {
					there = false
					in := rewritten(t, data, func(c string, h *format.PageHeader, body []byte) []byte {
						levels := int(h.DataPageHeaderV2.V.RepetitionLevelsByteLength + h.DataPageHeaderV2.V.DefinitionLevelsByteLength)
						if c != column || (h.Type == format.DictionaryPage) != dictionary || cut > len(body)-levels {
							return body
						}
						there = true
						return body[:len(body)-cut]
					})
					if cut%16 == 1 {
						stale(t)
					}
					got, err := tableOf(t, in)
					if err == nil && got != want {
						t.Errorf("%s: %s (dictionary: %v) without its last %d bytes: %s", name, column, dictionary, cut, got)
					}
					if there && err != nil && (!strings.Contains(err.Error(), `row group 0, column "`+column+`": page `) || !strings.HasSuffix(err.Error(), ": copy or write the file again")) {
						t.Errorf("%s: %s: %v", name, column, err)
					}
				}
			}
		}
	}
}

// Numbers that point into a dictionary are as many as the page has values, and all point to one.
func TestParquetIndices(t *testing.T) {
	data := smallFiles(t, "none-2-default")["none-2-default.parquet"] // text: 12 values of a dictionary of 4, all there
	runs := func(b ...byte) []byte { return b }
	for _, tt := range []struct {
		indices []byte
		want    string // an error
	}{
		{runs(2, 24, 3), ""},
		{runs(2, 24, 3, 24, 9), ""}, // the second run is of no value
		{runs(2, 0, 9, 24, 3), ""},
		{runs(2, 5, 0, 0, 0xff, 0xff), ""},
		{runs(2, 5, 0, 0, 0xff), ""}, // old programs cut off the bits that are not used
		{runs(2, 5, 0, 0), "they end 4 early"},
		{runs(2, 22, 3), "they end 1 early"},
		{runs(2), "they end 12 early"},
		{runs(), "unexpected EOF"},
		{runs(2, 24), "they end 12 early"},
		{runs(8, 24, 4), "one points to value 4 of a dictionary of 4"},
		{runs(2, 24, 4), "one points to value 4 of a dictionary of 4"},
		{runs(3, 5, 0, 0, 0, 0, 8, 0), "one points to value"},
		{runs(32, 24, 0xff, 0xff, 0xff, 0xff), "one points to value 4294967295 of"},
		{runs(33, 24, 0, 0, 0, 0, 0), "33 bits, at most 32"},
		{slices.Concat(runs(2, 24, 3), bytes.Repeat(runs(0x80, 0x80, 0x80, 4, 1), 32)), ""}, // each of 4 Mi values
	} {
		stale(t)
		var before, after runtime.MemStats
		in := rewritten(t, data, func(c string, h *format.PageHeader, body []byte) []byte {
			if c != "text" || h.Type != format.DataPageV2 {
				return body
			}
			levels := h.DataPageHeaderV2.V.RepetitionLevelsByteLength + h.DataPageHeaderV2.V.DefinitionLevelsByteLength
			return append(body[:levels:levels], tt.indices...)
		})
		runtime.ReadMemStats(&before)
		_, err := tableOf(t, in)
		runtime.ReadMemStats(&after)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), `x.parquet: row group 0, column "text": page 1: `) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%v: %v, want …%s…", tt.indices, err, tt.want)
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 64<<20 {
			t.Errorf("%v: %d MiB were allocated", tt.indices[:3], taken>>20)
		}
	}
}

// Values that begin as the one before take more than their page: that is counted before there is memory for it.
func TestParquetPrefixBomb(t *testing.T) {
	type row struct {
		A string `parquet:"a"`
	}
	rows := make([]row, 3000)
	for i := range rows {
		rows[i].A = strings.Repeat("x", 10_000)
	}
	in := parquetInput(t, rows, parquet.NewSchema("rows", parquet.Group{"a": parquet.Encoded(parquet.String(), &parquet.DeltaByteArray)}), parquet.PageBufferSize(64<<20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := loaded(t, Options{Format: Parquet, MemoryBytes: 16 << 20}, in)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), `row group 0, column "a": page 0: `) || !strings.HasSuffix(err.Error(), "write the file again with smaller pages") {
		t.Error(err)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 8<<20 {
		t.Errorf("%d MiB were allocated", taken>>20)
	}
}

// Levels in the encoding of old programs are refused by its name; columns without levels may name any.
func TestParquetOldLevels(t *testing.T) {
	data := smallFiles(t, "none-1-plain")["none-1-plain.parquet"]
	for column, lists := range map[string]bool{"i64": false, "words": true} {
		_, err := tableOf(t, rewritten(t, data, func(c string, h *format.PageHeader, body []byte) []byte {
			if h.DataPageHeader.V.RepetitionLevelEncoding = format.BitPacked; c == "words" && !lists {
				h.DataPageHeader.V.RepetitionLevelEncoding = format.RLE
			}
			if c == column && !lists {
				h.DataPageHeader.V.DefinitionLevelEncoding = format.BitPacked
			}
			return body
		}))
		name := column
		if lists {
			name = "element"
		}
		if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), `x.parquet: row group 0, column "`+name+`": page 0: its levels are encoded as BIT_PACKED`) || !strings.HasSuffix(err.Error(), "with a newer program, such as pyarrow") {
			t.Error(err)
		}
	}
}

// A file too short for a footer is said to be cut off, whatever is to become of it.
func TestParquetShort(t *testing.T) {
	whole := []byte("PAR1\x15\x04\x15\x80\x00PAR1")
	for n := 4; n < 12; n++ {
		for _, format := range []Format{Parquet, Edges} {
			_, err := ScanFiles(t.Context(), []Input{NewText("x", whole[:n])}, Options{Format: format})
			if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "x: it is no Parquet file, or is cut off: ") || !strings.Contains(err.Error(), "bytes, the shortest has 12") {
				t.Errorf("%d bytes as %s: %v", n, format, err)
			}
		}
	}
}
