package native

import (
	"errors"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// slowHost takes its time for an answer, and may say that it waits meanwhile.
type slowHost struct {
	fakeHost
	in    abi.Instance
	waits bool
}

const slowness = 5 * time.Millisecond

func (h *slowHost) Reply(data []byte) abi.Status {
	if h.waits {
		h.in.Waits()
	}
	time.Sleep(slowness)
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
		h := &slowHost{in: in, waits: i >= timedRuns && i < 2*timedRuns}
		if st, err := in.Run(order{op: 1}.payload(), nil, h); err != nil || st != abi.OK {
			t.Fatalf("%v, %v", st, err)
		}
		d, ok := in.Took()
		if want := i%timedRuns == 0 && !h.waits; ok != want || ok && d < slowness {
			t.Errorf("run %d is measured: %v, as %v; want %v", i, ok, d, want)
		}
	}
}
