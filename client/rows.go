package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/dataset/structs"
	"github.com/wherry-fabric/wherry/query"
)

// LoadRows loads Go structs as columns; package structs says how fields become columns. All rows are in memory as columns before the
// first node gets some of them: each gets a range, or, of a struct with a key, the rows whose key's hash names it.
func LoadRows[T any](ctx context.Context, c *Client, name string, rows iter.Seq[T]) (*LoadReport, error) {
	return LoadRowsAs(ctx, c, LoadSpec{Name: name}, rows)
}

// LoadRowsAs is LoadRows with more to say: Replace, Append, Nodes. spec has no source.
func LoadRowsAs[T any](ctx context.Context, c *Client, spec LoadSpec, rows iter.Seq[T]) (*LoadReport, error) {
	w, err := structs.NewWriter[T]()
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", spec.Name, err)
	}
	if spec.Input != nil || len(spec.Inputs) > 0 {
		return nil, fmt.Errorf("load %s: %w: rows are the source: leave out Input and Inputs", spec.Name, control.ErrRequest)
	}
	if w.Key != "" && spec.Options.Spread.Key == "" {
		spec.Options.Spread.Key = w.Key
	}
	next, stop := iter.Pull(rows)
	defer stop()
	spec.rows = &dataset.Chunks{Name: fmt.Sprintf("%v", reflect.TypeFor[T]()), Columns: w.Columns, Next: func(ctx context.Context) ([]arrow.Array, error) {
		for {
			row, ok := next()
			if !ok {
				if last := w.Finish(); last != nil {
					return last, nil
				}
				return nil, io.EOF
			}
			if full, err := w.Add(&row); err != nil {
				return nil, err
			} else if full {
				return w.Finish(), context.Cause(ctx)
			}
		}
	}}
	return c.Load(ctx, spec, nil)
}

// Question is what is asked of a dataset of columns: From(name) is all its rows. Its methods return a new Question.
type Question struct {
	name string
	q    query.Query
}

// From asks for the rows of a dataset.
func From(name string) Question { return Question{name: name} }

// Where keeps the rows for which a condition is true, as in `status >= 500 && !isnull(ms)`. Several all have to be.
func (q Question) Where(condition string) Question {
	if q.q.Where != "" {
		condition = "(" + q.q.Where + ") && (" + condition + ")"
	}
	q.q.Where = condition
	return q
}

// Select names columns, or NAME=EXPRESSION.
func (q Question) Select(columns ...string) Question {
	q.q.Select = slices.Concat(q.q.Select, columns)
	return q
}

// Group makes a group of the rows that agree in columns, or in NAME=EXPRESSION.
func (q Question) Group(by ...string) Question {
	q.q.Group = slices.Concat(q.q.Group, by)
	return q
}

// Agg adds groups up: NAME=FUNCTION(EXPRESSION).
func (q Question) Agg(aggregates ...string) Question {
	q.q.Agg = slices.Concat(q.q.Agg, aggregates)
	return q
}

// Order sorts by names of what comes out, with - before one for the greatest first.
func (q Question) Order(by ...string) Question {
	q.q.Order = slices.Concat(q.q.Order, by)
	return q
}

// Limit keeps the first n rows.
func (q Question) Limit(n uint64) Question {
	q.q.Limit = n
	return q
}

// Ask asks; the rows are read as they are asked for. A question for all rows is no query: they are read where they lie, chunk by chunk.
// The caller closes Rows.
func (c *Client) Ask(ctx context.Context, q Question) (*Rows, error) {
	if reflect.ValueOf(q.q).IsZero() {
		r, err := c.Reader(ctx, q.name)
		if err != nil {
			return nil, err
		}
		return newRows(r.Table.Columns, r.Batches(ctx, 0, r.Table.Rows)), nil
	}
	found, err := c.Query(ctx, q.name, q.q)
	if err != nil {
		return nil, err
	}
	return newRows(found.Columns, func(yield func(arrow.RecordBatch, error) bool) {
		if found.Rows == 0 {
			return
		}
		plain := make([]arrow.Array, len(found.Arrays))
		for i, a := range found.Arrays {
			plain[i] = part.Plain(a)
			defer plain[i].Release()
		}
		rec := array.NewRecordBatch(part.ArrowSchema(found.Columns), plain, int64(found.Rows))
		defer rec.Release()
		yield(rec, nil)
	}), nil
}

// Rows are the rows of an answer, one after the other. One goroutine uses it.
type Rows struct {
	Columns column.Schema

	next  func() (arrow.RecordBatch, error, bool)
	stop  func()
	batch arrow.RecordBatch
	row   int
	err   error
	scan  *structs.Scanner
	typ   reflect.Type
	ready bool // scan has the batch
}

func newRows(s column.Schema, batches iter.Seq2[arrow.RecordBatch, error]) *Rows {
	r := &Rows{Columns: s, row: -1}
	r.next, r.stop = iter.Pull2(batches)
	return r
}

// Next goes to the next row; false behind the last, or after an error, which Err has.
func (r *Rows) Next() bool {
	for r.err == nil {
		if r.row++; r.batch != nil && r.row < int(r.batch.NumRows()) {
			return true
		}
		if !r.nextBatch() {
			return false
		}
		r.row = -1
	}
	return false
}

func (r *Rows) nextBatch() bool {
	batch, err, ok := r.next()
	r.batch, r.ready = batch, false
	if err != nil {
		r.err = err
	}
	return ok && err == nil
}

// Scan reads the row into a struct, by its fields' columns; package structs has the rules. Columns without a field are passed over.
func (r *Rows) Scan(into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("%w: Scan takes a pointer to a struct, not %T", structs.ErrStruct, into)
	}
	if r.batch == nil || r.row < 0 || r.row >= int(r.batch.NumRows()) {
		return errors.Join(r.err, fmt.Errorf("%w: there is no row: call Next first, and Scan while it returns true", control.ErrRequest))
	}
	v = v.Elem()
	if r.scan == nil || r.typ != v.Type() {
		scan, err := structs.NewScanner(v.Type(), r.Columns)
		if err != nil {
			return err
		}
		r.scan, r.typ, r.ready = scan, v.Type(), false
	}
	if !r.ready {
		if err := r.scan.Batch(r.batch); err != nil {
			return err
		}
		r.ready = true
	}
	return r.scan.Scan(r.row, v)
}

// Batches are the record batches that follow; each is the loop's until its next turn. Rows of a batch that Next has begun are passed over.
func (r *Rows) Batches() iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for r.err == nil && r.nextBatch() {
			if !yield(r.batch, nil) {
				return
			}
		}
		if r.err != nil {
			yield(nil, r.err)
		}
	}
}

// Err is what ended the rows early.
func (r *Rows) Err() error { return r.err }

// Close ends the reading.
func (r *Rows) Close() { r.stop() }

// All are the rows of an answer as structs. The first error ends the loop.
func All[T any](ctx context.Context, c *Client, q Question) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		r, err := c.Ask(ctx, q)
		if err != nil {
			yield(zero, err)
			return
		}
		defer r.Close()
		for r.Next() {
			var row T
			if err := r.Scan(&row); err != nil {
				yield(zero, err)
				return
			}
			if !yield(row, nil) {
				return
			}
		}
		if r.Err() != nil {
			yield(zero, r.Err())
		}
	}
}
