package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
)

// numbers is a CSV file with the numbers from one on.
func numbers(from, to int) string {
	var b strings.Builder
	b.WriteString("n,s\n")
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "%d,text %d\n", i, i%7)
	}
	return b.String()
}

// sortedColumns is a dataset of columns as CSV, its lines in order.
func sortedColumns(t testing.TB, r *Reader) string {
	t.Helper()
	var out bytes.Buffer
	if err := r.WriteBatches(t.Context(), ReadOptions{}, batch.CSV, &out); err != nil {
		t.Fatal(err)
	}
	return sortedLines(out.String())
}

func csvColumns(name, data string) LoadSpec {
	return LoadSpec{Name: name, Input: dataset.NewText(name+".csv", []byte(data)), Options: dataset.Options{Format: dataset.CSV}}
}

// Rows are added as new parts; small ones are joined; who reads the version before goes on; what differs is refused and leaves nothing.
func TestAppend(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b := newBench(t, scheme, "n1", "n2")
		c := b.connect(t, tokenOwner)
		if _, err := c.Load(t.Context(), csvColumns("logs", numbers(0, 1000)), nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Grant(t.Context(), "logs", "reader", "r"); err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= 5; i++ {
			old, err := c.Reader(t.Context(), "logs")
			if err != nil {
				t.Fatal(err)
			}
			was := sortedColumns(t, old)
			spec := csvColumns("logs", numbers(1000*i, 1000*i+1000))
			spec.Append = true
			report, err := c.Load(t.Context(), spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			if report.Rows != 1000 || report.PartRows != uint64(1000*i+1000) || report.Table.Rows != uint64(1000*i+1000) || len(report.Table.Shards[0].Parts) != 1 {
				t.Errorf("%d rows of %+v", report.Rows, report.Table)
			}
			if now := sortedColumns(t, old); now != was { // it has the old keys
				t.Error("the version before has other rows now")
			}
		}
		r, err := c.Reader(t.Context(), "logs")
		if err != nil {
			t.Fatal(err)
		}
		if got := sortedColumns(t, r); got != sortedLines(numbers(0, 6000)) {
			t.Errorf("%d lines", strings.Count(got, "\n"))
		}
		d, err := c.Stat(t.Context(), "logs")
		if err != nil || d.Grants["reader"] == "" {
			t.Errorf("%+v, %v", d, err)
		}
		lent := b.lent()
		for want, spec := range map[string]LoadSpec{
			`column "m", which there is not in the first file, or the dataset`: csvColumns("logs", "n,m\n1,2\n"),
			`column n: "x" is no i64`:                     csvColumns("logs", "n,s\nx,y\n"),
			"its type is given as u8":                     {Name: "logs", Input: dataset.NewText("x.csv", []byte("n,s\n1,y\n")), Options: dataset.Options{Format: dataset.CSV, ColumnTypes: mustTypes(t, "n:u8")}},
			"load it without --append first":              csvColumns("other", numbers(0, 1)),
			"rows are added to columns, which are sealed": {Name: "logs", Replace: true, Input: dataset.NewText("x.csv", []byte("n,s\n1,y\n")), Options: dataset.Options{Format: dataset.CSV}},
		} {
			spec.Append = true
			if _, err := c.Load(t.Context(), spec, nil); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		if now := b.lent(); now != lent {
			t.Errorf("%d bytes are lent, %d were", now, lent)
		}
		if err := c.Remove(t.Context(), "logs"); err != nil {
			t.Fatal(err)
		}
		if lent := b.lent(); lent != 0 {
			t.Errorf("%d bytes are lent still", lent)
		}
	})
}

// Nodes add files of their own; one that has none keeps what it has.
func TestAppendAtNodes(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	path := b.write(t, "more.csv", numbers(100, 150))
	if _, err := c.Load(t.Context(), csvColumns("logs", numbers(0, 100)), nil); err != nil {
		t.Fatal(err)
	}
	spec := LoadSpec{Name: "logs", Append: true, At: []Source{{Node: "n2", Path: path}}, DryRun: true}
	report, err := c.Load(t.Context(), spec, nil)
	if err != nil || report.Rows != 50 || report.Table.Version != 0 {
		t.Fatalf("%+v, %v: who keeps nothing makes no version", report, err)
	}
	spec.DryRun = false
	if report, err = c.Load(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	if s := report.Table.Shards; report.Rows != 50 || s[0].Rows != 50 || s[1].Rows != 100 || len(s[1].Parts) != 1 {
		t.Errorf("%+v", report.Table)
	}
	r, err := c.Reader(t.Context(), "logs")
	if err != nil {
		t.Fatal(err)
	}
	if sortedColumns(t, r) != sortedLines(numbers(0, 150)) {
		t.Error("other rows")
	}
}

// A load that ends in its middle leaves the dataset as it was, and nothing else.
func TestAppendCancelled(t *testing.T) {
	b := newBench(t, "tcp", "n1", "n2")
	c := b.connect(t, tokenOwner)
	if _, err := c.Load(t.Context(), csvColumns("logs", numbers(0, 100)), nil); err != nil {
		t.Fatal(err)
	}
	lent := b.lent()
	ctx, cancel := context.WithCancel(t.Context())
	rows := 3_000_000
	if testing.Short() {
		rows = 500_000
	}
	spec := csvColumns("logs", numbers(100, rows))
	spec.Append = true
	_, err := c.Load(ctx, spec, func(p LoadProgress) {
		if p.Phase == string(dataset.PhaseFill) && p.Done > p.Total/2 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	waitFor(t, "nothing more is lent", func() bool { return b.lent() == lent })
	r, err := c.Reader(t.Context(), "logs")
	if err != nil {
		t.Fatal(err)
	}
	if sortedColumns(t, r) != sortedLines(numbers(0, 100)) {
		t.Error("other rows")
	}
}

// Parts of usual size are shared by the versions, not written again.
func TestAppendSharesParts(t *testing.T) {
	b := newBench(t, "shm", "n1")
	c := b.connect(t, tokenOwner)
	wide := func(from, to int) string {
		var s strings.Builder
		s.WriteString("n,s\n")
		for i := from; i < to; i++ {
			fmt.Fprintf(&s, "%d,%d%s\n", i, i, strings.Repeat("x", 400))
		}
		return s.String()
	}
	if _, err := c.Load(t.Context(), csvColumns("logs", wide(0, 30_000)), nil); err != nil {
		t.Fatal(err)
	}
	lent := b.lent()
	spec := csvColumns("logs", wide(30_000, 30_010))
	spec.Append = true
	report, err := c.Load(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(report.Table.Shards[0].Parts); n != 2 || report.Bytes > 1<<16 {
		t.Errorf("%d parts, %d bytes written", n, report.Bytes)
	}
	if now := b.lent(); now > lent+1<<17 {
		t.Errorf("%d bytes are lent, %d were", now, lent)
	}
}

func mustTypes(t testing.TB, text string) column.Schema {
	t.Helper()
	s, err := column.ParseList(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Columns are sealed, and who wants them writable hears so before they are read.
func TestWritableColumns(t *testing.T) {
	c := newBench(t, "shm", "n1").connect(t, tokenOwner)
	spec := csvColumns("logs", numbers(0, 10))
	spec.Writable = true
	progress := 0
	_, err := c.Load(t.Context(), spec, func(LoadProgress) { progress++ })
	if !errors.Is(err, control.ErrRequest) || !strings.Contains(err.Error(), "without --writable") || progress > 0 {
		t.Errorf("%v, after %d steps", err, progress)
	}
}

// Nodes make a new version visible one after the other; whoever asks for the table meanwhile waits until all have it.
func TestTableWhileAppending(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c, reader := b.connect(t, tokenOwner), b.connect(t, tokenOwner)
	if _, err := c.Load(t.Context(), csvColumns("logs", numbers(0, 100)), nil); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for i := 1; i <= 20; i++ {
			spec := csvColumns("logs", numbers(100*i, 100*i+100))
			spec.Append = true
			if _, err := c.Load(t.Context(), spec, nil); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for last := uint64(0); ; {
		table, err := reader.Table(t.Context(), "logs", "r")
		if err != nil || table.Rows%100 != 0 || table.Rows < last {
			t.Fatalf("%v after %d rows, %v", table, last, err)
		}
		last = table.Rows
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
}

// TestAppendOften: rows that are added a few at a time make no more parts, nor chunks, than rows that come together; also where a key deals them.
func TestAppendOften(t *testing.T) {
	for _, key := range []string{"", "n"} {
		b := newBench(t, "shm", "n1", "n2", "n3")
		c := b.connect(t, tokenOwner)
		spec := csvColumns("logs", numbers(0, 10))
		if key != "" {
			spec.Options.Spread = dataset.Spread{Kind: cluster.Hash, Key: key}
		}
		if _, err := c.Load(t.Context(), spec, nil); err != nil {
			t.Fatal(err)
		}
		first, err := c.Reader(t.Context(), "logs")
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= 100; i++ {
			spec := csvColumns("logs", numbers(10*i, 10*i+10))
			spec.Append = true
			report, err := c.Load(t.Context(), spec, nil)
			if err != nil {
				t.Fatalf("key %q, addition %d: %v", key, i, err)
			}
			for _, s := range report.Table.Shards {
				if len(s.Parts) > 1 || s.Parts[0].Chunks > 1 {
					t.Fatalf("key %q: after %d additions node %s has %+v", key, i, s.Element, s.Parts)
				}
			}
			if i == 1 { // it pins what it reads until the next addition
				if got := sortedColumns(t, first); got != sortedLines(numbers(0, 10)) {
					t.Errorf("key %q: who reads the version before has %q", key, got)
				}
			}
		}
		r, err := c.Reader(t.Context(), "logs")
		if err != nil {
			t.Fatal(err)
		}
		if got := sortedColumns(t, r); got != sortedLines(numbers(0, 1010)) {
			t.Errorf("key %q: %d lines", key, strings.Count(got, "\n"))
		}
		if lent := b.lent(); lent > 1<<20 { // a version or two, of pages
			t.Errorf("key %q: %d bytes are lent for 1,010 rows", key, lent)
		}
	}
}

// What a load that keeps nothing reports can be written as JSON, as what others report.
func TestDryRunReport(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	spec := csvColumns("logs", numbers(0, 100))
	spec.DryRun = true
	report, err := c.Load(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(report)
	if err != nil || report.Rows != 100 || !strings.Contains(string(text), `"sharding":{"kind":"block","elements":2`) {
		t.Errorf("%s, %v", text, err)
	}
}
