package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/query"
)

// LateAfter is how long after its deadline a call may end.
const LateAfter = time.Second

// maxDepthBits bounds a chase, which hops three times in four steps: some end before anything can happen, some are under way when something does.
const maxDepthBits = 15

// kinds are the calls, in turn.
var kinds = []string{"chase", "closure", "count", "rpc", "query", "call"}

// caller makes calls, one after the other. Callers share a client.
type caller struct {
	c      *client.Client
	lib    *library
	r      *rand.Rand
	tables map[string]*cluster.Table // as it knows them, maybe of data that is gone
	clock  *clock
}

func newCaller(c *client.Client, lib *library, r *rand.Rand, k *clock) *caller {
	return &caller{c, lib, r, map[string]*cluster.Table{}, k}
}

// wrongError says that an answer is not right.
type wrongError struct{ text string }

func (e *wrongError) Error() string { return e.text }

// outcome is what became of one call.
type outcome struct {
	kind   string
	err    error         // nil: it was answered, and rightly
	late   time.Duration // beyond the deadline, less what this process was kept waiting
	allows time.Duration
}

// call makes a call of a kind, and judges its end.
func (a *caller) call(ctx context.Context, kind string) outcome {
	return a.callFor(ctx, kind, time.Duration(100+a.r.IntN(2900))*time.Millisecond)
}

// callFor makes a call that has so much time.
func (a *caller) callFor(ctx context.Context, kind string, allows time.Duration) outcome {
	from := time.Now()
	ctx, cancel := context.WithDeadline(ctx, from.Add(allows))
	defer cancel()
	var err error
	switch kind {
	case "chase":
		err = a.chase(ctx)
	case "closure":
		err = a.closure(ctx)
	case "count":
		err = a.count(ctx)
	case "rpc":
		err = a.rpc(ctx)
	case "query":
		err = a.query(ctx)
	case "call":
		err = a.byName(ctx)
	}
	if err != nil && a.r.IntN(4) > 0 { // the tables that it knows may be old
		clear(a.tables)
	}
	return outcome{kind, err, time.Since(from) - allows - a.clock.kept(from.Add(allows)), allows}
}

// named reports whether an error names a node.
func named(err error) bool {
	text := err.Error()
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(text, name) })
}

// table is a dataset's table: the one that is known, or asked for anew.
func (a *caller) table(ctx context.Context, name string) (*cluster.Table, error) {
	if t := a.tables[name]; t != nil && a.r.IntN(4) > 0 {
		return t, nil
	}
	t, err := a.c.Table(ctx, name, "r")
	if err != nil {
		return nil, fmt.Errorf("table: %w", err)
	}
	a.tables[name] = t
	return t, nil
}

// is compares an answer with what the table's version has.
func (a *caller) is(t *cluster.Table, right func(*truth) bool, what string, args ...any) error {
	all := a.lib.of(t)
	if slices.ContainsFunc(all, right) {
		return nil
	}
	return &wrongError{fmt.Sprintf("%s, version %d, which may have %d contents: %s", t.Name, t.Version, len(all), fmt.Sprintf(what, args...))}
}

// run runs a ready function on a dataset.
func (a *caller) run(ctx context.Context, function string, t *cluster.Table, args map[string]string) (*invoke.Answer, error) {
	img, err := xrdma.Lookup(function)
	if err != nil {
		return nil, err
	}
	return invoke.Run(ctx, a.c.Runtime(), invoke.Request{Image: img, Table: t, Args: args, Options: inject.Options{Hops: travel.MaxHops}})
}

func (a *caller) chase(ctx context.Context) error {
	t, err := a.table(ctx, chain)
	if err != nil {
		return err
	}
	start, depth := a.r.Uint64N(chainRows), 1+a.r.IntN(1<<(1+a.r.IntN(maxDepthBits)))
	got, err := a.run(ctx, "chase", t, map[string]string{"start": fmt.Sprint(start), "depth": fmt.Sprint(depth)})
	if err != nil {
		return err
	}
	if len(got.Parts) != 1 || got.Parts[0].Len() != 1 {
		return &wrongError{fmt.Sprintf("a chase answers %d parts", len(got.Parts))}
	}
	row := got.Parts[0].Uint(0, 0)
	return a.is(t, func(tr *truth) bool { return tr.chase(start, depth) == row }, "%d steps from %d end on %d", depth, start, row)
}

func (a *caller) closure(ctx context.Context) error {
	t, err := a.table(ctx, web)
	if err != nil {
		return err
	}
	from := []uint32{a.r.Uint32N(webVertices), a.r.Uint32N(webVertices)}
	against, depth := a.r.IntN(2), a.r.IntN(6)
	got, err := a.run(ctx, "closure", t, map[string]string{"vertices": fmt.Sprintf("%d,%d", from[0], from[1]), "direction": fmt.Sprint(against), "max_depth": fmt.Sprint(depth)})
	if err != nil {
		return err
	}
	var all []uint32
	for i := range got.Parts {
		for j := range got.Parts[i].Len() {
			all = append(all, uint32(got.Parts[i].Uint(j, 0)))
		}
	}
	slices.Sort(all)
	return a.is(t, func(tr *truth) bool { return slices.Equal(tr.closure(from, against == 1, depth), all) }, "from %d (against %d) within %d edges: %d vertices", from, against, depth, len(all))
}

func (a *caller) count(ctx context.Context) error {
	t, err := a.table(ctx, chain)
	if err != nil {
		return err
	}
	row := a.r.Uint64N(chainRows)
	got, err := a.run(ctx, "count", t, map[string]string{"column": "next", "op": "lt", "value": fmt.Sprint(row)})
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := got.Write(&text, batch.CSV); err != nil {
		return err
	}
	var matched, scanned uint64
	if _, err := fmt.Sscanf(text.String(), "matched,scanned\n%d,%d\n", &matched, &scanned); err != nil {
		return &wrongError{fmt.Sprintf("a count answers %.100q", text.String())}
	}
	return a.is(t, func(tr *truth) bool { return scanned == chainRows && tr.below(row) == matched }, "%d of %d are below %d", matched, scanned, row)
}

// rpc asks a node who it is, and reads rows by Gets.
func (a *caller) rpc(ctx context.Context) error {
	name := names[a.r.IntN(len(names))]
	info, err := a.c.Info(ctx, name)
	if err != nil {
		return err
	}
	if info.Name != name {
		return &wrongError{fmt.Sprintf("%s says that it is %s", name, info.Name)}
	}
	rd, err := a.c.Reader(ctx, chain)
	if err != nil {
		return err
	}
	first, count := a.r.Uint64N(chainRows), uint64(500)
	count = min(count, chainRows-first)
	rows, err := rd.Rows(ctx, first, count)
	if err != nil {
		return err
	}
	if rows.Len() != int(count) {
		return &wrongError{fmt.Sprintf("%d rows of %d", rows.Len(), count)}
	}
	return a.is(rd.Table, func(tr *truth) bool {
		for i := range rows.Len() {
			if rows.Uint(i, 0) != tr.next[int(first)+i] {
				return false
			}
		}
		return true
	}, "rows %d to %d are others", first, first+count)
}

// byName makes a plain call, by its name, at a node: what it knows of a dataset.
func (a *caller) byName(ctx context.Context) error {
	name := names[a.r.IntN(len(names))]
	at, err := a.c.Endpoint(ctx, name)
	if err != nil {
		return err
	}
	body, err := json.Marshal(&control.NameRequest{Name: chain})
	if err != nil {
		return err
	}
	said, err := a.c.RPC().Call(ctx, at, control.CallStat, body)
	if err != nil {
		return err
	}
	var e control.Entry
	if err := json.Unmarshal(said, &e); err != nil {
		return &wrongError{fmt.Sprintf("%s answers %q: %v", name, said, err)}
	}
	if e.Name != chain || e.Table == nil || e.Table.Name != chain || e.Table.Version != e.Version {
		return &wrongError{fmt.Sprintf("%s says of %s: %q", name, chain, said)}
	}
	return a.is(e.Table, func(*truth) bool { return e.Table.Sharding.Rows == chainRows }, "%d rows", e.Table.Sharding.Rows)
}

func (a *caller) query(ctx context.Context) error {
	t, err := a.table(ctx, sales)
	if err != nil {
		return err
	}
	least := a.r.Int64N(1000)
	got, err := invoke.Query(ctx, a.c.Runtime(), t, query.Query{Where: fmt.Sprint("v >= ", least), Group: []string{"k"}, Agg: []string{"n=count()", "s=sum(v)"}})
	if err != nil {
		return err
	}
	var n, sum [salesKeys]int64
	for i := range got.Rows {
		var cells [3]int64
		for j := range cells {
			if _, err := fmt.Sscan(got.Arrays[j].ValueStr(i), &cells[j]); err != nil {
				return &wrongError{fmt.Sprintf("%v of type %v", got.Arrays[j], got.Arrays[j].DataType())}
			}
		}
		if cells[0] < 0 || cells[0] >= salesKeys {
			return &wrongError{fmt.Sprintf("a key %d", cells[0])}
		}
		n[cells[0]], sum[cells[0]] = n[cells[0]]+cells[1], sum[cells[0]]+cells[2]
	}
	return a.is(t, func(tr *truth) bool {
		wantN, wantSum := tr.sums(least)
		return n == wantN && sum == wantSum
	}, "from %d on: %d rows, %v, %v", least, got.Rows, n, sum)
}

// clock notices when this process does not get the processor.
type clock struct {
	mu   sync.Mutex
	gaps []gap
}

// gap is a time in which nothing here ran.
type gap struct{ from, to time.Time }

const (
	clockTick = 10 * time.Millisecond
	// leastGap is what is worth keeping, and mostGaps bounds how many are: older ones are of calls that have ended.
	leastGap = 50 * time.Millisecond
	mostGaps = 1000
)

// watch runs until ctx ends.
func (k *clock) watch(ctx context.Context) {
	for last := time.Now(); ctx.Err() == nil; {
		time.Sleep(clockTick)
		now := time.Now()
		if now.Sub(last) > clockTick+leastGap {
			k.mu.Lock()
			if k.gaps = append(k.gaps, gap{last, now}); len(k.gaps) > mostGaps {
				k.gaps = slices.Delete(k.gaps, 0, len(k.gaps)-mostGaps)
			}
			k.mu.Unlock()
		}
		last = now
	}
}

// kept is how long this process did not run since a time: what was before a deadline makes no end late.
func (k *clock) kept(since time.Time) (sum time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range k.gaps {
		if g.to.After(since) {
			sum += g.to.Sub(later(g.from, since))
		}
	}
	return sum
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
