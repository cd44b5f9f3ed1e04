package travel_test

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// A plan is a scripted invocation: a tree of steps. Each step is one visit of
// one branch to one element, and must happen exactly once.
type plan struct {
	id       int
	origin   int // node
	steps    []step
	roots    []int
	stateful bool
	workers  int  // at each element; 0: one
	fails    bool // a step fails on purpose
	mixed    bool // steps make functions of it, which the next ones run
	image    travel.ID
	table    travel.ID
	form     uint8

	fut        travel.FutureID
	life       uint64 // incarnation of its origin
	started    int64
	deadline   int64
	cancelAt   int64
	ended      bool
	canceled   bool
	orphaned   bool // its origin crashed
	err        error
	endedAt    int64
	results    map[[2]int]int // step and part, how often delivered
	startError error
	elements   map[int]uint64    // node: its life that the plan is for
	kept       map[[2]int]uint64 // node and worker: the node's life in which a step has kept scratch there
	forgot     string            // a step found none where an earlier one had kept it
}

type step struct {
	at     int // node
	worker uint8
	run    time.Duration
	split  bool // forks and parts go out before the run's time, not after
	parts  int
	forks  []int
	forked int // of them, so far
	next   int // forward; -1: the branch ends here
	reply  bool
	fail   bool
	hold   bool
	runs   int
	what   travel.What // that it was sent as
	bytes  int         // of padding in its payload
	result int         // of padding in its result
}

// payload encodes which step is to happen.
func (p *plan) payload(s int) []byte {
	b := make([]byte, 8+p.steps[s].bytes)
	binary.LittleEndian.PutUint32(b, uint32(p.id))
	binary.LittleEndian.PutUint32(b[4:], uint32(s))
	return b
}

func decodeStep(b []byte) (plan, step int) {
	return int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))
}

// makes is what the step s is to run that another one sends on, running own: the same, or with constants of its own, as many as there can be among them.
func (p *plan) makes(s int, own travel.What) travel.What {
	if !p.mixed || s%3 == 0 {
		return own
	}
	own.Constants = strings.Repeat(string(rune('a'+s%26)), 1+(s*1361)%travel.MaxConstantsBytes)
	return own
}

// result encodes a piece of a result: step and part (or -1, the reply).
func (p *plan) result(s, part int) []byte {
	b := make([]byte, 8+p.steps[s].result)
	binary.LittleEndian.PutUint32(b, uint32(s))
	binary.LittleEndian.PutUint32(b[4:], uint32(int32(part)))
	return b
}

// expected is every piece that a success must have delivered.
func (p *plan) expected() map[[2]int]int {
	m := make(map[[2]int]int)
	for i, s := range p.steps {
		for k := range s.parts {
			m[[2]int{i, k}] = 1
		}
		if s.reply {
			m[[2]int{i, -1}] = 1
		}
	}
	return m
}

// shape bounds random plans.
type shape struct {
	steps, roots, forks, parts int
	forward                    float64
	run                        time.Duration
	bytes                      int
	stateful, fail             float64
	workers                    int // the most that a plan has at each element
}

// randomPlan draws a tree. where gives the node of a step.
func randomPlan(r *rand.Rand, sh shape, where func() int) *plan {
	p := &plan{results: make(map[[2]int]int), kept: make(map[[2]int]uint64), stateful: r.Float64() < sh.stateful, cancelAt: -1}
	left := 1 + r.IntN(sh.steps)
	p.fails = r.Float64() < sh.fail
	if sh.workers > 1 {
		p.workers = 1 + r.IntN(sh.workers)
	}
	p.mixed = left%2 == 0 // without a draw of its own, which would change every seed's plans
	var grow func(depth int) int
	grow = func(depth int) int {
		left--
		i := len(p.steps)
		p.steps = append(p.steps, step{})
		s := step{at: where(), next: -1, split: r.IntN(2) == 0, hold: p.stateful && r.IntN(2) == 0}
		if r.IntN(3) > 0 && sh.run > 0 {
			s.run = time.Duration(r.Int64N(int64(sh.run)))
		}
		if p.workers > 1 {
			s.worker = uint8(r.IntN(p.workers))
		}
		if sh.parts > 0 && r.IntN(3) == 0 {
			s.parts = r.IntN(sh.parts + 1)
		}
		if sh.bytes > 0 && r.IntN(4) == 0 {
			s.bytes, s.result = r.IntN(sh.bytes), r.IntN(sh.bytes)
		}
		for range sh.forks {
			if left > 0 && r.IntN(2) == 0 {
				s.forks = append(s.forks, grow(depth+1))
			}
		}
		if left > 0 && r.Float64() < sh.forward {
			s.next = grow(depth + 1)
		} else {
			s.reply = r.IntN(4) > 0
		}
		p.steps[i] = s
		return i
	}
	for range 1 + r.IntN(max(sh.roots, 1)) {
		left = max(left, 1)
		p.roots = append(p.roots, grow(0))
	}
	if p.fails {
		p.steps[r.IntN(len(p.steps))].fail = true
	}
	return p
}
