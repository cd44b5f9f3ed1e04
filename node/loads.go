package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

const (
	// maxFillBytes bounds one fetch from a client's memory.
	maxFillBytes = 16 << 20
	// fillPiece is how much of it is one Get: pieces are in flight together.
	fillPiece = 256 << 10
	// outcomeTime bounds asking one peer what became of a load.
	outcomeTime = 5 * time.Second
	// reapEvery is how often idle loads are looked for, and versions without readers.
	reapEvery = time.Second
	// maxVersionStep is how far beyond the next a version may be: as many loads as other
	// nodes may have seen, and never so many that versions run out.
	maxVersionStep = 1 << 32
	// loadIDBytes is the length of a LoadID.
	loadIDBytes = 32
)

func (n *Node) begin(ctx context.Context, c *rpc.Call, req *control.BeginRequest) (*control.BeginReply, error) {
	if n.stopping.Load() {
		return nil, control.ErrStopping
	}
	who := control.PrincipalOf(c.From)
	if !who.Caps.Has(cluster.CapWrite) {
		return nil, &cluster.ForbiddenError{Principal: who.Name, Need: "capability write", Name: req.Name, Do: "use a token or certificate that has it"}
	}
	if err := cluster.ValidateName(req.Name); err != nil {
		return nil, fmt.Errorf("%w: %w", cluster.ErrName, err)
	}
	if len(req.Load) != loadIDBytes {
		return nil, fmt.Errorf("%w: a load's id of %d characters, want %d", control.ErrRequest, len(req.Load), loadIDBytes)
	}
	old, err := n.catalog.MayPut(who, req.Name, req.Replace || req.Append > 0)
	if err == nil && req.Append > 0 {
		err = n.mayAppend(old, req)
	}
	if err != nil {
		return nil, err
	}
	l := &load{id: req.Load, name: req.Name, replace: req.Replace || req.Append > 0, base: req.Append, by: who, from: c.From, touched: time.Now()}
	if len(req.Staging) > 0 {
		if l.staging, err = fabric.DecodeKey(req.Staging); err != nil {
			return nil, fmt.Errorf("%w: staging: %w", control.ErrRequest, err)
		}
		if l.remote, err = c.From.Import(ctx, l.staging); err != nil {
			return nil, fmt.Errorf("the client's staging memory: %w", err)
		}
	}
	reply := &control.BeginReply{Incarnation: cluster.Incarnation(n.el.Incarnation()), Addrs: n.Addrs()}
	if old != nil {
		reply.Holders = old.Table.Members()
	}
	if err := n.data.begin(l, n.catalog.NextVersion); err != nil {
		return nil, err
	}
	if c.From.Err() != nil { // lost meanwhile, before this load was there to be ended
		n.data.abort(l)
		return nil, c.From.Err()
	}
	lent, _, bounds := n.account.Used()
	reply.NextVersion, reply.FreeBytes = l.next, bounds.Bytes-lent.Bytes+n.data.past.bytes("")
	reply.LoadTimeMs = n.live.Load().LoadTime.Milliseconds()
	return reply, nil
}

func (n *Node) alloc(_ context.Context, c *rpc.Call, req *control.AllocRequest) (*control.Nothing, error) {
	l, err := n.data.enter(req.Load, c.From, loadOpen)
	if err != nil {
		return nil, err
	}
	defer n.data.leave(l)
	return &control.Nothing{}, n.data.alloc(l, req.Kind, req.Sizes, req.Writable)
}

// fill fetches bytes from the client's memory: the node decides when, so that
// no client can push more at it than it has asked for.
func (n *Node) fill(ctx context.Context, c *rpc.Call, req *control.FillRequest) (*control.Nothing, error) {
	l, err := n.data.enter(req.Load, c.From, loadOpen)
	if err != nil {
		return nil, err
	}
	defer n.data.leave(l)
	if len(req.Pieces) == 0 {
		return &control.Nothing{}, nil
	}
	windows, err := n.data.pin(l)
	if err != nil {
		return nil, err
	}
	defer unpin(windows)
	if l.remote == nil {
		return nil, fmt.Errorf("%w: load %s has no staging memory to fill from", control.ErrRequest, req.Load)
	}
	ranges, total, err := fillRanges(windows, req.Pieces)
	if err != nil {
		return nil, err
	}
	if err := control.GetAll(ctx, l.remote, ranges, fillPiece); err != nil {
		return nil, fmt.Errorf("fetching from the client: %w", err)
	}
	n.data.bytes.Add(total)
	return &control.Nothing{}, nil
}

// fillRanges checks pieces and finds the memory that they go to.
func fillRanges(windows []window, pieces []control.Piece) (ranges []control.Range, total uint64, err error) {
	if len(pieces) > control.MaxPieces {
		return nil, 0, fmt.Errorf("%w: %d pieces, at most %d are fetched at once", control.ErrRequest, len(pieces), control.MaxPieces)
	}
	for _, p := range pieces {
		if p.Window < 0 || p.Window >= len(windows) {
			return nil, 0, fmt.Errorf("%w: window %d of %d", control.ErrRequest, p.Window, len(windows))
		}
		w := windows[p.Window]
		if p.Offset > w.size || p.Size > w.size-p.Offset {
			return nil, 0, fmt.Errorf("%w: %d bytes at %d leave window %d, which has %d", control.ErrRequest, p.Size, p.Offset, p.Window, w.size)
		}
		if total += p.Size; p.Size > maxFillBytes || total > maxFillBytes {
			return nil, 0, fmt.Errorf("%w: more than %d bytes to fetch at once", control.ErrRequest, maxFillBytes)
		}
		ranges = append(ranges, control.Range{Dst: w.memory()[p.Offset : p.Offset+p.Size], Offset: p.From})
	}
	return ranges, total, nil
}

// file loads a file of the node's own.
func (n *Node) file(ctx context.Context, c *rpc.Call, req *control.FileRequest) (*control.FileReply, error) {
	if n.stopping.Load() {
		return nil, control.ErrStopping
	}
	l, err := n.data.enter(req.Load, c.From, loadOpen)
	if err != nil {
		return nil, err
	}
	defer n.data.leave(l)
	ins, err := n.roots.glob(req.Path)
	if err != nil {
		return nil, err
	}
	o, err := req.Format.Options(req.Path)
	if err != nil {
		return nil, err
	}
	o.Before, o.LargeParts = n.before(l, req.Join)
	o.Progress = func(phase dataset.Phase, done, total int64) {
		if note, err := json.Marshal(control.Progress{Phase: string(phase), Done: done, Total: total}); err == nil {
			c.Note(note)
		}
	}
	leave, err := n.enterFile(ctx, o)
	if err != nil {
		return nil, err
	}
	defer leave()
	plan, err := dataset.ScanFiles(ctx, ins, *o)
	if err != nil {
		return nil, err
	}
	sink := &shardSink{n: n, l: l, kind: plan.Kind, writable: req.Writable}
	defer sink.unpin()
	if req.DryRun {
		err = plan.Fill(ctx, dataset.Discard{})
	} else if err = plan.Fill(ctx, sink); err == nil {
		n.data.bytes.Add(plan.TotalBytes())
	}
	if err != nil {
		return nil, err
	}
	return &control.FileReply{Kind: plan.Kind, Schema: plan.Schema, Columns: plan.Columns, Parts: plan.PartsOf(0), Rows: plan.Rows, Edges: plan.Edges,
		Sizes: plan.Sizes[0], Bad: plan.Bad.Count, BadLines: control.BadLinesOf(&plan.Bad), Stats: plan.Stats, Files: plan.Files, Inferred: plan.Inferred,
		Unmet: plan.Unmet, Joined: len(plan.Joined) > 0 && plan.Joined[0]}, nil
}

// shardSink is a dataset.Sink whose only element is this node.
type shardSink struct {
	n        *Node
	l        *load
	kind     cluster.Kind
	writable bool
	windows  []window // pinned
}

// Create makes the windows.
func (s *shardSink) Create(_ context.Context, _ uint32, sizes []uint64) error {
	if err := s.n.data.alloc(s.l, s.kind, sizes, s.writable); err != nil {
		return err
	}
	windows, err := s.n.data.pin(s.l)
	if err != nil {
		return err
	}
	s.unpin() // those that were there before are pinned twice now
	s.windows = windows
	return nil
}

// WriteAt copies into a window.
func (s *shardSink) WriteAt(_ context.Context, _ uint32, window int, p []byte, offset uint64) error {
	w := &s.windows[window]
	if offset > w.size || uint64(len(p)) > w.size-offset {
		return fmt.Errorf("node: %d bytes at %d of window %d, which has %d: %w", len(p), offset, window, w.size, fabric.ErrRange)
	}
	return w.seg.Fill(p, w.at+offset)
}

// Memory is a window.
func (s *shardSink) Memory(_ uint32, window int) []byte {
	return s.windows[window].memory()
}

func (s *shardSink) unpin() { unpin(s.windows) }

// prepare checks the shard table against what this node has.
func (n *Node) prepare(_ context.Context, c *rpc.Call, req *control.PrepareRequest) (*control.Nothing, error) {
	l, err := n.data.enter(req.Load, c.From, loadOpen)
	if err != nil {
		return nil, err
	}
	defer n.data.leave(l)
	t, err := cluster.DecodeTable(req.Table)
	if err != nil {
		return nil, err
	}
	i := t.Index(n.cfg.Name)
	switch {
	case t.Name != l.name:
		return nil, fmt.Errorf("%w: it is called %q, the load %q", cluster.ErrTable, t.Name, l.name)
	case i < 0:
		return nil, fmt.Errorf("%w: it has no shard of %s", cluster.ErrTable, n.cfg.Name)
	case t.Shards[i].Incarnation != n.el.Incarnation():
		return nil, fmt.Errorf("%w: its shard of %s is of incarnation %v, this one is %v", cluster.ErrTable, n.cfg.Name, t.Shards[i].Incarnation, n.el.Incarnation())
	case t.Version < l.next || t.Version-l.next > maxVersionStep:
		return nil, fmt.Errorf("%w: the table has version %d, here it must be at least %d and at most %d more", cluster.ErrVersion, t.Version, l.next, uint64(maxVersionStep))
	}
	if _, err := n.catalog.MayPut(l.by, l.name, l.replace); err != nil {
		return nil, err
	}
	if err := n.checkParts(l, t, &t.Shards[i]); err != nil {
		return nil, err
	}
	if err := n.writeFile(l, t, &t.Shards[i]); err != nil {
		return nil, err
	}
	return &control.Nothing{}, n.data.prepare(l, t, t.Shards[i].Windows)
}

// prepare compares the table's windows with the load's, and keeps the table.
func (s *store) prepare(l *load, t *cluster.Table, windows []cluster.Window) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loads[l.id] != l || l.state == loadPrepared || l.busy != 1 {
		return fmt.Errorf("%w: load %s was given up, or is still being filled", control.ErrLoad, l.id)
	}
	kept, err := s.keptOf(l, windows)
	if err != nil {
		return err
	}
	if windows = windows[kept:]; len(windows) != len(l.windows) {
		return fmt.Errorf("%w: it has %d windows here, the load %d", cluster.ErrTable, len(windows), len(l.windows))
	}
	for i, w := range windows {
		if have := l.windows[i]; w.Size != have.size || w.Writable != have.writable {
			return fmt.Errorf("%w: window %d has %d bytes (writable: %v), the load's %d bytes (%v)", cluster.ErrTable, i, w.Size, w.Writable, have.size, have.writable)
		}
	}
	l.table, l.state = t.WithoutKeys(), loadPrepared
	return nil
}

func (n *Node) commit(ctx context.Context, c *rpc.Call, req *control.LoadRequest) (*control.Nothing, error) {
	if done, known := n.data.outcome(req.Load); known {
		if done {
			return &control.Nothing{}, nil // asked again
		}
		return nil, fmt.Errorf("%w: load %s was given up", control.ErrLoad, req.Load)
	}
	l, err := n.data.enter(req.Load, c.From, loadPrepared)
	if err != nil {
		return nil, err
	}
	defer n.data.leave(l)
	return &control.Nothing{}, n.publish(ctx, l)
}

// publish commits a prepared load.
func (n *Node) publish(ctx context.Context, l *load) error {
	err := n.data.commit(l, func() error { return n.catalog.Put(ctx, l.by, l.table, l.replace) })
	if err == nil {
		n.log.Info("dataset loaded", "name", l.name, "version", l.table.Version, "rows", l.table.Rows, "by", l.by.Name)
	}
	return err
}

// outcome says how a load ended, if it has.
func (s *store) outcome(id control.LoadID) (committed, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	committed, known = s.outcomes[id]
	return committed, known
}

func (n *Node) abort(_ context.Context, c *rpc.Call, req *control.LoadRequest) (*control.Nothing, error) {
	n.data.mu.Lock()
	l := n.data.loads[req.Load]
	n.data.mu.Unlock()
	if l != nil && l.from == c.From {
		n.data.abort(l)
	}
	return &control.Nothing{}, nil
}

// outcomeOf answers a peer that wants to know whether a load was committed. A
// load that was not, never will be: the peer may rely on that.
func (n *Node) outcomeOf(_ context.Context, c *rpc.Call, req *control.LoadRequest) (*control.OutcomeReply, error) {
	if who := control.PrincipalOf(c.From); !who.Caps.Has(cluster.CapMember) {
		return nil, &cluster.ForbiddenError{Principal: who.Name, Need: "capability member", Do: "only nodes ask this"}
	}
	if done, known := n.data.outcome(req.Load); known {
		return &control.OutcomeReply{Committed: done}, nil
	}
	n.data.mu.Lock()
	l := n.data.loads[req.Load]
	n.data.mu.Unlock()
	if l != nil && !n.data.abort(l) {
		done, _ := n.data.outcome(req.Load)
		return &control.OutcomeReply{Committed: done}, nil
	}
	return &control.OutcomeReply{}, nil
}

// abandoned frees the loads of a client that is gone.
func (n *Node) abandoned(ep *fabric.Endpoint) {
	n.data.mu.Lock()
	var left []*load
	for _, l := range n.data.loads {
		if l.from == ep {
			left = append(left, l)
		}
	}
	n.data.mu.Unlock()
	for _, l := range left {
		if !n.work.Go(func() { n.giveUp(l, "its client is gone") }) {
			return // the node closes
		}
	}
}

// giveUp ends a load that will not be finished. If it was prepared, another node may
// have made it visible already; then it becomes so here too.
func (n *Node) giveUp(l *load, why string) {
	n.data.mu.Lock()
	table := l.table
	n.data.mu.Unlock()
	if table != nil && n.committedElsewhere(l.id, table) {
		if err := n.publish(n.life, l); err == nil {
			return
		}
	}
	if n.data.abort(l) {
		n.log.Warn("load given up", "name", l.name, "by", l.by.Name, "why", why)
	}
}

// committedElsewhere asks the other holders of a table's shards.
func (n *Node) committedElsewhere(id control.LoadID, t *cluster.Table) bool {
	for _, s := range t.Shards {
		if s.Element == n.cfg.Name {
			continue
		}
		ctx, cancel := context.WithTimeout(n.life, outcomeTime)
		ep, err := n.links.Wait(ctx, s.Element)
		var reply *control.OutcomeReply
		if err == nil {
			reply, err = control.Do[control.OutcomeReply](ctx, n.rpc, ep, control.CallOutcome, control.LoadRequest{Load: id})
		}
		cancel()
		if err != nil {
			n.log.Warn("a peer does not say what became of a load", "peer", s.Element, "name", t.Name, "err", err)
			continue
		}
		if reply.Committed {
			return true
		}
	}
	return false
}

// reap gives up loads that were left idle, and versions that nobody reads any more.
func (n *Node) reap() {
	tick := time.NewTicker(reapEvery)
	defer tick.Stop()
	for {
		select {
		case <-n.life.Done():
			return
		case now := <-tick.C:
			n.data.past.expire(now)
			most := n.live.Load().LoadTime
			n.data.mu.Lock()
			var idle []*load
			for _, l := range n.data.loads {
				if l.busy == 0 && now.Sub(l.touched) > most {
					idle = append(idle, l)
				}
			}
			n.data.mu.Unlock()
			for _, l := range idle {
				n.giveUp(l, "nothing happened for "+most.String())
			}
		}
	}
}
