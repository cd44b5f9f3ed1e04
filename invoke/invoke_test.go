package invoke

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/schema"
)

func ready(t *testing.T, name string) *image.Image {
	t.Helper()
	img, err := xrdma.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestVertices: a list of vertices is held against the graph before anything
// is sent; elements would pass over what they do not hold.
func TestVertices(t *testing.T) {
	graph := &cluster.Table{Name: "web", Kind: cluster.CSR, Rows: 3}
	records := &cluster.Table{Name: "log", Kind: cluster.Records, Rows: 3, Schema: schema.Schema{Fields: []schema.Field{{Name: "a", Type: schema.U8}}}}
	for _, c := range []struct {
		table *cluster.Table
		text  string
		says  string // "": it is taken
	}{
		{graph, "0", ""}, {graph, "0,2", ""}, {graph, " 0 ,\t1\n2,", ""}, {records, "17", "needs a graph; log holds records"}, {nil, "a", "needs a graph, and a node alone has no data: run it on a dataset (--on NAME)"},
		{graph, "a", `"a" is not a vertex number (0 to 2)`}, {graph, "0,b", `"b"`}, {graph, "1;2", `"1;2"`}, {graph, "-1", `"-1"`},
		{graph, "3", "vertices: there is no vertex 3: those of web go from 0 to 2"}, {graph, "99999999999999999999", "not a vertex number"},
		{graph, "", "names no vertex"}, {graph, " ,", "names no vertex"},
	} {
		for _, name := range []string{"closure", "reach", "dependents", "inside"} {
			r := &Request{Image: ready(t, name), Table: c.table, Args: map[string]string{"vertices": c.text}}
			_, err := r.payload()
			if (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s of %q: %v", name, c.text, err)
			}
		}
	}
}

// TestRowsOfAnotherKind: a function that takes rows for what they are not would
// answer with nonsense, so it is refused, however its payload comes.
func TestRowsOfAnotherKind(t *testing.T) {
	records := func(text string) *cluster.Table {
		var s schema.Schema
		for field := range strings.SplitSeq(text, ",") {
			name, typ, _ := strings.Cut(field, ":")
			s.Fields = append(s.Fields, schema.Field{Name: name, Type: schema.Type(typ)})
		}
		return &cluster.Table{Name: "log", Kind: cluster.Records, Rows: 3, Schema: s}
	}
	graph := &cluster.Table{Name: "web", Kind: cluster.CSR, Rows: 3}
	light := &cluster.Table{Name: "web", Kind: cluster.CSR, Rows: 3, Shards: []cluster.Shard{{Windows: make([]cluster.Window, cluster.GraphWindows)}}}
	heavy := &cluster.Table{Name: "web", Kind: cluster.CSR, Rows: 3, Shards: []cluster.Shard{{Windows: make([]cluster.Window, cluster.WeightedWindows)}}}
	arguments := map[string]map[string]string{
		"sssp":  {"from": "1"},
		"chase": {"start": "1", "depth": "1"}, "degrees": {}, "level": {"from": "1"}, "topdeg": {"k": "1"},
	}
	for _, c := range []struct {
		name  string
		table *cluster.Table
		says  []string // none: it is taken
	}{
		{"chase", records("next:u64"), nil}, {"chase", records("next:i64"), nil}, {"chase", nil, []string{"chase needs rows of one u64 each, and a node alone has no data"}}, {"echo", nil, nil}, {"degrees", nil, []string{"needs a graph"}},
		{"chase", records("a:u64,n:u64"), []string{"chase needs rows of one u64", "the rows of log are a:u64,n:u64", "--schema row:u64"}},
		{"chase", records("time:i64,level:str,status:u16"), []string{"time:i64,level:str"}},
		{"chase", records("a:u8"), []string{"a:u8"}}, {"chase", records("a:f64"), []string{"a:f64"}},
		{"chase", records("a:str"), []string{"a:str"}}, {"chase", records("a:bytes8"), []string{"a:bytes8"}},
		{"chase", graph, []string{"chase needs rows of one u64", "web is a graph", "--schema row:u64"}},
		{"degrees", graph, nil}, {"degrees", records("a:u64"), []string{"needs a graph"}}, {"topdeg", records("a:u64"), []string{"needs a graph"}},
		{"sssp", heavy, nil}, {"sssp", light, []string{"sssp needs a graph whose edges have weights; those of web have none", "--weights"}}, {"level", heavy, nil},
		{"echo", graph, nil},
	} {
		for _, raw := range []bool{false, true} {
			r := &Request{Image: ready(t, c.name), Table: c.table, Args: arguments[c.name]}
			if raw {
				r.Args, r.Payload = nil, make([]byte, 32)
			}
			_, err := r.payload()
			if (err == nil) != (c.says == nil) || err != nil && !errors.Is(err, ErrRequest) {
				t.Errorf("%s on %v, raw %v: %v", c.name, c.table, raw, err)
			}
			for _, want := range c.says {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q in it", c.name, err, want)
				}
			}
		}
	}
}

// TestArgumentsAllowed: what a function could not take is refused before anything is sent, with what it takes.
func TestArgumentsAllowed(t *testing.T) {
	graph := &cluster.Table{Name: "web", Kind: cluster.CSR, Rows: 3}
	for _, c := range []struct {
		name  string
		table *cluster.Table
		args  map[string]string
		says  string // "": it is taken
	}{
		{"degrees", graph, map[string]string{"direction": "1"}, ""}, {"degrees", graph, map[string]string{"direction": "2"}, `direction: "2" is none of 0, 1`},
	} {
		r := &Request{Image: ready(t, c.name), Table: c.table, Args: c.args}
		_, err := r.payload()
		if (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s of %v: %v", c.name, c.args, err)
		}
	}
}

// TestRowsThatAreNone: a vertex or a row that the dataset has not is named, with those that it has, before anything is sent; so is
// a payload that is too short to hold the parameters.
func TestRowsThatAreNone(t *testing.T) {
	graph := &cluster.Table{Name: "web", Kind: cluster.CSR, Rows: 3, Shards: make([]cluster.Shard, 1), Sharding: cluster.Sharding{Kind: cluster.Block, Elements: 1, Rows: 3}}
	empty := &cluster.Table{Name: "void", Kind: cluster.CSR}
	chain := &cluster.Table{Name: "next", Kind: cluster.Records, Rows: 3, Schema: schema.Schema{Fields: []schema.Field{{Name: "row", Type: schema.U64}}}}
	for _, c := range []struct {
		name    string
		table   *cluster.Table
		args    map[string]string
		payload []byte
		says    string // "": it is taken
	}{
		{"level", graph, map[string]string{"from": "2"}, nil, ""},
		{"level", graph, map[string]string{"from": "3"}, nil, "level: from: there is no vertex 3: those of web go from 0 to 2"},
		{"level", graph, nil, []byte{}, "level: the payload has 0 bytes, its parameters (from:u32,direction:u32=0,max_depth:u32=0) take 12"},
		{"level", graph, nil, make([]byte, 11), "the payload has 11 bytes"}, {"level", graph, nil, make([]byte, 12), ""},
		{"level", graph, nil, append([]byte{9}, make([]byte, 11)...), "from: there is no vertex 9"},
		{"level", empty, map[string]string{"from": "0"}, nil, "from: there is no vertex 0: void has none at all"},
		{"level", nil, map[string]string{"from": "0"}, nil, "level needs a graph, and a node alone"},
		{"path", graph, map[string]string{"from": "0", "to": "2"}, nil, ""},
		{"path", graph, map[string]string{"from": "0", "to": "4294967295"}, nil, "path: to: there is no vertex 4294967295"},
		{"path", graph, map[string]string{"from": "7", "to": "0"}, nil, "path: from: there is no vertex 7"},
		{"closure", empty, map[string]string{"vertices": "x"}, nil, "vertices: there is no vertex x: void has none at all"},
		{"closure", graph, map[string]string{"vertices": "0", "max_depth": "254"}, nil, ""},
		{"closure", graph, map[string]string{"vertices": "0", "max_depth": "255"}, nil, `max_depth: "255" is out of range, it goes from 0 to 254`},
		{"reach", graph, map[string]string{"vertices": "0", "max_depth": "255"}, nil, `max_depth: "255" is out of range, it goes from 0 to 254`},
		{"topdeg", graph, map[string]string{"k": "0"}, nil, `k: "0" is out of range, it goes from 1 to 4000`}, {"topdeg", graph, map[string]string{"k": "4001"}, nil, "1 to 4000"},
		{"topdeg", graph, map[string]string{"k": "4000"}, nil, ""},
		{"inside", graph, map[string]string{"vertices": "0", "lists": "2"}, nil, `lists: "2" is not possible, only 1 is`},
		{"chase", chain, map[string]string{"start": "2", "depth": "0"}, nil, ""},
		{"chase", chain, map[string]string{"start": "3", "depth": "0"}, nil, "chase: start: there is no row 3: those of next go from 0 to 2"},
	} {
		r := &Request{Image: ready(t, c.name), Table: c.table, Args: c.args, Payload: c.payload}
		_, err := r.payload()
		if (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s of %v, %d bytes: %v", c.name, c.args, len(c.payload), err)
		}
	}
}

// TestClosureRepliesInOneWay: what a closure or a reach replies with is what its
// manifest says; no argument changes it.
func TestClosureRepliesInOneWay(t *testing.T) {
	for _, name := range []string{"closure", "reach"} {
		for _, flags := range []string{"0", "1", "2", "4", "5", "255", "2147483649"} {
			r := &Request{Image: ready(t, name), Table: &cluster.Table{Name: "web", Kind: cluster.CSR, Rows: 3}, Args: map[string]string{"vertices": "1", "flags": flags}}
			if _, err := r.payload(); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "flags") {
				t.Errorf("%s with flags %s: %v", name, flags, err)
			}
		}
	}
}

// TestPayloadFits: what cannot travel is refused with the way out, to the byte.
func TestPayloadFits(t *testing.T) {
	for size, good := range map[int]bool{0: true, travel.MaxDataBytes: true, travel.MaxDataBytes + 1: false} {
		r := &Request{Image: ready(t, "echo"), Payload: make([]byte, size)}
		if _, err := r.payload(); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "60416") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	r := &Request{Image: ready(t, "closure"), Table: &cluster.Table{Name: "web", Kind: cluster.CSR, Rows: 3}, Args: map[string]string{"vertices": strings.Repeat("1,", travel.MaxDataBytes)}}
	if _, err := r.payload(); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "mem load") {
		t.Errorf("arguments: %v", err)
	}
}

// TestRawAnswers: bytes without a schema have two ways to be written.
func TestRawAnswers(t *testing.T) {
	a := &Answer{Raw: []byte("hello")}
	for format, want := range map[batch.Format]string{batch.Raw: "hello", batch.JSON: "{\"raw\":\"aGVsbG8=\"}\n",
		batch.CSV: "", batch.NDJSON: "", batch.Table: ""} {
		var out bytes.Buffer
		err := a.Write(&out, format)
		if out.String() != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", format, out.String(), err)
		}
		if early := CheckFormat(ready(t, "echo"), format); (early == nil) != (want != "") {
			t.Errorf("%s: known beforehand: %v", format, early)
		}
		if err := CheckFormat(ready(t, "sum"), format); err != nil {
			t.Error(err)
		}
	}
}

// TestStartsAtOwner: the row by which a function starts comes with its payload,
// however that was made.
func TestStartsAtOwner(t *testing.T) {
	starting := func(typ schema.Type) *image.Image {
		code := ready(t, "echo").Entries()
		nine := "9"
		params := &schema.Schema{Fields: []schema.Field{{Name: "flags", Type: schema.U8}, {Name: "at", Type: typ, Default: &nine}}}
		img, err := image.Build(image.Manifest{Name: "go", Start: image.StartOwner, OwnerParam: "at", Params: params, ResultForm: image.ResultRaw}, code...)
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	split := cluster.Sharding{Kind: cluster.Cyclic, Elements: 3, Rows: 10}
	table := &cluster.Table{Name: "log", Kind: cluster.Records, Rows: 10, Sharding: split, Shards: make([]cluster.Shard, 3),
		Schema: schema.Schema{Fields: []schema.Field{{Name: "a", Type: schema.U64}}}}
	for _, c := range []struct {
		typ     schema.Type
		args    map[string]string
		payload []byte
		element uint32
		says    string // "": it starts at element
	}{
		{schema.U64, map[string]string{"flags": "1", "at": "0x7"}, nil, 1, ""},
		{schema.U16, map[string]string{"flags": "1"}, nil, 0, ""},
		{schema.U16, nil, []byte{1, 0, 8, 0}, 2, ""},
		{schema.U16, nil, []byte{1, 0, 7, 0, 'm', 'o', 'r', 'e'}, 1, ""},
		{schema.U64, nil, []byte{1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0}, 1, ""},
		{schema.U64, nil, []byte{1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 1}, 0, "at: there is no row 72057594037927940: those of log go from 0 to 9"},
		{schema.I32, nil, []byte{1, 0, 0, 0, 255, 255, 255, 255}, 0, "at: there is no row -1"},
		{schema.I32, nil, []byte{1, 0, 0, 0, 5, 0, 0}, 0, "go: the payload has 7 bytes, its parameters (flags:u8,at:i32=9) take 8"},
		{schema.I32, nil, []byte{}, 0, "the payload has 0 bytes"},
		{schema.U8, map[string]string{"flags": "1", "at": "10"}, nil, 0, "at: there is no row 10: those of log go from 0 to 9"},
	} {
		r := &Request{Image: starting(c.typ), Table: table, Args: c.args, Payload: c.payload}
		payload, err := r.payload()
		var roots []inject.Root
		if err == nil {
			roots, err = r.roots(payload)
		}
		switch {
		case c.says != "":
			if !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, %v: %v, want %q", c.args, c.payload, err, c.says)
			}
		case err != nil || len(roots) != 1 || roots[0].Element != c.element:
			t.Errorf("%v, %v: it starts at %v, want element %d (%v)", c.args, c.payload, roots, c.element, err)
		}
	}
}

// TestRowsOfAnother: a function whose manifest names the rows that it reads is refused on others, with both named.
func TestRowsOfAnother(t *testing.T) {
	fields := func(text string) schema.Schema {
		s, err := schema.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return *s
	}
	want := fields("at:i64,level:bytes4")
	echo := xrdma.Echo()
	entry, _ := echo.Entry(image.Wasm, "")
	img, err := image.Build(image.Manifest{Name: "tail", Start: image.StartFirst, ResultForm: image.ResultRaw, Rows: &want, Imports: echo.Manifest().Imports}, entry)
	if err != nil {
		t.Fatal(err)
	}
	records := func(text string) *cluster.Table {
		return &cluster.Table{Name: "log", Kind: cluster.Records, Rows: 3, Schema: fields(text)}
	}
	for _, c := range []struct {
		table *cluster.Table
		says  string // "": it is taken
	}{
		{records("at:i64,level:bytes4"), ""},
		{records("at:u64,level:bytes4"), "tail needs rows of at:i64,level:bytes4; those of log are at:u64,level:bytes4: load what it needs as a dataset of its own (wherry mem load --packed --schema at:i64,level:bytes4)"},
		{records("level:bytes4,at:i64"), "are level:bytes4,at:i64"},
		{records("at:i64"), "are at:i64"},
		{records("at:i64,level:bytes4,more:u8"), "are at:i64,level:bytes4,more:u8"},
		{records("when:i64,level:bytes4"), "are when:i64,level:bytes4"},
		{&cluster.Table{Name: "web", Kind: cluster.CSR, Rows: 3}, "tail needs rows of at:i64,level:bytes4; web is a graph"},
		{&cluster.Table{Name: "blob", Kind: cluster.Raw, Rows: 3}, "those of blob have no fields"},
		{nil, "tail needs rows of at:i64,level:bytes4, and a node alone has no data"},
	} {
		_, err := (&Request{Image: img, Table: c.table}).payload()
		if (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%+v: %v", c.table, err)
		}
	}
}

// TestFunctionsOfABI1: they find all windows in their memory, as graphs and rows of fixed width lie there; columns they do not know, whatever their manifest says.
func TestFunctionsOfABI1(t *testing.T) {
	entry, _ := xrdma.Echo().Entry(image.Wasm, "")
	for _, m := range []image.Manifest{{}, {Windows: []image.Window{{Name: image.ColumnsWindow}}}, {Windows: []image.Window{{Name: "rows"}}}} {
		for version := uint32(1); version <= 2; version++ {
			m.Name, m.ABI, m.Start, m.ResultForm, m.Imports = "old", version, image.StartFirst, image.ResultRaw, xrdma.Echo().Manifest().Imports
			img, err := image.Build(m, entry)
			if err != nil {
				t.Fatal(err)
			}
			plain := len(m.Windows) == 0
			for kind, taken := range map[cluster.Kind]bool{
				cluster.Records: plain || m.Windows[0].Name == "rows", cluster.CSR: plain || m.Windows[0].Name == "rows", cluster.Columns: version == 2 && (plain || m.Windows[0].Name != "rows"),
			} {
				_, err := (&Request{Image: img, Table: &cluster.Table{Name: "log", Kind: kind, Rows: 3}}).payload()
				if (err == nil) != taken || err != nil && !errors.Is(err, ErrRequest) {
					t.Errorf("%v of version %d on %v: %v", m.Windows, version, kind, err)
				}
				if version == 1 && kind == cluster.Columns && (err == nil || !strings.Contains(err.Error(), "log holds columns: ask it with wherry query, write the function with wherry_columns.h")) {
					t.Errorf("%v: %v", m.Windows, err)
				}
			}
		}
	}
}

// TestFunctionsOfColumns: a function that reads columns gets the number of each that a parameter names, and how its values lie; rows with text
// are refused to one that wants them as C structs.
func TestFunctionsOfColumns(t *testing.T) {
	params, err := schema.Parse("of:column=user,by:column")
	if err != nil {
		t.Fatal(err)
	}
	params.Fields[1].OneOf = []string{"integer"}
	text, err := schema.Parse("at:i64,level:str")
	if err != nil {
		t.Fatal(err)
	}
	echo := xrdma.Echo()
	entry, _ := echo.Entry(image.Wasm, "")
	build := func(m image.Manifest) *image.Image {
		m.Name, m.Start, m.ResultForm, m.Imports = "mine", image.StartFirst, image.ResultRaw, echo.Manifest().Imports
		img, err := image.Build(m, entry)
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	reads := build(image.Manifest{Params: params, Windows: []image.Window{{Name: image.ColumnsWindow}}})
	rows := build(image.Manifest{Rows: text})
	if !reads.Call().Maps(17) || build(image.Manifest{Windows: []image.Window{{Name: "rows"}}}).Call().Maps(1) {
		t.Error("a function that reads columns has all windows, another one those that it lists")
	}
	columns, err := column.ParseList("when:timestamp[ms, UTC],user:utf8,n:u16,price:decimal128(9, 2),tags:list<utf8>,day:date32,ok:bool,id:bytes3")
	if err != nil {
		t.Fatal(err)
	}
	table := &cluster.Table{Name: "log", Kind: cluster.Columns, Columns: columns}
	records := &cluster.Table{Name: "log", Kind: cluster.Records, Schema: schema.Schema{Fields: []schema.Field{{Name: "n", Type: schema.U64}}}}
	for _, c := range []struct {
		image  *image.Image
		table  *cluster.Table
		of, by string
		want   []uint32
		says   string
	}{
		{reads, table, "", "n", []uint32{1, 12, 2, 6}, ""},
		{reads, table, "when", "when", []uint32{0, 4, 0, 4}, ""},
		{reads, table, "price", "day", []uint32{3, 65536 + 16, 5, 3}, ""},
		{reads, table, "ok", "n", []uint32{6, 11, 2, 6}, ""},
		{reads, table, "id", "n", []uint32{7, 65536 + 3, 2, 6}, ""},
		{reads, table, "usr", "n", nil, `the dataset has no column "usr"; did you mean "user"?`},
		{reads, table, "tags", "n", nil, `the values of column "tags" are lists or structs`},
		{reads, table, "n", "user", nil, "by: column user is of type str; it must be one of integer"},
		{reads, records, "n", "n", nil, "mine reads columns; log is of kind records: load a csv (without --packed)"},
		{reads, nil, "n", "n", nil, "mine reads columns, and a node alone has no data"},
		{rows, table, "", "", nil, "write the function with wherry_columns.h"},
		{rows, records, "", "", nil, "rows with text are columns now: write it with wherry_columns.h"},
	} {
		r := &Request{Image: c.image, Table: c.table}
		if c.by != "" {
			r.Args = map[string]string{"by": c.by}
		}
		if c.of != "" {
			r.Args["of"] = c.of
		}
		b, err := r.payload()
		if (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s %s: %v, want %q", c.of, c.by, err, c.says)
			continue
		}
		for i, want := range c.want {
			if got := binary.LittleEndian.Uint32(b[4*i:]); got != want {
				t.Errorf("%s %s: word %d is %d, want %d", c.of, c.by, i, got, want)
			}
		}
	}
}

// TestSplitNames: a list of names is split at commas and white space, but for what stands in quotes.
func TestSplitNames(t *testing.T) {
	for text, want := range map[string][]string{
		"a,b c": {"a", "b", "c"}, " a ,\t\n": {"a"}, "": nil, " ,": nil, `"Alan Turing","x,y"`: {"Alan Turing", "x,y"}, `""`: {""}, `a" "b`: {"a b"}, "é#1": {"é#1"},
	} {
		if got := splitNames(text); !slices.Equal(got, want) {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// TestNamedSchema: a result gets a field for the name of each of its vertices, behind those that it has.
func TestNamedSchema(t *testing.T) {
	row := func(name string) schema.Field {
		return schema.Field{Name: name, Type: schema.U32, OneOf: []string{schema.RowNumber}, Merge: schema.MergeKey}
	}
	wide, rows := namedSchema(&schema.Schema{Fields: []schema.Field{{Name: "step", Type: schema.U32, Merge: schema.MergeKey}, row("vertex"), row("to"), row("name")}})
	if got := wide.String(); got != "step:u32,vertex:u32,to:u32,name:u32,to_name:str,name_name:str" || !slices.Equal(rows, []int{2, 3}) || wide.ValidateResult() != nil {
		t.Errorf("%s, %v, %v", got, rows, wide.ValidateResult())
	}
}
