package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
)

// TestVerdicts: each kind of end is counted as what it is.
func TestVerdicts(t *testing.T) {
	s := &soak{res: Result{ByKind: map[string]int{}, Errors: map[string]int{}}}
	lost := errors.New("branch 0 was lost with element cedar")
	for _, o := range []outcome{
		{kind: "chase"}, {kind: "chase", late: LateAfter + time.Millisecond}, {kind: "count", err: lost, late: LateAfter}, {kind: "count", err: fmt.Errorf("call: %w", &wrongError{"9"})},
		{kind: "rpc", err: context.DeadlineExceeded},
	} {
		s.count(o)
	}
	r := s.res
	if got := []int{r.Calls, r.Right, r.Failed, r.Wrong, r.Late, r.Nameless, r.Bad()}; !slices.Equal(got, []int{5, 2, 2, 1, 1, 1, 3}) || r.ByKind["chase"] != 2 || len(r.Examples) != 3 {
		t.Errorf("%v, %+v", got, r)
	}
}

// TestVersions: an answer is right if it is that of its own version, and while a load's end is not known, of that load.
func TestVersions(t *testing.T) {
	lib := newLibrary(1)
	a := newCaller(nil, lib, rand.New(rand.NewPCG(1, 1)), &clock{})
	old, fresh := newTruth(1), newTruth(2)
	lib.open[chain] = []*truth{old, fresh}
	lib.loaded(chain, 7, old)
	for _, c := range []struct {
		version uint64
		by      *truth
		right   bool
	}{{7, old, true}, {7, fresh, false}, {8, fresh, true}, {8, old, false}} {
		row := c.by.chase(5, 9)
		err := a.is(&cluster.Table{Name: chain, Version: c.version}, func(tr *truth) bool { return tr.chase(5, 9) == row }, "row %d", row)
		if (err == nil) != c.right {
			t.Errorf("version %d: %v", c.version, err)
		}
	}
}

// TestTruth: the answers that calls are compared with, on a graph that one can look through.
func TestTruth(t *testing.T) {
	tr := &truth{next: []uint64{2, 0, 1}, out: [][]uint32{{1}, {2}, {}, {0}}, in: [][]uint32{{3}, {0}, {1}, {}}, keys: []int64{1, 1, 2}, values: []int64{5, 7, 9}}
	n, sum := tr.sums(6)
	if tr.chase(0, 2) != 1 || tr.below(2) != 2 || n != [salesKeys]int64{0, 1, 1} || sum != [salesKeys]int64{0, 7, 9} {
		t.Error(tr.chase(0, 2), tr.below(2), n, sum)
	}
	if all, near, back := tr.closure([]uint32{0}, false, 0), tr.closure([]uint32{3}, false, 1), tr.closure([]uint32{1}, true, 0); !slices.Equal(all, []uint32{0, 1, 2}) ||
		!slices.Equal(near, []uint32{0, 3}) || !slices.Equal(back, []uint32{0, 1, 3}) {
		t.Error(all, near, back)
	}
}

// TestLeft: what a node has that nobody asks of any more is named.
func TestLeft(t *testing.T) {
	st := &control.Status{Name: "alder", Calls: control.CallsStatus{Active: 1}}
	if left := leftAt(st, moreDescriptors); len(left) != 0 {
		t.Error(left)
	}
	st.Queues.Records, st.Calls.Active, st.Memory.LentBytes = 3, 2, 4096
	st.Endpoints = []control.EndpointStatus{{Peer: "birch", OutboxBytes: 9}}
	want := []string{"alder: 3 records", "alder: 1 calls", "alder: 4096 lent bytes", "alder: 1 descriptors more", "alder: 9 and 0 bytes wait for birch"}
	if left := leftAt(st, moreDescriptors+1); !slices.Equal(left, want) {
		t.Error(left)
	}
}

// TestClock: time in which this process did not run is no call's fault.
func TestClock(t *testing.T) {
	now := time.Now()
	k := &clock{gaps: []gap{{now.Add(-9 * time.Second), now.Add(-7 * time.Second)}, {now.Add(-2 * time.Second), now.Add(-time.Second)}}}
	if k.kept(now.Add(-5*time.Second)) != time.Second || k.kept(now.Add(-20*time.Second)) != 3*time.Second || k.kept(now.Add(-8*time.Second)) != 2*time.Second || k.kept(now) != 0 {
		t.Error(k.kept(now.Add(-5 * time.Second)))
	}
}

// TestLastFault: a fault that is being made when the last call has begun is made to its end.
func TestLastFault(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	enough := errors.New("enough")
	b := &breaker{r: rand.New(rand.NewPCG(1, 1)), made: map[string]int{}}
	err := b.once(t.Context(), over, nil, fault{"replace", func(_ *breaker, ctx context.Context) (func() error, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return func() error { return enough }, nil
	}})
	if !errors.Is(err, enough) || b.made["replace"] != 1 {
		t.Error(err, b.made)
	}
}
