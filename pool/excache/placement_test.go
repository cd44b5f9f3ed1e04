package excache

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPlacement: the loop goes to the processor where a thread is, without allocating once its stat is open.
func TestPlacement(t *testing.T) {
	for text, want := range map[string]int{"": -1, "1 (a) S": -1,
		"7 (a b) c) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 12 0 0": 12} {
		if got := processor([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if !all.IsSet(cpu) {
			continue
		}
		threads, end, done := make(chan int), make(chan struct{}), make(chan struct{})
		go func() { // the thread that faults
			defer close(done)
			runtime.LockOSThread()
			var one unix.CPUSet
			one.Set(cpu)
			unix.SchedSetaffinity(0, &one)
			threads <- unix.Gettid()
			<-end
		}()
		thread := <-threads
		go func() { // the loop's
			defer close(end)
			runtime.LockOSThread()
			p := placement{cpu: -1, stat: -1}
			defer p.close()
			for range followRow {
				p.begin(os.Getpid(), thread)
				p.end()
			}
			var now, its unix.CPUSet
			unix.SchedGetaffinity(0, &now)
			if p.cpu != cpu || now.Count() != 1 || !now.IsSet(cpu) {
				t.Errorf("it is at %d (%d processors), the thread at %d", p.cpu, now.Count(), cpu)
			}
			unix.SchedSetaffinity(thread, &all)
			p.follow(os.Getpid())
			p.begin(os.Getpid(), thread)
			unix.SchedGetaffinity(thread, &its)
			if p.kept && (its.Count() != 1 || !its.IsSet(p.cpu)) {
				t.Errorf("the thread may leave to %d processors while it is answered", its.Count())
			}
			p.end()
			if unix.SchedGetaffinity(thread, &its); its != all {
				t.Errorf("the thread may be on %d processors afterwards, not on %d", its.Count(), all.Count())
			}
			if n := testing.AllocsPerRun(100, func() { p.begin(os.Getpid(), thread); p.end() }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		}()
		<-done
	}
}
