package dataset

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/format"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// wide is a row whose text is in the file once, in a dictionary.
type wide struct {
	A string `parquet:"a,dict"`
	B string `parquet:"b,dict"`
	C string `parquet:"c,dict"`
	D string `parquet:"d,dict"`
	E string `parquet:"e,dict"`
	F string `parquet:"f,dict"`
}

func parquetInput[T any](t *testing.T, rows []T, o ...parquet.WriterOption) Input {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := parquet.NewGenericWriter[T](f, o...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	in, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// loaded loads files as columns, and keeps them nowhere.
func loaded(t testing.TB, o Options, ins ...Input) (*Plan, error) {
	t.Helper()
	p, err := ScanFiles(t.Context(), ins, o)
	if err == nil {
		err = p.Fill(t.Context(), Discard{})
	}
	return p, err
}

// A small file can hold columns of any size; what it takes is counted while a chunk is read, not after it.
func TestParquetMemory(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	rows := make([]wide, 100)
	for i := range rows {
		rows[i] = wide{text, text, text, text, text, text}
	}
	in := parquetInput(t, rows)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := loaded(t, Options{Format: Parquet, MemoryBytes: 16 << 20}, in)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "with fewer columns, or less text in a value") {
		t.Error(err)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 256<<20 {
		t.Errorf("%d MiB were allocated of 16 that were allowed", taken>>20)
	}
}

// Values of great width take the memory of a chunk before one of them is there: it has fewer rows then.
func TestParquetWideValues(t *testing.T) {
	type row struct {
		A [30000]byte  `parquet:"a"`
		B *[30000]byte `parquet:"b,optional"`
	}
	rows := make([]row, 1500)
	rows[1499].A[7] = 9
	p, err := loaded(t, Options{Format: Parquet}, parquetInput(t, rows))
	if err != nil {
		t.Fatal(err)
	}
	if p.Rows != 1500 || len(p.Parts[0]) < 2 {
		t.Errorf("%d rows in %+v", p.Rows, p.Parts)
	}
}

// Pages of version 2 have the levels of their nulls unpacked, in front of the packed values: they are read with each codec, as those of version 1.
func TestParquetNulls(t *testing.T) {
	type row struct {
		N *int64  `parquet:"n,optional"`
		S *string `parquet:"s,optional,dict"`
	}
	rows := make([]row, 5000)
	for i := range rows {
		if n, text := int64(i)*7919, strings.Repeat("s", i%20); i%3 > 0 {
			rows[i] = row{&n, &text}
		}
	}
	for name, codec := range map[string]compress.Codec{"plain": &parquet.Uncompressed, "zstd": &parquet.Zstd, "gzip": &parquet.Gzip, "snappy": &parquet.Snappy} {
		for version := 1; version <= 2; version++ {
			for _, memory := range []int64{0, 1 << 20} { // gzip is looked at in another way where memory is short
				p, err := loaded(t, Options{Format: Parquet, MemoryBytes: memory}, parquetInput(t, rows, parquet.Compression(codec), parquet.DataPageVersion(version)))
				if err != nil || p.Rows != uint64(len(rows)) {
					t.Errorf("%s, version %d, %d bytes: %v", name, version, memory, err)
				}
			}
		}
	}
}

// What a page unpacks to is known before it is unpacked.
func TestParquetBombs(t *testing.T) {
	type row struct {
		A []byte `parquet:"a"`
	}
	type null struct {
		A []byte `parquet:"a,optional"`
	}
	rows, nulls := make([]row, 300), make([]null, 300)
	for i := range rows { // its statistics have one in plain
		rows[i].A, nulls[i].A = make([]byte, 64<<10), make([]byte, 64<<10)
	}
	for name, codec := range map[string]parquet.WriterOption{"zstd": parquet.Compression(&parquet.Zstd), "gzip": parquet.Compression(&parquet.Gzip), "snappy": parquet.Compression(&parquet.Snappy),
		"brotli": parquet.Compression(&parquet.Brotli)} {
		for _, in := range []Input{parquetInput(t, rows, codec, parquet.PageBufferSize(64<<20)), parquetInput(t, nulls, codec, parquet.PageBufferSize(64<<20))} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := loaded(t, Options{Format: Parquet, MemoryBytes: 16 << 20}, in)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), "row group 0, column \"a\": ") || !strings.Contains(err.Error(), "write the file again with") {
				t.Errorf("%s: %v", name, err)
			}
			if taken := after.TotalAlloc - before.TotalAlloc; taken > 8<<20 {
				t.Errorf("%s: %d MiB were allocated", name, taken>>20)
			}
			if name == "brotli" {
				continue
			}
			if _, err := loaded(t, Options{Format: Parquet}, in); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A page's own bytes say how large it is, whatever its header says.
func TestUnpackedBound(t *testing.T) {
	large := make([]byte, 3<<20)
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := e.EncodeAll(large, nil)
	two := append(bytes.Clone(packed), e.EncodeAll([]byte("and more"), nil)...)
	var zipped bytes.Buffer
	g := gzip.NewWriter(&zipped)
	if _, err := g.Write(large); err != nil || g.Close() != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		codec format.CompressionCodec
		data  []byte
		least int64
		bad   bool
	}{{format.Zstd, packed, 3 << 20, false}, {format.Zstd, two, 3<<20 + 8, false}, {format.Zstd, packed[:len(packed)-2], 0, true}, {format.Zstd, []byte("no zstd at all"), 0, true},
		{format.Gzip, zipped.Bytes(), 2 << 20, false}, {format.Snappy, []byte{0x80, 0x80, 0x80, 0x10}, 32 << 20, false}, {format.Lz4Raw, make([]byte, 100), 25500, false}, {format.LZO, nil, 0, true}} {
		n, err := unpackedBound(c.codec, bytes.NewReader(c.data), int64(len(c.data)), 2<<20)
		if c.codec == format.Zstd && err == nil && n <= 2<<20 {
			t.Errorf("%v: %d", c.codec, n)
		}
		if (err != nil) != c.bad && n <= 2<<20 || n < min(c.least, 2<<20) {
			t.Errorf("%v: %d, %v", c.codec, n, err)
		}
	}
	if n, err := unpackedBound(format.Zstd, bytes.NewReader(two), int64(len(two)), 1<<40); err != nil || n < 3<<20+8 || n > 4<<20 {
		t.Errorf("%d, %v", n, err)
	}
}

// Rows with more text than a chunk may have become several chunks, and none is lost or read twice, of Parquet and of Arrow.
func TestMuchText(t *testing.T) {
	type row struct {
		ID int64    `parquet:"id"`
		A  string   `parquet:"a,dict"`
		L  []string `parquet:"l,list"`
	}
	const n = 5000
	rows := make([]row, n)
	text := strings.Repeat("x", 64<<10)
	ids, texts := array.NewInt64Builder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator)
	for i := range rows {
		rows[i] = row{int64(i), "", []string{"a", "b"}[:i%3]}
		if i >= 1000 { // the first chunk is cut when rows were handed out
			rows[i].A = text
		}
		ids.Append(int64(i))
		texts.Append(rows[i].A)
	}
	s := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "a", Type: arrow.BinaryTypes.String}}, nil)
	var stream bytes.Buffer
	w := ipc.NewWriter(&stream, ipc.WithSchema(s))
	if err := errors.Join(w.Write(array.NewRecordBatch(s, []arrow.Array{ids.NewArray(), texts.NewArray()}, n)), w.Close()); err != nil {
		t.Fatal(err)
	}
	for format, in := range map[Format]Input{Parquet: parquetInput(t, rows, parquet.MaxRowsPerRowGroup(4000)), Arrow: NewText("x.arrows", stream.Bytes())} {
		p, err := ScanFiles(t.Context(), []Input{in}, Options{Format: format})
		if err != nil {
			t.Fatal(err)
		}
		var sink Buffers
		if err := p.Fill(t.Context(), &sink); err != nil {
			t.Errorf("%v: %v", format, err)
			continue
		}
		at := 0
		for i := range p.Parts[0] {
			file, err := part.Open(sink.Memory(0, cluster.PartWindows*i+cluster.PartFile))
			if err != nil {
				t.Fatal(err)
			}
			for c := range file.Chunks() {
				columns := file.Chunk(c).Columns()
				words := part.Plain(columns[1]).(*array.String)
				for r := range columns[0].Len() {
					if id := columns[0].(*array.Int64).Value(r); id != int64(at) || words.Value(r) != rows[at].A {
						t.Fatalf("%v: row %d is %d, with %d bytes of text", format, at, id, len(words.Value(r)))
					}
					if format == Parquet && len(columns) > 2 {
						if from, to := columns[2].(*array.List).ValueOffsets(r); int(to-from) != at%3 {
							t.Fatalf("row %d has a list of %d", at, to-from)
						}
					}
					at++
				}
				words.Release()
			}
		}
		if at != n || p.Rows != n {
			t.Errorf("%v: %d rows, and %d", format, at, p.Rows)
		}
	}
}

// A page is what its header says, in each codec, or is refused: never has it bytes of another page.
func TestUnpack(t *testing.T) {
	want := []byte(strings.Repeat("some text, ", 40) + "and no more") // LZ4 packs it to more than a third of small pages, less of large ones
	for _, codec := range []compress.Codec{&parquet.Snappy, &parquet.Gzip, &parquet.Zstd, &parquet.Lz4Raw} {
		for _, n := range []int{0, 1, 11, 20, len(want)} {
			packed, err := codec.Encode(nil, want[:n])
			if err != nil {
				t.Fatal(err)
			}
			var s scratch
			for _, size := range []int{n, n + 1, max(n-1, 0), n + 100} {
				page := bytes.Repeat([]byte{0xee}, size)
				err := s.unpack(codec.CompressionCodec(), packed, page)
				if good := size == n; (err == nil) != good || good && !bytes.Equal(page, want[:n]) {
					t.Errorf("%v, %d bytes for a page of %d: %v, %q", codec, n, size, err, page)
				}
			}
			if n > 1 {
				if err := s.unpack(codec.CompressionCodec(), packed[:len(packed)/2], make([]byte, n)); err == nil {
					t.Errorf("%v: half of %d bytes is unpacked", codec, n)
				}
			}
		}
	}
}

// A file whose pages are not as they were written is refused with the place, and what mends it.
func TestParquetDamaged(t *testing.T) {
	type row struct {
		ID   int64  `parquet:"id"`
		Name string `parquet:"name,snappy"`
	}
	rows := make([]row, 5000)
	for i := range rows {
		rows[i] = row{int64(i), strings.Repeat("name ", i%9) + string(rune('a'+i%26))}
	}
	whole, err := os.ReadFile(parquetInput(t, rows, parquet.MaxRowsPerRowGroup(1000)).(*File).name)
	if err != nil {
		t.Fatal(err)
	}
	file, err := parquet.OpenFile(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	m := file.Metadata().RowGroups[2].Columns[1].MetaData
	header, values := int(m.DataPageOffset), int(m.DataPageOffset+m.TotalCompressedSize/2)
	for name, tt := range map[string]struct{ from, to int }{"values": {values, values + 64}, "header": {header, header + 8}} {
		data := bytes.Clone(whole)
		for i := tt.from; i < tt.to; i++ {
			data[i] ^= 0xa5
		}
		path := filepath.Join(t.TempDir(), name+".parquet")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = loaded(t, Options{Format: Parquet}, in)
		for _, want := range []string{path + `: row group 2, column "name": `, ": copy or write the file again"} {
			if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want …%s…", name, err, want)
			}
		}
		if strings.Count(err.Error(), "copy or write") != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A panic of the library on a damaged file is an error that names the column.
func TestParquetPanicNamesColumn(t *testing.T) {
	o := Options{Format: Parquet}
	if err := o.prepare(); err != nil {
		t.Fatal(err)
	}
	o.Progress = func(Phase, int64, int64) {}
	r, err := parquetFormat{&o}.start(parquetInput(t, []wide{{A: "x"}}), PhaseFill)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.shapes[3].put = func(*part.Builder, parquet.Value) error { panic("index out of range") }
	if _, err := r.Next(t.Context()); err == nil || !strings.Contains(err.Error(), `row group 0, column "d": it is damaged: index out of range`) {
		t.Error(err)
	}
}
