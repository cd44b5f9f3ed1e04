package dataset

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/cluster"
	writer "github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/schema"
)

func mustSchema(t testing.TB, text string) *schema.Schema {
	t.Helper()
	s, err := schema.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// written is a sink that has no memory of its own to write to.
type written struct{ b Buffers }

func (w *written) Create(ctx context.Context, e uint32, sizes []uint64) error {
	return w.b.Create(ctx, e, sizes)
}
func (w *written) WriteAt(ctx context.Context, e uint32, window int, p []byte, at uint64) error {
	return w.b.WriteAt(ctx, e, window, p, at)
}

// fatal is what testing.T and rapid.T have in common.
type fatal interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// load scans and fills, checks that the shard table would be valid, and returns the windows.
func load(t fatal, in Input, o Options, mapped bool) (*Plan, *Buffers) {
	t.Helper()
	ctx := context.Background()
	p, err := Scan(ctx, in, o)
	if err != nil {
		t.Fatal(err)
	}
	b, sink := fill(t, p, mapped)
	_ = sink
	return p, b
}

func fill(t fatal, p *Plan, mapped bool) (*Buffers, Sink) {
	t.Helper()
	w := &written{}
	var sink Sink = w
	if mapped {
		sink = &w.b
	}
	if err := p.Fill(context.Background(), sink); err != nil {
		t.Fatal(err)
	}
	if err := p.Fill(context.Background(), sink); !errors.Is(err, ErrFilled) {
		t.Fatalf("filled twice: %v", err)
	}
	tab := cluster.Table{Name: "d", Version: 1, Kind: p.Kind, Schema: p.Schema, Columns: p.Columns, Sharding: p.Sharding}
	for e := range p.Sharding.Elements {
		tab.Shards = append(tab.Shards, cluster.Shard{Element: fmt.Sprint("n", e), Incarnation: fabric.Incarnation(e + 1),
			Addrs: []string{"tcp://h:1"}, Windows: p.Windows(e), Parts: p.PartsOf(e)})
	}
	tab.FillRows()
	if err := tab.Validate(); err != nil {
		t.Fatal(err)
	}
	return &w.b, sink
}

// rowTexts is row local of an element, as text.
func rowTexts(p *Plan, b *Buffers, e uint32, local uint64) []string {
	l, _ := p.Schema.Layout()
	record := b.Memory(e, cluster.FixedValues)[local*uint64(l.Size):][:l.Size]
	var out []string
	for i, f := range p.Schema.Fields {
		cell := record[l.Offsets[i]:][:f.Type.Size()]
		out = append(out, string(f.Type.AppendText(nil, cell)))
	}
	return out
}

// allRows is every row in the order of global row numbers.
func allRows(t fatal, p *Plan, b *Buffers) [][]string {
	out := [][]string{}
	if p.Kind == cluster.Columns {
		rows, err := csv.NewReader(strings.NewReader(partsAs(t, writer.CSV, p, b))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return append(out, rows[1:]...)
	}
	for row := range p.Rows {
		e, local, _ := p.Sharding.Owner(row)
		out = append(out, rowTexts(p, b, e, local))
	}
	return out
}

const logSchema = "name:str,status:u16,bytes:u64,ok:bool,id:bytes2,f:f32"

func TestFormats(t *testing.T) {
	want := [][]string{{"a,\"b\"\nc", "200", "1", "true", "beef", "1.5"}, {"", "404", "18446744073709551615", "false", "0001", "-Inf"}}
	tests := []struct {
		name, text string
		o          Options
	}{
		{"csv", "\"a,\"\"b\"\"\r\nc\",200,1,true,beef,1.5\r\n\r\n,404,18446744073709551615,0,0001,-inf", Options{Format: CSV}},
		{"header", "\xef\xbb\xbff,status,extra,id,bytes,ok,name\n1.5,200,x,BEEF,1,1,\"a,\"\"b\"\"\nc\"\n-Inf,404,,0001,18446744073709551615,false,\n", Options{Format: CSV, Header: true}},
		{"tsv", "\"a,\"\"b\"\"\nc\"\t200\t1\ttrue\tbeef\t1.5\n\t404\t18446744073709551615\tfalse\t0001\t-Inf\n", Options{Format: CSV, Comma: '\t'}},
		{"ndjson", `{"name":"a,\"b\"\u000ac","status":200,"bytes":1,"ok":true,"id":"beef","f":1.5}` + "\n\n" +
			` { "f" : "-Inf" , "x":{"name":["}",{}]},"y":[1,"\"]"],"id":"0001","ok":false,"st\u0061tus":404,"bytes":"18446744073709551615","name":""} `, Options{Format: NDJSON}},
	}
	for _, tt := range tests {
		for _, mapped := range []bool{true, false} {
			tt.o.Schema = mustSchema(t, logSchema)
			p, b := load(t, NewText(tt.name, []byte(tt.text)), tt.o, mapped)
			if diff := cmp.Diff(want, allRows(t, p, b)); diff != "" {
				t.Errorf("%s: %s", tt.name, diff)
			}
		}
	}
	raw := []byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 1, 0}
	p, b := load(t, NewText("raw", raw), Options{Format: RawFile, Schema: mustSchema(t, "a:u16,b:u16"), Spread: Spread{Kind: cluster.Cyclic, Elements: 2}}, false)
	if diff := cmp.Diff([][]string{{"1", "0"}, {"2", "0"}, {"3", "1"}}, allRows(t, p, b)); diff != "" {
		t.Error(diff)
	}
	p, b = load(t, NewText("types", []byte("User Agent,2nd\nx,7\n")), Options{Format: CSV, Header: true, Types: []schema.Type{schema.Str, schema.U8}}, false)
	if got := p.Columns.List(); got != "User Agent:utf8,2nd:u8" {
		t.Error(got)
	}
	if diff := cmp.Diff([][]string{{"x", "7"}}, allRows(t, p, b)); diff != "" {
		t.Error(diff)
	}
	p, b = load(t, NewText("empty", []byte("a,b,c\n,,\n")), Options{Format: CSV, Header: true, EmptyIsZero: true, Packed: true, Schema: mustSchema(t, "a:u8,b:f64")}, true)
	if diff := cmp.Diff([][]string{{"0", "0"}}, allRows(t, p, b)); diff != "" {
		t.Error(diff)
	}
	p, b = load(t, NewText("null", []byte(`{"a":null}`)), Options{Format: NDJSON, EmptyIsZero: true, Schema: mustSchema(t, "a:u8")}, true)
	if diff := cmp.Diff([][]string{{"0"}}, allRows(t, p, b)); diff != "" {
		t.Error(diff)
	}
	p, _ = load(t, NewText("nothing", nil), Options{Format: CSV, Schema: mustSchema(t, "a:str"), Spread: Spread{Elements: 3}}, true)
	if p.Rows != 0 || len(p.Parts) != 3 {
		t.Error(p)
	}
}

func TestOptionErrors(t *testing.T) {
	s, like := mustSchema(t, "name:str,n:u8"), types(t, "n:u8")
	tests := []struct {
		o    Options
		want string
	}{
		{Options{}, `there is no format ""`},
		{Options{Format: "cvs"}, `did you mean "csv"`},
		{Options{Format: RawFile}, "need a schema"},
		{Options{Format: CSV, Schema: mustSchema(t, "c:column")}, "only a parameter"},
		{Options{Format: RawFile, Schema: s}, "(--packed, and --format raw) have no text"},
		{Options{Format: CSV, Schema: s, Types: []schema.Type{"u8"}}, "instead of a schema"},
		{Options{Format: CSV, Schema: s, Comma: '"'}, "cannot separate"},
		{Options{Format: CSV, Schema: s, LineBytes: 3}, "lines of 3 bytes"},
		{Options{Format: CSV, Schema: s, SkipBad: -2}, "-2 bad lines to leave out (--skip-bad)"},
		{Options{Format: CSV, Schema: s, MemoryBytes: 1}, "at least 1 MiB"},
		{Options{Format: CSV, Schema: s, Spread: Spread{Elements: 5000}}, "5000 elements"},
		{Options{Format: CSV, Schema: s, Packed: true}, "have no text: use bytesN fields, or load columns"},
		{Options{Format: CSV, Schema: s, Spread: Spread{Kind: cluster.Cyclic}}, "not cyclic; rows that are one value of fixed width (--schema with one field, or --packed) can"},
		{Options{Format: CSV, Schema: s, EmptyIsZero: true}, "an empty field is a missing value"},
		{Options{Format: CSV, Schema: s, ColumnTypes: types(t, "name:utf8")}, "leave out --types"},
		{Options{Format: CSV, Packed: true}, "need a schema"},
		{Options{Format: Edges, Packed: true}, "(--packed): only for the format csv or ndjson or parquet or arrow or raw, this is edges"},
		{Options{Format: Parquet, Packed: true}, "need a schema"},
		{Options{Format: Parquet, Schema: mustSchema(t, "n:u8"), SkipBad: 1}, "not of parquet"},
		{Options{Format: Arrow, Schema: mustSchema(t, "n:u8,m:u8")}, "leave out --schema and --types (a --schema of one field of fixed width, or one with --packed"},
		{Options{Format: CSV, Schema: mustSchema(t, "n:u8"), Spread: Spread{Kind: 9}}, "kind 9"},
		{Options{Format: CSV, Schema: s, Spread: Spread{Kind: cluster.Block, Key: "name"}}, "has no key"},
		{Options{Format: CSV, Schema: s, Spread: Spread{Kind: cluster.Hash, Key: "nam"}}, `"nam"`},
		{Options{Format: CSV, Schema: mustSchema(t, "name:u8"), Spread: Spread{Kind: cluster.Hash, Key: "nam"}}, `did you mean "name"`},
		{Options{Format: CSV, Schema: s, Spread: Spread{Kind: cluster.Hash, Key: "name", Elements: 1 << 31}}, "elements"},
		{Options{Format: Edges, Schema: s}, "a graph has no schema"},
		{Options{Format: Edges, Spread: Spread{Kind: cluster.Hash, Key: "name"}}, "not sharded by a key"},
		{Options{Format: Edges, Comma: '#'}, "cannot separate"},
		{Options{Format: RawFile, Schema: mustSchema(t, "n:u8"), Header: true}, "(--header): only for the format csv, this is raw"},
		{Options{Format: Edges, Header: true}, "(--header): only for the format csv, this is edges"},
		{Options{Format: NDJSON, Schema: s, Header: true}, "(--header): only for the format csv, this is ndjson"},
		{Options{Format: NDJSON, Schema: s, Comma: ';'}, "(--separator): only for the format csv or edges, this is ndjson"},
		{Options{Format: RawFile, Schema: mustSchema(t, "n:u8"), Comma: ','}, "(--separator): only for"},
		{Options{Format: Edges, EmptyIsZero: true}, "(--empty-is-zero): only for the format csv or ndjson or parquet or arrow, this is edges"},
		{Options{Format: RawFile, Schema: mustSchema(t, "n:u8"), EmptyIsZero: true}, "(--empty-is-zero): only for"},
		{Options{Format: RawFile, Schema: mustSchema(t, "n:u8"), LineBytes: 64}, "(--line-bytes): only for the format csv or ndjson or edges, this is raw"},
		{Options{Format: CSV, Schema: s, Names: true}, "(--names): only for the format edges, this is csv"},
		{Options{Format: CSV, Schema: s, ExtraColumns: true}, "(--extra-columns): only for the format edges, this is csv"},
		{Options{Format: CSV, Schema: mustSchema(t, "n:u8"), Like: like}, "only columns can be added to columns"},
		{Options{Format: NDJSON, Schema: mustSchema(t, "n:u8,m:u8"), Packed: true, Like: like}, "leave out --packed"},
		{Options{Format: RawFile, Schema: mustSchema(t, "n:u8"), Like: like}, "only columns can be added to columns"},
		{Options{Format: Edges, Like: like}, "only columns can be added to columns"},
	}
	for _, tt := range tests {
		if _, err := Scan(context.Background(), NewText("in", nil), tt.o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want …%s…", tt.o, err, tt.want)
		}
	}
	if _, err := Scan(context.Background(), NewText("in", []byte("n\n")), Options{Format: CSV, Header: true, Types: []schema.Type{"i8"}, Like: like}); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), `column "n": its type is given as i8, and the dataset has it as u8`) {
		t.Error(err)
	}
	if _, err := Scan(context.Background(), NewText("in", []byte("a\n")), Options{Format: CSV, Header: true, Types: []schema.Type{"u8"},
		Spread: Spread{Kind: cluster.Hash, Key: "b"}}); !errors.Is(err, ErrOptions) {
		t.Error(err)
	}
	for path, want := range map[string]Format{"a.CSV": CSV, "a.tsv.gz": CSV, "x/y.jsonl": NDJSON, "g.edges": Edges, "r.bin": RawFile, "r": ""} {
		if f, _, ok := FormatOf(path); f != want || ok != (want != "") {
			t.Errorf("%s: %q %v", path, f, ok)
		}
	}
}

// TestRowsArrive loads random rows by every kind of sharding and finds each
// where the sharding says.
func TestRowsArrive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &schema.Schema{Fields: []schema.Field{{Name: "k", Type: "bytes3"}, {Name: "n", Type: schema.U16}, {Name: "t", Type: "bytes1"}}}
		var want [][]string
		var text bytes.Buffer
		w := csv.NewWriter(&text)
		octets := func(n int, label string) string {
			return hex.EncodeToString(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, label))
		}
		for range rapid.IntRange(0, 40).Draw(t, "rows") {
			row := []string{octets(3, "k"), strconv.Itoa(int(rapid.Uint16().Draw(t, "n"))), octets(1, "t")}
			want = append(want, row)
			_ = w.Write(row)
		}
		w.Flush()
		spread := Spread{Kind: rapid.SampledFrom([]cluster.ShardKind{cluster.Block, cluster.Cyclic, cluster.Hash}).Draw(t, "kind"),
			Elements: rapid.Uint32Range(1, 6).Draw(t, "elements")}
		keyed := spread.Kind == cluster.Hash && rapid.Bool().Draw(t, "keyed")
		if keyed {
			spread.Key = rapid.SampledFrom([]string{"k", "n"}).Draw(t, "key")
		}
		o := Options{Format: CSV, Schema: s, Packed: true, Spread: spread}
		p, b := load(t, NewText("in", text.Bytes()), o, rapid.Bool().Draw(t, "mapped"))
		got := allRows(t, p, b)
		if keyed {
			// Rows are numbered element by element; within one they keep their order.
			var sorted [][]string
			for e := range spread.Elements {
				for _, row := range want {
					key, _ := hex.DecodeString(row[0])
					if spread.Key == "n" {
						n, _ := strconv.Atoi(row[1])
						key = []byte{byte(n), byte(n >> 8)}
					}
					if p.Sharding.KeyOwner(key) == e {
						sorted = append(sorted, row)
					}
				}
			}
			want = sorted
		}
		if want == nil {
			want = [][]string{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	var zipped bytes.Buffer
	zw := gzip.NewWriter(&zipped)
	fmt.Fprint(zw, strings.Repeat("a,1\n", 1000))
	zw.Close()
	path := filepath.Join(dir, "x.csv.gz")
	if err := os.WriteFile(path, zipped.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	phases := map[Phase]int64{}
	o := Options{Format: CSV, Schema: mustSchema(t, "name:str,n:u8"), Progress: func(ph Phase, done, total int64) {
		if done < phases[ph] || done > total || total != f.Size() {
			t.Errorf("%s: %d of %d after %d", ph, done, total, phases[ph])
		}
		phases[ph] = done
	}}
	p, _ := load(t, f, o, true)
	if p.Rows != 1000 || phases[PhaseScan] != f.Size() || phases[PhaseFill] != f.Size() {
		t.Error(p.Rows, phases)
	}

	if p, err = Scan(context.Background(), f, o); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := p.Fill(context.Background(), &Buffers{}); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	if err := os.WriteFile(path, zipped.Bytes()[:20], 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err = OpenFile(path); err != nil {
		t.Fatal(err)
	}
	o.Progress = nil
	if p, err = Scan(context.Background(), f, o); err == nil {
		err = p.Fill(context.Background(), Discard{})
	}
	if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	for bad, want := range map[string]string{dir: "a folder: name a file in it", path + "x": "no such file", os.DevNull: "standard input and name - as the file"} {
		if _, err := OpenFile(bad); !errors.Is(err, ErrInput) || strings.Count(err.Error(), bad) != 1 || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
	for _, text := range []string{"", "no gzip", "this is no gzip either, and longer than its header"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, _ = OpenFile(path)
		if _, err := Scan(context.Background(), f, o); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "it is not compressed with gzip") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestPipes: a named pipe is no file, and one that takes a file's place is not waited at.
func TestPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.csv")
	if err := os.WriteFile(path, []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pipe := path + ".pipe"
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(pipe); !errors.Is(err, ErrInput) {
		t.Error(err)
	}
	if err := os.Rename(pipe, path); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Open(); !errors.Is(err, ErrInput) {
		t.Error(err)
	}
}

// A file that is cut off or damaged says so, however it was compressed.
func TestCompressedCutOff(t *testing.T) {
	var gz, zst bytes.Buffer
	text := make([]byte, 0, 60<<10)
	for i := range 10_000 {
		text = fmt.Appendf(text, "%d,x\n", i*i)
	}
	z := gzip.NewWriter(&gz)
	z.Write(text)
	z.Close()
	e, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	e.Write(text)
	e.Close()
	spoilt := bytes.Clone(gz.Bytes())
	spoilt[len(spoilt)-6] ^= 1
	broken, unlike := bytes.Clone(gz.Bytes()), bytes.Clone(zst.Bytes())
	broken[10] = 7 // a block of a type that is none
	unlike[len(unlike)-1] ^= 1
	for _, c := range []struct {
		end    string
		packed []byte
		want   string
	}{{".gz", broken, "its gzip data is damaged: copy or compress it again"}, {".zst", unlike, "its zstd data is damaged: copy or compress it again"},
		{".zst", []byte("\x28\xb5\x2f\xfdgarbage"), "its zstd data was compressed with a dictionary, or is damaged: compress it again, without -D"},
		{".gz", gz.Bytes()[:gz.Len()/2], "it is cut off: its gzip data has no end"}, {".zst", zst.Bytes()[:zst.Len()/2], "it is cut off: its last zstd frame is not whole"},
		{".gz", spoilt, "its gzip data is damaged"}} {
		path := filepath.Join(t.TempDir(), "x.csv"+c.end)
		if err := os.WriteFile(path, c.packed, 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := in.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		r.Close()
	}
}

// What was compressed and comes by a pipe, which has no name to say so, is unpacked as a file of such a name is.
func TestSpoolCompressed(t *testing.T) {
	text := strings.Repeat("a,1\n", 1000)
	var gz, zst bytes.Buffer
	z := gzip.NewWriter(&gz)
	z.Write([]byte(text))
	z.Close()
	e, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	e.Write([]byte(text))
	e.Close()
	for want, packed := range map[string][]string{text: {gz.String(), zst.String(), text}, "a,1": {"a,1"}, "": {""}} {
		for _, packed := range packed {
			s, err := NewSpool(context.Background(), "stdin", strings.NewReader(packed), t.TempDir(), 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Unpack(); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				r, err := s.Open()
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(r); err != nil || string(got) != want || r.Done() != int64(len(packed)) {
					t.Errorf("%.8q: %d bytes of %d are read, %d of the input, %v", packed, len(got), len(want), r.Done(), err)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestSpool(t *testing.T) {
	text := strings.Repeat("a,1\n", 1000)
	last := int64(0)
	s, err := NewSpool(context.Background(), "stdin", strings.NewReader(text), t.TempDir(), int64(len(text)), func(ph Phase, done, total int64) {
		if ph != PhaseSpool || total != -1 {
			t.Error(ph, total)
		}
		last = done
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, _ := load(t, s, Options{Format: CSV, Schema: mustSchema(t, "name:str,n:u8")}, true)
	if p.Rows != 1000 || last != int64(len(text)) {
		t.Error(p.Rows, last)
	}
	if _, err := NewSpool(context.Background(), "stdin", strings.NewReader(text), t.TempDir(), int64(len(text))-1, nil); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	for _, none := range []int64{0, -1} { // the usual limit
		s, err := NewSpool(context.Background(), "stdin", strings.NewReader(text), t.TempDir(), none, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if s.Size() != int64(len(text)) {
			t.Errorf("limit %d: %d bytes", none, s.Size())
		}
	}
	if _, err := NewSpool(context.Background(), "stdin", strings.NewReader(text), "/nonexistent", 1, nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestSpoolOnAFullDisk: the input is not to blame, and there is something to do about it.
func TestSpoolOnAFullDisk(t *testing.T) {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	const limit = 1 << 20 // beyond what the test's own log of files may take meanwhile
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, err := NewSpool(context.Background(), "stdin", strings.NewReader(strings.Repeat("x", 2*limit)), dir, 0, nil)
	if back := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); back != nil {
		t.Fatal(back)
	}
	if !errors.Is(err, syscall.EFBIG) || errors.Is(err, ErrInput) {
		t.Error(err)
	}
	for _, want := range []string{"stdin is kept in " + dir + " while it is read", ": file too large: make room, set TMPDIR"} {
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// endless never ends.
type endless struct{ io.ReadCloser }

func (endless) Name() string                    { return "endless" }
func (endless) Size() int64                     { return -1 }
func (endless) Open() (Stream, error)           { return endless{io.NopCloser(nil)}, nil }
func (endless) Done() int64                     { return 0 }
func (endless) Read(p []byte) (int, error)      { return copy(p, bytes.Repeat([]byte("1 2\n"), 100)), nil }
func (endless) Close() error                    { return nil }
func cause(err error) (context.Context, func()) { return causeAfter(err, 20*time.Millisecond) }
func causeAfter(err error, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	timer := time.AfterFunc(d, func() { cancel(err) })
	return ctx, func() { timer.Stop(); cancel(nil) }
}

func TestCancel(t *testing.T) {
	gone := errors.New("the caller went away")
	for _, o := range []Options{
		{Format: CSV, Schema: mustSchema(t, "n:bytes1"), SkipBad: -1},
		{Format: NDJSON, Schema: mustSchema(t, "n:bytes1"), SkipBad: -1},
		{Format: RawFile, Schema: mustSchema(t, "n:bytes4")},
		{Format: Edges},
	} {
		ctx, stop := cause(gone)
		if _, err := Scan(ctx, endless{}, o); !errors.Is(err, gone) {
			t.Errorf("%s: %v", o.Format, err)
		}
		stop()
	}
	ctx, stop := cause(gone)
	defer stop()
	if _, err := NewSpool(ctx, "x", endless{}, t.TempDir(), 1<<40, nil); !errors.Is(err, gone) {
		t.Error(err)
	}
}

// failing is a sink whose writes fail.
type failing struct {
	written
	err    error
	create bool
}

func (f *failing) Create(ctx context.Context, e uint32, sizes []uint64) error {
	if f.create {
		return f.err
	}
	return f.written.Create(ctx, e, sizes)
}
func (f *failing) WriteAt(context.Context, uint32, int, []byte, uint64) error { return f.err }

func TestSinkErrors(t *testing.T) {
	lost := errors.New("peer lost")
	for _, create := range []bool{true, false} {
		for _, o := range []Options{{Format: CSV, Schema: mustSchema(t, "n:str")}, {Format: CSV, Comma: ' ', Packed: true, Schema: mustSchema(t, "n:u8,m:u8")}, {Format: Edges, ExtraColumns: true}} {
			p, err := Scan(context.Background(), NewText("in", []byte(strings.Repeat("1 2\n", 100000))), o)
			if err != nil {
				t.Fatal(err)
			}
			err = p.Fill(context.Background(), &failing{err: lost, create: create})
			if !errors.Is(err, lost) || errors.Is(err, ErrInput) {
				t.Error(err)
			}
		}
	}
}

// short maps less than was asked for.
type short struct{ Buffers }

func (s *short) Memory(e uint32, w int) []byte { return s.Buffers.Memory(e, w)[1:] }

func TestShortMemory(t *testing.T) {
	p, err := Scan(context.Background(), NewText("in", []byte("0a\n")), Options{Format: CSV, Schema: mustSchema(t, "n:bytes1")})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Fill(context.Background(), &short{}); err == nil || !strings.Contains(err.Error(), "window 0 was made with 0 bytes, not 1") {
		t.Error(err)
	}
}

// shifting reads other bytes the second time.
type shifting struct{ texts []string }

func (s *shifting) Name() string { return "shifting" }
func (s *shifting) Size() int64  { return int64(len(s.texts[0])) }
func (s *shifting) Open() (Stream, error) {
	text := s.texts[0]
	if len(s.texts) > 1 {
		s.texts = s.texts[1:]
	}
	return NewText("shifting", []byte(text)).Open()
}

func TestChangedInput(t *testing.T) {
	csvOptions := Options{Format: CSV, Schema: mustSchema(t, "n:u8")}
	tests := []struct {
		o             Options
		first, second string
	}{
		{csvOptions, "1\n2\n", "1\n"},
		{csvOptions, "1\n2\n", "1\n2\n3\n"},
		{Options{Format: Edges}, "1 2\n", "1 2\n1 2\n"},
		{Options{Format: Edges}, "1 2\n", "2 1\n"},
		{Options{Format: Edges}, "1 2\n", ""},
		{Options{Format: Edges}, "1 2\n", "1 3\n"},
		{Options{Format: Edges}, "1 2\n1 3\n", "1 2\n3 1\n"},
		{Options{Format: Edges, Names: true}, "a b\n", "a c\n"},
		{Options{Format: Edges, Names: true}, "", "a c\n"},
	}
	for _, tt := range tests {
		for _, mapped := range []bool{true, false} {
			p, err := Scan(context.Background(), &shifting{[]string{tt.first, tt.second}}, tt.o)
			if err != nil {
				t.Fatal(err)
			}
			w := &written{}
			var sink Sink = w
			if mapped {
				sink = &w.b
			}
			if err := p.Fill(context.Background(), sink); !errors.Is(err, ErrChanged) {
				t.Errorf("%q then %q: %v", tt.first, tt.second, err)
			}
		}
	}
}

// fuzzLineBytes keeps buffers small, so that a fuzzer gets through more inputs.
const fuzzLineBytes = 4096

// FuzzCSV compares with encoding/csv, record by record. After an error both go on at the line after
// the one that the record began on.
func FuzzCSV(f *testing.F) {
	f.Add("a,b\n\"x \"\"y\"\"\r\nz\",\r\n\n\r\n\"\",1", byte(','))
	f.Add("a;\"b\"c\n\"open", byte(';'))
	f.Add(strings.Repeat("some,plain,fields\n", 9)+"1,\"x,\ny\",z\r\n"+strings.Repeat(",,,\n\r\n", 20)+"end", byte(','))
	f.Fuzz(sameAsEncodingCSV)
}

func sameAsEncodingCSV(t *testing.T, text string, comma byte) {
	if comma == 0 || comma == '"' || comma == '\r' || comma == '\n' || comma >= 0x80 || strings.HasPrefix(text, "\xef\xbb\xbf") || len(text) > fuzzLineBytes {
		return
	}
	ours := newCSVReader(newLineReader("in", strings.NewReader(text), fuzzLineBytes), comma)
	rest, passed := text, 0 // lines passed before rest
	for {
		theirs := csv.NewReader(strings.NewReader(rest))
		theirs.Comma, theirs.FieldsPerRecord = rune(comma), -1
		bad := sameRecords(t, text, &ours, theirs, passed)
		if bad == 0 {
			return
		}
		for range bad {
			_, rest, _ = strings.Cut(rest, "\n")
		}
		passed += bad
	}
}

// sameRecords compares until the end, or an error, and returns the line that theirs gives to that, else 0.
func sameRecords(t *testing.T, text string, ours *csvReader, theirs *csv.Reader, passed int) (bad int) {
	for {
		want, wantErr := theirs.Read()
		got, err := ours.record()
		if (wantErr == io.EOF) != (err == io.EOF) || (wantErr == nil) != (err == nil) {
			t.Fatalf("%q: %v, encoding/csv says %v", text, err, wantErr)
		}
		if err == io.EOF {
			return 0
		}
		if err != nil {
			var line *LineError
			var parse *csv.ParseError
			if !errors.As(err, &line) || !errors.As(wantErr, &parse) || int64(passed+parse.StartLine) != line.Line {
				t.Fatalf("%q: %v, encoding/csv says %v, %d lines further", text, err, wantErr, passed)
			}
			return parse.StartLine
		}
		texts := []string{}
		for _, f := range got {
			texts = append(texts, string(f))
		}
		if diff := cmp.Diff(want, texts); diff != "" {
			t.Fatalf("%q: %s", text, diff)
		}
	}
}

// FuzzNDJSON compares with encoding/json, line by line.
func FuzzNDJSON(f *testing.F) {
	f.Add(`{"name":"\u0061fE0","n":12,"ok":true,"other":[{"name":1}]}`)
	f.Add("{}\n{\"n\":\"7\",\"name\":\"beef\",\"ok\":false}\nnull")
	s := mustSchema(f, "name:bytes2,n:u8,ok:bool")
	f.Fuzz(func(t *testing.T, text string) {
		o := Options{Format: NDJSON, Schema: s, Packed: true, LineBytes: fuzzLineBytes}
		if err := o.prepare(); err != nil {
			t.Fatal(err)
		}
		for _, raw := range strings.Split(strings.TrimPrefix(text, "\xef\xbb\xbf"), "\n") {
			record := make([]byte, s.RecordBytes())
			rows, err := openRows(context.Background(), NewText("in", []byte(raw)), &o, PhaseScan, &BadLines{})
			if err != nil {
				t.Fatal(err)
			}
			err = rows.next(record)
			rows.Close()
			if line := (*LineError)(nil); err == io.EOF || errors.As(err, &line) {
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			var want struct {
				Name string          `json:"name"`
				N    json.RawMessage `json:"n"`
				OK   json.RawMessage `json:"ok"`
			}
			members := map[string]json.RawMessage{}
			if err := json.Unmarshal([]byte(raw), &members); err != nil {
				t.Fatalf("%q was accepted: %v", raw, err)
			}
			if err := json.Unmarshal(members["name"], &want.Name); err != nil {
				t.Fatalf("%q was accepted: %v", raw, err)
			}
			if got := hex.EncodeToString(record[:2]); !strings.EqualFold(got, want.Name) {
				t.Fatalf("%q: name %q, want %q", raw, got, want.Name)
			}
			n := strings.Trim(string(members["n"]), `"`)
			if v, err := strconv.ParseUint(n, 0, 8); !strings.Contains(n, `\`) && err == nil && n[0] != '0' && byte(v) != record[2] {
				t.Fatalf("%q: n %d", raw, record[2])
			}
		}
	})
}
