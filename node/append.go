package node

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// A load that appends makes a new version whose shard has parts of the version before, which both share, and new ones behind them. The
// last of the old parts may be written again as part of the new ones: small ones are joined so.

// mayAppend checks that a dataset is what a load adds to.
func (n *Node) mayAppend(old *cluster.Entry, req *control.BeginRequest) error {
	switch {
	case old == nil:
		return fmt.Errorf("%w: %q: load it without --append first", cluster.ErrNotFound, req.Name)
	case old.Version != req.Append:
		return fmt.Errorf("%w: %q has version %d here, and version %d is to be added to: somebody has loaded it meanwhile; try again", cluster.ErrVersion, req.Name, old.Version, req.Append)
	case old.Table.Kind != cluster.Columns:
		return fmt.Errorf("%w: %q is of kind %v: only columns can be added to; load it again as columns, without --schema", control.ErrRequest, req.Name, old.Table.Kind)
	case old.Table.Index(n.cfg.Name) < 0:
		return fmt.Errorf("%w: %q: this node holds no shard of it", control.ErrNoShard, req.Name)
	}
	return nil
}

// base is the shard that a load adds to; mu is held.
func (s *store) baseOf(l *load) (*shard, error) {
	sh := s.shards[l.name]
	if sh == nil || sh.version != l.base {
		return nil, fmt.Errorf("%w: %q, version %d, which the load adds to, is gone: try again", control.ErrNoShard, l.name, l.base)
	}
	return sh, nil
}

// keptOf is how many windows of a table are those of the version before; mu is held.
func (s *store) keptOf(l *load, windows []cluster.Window) (int, error) {
	if l.base == 0 {
		return 0, nil
	}
	old, err := s.baseOf(l)
	if err != nil {
		return 0, err
	}
	kept := len(windows) - len(l.windows)
	if kept < 0 || kept > len(old.windows) || kept%cluster.PartWindows != 0 {
		return 0, fmt.Errorf("%w: it has %d windows here, the load %d, and the version before %d", cluster.ErrTable, len(windows), len(l.windows), len(old.windows))
	}
	for i, w := range windows[:kept] {
		if w.Size != old.windows[i].size || w.Writable {
			return 0, fmt.Errorf("%w: window %d has %d bytes, in the version before %d", cluster.ErrTable, i, w.Size, old.windows[i].size)
		}
	}
	return kept, nil
}

// checkKept compares the parts that a table shares with the version before; it returns the others.
func (n *Node) checkKept(l *load, t *cluster.Table, s *cluster.Shard) ([]cluster.Part, error) {
	if l.base == 0 {
		return s.Parts, nil
	}
	e, err := n.catalog.MayPut(l.by, l.name, true)
	if err == nil && (e == nil || e.Version != l.base) {
		err = fmt.Errorf("%w: %q, version %d, which the load adds to, is gone: try again", control.ErrNoShard, l.name, l.base)
	}
	if err != nil {
		return nil, err
	}
	if differs := e.Table.Columns.Differs(t.Columns); differs != "" {
		return nil, fmt.Errorf("%w: %q: what is added differs from the dataset: %s", cluster.ErrTable, l.name, differs)
	}
	for i, c := range e.Table.Columns {
		if c.Nullable && !t.Columns[i].Nullable {
			return nil, fmt.Errorf("%w: column %q may miss values in the dataset, and not in the new table", cluster.ErrTable, c.Name)
		}
	}
	n.data.mu.Lock()
	kept, err := n.data.keptOf(l, s.Windows)
	n.data.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var sizes []uint64
	for _, w := range s.Windows {
		sizes = append(sizes, w.Size)
	}
	if err := dataset.CheckShard(sizes); err != nil {
		return nil, err
	}
	kept /= cluster.PartWindows
	old := e.Table.Shards[e.Table.Index(n.cfg.Name)].Parts
	if kept > len(s.Parts) || kept > len(old) {
		return nil, fmt.Errorf("%w: %d parts are kept, of %d", cluster.ErrTable, kept, len(old))
	}
	for i := range kept {
		if s.Parts[i] != old[i] {
			return nil, fmt.Errorf("%w: part %d has %+v, in the version before %+v", cluster.ErrTable, i, s.Parts[i], old[i])
		}
	}
	return s.Parts[kept:], nil
}

// addTo gives a new shard what it shares with the old one; mu is held.
func (s *store) addTo(sh *shard, l *load, old *shard) error {
	if l.base == 0 {
		return nil
	}
	if _, err := s.baseOf(l); err != nil {
		return err
	}
	i := l.table.Index(s.el.Name())
	if i < 0 {
		return fmt.Errorf("%w: it has no shard of %s", cluster.ErrTable, s.el.Name())
	}
	kept, err := s.keptOf(l, l.table.Shards[i].Windows)
	if err != nil {
		return err
	}
	sh.windows = append(append([]window(nil), old.windows[:kept]...), l.windows...)
	sh.root = append(sh.root, old.root[:kept]...)
	return nil
}

// succeed has a shard take the place of the old one; mu is held. What they do not share becomes past. The caller frees what it returns.
func (s *store) succeed(sh *shard, l *load, old *shard, now time.Time) (leave []*shard) {
	if l.base > 0 {
		old.added(l)
	}
	kept := len(sh.windows) - sh.own
	gone := &shard{name: old.name, version: old.version, writable: old.writable, windows: old.windows[kept:], given: map[string]*given{}}
	gone.charge.What = old.charge.What
	if kept == 0 {
		gone.charge, gone.given = old.charge, old.given
	} else {
		for who, g := range old.given { // keys to what both have stay what they are
			if rest := g.split(kept); len(rest.keys) > 0 {
				gone.given[who] = rest
			}
			sh.given[who] = g
		}
		for _, w := range gone.windows { // of columns, which have segments of their own
			gone.charge.Bytes, gone.charge.Files = gone.charge.Bytes+wholeBytes(w.size), gone.charge.Files+1
		}
		sh.charge.What = old.charge.What
		sh.charge.Bytes += old.charge.Bytes - gone.charge.Bytes
		sh.charge.Files += old.charge.Files - gone.charge.Files
	}
	if len(gone.windows) == 0 {
		return nil
	}
	return s.past.keep(gone, now)
}

// before reads the parts of this node's shard, from number first on, that are written again; large says that there are many.
func (n *Node) before(l *load, first int) (read func(context.Context, uint32, func([]arrow.Array)) error, large bool) {
	if l.base == 0 {
		return nil, false
	}
	n.data.mu.Lock()
	if sh, err := n.data.baseOf(l); err == nil {
		large = len(sh.windows)/cluster.PartWindows >= dataset.ManyParts
	}
	n.data.mu.Unlock()
	return func(ctx context.Context, _ uint32, add func([]arrow.Array)) error {
		n.data.mu.Lock()
		sh, err := n.data.baseOf(l)
		var windows []window
		if err == nil {
			windows = sh.windows
		}
		for i, w := range windows {
			if !w.seg.Pin() {
				unpin(windows[:i])
				windows, err = nil, fmt.Errorf("%w: %q was removed", control.ErrNoShard, l.name)
				break
			}
		}
		n.data.mu.Unlock()
		if err != nil {
			return err
		}
		defer unpin(windows)
		if first < 0 || first > len(windows)/cluster.PartWindows {
			return fmt.Errorf("%w: part %d of %d", control.ErrRequest, first, len(windows)/cluster.PartWindows)
		}
		for i := first; i < len(windows)/cluster.PartWindows; i++ {
			file := windows[cluster.PartWindows*i+cluster.PartFile]
			p, err := part.Open(file.seg.Bytes()[:file.size])
			if err != nil {
				return err
			}
			for c := range p.Chunks() {
				if err := context.Cause(ctx); err != nil {
					return err
				}
				if err := addPlain(p.Chunk(c), add); err != nil {
					return err
				}
			}
		}
		return nil
	}, large
}

// addPlain hands a chunk's rows on as copies: the part they lie in may go.
func addPlain(rec arrow.RecordBatch, add func([]arrow.Array)) error {
	defer rec.Release()
	columns, err := part.Rows(rec.Columns(), 0, int(rec.NumRows()), 1<<40)
	if err == nil {
		add(columns)
	}
	return err
}
