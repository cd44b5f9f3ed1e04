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
	if h.takes > 0 {
		time.Sleep(h.takes)
	}
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
	if d, _ := in.Took(); d < limit {
		t.Errorf("a run of %v took %v", limit, d)
	}
}

// TestTookInside: of runs in this process that are long each is measured but those that wait, of short ones the second and then one of timedRuns; the first tells nothing of others.
func TestTookInside(t *testing.T) {
	in := acquire(t, bind(t, load(t, inside(t, Config{}), abi.Limits{}), "alice"))
	defer in.Release()
	run := func(h *slowHost) (time.Duration, bool) {
		t.Helper()
		if st, err := in.Run(order{op: 1}.payload(), nil, h); err != nil || st != abi.OK {
			t.Fatalf("%v, %v", st, err)
		}
		return in.Took()
	}
	for i := range 6 {
		h := &slowHost{in: in, waits: i == 3, takes: slowness}
		if d, typical := run(h); typical != (i > 0 && !h.waits) || d < slowness {
			t.Errorf("run %d: %v, typical %v", i, d, typical)
		}
	}
	for end := time.Now().Add(time.Minute); in.took > shortRun && time.Now().Before(end); { // until one is short
		run(&slowHost{in: in})
	}
	for range timedRuns {
		last := in.took
		if d, typical := run(&slowHost{in: in}); last <= shortRun && typical != (in.runs%timedRuns == 0) || !typical && d != last {
			t.Errorf("short run %d: %v after %v, typical %v", in.runs, d, last, typical)
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
