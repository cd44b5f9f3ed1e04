package excache

// streams notices where faults go on from earlier ones: page by page upwards or downwards, or in equal strides.
type streams struct {
	all   [streamCount]stream
	clock uint32
}

const (
	// streamCount is as many as a program walks at once, with some left for faults that lead nowhere.
	streamCount = 32
	// slack pages may be left out by a walk that goes on: they were local.
	slack = 4
	// strideMost bounds a stride: 16 MiB.
	strideMost = 4096
	// strideAhead pages are fetched in front of a confirmed stride.
	strideAhead = 4
	// longHits: a walk that has gone on so often is long. That is the 32nd page of one whose runs begin with a page and double.
	longHits = 5
)

// stream is one walk.
type stream struct {
	up, down uint32 // the pages that would continue it
	last     uint32 // the page that faulted last
	stride   int64
	run      uint32 // pages of the last run
	window   uint32 // runs that are fetched ahead
	ahead    uint32 // of them, those whose pages nobody has touched yet
	since    uint32 // clock when it began: tells it from another that had its place
	hits     uint32 // how often it went on
	used     uint32 // clock of the last time
}

// hint is what a fault is part of.
type hint struct {
	at     int    // the stream
	run    uint32 // pages to install, the faulting one among them
	down   bool
	stride int64 // if not 0: fetch more pages at this distance
	more   int
}

func (s *streams) reset() {
	for i := range s.all {
		s.all[i] = stream{up: none, down: none, last: none}
	}
}

// hit finds the stream that p continues, or starts one; runs are at most most pages long.
func (s *streams) hit(p uint32, most int) hint {
	s.clock++
	victim, oldest := 0, uint32(0)
	near, distance := -1, int64(strideMost+1)
	for i := range s.all {
		t := &s.all[i]
		if up := p-t.up < slack; up || t.down-p < slack {
			t.hits++
			t.used, t.last = s.clock, p
			return hint{at: i, run: min(2*t.run, uint32(max(most, 1))), down: !up}
		}
		if t.last != none {
			d := int64(p) - int64(t.last)
			if t.stride != 0 && d == t.stride {
				t.hits++
				t.used, t.last = s.clock, p
				h := hint{at: i, run: 1, stride: d}
				if t.hits >= 2 {
					h.more = strideAhead
					t.last = p + uint32(d*strideAhead) // the next fault is behind what is fetched now
				}
				return h
			}
			if d = max(d, -d); d < distance && t.hits < 2 {
				near, distance = i, d
			}
		}
		// One that went on for long stays longer.
		if age := (s.clock - t.used) / (1 + min(t.hits, 31)); t.last == none || age >= oldest {
			if t.last == none {
				age = none
			}
			victim, oldest = i, age
		}
	}
	if near >= 0 && distance > 1 {
		t := &s.all[near]
		*t = stream{up: none, down: none, last: p, stride: int64(p) - int64(t.last), used: s.clock, since: s.clock}
		return hint{at: near, run: 1}
	}
	s.all[victim] = stream{up: none, down: none, last: p, used: s.clock, since: s.clock}
	return hint{at: victim, run: 1}
}

// long reports whether a walk has gone on for more than a few runs.
func (s *streams) long(at int) bool { return s.all[at].hits >= longHits }

// went says which span a hint led to, and how many of its pages were installed.
func (s *streams) went(h hint, first, span, n uint32) {
	t := &s.all[h.at]
	t.run, t.up, t.down = n, first+span, first-1
}
