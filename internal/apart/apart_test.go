package apart

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (epfd, bell int) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(epfd) })
	if bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(bell) })
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, bell, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(bell)}); err != nil {
		t.Fatal(err)
	}
	return epfd, bell
}

// TestGivesProcessor: with one processor another goroutine that is ready runs during a call, even one that does not wait; an ordinary call of that kind
// keeps the processor. Now and then the runtime takes the caller first, which has come back by then.
func TestGivesProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	epfd, _ := pair(t)
	var rounds atomic.Int64
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !over.Load() {
			rounds.Add(1)
			runtime.Gosched()
		}
	}()
	var events [4]unix.EpollEvent
	const calls = 200
	kept := 0
	for range calls {
		before := rounds.Load()
		if n, _ := EpollWait(epfd, events[:], 0); n != 0 {
			t.Fatalf("%d events", n)
		}
		if rounds.Load() == before {
			kept++
		}
	}
	if kept > calls/2 {
		t.Errorf("in %d calls of %d the goroutine that was ready did not run", kept, calls)
	}
	over.Store(true)
	<-done
}

// TestTimeout: a wait without events ends when its time is over, and one without room for events at once.
func TestTimeout(t *testing.T) {
	epfd, _ := pair(t)
	var events [1]unix.EpollEvent
	start := time.Now()
	if n, _ := EpollWait(epfd, events[:], 1500*time.Microsecond); n != 0 {
		t.Fatalf("%d events", n)
	}
	if took := time.Since(start); took < 1500*time.Microsecond {
		t.Fatalf("it waited for %v", took)
	}
	if n, _ := EpollWait(epfd, nil, time.Minute); n != 0 {
		t.Fatalf("%d events without room for one", n)
	}
}

// TestStackGrows: what the wait writes arrives although the goroutine's stack is small and the collector runs meanwhile.
func TestStackGrows(t *testing.T) {
	epfd, bell := pair(t)
	results := make(chan bool)
	for range 64 {
		go func() {
			var events [8]unix.EpollEvent
			n := 0
			for n == 0 { // a signal of the collector's ends the call
				n, _ = EpollWait(epfd, events[:], time.Minute)
			}
			results <- n == 1 && int(events[0].Fd) == bell
		}()
	}
	for range 5 {
		runtime.GC()
	}
	one := [8]byte{1}
	unix.Write(bell, one[:])
	for range 64 {
		if !<-results {
			t.Fatal("a wait did not tell of the event")
		}
	}
}

// TestAllocatesNothing: what the kernel writes to stays on the caller's stack.
func TestAllocatesNothing(t *testing.T) {
	epfd, _ := pair(t)
	if n := testing.AllocsPerRun(100, func() {
		var events [8]unix.EpollEvent
		EpollWait(epfd, events[:], 0)
	}); n > 0 {
		t.Errorf("%v allocations a call", n)
	}
}

// TestSleptIsNotWaiting: the time for which the caller waits for a processor, which another goroutine has, is no sleep.
func TestSleptIsNotWaiting(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	epfd, _ := pair(t)
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !over.Load() {
		}
	}()
	var events [4]unix.EpollEvent
	waited := time.Duration(0)
	const calls = 10
	for range calls {
		start := time.Now()
		_, slept := EpollWait(epfd, events[:], time.Millisecond)
		took := time.Since(start)
		if slept <= 0 || slept > took {
			t.Fatalf("a sleep of %v in a call of %v", slept, took)
		}
		waited += took - slept
	}
	over.Store(true)
	<-done
	if waited < calls*time.Millisecond {
		t.Errorf("in %d calls beside a goroutine that computes the caller waited %v for the processor", calls, waited)
	}
}
