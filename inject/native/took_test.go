package native

import (
	"errors"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/cputime"
)

// slowHost takes its time for an answer, and may say that it waits meanwhile.
type slowHost struct {
	fakeHost
	in    abi.Instance
	waits bool
	takes time.Duration
}

const slowness = 5 * time.Millisecond

func (h *slowHost) Reply(data []byte) abi.Status {
	if h.waits {
		h.in.Waits()
	}
	time.Sleep(h.takes)
	return h.fakeHost.Reply(data)
}

// TestTook: a run's time is what it held its worker for, up to the end that a limit put to it.
func TestTook(t *testing.T) {
	const limit = 30 * time.Millisecond
	in := acquire(t, bind(t, load(t, newEngine(t, Config{}), abi.Limits{RunTime: limit}), "alice"))
	defer in.Release()
	if _, err := in.Run(order{op: 12}.payload(), nil, &fakeHost{}); !errors.Is(err, abi.ErrOverLimit) {
		t.Fatal(err)
	}
	if d, ok := in.Took(); !ok || d < limit {
		t.Errorf("a run of %v took %v (%v)", limit, d, ok)
	}
}

// TestTookInside: of runs in this process one of timedRuns is measured, unless it waited.
func TestTookInside(t *testing.T) {
	in := acquire(t, bind(t, load(t, inside(t, Config{}), abi.Limits{}), "alice"))
	defer in.Release()
	for i := range 2*timedRuns + 1 {
		h := &slowHost{in: in, waits: i >= timedRuns && i < 2*timedRuns, takes: slowness}
		if st, err := in.Run(order{op: 1}.payload(), nil, h); err != nil || st != abi.OK {
			t.Fatalf("%v, %v", st, err)
		}
		d, ok := in.Took()
		if want := i%timedRuns == 0 && !h.waits; ok != want || ok && d < slowness {
			t.Errorf("run %d is measured: %v, as %v; want %v", i, ok, d, want)
		}
	}
}

// TestWaitsAreFree: a host call's wait is not charged, not even in the first slice of a run whose worker has used as much processor time in earlier runs.
func TestWaitsAreFree(t *testing.T) {
	const limit = 100 * time.Millisecond
	w := segment(t, 16<<20)
	b := bind(t, load(t, newEngine(t, Config{}), abi.Limits{RunTime: time.Minute}), "alice", abi.Window{FD: w.FD(), Size: 16 << 20})
	in := acquire(t, b)
	defer in.Release()
	for used := time.Duration(0); used < 2*limit; {
		if _, err := in.Run(order{op: 55, a: 8}.payload(), nil, &fakeHost{}); err != nil {
			t.Fatal(err)
		}
		var err error
		if used, err = cputime.Process(in.process.pid); err != nil {
			t.Fatal(err)
		}
	}
	h := &slowHost{in: in, waits: true, takes: 2 * limit}
	if st, err := in.Run(order{op: 42, a: 1000}.payload(), &abi.Limits{RunTime: limit}, h); err != nil || st != abi.OK || len(h.reply) != 1000 {
		t.Errorf("a run that computes for next to nothing, but waits for %v: %v, %v", 2*limit, st, err)
	}
}
