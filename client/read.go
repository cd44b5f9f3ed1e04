package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/schema"
)

const (
	// batchBytes is about what is fetched of all nodes at a time.
	batchBytes = 4 << 20
	// MaxReadBytes bounds what Rows gets at once: a dataset's table may claim any number of rows.
	MaxReadBytes = 64 << 20
	// pieceBytes is one Get of a large range: a transfer that shares the link with others.
	pieceBytes = 1 << 20
)

// ErrKind says that a dataset is of a kind that this cannot be done with.
var ErrKind = errors.New("not for a dataset of this kind")

// Reader reads a dataset one-sided: the nodes' programs take no part. It belongs to one goroutine.
type Reader struct {
	Table *cluster.Table

	c       *Client
	layout  schema.Layout
	remotes map[[2]int]*fabric.Remote
	mu      sync.Mutex
}

// Reader opens a dataset for reading.
func (c *Client) Reader(ctx context.Context, name string) (*Reader, error) {
	t, err := c.Table(ctx, name, "r")
	if err != nil {
		return nil, err
	}
	r := &Reader{Table: t, c: c, remotes: map[[2]int]*fabric.Remote{}}
	if t.Kind == cluster.Records {
		if r.layout, err = t.Schema.Layout(); r.layout.HasStr {
			return nil, fmt.Errorf("dataset %s: %w: its rows have text and were loaded by an older program: load it again, which makes columns of them", name, ErrKind)
		}
	}
	return r, err
}

// remote imports a window's key, once.
func (r *Reader) remote(ctx context.Context, element, window int) (*fabric.Remote, error) {
	r.mu.Lock()
	m := r.remotes[[2]int{element, window}]
	r.mu.Unlock()
	if m != nil {
		return m, nil
	}
	s := r.Table.Shards[element]
	ep := r.c.links.Endpoint(s.Element)
	if ep == nil || ep.Incarnation() != s.Incarnation {
		return nil, fmt.Errorf("dataset %s: %w", r.Table.Name, r.c.shardLost(s, true))
	}
	m, err := r.Table.Import(ctx, ep, element, window)
	if err != nil {
		return nil, fmt.Errorf("dataset %s at node %s: %w", r.Table.Name, s.Element, err)
	}
	r.mu.Lock()
	r.remotes[[2]int{element, window}] = m
	r.mu.Unlock()
	return m, nil
}

// ReadAt reads len(p) bytes of a window, at most its size.
func (r *Reader) ReadAt(ctx context.Context, element, window int, p []byte, offset uint64) error {
	if element < 0 || element >= len(r.Table.Shards) || window < 0 || window >= len(r.Table.Shards[element].Windows) {
		return fmt.Errorf("%w: dataset %s has no window %d of element %d", control.ErrRequest, r.Table.Name, window, element)
	}
	size := r.Table.Shards[element].Windows[window].Size
	if offset > size || uint64(len(p)) > size-offset {
		return fmt.Errorf("dataset %s: %d bytes at %d leave window %d of element %d, which has %d: %w", r.Table.Name, len(p), offset, window, element, size, fabric.ErrRange)
	}
	if len(p) == 0 {
		return nil
	}
	m, err := r.remote(ctx, element, window)
	if err != nil {
		return err
	}
	if err := control.Get(ctx, m, p, offset, pieceBytes); err != nil {
		return fmt.Errorf("dataset %s: node %s: %w", r.Table.Name, r.Table.Shards[element].Element, err)
	}
	return nil
}

// share is what one element has of a range of rows.
type share struct {
	first, count uint64 // local rows
	records      []byte
	next         uint64
}

// Rows reads the rows from first to first+count-1, in the order of their
// numbers: at most MaxReadBytes of them at once. Datasets of kind Records only.
func (r *Reader) Rows(ctx context.Context, first, count uint64) (schema.Rows, error) {
	t := r.Table
	if t.Kind != cluster.Records {
		return schema.Rows{}, fmt.Errorf("dataset %s: rows: %w (%v)", t.Name, ErrKind, t.Kind)
	}
	if first > t.Rows || count > t.Rows-first {
		return schema.Rows{}, fmt.Errorf("%w: dataset %s has %d rows, there are no %d from %d", control.ErrRequest, t.Name, t.Rows, count, first)
	}
	if most := MaxReadBytes / uint64(r.layout.Size); count > most {
		return schema.Rows{}, fmt.Errorf("%w: dataset %s: %d rows of %d bytes are too many to read at once: read at most %d, or write them with Write", control.ErrRequest, t.Name, count, r.layout.Size, most)
	}
	shares := r.split(first, count)
	if err := r.fetch(ctx, shares); err != nil {
		return schema.Rows{}, err
	}
	b, err := schema.NewPartBuilder(&t.Schema)
	if err != nil {
		return schema.Rows{}, err
	}
	cells := make([][]byte, len(t.Schema.Fields))
	for row := first; row < first+count; row++ {
		e, _, _ := t.Owner(row)
		s := shares[e]
		record := s.records[s.next*uint64(r.layout.Size):][:r.layout.Size]
		s.next++
		for f, field := range t.Schema.Fields {
			at := r.layout.Offsets[f]
			cells[f] = record[at : at+field.Type.Size()]
		}
		if err := b.Append(cells); err != nil {
			return schema.Rows{}, fmt.Errorf("dataset %s, row %d: %w", t.Name, row, err)
		}
	}
	return b.Rows(), nil
}

// split finds each element's part of a range of rows: it is a range there too,
// whatever the sharding.
func (r *Reader) split(first, count uint64) map[uint32]*share {
	shares := map[uint32]*share{}
	for row := first; row < first+count; row++ {
		e, local, _ := r.Table.Owner(row)
		if s := shares[e]; s != nil {
			s.count = local - s.first + 1
			continue
		}
		shares[e] = &share{first: local, count: 1}
	}
	return shares
}

// fetch gets the records of all shares at once.
func (r *Reader) fetch(ctx context.Context, shares map[uint32]*share) error {
	size := uint64(r.layout.Size)
	return eachShare(shares, func(e uint32, s *share) error {
		s.records = make([]byte, s.count*size)
		return r.ReadAt(ctx, int(e), cluster.FixedValues, s.records, s.first*size)
	})
}

// eachShare does something for all shares at once.
func eachShare(shares map[uint32]*share, fn func(e uint32, s *share) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for e, s := range shares {
		wg.Go(func() {
			if err := fn(e, s); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ReadOptions say which rows to read, and how to write them.
type ReadOptions struct {
	First  uint64
	Count  uint64       // 0: all from First
	Format batch.Format // "": batch.CSV
	// Progress is told of rows written; may be nil.
	Progress func(done, total uint64)
}

// Read writes rows of a dataset of records or columns. In batch.Raw they are the records as they lie
// in memory, one after the other.
func (c *Client) Read(ctx context.Context, name string, o ReadOptions, w io.Writer) error {
	r, err := c.Reader(ctx, name)
	if err != nil {
		return err
	}
	return c.Changed(ctx, r.Table, r.Write(ctx, o, w))
}

// rows is how many rows of a table are read; what is what they are called.
func (o ReadOptions) rows(t *cluster.Table, what string) (uint64, error) {
	if o.First > t.Rows {
		return 0, fmt.Errorf("%w: dataset %s has %d %s, there is none with number %d", control.ErrRequest, t.Name, t.Rows, what, o.First)
	}
	if total := t.Rows - o.First; o.Count == 0 || total < o.Count {
		return total, nil
	}
	return o.Count, nil
}

// Write writes rows; see Client.Read.
func (r *Reader) Write(ctx context.Context, o ReadOptions, w io.Writer) error {
	t := r.Table
	format := cmp.Or(o.Format, batch.CSV)
	switch {
	case t.Kind != cluster.Records && t.Kind != cluster.Columns:
		return fmt.Errorf("dataset %s: %w: it is of kind %v; only records and columns have rows to write, read the windows of others one by one (--element and --window)", t.Name, ErrKind, t.Kind)
	case t.Kind == cluster.Columns && format == batch.Raw:
		return fmt.Errorf("dataset %s: %w: columns have no raw records: use csv, json, ndjson, table, arrow or parquet", t.Name, control.ErrRequest)
	case t.Kind == cluster.Columns || format == batch.Arrow || format == batch.Parquet:
		return r.WriteBatches(ctx, o, format, w)
	case format == batch.Raw:
		return r.eachRows(ctx, o, func(rows *schema.Rows) error { return writeRecords(w, rows) })
	}
	columns, err := batch.Fields(&t.Schema)
	if err != nil {
		return err
	}
	out, err := batch.NewWriter(w, format, columns)
	if err != nil {
		return err
	}
	err = r.eachRows(ctx, o, func(rows *schema.Rows) error {
		for arrays, n := range batch.OfRows(columns, rows) {
			if err := out.Write(arrays, n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return out.Close()
}

// eachRows reads records, so many at once as batchBytes holds, and hands them over.
func (r *Reader) eachRows(ctx context.Context, o ReadOptions, give func(*schema.Rows) error) error {
	total, err := o.rows(r.Table, "rows")
	if err != nil {
		return err
	}
	step := max(1, batchBytes/uint64(r.layout.Size))
	for done := uint64(0); done < total; {
		n := min(step, total-done)
		rows, err := r.Rows(ctx, o.First+done, n)
		if err == nil {
			err = give(&rows)
		}
		if err != nil {
			return err
		}
		if done += n; o.Progress != nil {
			o.Progress(done, total)
		}
	}
	return nil
}

func writeRecords(w io.Writer, rows *schema.Rows) error {
	for i := range rows.Len() {
		if _, err := w.Write(rows.Record(i)); err != nil {
			return err
		}
	}
	return nil
}

// ReadWindow writes one window of one element, whatever it holds.
func (c *Client) ReadWindow(ctx context.Context, name string, element, window int, w io.Writer) error {
	r, err := c.Reader(ctx, name)
	if err != nil {
		return err
	}
	if element < 0 || element >= len(r.Table.Shards) || window < 0 || window >= len(r.Table.Shards[element].Windows) {
		return fmt.Errorf("%w: dataset %s has no window %d of element %d", control.ErrRequest, name, window, element)
	}
	size := r.Table.Shards[element].Windows[window].Size
	buf := make([]byte, min(size, batchBytes))
	for at := uint64(0); at < size; {
		n := min(uint64(len(buf)), size-at)
		if err := r.ReadAt(ctx, element, window, buf[:n], at); err != nil {
			return c.Changed(ctx, r.Table, err)
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		at += n
	}
	return nil
}
