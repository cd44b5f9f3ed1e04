package cluster

import "fmt"

// validateWindows checks the windows' number and sizes against the rows.
func (t *Table) validateWindows(s *Shard) error {
	size := func(w int) uint64 { return s.Windows[w].Size }
	if t.Kind != Columns && len(s.Parts) != 0 {
		return fmt.Errorf("it has parts, which kind %v has not", t.Kind)
	}
	switch t.Kind {
	case Columns:
		return validateParts(s)
	case Records:
		l, err := t.Schema.Layout()
		if err != nil {
			return err
		}
		old, now := 1, FixedWindows
		if l.HasStr { // records had it in a second window, before they were columns
			old, now = 2, 2
		}
		if n := len(s.Windows); n != old && n != now {
			return fmt.Errorf("%d windows, records of %s have %d", n, clip(t.Schema.String()), now)
		}
		if rows := s.Rows * uint64(l.Size); size(FixedValues) != rows {
			return fmt.Errorf("window %d has %d bytes, %d rows have %d", FixedValues, size(FixedValues), s.Rows, rows)
		}
	case CSR:
		if n := len(s.Windows); n != GraphWindows && n != WeightedWindows && n != GraphFileWindows {
			return fmt.Errorf("%d windows, a graph has %d", n, GraphFileWindows)
		}
		for _, w := range []int{FwdOffsetsWindow, RevOffsetsWindow} {
			if want := 8 * (s.Rows + 1); size(w) != want {
				return fmt.Errorf("window %d has %d bytes, the offsets of %d rows have %d", w, size(w), s.Rows, want)
			}
			if size(w+1)%4 != 0 {
				return fmt.Errorf("window %d has %d bytes, vertices have 4 each", w+1, size(w+1))
			}
		}
		if len(s.Windows) >= WeightedWindows && size(FwdWeightsWindow)|size(RevWeightsWindow) != 0 {
			for targets, weights := range map[int]int{FwdTargetsWindow: FwdWeightsWindow, RevTargetsWindow: RevWeightsWindow} {
				if size(weights) != 2*size(targets) {
					return fmt.Errorf("window %d has %d bytes, the weights of window %d, with 4 bytes each target, have %d", weights, size(weights), targets, 2*size(targets))
				}
			}
		}
		if want := 4 * (s.Rows + 1); size(NameOffsetsWindow) != want && size(NameOffsetsWindow) != 0 {
			return fmt.Errorf("window %d has %d bytes, the names of %d rows have %d", NameOffsetsWindow, size(NameOffsetsWindow), s.Rows, want)
		}
		if size(NameOffsetsWindow) == 0 && size(NamesWindow) != 0 {
			return fmt.Errorf("window %d has names, window %d no offsets of them", NamesWindow, NameOffsetsWindow)
		}
	}
	n, file := len(t.Shards[0].Windows), t.File()
	if t.Kind != Raw && len(s.Windows) != n {
		return fmt.Errorf("%d windows, the first shard has %d", len(s.Windows), n)
	}
	if file < 0 {
		return nil
	}
	return validateFile(s, file)
}

// validateFile checks that a shard's file has room for the windows that lie in it, and is sealed, as is the directory.
func validateFile(s *Shard, file int) error {
	all := uint64(0)
	for i, w := range s.Windows {
		if w.Writable && (file == GraphFile || i == FixedDirectory) {
			return fmt.Errorf("window %d is writable: only values of fixed width are", i)
		}
		if InFile(i, file) {
			all += w.Size
		}
	}
	if s.Windows[file].Size <= all {
		return fmt.Errorf("window %d, an Arrow file, has %d bytes, and the windows in it %d", file, s.Windows[file].Size, all)
	}
	return nil
}

// validateParts checks that a shard's parts have its rows, and two windows each.
func validateParts(s *Shard) error {
	if len(s.Windows) != PartWindows*len(s.Parts) || len(s.Parts) == 0 {
		return fmt.Errorf("%d parts and %d windows; it has 1 to %d parts, of %d windows each", len(s.Parts), len(s.Windows), MaxParts, PartWindows)
	}
	for i, w := range s.Windows {
		if w.Writable { // functions believe what was checked once
			return fmt.Errorf("window %d is writable: columns are sealed, load them without --writable", i)
		}
	}
	rows := uint64(0)
	for i, p := range s.Parts {
		if p.Rows > s.Rows || uint64(p.Chunks) > p.Rows || p.Chunks == 0 && p.Rows > 0 {
			return fmt.Errorf("part %d has %d rows in %d chunks, the shard %d", i, p.Rows, p.Chunks, s.Rows)
		}
		rows += p.Rows
		if s.Windows[PartWindows*i+PartFile].Size == 0 || s.Windows[PartWindows*i+PartDirectory].Size == 0 {
			return fmt.Errorf("part %d is empty: even one without rows says which columns it has", i)
		}
	}
	if rows != s.Rows {
		return fmt.Errorf("its parts have %d rows, the shard %d", rows, s.Rows)
	}
	return nil
}
