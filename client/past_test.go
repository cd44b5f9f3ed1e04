package client

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/node"
	"github.com/wherry-fabric/wherry/query"
)

// again loads a version of "logs" that takes the place of the one that there is, or adds to it.
func again(t testing.TB, c *Client, from, to int, appends bool) {
	t.Helper()
	spec := csvColumns("logs", numbers(from, to))
	spec.Append, spec.Replace = appends, !appends
	if _, err := c.Load(t.Context(), spec, nil); err != nil {
		t.Error(err)
	}
}

// firstWrite does something before what is written first is taken.
type firstWrite struct {
	bytes.Buffer
	do func()
}

func (w *firstWrite) Write(p []byte) (int, error) {
	if w.do != nil {
		w.do()
		w.do = nil
	}
	return w.Buffer.Write(p)
}

// Who began to read a version reads it to its end, though it is joined with what is added, or replaced, several times meanwhile.
func TestReadersGoOn(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b := newBench(t, scheme, "n1", "n2")
		c, reader := b.connect(t, tokenOwner), b.connect(t, tokenOwner)
		for _, appends := range []bool{true, false} {
			again(t, c, 0, 300_000, false)
			r, err := reader.Reader(t.Context(), "logs")
			if err != nil {
				t.Fatal(err)
			}
			out := firstWrite{do: func() {
				for i := range 3 {
					again(t, c, i, i+100, appends)
				}
			}}
			if err := r.WriteBatches(t.Context(), ReadOptions{}, batch.CSV, &out); err != nil {
				t.Errorf("added to: %v: %v", appends, err)
			}
			if got := sortedLines(out.String()); got != sortedLines(numbers(0, 300_000)) {
				t.Errorf("added to: %v: %d lines", appends, strings.Count(got, "\n"))
			}
			found, err := invoke.Query(patient(t), reader.Runtime(), r.Table, query.Query{Agg: []string{"n=count()"}})
			if err != nil {
				t.Fatalf("added to: %v: %v", appends, err)
			}
			var n bytes.Buffer
			if err := found.Write(&n, batch.CSV); err != nil || n.String() != "n\n300000\n" {
				t.Errorf("added to: %v: %q, %v", appends, n.String(), err)
			}
		}
	})
}

// Questions beside a loop of loads have the answer of one version.
func TestQueriesBesideLoads(t *testing.T) {
	for _, appends := range []bool{true, false} {
		b := newBench(t, "shm", "n1", "n2")
		c, asker := b.connect(t, tokenOwner), b.connect(t, tokenOwner)
		again(t, c, 0, 40_000, false)
		asked := make(chan struct{})
		var loads sync.WaitGroup
		loads.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-asked:
					return
				default:
				}
				if appends {
					again(t, c, i, i+100, true)
				} else {
					again(t, c, 0, 40_000+100*(i%20), false)
				}
			}
		})
		for range 40 {
			table, err := asker.Table(t.Context(), "logs", "r")
			if err != nil {
				t.Error(err)
				break
			}
			found, err := invoke.Query(patient(t), asker.Runtime(), table, query.Query{Where: "n >= 0", Group: []string{"s"}, Agg: []string{"c=count()"}})
			if err != nil {
				t.Error(err)
				continue
			}
			if rows := found.Explanation.RowsRead; rows != table.Rows || rows < 40_000 || rows%100 != 0 {
				t.Errorf("%d rows of %d", rows, table.Rows)
			}
		}
		close(asked)
		loads.Wait()
	}
}

// What is kept for readers is gone at once when a right or the dataset is taken away, soon after they are, and when its memory is needed.
func TestPastEnds(t *testing.T) {
	b := newBench(t, "tcp", "n1")
	c, owner, guest := b.connect(t, tokenOwner), b.connect(t, tokenOwner), b.connect(t, tokenReader)
	again(t, c, 0, 1000, false)
	if err := c.Grant(t.Context(), "logs", tokenReader, "r"); err != nil {
		t.Fatal(err)
	}
	pair := func() (own, other *Reader) {
		t.Helper()
		var err error
		if own, err = owner.Reader(t.Context(), "logs"); err != nil {
			t.Fatal(err)
		}
		if other, err = guest.Reader(t.Context(), "logs"); err != nil {
			t.Fatal(err)
		}
		return own, other
	}
	reads := func(r *Reader) error { return r.ReadAt(t.Context(), 0, 0, make([]byte, 8), 0) }
	own, other := pair()
	again(t, c, 0, 1000, false)
	own2, other2 := pair()
	again(t, c, 1000, 1100, true)
	if err := errors.Join(reads(own), reads(other), reads(own2), reads(other2)); err != nil {
		t.Error(err)
	}
	if d, err := c.Stat(t.Context(), "logs"); err != nil || d.LentBytes != b.lent() {
		t.Errorf("the dataset takes %d bytes, lent are %d, %v", d.LentBytes, b.lent(), err)
	}
	if err := c.Grant(t.Context(), "logs", tokenReader, "none"); err != nil {
		t.Fatal(err)
	}
	for i, r := range []*Reader{other, other2} {
		if err := reads(r); !errors.Is(err, fabric.ErrRevoked) {
			t.Errorf("reader %d, whose right was taken away: %v", i, err)
		}
	}
	if err := errors.Join(reads(own), reads(own2)); err != nil {
		t.Errorf("the owner: %v", err)
	}
	if err := c.Remove(t.Context(), "logs"); err != nil {
		t.Fatal(err)
	}
	for i, r := range []*Reader{own, own2} {
		if err := reads(r); !errors.Is(err, fabric.ErrRevoked) {
			t.Errorf("reader %d of what was removed: %v", i, err)
		}
	}
	if lent := b.lent(); lent != 0 {
		t.Errorf("%d bytes are lent still", lent)
	}

	again(t, c, 0, 1000, false)
	if err := c.Grant(t.Context(), "logs", tokenReader, "r"); err != nil {
		t.Fatal(err)
	}
	lent := b.lent()
	pair()
	again(t, c, 0, 1000, false)
	if now := b.lent(); now != 2*lent {
		t.Errorf("%d bytes are lent for two versions, %d for one", now, lent)
	}
	owner.Close()
	guest.Close()
	waitFor(t, "what nobody reads is not lent", func() bool { return b.lent() == lent })
}

// A version that is kept for its readers is in nobody's way.
func TestPastYields(t *testing.T) {
	b := newBench(t, "shm")
	b.peers = newPeers(t, b, "n1")
	b.start(t, b.peers[0], func(c *node.Config) { c.Memory = 64 << 20 })
	c, reader := b.connect(t, tokenOwner), b.connect(t, tokenOwner)
	var readers []*Reader
	for i := range 4 {
		spec := LoadSpec{Name: "x", Replace: true, Blank: &Blank{Rows: 1, Sizes: []uint64{20 << 20}}}
		if _, err := c.Load(t.Context(), spec, nil); err != nil {
			t.Fatalf("version %d: %v", i, err)
		}
		r, err := reader.Reader(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	for i, r := range readers { // three of them fit
		if err := r.ReadAt(t.Context(), 0, 0, make([]byte, 8), 0); (err != nil) != (i == 0) {
			t.Errorf("version %d: %v", i, err)
		}
	}
	if _, err := c.Load(t.Context(), LoadSpec{Name: "y", Blank: &Blank{Rows: 1, Sizes: []uint64{50 << 20}}}, nil); err == nil {
		t.Error("50 MiB fit beside 20 in 64")
	}
	if err := readers[1].ReadAt(t.Context(), 0, 0, make([]byte, 8), 0); err != nil {
		t.Errorf("given up for a load that does not fit all the same: %v", err)
	}
	if _, err := c.Load(t.Context(), LoadSpec{Name: "y", Blank: &Blank{Rows: 1, Sizes: []uint64{40 << 20}}}, nil); err != nil {
		t.Error(err)
	}
	spec := LoadSpec{Name: "w", Replace: true, Writable: true, Blank: &Blank{Rows: 1, Sizes: []uint64{8}}}
	for range 2 {
		if _, err := c.Load(t.Context(), spec, nil); err != nil {
			t.Fatal(err)
		}
		r, err := reader.Reader(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	if err := readers[4].ReadAt(t.Context(), 0, 0, make([]byte, 8), 0); !errors.Is(err, fabric.ErrRevoked) {
		t.Errorf("what could be written, and was replaced: %v", err)
	}
}

// Of a version that could not be kept a reader hears that there is a new one, and a question is asked again.
func TestChangedWhileRead(t *testing.T) {
	b := newBench(t, "tcp", "n1", "n2")
	c, reader := b.connect(t, tokenOwner), b.connect(t, tokenOwner)
	load := func(rows int) {
		spec := LoadSpec{Name: "w", Replace: true, Writable: true, Input: dataset.NewText("w.csv", []byte("v\n"+strings.Repeat("7\n", rows)))}
		spec.Options = dataset.Options{Format: dataset.CSV, Schema: parseSchema(t, "v:u32"), Header: true}
		if _, err := c.Load(t.Context(), spec, nil); err != nil {
			t.Fatal(err)
		}
	}
	load(3_000_000)
	err := reader.Read(t.Context(), "w", ReadOptions{}, &firstWrite{do: func() { load(200_000) }})
	if !errors.Is(err, ErrChanged) || errors.Is(err, fabric.ErrRevoked) || !strings.Contains(err.Error(), "version 1 was read, now it is 2") {
		t.Error(err)
	}
	for changes, want := range []error{nil, nil, nil, ErrChanged} {
		err := reader.tries(patient(t), "w", func(table *cluster.Table) error {
			if changes > 0 {
				load(1000)
				changes--
			}
			_, err := invoke.Query(patient(t), reader.Runtime(), table, query.Query{Agg: []string{"n=count()"}})
			return err
		})
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	old, err := reader.Table(t.Context(), "w", "r")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{nil, fabric.ErrRights, fabric.ErrRevoked} { // it is the newest version still
		if got := reader.Changed(t.Context(), old, err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}
