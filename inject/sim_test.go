package inject_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/seeds"
)

var trials = seeds.Flags("./inject")

// A way says which of the short ways are taken: as a run begins, somebody looks at some of the elements or at none, and
// whoever looks sees general records only.
type way struct {
	name string
	look func(r *rand.Rand) bool
}

var ways = []way{
	{"short", func(*rand.Rand) bool { return false }},
	{"long", func(*rand.Rand) bool { return true }},
	{"mixed", func(r *rand.Rand) bool { return r.IntN(3) == 0 }},
}

// simPrograms are as many as tell something.
const simPrograms = 250

// TestSimShortWays: programs of all that functions do come to the same on the short ways, on the long ones, and where
// they change under way, and that is what the model says.
func TestSimShortWays(t *testing.T) {
	all := make([]*streets, len(ways))
	for i := range all {
		all[i] = &streets{t: t, transport: "tcp"}
	}
	var visits, stayed [3]int
	played, asked, failed := 0, 0, 0
	programs := simPrograms
	if testing.Short() { // the race detector makes them long
		programs /= 5
	}
	trials.Each(t, programs, func(seed uint64, fail seeds.Fail) {
		g := &generator{r: rand.New(rand.NewPCG(seed, 1))}
		program := g.program()
		at := uint8(g.r.IntN(houses))
		want := newModel(houses).play(at, program)
		played++
		if want.failed != nil {
			failed++
		} else if g.quick && len(want.results) == 0 {
			want.results = []string{""} // Do makes no difference
		}
		for i, w := range ways {
			p := &play{way: w, r: rand.New(rand.NewPCG(seed, 2)), s: all[i].get(), fail: fail}
			results, err := p.run(at, program, g.quick)
			if d := want.matches(results, err); d != "" {
				fail("%s: %s; steps %v at n%d", w.name, d, g.steps, at)
			}
			if d := p.s.differs(want); d != "" && err == nil {
				fail("%s: %s; steps %v at n%d", w.name, d, g.steps, at)
			}
			if err != nil {
				all[i].now = nil
			}
			visits[i], stayed[i] = visits[i]+p.visits, stayed[i]+p.stayed
			if p.asked && w.name == "short" {
				asked++
			}
		}
	})
	t.Logf("runs that began as visits, and that still were as they returned: %v and %v; %d light futures, %d programs that fail", visits, stayed, asked, failed)
	if played >= simPrograms && min(visits[0], stayed[0], visits[2], stayed[2], asked, failed) < 15 {
		t.Error("too few to tell")
	}
	if stayed[1] > 0 {
		t.Error("where everybody looks there are no short ways")
	}
}

// play is a program on a street.
type play struct {
	way
	s              *street
	fail           seeds.Fail
	r              *rand.Rand // under s.spies[0].mu
	visits, stayed int
	asked          bool
}

// lookAround has all look at what they have, if that is the way. It is called as runs begin, and as they log.
func (p *play) lookAround() {
	p.s.spies[0].mu.Lock()
	yes := p.look(p.r)
	p.s.spies[0].mu.Unlock()
	if yes {
		for _, m := range append(slices.Clone(p.s.nodes), p.s.client) {
			m.rt.Stats()
		}
	}
}

// run runs a program; quick: by the way for one answer.
func (p *play) run(at uint8, program []byte, quick bool) (results []string, err error) {
	s := p.s
	s.idle()
	s.clear()
	for _, w := range s.spies {
		w.watch(func(abi.Host) { p.lookAround() }, p.lookAround)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	before := s.f.Asked()
	root := inject.Root{Element: uint32(at), Payload: program}
	if quick {
		var got []byte
		got, err = s.f.Do(ctx, root, nil)
		results = []string{string(got)}
	} else {
		fut, serr := s.f.Start(ctx, []inject.Root{root}, inject.Options{})
		if serr != nil {
			p.fail("it was not started: %v", serr)
		}
		results, err = wait(s.t, fut)
	}
	p.asked = s.f.Asked() != before
	s.idle()
	for _, w := range s.spies {
		for _, one := range w.runs() {
			if one.began {
				p.visits++
			}
			if one.stays {
				p.stayed++
			}
		}
	}
	return results, err
}

// generator draws a program. No two branches, and no two runs of one that may go on at once, touch the same words.
type generator struct {
	r        *rand.Rand
	steps    []step
	branches int
	sets     int  // of words in use
	quick    bool // it has one answer
	failing  bool // it fails once, at most
	fails    bool
}

const (
	simBranches = 12
	simDepth    = 5
	setWords    = 4
)

func (g *generator) program() []byte {
	g.quick = g.r.IntN(3) == 0
	g.failing = g.r.IntN(10) == 0
	g.branches = 1
	g.steps = g.run(simDepth, g.set())
	return payload(g.r.Uint64(), g.steps)
}

func (g *generator) set() int {
	g.sets++
	return g.sets - 1
}

func (g *generator) element() uint8 { return uint8(g.r.IntN(houses)) }

// run draws one run's steps, and those of what it starts; words are the set that it may touch.
func (g *generator) run(depth, words int) (steps []step) {
	for range g.r.IntN(4) {
		steps = append(steps, g.step(depth, words)...)
	}
	if g.failing && !g.fails && g.r.IntN(3) == 0 {
		g.fails = true
		return append(steps, step{op: []uint8{opTrap, opFail}[g.r.IntN(2)], n: 7})
	}
	switch x := g.r.IntN(10); {
	case x < 4 && depth > 0:
		next := g.run(depth-1, words)
		if g.r.IntN(4) == 0 {
			next = append(next, padding...)
		}
		steps = append(steps, on(g.element(), next...)...)
		for own := g.set(); g.r.IntN(3) == 0; { // and more to do here, meanwhile
			steps = append(steps, g.step(0, own)...)
		}
	case x < 6:
		steps = append(steps, step{op: opReply, n: uint16(g.r.IntN(80))})
	case x < 7 && !g.quick:
		steps = append(steps, step{op: opReply, n: uint16(40000 + g.r.IntN(20000))})
	case x < 8:
		steps = append(steps, step{op: opEnd})
	}
	return steps
}

// step draws a step, with what belongs to it.
func (g *generator) step(depth, words int) []step {
	word := uint16(words*setWords + g.r.IntN(setWords))
	switch x := g.r.IntN(12); {
	case x < 2 && depth > 0 && !g.quick && g.branches < simBranches:
		g.branches++
		return fork(g.element(), g.run(depth-1, g.set())...)
	case x < 4 && !g.quick:
		return one(opPart, 0, uint16(1+g.r.IntN(200)))
	case x == 4:
		return one(opSpin, 0, uint16(g.r.IntN(60)))
	case x < 7:
		return one(opLog, 0, 0)
	case x == 7:
		return one(opLoad, 0, word)
	case x == 8:
		return one(opTime, 0, 3600)
	}
	op := []uint8{opGet, opPut, opAdd}[g.r.IntN(3)]
	return one(op, g.element(), word)
}

// TestSimWords: the generator's programs have the words that they need.
func TestSimWords(t *testing.T) {
	for seed := range uint64(2000) {
		g := &generator{r: rand.New(rand.NewPCG(seed, 1))}
		if program := g.program(); g.sets*setWords > gate || len(g.steps) > 512 {
			t.Fatalf("seed %d: %d sets of words, %d steps in %d bytes", seed, g.sets, len(g.steps), len(program))
		}
	}
}
