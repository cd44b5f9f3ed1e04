package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/schema"
)

// Names of the datasets, and their sizes: small, so that a load is quick, and every search still crosses nodes.
const (
	chain = "chain" // rows of one u64: the next row
	web   = "web"   // a graph
	sales = "sales" // columns k and v

	chainRows   = 4096
	webVertices = 1000
	salesRows   = 3000
	salesKeys   = 7
)

// truth is what one version of the data says.
type truth struct {
	next    []uint64
	out, in [][]uint32
	keys    []int64
	values  []int64
}

// newTruth makes data from a seed: another seed gives other data of the same size.
func newTruth(seed uint64) *truth {
	r := rand.New(rand.NewPCG(seed, 99))
	t := &truth{next: make([]uint64, chainRows), out: make([][]uint32, webVertices), in: make([][]uint32, webVertices)}
	for i, to := range r.Perm(chainRows) {
		t.next[i] = uint64(to)
	}
	for v := range uint32(webVertices) {
		for range r.IntN(4) {
			to := uint32(r.IntN(webVertices))
			t.out[v], t.in[to] = append(t.out[v], to), append(t.in[to], v)
		}
	}
	for range salesRows {
		t.keys, t.values = append(t.keys, int64(r.IntN(salesKeys))), append(t.values, int64(r.IntN(1000)))
	}
	return t
}

// spec is how one of the datasets is loaded.
func (t *truth) spec(name string, nodes []string) (client.LoadSpec, error) {
	s := client.LoadSpec{Name: name, Nodes: nodes, Replace: true}
	switch name {
	case chain:
		rows, err := schema.Parse("next:u64")
		if err != nil {
			return s, err
		}
		var text []byte
		for _, to := range t.next {
			text = binary.LittleEndian.AppendUint64(text, to)
		}
		s.Input, s.Options = dataset.NewText("chain", text), dataset.Options{Format: dataset.RawFile, Schema: rows}
	case web:
		g := &dataset.CSR{Offsets: []uint64{0}}
		for _, to := range t.out {
			g.Targets = append(g.Targets, to...)
			g.Offsets = append(g.Offsets, uint64(len(g.Targets)))
		}
		plan, err := dataset.PlanCSR(g, dataset.Spread{Elements: uint32(len(nodes))})
		if err != nil {
			return s, err
		}
		s.Plan = plan
	case sales:
		var text bytes.Buffer
		text.WriteString("k,v\n")
		for i := range t.keys {
			fmt.Fprintf(&text, "%d,%d\n", t.keys[i], t.values[i])
		}
		s.Input, s.Options = dataset.NewText("sales.csv", text.Bytes()), dataset.Options{Format: dataset.CSV}
	}
	return s, nil
}

// chase is the row that a chase ends on.
func (t *truth) chase(start uint64, depth int) uint64 {
	for range depth {
		start = t.next[start]
	}
	return start
}

// closure is what can be reached, in ascending order.
func (t *truth) closure(from []uint32, against bool, depth int) []uint32 {
	edges := t.out
	if against {
		edges = t.in
	}
	seen := map[uint32]bool{}
	for _, v := range from {
		seen[v] = true
	}
	for d := 0; len(from) > 0 && (depth == 0 || d < depth); d++ {
		var more []uint32
		for _, v := range from {
			for _, to := range edges[v] {
				if !seen[to] {
					seen[to] = true
					more = append(more, to)
				}
			}
		}
		from = more
	}
	var all []uint32
	for v := range seen {
		all = append(all, v)
	}
	slices.Sort(all)
	return all
}

// below is how many rows point to a row below one.
func (t *truth) below(row uint64) (n uint64) {
	for _, to := range t.next {
		if to < row {
			n++
		}
	}
	return n
}

// sums are number and sum of the values from least on, by key.
func (t *truth) sums(least int64) (n, sum [salesKeys]int64) {
	for i, k := range t.keys {
		if t.values[i] >= least {
			n[k]++
			sum[k] += t.values[i]
		}
	}
	return n, sum
}

// library knows which version of a dataset has which data.
type library struct {
	mu    sync.Mutex
	known map[string]map[uint64]*truth
	// open are those of loads whose end is not known, by dataset: one is under way, or failed as it was being made visible.
	open map[string][]*truth
	seed uint64
}

// mostOpen bounds library.open; older loads have been replaced or have failed.
const mostOpen = 8

func newLibrary(seed uint64) *library {
	return &library{known: map[string]map[uint64]*truth{chain: {}, web: {}, sales: {}}, open: map[string][]*truth{}, seed: seed << 20}
}

// of are the truths that a version may stand for: one, if its load has ended well.
func (l *library) of(t *cluster.Table) []*truth {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.known[t.Name][t.Version]; known != nil {
		return []*truth{known}
	}
	return slices.Clone(l.open[t.Name])
}

// load puts new data on all nodes, and tries until patience has gone.
func (l *library) load(ctx context.Context, c *client.Client, nodes []string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, name := range []string{chain, web, sales} {
		for {
			err := l.loadOnce(ctx, c, name, nodes)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s was not loaded within %v: %w", name, patience, err)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

// loadOnce loads one dataset, with data that no load before had.
func (l *library) loadOnce(ctx context.Context, c *client.Client, name string, nodes []string) error {
	l.mu.Lock()
	l.seed++
	t := newTruth(l.seed)
	l.open[name] = append(l.open[name], t)
	if n := len(l.open[name]); n > mostOpen {
		l.open[name] = slices.Delete(l.open[name], 0, n-mostOpen)
	}
	l.mu.Unlock()
	spec, err := t.spec(name, nodes)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	report, err := c.Load(ctx, spec, nil)
	if err != nil {
		return err
	}
	l.loaded(name, report.Table.Version, t)
	return nil
}

// loaded notes that a load has ended well: no other version has its data.
func (l *library) loaded(name string, version uint64, t *truth) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[name][version] = t
	l.open[name] = slices.DeleteFunc(l.open[name], func(o *truth) bool { return o == t })
}
