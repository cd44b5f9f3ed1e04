package faulttest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestNodeAsOrigin covers: an element that runs functions starts them too, on
// itself and elsewhere, with every way to fail and one that does not.
func TestNodeAsOrigin(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 3, []int{2}, nil)
	n0 := g.nodes[0].own
	long := withLimits(func(l *abi.Limits) { l.RunTime = time.Minute })
	table := g.plain()
	journey := g.prepare(n0, guestImage(t, "journey", long), table)
	faults := g.prepare(n0, guestImage(t, "faults", long), table)
	r, err := run(within(t, patience), journey, inject.Root{Payload: order(2, 6, 0)})
	if err != nil || r.Branches != 127 {
		t.Fatalf("a tree from here: %v", err)
	}
	for _, c := range []struct {
		name    string
		f       *inject.Function
		payload []byte
		time    time.Duration
		is      error
		at      string
	}{
		{"a trap here", faults, order(1, 0, 0), patience, travel.ErrRemote, "n0"},
		{"a loop here", faults, order(4, 0, 0), 300 * time.Millisecond, travel.ErrDeadline, "n0"},
		{"a circle", journey, order(0, 0, 0), patience, travel.ErrHopLimit, "n1"},
		{"a loop elsewhere", journey, order(1, 1, uint64(time.Minute)), 300 * time.Millisecond, travel.ErrDeadline, "n"},
	} {
		fut, err := c.f.Start(within(t, c.time), []inject.Root{{Payload: c.payload}}, inject.Options{Hops: 10})
		if err != nil {
			t.Fatal(err)
		}
		if err = ended(fut); !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.name, err)
		}
		says(t, err, c.at, c.f.Image().Name())
		g.serves()
	}
	var futures []*inject.Future
	for range 20 {
		fut, err := journey.Start(within(t, time.Minute), []inject.Root{{Payload: order(2, 6, uint64(300*time.Microsecond))}}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, fut)
	}
	futures = append(futures, g.lateTree(within(t, time.Minute), journey))
	at := <-g.killAfter(2, 40*time.Millisecond)
	failed := 0
	for _, fut := range futures {
		if err := ended(fut); err != nil {
			failed++
			lost(t, at, err, "n2", "journey")
		}
	}
	if failed == 0 {
		t.Error("no tree was hit")
	}
	g.serves()
}

// TestCloseFunction covers: a function that is closed, and prepared again by
// others, while its invocations run.
func TestCloseFunction(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, func(s *settings) { s.Travel.IdleUnpin = time.Millisecond })
	table, img := g.plain(), guestImage(t, "journey", nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 20 {
				f, err := g.client.rt.Prepare(img, table)
				if err != nil {
					t.Error(err)
					return
				}
				fut, err := f.Start(within(t, patience), []inject.Root{{Payload: order(2, 3, 0)}}, inject.Options{})
				f.Close()
				f.Close()
				if err != nil {
					t.Error(err)
					return
				}
				if r, err := fut.Wait(within(t, patience)); err != nil || len(r.Pieces) != 15 {
					t.Error(err)
				}
				if _, err := f.Start(within(t, patience), []inject.Root{{Payload: order(9, 0, 0)}}, inject.Options{}); err == nil {
					t.Error("a closed function starts")
				}
			}
		}()
	}
	wg.Wait()
	g.serves()
}
