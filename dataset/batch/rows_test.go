package batch

import (
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/schema"
)

func rowsOfText(t testing.TB, fields string, lines ...string) schema.Rows {
	t.Helper()
	s, err := schema.Parse(fields)
	if err != nil {
		t.Fatal(err)
	}
	b, err := schema.NewPartBuilder(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if err := b.AppendStrings(strings.Split(line, "|")...); err != nil {
			t.Fatal(err)
		}
	}
	return b.Rows()
}

// writeRows writes parts of rows; the first says what fields they have.
func writeRows(t testing.TB, out io.Writer, f Format, parts ...schema.Rows) {
	t.Helper()
	columns, err := Fields(parts[0].Schema())
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(out, f, columns)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		for arrays, n := range OfRows(columns, &p) {
			if err := w.Write(arrays, n); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// Rows of C structs as text: empty text is quoted in CSV, what is not UTF-8 is escaped, and no control character reaches a terminal but by CSV.
func TestRows(t *testing.T) {
	const fields = "name:str,n:i8,f:f64,g:f32,ok:bool,id:bytes2"
	a := rowsOfText(t, fields, "a,\"b\"|-1|NaN|0.1|true|beef", " c|2|1e300|-Inf|false|0000")
	b := rowsOfText(t, fields, "d\n\u00e9\xff\x01\u009b<|3|0.5|2|true|ffff", "|127|-0|3e9|false|0001")
	for f, want := range map[Format]string{
		CSV: "name,n,f,g,ok,id\n\"a,\"\"b\"\"\",-1,NaN,0.1,true,beef\n\" c\",2,1e+300,-Inf,false,0000\n\"d\n\u00e9\\xff\x01\u009b<\",3,0.5,2,true,ffff\n\"\",127,-0,3e+09,false,0001\n",
		NDJSON: `{"name":"a,\"b\"","n":-1,"f":"NaN","g":0.1,"ok":true,"id":"beef"}` + "\n" +
			`{"name":" c","n":2,"f":1e+300,"g":"-Inf","ok":false,"id":"0000"}` + "\n" +
			`{"name":"d\né\\xff\u0001\u009b<","n":3,"f":0.5,"g":2,"ok":true,"id":"ffff"}` + "\n" +
			`{"name":"","n":127,"f":-0,"g":3e+09,"ok":false,"id":"0001"}` + "\n",
		Table: "name          n       f      g  ok     id\n" +
			"a,\"b\"        -1     NaN    0.1  true   beef\n" +
			" c            2  1e+300   -Inf  false  0000\n" +
			"d\ufffdé\\xff\ufffd\ufffd<    3     0.5      2  true   ffff\n" +
			"            127      -0  3e+09  false  0001\n",
	} {
		var out bytes.Buffer
		writeRows(t, &out, f, a, b)
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s: %s", f, diff)
		}
	}
	var out bytes.Buffer
	var rows []map[string]any
	writeRows(t, &out, JSON, a, b)
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil || len(rows) != 4 || strings.Count(out.String(), "\n") != 6 {
		t.Errorf("%v %v", rows, err)
	}
	for f, want := range map[Format]string{JSON: "[]\n", NDJSON: "", CSV: "x\n", Table: "x\n"} {
		out.Reset()
		if writeRows(t, &out, f, rowsOfText(t, "x:u8")); out.String() != want {
			t.Errorf("%s of no rows: %q", f, out.String())
		}
	}
}

func TestTextReadsBack(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		names := []string{"a", "b"}[:rapid.IntRange(1, 2).Draw(r, "fields")]
		fields, err := schema.Parse(strings.Join(names, ":str,") + ":str")
		if err != nil {
			t.Fatal(err)
		}
		b, err := schema.NewPartBuilder(fields)
		if err != nil {
			t.Fatal(err)
		}
		want := [][]string{names}
		for range rapid.IntRange(0, 5).Draw(r, "rows") {
			var row []string
			for range names {
				row = append(row, strings.ReplaceAll(rapid.String().Draw(r, "text"), "\r", ""))
			}
			if err := b.AppendStrings(row...); err != nil {
				r.Fatal(err)
			}
			want = append(want, row)
		}
		rows := b.Rows()
		var text, array bytes.Buffer
		writeRows(t, &text, CSV, rows)
		writeRows(t, &array, JSON, rows)
		got, err := csv.NewReader(&text).ReadAll()
		if err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			r.Fatal(diff)
		}
		var objects []map[string]string
		if err := json.Unmarshal(array.Bytes(), &objects); err != nil {
			r.Fatal(err)
		}
		for i, row := range want[1:] {
			for f, text := range row {
				if objects[i][names[f]] != text {
					r.Fatalf("row %d: %v, want %v", i, objects[i], row)
				}
			}
		}
	})
}

// A part of 1 MiB whose rows all refer to the same text would be gigabytes as one batch.
func TestRowsSharingText(t *testing.T) {
	const rows, text = 1000, 1 << 20
	p := make([]byte, 8+8*rows+text)
	binary.LittleEndian.PutUint32(p, rows)
	for i := range rows {
		binary.LittleEndian.PutUint32(p[8+8*i:], 8+8*rows)
		binary.LittleEndian.PutUint32(p[8+8*i+4:], text)
	}
	s, err := schema.Parse("t:str")
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.DecodePart(p)
	if err != nil {
		t.Fatal(err)
	}
	columns := column.Schema{{Name: "t", Type: column.Type{ID: column.Binary}}}
	seen := 0
	for arrays, n := range OfRows(columns, &r) {
		if n > rowsTextBytes/text || arrays[0].Len() != n {
			t.Fatalf("a batch of %d rows, its array has %d", n, arrays[0].Len())
		}
		seen += n
		if seen > 100 {
			break
		}
	}
	if seen <= 100 {
		t.Errorf("%d rows", seen)
	}
}

func TestWriterSaysWhatFailed(t *testing.T) {
	full := errors.New("full")
	s := rowsOfText(t, "x:u64", strings.Split(strings.Repeat("1234567890123|", 20_000), "|")[:20_000]...)
	columns, err := Fields(s.Schema())
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(failing{full}, CSV, columns)
	if err != nil {
		t.Fatal(err)
	}
	for arrays, n := range OfRows(columns, &s) {
		if err := w.Write(arrays, n); !errors.Is(err, full) {
			t.Error(err)
		}
	}
}

type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }

func BenchmarkRowsCSV(b *testing.B) {
	var lines []string
	for range 1000 {
		lines = append(lines, "some name|123456|1.25")
	}
	r := rowsOfText(b, "name:str,n:u64,f:f64", lines...)
	b.SetBytes(int64(len(r.Part())))
	for b.Loop() {
		writeRows(b, io.Discard, CSV, r)
	}
}
