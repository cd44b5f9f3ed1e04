package invoke

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/query"
	"github.com/wherry-fabric/wherry/schema"
)

// wordsPart is a part of rows whose text is different in every part: h has few values, a dictionary, and t is plain.
func wordsPart(t *testing.T, columns column.Schema, number, rows int) *part.Draft {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(number), 15))
	d := part.NewDraft()
	t.Cleanup(d.Release)
	b := make([]*part.Builder, len(columns))
	for i, c := range columns {
		b[i] = part.NewBuilder(c.Type, rows)
	}
	for range rows {
		b[0].Bits(r.Uint64N(1000))
		if err := b[1].Bytes(fmt.Appendf(nil, "host %d", (number+r.IntN(5))%17)); err != nil {
			t.Fatal(err)
		}
		if err := b[2].Bytes(fmt.Appendf(nil, "%d is the text of part %d", r.IntN(1<<30), number)); err != nil {
			t.Fatal(err)
		}
	}
	arrays := make([]arrow.Array, len(b))
	for i := range b {
		arrays[i] = b[i].Finish()
	}
	d.Add(arrays, 0, rows)
	if err := d.Seal(columns); err != nil {
		t.Fatal(err)
	}
	return d
}

// largeTables are two tables of the same columns at one element: one that fits into a function's memory, and one of 6 GiB, most of which are holes
// behind the parts' files, which take no memory.
func largeTables(t *testing.T) (rt *inject.Runtime, tables [2]*cluster.Table, lend func(size uint64, data []byte) cluster.Window) {
	const parts, rows, whole = 14, 700, 448 << 20
	columns := column.Schema{{Name: "v", Type: column.Type{ID: column.I64}}, {Name: "h", Type: column.Type{ID: column.UTF8}}, {Name: "t", Type: column.Type{ID: column.UTF8}}}
	tr, err := shm.New(shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: "a", Transports: []fabric.Transport{tr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { el.Close() })
	engine, err := wasm.New(wasm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	rt, err = inject.NewRuntime(el, inject.Config{Engines: []abi.Engine{wasm.Runner{Engine: engine}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close() })
	lend = func(size uint64, data []byte) cluster.Window {
		seg, err := el.NewSegment(size, fabric.Writable)
		if err != nil {
			t.Fatal(err)
		}
		copy(seg.Bytes(), data)
		key, err := seg.Key(fabric.RightRead)
		if err != nil {
			t.Fatal(err)
		}
		return cluster.Window{Key: key, Size: size}
	}
	for i := range tables {
		tables[i] = &cluster.Table{Name: fmt.Sprint("t", i), Version: 1, Kind: cluster.Columns, Columns: columns, Sharding: cluster.Sharding{Kind: cluster.Block, Elements: 1, Rows: parts * rows},
			Shards: []cluster.Shard{{Element: "a", Incarnation: el.Incarnation(), Addrs: []string{"shm:///a"}}}}
	}
	for p := range parts {
		var file bytes.Buffer
		d := wordsPart(t, columns, p, rows)
		if err := d.Write(&file); err != nil {
			t.Fatal(err)
		}
		opened, err := part.Open(file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		directory := opened.Directory()
		for i, size := range []uint64{uint64(file.Len()), whole} {
			s := &tables[i].Shards[0]
			s.Windows = append(s.Windows, lend(size, file.Bytes()), lend(uint64(len(directory)), directory))
			s.Parts = append(s.Parts, cluster.Part{Rows: rows, Chunks: d.Chunks()})
		}
	}
	for _, tab := range tables {
		tab.FillRows()
	}
	return rt, tables, lend
}

// TestQueryLargeShard: a shard of more than a function's memory holds, part by part, is asked as one that fits: also what is kept of a part's texts when the
// next one takes its place.
func TestQueryLargeShard(t *testing.T) {
	rt, tables, _ := largeTables(t)
	for _, q := range []query.Query{
		{Agg: []string{"n=count()", "s=sum(v)", "a=min(t)", "z=max(t)", "h=min(h)", "d=distinct(h)", "e=distinct(t)"}},
		{Where: `contains(t, "9") && h != "host 3"`, Agg: []string{"n=count()", "s=sum(v)"}},
		{Group: []string{"h"}, Agg: []string{"n=count()", "a=min(t)", "d=distinct(t)"}, Order: []string{"h"}},
		{Group: []string{"t"}, Agg: []string{"s=sum(v)"}, Order: []string{"t"}},
		{Group: []string{"t", "h"}, Agg: []string{"s=sum(v)"}, Order: []string{"-s", "t"}, Limit: 500},
		{Select: []string{"t", "h", "v"}, Order: []string{"t"}, Limit: 300},
		{Select: []string{"t", "h", "v"}, Order: []string{"-h", "-t"}, Limit: 300},
		{Select: []string{"t", "h", "v"}, Where: "v < 20"},
	} {
		for _, workers := range []int{1, 3} {
			q.Workers = workers
			var answers [2]string
			for i, tab := range tables {
				found, err := Query(t.Context(), rt, tab, q)
				if err != nil {
					t.Fatalf("%+v: %v", q, err)
				}
				var out bytes.Buffer
				if err := found.Write(&out, batch.CSV); err != nil {
					t.Fatal(err)
				}
				answers[i] = out.String()
			}
			if answers[0] != answers[1] || len(answers[0]) < 12 {
				t.Errorf("%+v: %d bytes of answer, %d of the shard that fits", q, len(answers[1]), len(answers[0]))
			}
		}
	}
}

// slides reads columns v and t, in that order in its payload: the sum of v, the bytes of t, and what the digits in t add up to.
const slides = `#include "wherry_columns.h"
WHERRY_ENTRY(payload, size)
{
    const wherry_column_t *column = (const wherry_column_t *)payload;
    uint64_t out[3] = {0, 0, 0};
    wherry_chunk_t chunk = {0};
    wherry_cells_t v, t;
    if (size != 2 * sizeof *column)
        return WHERRY_ERR_ARGUMENT;
    for (;;) {
        WHERRY_TRY(wherry_chunk_NEXT(&chunk));
        if (!chunk.rows)
            return wherry_reply(out, sizeof out);
        WHERRY_TRY(wherry_cells(&chunk, column[0], &v));
        WHERRY_TRY(wherry_cells(&chunk, column[1], &t));
        for (uint32_t i = 0; i < chunk.rows; i++) {
            uint32_t n;
            const char *text = wherry_cell_text(&t, i, &n);
            out[0] += (uint64_t)wherry_cell_int(&v, i);
            out[1] += n;
            for (uint32_t k = 0; k < n; k++)
                out[2] += text[k] >= '0' && text[k] <= '9' ? (uint64_t)(text[k] - '0') : 0;
        }
    }
}
`

// TestSlideLargeShard: a function that says wherry_chunk_slide reads such a shard; one that keeps its pointers is refused, and told how it could.
func TestSlideLargeShard(t *testing.T) {
	rt, tables, _ := largeTables(t)
	payload := []byte{0, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 12, 0, 0, 0}
	run := func(next string, tab *cluster.Table) ([]byte, error) {
		img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "slides.c", Code: []byte(slides)},
			image.Manifest{Name: next, Start: image.StartFirst, ResultForm: image.ResultRaw, Windows: []image.Window{{Name: image.ColumnsWindow}}}, cbuild.Options{Defines: map[string]string{"wherry_chunk_NEXT": next}})
		if err != nil {
			t.Fatal(err)
		}
		f, err := rt.Prepare(img, tab)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return f.Do(t.Context(), inject.Root{Payload: payload}, nil)
	}
	want, err := run("wherry_chunk_next", tables[0])
	if err != nil || len(want) != 24 || bytes.Equal(want, make([]byte, 24)) {
		t.Fatalf("%x, %v", want, err)
	}
	for _, tab := range tables {
		if got, err := run("wherry_chunk_slide", tab); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %x, %v; want %x", tab.Name, got, err, want)
		}
	}
	if got, err := run("wherry_chunk_next", tables[1]); err == nil || !strings.Contains(err.Error(), "wherry_chunk_slide") {
		t.Errorf("%x, %v", got, err)
	}
}

// TestQueryLargeRows: rows of one value are one window, of which a function's memory holds a part only; a question to them is refused, not answered of that part.
func TestQueryLargeRows(t *testing.T) {
	rt, tables, lend := largeTables(t)
	const rows = 5 << 27
	column := column.Column{Name: "row", Type: column.Type{ID: column.U64}}
	directory := part.FixedDirectory(column, make([]byte, 8*rows), false)
	s := tables[0].Shards[0]
	s.Parts, s.Windows = nil, []cluster.Window{lend(8*rows, nil), lend(uint64(len(directory)), directory), lend(8*rows+1<<17, nil)}
	tab := &cluster.Table{Name: "rows", Version: 1, Kind: cluster.Records, Schema: schema.Schema{Fields: []schema.Field{{Name: "row", Type: schema.U64}}},
		Sharding: cluster.Sharding{Kind: cluster.Block, Elements: 1, Rows: rows}, Shards: []cluster.Shard{s}}
	tab.FillRows()
	found, err := Query(t.Context(), rt, tab, query.Query{Agg: []string{"n=count()", "s=sum(row)"}})
	if err == nil || !strings.Contains(err.Error(), "than a function's memory holds: load them") {
		t.Errorf("%+v, %v", found, err)
	}
}
