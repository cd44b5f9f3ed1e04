package faulttest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/internal/child"
)

// node is an element that runs functions, wherever it is.
type node struct {
	name  string
	inc   fabric.Incarnation
	addrs []string
	own   *element       // in this process
	child *child.Process // else
	dead  bool
}

func (n *node) report(t testing.TB) report {
	t.Helper()
	if n.own != nil {
		return n.own.report()
	}
	a, err := ask(n.child, request{})
	if err != nil {
		t.Fatalf("%s: %v", n.name, err)
	}
	return a.Report
}

func (n *node) segment(t testing.TB, content []byte, rights fabric.Rights) cluster.Window {
	t.Helper()
	var w cluster.Window
	var err error
	if n.own != nil {
		w, err = n.own.segment(content, rights)
	} else {
		var a answer
		if a, err = ask(n.child, request{Lend: content, Rights: rights}); err == nil {
			var b []byte
			b, _ = hex.DecodeString(a.Key)
			w = cluster.Window{Size: uint64(len(content)), Writable: rights&fabric.RightWrite != 0}
			w.Key, err = fabric.DecodeKey(b)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (n *node) dial(t testing.TB, addr string) {
	t.Helper()
	var err error
	if n.own != nil {
		_, err = n.own.Dial(within(t, patience), addr)
	} else {
		_, err = ask(n.child, request{Dial: addr})
	}
	if err != nil {
		t.Fatalf("%s dials %s: %v", n.name, addr, err)
	}
}

// kill ends a child as kill -9 does.
func (n *node) kill() {
	n.dead = true
	n.child.Signal(syscall.SIGKILL)
}

// grid is some nodes, all connected, and a client.
type grid struct {
	t      testing.TB
	nodes  []*node
	client *element
	ep     map[string]*fabric.Endpoint // the client's, by node
	echo   *inject.Function
}

// newGrid makes n nodes n0, n1, …; those in children are processes of their
// own. adjust may change an element's settings; the client's name is "client".
func newGrid(t testing.TB, n int, children []int, adjust func(*settings)) *grid {
	t.Helper()
	g := &grid{t: t, ep: map[string]*fabric.Endpoint{}}
	for i := range n {
		s := settings{Name: fmt.Sprintf("n%d", i), Token: "cluster", Engine: true}
		if adjust != nil {
			adjust(&s)
		}
		g.add(s, contains(children, i))
	}
	s := settings{Name: "client", Token: "alice"}
	if adjust != nil {
		adjust(&s)
	}
	g.client = g.newClient(s)
	for _, n := range g.nodes {
		g.ep[n.name] = g.connect(g.client, n)
	}
	g.echo = g.prepare(g.client, xrdma.Echo(), nil)
	return g
}

// overBoth runs a test whose elements are connected by TCP, and one over shared
// memory; its change is one for newGrid.
func overBoth(t *testing.T, test func(t *testing.T, change func(*settings))) {
	t.Parallel()
	t.Run("tcp", func(t *testing.T) {
		t.Parallel()
		test(t, func(*settings) {})
	})
	t.Run("shm", func(t *testing.T) {
		t.Parallel()
		dir, err := os.MkdirTemp("", "shm") // t.TempDir's may be too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) }) // when all elements are gone: one that was killed leaves its socket
		test(t, func(s *settings) { s.Shared = dir })
	})
}

func contains(list []int, v int) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}

// add starts one more node and connects it to those that live.
func (g *grid) add(s settings, inChild bool) *node {
	g.t.Helper()
	n := &node{name: s.Name}
	if inChild {
		var info childInfo
		n.child, info = startChild(g.t, s)
		n.inc, n.addrs = fabric.Incarnation(info.Incarnation), info.Addrs
	} else {
		n.own = g.newClient(s)
		n.inc, n.addrs = n.own.Incarnation(), n.own.Addrs()
	}
	for _, other := range g.nodes {
		if !other.dead {
			n.dial(g.t, other.addrs[0])
		}
	}
	g.nodes = append(g.nodes, n)
	return n
}

// newClient makes an element in this process.
func (g *grid) newClient(s settings) *element {
	g.t.Helper()
	e, err := newElement(s)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		if err := e.close(); err != nil {
			g.t.Errorf("closing %s: %v", s.Name, err)
		}
	})
	return e
}

func (g *grid) connect(e *element, n *node) *fabric.Endpoint {
	g.t.Helper()
	ep, err := e.Dial(within(g.t, patience), n.addrs[0])
	if err != nil {
		g.t.Fatal(err)
	}
	return ep
}

// prepare makes a function that is closed with the test.
func (g *grid) prepare(e *element, img *image.Image, table *cluster.Table) *inject.Function {
	g.t.Helper()
	f, err := e.rt.Prepare(img, table)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(f.Close)
	return f
}

// table has rows u64 on each node, each a window of its own with these rights;
// row i holds next(i).
func (g *grid) table(rows int, rights fabric.Rights, next func(uint64) uint64) *cluster.Table {
	g.t.Helper()
	total := uint64(rows * len(g.nodes))
	t := &cluster.Table{Name: "words", Version: 1, Kind: cluster.Raw,
		Sharding: cluster.Sharding{Kind: cluster.Block, Elements: uint32(len(g.nodes)), Rows: total}}
	for i, n := range g.nodes {
		content := make([]byte, rows*8)
		for k := range rows {
			binary.LittleEndian.PutUint64(content[k*8:], next(uint64(i*rows+k)))
		}
		t.Shards = append(t.Shards, cluster.Shard{Element: n.name, Incarnation: n.inc, Addrs: n.addrs,
			Windows: []cluster.Window{n.segment(g.t, content, rights)}})
	}
	t.FillRows()
	return t
}

func number(i uint64) uint64 { return i }

// plain is a table for functions that read nothing.
func (g *grid) plain() *cluster.Table {
	g.t.Helper()
	return g.table(16, fabric.RightRead, number)
}

// serves checks that every node that was not killed answers, and holds nothing of earlier calls.
func (g *grid) serves() {
	g.t.Helper()
	for i, n := range g.nodes {
		if n.dead {
			continue
		}
		text := fmt.Sprint("are you there, ", i)
		got, err := g.echo.Do(within(g.t, patience), inject.Root{To: g.ep[n.name], Payload: []byte(text)}, nil)
		if err != nil || string(got) != text {
			g.t.Errorf("%s does not serve: %q, %v", n.name, got, err)
		}
	}
	g.quiet()
}

// quiet waits until no element holds anything of an invocation.
func (g *grid) quiet() {
	g.t.Helper()
	busy := func(name string, r report) string {
		s := r.Stats.Sizes
		s.Tombstones, s.Timers = 0, 0 // they end by time alone
		if s == (report{}).Stats.Sizes {
			return ""
		}
		return fmt.Sprintf("%s still holds %+v", name, s)
	}
	eventually(g.t, "an element is not quiet", func() string {
		for _, n := range g.nodes {
			if !n.dead {
				if s := busy(n.name, n.report(g.t)); s != "" {
					return s
				}
			}
		}
		return busy("the client", g.client.report())
	})
}

// order is the payload of most guests.
func order(op, a uint32, b uint64) []byte {
	p := binary.LittleEndian.AppendUint32(nil, op)
	p = binary.LittleEndian.AppendUint32(p, a)
	return binary.LittleEndian.AppendUint64(p, b)
}

// at is a root on a node, by the function's table or without one.
func (g *grid) at(i int, payload []byte) inject.Root {
	return inject.Root{To: g.ep[g.nodes[i].name], Payload: payload}
}

// says fails unless err's text has every one of the words, which name what an
// operator needs: the element, the function and the reason.
func says(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error; one with %q was expected", words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q:\n%v", w, err)
		}
	}
}

// run starts one branch and waits for the whole result.
func run(ctx context.Context, f *inject.Function, roots ...inject.Root) (*inject.Result, error) {
	fut, err := f.Start(ctx, roots, inject.Options{})
	if err != nil {
		return nil, err
	}
	return fut.Wait(context.Background())
}

// soon fails if more than d has passed since start.
func soon(t testing.TB, start time.Time, d time.Duration) {
	t.Helper()
	if took := time.Since(start); took > d {
		t.Errorf("it took %v, at most %v were expected", took, d)
	}
}

func all(r *inject.Result) []byte {
	var b bytes.Buffer
	for _, p := range r.Pieces {
		b.Write(p.Data)
	}
	return b.Bytes()
}
