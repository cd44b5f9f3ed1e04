package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/node"
	"github.com/wherry-fabric/wherry/schema"
)

func parseSchema(t testing.TB, text string) *schema.Schema {
	t.Helper()
	s, err := schema.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const peopleSchema = "id:u32,name:str,score:f64"

// people is a CSV file of n rows, without its header.
func people(n int) string {
	var b strings.Builder
	for i := range n {
		name := fmt.Sprintf("person %d", i)
		if i%7 == 3 {
			name = "" // empty text
		}
		fmt.Fprintf(&b, "%d,%s,%g\n", i, name, float64(i)/8)
	}
	return b.String()
}

func csvOptions(t testing.TB, spread dataset.Spread) dataset.Options {
	return dataset.Options{Format: dataset.CSV, Header: true, Schema: parseSchema(t, peopleSchema), Spread: spread}
}

const peopleHeader = "id,name,score\n"

// nameless finds the column name.
var nameless = regexp.MustCompile(`,[^,\n]*,`)

func (b *bench) lent() int64 {
	total := int64(0)
	for _, n := range b.nodes {
		total += n.Element().LentBytes()
	}
	return total
}

func readCSV(t testing.TB, c *Client, name string, o ReadOptions) string {
	t.Helper()
	var out bytes.Buffer
	o.Format = batch.CSV
	if err := c.Read(t.Context(), name, o, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func sortedLines(s string) string {
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestLoadAndReadBack(t *testing.T) {
	const rows = 5000
	overEach(t, func(t *testing.T, scheme string) {
		b := newBench(t, scheme, "n1", "n2", "n3")
		c := b.connect(t, tokenOwner)
		for name, spread := range map[string]dataset.Spread{"block": {}, "cyclic": {Kind: cluster.Cyclic}, "hash": {Kind: cluster.Hash}, "keyed": {Kind: cluster.Hash, Key: "id"}} {
			var phases []string
			o, want := csvOptions(t, spread), peopleHeader+people(rows)
			if name == "cyclic" || name == "hash" { // which columns are not
				o.Schema, o.Packed, want = parseSchema(t, "id:u32,score:f64"), true, nameless.ReplaceAllString(want, ",")
			}
			report, err := c.Load(t.Context(), LoadSpec{Name: name, Input: dataset.NewText("people.csv", []byte(peopleHeader+people(rows))), Options: o},
				func(p LoadProgress) {
					if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
						phases = append(phases, p.Phase)
					}
				})
			if err != nil {
				t.Fatal(name, err)
			}
			if report.Table.Rows != rows || len(report.Table.Shards) != 3 {
				t.Errorf("%s: %+v", name, report.Table)
			}
			if fmt.Sprint(phases) != "[scan fill commit]" {
				t.Errorf("%s: phases %v", name, phases)
			}
			got := readCSV(t, c, name, ReadOptions{})
			if name == "keyed" {
				got, want = sortedLines(got), sortedLines(want)
			}
			if got != want {
				t.Errorf("%s: %d bytes came back of %d", name, len(got), len(want))
			}
		}
		if part := readCSV(t, c, "cyclic", ReadOptions{First: 4990, Count: 3}); part != "id,score\n4990,623.75\n4991,623.875\n4992,624\n" {
			t.Errorf("a few rows: %q", part)
		}
		list, err := c.List(t.Context())
		if err != nil || len(list) != 4 || list[0].Lost != nil || list[0].Unreachable != nil || list[0].Owner != tokenOwner {
			t.Errorf("%d datasets, %v", len(list), err)
		}
		for _, d := range list {
			if err := c.Remove(t.Context(), d.Name); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Stat(t.Context(), "block"); !errors.Is(err, cluster.ErrNotFound) {
			t.Errorf("after it was removed: %v", err)
		}
		waitFor(t, "all memory is free", func() bool { return b.lent() == 0 && c.Element().LentBytes() == 0 })
	})
}

// write puts a file below the bench's data root.
func (b *bench) write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadAtNodes(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b := newBench(t, scheme, "n1", "n2", "n3")
		c := b.connect(t, tokenOwner)
		text := people(3000)
		cut := strings.Index(text, "1000,")
		b.write(t, "one.csv", peopleHeader+text[:cut])
		b.write(t, "two.csv", peopleHeader+text[cut:])
		format := control.FileOptions{Header: true, Schema: parseSchema(t, peopleSchema)}
		seen := map[string]bool{}
		report, err := c.Load(t.Context(), LoadSpec{Name: "both", At: []Source{{"n2", "one.csv"}, {"n1", filepath.Join(b.dir, "two.csv")}}, Format: format},
			func(p LoadProgress) { seen[p.Node] = true })
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(report.Table.Sharding.Bounds) != "[0 1000 3000]" || report.Table.Shards[0].Element != "n2" {
			t.Errorf("%+v", report.Table)
		}
		if !seen["n1"] || !seen["n2"] {
			t.Errorf("progress of %v only", seen)
		}
		if got := readCSV(t, c, "both", ReadOptions{}); got != peopleHeader+text {
			t.Errorf("%d bytes came back of %d", len(got), len(text))
		}
		b.write(t, "edges.el", "0 1\n1 2\n2 0\n")
		if report, err = c.Load(t.Context(), LoadSpec{Name: "graph", At: []Source{{"n3", "edges.el"}}}, nil); err != nil || report.Edges != 3 || report.Table.Kind != cluster.CSR {
			t.Errorf("a graph: %+v, %v", report, err)
		}
		var out bytes.Buffer
		if err := c.ReadWindow(t.Context(), "graph", 0, cluster.FwdTargetsWindow, &out); err != nil || !bytes.Equal(out.Bytes(), []byte{1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}) {
			t.Errorf("the graph's edges: %x, %v", out.Bytes(), err)
		}
		if err := c.Read(t.Context(), "graph", ReadOptions{Format: batch.CSV}, &out); !errors.Is(err, ErrKind) {
			t.Errorf("rows of a graph: %v", err)
		}
	})
}

// nothingLeft checks that a failed load has freed everything and the name.
func (b *bench) nothingLeft(t testing.TB, c *Client, name string) {
	t.Helper()
	waitFor(t, "a failed load's memory is free", func() bool { return b.lent() == 0 && c.Element().LentBytes() == 0 })
	if _, err := c.Stat(t.Context(), name); !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("%s after it failed: %v", name, err)
	}
}

func TestLoadsThatFail(t *testing.T) {
	b := newBench(t, "tcp", "n1", "n2")
	c := b.connect(t, tokenOwner)
	outside := filepath.Join(t.TempDir(), "secret.csv")
	os.WriteFile(outside, []byte(peopleHeader+people(1)), 0o600)
	os.Symlink(outside, filepath.Join(b.dir, "link.csv"))
	os.Symlink(filepath.Dir(outside), filepath.Join(b.dir, "dir"))
	os.Mkdir(filepath.Join(b.dir, "folder.csv"), 0o700)
	b.write(t, "good.csv", peopleHeader+people(100))
	b.write(t, "plain", people(1))
	b.write(t, "bad.csv", peopleHeader+people(40)+"40,x,not a number\n")
	b.write(t, "other.csv", "id,name,score\n1,2,3\n")
	format := control.FileOptions{Header: true, Schema: parseSchema(t, peopleSchema)}
	b.write(t, "worse.csv", peopleHeader+"40,x,not a number\n"+people(40))
	one := format
	one.SkipBad = 1
	at := func(sources ...Source) LoadSpec { return LoadSpec{Name: "x", At: sources, Format: format} }
	local := func(text string) LoadSpec {
		return LoadSpec{Name: "x", Input: dataset.NewText("people.csv", []byte(peopleHeader+text)), Options: csvOptions(t, dataset.Spread{})}
	}
	for name, tc := range map[string]struct {
		spec LoadSpec
		want error
		says []string
	}{
		"a broken line here":      {local(people(10) + "10,x\n"), nil, []string{"people.csv", "12", "2 columns"}},
		"a broken line at a node": {at(Source{"n1", "good.csv"}, Source{"n2", "bad.csv"}), dataset.ErrInput, []string{"node n2", "bad.csv", "42", "score", "not a number"}},
		"a broken line at each of two nodes, one allowed": {LoadSpec{Name: "x", At: []Source{{"n1", "worse.csv"}, {"n2", "bad.csv"}}, Format: one},
			dataset.ErrInput, []string{"more than 1 bad line (--skip-bad); the first: node n", "not a number"}},
		"out by dots":             {at(Source{"n1", "../" + filepath.Base(outside)}), control.ErrPath, []string{"node n1", "outside of the data roots"}},
		"out by an absolute path": {at(Source{"n1", outside}), control.ErrPath, []string{outside, "--data-root"}},
		"out by a link":           {at(Source{"n1", "link.csv"}), control.ErrPath, []string{"node n1", "link.csv"}},
		"out by a linked folder":  {at(Source{"n1", "dir/secret.csv"}), control.ErrPath, nil},
		"a folder":                {at(Source{"n1", "folder.csv"}), control.ErrPath, []string{"it is a folder"}},
		"no such file":            {at(Source{"n1", "absent.csv"}), dataset.ErrInput, []string{"node n1: dataset: bad input: absent.csv: no such file"}},
		"a byte that ends paths":  {at(Source{"n1", "good.csv\x00"}), control.ErrPath, nil},
		"unknown format":          {at(Source{"n1", "plain"}), dataset.ErrOptions, []string{"format"}},
		"too large":               {LoadSpec{Name: "x", Blank: &Blank{Sizes: []uint64{100 << 20}}}, control.ErrMemory, []string{"node n", "MiB", "free"}},
		"the same node twice":     {at(Source{"n1", "good.csv"}, Source{"n1", "good.csv"}), control.ErrRequest, []string{"twice"}},
		"no source":               {LoadSpec{Name: "x"}, control.ErrRequest, []string{"source"}},
		"a bad name":              {LoadSpec{Name: "../x", Blank: &Blank{}}, cluster.ErrName, nil},
		"an unknown node":         {LoadSpec{Name: "x", Nodes: []string{"n9"}, Blank: &Blank{Sizes: []uint64{1}}}, control.ErrNoNode, []string{"n9"}},
		"too many windows":        {LoadSpec{Name: "x", Blank: &Blank{Sizes: make([]uint64, 99)}}, control.ErrRequest, []string{"99 windows"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Load(t.Context(), tc.spec, nil)
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Fatalf("%v, want %v", err, tc.want)
			}
			for _, s := range tc.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if tc.want != cluster.ErrName {
				b.nothingLeft(t, c, "x")
			}
		})
	}
}

func TestSchemasMustAgree(t *testing.T) {
	b := newBench(t, "tcp", "n1", "n2")
	c := b.connect(t, tokenOwner)
	b.write(t, "a.csv", "id,n\n1,2\n")
	b.write(t, "b.csv", "id,m\n1,2\n")
	_, err := c.Load(t.Context(), LoadSpec{Name: "x", At: []Source{{"n1", "a.csv"}, {"n2", "b.csv"}}, Format: control.FileOptions{Header: true, Types: []schema.Type{schema.U32, schema.U32}}}, nil)
	if !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), `n2:b.csv against n1:a.csv: column "n" is missing`) {
		t.Errorf("%v", err)
	}
	b.nothingLeft(t, c, "x")
	b.write(t, "c.csv", "n,id\nx,1\n")
	b.write(t, "d.csv", "id,n\n2,y\n")
	_, err = c.Load(t.Context(), LoadSpec{Name: "x", At: []Source{{"n1", "c.csv"}, {"n2", "d.csv"}}}, nil)
	if !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), `n2:d.csv against n1:c.csv: column "n" is number 2, not 1; they are the same in another order: write the columns of all these files in one order, or load them from here (without --at)`) {
		t.Errorf("%v", err)
	}
	b.nothingLeft(t, c, "x")
}

func TestTwoClientsLoadTheSameName(t *testing.T) {
	b := newBench(t, "tcp", "n1", "n2", "n3")
	clients := []*Client{b.connect(t, tokenOwner), b.connect(t, tokenOther)}
	for round := range 5 {
		name := fmt.Sprintf("round%d", round)
		errs := make([]error, len(clients))
		var wg sync.WaitGroup
		for i, c := range clients {
			wg.Go(func() {
				_, errs[i] = c.Load(t.Context(), LoadSpec{Name: name, Input: dataset.NewText("people.csv", []byte(peopleHeader+people(20000))), Options: csvOptions(t, dataset.Spread{})}, nil)
			})
		}
		wg.Wait()
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
				readCSV(t, clients[i], name, ReadOptions{Count: 1})
			} else if !errors.Is(err, cluster.ErrExists) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if won != 1 {
			t.Errorf("%s: %d of 2 loads succeeded: %v", name, won, errs)
		}
	}
}

func TestReplace(t *testing.T) {
	b := newBench(t, "tcp", "n1", "n2", "n3")
	c := b.connect(t, tokenOwner)
	load := func(c *Client, rows int, replace bool, nodes ...string) error {
		_, err := c.Load(t.Context(), LoadSpec{Name: "x", Replace: replace, Nodes: nodes, Input: dataset.NewText("p.csv", []byte(peopleHeader+people(rows))), Options: csvOptions(t, dataset.Spread{})}, nil)
		return err
	}
	if err := load(c, 100, false, "n1", "n2", "n3"); err != nil {
		t.Fatal(err)
	}
	if err := load(c, 50, false); !errors.Is(err, cluster.ErrExists) {
		t.Errorf("without replace: %v", err)
	}
	if err := load(b.connect(t, tokenOther), 50, true); !errors.Is(err, cluster.ErrForbidden) {
		t.Errorf("by somebody else: %v", err)
	}
	if err := c.Grant(t.Context(), "x", tokenReader, "r"); err != nil {
		t.Fatal(err)
	}
	before, err := c.Reader(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := load(c, 50, true, "n3"); err != nil {
		t.Fatal(err)
	}
	d, err := c.Stat(t.Context(), "x")
	if err != nil || d.Version != 2 || len(d.Table.Shards) != 1 || d.Lost != nil || d.Unreachable != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if got := readCSV(t, b.connect(t, tokenReader), "x", ReadOptions{}); got != peopleHeader+people(50) {
		t.Errorf("the reader's grant did not stay: %d bytes", len(got))
	}
	if err := before.ReadAt(t.Context(), 0, 0, make([]byte, 1), 0); err == nil {
		t.Error("keys of the replaced version still work")
	}
	for _, n := range []string{"n1", "n2"} {
		if got := b.nodes[n].Element().LentBytes(); got != 0 {
			t.Errorf("%s still lends %d bytes of the replaced version", n, got)
		}
	}
}

// What a load made visible before it failed is taken back, though a node that did not
// answer has used up the load's time.
func TestRetractWithoutTime(t *testing.T) {
	b := newBench(t, "tcp", "n1", "n2")
	c := b.connect(t, tokenOwner)
	spec := LoadSpec{Name: "x", Blank: &Blank{Rows: 2, Sizes: []uint64{8}}}
	report, err := c.Load(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &loading{c: c, spec: spec, version: report.Table.Version}
	for _, n := range []string{"n1", "n2"} {
		l.nodes = append(l.nodes, &target{name: n, ep: c.links.Endpoint(n)})
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	l.retract(over)
	b.nothingLeft(t, c, "x")
}

// remote is the first window at n2, as a client may use it.
func remote(t *testing.T, c *Client, rights string, edit func(*fabric.Key)) *fabric.Remote {
	t.Helper()
	table, err := c.Table(t.Context(), "w", rights)
	if err != nil {
		t.Fatal(err)
	}
	ep, err := c.Endpoint(t.Context(), "n2")
	if err != nil {
		t.Fatal(err)
	}
	key := table.Shards[1].Windows[0].Key
	if edit != nil {
		edit(&key)
	}
	m, err := ep.Import(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRights(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b := newBench(t, scheme, "n1", "n2")
		owner, reader, other := b.connect(t, tokenOwner), b.connect(t, tokenReader), b.connect(t, tokenOther)
		ctx := t.Context()
		if _, err := owner.Load(ctx, LoadSpec{Name: "w", Writable: true, Blank: &Blank{Rows: 2, Sizes: []uint64{4096, 100}}}, nil); err != nil {
			t.Fatal(err)
		}
		forbidden := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, cluster.ErrForbidden) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := reader.Load(ctx, LoadSpec{Name: "v", Blank: &Blank{Sizes: []uint64{1}}}, nil)
		forbidden("a load without capability write", err)
		if list, err := reader.List(ctx); err != nil || len(list) != 0 {
			t.Errorf("before a grant: %v, %v", list, err)
		}
		for _, c := range []*Client{reader, other} {
			_, err := c.Table(ctx, "w", "")
			forbidden("before a grant", err)
		}
		forbidden("a grant by somebody else", other.Grant(ctx, "w", tokenOther, "rw"))
		for to, r := range map[string]string{tokenReader: "r", tokenOther: "rwa"} {
			if err := owner.Grant(ctx, "w", to, r); err != nil {
				t.Fatal(err)
			}
		}
		w, r := remote(t, other, "", nil), remote(t, reader, "", nil)
		if err := w.Put(ctx, []byte("hello"), 8); err != nil {
			t.Errorf("a granted Put: %v", err)
		}
		var buf [5]byte
		if err := r.Get(ctx, buf[:], 8); err != nil || string(buf[:]) != "hello" {
			t.Errorf("%q, %v", buf, err)
		}
		forged := remote(t, reader, "r", func(k *fabric.Key) { k.Rights = fabric.RightsAll })
		for _, m := range []*fabric.Remote{r, forged} {
			if err := m.Put(ctx, buf[:], 0); !errors.Is(err, fabric.ErrRights) {
				t.Errorf("a Put with a reader's key: %v", err)
			}
		}
		_, err = reader.Table(ctx, "w", "rw")
		forbidden("more rights than granted", err)
		if err := owner.Grant(ctx, "w", tokenOther, "none"); err != nil {
			t.Fatal(err)
		}
		if err := w.Put(ctx, []byte("again"), 8); !errors.Is(err, fabric.ErrRevoked) {
			t.Errorf("a Put after the grant was taken away: %v", err)
		}
		if err := r.Get(ctx, buf[:], 8); err != nil || string(buf[:]) != "hello" {
			t.Errorf("another principal's key: %q, %v", buf, err)
		}
		err = other.Remove(ctx, "w")
		if forbidden("a removal by somebody else", err); err == nil || !strings.Contains(err.Error(), `only its owner "ann" or an admin can remove it`) {
			t.Errorf("a removal by somebody else: %v", err)
		}
		if err := b.connect(t, tokenAdmin).Remove(ctx, "w"); err != nil {
			t.Errorf("an admin: %v", err)
		}
	})
}

func TestSealedDatasetsCannotBeWritten(t *testing.T) {
	b := newBench(t, "tcp", "n1", "n2")
	c := b.connect(t, tokenOwner)
	if _, err := c.Load(t.Context(), LoadSpec{Name: "w", Blank: &Blank{Rows: 2, Sizes: []uint64{4096}}}, nil); err != nil {
		t.Fatal(err)
	}
	for _, edit := range []func(*fabric.Key){nil, func(k *fabric.Key) { k.Rights, k.Sealed = fabric.RightsAll, false }} {
		if err := remote(t, c, "", edit).Put(t.Context(), []byte("x"), 0); !errors.Is(err, fabric.ErrRights) {
			t.Errorf("the owner's own Put: %v", err)
		}
	}
	if err := c.Grant(t.Context(), "w", tokenOther, "w"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.connect(t, tokenOther).Table(t.Context(), "w", ""); !errors.Is(err, cluster.ErrForbidden) || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("who may only write a sealed dataset: %v", err)
	}
}

func TestCancelledLoadLeavesNothing(t *testing.T) {
	b := newBench(t, "tcp", "n1", "n2")
	c := b.connect(t, tokenOwner)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := c.Load(ctx, LoadSpec{Name: "x", Input: dataset.NewText("p.csv", []byte(peopleHeader+people(100000))), Options: csvOptions(t, dataset.Spread{})}, func(p LoadProgress) {
		if p.Phase == string(dataset.PhaseFill) {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	b.nothingLeft(t, c, "x")
}

func TestClientThatIsGoneLeavesNothing(t *testing.T) {
	b := newBench(t, "tcp", "n1", "n2")
	c := b.connect(t, tokenOwner)
	other := b.connect(t, tokenOther)
	l := &loading{c: c, spec: LoadSpec{Name: "x", Blank: &Blank{Rows: 1, Sizes: []uint64{1 << 20}}}, id: control.LoadID(strings.Repeat("a", 32)), progress: func(LoadProgress) {}, report: &LoadReport{}}
	begin := func() *cluster.Table {
		t.Helper()
		if err := l.check(); err != nil {
			t.Fatal(err)
		}
		for _, n := range l.nodes {
			n.ep, _ = c.Endpoint(t.Context(), n.name)
		}
		if err := l.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		table, err := l.blank(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	table := begin()
	if b.lent() == 0 {
		t.Fatal("nothing is lent")
	}
	if _, err := other.Load(t.Context(), LoadSpec{Name: "x", Blank: &Blank{Sizes: []uint64{1}}}, nil); !errors.Is(err, cluster.ErrExists) || !strings.Contains(err.Error(), tokenOwner) {
		t.Errorf("a name that is being loaded: %v", err)
	}
	// Both nodes are prepared, one has published: then the client dies.
	enc, err := table.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.each(func(n *target) error {
		_, err := ask[control.Nothing](t.Context(), c, n.ep, control.CallPrepare, control.PrepareRequest{Load: l.id, Table: enc})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := ask[control.Nothing](t.Context(), c, l.nodes[0].ep, control.CallCommit, control.LoadRequest{Load: l.id}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	waitFor(t, "the other node has published it too", func() bool {
		_, err := b.nodes["n2"].Catalog().Get(cluster.Principal{Name: tokenOwner, Caps: cluster.CapsAll}, "x", 0)
		return err == nil
	})
	// Prepared everywhere, published nowhere.
	c = b.connect(t, tokenOwner)
	if err := c.Remove(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	l.c, l.nodes, l.id = c, nil, control.LoadID(strings.Repeat("b", 32))
	if enc, err = begin().Encode(); err != nil {
		t.Fatal(err)
	}
	if err := l.each(func(n *target) error {
		_, err := ask[control.Nothing](t.Context(), c, n.ep, control.CallPrepare, control.PrepareRequest{Load: l.id, Table: enc})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	waitFor(t, "all memory is free", func() bool { return b.lent() == 0 })
	if _, err := other.Stat(t.Context(), "x"); !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// slowInput is read a little at a time, but for the first reading, which checks it.
type slowInput struct {
	dataset.Input
	opened int
}

type slowStream struct{ dataset.Stream }

func (s *slowInput) Open() (dataset.Stream, error) {
	in, err := s.Input.Open()
	if s.opened++; s.opened == 1 {
		return in, err
	}
	return slowStream{in}, err
}

func (s slowStream) Read(p []byte) (int, error) {
	time.Sleep(40 * time.Millisecond)
	return s.Stream.Read(p[:min(len(p), 1000)])
}

// TestSlowLoadIsNotIdle: a load during which the input is read takes longer than nodes let one be idle. The rows of the later
// node come at its end.
func TestSlowLoadIsNotIdle(t *testing.T) {
	t.Parallel() // it waits for nodes that are silent
	b := newBench(t, "tcp")
	for i, port := range freePorts(t, 2) {
		name := fmt.Sprintf("n%d", i+1)
		b.peers = append(b.peers, cluster.Member{Name: name, Addrs: []string{b.addr(name, port)}})
	}
	for _, m := range b.peers {
		b.start(t, m, func(c *node.Config) { c.LoadTime = 600 * time.Millisecond })
	}
	c := b.connect(t, tokenOwner)
	in := &slowInput{Input: dataset.NewText("people.csv", []byte(peopleHeader+people(2500)))} // some 60 pieces, and nodes look each second
	if _, err := c.Load(t.Context(), LoadSpec{Name: "slow", Input: in, Options: csvOptions(t, dataset.Spread{})}, nil); err != nil {
		t.Fatal(err)
	}
	if got := readCSV(t, c, "slow", ReadOptions{}); !strings.Contains(got, "\n2499,") {
		t.Errorf("the last row is not there: …%s", got[max(len(got)-50, 0):])
	}
}

func TestIdleLoadIsFreed(t *testing.T) {
	b := newBench(t, "tcp")
	m := cluster.Member{Name: "n1", Addrs: []string{b.addr("n1", freePorts(t, 1)[0])}}
	b.peers = []cluster.Member{m}
	b.start(t, m, func(c *node.Config) { c.LoadTime = time.Millisecond })
	c := b.connect(t, tokenOwner)
	ep, _ := c.Endpoint(t.Context(), "n1")
	id := control.LoadID(strings.Repeat("c", 32))
	if _, err := ask[control.BeginReply](t.Context(), c, ep, control.CallBegin, control.BeginRequest{Load: id, Name: "x"}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the load is over, and another may have its name", func() bool {
		_, err := ask[control.BeginReply](t.Context(), c, ep, control.CallBegin, control.BeginRequest{Load: control.LoadID(strings.Repeat("d", 32)), Name: "x"})
		return err == nil
	})
	if _, err := ask[control.Nothing](t.Context(), c, ep, control.CallAlloc, control.AllocRequest{Load: id, Sizes: []uint64{1}}); !errors.Is(err, control.ErrLoad) {
		t.Errorf("a load that is over gets memory: %v", err)
	}
}
