package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/fabric"
)

// adds finds the dataset that a load adds to, and its nodes.
func (l *loading) adds(ctx context.Context) error {
	if !l.spec.Append {
		return nil
	}
	t, err := l.c.Table(ctx, l.spec.Name, "r")
	if errors.Is(err, cluster.ErrNotFound) {
		return fmt.Errorf("%w: load it without --append first", err)
	}
	if err != nil {
		return err
	}
	if t.Kind != cluster.Columns {
		return fmt.Errorf("%w: dataset %s is of kind %v: only columns can be added to; load it again as columns, without --schema", control.ErrRequest, t.Name, t.Kind)
	}
	if err := l.keepsKey(t); err != nil {
		return err
	}
	named := l.nodes
	l.base, l.nodes = t, nil
	for _, s := range t.Shards {
		n := &target{name: s.Element}
		var sizes []uint64
		for i := range s.Parts {
			sizes = append(sizes, s.Windows[cluster.PartWindows*i+cluster.PartFile].Size)
		}
		n.join = dataset.JoinFrom(sizes)
		l.spec.Options.LargeParts = l.spec.Options.LargeParts || len(sizes) >= dataset.ManyParts
		if i := slices.IndexFunc(named, func(t *target) bool { return t.name == s.Element }); i >= 0 {
			n.path = named[i].path
		}
		l.nodes = append(l.nodes, n)
	}
	for _, n := range named {
		if t.Index(n.name) < 0 {
			return fmt.Errorf("%w: node %s holds no shard of %s: name one that does, or load the file here", control.ErrRequest, n.name, t.Name)
		}
	}
	return nil
}

// keepsKey has what is added to a dataset go where its key says.
func (l *loading) keepsKey(t *cluster.Table) error {
	key, given := t.Sharding.Key, &l.spec.Options.Spread
	switch {
	case given.Key != "" && given.Key != key && key == "":
		return fmt.Errorf("%w: dataset %s lies in ranges of rows, not by the key %q: leave out --key, or load it again with --key and --replace", control.ErrRequest, t.Name, given.Key)
	case given.Key != "" && given.Key != key:
		return fmt.Errorf("%w: dataset %s lies by the key %q, not %q: what is added goes by the same key", control.ErrRequest, t.Name, key, given.Key)
	case key != "" && len(l.spec.At) > 0:
		return fmt.Errorf("%w: dataset %s lies by the key %q, and a node that reads its own file keeps all its rows: load the file here, without --at", control.ErrRequest, t.Name, key)
	case key != "":
		*given = dataset.Spread{Kind: cluster.Hash, Key: key}
	}
	return nil
}

// before reads the rows of a node's last parts, which are written again.
func (l *loading) before(ctx context.Context, element uint32, add func([]arrow.Array)) error {
	s := &l.base.Shards[element]
	from := l.nodes[element].join
	if from == len(s.Parts) {
		return nil
	}
	first, count := s.FirstRow, uint64(0)
	for i, p := range s.Parts {
		if i < from {
			first += p.Rows
		} else {
			count += p.Rows
		}
	}
	r := &Reader{Table: l.base, c: l.c, remotes: map[[2]int]*fabric.Remote{}}
	for rec, err := range r.Batches(ctx, first, count) {
		if err != nil {
			return err
		}
		columns, err := part.Rows(rec.Columns(), 0, int(rec.NumRows()), 1<<40)
		if err != nil {
			return err
		}
		add(columns)
	}
	return nil
}

// together puts the parts that stay in front of the new ones.
func (l *loading) together(t *cluster.Table) {
	if l.base == nil {
		return
	}
	counts := make([]uint64, len(t.Shards))
	for i := range t.Shards {
		s, old := &t.Shards[i], &l.base.Shards[i]
		kept := len(old.Parts)
		if l.nodes[i].joined {
			kept = l.nodes[i].join
		}
		var windows []cluster.Window
		for _, w := range old.Windows[:cluster.PartWindows*kept] {
			windows = append(windows, cluster.Window{Size: w.Size})
		}
		s.Windows = append(windows, s.Windows...)
		s.Parts = append(slices.Clone(old.Parts[:kept]), s.Parts...)
		for _, p := range s.Parts {
			counts[i] += p.Rows
		}
	}
	for c := range t.Columns { // the dataset may miss values where the files do not
		t.Columns[c].Nullable = t.Columns[c].Nullable || l.base.Columns[c].Nullable
	}
	if key := l.base.Sharding.Key; key != "" {
		t.Sharding = cluster.KeyedOf(key, counts)
	} else {
		t.Sharding = cluster.BlockOf(counts)
	}
	t.FillRows()
}
