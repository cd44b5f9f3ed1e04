package dataset

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/zstd"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	writer "github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// types reads a list of them.
func types(t testing.TB, text string) column.Schema {
	t.Helper()
	s, err := column.ParseList(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// columnsText loads files as columns over elements, and writes what the parts hold as CSV.
func columnsText(t testing.TB, elements int, o Options, ins ...Input) (*Plan, string, error) {
	t.Helper()
	return loadedAs(t, writer.CSV, elements, o, ins...)
}

func text(name, data string) Input { return NewText(name, []byte(data)) }

// Types are inferred, and what was inferred is said.
func TestInference(t *testing.T) {
	csv := "id,user id,ok,ms,day,when,local,zip,big,mixed,none,note\n" +
		"1,-5,true,0.5,2026-01-01,2026-01-01T10:00:00Z,2026-01-01 10:00:00.25,01234,18446744073709551615,1,,\"a \"\"b\"\", c\"\n" +
		"2,,False,,2026-01-02,2026-01-01T12:00:00+01:00,2026-01-01,99999,1,x,,\"\"\n" +
		"3,7,,1e3,,,,,,,,\n"
	p, got, err := columnsText(t, 1, Options{Format: CSV}, text("x.csv", csv))
	if err != nil {
		t.Fatal(err)
	}
	wantTypes := "id:i64,user id:i64,ok:bool,ms:f64,day:date32,when:timestamp[us, UTC],local:timestamp[us],zip:utf8,big:u64,mixed:utf8,none:utf8,note:utf8"
	if p.Inferred == nil || p.Inferred.Types != wantTypes || p.Inferred.Rows != 3 || p.Columns.List() != wantTypes {
		t.Errorf("%+v", p.Inferred)
	}
	want := "id,user id,ok,ms,day,when,local,zip,big,mixed,none,note\n" +
		"1,-5,true,0.5,2026-01-01,2026-01-01T10:00:00Z,2026-01-01T10:00:00.25,01234,18446744073709551615,1,,\"a \"\"b\"\", c\"\n" +
		"2,,false,,2026-01-02,2026-01-01T11:00:00Z,2026-01-01T00:00:00,99999,1,x,,\"\"\n" +
		"3,7,,1000,,,,,,,,\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if s := p.Stats[1]; s.Nulls != 1 || int64(s.Least) != -5 || s.Most != 7 || !s.Bounded {
		t.Errorf("%+v", s)
	}
	nd := `{"id":1,"user":{"a":[1]},"when":"2026-01-01T10:00:00Z","s":"12","f":1.5,"b":true}` + "\n\n" + `{"f":2,"id":null,"s":"ä\n","b":false,"when":null}` + "\n"
	p, got, err = columnsText(t, 1, Options{Format: NDJSON, ColumnTypes: types(t, "user:utf8")}, text("x.ndjson", nd))
	if err != nil {
		t.Fatal(err)
	}
	if want := "id:i64,when:timestamp[us, UTC],s:utf8,f:f64,b:bool"; p.Inferred.Types != want {
		t.Errorf("%+v", p.Inferred)
	}
	if want := "id,user,when,s,f,b\n1,\"{\"\"a\"\":[1]}\",2026-01-01T10:00:00Z,12,1.5,true\n,,,\"ä\n\",2,false\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Given types hold what they can, exactly.
func TestGivenTypes(t *testing.T) {
	o := Options{Format: CSV, Nulls: []string{"NA", "-"}, ColumnTypes: types(t, "a:u8,b:decimal128(10, 2),c:timestamp[ms, Europe/Berlin],d:time32[s],e:duration[ms],f:bytes2,g:f32,h:binary,i:timestamp[s],j:bool,k:uuid,l:ip")}
	_, got, err := columnsText(t, 1, o, text("x.csv", "a,b,c,d,e,f,g,h,i,j,k,l\n255,-12345678.9,2026-07-01 12:00,12:30,1500,00ff,1.5,c0,1767225600,1,550e8400-E29B-41d4-a716-446655440000,192.0.2.1\n"+
		"NA,0.050,2026-07-01T12:00:00.125Z,-,2m,0000,NaN,,2026-01-01,0,00000000000000000000000000000001,2001:DB8::1\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "a,b,c,d,e,f,g,h,i,j,k,l\n255,-12345678.90,2026-07-01T12:00:00+02:00,12:30:00,1500ms,00ff,1.5,c0,2026-01-01T00:00:00,true,550e8400-e29b-41d4-a716-446655440000,192.0.2.1\n" +
		",0.05,2026-07-01T14:00:00.125+02:00,,120000ms,0000,NaN,,2026-01-01T00:00:00,false,00000000-0000-0000-0000-000000000001,2001:db8::1\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Text becomes the number of 32 bits that lies nearest to it, not nearest to a number of 64 bits between.
func TestF32(t *testing.T) {
	const rows = 20_000
	put, b := putFloat(column.Type{ID: column.F32}, false), part.NewBuilder(column.Type{ID: column.F32}, rows)
	r := rand.New(rand.NewPCG(15, 32))
	var texts []string
	for i := range rows {
		middle := 0.5 + float64(2*r.IntN(1<<23)+1)/(1<<25) // of two numbers
		texts = append(texts, strconv.FormatFloat(middle, 'f', []int{15, 16, 20, 25}[i%4], 64)[i%2:])
		if err := put(b, []byte(texts[i])); err != nil {
			t.Fatal(err)
		}
	}
	got := b.Finish().(*array.Float32)
	defer got.Release()
	for i, text := range texts {
		if want, err := strconv.ParseFloat(text, 32); err != nil || got.Value(i) != float32(want) {
			t.Fatalf("%s is %v, want %v, %v", text, got.Value(i), float32(want), err)
		}
	}
}

// Bad input is an error that names file, line, column and value, and says what mends it.
func TestBadColumns(t *testing.T) {
	late := "n,s\n" + strings.Repeat("1,abcdefghijklmnopqrstuvwxyz0123456789\n", sampleBytes/30) + "1.5,x\n"
	long := strings.Repeat(`{"a":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}`+"\n", sampleBytes/40)
	for _, c := range []struct {
		o     Options
		files []Input
		want  []string
	}{
		{Options{}, []Input{text("x.csv", late)}, []string{"x.csv: line ", `column n: "1.5" is no i64`, "inferred from the first", "--types 'n:f64'"}},
		{Options{}, []Input{text("x.csv", "a,b\n1,2\n1,2,3\n")}, []string{"x.csv: line 3: it has 3 columns, want 2"}},
		{Options{}, []Input{text("x.csv", "a,a\n1,2\n")}, []string{`x.csv`, `both called "a"`}},
		{Options{}, []Input{text("x.csv", "1,2\n3,4\n")}, []string{"looks like a value", "--header=false"}},
		{Options{}, []Input{text("x.csv", ",a,b\n0,1,2\n")}, []string{"x.csv: column 1 of its header has no name: write one there, or give the columns that are to be loaded (--schema)"}},
		{Options{}, []Input{text("x.csv", "a,\xfc\n0,1\n")}, []string{`x.csv: column 2 of its header: "\xfc" is not UTF-8: convert the file (iconv`}},
		{Options{}, []Input{text("x.csv", "")}, []string{"x.csv is empty"}},
		{Options{}, []Input{text("x.csv", "a\n\"\xff\"\n")}, []string{"x.csv: line 2: column a", "not UTF-8", "iconv"}},
		{Options{ColumnTypes: types(t, "sttus:u8")}, []Input{text("x.csv", "status\n1\n")}, []string{"sttus", `did you mean "status"?`}},
		{Options{ColumnTypes: types(t, "a:u8")}, []Input{text("x.csv", "a\n256\n")}, []string{"line 2: column a", "does not fit u8", "0 to 255"}},
		{Options{ColumnTypes: types(t, "a:decimal128(5, 2)")}, []Input{text("x.csv", "a\n1234.5\n")}, []string{"line 2", "more than 3 digits before the point", "decimal128(6, 2) takes it"}},
		{Options{ColumnTypes: types(t, "a:decimal128(5, 2)")}, []Input{text("x.csv", "a\n1.234\n")}, []string{"line 2", "more than 2 digits behind the point", "decimal128(6, 3) takes it"}},
		{Options{ColumnTypes: types(t, "a:decimal128(38, 2)")}, []Input{text("x.csv", "a\n-0.00100\n0.0001\n")}, []string{"line 2", "no decimal128 has as many digits: f64 takes it, rounded, and utf8 as it is"}},
		{Options{ColumnTypes: types(t, "a:decimal128(3, 2)")}, []Input{text("x.csv", "a\n-00012.3400\n")}, []string{"line 2", "decimal128(4, 2) takes it"}},
		{Options{ColumnTypes: types(t, "a:timestamp[s]")}, []Input{text("x.csv", "a\n2026-01-01T00:00:00Z\n")}, []string{"offset from UTC"}},
		{Options{ColumnTypes: types(t, "a:uuid")}, []Input{text("x.csv", "a\n550e8400-e29b-41d4-a716-44665544000\n")}, []string{"line 2: column a", "is no uuid, as in"}},
		{Options{ColumnTypes: types(t, "a:uuid")}, []Input{text("x.csv", "a\n550e8400xe29b-41d4-a716-446655440000\n")}, []string{"is no uuid, as in"}},
		{Options{ColumnTypes: types(t, "a:ip")}, []Input{text("x.csv", "a\nfe80::1%eth0\n")}, []string{"line 2: column a", "is no ip, as in"}},
		{Options{ColumnTypes: types(t, "a:date32")}, []Input{text("x.csv", "a\n2026-02-30\n")}, []string{`"2026-02-30" is no date32`}},
		{Options{}, []Input{text("x.csv", "a,b\n1,2\n"), text("y.csv", "a,c\n1,2\n")}, []string{"y.csv", `column "c"`, "not in the first file"}},
		{Options{}, []Input{text("x.csv", "a\n1\n"), text("y.csv", "a\nx\n")}, []string{"y.csv: line 2: column a", `"x" is no i64`, "inferred from the first row"}},
		{Options{Like: types(t, "a:i64")}, []Input{text("x.csv", "a\nx\n")}, []string{`x.csv: line 2: column a: "x" is no i64, as which the dataset has the column`, "--null", "--skip-bad"}},
		{Options{Like: types(t, "a:i64")}, []Input{text("x.csv", "b\n1\n")}, []string{`x.csv has a column "b"`, "left out by --schema"}},
		{Options{Format: Arrow, Like: types(t, "a:i32")}, []Input{text("x.arrow", string(arrowStream(t)))}, []string{"x.arrow against the dataset: it has 3 columns, not 1; write it again with the same columns"}},
		{Options{Format: Arrow}, []Input{text("x.arrow", string(arrowStream(t)[:700]))}, []string{"x.arrow: record batch 0", "it is cut off: copy or write the file again"}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", `{"a":1}`+"\n"+`{"a":[1]}`)}, []string{`member "a", or one within it, is a list or an object in some rows and not in others`, "a:utf8"}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", `{"a":[{"b":1},{"b":{"c":1}}]}`)}, []string{`member "a", or one within it`}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", `{"a":1}`+"\n"+`{"a":1,"a":2}`)}, []string{"line 2: column a", "stands twice"}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", `{"a":"\ud800"}`)}, []string{"line 1: column a", "half a character"}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", long+`{"b":1}`)}, []string{`a member "b"`, "b:utf8"}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", "{\"b\":1}\n{\"a\xff\":1}")}, []string{`x.ndjson: line 2: the name of a member: "a\xff" is not UTF-8: convert the file (iconv`}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", `{"a\ud800":1}`)}, []string{`x.ndjson: line 1: the name of a member: it has an escape from \ud800 to \udfff that is half a character: mend it`}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", `{"":1}`)}, []string{"x.ndjson: line 1: the name of a member is empty: name it, or give the columns that are to be loaded (--schema)"}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", `{"`+strings.Repeat("a", 256)+`":1}`)}, []string{`x.ndjson: line 1: the name of a member, "aaa`, "has 256 bytes, at most 255 are allowed: shorten"}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", `{"a":[{"b\ud800":1}]}`)}, []string{"x.ndjson: line 1: column a: the name of a member: it has an escape"}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", "{\"a\":{\"b\":1}}\n{\"a\":{\"b\xff\":1}}")}, []string{`x.ndjson: line 2: column a: the name of a member: "b\xff" is not UTF-8: convert`}},
		{Options{Format: NDJSON, Like: types(t, "a:struct<c:i64>")}, []Input{text("x.ndjson", "{\"a\":{\"b\xff\":1}}")}, []string{`x.ndjson: line 1: column a: the name of a member: "b\xff" is not UTF-8: convert`}},
		{Options{Format: NDJSON, Like: types(t, "a:struct<c:i64>")}, []Input{text("x.ndjson", `{"a":{"b":1}}`)}, []string{`line 1: column a: it has a member "b", and its type has no such field`, "the dataset has the column as struct<c:i64>: write such values as it has them"}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", long+"{\"b\xff\":1}")}, []string{`: the name of a member: "b\xff" is not UTF-8: convert`}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", "{\"a\":\"\\u0041\xff\"}")}, []string{`line 1: column a: "\\u0041\xff" is not UTF-8: convert`}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", "")}, []string{"no row from which"}},
		{Options{Format: Arrow}, []Input{text("x.arrow", "ARROW1\x00\x00nothing of it")}, []string{"x.arrow", "no Arrow file"}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", `[{"id":1},{"id":2}]`)}, []string{"x.ndjson: line 1: it is not a JSON object, but a list: write one object a line"}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", "\n"+`{"a":1`)}, []string{"x.ndjson: line 2: it is not a JSON object: it ends within one, behind 6 bytes", "cut off"}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", `{"a":1]`)}, []string{"x.ndjson: line 1: it is not a JSON object: byte 7: invalid character ']'"}},
		{Options{}, []Input{text("x.csv", "PAR1\x15\x04\x15\x80,")}, []string{"x.csv is a file of format parquet, not text", "--format parquet"}},
		{Options{Format: NDJSON}, []Input{text("x.ndjson", "ARROW1\x00\x00")}, []string{"x.ndjson is a file of format arrow, not text", "--format arrow"}},
		{Options{ColumnTypes: types(t, "d:i64")}, []Input{text("x.csv", "d\n1.10\n")}, []string{"x.csv: line 2: column d", `"1.10" is no i64: f64 takes it, or decimal128(38, 2)`}},
		{Options{ColumnTypes: types(t, "d:u8")}, []Input{text("x.csv", "d\n1e3\n")}, []string{`"1e3" is no u8: f64 takes it`}},
		{Options{ColumnTypes: types(t, "d:u8")}, []Input{text("x.csv", "d\nx\n")}, []string{`x.csv: line 2: column d: "x" is no u8; that type was given: give another (utf8 takes any text), or say that such text is a missing value (--null)`}},
		{Options{Format: NDJSON, ColumnTypes: types(t, "d:u8")}, []Input{text("x.ndjson", "{\"d\":true}\n")}, []string{`is no u8; that type was given: give another (utf8 takes any text), or leave such lines out (--skip-bad)`}},
		{Options{ColumnTypes: types(t, "d:date32")}, []Input{text("x.csv", "d\n1.10\n")}, []string{`"1.10" is no date32, as in 2026-03-01`}},
	} {
		if c.o.Format == "" {
			c.o.Format = CSV
		}
		_, _, err := columnsText(t, 1, c.o, c.files...)
		if err == nil {
			t.Errorf("no error, want %q", c.want)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nwant %q", err, want)
			}
		}
	}
}

// Types come from the first file with rows; files without any, wherever they stand, change nothing.
func TestEmptyFiles(t *testing.T) {
	const want = "a,b\n1,x\n2,\n"
	rows := `{"a":1,"b":"x"}` + "\n" + `{"a":2}` + "\n"
	for _, c := range []struct {
		format      Format
		empty, some string
	}{
		{NDJSON, "", rows}, {NDJSON, "\n \n", rows}, {CSV, "a,b\n", want},
		{Arrow, converted(t, writer.Arrow, ""), converted(t, writer.Arrow, rows)},
		{Parquet, converted(t, writer.Parquet, ""), converted(t, writer.Parquet, rows)},
	} {
		empty, some := text("empty", c.empty), text("some", c.some)
		for _, files := range [][]Input{{empty, some}, {empty, empty, some, empty}, {some, empty}} {
			p, got, err := columnsText(t, 1, Options{Format: c.format}, files...)
			if err != nil || got != want || p.Columns.List() != "a:i64,b:utf8" {
				t.Errorf("%s, %q first: %q of %v, %v", c.format, c.empty, got, p, err)
			}
		}
	}
	p, got, err := columnsText(t, 1, Options{Format: NDJSON}, text("x", "{}\n{}\n"), text("y", rows))
	if err != nil || got != "a,b\n,\n,\n1,x\n2,\n" || p.Files[0].Sampled != 0 || p.Files[1].Sampled != 2 {
		t.Errorf("%q of %+v, %v", got, p, err)
	}
	p, got, err = columnsText(t, 1, Options{Format: NDJSON, SkipBad: 1}, text("x", "[\n"), text("y", rows))
	if err != nil || got != want || p.Bad.Count != 1 {
		t.Errorf("%q of %+v, %v", got, p, err)
	}
	for _, c := range [][2]string{{"", "x has no row from which"}, {"[\n", "x: line 1: it is not"}} {
		if _, _, err := columnsText(t, 1, Options{Format: NDJSON}, text("x", c[0]), text("y", "")); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Error(err)
		}
	}
}

// converted is a file of columns a and b.
func converted(t *testing.T, to writer.Format, rows string) string {
	t.Helper()
	_, file, err := loadedAs(t, to, 1, Options{Format: NDJSON, ColumnTypes: types(t, "a:i64,b:utf8")}, text("x", rows))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Bad lines are left out as far as is allowed, and whole.
func TestBadLinesOfColumns(t *testing.T) {
	o := Options{Format: CSV, SkipBad: 2, ColumnTypes: types(t, "a:i64,b:utf8,c:bool")}
	p, got, err := columnsText(t, 1, o, text("x.csv", "a,b,c\n1,x,true\n2,y,perhaps\n,z,\n3,w\n4,v,false\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got != "a,b,c\n1,x,true\n,z,\n4,v,false\n" || p.Bad.Count != 2 || p.Bad.First[0].Line != 3 || p.Bad.First[1].Line != 5 {
		t.Errorf("%q, %+v", got, p.Bad)
	}
}

// Rows of compressed files, and of several, go to elements in ranges of about the same length.
func TestSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	rows := func(from, to int) []byte {
		var b bytes.Buffer
		b.WriteString("n,s\n")
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, "%d,text %d\n", i, i)
		}
		return b.Bytes()
	}
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	g := gzip.NewWriter(&zipped)
	_, err1 := z.Write(rows(0, 30000))
	_, err2 := g.Write(rows(30000, 50000))
	if err := errors.Join(err1, err2, z.Close(), g.Close()); err != nil {
		t.Fatal(err)
	}
	var ins []Input
	for name, data := range map[string][]byte{"a.csv.zst": packed.Bytes(), "b.csv.gz": zipped.Bytes(), "c.csv": rows(50000, 200000)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a.csv.zst", "b.csv.gz", "c.csv"} {
		in, err := OpenFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		ins = append(ins, in)
	}
	for _, elements := range []int{1, 3} {
		p, got, err := columnsText(t, elements, Options{Format: CSV}, ins...)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(rows(0, 200000)) {
			t.Errorf("%d elements: the rows are others", elements)
		}
		if len(p.Files) != 3 || p.Files[0].Rows != 30000 || p.Files[2].Rows != 150000 {
			t.Errorf("%+v", p.Files)
		}
		if p.Parts[0][0].Chunks != 1 && elements == 3 { // 30,000 rows of a.csv.zst, then those of b.csv.gz
			t.Errorf("%+v: neighbours are not joined", p.Parts)
		}
		for e := range elements {
			if _, n := p.Sharding.ElementRows(uint32(e)); n < 40000 {
				t.Errorf("element %d of %d has %d rows", e, elements, n)
			}
		}
	}
	one, _, err := columnsText(t, 2, Options{Format: CSV}, text("x.csv", string(rows(0, 1000))))
	if err != nil {
		t.Fatal(err)
	}
	if _, n := one.Sharding.ElementRows(0); n < 480 || n > 520 {
		t.Errorf("%d of 1000 rows", n)
	}
}

// An Arrow stream's large text, views, dictionaries and values beneath missing ones become columns.
func TestArrowInput(t *testing.T) {
	p, got, err := columnsText(t, 2, Options{Format: Arrow}, text("x.arrow", string(arrowStream(t))))
	if err != nil {
		t.Fatal(err)
	}
	if got != "a,s,d\n1,x,red\n,,\n3,z,blue\n" || p.Columns.String() != "a:i32, s:utf8, d:utf8" {
		t.Errorf("%q, %v", got, p.Columns)
	}
}

// arrowStream is a stream with large text, a dictionary, and values beneath missing ones.
func arrowStream(t testing.TB) []byte {
	t.Helper()
	s := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, {Name: "s", Type: arrow.BinaryTypes.LargeString, Nullable: true},
		{Name: "d", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}, Nullable: true}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	b.Field(0).(*array.Int32Builder).AppendValues([]int32{1, 77, 3}, []bool{true, false, true})
	b.Field(1).(*array.LargeStringBuilder).AppendValues([]string{"x", "beneath", "z"}, []bool{true, false, true})
	d := b.Field(2).(*array.BinaryDictionaryBuilder)
	if err := d.AppendString("red"); err != nil {
		t.Fatal(err)
	}
	d.AppendNull()
	if err := d.AppendString("blue"); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(s), ipc.WithZstd())
	rec := b.NewRecordBatch()
	defer rec.Release()
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A shard that is added to for ever has few parts, and parts of usual size are seldom written again.
func TestJoinFrom(t *testing.T) {
	for _, c := range []struct {
		sizes []uint64
		want  int
	}{{nil, 0}, {[]uint64{1}, 0}, {[]uint64{smallPart}, 1}, {[]uint64{smallPart, 5, 5}, 1}, {[]uint64{5, smallPart}, 2}} {
		if got := JoinFrom(c.sizes); got != c.want {
			t.Errorf("%v: %d, want %d", c.sizes, got, c.want)
		}
	}
	for _, once := range []uint64{0, 3 << 30, 6 << 30} { // loaded at once, before a MiB at a time is added
		var sizes []uint64
		all, written, added := uint64(0), uint64(0), uint64(0)
		for all < once {
			n := min(max(all/partShare, minPartBytes), maxPartBytes)
			sizes, all = append(sizes, n), all+n
		}
		for ; all < 9<<30; added += 1 << 20 {
			from, most := JoinFrom(sizes), uint64(0)
			if len(sizes) >= ManyParts {
				most = maxPartBytes
			}
			again := uint64(1 << 20)
			for _, n := range sizes[from:] {
				again += n
			}
			written += again
			sizes = sizes[:from]
			before := all + 1<<20 - again
			for all += 1 << 20; again > 0; {
				n := min(again, max(min(before/partShare, maxPartBytes), minPartBytes, most))
				sizes, again, before = append(sizes, n), again-n, before+n
			}
			if len(sizes) > cluster.MaxParts {
				t.Fatalf("%d parts of %d MiB", len(sizes), all>>20)
			}
		}
		if written > 40*added {
			t.Errorf("after %d MiB at once %d MiB were written for %d", once>>20, written>>20, added>>20)
		}
	}
}

// Reading a row allocates nothing; what is allocated is buffers of chunks.
func TestRowsAllocateNothing(t *testing.T) {
	of := func(rows int) uint64 {
		in := text("x.csv", string(logText(rows)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := loaded(t, Options{Format: CSV}, in); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	if few, many := of(20_000), of(60_000); many > few+4000 {
		t.Errorf("20,000 rows allocate %d times, 60,000 rows %d times", few, many)
	}
}

// A column without values in what is sampled has the type of those that come later: more is read until there are some; if there is
// none for long, the first one is text, or the load says how to give its type.
func TestLateFirstValue(t *testing.T) {
	filler := strings.Repeat("x", 4000)
	late := func(format, first string) string {
		var b strings.Builder
		b.WriteString(first)
		for b.Len() < sampleBytes+1<<16 {
			fmt.Fprintf(&b, format, filler)
		}
		return b.String()
	}
	csv := late("1,,%s,\n", "a,n,text,none\n") + "2,7,y,\n3,7.5,y,\n"
	nd := late(`{"a":1,"n":null,"text":"%s","none":null}`+"\n", "") + `{"a":2,"n":7,"text":"y","more":true}` + "\n" + `{"a":3,"n":7.5}` + "\n"
	for _, c := range []struct {
		format      Format
		text, types string
	}{
		{CSV, csv, "a:i64,n:f64,text:utf8,none:utf8"}, {NDJSON, nd, "a:i64,n:f64,text:utf8,none:utf8,more:bool"},
	} {
		if p, _, err := columnsText(t, 2, Options{Format: c.format}, text("x", c.text)); err != nil || p.Inferred.Types != c.types {
			t.Errorf("%s: %+v, %v", c.format, p, err)
		}
	}
	for _, c := range []struct {
		format       Format
		first, later string
		says         string // "": it is text
	}{
		{CSV, "a,n\n1,\n", "a,n\n2,x\n3,7\n", ""},
		{CSV, "a,n\n1,\n", "a,n\n2,\n3,7\n", "y: line 3: column n: \"7\" is its first value; the first row had no value, so its type is not known: give it (--types 'n:i64')"},
		{CSV, "a,n\n1,\n", "a,n\n2,2026-01-01\n", "(--types 'n:date32')"},
		{NDJSON, `{"n":null}` + "\n", `{"n":"12"}` + "\n" + `{"n":"2026-01-01"}` + "\n", ""},
		{NDJSON, `{"n":null}` + "\n", `{"n":"2026-01-01"}` + "\n", "(--types 'n:date32')"},
		{NDJSON, `{"n":null}` + "\n", `{"n":12}` + "\n", "(--types 'n:i64')"},
	} {
		_, got, err := columnsText(t, 1, Options{Format: c.format}, text("x", c.first), text("y", c.later))
		if c.says == "" && (err != nil || !strings.HasPrefix(got, "a,n\n1,\n2,x\n3,7\n") && got != "n\n\n12\n2026-01-01\n") || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s then %s: %q, %v, want %q", c.first, c.later, got, err, c.says)
		}
	}
}

// A column without a name is left out where a schema names the others.
func TestNamelessColumn(t *testing.T) {
	_, got, err := columnsText(t, 1, Options{Format: CSV, Header: true, Schema: mustSchema(t, "a:i64,b:str")}, text("x", ",a,b\n0,1,2\n"))
	if err != nil || got != "a,b\n1,2\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// A bad name within an object is a bad line, and does not make the column text.
func TestBadNameWithin(t *testing.T) {
	o := Options{Format: NDJSON, SkipBad: 2}
	p, got, err := loadedAs(t, writer.NDJSON, 1, o, text("x", "{\"a\":{\"c\":1}}\n{\"a\":{\"b\xff\":1}}\n{\"a\":{\"b\\ud800\":1}}\n"))
	if err != nil || got != `{"a":{"c":1}}`+"\n" || p.Bad.Count != 2 {
		t.Errorf("%q of %+v, %v", got, p, err)
	}
	o.ColumnTypes = types(t, "a:utf8")
	if _, got, err = loadedAs(t, writer.NDJSON, 1, o, text("x", `{"a":{"b\ud800":1}}`)); err != nil || !strings.Contains(got, `ud800`) {
		t.Errorf("%q, %v", got, err)
	}
}
