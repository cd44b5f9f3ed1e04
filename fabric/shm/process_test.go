package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// withHelper links this process to a helper that dials.
func withHelper(t *testing.T, helper string, args ...string) (*end, *child) {
	t.Helper()
	e := &end{t: newTransport(t, Config{}), r: &recorder{}}
	addr := uniqueName()
	ch, err := listen(e.t, addr, func() fabric.Receiver { return e.r })
	must(t, err)
	c := spawn(t, helper, append([]string{addr}, args...)...)
	s := <-ch
	must(t, s.err)
	e.l, e.r.link = s.l, s.l
	return e, c
}

func TestEchoProcess(t *testing.T) {
	e, c := withHelper(t, "echo", "1")
	cred, err := unix.GetsockoptUcred(e.l.fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	must(t, err)
	if int(cred.Pid) != c.Process.Pid || e.l.pid != c.Process.Pid {
		t.Errorf("the peer is pid %d, its link says %d", c.Process.Pid, e.l.pid)
	}
	e.r.frame = func(id fabric.FrameID, body []byte) error {
		if id != echoID || len(body) != 8 {
			return fmt.Errorf("frame %d with %d bytes", id, len(body))
		}
		return nil
	}
	for i := range 200 {
		must(t, e.l.Send(echoID, fabric.Normal, number(i), nil))
		until(t, "echo", func() bool { return e.r.frames > i || e.r.lost != nil }, e.t)
	}
	must(t, e.t.Close())
	must(t, c.Wait()) // it ends on Lost
}

// TestEightSenders has eight processes send to one.
func TestEightSenders(t *testing.T) {
	const senders, each = 8, 4000
	hub := newTransport(t, Config{})
	addr := uniqueName()
	next := make([]int, senders)
	total := 0
	receiver := func() fabric.Receiver {
		return &recorder{frame: func(_ fabric.FrameID, body []byte) error {
			who, i := body[0], int(binary.LittleEndian.Uint64(body[1:]))
			if next[who] != i || len(body) != 1+len(floodBody(i)) {
				return fmt.Errorf("sender %d: frame %d of %d bytes, want %d", who, i, len(body), next[who])
			}
			next[who]++
			total++
			return nil
		}}
	}
	ch, err := listen(hub, addr, receiver)
	must(t, err)
	var cs []*child
	for who := range senders {
		cs = append(cs, spawn(t, "sender", addr, strconv.Itoa(who), strconv.Itoa(each)))
	}
	until(t, "all frames", func() bool { return total == senders*each }, hub)
	for range senders {
		s := <-ch
		must(t, s.err)
		must(t, s.l.Send(doneID, fabric.Normal, nil, nil))
	}
	for _, c := range cs {
		must(t, c.Wait())
	}
}

// published counts what a dead peer left in the ring.
func published(l *link) int {
	c := l.rx
	c.ctl = &control{} // count, but publish nothing
	n, buf := 0, make([]byte, fabric.MaxFrameBytes)
	for {
		word, ok := c.peek()
		if !ok {
			return n
		}
		if _, _, err := c.take(word, buf); err != nil {
			panic(err)
		}
		n++
	}
}

// TestKilled kills a peer in mid-stream: all it has published arrives, then Lost.
func TestKilled(t *testing.T) {
	for _, asleep := range []bool{false, true} {
		for i := range 4 {
			e, c := withHelper(t, "flood")
			inOrder(e.r)
			until(t, "some frames", func() bool { return e.r.frames > 500*i }, e.t)
			must(t, c.Process.Kill())
			c.Wait()
			want := e.r.frames + published(e.l)
			start := time.Now()
			for e.r.lost == nil {
				if asleep {
					must(t, sleepOn(e.t, patience))
				}
				if e.t.Poll(64, never); time.Since(start) > patience {
					t.Fatal("the death went unnoticed")
				}
			}
			if e.r.frames != want {
				t.Errorf("%d frames before Lost, %d were published", e.r.frames, want)
			}
			if !errors.Is(e.r.lost, ErrPeerGone) || !strings.Contains(e.r.lost.Error(), strconv.Itoa(c.Process.Pid)) {
				t.Errorf("Lost(%v), want ErrPeerGone with pid %d", e.r.lost, c.Process.Pid)
			}
		}
	}
}

// TestKilledBeforePublishing kills a peer between body and publication.
func TestKilledBeforePublishing(t *testing.T) {
	for _, size := range []int{8, inlineBytes, 2000} {
		for _, count := range []int{0, 5, 300} {
			e, c := withHelper(t, "half", strconv.Itoa(count), strconv.Itoa(size))
			inOrder(e.r)
			until(t, "Lost", func() bool { return e.r.lost != nil }, e.t)
			c.Wait()
			if e.r.frames != count || !errors.Is(e.r.lost, ErrPeerGone) {
				t.Errorf("%d B: %d frames, then Lost(%v); want %d, then ErrPeerGone", size, e.r.frames, e.r.lost, count)
			}
		}
	}
}

// TestStopped sends to a process that is stopped: the ring fills, nothing
// blocks; when it goes on everything arrives.
func TestStopped(t *testing.T) {
	for _, size := range []int{0, 5000} {
		e, c := withHelper(t, "sink")
		acked := -1
		e.r.frame = func(_ fabric.FrameID, body []byte) error {
			acked = int(binary.LittleEndian.Uint64(body))
			return nil
		}
		sent := 0
		send := func(limit int) {
			for sent < limit && e.l.Send(testID, fabric.Normal, number(sent), make([]byte, size)) == nil {
				sent++
			}
		}
		send(10)
		must(t, c.Process.Signal(syscall.SIGSTOP))
		until(t, "the stop", func() bool { // the signal takes its time
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
			must(t, err)
			return strings.Contains(string(stat), ") T ")
		})
		const limit = 5000
		send(limit)
		if sent == limit {
			t.Fatal("the ring of a stopped peer never filled")
		}
		full := sent
		if e.t.Poll(64, never); e.r.writable != 0 {
			t.Error("Writable while the peer is stopped")
		}
		e.r.onWritable = func() { send(limit) }
		must(t, c.Process.Signal(syscall.SIGCONT))
		for end := time.Now().Add(patience); sent < limit; {
			must(t, sleepOn(e.t, patience))
			e.t.Poll(64, never)
			if e.r.writable > 0 {
				send(limit)
			}
			if time.Now().After(end) {
				t.Fatalf("stuck at %d frames, %d when it was full", sent, full)
			}
		}
		for e.l.Send(ackID, fabric.Reserved, nil, nil) != nil {
			e.t.Poll(64, never)
		}
		until(t, "the answer", func() bool { return acked >= 0 || e.r.lost != nil }, e.t)
		if acked != limit {
			t.Errorf("%d of %d frames arrived (lost: %v)", acked, limit, e.r.lost)
		}
	}
}

// TestWakeAcrossProcesses bounces a frame between two processes that both sleep
// whenever they can. A lost wake-up leaves both asleep.
func TestWakeAcrossProcesses(t *testing.T) {
	e, _ := withHelper(t, "sleepy")
	rnd := rand.New(rand.NewPCG(3, 4))
	rounds, slept := 20_000, 0
	if testing.Short() {
		rounds = 1000
	}
	defer func() { t.Logf("slept %d times in %d rounds", slept, rounds) }()
	for i := range rounds {
		must(t, e.l.Send(testID, fabric.Normal, nil, nil))
		dawdle(rnd)
		for e.r.frames <= i {
			if rnd.IntN(4) > 0 {
				slept++
				if err := sleepOn(e.t, patience); err != nil {
					t.Fatalf("round %d: %v", i, err)
				}
			}
			e.t.Poll(64, never)
			if e.r.lost != nil {
				t.Fatal(e.r.lost)
			}
		}
	}
}

// TestWakeStress races Send against Arm, Disarm and sleep, on hot and cold rings
// and from several goroutines at a time.
func TestWakeStress(t *testing.T) {
	const links, each = 20, 2500
	hub := newTransport(t, Config{})
	var ends []*end
	for range links {
		a := &end{t: hub, r: &recorder{}}
		b := &end{t: newTransport(t, Config{Slots: 64}), r: &recorder{}}
		join(t, a, b)
		ends = append(ends, a)
		a.l, b.l = b.l, a.l // a.l sends to a.r
	}
	var got sync.WaitGroup // down to zero when all frames are there
	got.Add(links * each)
	for i, e := range ends {
		e.r.frame = func(fabric.FrameID, []byte) error { got.Done(); return nil }
		go func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 5))
			for n := 0; n < each; {
				if e.l.Send(testID, fabric.Normal, nil, nil) == nil {
					n++
				} else {
					time.Sleep(50 * time.Microsecond)
				}
				if rnd.IntN(200) < 1+i {
					time.Sleep(time.Duration(rnd.IntN(100)) * time.Microsecond)
				}
			}
		}()
	}
	total := func() (n int) {
		for _, e := range ends {
			n += e.r.frames
		}
		return n
	}
	rnd := rand.New(rand.NewPCG(6, 7))
	for total() < links*each {
		if err := sleepOn(hub, patience); err != nil {
			t.Fatalf("%d of %d frames: %v", total(), links*each, err)
		}
		hub.Poll(1+rnd.IntN(64), never)
	}
	got.Wait()
}

// TestDeadListenerIsReplaced listens where a killed process listened.
func TestDeadListenerIsReplaced(t *testing.T) {
	path := t.TempDir() + "/s"
	c := spawn(t, "listen", path)
	c.line(t)
	tr := newTransport(t, Config{})
	if _, err := listen(tr, path, nil); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Fatalf("Listen beside a live process: %v", err)
	}
	must(t, c.Process.Kill())
	c.Wait()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal("the killed process left no socket file")
	}
	a := &end{t: tr, r: &recorder{}}
	ch, err := listen(tr, path, func() fabric.Receiver { return a.r })
	must(t, err)
	if _, err = dial(newTransport(t, Config{}), path, &recorder{}); err != nil {
		t.Fatal(err)
	}
	must(t, (<-ch).err)
}
