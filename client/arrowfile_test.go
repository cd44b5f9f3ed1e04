package client

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/query"
)

// readByArrow is what pyarrow reads from each file: its columns; of many numbers only how many there are, and their sum.
func readByArrow(t *testing.T, files ...[]byte) []string {
	t.Helper()
	var paths []string
	for i, b := range files {
		paths = append(paths, filepath.Join(t.TempDir(), fmt.Sprint(i)))
		if err := os.WriteFile(paths[i], b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Split(script(t, `
import sys, io, pyarrow as pa, pyarrow.parquet as pq
for path in sys.argv[1:]:
    b = open(path, 'rb').read()
    if b[:4] == b'PAR1':
        t = pq.read_table(io.BytesIO(b), use_threads=False)
    else:
        t = (pa.ipc.open_file(b) if b[:6] == b'ARROW1' else pa.ipc.open_stream(b)).read_all()
    t.validate(full=True)
    for f, c in zip(t.schema, t.columns):
        print(f.name, '' if b[:4] == b'PAR1' else f.type, 'nullable' if f.nullable else 'all there', c.to_pylist() if len(c) < 9 else [len(c), sum(c.to_pylist())])
    print('---')
`, nil, paths...), "---\n")
}

// window is a window of an element as it is.
func (b *bench) window(t *testing.T, c *Client, name string, element, window int) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := c.ReadWindow(t.Context(), name, element, window, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A node says any number of edges: what is too much, also once it is counted in bytes, is refused before memory is made for it.
func TestTooManyEdges(t *testing.T) {
	for _, c := range []struct {
		ends []uint64
		unit uint64
		want string
	}{
		{[]uint64{7, 9, 12}, 4, ""},
		{[]uint64{0, 0, MaxReadBytes/4 + 1}, 4, "at once"},
		{[]uint64{0, 1 << 62, 1 << 62}, 4, "at once"}, // in bytes it is 0
		{[]uint64{0, 1, 1<<62 + 1}, 4, "at once"},
		{[]uint64{9, 0, 10}, 4, "row 1"},
	} {
		a := adjacency{width: 8}
		for _, end := range c.ends {
			a.offsets = binary.LittleEndian.AppendUint64(a.offsets, end)
		}
		n, err := a.count(uint64(len(c.ends)-1), c.unit)
		if c.want == "" {
			if err != nil || n != c.ends[len(c.ends)-1]-c.ends[0] {
				t.Errorf("%v: %d, %v", c.ends, n, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %d, %v, want %q", c.ends, n, err, c.want)
		}
	}
}

// A chase's u64 column is an Arrow file at each node: pyarrow reads it as it lies in memory, a query asks it, a chase runs on it,
// written or sealed, and mem get gives its bytes back.
func TestColumnOfNumbers(t *testing.T) {
	const rows = 300_000 // more than a chunk at each of two nodes
	text := make([]byte, 0, 8*rows)
	for i := range uint64(rows) {
		text = binary.LittleEndian.AppendUint64(text, (i+7)%rows)
	}
	overEach(t, func(t *testing.T, scheme string) {
		b := newBench(t, scheme, "n1", "n2")
		c := b.connect(t, tokenOwner)
		for name, spread := range map[string]dataset.Spread{"block": {}, "cyclic": {Kind: cluster.Cyclic}} {
			spec := LoadSpec{Name: name, Writable: name == "cyclic", Input: dataset.NewText("next.raw", text),
				Options: dataset.Options{Format: dataset.RawFile, Schema: parseSchema(t, "next:u64"), Spread: spread}}
			report, err := c.Load(t.Context(), spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			if report.Bytes != 8*rows || report.Table.File() != cluster.FixedFile {
				t.Errorf("%s: %d bytes, file %d", name, report.Bytes, report.Table.File())
			}
			table, err := c.Table(t.Context(), name, "r")
			if err != nil {
				t.Fatal(err)
			}
			if got := called(t, c, table, "chase", map[string]string{"start": "3", "depth": "900"}); got != fmt.Sprintf("row\n%d\n", 3+7*900) {
				t.Errorf("%s: a chase ends on %s", name, got)
			}
			found, err := invoke.Query(patient(t), c.Runtime(), table, query.Query{Where: "next >= 299000", Agg: []string{"n=count()", "s=sum(next)", "m=max(next)"}})
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(found.Arrays); got != "[[1000] [299499500] [299999]]" {
				t.Errorf("%s: a query answers %s", name, got)
			}
			if skipped := found.Explanation.ChunksSkipped; (skipped > 0) != (name == "block") {
				t.Errorf("%s: %d chunks skipped; only values that are sealed have bounds", name, skipped)
			}
			var back, stream bytes.Buffer
			table, err = c.Table(t.Context(), name, "")
			if err != nil {
				t.Fatal(err)
			}
			for e := range 2 { // a window in a file is mapped as one of its own is, and no longer
				m, err := table.Import(t.Context(), c.links.Endpoint(table.Shards[e].Element), e, cluster.FixedValues)
				if err != nil || m.Mapped() != (scheme == "shm") {
					t.Fatalf("%s: element %d is mapped: %v, %v", name, e, err == nil && m.Mapped(), err)
				}
				if err := m.Get(t.Context(), make([]byte, 8), 8*rows/2-4); !errors.Is(err, fabric.ErrRange) {
					t.Errorf("%s: a read that ends behind the window of element %d: %v", name, e, err)
				}
			}
			r, err := c.Reader(t.Context(), name)
			if err == nil {
				err = errors.Join(r.Write(t.Context(), ReadOptions{Format: "raw"}, &back), r.WriteBatches(t.Context(), ReadOptions{First: 10, Count: 200_000}, batch.Arrow, &stream))
			}
			if err != nil || !bytes.Equal(back.Bytes(), text) {
				t.Errorf("%s: %d bytes came back of %d, %v", name, back.Len(), len(text), err)
			}
			want := []string{sums(text, 10, 200_010, 1), sums(text, 0, rows/2, 1), sums(text, rows/2, rows, 1), ""}
			if name == "cyclic" {
				want[1], want[2] = sums(text, 0, rows, 2), sums(text, 1, rows, 2)
			}
			got := readByArrow(t, stream.Bytes(), b.window(t, c, name, 0, cluster.FixedFile), b.window(t, c, name, 1, cluster.FixedFile))
			if !slices.Equal(got, want) {
				t.Errorf("%s: the stream, and the file of each element, are %q, want %q", name, got, want)
			}
		}
	})
}

// TestColumnOfFewNumbers: rows of one number answer queries where an element has none of them, and where they lie by the hash of a key
// of four bytes.
func TestColumnOfFewNumbers(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	for name, few := range map[string]struct {
		spread dataset.Spread
		rows   uint32
	}{"one": {rows: 1}, "keyed": {dataset.Spread{Kind: cluster.Hash, Key: "id"}, 6}} {
		var text []byte
		for i := range few.rows {
			text = binary.LittleEndian.AppendUint32(text, i)
		}
		spec := LoadSpec{Name: name, Input: dataset.NewText("few.raw", text), Options: dataset.Options{Format: dataset.RawFile, Schema: parseSchema(t, "id:u32"), Spread: few.spread}}
		if _, err := c.Load(t.Context(), spec, nil); err != nil {
			t.Fatal(err)
		}
		table, err := c.Table(t.Context(), name, "r")
		if err != nil {
			t.Fatal(err)
		}
		for i := range few.rows {
			q := query.Query{Where: fmt.Sprint("id == ", i), Agg: []string{"n=count()", "s=sum(id)"}, Workers: 1 + int(i%3)}
			found, err := invoke.Query(patient(t), c.Runtime(), table, q)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(found.Arrays); got != fmt.Sprintf("[[1] [%d]]", i) {
				t.Errorf("%s, %d: a query answers %s", name, i, got)
			}
		}
	}
}

// sums is what readByArrow says of a column of numbers.
func sums(text []byte, from, to, step int) string {
	n, total := 0, uint64(0)
	for i := from; i < to; i += step {
		n, total = n+1, total+binary.LittleEndian.Uint64(text[8*i:])
	}
	return fmt.Sprintf("next uint64 all there [%d, %d]\n", n, total)
}

// Packed structs are a column of bytesN: a query says what to do instead.
func TestColumnOfStructs(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	text := "a,b\n1,10\n2,20\n3,30\n"
	if _, err := c.Load(t.Context(), LoadSpec{Name: "pairs", Input: dataset.NewText("pairs.csv", []byte(text)),
		Options: dataset.Options{Format: dataset.CSV, Header: true, Schema: parseSchema(t, "a:u16,b:u32"), Packed: true}}, nil); err != nil {
		t.Fatal(err)
	}
	table, err := c.Table(t.Context(), "pairs", "r")
	if err != nil {
		t.Fatal(err)
	}
	if got := readCSV(t, c, "pairs", ReadOptions{}); got != text {
		t.Errorf("%q came back", got)
	}
	if got := readByArrow(t, b.window(t, c, "pairs", 1, cluster.FixedFile))[0]; got != "row fixed_size_binary[8] all there [b'\\x03\\x00\\x00\\x00\\x1e\\x00\\x00\\x00']\n" {
		t.Errorf("the file is %s", got)
	}
	_, err = invoke.Query(patient(t), c.Runtime(), table, query.Query{Agg: []string{"n=count()"}})
	if !errors.Is(err, invoke.ErrRequest) || !strings.Contains(err.Error(), "the rows of pairs are C structs of 2 fields, one column of bytes8: load the file without --packed") {
		t.Errorf("a query: %v", err)
	}
}

// What pyarrow reads of the graphs below: in Arrow's types, and from Parquet.
const (
	namesOfGraph = "['a', 'b', 'c', 'd']"
	weightedOut  = "[[{'to': 1, 'weight': 1.5}, {'to': 2, 'weight': 0.25}], [{'to': 2, 'weight': 2.0}], [{'to': 0, 'weight': 4.0}], [{'to': 0, 'weight': 1.0}]]"
	weightedIn   = "[[{'to': 2, 'weight': 4.0}, {'to': 3, 'weight': 1.0}], [{'to': 0, 'weight': 1.5}], [{'to': 1, 'weight': 2.0}, {'to': 0, 'weight': 0.25}], []]"
	plainOut     = "[[1, 2], [2], [0], [0]]"
	plainIn      = "[[2, 3], [0], [1, 0], []]"
	edgeType     = "large_list<edge: struct<to: uint32 not null, weight: double not null> not null>"
	listType     = "large_list<to: uint32 not null>"
)

var graphsOf = map[string][]string{
	"weighted": {"name string all there " + namesOfGraph + "\nout " + edgeType + " all there " + weightedOut + "\nin " + edgeType + " all there " + weightedIn + "\n",
		"name  all there " + namesOfGraph + "\nout  all there " + weightedOut + "\nin  all there " + weightedIn + "\n"},
	"plain": {"out " + listType + " all there " + plainOut + "\nin " + listType + " all there " + plainIn + "\n", "out  all there " + plainOut + "\nin  all there " + plainIn + "\n"},
}

// A graph's lists are an Arrow file at each node, and come out as Arrow and as Parquet that pyarrow reads.
func TestGraphToArrow(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b := newBench(t, scheme, "n1", "n2")
		c := b.connect(t, tokenOwner)
		var files [][]byte
		var want []string
		for _, kind := range []cluster.ShardKind{cluster.Block, cluster.Cyclic} {
			for name, text := range map[string]string{"weighted": "a b 1.5\nb c 2\na c 0.25\nc a 4\nd a 1\n", "plain": "0 1\n1 2\n0 2\n2 0\n3 0\n"} {
				o := dataset.Options{Format: dataset.Edges, Spread: dataset.Spread{Kind: kind}, Names: name == "weighted", Weights: name == "weighted"}
				if _, err := c.Load(t.Context(), LoadSpec{Name: name, Replace: true, Input: dataset.NewText("web.edges", []byte(text)), Options: o}, nil); err != nil {
					t.Fatal(err)
				}
				r, err := c.Reader(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				for _, format := range []batch.Format{batch.Arrow, batch.Parquet} {
					var buf bytes.Buffer
					if err := r.WriteGraph(t.Context(), ReadOptions{}, format, &buf); err != nil {
						t.Fatal(err)
					}
					files = append(files, buf.Bytes())
				}
				want = append(want, graphsOf[name]...)
				if kind == cluster.Block && name == "plain" {
					files = append(files, b.window(t, c, name, 1, cluster.GraphFile))
					want = append(want, "out "+listType+" all there [[0], [0]]\nin "+listType+" all there [[1, 0], []]\n")
				}
			}
		}
		if got := readByArrow(t, files...); !slices.Equal(got, append(want, "")) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
