package node

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// writeFile makes the windows of rows or of a graph, once they are filled, an Arrow file: the node writes what is around them, and the
// directory of rows. From then on nothing can be filled into the load.
func (n *Node) writeFile(l *load, t *cluster.Table, s *cluster.Shard) error {
	at := t.File()
	if at < 0 {
		return nil
	}
	if err := n.data.settle(l); err != nil {
		return err
	}
	windows, err := n.data.pin(l)
	if err != nil {
		return err
	}
	defer unpin(windows)
	if len(windows) != len(s.Windows) {
		return fmt.Errorf("%w: it has %d windows here, the load %d", cluster.ErrTable, len(s.Windows), len(windows))
	}
	for i := range windows {
		if w := &windows[i]; w.size != s.Windows[i].Size || w.inFile != cluster.InFile(i, at) {
			return fmt.Errorf("%w: window %d has %d bytes, the load's %d, in a file: %v", cluster.ErrTable, i, s.Windows[i].Size, w.size, w.inFile)
		}
	}
	var file *part.Aligned
	if t.Kind == cluster.CSR {
		file, err = graphFile(t, s, windows)
	} else {
		file, err = rowsFile(t, s, windows)
	}
	if err == nil {
		err = file.Write(windows[at].memory())
	}
	if err != nil {
		return fmt.Errorf("%w: %q: %w", control.ErrRequest, t.Name, err)
	}
	return nil
}

// rowsFile is the file of rows without text; their directory is written.
func rowsFile(t *cluster.Table, s *cluster.Shard, windows []window) (*part.Aligned, error) {
	c, ok := cluster.FixedColumn(&t.Schema)
	if !ok {
		return nil, fmt.Errorf("rows of %s are no column of fixed width", &t.Schema)
	}
	rows := &windows[cluster.FixedValues]
	dir, into := part.FixedDirectory(c, rows.memory(), !rows.writable), windows[cluster.FixedDirectory].memory()
	if len(dir) != len(into) {
		return nil, fmt.Errorf("the directory of %d rows takes %d bytes, its window has %d", s.Rows, len(dir), len(into))
	}
	copy(into, dir)
	return part.FixedFile(c, s.Rows)
}

// graphFile is the file of a graph, whose offsets are checked first: readers of the file rely on them.
func graphFile(t *cluster.Table, s *cluster.Shard, windows []window) (*part.Aligned, error) {
	g := part.Graph{Rows: s.Rows, Weighted: t.Weighted()}
	for i := range cluster.GraphFile {
		g.Sizes = append(g.Sizes, windows[i].size)
	}
	for _, of := range []struct {
		offsets, values int
		width, unit     uint64
	}{{cluster.FwdOffsetsWindow, cluster.FwdTargetsWindow, 8, 4}, {cluster.RevOffsetsWindow, cluster.RevTargetsWindow, 8, 4}, {cluster.NameOffsetsWindow, cluster.NamesWindow, 4, 1}} {
		offsets := windows[of.offsets].memory()
		if len(offsets) == 0 {
			continue
		}
		if err := checkOffsets(offsets, of.width, windows[of.values].size/of.unit); err != nil {
			return nil, fmt.Errorf("window %d: %w", of.offsets, err)
		}
	}
	g.Text = names(windows[cluster.NameOffsetsWindow].memory(), windows[cluster.NamesWindow].memory())
	return g.File()
}

// checkOffsets finds offsets that do not lead from 0 to all values, ascending.
func checkOffsets(b []byte, width, values uint64) error {
	before := uint64(0)
	for i := range uint64(len(b)) / width {
		var v uint64
		if width == 4 {
			v = uint64(binary.LittleEndian.Uint32(b[4*i:]))
		} else {
			v = binary.LittleEndian.Uint64(b[8*i:])
		}
		if v < before || i == 0 && v != 0 || v > values {
			return fmt.Errorf("offset %d is %d, behind %d, of %d values", i, v, before, values)
		}
		before = v
	}
	if before != values {
		return fmt.Errorf("its offsets end at %d, there are %d values", before, values)
	}
	return nil
}

// names reports whether each name is UTF-8.
func names(offsets, text []byte) bool {
	for i := 0; i+8 <= len(offsets); i += 4 {
		if !utf8.Valid(text[binary.LittleEndian.Uint32(offsets[i:]):binary.LittleEndian.Uint32(offsets[i+4:])]) {
			return false
		}
	}
	return true
}
