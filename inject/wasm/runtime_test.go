package wasm

import (
	"encoding/binary"
	"errors"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/cputime"
)

// busy keeps all processors busy with several processes each until the test ends.
func busy(t *testing.T, each int) {
	t.Helper()
	for range each * runtime.NumCPU() {
		c := exec.Command("sh", "-c", "while :; do :; done")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			c.Process.Kill()
			c.Wait()
		})
	}
}

// spins is the payload for so many rounds of a loop.
func spins(rounds uint32) []byte {
	return binary.LittleEndian.AppendUint32(make([]byte, 4), rounds)
}

// TestRunTimeIsProcessorTime: a function that needs a third of its run time is not ended because others use the
// processors too; one that goes on beyond it is. What it waits for is not its own time either.
func TestRunTimeIsProcessorTime(t *testing.T) {
	e := newEngine(t, Config{})
	const limit = 200 * time.Millisecond
	in := acquire(t, bind(t, compile(t, e, "spin", abi.Limits{RunTime: limit}), "alice"))
	defer in.Release()
	runtime.LockOSThread() // rounds for 60 ms of this thread's time
	rounds := uint32(1 << 20)
	for {
		before := cputime.Thread()
		if _, err := in.Run(&Run{Payload: spins(rounds), Host: &fakeHost{}}); err != nil {
			t.Fatal(err)
		}
		if used := cputime.Thread() - before; used > 20*time.Millisecond {
			rounds = uint32(float64(rounds) * float64(60*time.Millisecond) / float64(used))
			break
		}
		rounds *= 2
	}
	runtime.UnlockOSThread()
	busy(t, 4)
	start := time.Now()
	if _, err := in.Run(&Run{Payload: spins(rounds), Host: &fakeHost{}}); err != nil {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	t.Logf("%d rounds took %v", rounds, time.Since(start))
	var over *LimitError
	if _, err := in.Run(&Run{Payload: spins(1<<32 - 1), Host: &fakeHost{}}); !errors.As(err, &over) || over.Limit != "run_time_ns" {
		t.Errorf("a function that does not end: %v", err)
	}
}

// TestWaitIsNotCharged: a host call that waits costs no run time, wherever it is in the run; a thread that was kept is given up.
func TestWaitIsNotCharged(t *testing.T) {
	e := newEngine(t, Config{})
	in := acquire(t, bind(t, compile(t, e, "spin", abi.Limits{RunTime: 100 * time.Millisecond}), "alice"))
	defer in.Release()
	h := &waitingHost{in: in}
	if _, err := in.Run(&Run{Payload: spins(1 << 20), Host: h}); err != nil {
		t.Fatal(err)
	}
	if h.waits == 0 || in.slice.locked {
		t.Errorf("%d waits, locked %t", h.waits, in.slice.locked)
	}
}

// waitingHost waits in the run's only host call, and in a few ticks.
type waitingHost struct {
	fakeHost
	in    *Instance
	waits int
}

func (h *waitingHost) Tick() error {
	if h.ticks.Add(1) <= 3 {
		h.pause()
	}
	return nil
}

func (h *waitingHost) Reply(data []byte) abi.Status {
	h.pause()
	return h.fakeHost.Reply(data)
}

func (h *waitingHost) pause() {
	h.waits++
	h.in.Waits()
	time.Sleep(60 * time.Millisecond)
}
