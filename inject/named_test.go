package inject_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// named has every run of a street name another function, its function 1, which only n0 knows so far.
func named(t *testing.T, s *street, change func(*image.Manifest)) {
	t.Helper()
	img := stepsImage(t, "other", change)
	f := s.prepareImage(s.client, img)
	if _, err := f.Do(within(t, patience), inject.Root{Element: 0, Payload: payload(3)}, nil); err != nil {
		t.Fatal(err)
	}
	s.idle()
	for _, spy := range s.spies {
		spy.watch(func(h abi.Host) {
			if n, err := inject.NameFunction(h, travel.ID(img.ID())); err != nil || n != 1 {
				t.Errorf("the other function is number %d, %v", n, err)
			}
		}, nil)
	}
}

// runsOf is how many runs of each function have ended at each element: "other" and "steps".
func (s *street) runsOf(name string) (n [houses]uint64) {
	for i, m := range s.nodes {
		list, _ := m.rt.Functions(100)
		for _, f := range list {
			if f.Name == name {
				n[i] += f.Runs
			}
		}
	}
	return n
}

// TestNamedFunctions: a branch that goes on, or is forked, as another function runs that, also where nobody knew it; the invocation
// ends when all branches have ended, and its results are as if all had been one function.
func TestNamedFunctions(t *testing.T) {
	s := newStreet(t)
	named(t, s, nil)
	s.idle()
	before := s.runsOf("other")
	as := func(op, at uint8, steps ...step) []step { return other(op, at, steps) }
	plain := payload(7, fork(1), fork(0), on(2, on(1)...))
	mixed := payload(7, as(opForkAs, 1), as(opForkAs, 0), as(opForwardAs, 2, on(1)...))
	want, err := wait(t, s.start(within(t, patience), 0, plain))
	if err != nil {
		t.Fatal(err)
	}
	got, err := wait(t, s.start(within(t, patience), 0, mixed))
	slices.Sort(want)
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) || len(got) != 3 {
		t.Errorf("%x, %v; want %x", got, err, want)
	}
	s.idle()
	after := s.runsOf("other")
	for i, more := range [houses]uint64{1, 2, 1} { // function 0 of the other function is the other one: it went on to n1 as itself
		if after[i] != before[i]+more {
			t.Errorf("n%d has run it %d times more, want %d", i, after[i]-before[i], more)
		}
	}
	for i, spy := range s.spies { // now nobody names any
		spy.watch(nil, nil)
		_, err := wait(t, s.start(within(t, patience), uint8(i), payload(1, as(opForwardAs, 1), one(opFail, 0, 5))))
		if err == nil || !strings.Contains(err.Error(), "there is no function 1") {
			t.Errorf("n%d: %v", i, err)
		}
	}
}

// TestNamedFunctionsKeep: each function of an invocation has scratch of its own at an element.
func TestNamedFunctionsKeep(t *testing.T) {
	s := newStreet(t)
	scratch := func(m *image.Manifest) { m.Limits.ScratchBytes = 1 << 16 }
	named(t, s, scratch)
	f := s.prepareImage(s.client, stepsImage(t, "keeps", scratch))
	count, sum := one(opScratchCount, 0, 0), uint64(9)
	// Two runs of the first function, then two of the other, each at n0.
	program := payload(sum, count, on(0, slices.Concat(count, other(opForwardAs, 0, slices.Concat(count, on(0, count...))))...))
	fut, err := f.Start(within(t, patience), []inject.Root{{Element: 0, Payload: program}}, inject.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := wait(t, fut)
	for i, seen := range []uint64{1, 2, 1, 2} {
		if i > 0 {
			sum += 2 // as a payload has it that begins at its run's step 2
		}
		sum = (sum^seen)*0x9e3779b97f4a7c15 + 1
	}
	if want := string(binary.LittleEndian.AppendUint64(nil, sum)); err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("%x, %v; want %x", got, err, want)
	}
	eventually(t, func() string {
		if n := s.nodes[0].rt.Stats().Sizes.Stateful; n != 0 {
			return fmt.Sprintf("%d invocations keep scratch", n)
		}
		return ""
	})
}
