package inject_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// shares has a function start by chunk, and keep scratch.
func shares(m *image.Manifest) { m.Start, m.Limits.ScratchBytes = image.StartChunk, 1<<16 }

// TestWorkers: two workers of an invocation are at work at an element at the same time, each with scratch of its own, and to the function
// each is an element: it sends branches to the other one, and to those of other elements, reads and writes their element's words by either's number.
func TestWorkers(t *testing.T) {
	s := newStreet(t, func(c *inject.Config) { c.Travel.Workers = 2 })
	f := s.prepareImage(s.client, stepsImage(t, "workers", shares))
	s.clear()
	// Worker 0 of element 0 waits for a word that only worker 1 writes, and both come by twice.
	first := payload(3, one(opScratchCount, 0, 0), fork(0, one(opScratchCount, 0, 0)...), one(opWait, 0, 7))
	second := payload(5, one(opScratchCount, 0, 0), fork(1, one(opScratchCount, 0, 0)...), fork(3, one(opScratchCount, 0, 0)...), fork(0, one(opScratchCount, 0, 0)...), one(opPut, 1, 7))
	fut, err := f.Start(within(t, patience), []inject.Root{{Payload: first}, {Worker: 1, Payload: second}}, inject.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	got, err := wait(t, fut)
	if err != nil {
		t.Fatal(err)
	}
	note := func(sum *uint64, v uint64) { *sum = (*sum^v)*0x9e3779b97f4a7c15 + 1 }
	var sums []uint64
	counted := func(sum, n uint64) { // a fork's answer, that is the n-th run in its scratch
		note(&sum, n)
		sums = append(sums, sum)
	}
	a, b := uint64(3), uint64(5)
	note(&a, 1)
	forkA := a + 2
	note(&a, 0)
	note(&b, 1)
	forkB := b + 2
	note(&b, 0)
	forkC := b + 4
	note(&b, 0)
	forkD := b + 6
	note(&b, 0)
	note(&b, 0) // of the put
	counted(forkB, 2)
	counted(forkC, 1)
	either := [2][]uint64{} // two branches come to worker 0 after its first, in any order
	for i := range either {
		sums := slices.Clone(sums)
		x, y := forkA, forkD
		note(&x, uint64(2+i))
		note(&y, uint64(3-i))
		either[i] = append(sums, a, b, x, y)
		slices.Sort(either[i])
	}
	var replies []uint64
	for _, r := range got {
		replies = append(replies, binary.LittleEndian.Uint64([]byte(r)))
	}
	if slices.Sort(replies); !slices.Equal(replies, either[0]) && !slices.Equal(replies, either[1]) {
		t.Errorf("%x, want %x or %x", replies, either[0], either[1])
	}
	s.quiet()
}

// TestWorkersTakeTurns: where an element lets one worker of an invocation work at once, the others wait, and all get their turn.
func TestWorkersTakeTurns(t *testing.T) {
	s := newStreet(t, func(c *inject.Config) { c.Travel.Workers = 1 })
	f := s.prepareImage(s.client, stepsImage(t, "turns", shares))
	var roots []inject.Root
	for i := range 3 * houses {
		roots = append(roots, inject.Root{Element: uint32(i / 3), Worker: uint8(i % 3), Payload: payload(uint64(i), one(opScratchCount, 0, 0), one(opSpin, 0, 20))})
	}
	fut, err := f.Start(within(t, patience), roots, inject.Options{Workers: 3})
	if err != nil {
		t.Fatal(err)
	}
	got, err := wait(t, fut)
	if err != nil || len(got) != len(roots) {
		t.Fatal(len(got), err)
	}
	for i, r := range got {
		if sum := binary.LittleEndian.Uint64([]byte(r)); sum != (uint64(i)^1)*0x9e3779b97f4a7c15+1 {
			t.Errorf("worker %d of element %d found scratch that is not its own", i%3, i/3)
		}
	}
}

// TestWorkersRefused: a function that does not say that it shares chunks has one worker, and nobody has more than there may be.
func TestWorkersRefused(t *testing.T) {
	s := newStreet(t)
	root := []inject.Root{{Payload: payload(1)}}
	if _, err := s.f.Start(within(t, patience), root, inject.Options{Workers: 2}); !errors.Is(err, inject.ErrWorkers) || !strings.Contains(err.Error(), `"start": "chunk"`) {
		t.Error(err)
	}
	f := s.prepareImage(s.client, stepsImage(t, "many", shares))
	if _, err := f.Start(within(t, patience), root, inject.Options{Workers: travel.MaxWorkers + 1}); !errors.Is(err, travel.ErrLimit) {
		t.Error(err)
	}
}

// TestWorkersRefusedThere: an element runs no branch as one of several workers of a function that does not share chunks, whatever the
// element that sent it says: the function, and what an instance knows of elements, would take workers for elements.
func TestWorkersRefusedThere(t *testing.T) {
	s := newStreet(t)
	f := s.prepareImage(s.client, stepsImage(t, "whole", nil))
	f.Pretend()
	fut, err := f.Start(within(t, patience), []inject.Root{{Worker: 1, Payload: payload(1)}}, inject.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	var e *travel.RemoteError
	if _, err = wait(t, fut); !errors.As(err, &e) || e.Code != travel.CodeRefused || !strings.Contains(e.Text, `"start": "chunk"`) {
		t.Error(err)
	}
}

// TestWorkersLeaveNothing: a run takes nothing of what was there before it: which worker of how many, of an invocation that had several.
func TestWorkersLeaveNothing(t *testing.T) {
	s := newStreet(t, func(c *inject.Config) { c.Travel.Workers = 2 })
	f := s.prepareImage(s.client, stepsImage(t, "workers", shares))
	s.path()
	var roots []inject.Root
	for i := range 2 * houses {
		roots = append(roots, inject.Root{Element: uint32(i / 2), Worker: uint8(i % 2), Payload: payload(uint64(i), one(opScratchCount, 0, 0), one(opSpin, 0, 20))})
	}
	around := payload(1, on(1, on(2, one(opAdd, 2, 1)...)...))
	for range 5 {
		fut, err := f.Start(within(t, patience), roots, inject.Options{Workers: 2})
		if err == nil {
			_, err = wait(t, fut)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.idle()
		s.clear()
		var all []*inject.Future
		for range 8 { // more than have run at once
			all = append(all, s.start(within(t, patience), 0, around))
		}
		for _, fut := range all {
			if _, err := wait(t, fut); err != nil {
				t.Fatal(err)
			}
		}
		s.idle()
		if got := [houses]int{len(s.spies[0].runs()), len(s.spies[1].runs()), len(s.spies[2].runs())}; got != [houses]int{8, 8, 8} {
			t.Fatalf("branches that go round ran %v times", got)
		}
	}
}
