package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/schema"
)

const (
	// loadTime bounds a load whose context has no deadline.
	loadTime = 24 * time.Hour
	// cleanupTime bounds each step of what follows a load: undoing one that failed, dropping what was replaced.
	cleanupTime = 10 * time.Second
	// overTime is how long a load that failed is given up at the nodes after its deadline: far above what an answer takes.
	overTime = time.Second / 2
)

// Source is a file that lies at a node, below one of its data roots.
type Source struct {
	Node string
	Path string // a pattern (*, ?, […]) means all files that it names
}

// Blank is a dataset of kind Raw without content: all zeros, for functions and Puts to fill.
type Blank struct {
	Rows  uint64   // what the sharding counts; their meaning is the user's
	Sizes []uint64 // bytes of each window, the same at every node
}

// LoadSpec says what to load, from where, and to which nodes. Exactly one of
// Input, Inputs, Plan, At and Blank is given.
type LoadSpec struct {
	Name    string
	Replace bool // a dataset of that name gives way, once the new one is there
	// Append adds the rows to the dataset of that name, which is of columns: as a new version, which shares what is there with the old one.
	// Each of its nodes gets some of them (of At its own file's), behind those that it has. Nodes is not used.
	Append   bool
	Writable bool // principals with the right may write the windows; otherwise they are sealed
	// Nodes get the shards, in this order; nil: all that the client knows, by name.
	// For At it is not used: the sources name the nodes.
	Nodes []string

	// Input is read here, with Options; their Spread.Elements and Progress are set by Load.
	Input   dataset.Input
	Options dataset.Options
	// Inputs are several files with the same columns, read here one after the other.
	Inputs []dataset.Input
	// DryRun reads everything and keeps nothing.
	DryRun bool
	// Plan was made here already, for len(Nodes) elements.
	Plan *dataset.Plan
	// At are files that nodes load themselves, each node one; the rows of the
	// first come first. They must agree on the schema.
	At     []Source
	Format control.FileOptions // of At

	Blank *Blank

	rows *dataset.Chunks // of LoadRows
}

// LoadProgress is how far a load is.
type LoadProgress struct {
	Node  string // of At; "" is the client
	Phase string // a dataset.Phase, control.PhaseWait, or PhaseCommit
	Done  int64  // bytes of the input, as the phase counts them
	Total int64  // -1: not known
}

// PhaseCommit is the last: the nodes make the dataset visible.
const PhaseCommit = "commit"

// LoadReport is what a load made.
type LoadReport struct {
	Table *cluster.Table `json:"table"` // without keys
	Edges uint64         `json:"edges,omitempty"`
	Bad   int64          `json:"bad,omitempty"` // lines that were left out
	// BadLines are the first of them, at most dataset.MaxBadShown of each file.
	BadLines []control.BadLine `json:"bad_lines,omitempty"`
	Bytes    uint64            `json:"bytes"` // of all windows
	Rows     uint64            `json:"rows"`
	ColumnsReport
}

// Load loads a dataset. When it returns without an error the dataset is visible
// at every node that holds a shard; otherwise nothing of it is. progress may be nil; it is
// called from several goroutines, one call at a time.
func (c *Client) Load(ctx context.Context, spec LoadSpec, progress func(LoadProgress)) (*LoadReport, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, loadTime)
		defer cancel()
	}
	l := &loading{c: c, spec: spec, report: &LoadReport{}}
	var mu sync.Mutex
	l.progress = func(p LoadProgress) {
		l.touch(ctx, time.Now())
		if progress != nil {
			mu.Lock()
			defer mu.Unlock()
			progress(p)
		}
	}
	err := c.check()
	if err == nil {
		err = l.check()
	}
	if err == nil {
		err = l.run(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", spec.Name, err)
	}
	return l.report, nil
}

// loading is one load under way.
type loading struct {
	c        *Client
	spec     LoadSpec
	id       control.LoadID
	nodes    []*target // in the sharding's order
	version  uint64
	plan     *dataset.Plan
	progress func(LoadProgress)
	report   *LoadReport
	staging  *fabric.Segment
	touches  touches
	base     *cluster.Table // that is added to; nil: none
}

// target is a node that gets a shard.
type target struct {
	name    string
	path    string // of At
	ep      *fabric.Endpoint
	begun   *control.BeginReply
	sizes   []uint64
	file    *control.FileReply
	bad     []control.BadLine // of its file, the first
	staging fabric.Key
	base    uint64 // of this node's part of the staging memory
	slots   chan int
	batch   []control.Piece // not told of yet
	join    int             // the first part of the base that is written again, if the node gets rows
	joined  bool
}

func (l *loading) check() error {
	s := &l.spec
	if err := cluster.ValidateName(s.Name); err != nil {
		return fmt.Errorf("%w: %w", cluster.ErrName, err)
	}
	given := 0
	for _, is := range []bool{s.Input != nil, len(s.Inputs) > 0, s.Plan != nil, len(s.At) > 0, s.Blank != nil, s.rows != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		return fmt.Errorf("%w: give one source: an input, a plan, files at nodes, or a blank (%d are given)", control.ErrRequest, given)
	}
	names := s.Nodes
	switch {
	case len(s.At) > 0:
		names = nil
		for _, at := range s.At {
			names = append(names, at.Node)
		}
	case len(names) == 0 && !s.Append:
		for _, n := range l.c.Nodes() {
			names = append(names, n.Member.Name)
		}
	}
	for i, name := range names {
		if name == "" {
			return fmt.Errorf("%w: the name of node %d of %d is empty: name each node, or none for all", control.ErrRequest, i+1, len(names))
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("%w: node %s stands twice: it can hold one shard of a dataset", control.ErrRequest, name)
		}
		t := &target{name: name}
		if len(s.At) > 0 {
			t.path = s.At[i].Path
		}
		l.nodes = append(l.nodes, t)
	}
	if s.Plan != nil && int(s.Plan.Sharding.Elements) != len(names) {
		return fmt.Errorf("%w: the plan is for %d nodes, %d are to be loaded", control.ErrRequest, s.Plan.Sharding.Elements, len(names))
	}
	if s.Input != nil {
		s.Inputs = []dataset.Input{s.Input}
	}
	if s.Append && (s.Replace || s.Writable || s.Plan != nil || s.Blank != nil || len(s.At) == 0 && len(names) > 0) {
		return fmt.Errorf("%w: rows are added to columns, which are sealed, at the nodes that have the dataset: leave out Replace, Writable and Nodes, and give files", control.ErrRequest)
	}
	if len(s.Inputs) > 0 {
		o := s.Options
		o.Spread.Elements = uint32(max(len(names), 1))
		if s.Writable && (o.Columnar() || o.Format == dataset.Edges) {
			return fmt.Errorf("%w: columns and graphs are sealed: load them without --writable; rows that are one value of fixed width (--schema with one field, or --packed) can be written", control.ErrRequest)
		}
		return o.Validate()
	}
	return nil
}

// reach finds the endpoints of all nodes. One that is not connected is tried
// once more, but not waited for as long as the load may take.
func (l *loading) reach(ctx context.Context) error {
	most := l.c.patience(ctx)
	short, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	defer l.c.waits(most)()
	failed := make([]error, len(l.nodes))
	var wg sync.WaitGroup
	for i, t := range l.nodes {
		wg.Go(func() { t.ep, failed[i] = l.c.links.Try(short, t.name) })
	}
	wg.Wait()
	var down, up []string
	for i, t := range l.nodes {
		switch err := failed[i]; {
		case err == nil:
			up = append(up, t.name)
		case !errors.Is(err, control.ErrNotConnected) || ctx.Err() != nil:
			return err
		default:
			down = append(down, t.name)
		}
	}
	if len(down) == 0 {
		return nil
	}
	do := "start it"
	if len(down) > 1 {
		do = "start them"
	}
	if len(up) > 0 && len(l.spec.At) == 0 && l.spec.Plan == nil {
		do += ", or name the others with --nodes " + strings.Join(up, ",")
	}
	return fmt.Errorf("%s cannot be reached: %s (%w)", strings.Join(down, " and "), do, errors.Join(slices.DeleteFunc(failed, func(err error) bool { return err == nil })...))
}

func (l *loading) run(ctx context.Context) (err error) {
	if err := l.adds(ctx); err != nil {
		return err
	}
	if err := l.reach(ctx); err != nil {
		return err
	}
	if err := l.free(ctx); err != nil {
		return err
	}
	if l.plan = l.spec.Plan; len(l.spec.Inputs) > 0 || l.spec.rows != nil {
		if err := l.scan(ctx); err != nil {
			return err
		}
	}
	if l.spec.DryRun && l.plan != nil {
		return l.dryRun(ctx)
	}
	var b [16]byte
	rand.Read(b[:])
	l.id = control.LoadID(hex.EncodeToString(b[:]))
	defer func() {
		l.touches.end()
		if err != nil || l.spec.DryRun {
			l.undo(ctx)
		}
		if l.staging != nil {
			l.staging.Close()
		}
	}()
	if err := l.begin(ctx); err != nil {
		return err
	}
	var table *cluster.Table
	switch {
	case l.plan != nil:
		table, err = l.push(ctx)
	case l.spec.Blank != nil:
		table, err = l.blank(ctx)
	default:
		table, err = l.pull(ctx)
	}
	if err != nil {
		return err
	}
	l.touches.end()
	if l.spec.DryRun {
		table.Version = 0 // it becomes none
		return nil
	}
	return l.finish(ctx, table)
}

// dryRun reads what is read here.
func (l *loading) dryRun(ctx context.Context) error {
	if err := l.plan.Fill(ctx, dataset.Discard{}); err != nil {
		return err
	}
	if err := l.unmet(l.plan.Columns, l.plan.Unmet); err != nil {
		return err
	}
	l.report.Edges, l.report.Rows, l.report.Bytes = l.plan.Edges, l.plan.Rows, l.plan.TotalBytes()
	l.report.Bad, l.report.BadLines = l.plan.Bad.Count, control.BadLinesOf(&l.plan.Bad)
	l.report.Table = &cluster.Table{Name: l.spec.Name, Kind: l.plan.Kind, Schema: l.plan.Schema, Sharding: l.plan.Sharding, Columns: l.plan.Columns, Rows: l.plan.Rows}
	l.report.ofColumns(l.plan.Columns, l.plan.Stats, l.plan.Files, l.plan.Inferred)
	for _, parts := range l.plan.Parts {
		l.report.countParts(parts)
	}
	return nil
}

// free fails early if the name is taken: before a long scan.
func (l *loading) free(ctx context.Context) error {
	if l.spec.Replace || l.base != nil {
		return nil
	}
	var mu sync.Mutex
	taken := map[string][]string{} // the nodes that say the same
	err := l.each(func(t *target) error {
		e, err := ask[control.Entry](ctx, l.c, t.ep, control.CallStat, control.NameRequest{Name: l.spec.Name})
		var by string
		switch {
		case err == nil:
			by = fmt.Sprintf("%q, version %d, of %q: choose another name, remove it first, or replace it (--replace)", e.Name, e.Version, e.Owner)
		case errors.Is(err, cluster.ErrForbidden):
			by = fmt.Sprintf("%q, of somebody else: choose another name", l.spec.Name)
		case errors.Is(err, cluster.ErrNotFound):
			return nil
		default:
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		taken[by] = append(taken[by], t.name)
		return nil
	})
	errs := []error{err}
	for _, by := range slices.Sorted(maps.Keys(taken)) {
		who := "node "
		if len(taken[by]) > 1 {
			who = "nodes "
		}
		errs = append(errs, fmt.Errorf("%s%s: %w: %s", who, strings.Join(slices.Sorted(slices.Values(taken[by])), ", "), cluster.ErrExists, by))
	}
	return errors.Join(errs...)
}

func (l *loading) scan(ctx context.Context) error {
	o := l.spec.Options
	o.Spread.Elements = uint32(len(l.nodes))
	if l.base != nil {
		o.Like, o.Before = l.base.Columns, l.before
	}
	o.Progress = func(phase dataset.Phase, done, total int64) {
		l.progress(LoadProgress{Phase: string(phase), Done: done, Total: total})
	}
	var err error
	if l.spec.rows != nil {
		l.plan, err = dataset.ScanChunks(ctx, l.spec.rows, o)
		return err
	}
	l.plan, err = dataset.ScanFiles(ctx, l.spec.Inputs, o)
	return err
}

// each does something at all nodes at once, and joins what failed.
func (l *loading) each(fn func(t *target) error) error {
	errs := make([]error, len(l.nodes))
	var wg sync.WaitGroup
	for i, t := range l.nodes {
		wg.Go(func() { errs[i] = fn(t) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// begin reserves the name at all nodes. One after the other and by name, so
// that of two clients that load the same name one wins everywhere.
func (l *loading) begin(ctx context.Context) error {
	if l.plan != nil {
		if err := l.stage(); err != nil {
			return err
		}
	}
	byName := slices.Clone(l.nodes)
	slices.SortFunc(byName, func(a, b *target) int { return strings.Compare(a.name, b.name) })
	for _, t := range byName {
		req := control.BeginRequest{Load: l.id, Name: l.spec.Name, Replace: l.spec.Replace}
		if l.base != nil {
			req.Append = l.base.Version
		}
		if l.staging != nil {
			req.Staging = t.staging.Append(nil)
		}
		var err error
		if t.begun, err = ask[control.BeginReply](ctx, l.c, t.ep, control.CallBegin, req); err != nil {
			return err
		}
		l.version = max(l.version, t.begun.NextVersion)
	}
	l.touches.begin(l.nodes)
	return nil
}

// push writes a plan's windows.
func (l *loading) push(ctx context.Context) (*cluster.Table, error) {
	sink := newSink(ctx, l)
	err := l.plan.Fill(sink.ctx, sink)
	if err != nil {
		sink.cancel(err)
	}
	if werr := sink.wait(); werr != nil && !errors.Is(werr, err) {
		err = werr // the cause, where Fill saw a context that ended
	}
	if err == nil {
		err = l.unmet(l.plan.Columns, l.plan.Unmet)
	}
	if err != nil {
		return nil, err
	}
	l.report.Edges, l.report.Bad = l.plan.Edges, l.plan.Bad.Count
	l.report.BadLines = control.BadLinesOf(&l.plan.Bad)
	t := l.table(l.plan.Kind, l.plan.Schema, l.plan.Sharding)
	t.Columns = l.plan.Columns
	for i := range t.Shards {
		t.Shards[i].Parts = l.plan.PartsOf(uint32(i))
		l.report.countParts(t.Shards[i].Parts)
		if l.base != nil {
			l.nodes[i].joined = l.plan.Joined[i]
		}
	}
	l.together(t)
	l.report.ofColumns(l.plan.Columns, l.plan.Stats, l.plan.Files, l.plan.Inferred)
	return t, nil
}

// blank makes empty windows.
func (l *loading) blank(ctx context.Context) (*cluster.Table, error) {
	b := l.spec.Blank
	if err := l.each(func(t *target) error {
		t.sizes = b.Sizes
		_, err := ask[control.Nothing](ctx, l.c, t.ep, control.CallAlloc, control.AllocRequest{Load: l.id, Sizes: b.Sizes, Writable: l.spec.Writable})
		return err
	}); err != nil {
		return nil, err
	}
	return l.table(cluster.Raw, schema.Schema{}, cluster.Sharding{Kind: cluster.Block, Elements: uint32(len(l.nodes)), Rows: b.Rows}), nil
}

// pull has each node load its own file.
func (l *loading) pull(ctx context.Context) (*cluster.Table, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var first error
	fail := func(err error) error { // the others need not go on
		if first == nil {
			first = err
			cancel(err)
		}
		return err
	}
	err := l.each(func(t *target) error {
		if t.path == "" { // of a dataset that is added to
			t.file = &control.FileReply{Kind: l.base.Kind, Columns: l.base.Columns}
			return nil
		}
		req := control.FileRequest{Load: l.id, Path: t.path, Format: l.spec.Format, Writable: l.spec.Writable, DryRun: l.spec.DryRun}
		if l.base != nil {
			req.Format.Like, req.Join = l.base.Columns, t.join
		}
		reply, err := control.DoNotes[control.FileReply](ctx, l.c.rpc, t.ep, control.CallFile, req, func(p control.Progress) {
			l.progress(LoadProgress{Node: t.name, Phase: p.Phase, Done: p.Done, Total: p.Total})
		})
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			return fail(err)
		}
		t.file, t.sizes, t.joined = reply, reply.Sizes, reply.Joined
		l.report.Bad += reply.Bad
		for _, b := range reply.BadLines[:min(len(reply.BadLines), dataset.MaxBadShown)] {
			b.Node = t.name
			t.bad = append(t.bad, b)
		}
		if err := l.tooManyBad(); err != nil {
			return fail(err)
		}
		return nil
	})
	if err != nil {
		return nil, first
	}
	a := l.nodes[0]
	counts := make([]uint64, len(l.nodes))
	for i, t := range l.nodes {
		if t.file.Kind != a.file.Kind || t.file.Schema.String() != a.file.Schema.String() {
			return nil, fmt.Errorf("%w: the files differ: %s:%s has %v of %s, %s:%s has %v of %s", dataset.ErrInput,
				a.name, a.path, a.file.Kind, a.file.Schema.String(), t.name, t.path, t.file.Kind, t.file.Schema.String())
		}
		if differs := differ(a.file, t.file); differs != "" {
			return nil, fmt.Errorf("%w: the files differ: %s:%s against %s:%s: %s", dataset.ErrInput, t.name, t.path, a.name, a.path, differs)
		}
		counts[i] = t.file.Rows
		l.report.Edges += t.file.Edges
		l.report.BadLines = append(l.report.BadLines, t.bad...)
	}
	if a.file.Kind == cluster.CSR && len(l.nodes) > 1 {
		return nil, fmt.Errorf("%w: a graph in several files cannot be loaded at the nodes, because its vertices must be numbered together: load it from one node, or from here", control.ErrRequest)
	}
	if err := l.unmet(a.file.Columns, l.unmetAnywhere()); err != nil {
		return nil, err
	}
	t := l.table(a.file.Kind, a.file.Schema, cluster.BlockOf(counts))
	l.pulledColumns(t)
	return t, nil
}

// pulledColumns puts what nodes found in their files into the table and the report.
func (l *loading) pulledColumns(t *cluster.Table) {
	a := l.nodes[0].file
	t.Columns = slices.Clone(a.Columns)
	stats := make([]part.Stats, len(t.Columns))
	var files []dataset.FileStats
	var inferred *dataset.Inference // of all nodes' files, whose types are the same
	for i, n := range l.nodes {
		t.Shards[i].Parts = n.file.Parts
		l.report.countParts(n.file.Parts)
		for _, f := range n.file.Files {
			f.Node = n.name
			files = append(files, f)
		}
		if more := n.file.Inferred; inferred == nil {
			inferred = more
		} else if more != nil {
			inferred.Rows += more.Rows
		}
		for c := range min(len(stats), len(n.file.Stats)) {
			stats[c].Add(t.Columns[c].Type, n.file.Stats[c])
		}
		for c := range t.Columns { // one of the files may miss values where others miss none
			t.Columns[c].Nullable = t.Columns[c].Nullable || n.file.Columns[c].Nullable
		}
	}
	l.together(t)
	l.report.ofColumns(t.Columns, stats, files, inferred)
}

// tooManyBad reports that the files together have more bad lines than are allowed. Each node keeps to that for its own file.
func (l *loading) tooManyBad() error {
	most := l.spec.Format.SkipBad
	if most < 0 || l.report.Bad <= most {
		return nil
	}
	first := errors.New("the nodes do not say which")
	for _, t := range l.nodes {
		if len(t.bad) > 0 {
			first = fmt.Errorf("node %s: %s", t.name, t.bad[0].Error)
			break
		}
	}
	return dataset.TooManyBad(most, first)
}

// table is the shard table without keys.
func (l *loading) table(kind cluster.Kind, s schema.Schema, sharding cluster.Sharding) *cluster.Table {
	t := &cluster.Table{Name: l.spec.Name, Version: l.version, Kind: kind, Schema: s, Sharding: sharding}
	for _, n := range l.nodes {
		sh := cluster.Shard{Element: n.name, Incarnation: fabric.Incarnation(n.begun.Incarnation), Addrs: n.begun.Addrs}
		file := cluster.FileOf(kind, len(n.sizes))
		for i, size := range n.sizes {
			sh.Windows = append(sh.Windows, cluster.Window{Size: size, Writable: l.spec.Writable && (file < 0 || i != cluster.FixedDirectory)})
		}
		l.report.Bytes += cluster.DataBytes(kind, n.sizes)
		t.Shards = append(t.Shards, sh)
	}
	t.FillRows()
	l.report.Rows = t.Rows
	l.report.Table = t
	return t
}

// differ says how a file's columns differ from another's, and what mends it; "" if they do not.
func differ(a, b *control.FileReply) string {
	differs := a.Columns.Differs(b.Columns)
	switch {
	case differs == "":
	case reordered(a.Columns, b.Columns):
		differs += "; they are the same in another order: write the columns of all these files in one order, or load them from here (without --at), where their order does not matter"
	case a.Inferred != nil || b.Inferred != nil:
		differs += "; types were inferred for each file by itself: give those that differ (--types)"
	}
	return differs
}

// reordered reports whether two schemas have the same columns, in another order.
func reordered(a, b column.Schema) bool {
	byName := func(x, y column.Column) int { return strings.Compare(x.Name, y.Name) }
	return column.Schema(slices.SortedFunc(slices.Values(a), byName)).Differs(slices.SortedFunc(slices.Values(b), byName)) == ""
}
