package node

import (
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// checkParts checks a shard's parts wholly before others can see them, and writes their directories, which are the node's word on
// where columns lie. From then on nothing can be filled into the load.
func (n *Node) checkParts(l *load, t *cluster.Table, s *cluster.Shard) error {
	if t.Kind != cluster.Columns {
		return nil
	}
	if err := n.data.settle(l); err != nil {
		return err
	}
	parts, err := n.checkKept(l, t, s)
	if err != nil || len(parts) == 0 {
		return err
	}
	windows, err := n.data.pin(l)
	if err != nil {
		return err
	}
	defer unpin(windows)
	if len(windows) != cluster.PartWindows*len(parts) {
		return fmt.Errorf("%w: %d parts have %d windows, the load has %d", cluster.ErrTable, len(parts), cluster.PartWindows*len(parts), len(windows))
	}
	for i, want := range parts {
		file, dir := windows[cluster.PartWindows*i+cluster.PartFile], windows[cluster.PartWindows*i+cluster.PartDirectory]
		if err := checkPart(t, want, file, dir); err != nil {
			return fmt.Errorf("%w: part %d of %q: %w", control.ErrRequest, i, t.Name, err)
		}
	}
	return nil
}

// checkPart checks one part against the table.
func checkPart(t *cluster.Table, want cluster.Part, file, dir window) error {
	p, err := part.Open(file.seg.Bytes()[:file.size])
	if err != nil {
		return err
	}
	if differs := t.Columns.Differs(p.Columns); differs != "" {
		return fmt.Errorf("its columns are not the table's: %s", differs)
	}
	for i, c := range p.Columns {
		if c.Nullable && !t.Columns[i].Nullable {
			return fmt.Errorf("its column %q may miss values, the table's may not", c.Name)
		}
	}
	if p.Rows != want.Rows || p.Chunks() != int(want.Chunks) {
		return fmt.Errorf("it has %d rows in %d chunks, the table says %d in %d", p.Rows, p.Chunks(), want.Rows, want.Chunks)
	}
	b := p.Directory()
	if uint64(len(b)) != dir.size {
		return fmt.Errorf("its directory takes %d bytes, its window has %d", len(b), dir.size)
	}
	copy(dir.seg.Bytes(), b)
	return nil
}

// settle ends the filling of a load, which its caller alone works on.
func (s *store) settle(l *load) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loads[l.id] != l || l.state != loadOpen || l.busy != 1 {
		return fmt.Errorf("%w: load %s was given up, or is still being filled", control.ErrLoad, l.id)
	}
	l.state = loadSettled
	return nil
}
