package invoke

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/query"
)

// Explanation says what a query did.
type Explanation struct {
	Plan   []string `json:"plan"`   // steps, and where each is done
	Pushed []string `json:"pushed"` // comparisons that keep chunks from being read
	// Workers is how many workers each node had, as far as it let them work at once.
	Workers int `json:"workers"`
	query.Stats
	BytesMoved uint64  `json:"bytes_moved"` // answers of the elements
	NodeMs     float64 `json:"node_ms"`     // until the last of them was there
	MergeMs    float64 `json:"merge_ms"`
}

// Found is the answer to a query.
type Found struct {
	Columns     column.Schema
	Rows        int
	Arrays      []arrow.Array // a column each
	Explanation Explanation
}

// Query asks a dataset of columns, or of rows of one value (cluster.Table.Readable): the ready function query filters, groups and adds up where the columns lie, and what the
// elements answer is put together here.
func Query(ctx context.Context, rt *inject.Runtime, table *cluster.Table, q query.Query) (*Found, error) {
	return find(ctx, rt, Request{Table: table}, q)
}

// readable are the columns that a query reads of a dataset.
func readable(table *cluster.Table) (column.Schema, error) {
	columns, ok := table.Readable()
	if !ok {
		return nil, fmt.Errorf("%w: a query reads columns; %s is of kind %v: load a csv, ndjson, parquet or arrow file", ErrRequest, table.Name, table.Kind)
	}
	if n := len(table.Schema.Fields); n > 1 {
		return nil, fmt.Errorf("%w: a query reads columns; the rows of %s are C structs of %d fields, one column of %v: load the file without --packed", ErrRequest, table.Name, n, columns[0].Type)
	}
	return columns, nil
}

// find asks the request's table; the request has no image and no payload yet.
func find(ctx context.Context, rt *inject.Runtime, r Request, q query.Query) (*Found, error) {
	table := r.Table
	columns, err := readable(table)
	if err != nil {
		return nil, err
	}
	p, err := query.Make(q, columns)
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", table.Name, err)
	}
	program, err := p.Program()
	if err != nil {
		return nil, err
	}
	if err := fits(len(program)); err != nil {
		return nil, err
	}
	if r.Image, err = readyImage(rt, "query"); err != nil {
		return nil, err
	}
	r.Payload, r.Options.Workers = program, uint8(p.Workers())
	asked, err := asked(table, p)
	if err != nil {
		return nil, err
	}
	r.Table = asked
	start := time.Now()
	res, err := everywhere(ctx, rt, &r)
	if err != nil {
		return nil, explained(err, table, p)
	}
	found := &Found{Columns: p.Columns(), Explanation: Explanation{Plan: slices.Concat(whoIsAsked(table, asked), p.Steps()), Pushed: p.Pushed(), Workers: p.Workers()}}
	found.Explanation.NodeMs = milliseconds(time.Since(start))
	start = time.Now()
	m := p.Merge()
	answers := byBranch(res)
	if n := len(asked.Shards) * p.Workers(); len(answers) != n { // each has one, if only to say that it ends
		return nil, fmt.Errorf("query %s: %w: %d of %d answers came", table.Name, query.ErrAnswer, len(answers), n)
	}
	for _, answer := range answers {
		found.Explanation.BytesMoved += uint64(len(answer))
		if err := m.Add(answer); err != nil {
			return nil, fmt.Errorf("query %s: %w", table.Name, err)
		}
	}
	if found.Arrays, found.Rows, err = m.Finish(); err != nil {
		return nil, fmt.Errorf("query %s: %w", table.Name, err)
	}
	found.Explanation.Stats, found.Explanation.MergeMs = m.Stats, milliseconds(time.Since(start))
	return found, nil
}

// explained adds to an error what its words for functions do not say: what to do about an answer that is larger than one node's may be, and which
// expressions one of overflowed. The function has them as numbers, and says no more than that one did.
func explained(err error, table *cluster.Table, p *query.Plan) error {
	if e := (*travel.RemoteError)(nil); errors.As(err, &e) && e.Code == travel.CodeLimit && strings.HasPrefix(e.Text, abi.LimitReply) {
		return fmt.Errorf("query %s: %w: what a node answers is too large: ask for fewer rows or columns (--where, --limit, --select), or read all of them (mem get)", table.Name, err)
	}
	in := p.Overflowing()
	switch {
	case len(in) == 0 || !strings.Contains(err.Error(), "an integer overflows"):
		return err
	case len(in) == 1:
		return fmt.Errorf("query %s: in %s: %w", table.Name, in[0], err)
	}
	return fmt.Errorf("query %s: in one of %s: %w", table.Name, strings.Join(in, ", "), err)
}

// asked is the part of a table whose elements can have rows that a query wants: where a condition names keys, those that the keys belong to. It is
// a table like any other, so the query that runs on it sees no more elements than these.
func asked(t *cluster.Table, p *query.Plan) (*cluster.Table, error) {
	owners := owners(t, p)
	if owners == nil || len(owners) == len(t.Shards) {
		return t, nil
	}
	out := t.Clone()
	out.Shards = nil
	counts := make([]uint64, len(owners))
	for i, e := range owners {
		out.Shards = append(out.Shards, t.Shards[e])
		counts[i] = t.Shards[e].Rows
	}
	out.Sharding = cluster.BlockOf(counts)
	out.FillRows()
	return out, out.Validate()
}

// owners are the elements that a query's condition leaves, nil if all. Records are dealt by the bytes that their key field has, which are not those
// of an equal literal, so all elements are asked for them.
func owners(t *cluster.Table, p *query.Plan) []uint32 {
	if t.Kind != cluster.Columns {
		return nil
	}
	return p.Owners(t.Sharding.Key, t.Sharding.KeyOwner)
}

// whoIsAsked says in words which elements a key left.
func whoIsAsked(all, asked *cluster.Table) []string {
	if len(asked.Shards) == len(all.Shards) {
		return nil
	}
	names := make([]string, len(asked.Shards))
	for i, s := range asked.Shards {
		names[i] = s.Element
	}
	return []string{fmt.Sprintf("client: ask %q only, of %d nodes: the key %q is there", names, len(all.Shards), all.Sharding.Key)}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// everywhere runs a function on all of a table's elements, with as many workers as the options say, and waits for what they reply.
func everywhere(ctx context.Context, rt *inject.Runtime, r *Request) (*inject.Result, error) {
	if err := r.checkRights(); err != nil {
		return nil, err
	}
	f, err := rt.PrepareAs(r.Image, r.Table, r.Form)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fut, err := f.Start(ctx, r.every(r.Payload), r.Options)
	if err != nil {
		return nil, err
	}
	if r.Started != nil {
		r.Started(fut)
	}
	res, err := fut.Wait(ctx)
	if err != nil {
		fut.Cancel()
	}
	return res, err
}

// byBranch joins the parts of each element's answer.
func byBranch(res *inject.Result) [][]byte {
	var out [][]byte
	for i, p := range res.Pieces {
		if i > 0 && res.Pieces[i-1].Branch == p.Branch {
			out[len(out)-1] = append(out[len(out)-1], p.Data...)
			continue
		}
		out = append(out, append([]byte(nil), p.Data...))
	}
	return out
}

// Write writes the answer.
func (f *Found) Write(w io.Writer, format batch.Format) error {
	return (&Answer{Found: f}).writeBatches(w, format)
}

// cuts gives the rows out, part.ChunkRows at a time. The arrays are released after each.
func (f *Found) cuts(give func(cut []arrow.Array, rows int) bool) {
	for first := 0; first < f.Rows; first += part.ChunkRows {
		end := min(first+part.ChunkRows, f.Rows)
		cut := make([]arrow.Array, len(f.Arrays))
		for i, a := range f.Arrays {
			cut[i] = array.NewSlice(a, int64(first), int64(end))
		}
		more := give(cut, end-first)
		for _, a := range cut {
			a.Release()
		}
		if !more {
			return
		}
	}
}
