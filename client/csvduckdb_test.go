package client

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// csvTypes are columns of CSV, as they are called here and in SQL, and how values are written.
var csvTypes = []struct {
	ours, sql string
	value     func(r *rand.Rand) string
}{
	{"i64", "BIGINT", func(r *rand.Rand) string {
		return fmt.Sprint(int64(r.Uint64()) >> r.IntN(64))
	}},
	{"u64", "UBIGINT", func(r *rand.Rand) string { return fmt.Sprint(r.Uint64() >> r.IntN(64)) }},
	{"i8", "TINYINT", func(r *rand.Rand) string { return fmt.Sprint(r.IntN(256) - 128) }},
	{"f64", "DOUBLE", func(r *rand.Rand) string {
		return fmt.Sprintf([]string{"%g", "%.3f", "%e", "%v"}[r.IntN(4)], (r.Float64()-0.5)*[]float64{1, 1e3, 1e-9, 1e17}[r.IntN(4)])
	}},
	{"bool", "BOOLEAN", func(r *rand.Rand) string { return []string{"true", "false"}[r.IntN(2)] }},
	{"date32", "DATE", func(r *rand.Rand) string {
		return fmt.Sprintf("%04d-%02d-%02d", 1600+r.IntN(800), 1+r.IntN(12), 1+r.IntN(28))
	}},
	{"timestamp[us]", "TIMESTAMP", func(r *rand.Rand) string {
		return fmt.Sprintf("%04d-%02d-%02d%c%02d:%02d:%02d%s", 1900+r.IntN(200), 1+r.IntN(12), 1+r.IntN(28), "T "[r.IntN(2)], r.IntN(24), r.IntN(60), r.IntN(60), []string{"", ".5", ".000001", ".123"}[r.IntN(4)])
	}},
	{"timestamp[us, UTC]", "TIMESTAMPTZ", func(r *rand.Rand) string {
		return fmt.Sprintf("%04d-%02d-%02dT%02d:%02d:%02d%s", 1900+r.IntN(200), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), []string{"Z", "+01:00", "-05:30"}[r.IntN(3)])
	}},
	{"decimal128(12, 3)", "DECIMAL(12, 3)", func(r *rand.Rand) string {
		return fmt.Sprintf("%.*f", r.IntN(4), (r.Float64()-0.5)*1e8)
	}},
	{"utf8", "VARCHAR", func(r *rand.Rand) string {
		pieces := []string{"a", "ä", "€", "𝄞", " ", "x y", "0", "NA", "\"", ",", ";", "\t", "|", "\n", "#", "'", "\\"}
		text := ""
		for range r.IntN(6) {
			text += pieces[r.IntN(len(pieces))]
		}
		return text
	}},
}

// csvCase is a file, and how both are to read it.
type csvCase struct {
	File, Delim, NewLine string
	Columns              [][2]string // name, SQL type
	ours                 string      // --types
}

// makeCSV writes a file at random: types, separator, line ends, quotes and missing values.
func makeCSV(r *rand.Rand, file string) (csvCase, string) {
	c := csvCase{File: file, Delim: string(",;|\t"[r.IntN(4)]), NewLine: []string{"\n", "\r\n"}[r.IntN(2)]}
	var kinds []int
	var types []string
	for i := range 2 + r.IntN(6) {
		k := r.IntN(len(csvTypes))
		if r.IntN(3) == 0 {
			k = len(csvTypes) - 1
		}
		name := fmt.Sprintf("c %d", i)
		kinds, types = append(kinds, k), append(types, name+":"+csvTypes[k].ours)
		c.Columns = append(c.Columns, [2]string{name, csvTypes[k].sql})
	}
	c.ours = strings.Join(types, ",")
	var b strings.Builder
	for i := range kinds {
		b.WriteString(map[bool]string{true: c.Delim}[i > 0] + c.Columns[i][0])
	}
	for range r.IntN(30) {
		b.WriteString(c.NewLine)
		for i, k := range kinds {
			if i > 0 {
				b.WriteString(c.Delim)
			}
			text := csvTypes[k].value(r)
			isText := csvTypes[k].sql == "VARCHAR"
			switch {
			case r.IntN(6) == 0: // missing
			case isText && (text == "" || strings.ContainsAny(text, c.Delim+"\"\n") || strings.TrimSpace(text) != text) || r.IntN(5) == 0:
				b.WriteString(`"` + strings.ReplaceAll(text, `"`, `""`) + `"`)
			default:
				b.WriteString(text)
			}
		}
	}
	if r.IntN(4) > 0 {
		b.WriteString(c.NewLine)
	}
	return c, b.String()
}

const sameCSV = `
import sys, json, duckdb, pyarrow as pa
con = duckdb.connect()
con.execute("set TimeZone = 'UTC'")
for c in json.load(sys.stdin):
    with open(c['File'] + '.arrows', 'rb') as f:
        got = pa.ipc.open_stream(f).read_all()
    got.validate(full=True)
    cols = ', '.join("'%s': '%s'" % tuple(x) for x in c['Columns'])
    new = {'\n': '\\n', '\r\n': '\\r\\n'}[c['NewLine']]
    want = con.execute("select * from read_csv('%s', header=true, auto_detect=false, delim='%s', quote='\"', escape='\"', new_line='%s', allow_quoted_nulls=false, parallel=false, columns={%s})"
        % (c['File'], c['Delim'], new, cols)).to_arrow_table()
    a, b = got.to_pylist(), want.to_pylist()
    assert a == b, '%s: %s, DuckDB has %s' % (c, [x for x in zip(a, b) if x[0] != x[1]][:1] or (len(a), len(b)), open(c['File']).read())
    print(len(a))
`

// CSV at random is read as DuckDB reads it: types, quotes, separators, line ends and missing values.
func TestCSVEqualsDuckDB(t *testing.T) {
	const files = 300
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(20, 15))
	var cases []csvCase
	rows := uint64(0)
	for i := range files {
		c, text := makeCSV(r, filepath.Join(dir, fmt.Sprint(i)))
		types, err := column.ParseList(c.ours)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := dataset.Options{Format: dataset.CSV, Comma: c.Delim[0], ColumnTypes: types, Spread: dataset.Spread{Elements: 1 + r.Uint32N(3)}}
		p, err := dataset.ScanFiles(t.Context(), []dataset.Input{dataset.NewText(c.File, []byte(text))}, o)
		var sink dataset.Buffers
		if err == nil {
			err = p.Fill(t.Context(), &sink)
		}
		if err == nil {
			err = writeParts(p, &sink, c.File+".arrows")
		}
		if err != nil {
			t.Fatalf("%s: %v\n%q", c.ours, err, text)
		}
		rows += p.Rows
		cases = append(cases, c)
	}
	list, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Fields(script(t, sameCSV, list)); len(lines) != files || rows < 10*files {
		t.Errorf("%d files of %d compared, %d rows", len(lines), files, rows)
	}
}

// writeParts writes what a load made as an Arrow stream.
func writeParts(p *dataset.Plan, sink *dataset.Buffers, file string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	w, err := batch.NewWriter(out, batch.Arrow, p.Columns)
	if err != nil {
		return err
	}
	for e := range p.Parts {
		for i := range p.Parts[e] {
			in, err := part.Open(sink.Memory(uint32(e), cluster.PartWindows*i+cluster.PartFile))
			if err != nil {
				return err
			}
			for c := range in.Chunks() {
				rec := in.Chunk(c)
				if err := w.Write(rec.Columns(), int(rec.NumRows())); err != nil {
					return err
				}
			}
		}
	}
	return w.Close()
}
