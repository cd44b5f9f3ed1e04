package exchange

import "slices"

// seen is the set of numbers that one peer's requests had, kept as ranges: they
// come almost in order, so it stays short whatever their number.
type seen struct {
	low    uint64 // everything below was seen, or will not come
	ranges []span // above low, ascending, not touching
}

// maxSeenRanges bounds the gaps in the numbers of one peer's calls: an
// honest peer leaves no more than it has calls under way.
const maxSeenRanges = 4096

// span is the numbers from first to last.
type span struct{ first, last uint64 }

// add puts a number into the set; low says that no lower ones will come. It
// reports whether the number is new and there is room to remember it.
func (s *seen) add(id, low uint64) bool {
	if low > s.low {
		s.raise(low)
	}
	if id < s.low {
		return false
	}
	if id == s.low && len(s.ranges) == 0 { // as it comes from a peer whose link keeps the order
		s.low++
		return true
	}
	// The first range that ends at id-1 or later: id is in it, touches it, or comes before it.
	i, _ := slices.BinarySearchFunc(s.ranges, id, func(r span, id uint64) int {
		if r.last+1 < id {
			return -1
		}
		return 1
	})
	switch {
	case i < len(s.ranges) && s.ranges[i].first <= id && id <= s.ranges[i].last:
		return false
	case i < len(s.ranges) && s.ranges[i].last+1 == id:
		s.ranges[i].last = id
		if i+1 < len(s.ranges) && s.ranges[i+1].first == id+1 {
			s.ranges[i].last = s.ranges[i+1].last
			s.ranges = slices.Delete(s.ranges, i+1, i+2)
		}
	case i < len(s.ranges) && s.ranges[i].first == id+1:
		s.ranges[i].first = id
	case len(s.ranges) >= maxSeenRanges:
		return false
	default:
		s.ranges = slices.Insert(s.ranges, i, span{id, id})
	}
	s.raise(s.low)
	return true
}

// raise moves low up, and over the range it meets.
func (s *seen) raise(low uint64) {
	n := 0
	for n < len(s.ranges) && s.ranges[n].first <= low {
		low = max(low, s.ranges[n].last+1)
		n++
	}
	s.ranges = slices.Delete(s.ranges, 0, n)
	s.low = low
}
