package client

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
)

// writeEdges has pyarrow write a graph, given as text, in all ways in which one is loaded.
const writeEdges = `
import sys, os, pyarrow as pa, pyarrow.parquet as pq
rows = [l.split() for l in sys.stdin.read().splitlines()]
src, dst, weight = [int(r[0]) for r in rows], [int(r[1]) for r in rows], [float(r[2]) for r in rows]
at = lambda name: os.path.join(sys.argv[1], name)
def ipc(name, table, new, **options):
    with pa.OSFile(at(name), 'wb') as f, new(f, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as w:
        w.write_table(table, max_chunksize=700)
t = pa.table({'weight': weight, 'src': pa.array(src, pa.int64()), 'dst': pa.array(dst, pa.uint16())})
pq.write_table(t, at('edges.parquet'), row_group_size=1000, compression='zstd')
pq.write_table(t, at('edges2.parquet'), data_page_version='2.0', use_dictionary=False)
ipc('edges.arrow', t, pa.ipc.new_file, compression='lz4')
ipc('edges.arrows', t, pa.ipc.new_stream)
out = [[] for _ in range(max(src + dst) + 1)]
for s, d, w in zip(src, dst, weight):
    out[s].append({'to': d, 'weight': w})
t = pa.table({'out': pa.array(out, pa.large_list(pa.struct([('to', pa.uint32()), ('weight', pa.float64())])))})
ipc('lists.arrow', t, pa.ipc.new_file)
pq.write_table(t, at('lists.parquet'), row_group_size=100)
t = pa.table({'next': pa.array([[e['to'] for e in v] or None for v in out], pa.large_list(pa.uint32()))})
ipc('plain.arrow', t, pa.ipc.new_file)
pq.write_table(t, at('plain.parquet'))
t = pa.table({'a': ['v%d' % s for s in src], 'b': pa.array(['v%d' % d for d in dst]).dictionary_encode(), 'w': pa.array(weight, pa.float32())})
ipc('names.arrow', t, pa.ipc.new_stream)
pq.write_table(t, at('names.parquet'), row_group_size=1000)
`

// Files of edges that pyarrow writes are the graphs that the same edges are as text; so are the files that a graph is written to.
func TestGraphFromArrow(t *testing.T) {
	const vertices, count = 300, 5000
	rng := rand.New(rand.NewPCG(7, 1))
	var heavy, plain, named strings.Builder
	fmt.Fprintf(&heavy, "%d 0 1.25\n%d 1 2\n", vertices-1, vertices-1)
	from := uint32(0)
	for i := range count { // in the order of their sources, as lists have them
		if from = uint32(i) * vertices / count; from < vertices-1 {
			fmt.Fprintln(&heavy, from, rng.Uint32N(vertices), float64(rng.IntN(1000))/8)
		}
	}
	lines := strings.Split(strings.TrimSpace(heavy.String()), "\n")
	lines = append(lines[2:], lines[:2]...)
	text := strings.Join(lines, "\n")
	for _, l := range lines {
		f := strings.Fields(l)
		fmt.Fprintln(&plain, f[0], f[1])
		fmt.Fprintf(&named, "v%s v%s %s\n", f[0], f[1], f[2])
	}
	dir := t.TempDir()
	script(t, writeEdges, []byte(text), dir)
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	graph := func(in dataset.Input, o dataset.Options) []byte {
		t.Helper()
		o.Format = dataset.Edges
		if _, err := c.Load(t.Context(), LoadSpec{Name: "g", Replace: true, Input: in, Options: o}, nil); err != nil {
			t.Fatalf("%s: %v", in.Name(), err)
		}
		return graphAs(t, c, batch.Arrow)
	}
	wants := map[string][]byte{}
	for name, s := range map[string]string{"edges": text, "plain": plain.String(), "names": named.String()} {
		wants[name] = graph(dataset.NewText("text", []byte(s)), dataset.Options{Names: name == "names", Weights: name != "plain"})
	}
	for file, o := range map[string]dataset.Options{
		"edges.parquet": {Weights: true}, "edges2.parquet": {Weights: true}, "edges.arrow": {Weights: true}, "edges.arrows": {Weights: true},
		"lists.parquet": {Weights: true}, "lists.arrow": {Weights: true},
		"plain.parquet": {}, "plain.arrow": {}, "names.parquet": {Names: true, Weights: true}, "names.arrow": {Names: true, Weights: true},
	} {
		in, err := dataset.OpenFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		kind := strings.TrimRight(strings.TrimSuffix(file, filepath.Ext(file)), "2")
		if kind == "lists" {
			kind = "edges"
		}
		if got := graph(in, o); !bytes.Equal(got, wants[kind]) {
			t.Errorf("%s: the graph differs from that of the text: %d bytes, %d", file, len(got), len(wants[kind]))
		}
	}
	// What a graph is written to is loaded again; a graph with names has them in a column.
	graph(dataset.NewText("text", []byte("@vertices 3\nx\ny\nz\n@edges\n0 2 1.5\n1 0 2\n2 2 -1\n")), dataset.Options{Weights: true})
	want := graphAs(t, c, batch.Arrow)
	for _, format := range []batch.Format{batch.Arrow, batch.Parquet} {
		if got := graph(dataset.NewText("written", graphAs(t, c, format)), dataset.Options{Weights: true}); !bytes.Equal(got, want) {
			t.Errorf("as %v: the graph that comes back differs", format)
		}
	}
	// A node reads its own file.
	file, err := os.ReadFile(filepath.Join(dir, "edges.parquet"))
	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, "edges.parquet"), file, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	report, err := c.Load(t.Context(), LoadSpec{Name: "at", At: []Source{{"n2", "edges.parquet"}}, Format: control.FileOptions{Format: "edges", Weights: true}}, nil)
	if err != nil || report.Edges != uint64(len(lines)) || report.Rows != vertices {
		t.Errorf("at a node: %+v, %v", report, err)
	}
}

// graphAs is the graph g in a format.
func graphAs(t *testing.T, c *Client, format batch.Format) []byte {
	t.Helper()
	var out bytes.Buffer
	r, err := c.Reader(t.Context(), "g")
	if err == nil {
		err = r.WriteGraph(t.Context(), ReadOptions{}, format, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
