package part

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/column"
)

var sample = column.Schema{
	{Name: "user id", Type: column.Type{ID: column.I64}},
	{Name: "level", Type: column.Type{ID: column.UTF8}, Nullable: true},
	{Name: "when", Type: column.Type{ID: column.Timestamp, Unit: column.Microsecond, Zone: "UTC"}, Nullable: true},
	{Name: "ok", Type: column.Type{ID: column.Bool}, Nullable: true},
	{Name: "note", Type: column.Type{ID: column.UTF8}},
}

// sampleColumns are n rows of the sample: each 7th is missing where it may be.
func sampleColumns(t testing.TB, n int) []arrow.Array {
	t.Helper()
	builders := make([]*Builder, len(sample))
	for i, c := range sample {
		builders[i] = NewBuilder(c.Type, n)
	}
	for r := range n {
		builders[0].Bits(uint64(int64(r - 5)))
		if r%7 == 3 {
			builders[1].Null()
			builders[2].Null()
			builders[3].Null()
		} else {
			if err := builders[1].Bytes([]byte([]string{"info", "warn", "übel"}[r%3])); err != nil {
				t.Fatal(err)
			}
			builders[2].Bits(uint64(1_700_000_000_000_000 + r))
			builders[3].Bool(r%2 == 0)
		}
		if err := builders[4].Bytes(fmt.Appendf(nil, "note number %d", r)); err != nil {
			t.Fatal(err)
		}
	}
	out := make([]arrow.Array, len(sample))
	for i, b := range builders {
		out[i] = b.Finish()
	}
	return out
}

// written is a part of such rows.
func written(t testing.TB, rows int) []byte {
	t.Helper()
	d := NewDraft()
	defer d.Release()
	d.Add(sampleColumns(t, rows), 0, rows)
	if err := d.Seal(sample); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := d.Write(&b); err != nil {
		t.Fatal(err)
	}
	if uint64(b.Len()) != d.Size() {
		t.Fatalf("%d bytes were written, %d were promised", b.Len(), d.Size())
	}
	return b.Bytes()
}

// What goes into a part comes out of it, over several chunks, with text as numbers where that is shorter.
func TestWriteAndOpen(t *testing.T) {
	const rows = 2*ChunkRows + 17
	p, err := Open(written(t, rows))
	if err != nil {
		t.Fatal(err)
	}
	if p.Rows != rows || p.Chunks() != 3 || sample.Differs(p.Columns) != "" {
		t.Errorf("%d rows in %d chunks of %v", p.Rows, p.Chunks(), p.Columns)
	}
	if _, ok := p.Chunk(1).Column(1).(*array.Dictionary); !ok {
		t.Errorf("three words are stored as %v", p.Chunk(1).Column(1).DataType())
	}
	if _, ok := p.Chunk(1).Column(4).(*array.String); !ok {
		t.Errorf("distinct text is stored as %v", p.Chunk(1).Column(4).DataType())
	}
	want := sampleColumns(t, rows)
	at := 0
	for i := range p.Chunks() {
		n := int(p.Chunk(i).NumRows())
		for c := range sample {
			got, part := Plain(p.Chunk(i).Column(c)), array.NewSlice(want[c], int64(at), int64(at+n))
			if !array.Equal(got, part) {
				t.Errorf("chunk %d, column %s differs", i, sample[c].Name)
			}
		}
		at += n
	}
}

// The directory says where values lie: here they are read by it, as a function in C does.
func TestDirectory(t *testing.T) {
	const rows = ChunkRows + 100
	b := written(t, rows)
	p, err := Open(b)
	if err != nil {
		t.Fatal(err)
	}
	dir := p.Directory()
	if want := DirectoryBytes(len(sample), 2); uint64(len(dir)) != want {
		t.Fatalf("%d bytes, want %d", len(dir), want)
	}
	le := binary.LittleEndian
	u64 := func(at uint64) uint64 { return le.Uint64(dir[at:]) }
	chunk := headBytes + columnBytes*uint64(len(sample)) + chunkBytes + chunkEntryBytes*uint64(len(sample)) // the second
	if u64(chunk) != ChunkRows || u64(chunk+8) != 100 {
		t.Errorf("the second chunk is %d rows from %d", u64(chunk+8), u64(chunk))
	}
	entry := func(c uint64) uint64 { return chunk + chunkBytes + chunkEntryBytes*c }
	if v := int64(le.Uint64(b[u64(entry(0)+8)+8*99:])); v != ChunkRows+99-5 {
		t.Errorf("the last user id is %d", v)
	}
	if least, most := int64(u64(entry(0)+40)), int64(u64(entry(0)+48)); u64(entry(0)+32) != flagBounds || least != ChunkRows-5 || most != ChunkRows+94 {
		t.Errorf("user ids from %d to %d", least, most)
	}
	row := uint64(10) // of the second chunk
	code := uint64(b[u64(entry(1)+8)+row])
	words := headBytes + columnBytes*uint64(1)
	offsets, text := u64(words+16), u64(words+24)
	from, to := uint64(le.Uint32(b[offsets+4*code:])), uint64(le.Uint32(b[offsets+4*code+4:]))
	if got, want := string(b[text+from:text+to]), []string{"info", "warn", "übel"}[(ChunkRows+row)%3]; got != want {
		t.Errorf("the level is %q, want %q", got, want)
	}
	if nulls := u64(entry(2) + 24); nulls != uint64(p.Chunk(1).Column(2).NullN()) {
		t.Errorf("%d times are missing", nulls)
	}
}

// raw is an Arrow file of one column, made by the library alone.
func raw(t *testing.T, f arrow.Field, a arrow.Array) []byte {
	t.Helper()
	var b bytes.Buffer
	s := arrow.NewSchema([]arrow.Field{f}, nil)
	w, err := ipc.NewFileWriter(&b, ipc.WithSchema(s))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(array.NewRecordBatch(s, []arrow.Array{a}, int64(a.Len()))); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestOpenRefuses(t *testing.T) {
	text := func(values ...string) arrow.Array {
		b := NewBuilder(column.Type{ID: column.UTF8}, 4)
		for _, v := range values {
			if err := b.Bytes([]byte(v)); err != nil {
				t.Fatal(err)
			}
		}
		return b.Finish()
	}
	hidden := NewBuilder(column.Type{ID: column.I32}, 2)
	hidden.Bits(7)
	hidden.Null()
	hidden.fixed[4] = 1
	missing := NewBuilder(column.Type{ID: column.I32}, 2)
	missing.Null()
	missing.Bits(1)
	utf8 := arrow.Field{Name: "s", Type: arrow.BinaryTypes.String}
	wide := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
	codes := NewBuilder(column.Type{ID: column.I32}, 2)
	codes.Bits(0)
	codes.Bits(1)
	long := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint8, ValueType: arrow.BinaryTypes.String}
	many := NewBuilder(column.Type{ID: column.U8}, 0)
	for range 100_000 {
		many.Bits(0)
	}
	bare := array.NewBoolean(3, memory.NewBufferBytes(nil), nil, 0)
	whole := written(t, 50)
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"not UTF-8":       {raw(t, utf8, text("a\xff")), "not valid utf8"},
		"a split letter":  {raw(t, utf8, text("a\xc3", "\xbcb")), "not valid utf8"},
		"a hidden value":  {raw(t, arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, hidden.Finish()), "row 1 is missing, and its bytes are not zero"},
		"a missing value": {raw(t, arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int32}, missing.Finish()), `column "n": 1 values are missing`},
		"wide numbers":    {raw(t, arrow.Field{Name: "s", Type: wide}, array.NewDictionaryArray(wide, codes.Finish(), text("a", "b"))), "numbers of 4 bytes"},
		"long words":      {raw(t, arrow.Field{Name: "s", Type: long}, array.NewDictionaryArray(long, many.Finish(), text(strings.Repeat("x", 2000)))), "bytes of text"},
		"no values":       {raw(t, arrow.Field{Name: "ok", Type: arrow.FixedWidthTypes.Boolean}, bare), "its values are not there"},
		"cut off":         {whole[:len(whole)-20], ""},
		"empty":           {nil, ""},
	} {
		if _, err := Open(c.b); !errors.Is(err, ErrPart) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A builder that knows how many rows come takes its memory once, and offsets of a chunk's text have room in 32 bits.
func TestBuilderTakesRoomOnce(t *testing.T) {
	const rows, text = 10_000, "sixteen bytes --"
	for id, add := range map[column.ID]func(b *Builder) error{
		column.I64:  func(b *Builder) error { b.Bits(1); return nil },
		column.Bool: func(b *Builder) error { b.Bool(true); return nil },
		column.UTF8: func(b *Builder) error { return b.Bytes([]byte(text)) },
		column.I8:   func(b *Builder) error { b.Null(); return nil },
	} {
		b := NewBuilder(column.Type{ID: id}, rows)
		b.Reserve(rows * len(text))
		taken := [3]int{cap(b.fixed), cap(b.offsets), cap(b.text)}
		for range rows {
			if err := add(b); err != nil {
				t.Fatal(err)
			}
		}
		if now := [3]int{cap(b.fixed), cap(b.offsets), cap(b.text)}; now != taken {
			t.Errorf("%v: %d bytes, %d at first", id, now, taken)
		}
	}
	b, mebibyte := NewBuilder(column.Type{ID: column.UTF8}, 1), make([]byte, 1<<20)
	for n := range MaxTextBytes >> 20 {
		if err := b.Bytes(mebibyte); err != nil {
			t.Fatal(n, err)
		}
	}
	if err := b.Bytes(mebibyte); !errors.Is(err, ErrLimit) {
		t.Errorf("one more MiB: %v", err)
	}
}

// The first missing value can come after any number of others, in columns of all widths.
func TestLateNull(t *testing.T) {
	const rows = 3000
	for _, typ := range []column.Type{{ID: column.Bool}, {ID: column.I8}, {ID: column.UTF8}, {ID: column.Bytes, Width: 20}} {
		for _, room := range []int{0, rows} {
			b := NewBuilder(typ, room)
			for range rows - 1 {
				switch {
				case typ.ID == column.Bool:
					b.Bool(true)
				case typ.ID == column.I8:
					b.Bits(1)
				default:
					if err := b.Bytes(make([]byte, typ.Width)); err != nil {
						t.Fatal(err)
					}
				}
			}
			b.Null()
			a := b.Finish()
			if err := array.ValidateFull(a); err != nil || a.NullN() != 1 || !a.IsNull(rows-1) || a.IsNull(rows-2) {
				t.Errorf("%v: %d of %d are missing: %v", typ, a.NullN(), a.Len(), err)
			}
		}
	}
}

// A file whose footer lists one small batch many times takes a node's memory for each of them.
func TestOpenRefusesBatchesThatOverlap(t *testing.T) {
	whole := written(t, 50)
	var foot, list int // where the footer's list of record batches begins
	le := binary.LittleEndian
	foot = len(whole) - fileTail - int(le.Uint32(whole[len(whole)-fileTail:]))
	table := foot + int(le.Uint32(whole[foot:]))
	fields := table - int(int32(le.Uint32(whole[table:])))
	list = table + int(le.Uint16(whole[fields+4+2*3:]))
	list += int(le.Uint32(whole[list:]))
	if n := le.Uint32(whole[list:]); n != 1 {
		t.Fatalf("%d batches", n)
	}
	const times = 1000
	b := append([]byte{}, whole[:len(whole)-fileTail]...)
	for len(b)%8 != 4 { // the list lies at the end of the footer
		b = append(b, 0)
	}
	at := len(b)
	b = le.AppendUint32(b, times)
	for range times {
		b = append(b, whole[list+4:list+4+blockBytes]...)
	}
	ref := table + int(le.Uint16(whole[fields+4+2*3:]))
	le.PutUint32(b[ref:], uint32(at-ref))
	b = le.AppendUint32(b, uint32(len(b)-foot))
	b = append(b, fileMagic...)
	if _, err := Open(b); !errors.Is(err, ErrPart) || !strings.Contains(err.Error(), "overlap") {
		t.Error(err)
	}
}

// looped is a footer, or a message, whose schema's first column is its own part.
func looped(b []byte, root flatbuffers.Table, header int) {
	schema, _ := table(root, header)
	at, _ := vector(schema, 1)
	field := flatbuffers.Table{Bytes: schema.Bytes, Pos: schema.Indirect(at)}
	inner, _ := vector(field, 5)
	binary.LittleEndian.PutUint32(b[inner:], uint32(field.Pos-inner))
}

// References of a schema that lead back use up the stack, which ends the process.
func TestSchemaThatLoops(t *testing.T) {
	list := array.NewListBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Int8)
	list.AppendNull()
	b := raw(t, arrow.Field{Name: "l", Type: list.Type(), Nullable: true}, list.NewArray())
	foot := b[len(b)-fileTail-int(binary.LittleEndian.Uint32(b[len(b)-fileTail:])):]
	looped(foot, flatbuffers.Table{Bytes: foot, Pos: flatbuffers.GetUOffsetT(foot)}, 1)
	if _, err := Open(b); !errors.Is(err, ErrPart) || !strings.Contains(err.Error(), "8 deep within each other") {
		t.Error(err)
	}
	if _, err := OpenFile(bytes.NewReader(b)); !errors.Is(err, ErrPart) || !strings.Contains(err.Error(), "8 deep within each other") {
		t.Error(err)
	}
	var out bytes.Buffer
	if err := ipc.NewWriter(&out, ipc.WithSchema(arrow.NewSchema([]arrow.Field{{Name: "l", Type: list.Type()}}, nil))).Close(); err != nil {
		t.Fatal(err)
	}
	message := out.Bytes()[messagePrefix:]
	looped(message, flatbuffers.Table{Bytes: message, Pos: flatbuffers.GetUOffsetT(message)}, 2)
	if _, err := ParseSchema(base64.StdEncoding.EncodeToString(out.Bytes())); !errors.Is(err, ErrPart) || !strings.Contains(err.Error(), "8 deep within each other") {
		t.Error(err)
	}
}

// A stream that anybody wrote, and a file from a node that is not to be trusted, are read or refused.
func FuzzRead(f *testing.F) {
	part := written(f, 9)
	f.Add(part)
	f.Add(part[8:]) // a stream, with a footer behind it
	f.Add(writtenNested(f, 9))
	f.Fuzz(func(t *testing.T, b []byte) {
		if file, err := OpenFile(bytes.NewReader(b)); err == nil {
			for i := range 4 {
				if rec, err := file.Chunk(i); err == nil {
					rec.Release()
				}
			}
			file.Close()
		}
		if s, err := NewFileStream(bytes.NewReader(b), 1<<20); err == nil {
			readAll(t, s)
		}
		if s, err := NewStream(bytes.NewReader(b), 1<<20); err == nil {
			readAll(t, s)
		}
	})
}

// Text offsets and a footer that lead beyond the file are refused in words, and say what to do.
func TestStreamRefuses(t *testing.T) {
	le := binary.LittleEndian
	b := NewBuilder(column.Type{ID: column.UTF8}, 1)
	if err := b.Bytes(make([]byte, 77)); err != nil {
		t.Fatal(err)
	}
	whole := raw(t, arrow.Field{Name: "s", Type: arrow.BinaryTypes.String}, b.Finish())
	offsets := le.AppendUint32(le.AppendUint32(nil, 0), 77)
	at := bytes.LastIndex(whole, offsets) // before it stands the length of the text, in the batch's head
	if at < 0 {
		t.Fatal("no offsets")
	}
	long := append([]byte(nil), whole...)
	le.PutUint32(long[at+4:], 5000)
	for _, open := range []func() (*Stream, error){
		func() (*Stream, error) { return NewFileStream(bytes.NewReader(long), 1<<20) },
		func() (*Stream, error) { return NewStream(bytes.NewReader(long), 1<<20) },
	} {
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(); !errors.Is(err, ErrPart) || strings.Contains(err.Error(), "runtime error") || !strings.Contains(err.Error(), "copy or write the file again") {
			t.Error(err)
		}
		s.Close()
	}
	foot := len(whole) - fileTail - int(le.Uint32(whole[len(whole)-fileTail:]))
	batch := bytes.LastIndex(whole[:foot], le.AppendUint32(nil, ^uint32(0))) // the end's mark
	batch = bytes.LastIndex(whole[:batch], le.AppendUint32(nil, ^uint32(0)))
	moved := bytes.Replace(whole[foot:], le.AppendUint64(nil, uint64(batch)), le.AppendUint64(nil, uint64(batch+8)), 1)
	s, err := NewFileStream(bytes.NewReader(append(bytes.Clone(whole[:foot]), moved...)), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Next(); !errors.Is(err, ErrPart) {
		t.Error(err)
	}
}

// A batch whose places lead out of it, or are too few, is refused by the name of the column.
func TestStreamNamesColumn(t *testing.T) {
	le := binary.LittleEndian
	fields := []arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "l", Type: arrow.ListOf(arrow.BinaryTypes.String)}, {Name: "last one", Type: arrow.PrimitiveTypes.Int32}}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	b.Field(0).(*array.Int64Builder).Append(7)
	b.Field(1).(*array.ListBuilder).Append(true)
	b.Field(1).(*array.ListBuilder).ValueBuilder().(*array.StringBuilder).Append("word")
	b.Field(2).(*array.Int32Builder).Append(9)
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(b.Schema()))
	if err := errors.Join(w.Write(b.NewRecordBatch()), w.Close()); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[int]string{1: `column "n"`, 3: `column "l"`, 6: `column "l"`, 8: `column "last one"`} { // by buffer
		bad := bytes.Clone(out.Bytes())
		message := bad[messagePrefix+int(le.Uint32(bad[4:])):][messagePrefix:]
		rows, _ := table(flatbuffers.Table{Bytes: message, Pos: flatbuffers.GetUOffsetT(message)}, 2)
		list, n := vector(rows, 2)
		if n != 9 {
			t.Fatalf("%d buffers", n)
		}
		le.PutUint64(message[int(list)+16*at:], 1<<20)
		s, err := NewStream(bytes.NewReader(bad), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(); !errors.Is(err, ErrPart) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "copy or write the file again") {
			t.Errorf("buffer %d: %v", at, err)
		}
		s.Close()
	}
}

// A schema in a Parquet file's metadata takes no more memory than it has bytes.
func TestParseSchemaLength(t *testing.T) {
	long := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, ^uint32(0)), 1<<30)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var out bytes.Buffer
	if err := ipc.NewWriter(&out, ipc.WithSchema(arrow.NewSchema(nil, nil))).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ParseSchema(base64.StdEncoding.EncodeToString(append(long, out.Bytes()[messagePrefix:]...))); !errors.Is(err, ErrPart) {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 64<<20 {
		t.Errorf("%d MiB were allocated", taken>>20)
	}
}

// readAll reads some batches, which are refused or right.
func readAll(t *testing.T, s *Stream) {
	defer s.Close()
	for range 4 {
		columns, err := s.Next()
		if err != nil {
			return
		}
		rows, err := Rows(columns, 0, min(columns[0].Len(), ChunkRows), 1<<20)
		if err == nil {
			for i, a := range rows {
				if err := checkColumn(a); err != nil {
					t.Errorf("column %d: %v", i, err)
				}
				a.Release()
			}
		}
		for _, a := range columns {
			a.Release()
		}
	}
}

// FuzzOpen: whatever the bytes are, they are refused, or all of them can be read and found by the directory.
func FuzzOpen(f *testing.F) {
	f.Add(written(f, 9))
	f.Add(writtenNested(f, 9))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Open(b)
		if err != nil {
			return
		}
		for i := range p.Chunks() {
			for _, a := range p.Chunk(i).Columns() {
				Plain(a).Release()
			}
		}
		p.Directory()
	})
}
