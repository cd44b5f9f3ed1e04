package excache

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// talk is a program of testdata/waits.c that one talks to.
type talk struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
	cmd *exec.Cmd
}

func (r *rig) talk(t *testing.T, what string) *talk {
	t.Helper()
	program := filepath.Join(t.TempDir(), "waits")
	if out, err := exec.Command("gcc", "-O1", "-pthread", "-o", program, "testdata/waits.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	w := &talk{t: t, cmd: r.command(program, what)}
	w.in, _ = w.cmd.StdinPipe()
	out, _ := w.cmd.StdoutPipe()
	w.out = bufio.NewReader(out)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(20*time.Second, func() { syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL) })
	t.Cleanup(func() {
		w.in.Close()
		w.cmd.Wait()
		timer.Stop()
	})
	return w
}

func (w *talk) hear(want string) {
	w.t.Helper()
	if line, err := w.out.ReadString('\n'); line != want+"\n" {
		w.t.Fatalf("the program says %q, %v; want %q", line, err, want)
	}
}

func (w *talk) say() { io.WriteString(w.in, "\n") }

// TestHitDuringFetch: while one thread waits for a page that does not come, others get pages that are not in the store.
func TestHitDuringFetch(t *testing.T) {
	store := &testStore{most: 4}
	r := newRig(t, store, 2<<20)
	w := r.talk(t, "fetch")
	w.hear("written")
	begun := make(chan struct{}, Transfers)
	store.mu.Lock()
	store.held = func(o *testOp) bool { return !o.put }
	store.started = func(o *testOp) {
		if !o.put {
			begun <- struct{}{}
		}
	}
	store.mu.Unlock()
	w.say()
	<-begun
	w.say()
	w.hear("went on")
	store.release()
	w.hear("ok")
}

// TestEndedWhileAsking: a program that waits for the daemon's answer ends by a signal that ends it.
func TestEndedWhileAsking(t *testing.T) {
	asked, answer := make(chan struct{}, 10), make(chan struct{})
	var slow atomic.Bool
	r := newRig(t, &testStore{most: 4, mapped: true, takes: func() {
		if slow.Load() {
			asked <- struct{}{}
			<-answer
		}
	}}, 2<<20)
	w := r.talk(t, "takes")
	w.hear("written")
	slow.Store(true)
	w.say()
	<-asked
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := w.cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the program ended with %v, want SIGTERM", err)
	}
	close(answer)
}

// TestRecall: what is on its way to the store is had back from there at once, though no put ever ends.
func TestRecall(t *testing.T) {
	store := &testStore{most: 4, held: func(o *testOp) bool { return o.put }}
	r := newRig(t, store, 2<<20)
	w := r.talk(t, "recall")
	w.hear("written")
	w.say()
	w.hear("ok")
	if s := r.Stats(); s.Saved == 0 || s.Returned == 0 {
		t.Errorf("nothing left and came back: %+v", s)
	}
	store.release()
	w.say()
}

var errBusy = errors.New("too much is under way")

// TestRetry: operations that the store cannot take now and then are started again, and nothing is lost.
func TestRetry(t *testing.T) {
	var n atomic.Int64
	store := &testStore{most: 10, fails: func(o *testOp) error {
		if n.Add(1)%3 == 0 {
			return errBusy
		}
		return nil
	}}
	r := newRig(t, store, 2<<20)
	for _, what := range []string{"sizes", "threads", "forks"} {
		if got := r.run(t, r.program, what); got != "ok" {
			t.Errorf("%s: %s", what, got)
		}
	}
}

// TestSilence: an operation that fails again and again, or does not end, means that the store is lost once it has had silence.
func TestSilence(t *testing.T) {
	for name, store := range map[string]*testStore{
		"fails":  {most: 1, fails: func(*testOp) error { return errBusy }},
		"silent": {most: 1, held: func(*testOp) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			var told error
			c, err := New(Config{LocalBytes: MinLocalBytes, Store: store, Told: func(err error) { told = err }})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			s := &session{window: -1, faults: gone(t)}
			if err := c.take(s); err != nil {
				t.Fatal(err)
			}
			defer c.end(s)
			c.core.Put(0, 1)
			c.fault(s, 0, false, false)
			c.reap()
			if c.lost != nil || c.wanted.Load() == 0 {
				t.Fatalf("at first: %v, wanted %#x", c.lost, c.wanted.Load())
			}
			for i := range c.all {
				c.all[i].begun -= Silence
			}
			for range 3 { // it is tried again first, if it failed
				c.due.Store(true)
				c.reap()
			}
			if n := strings.Count(fmt.Sprint(told), ErrLost.Error()); n != 1 {
				t.Errorf("it is told %d times that memory is lost: %v", n, told)
			}
			if !errors.Is(told, ErrLost) || c.wanted.Load() != 0 || c.core.pages[0].state != lost {
				t.Errorf("told %v, wanted %#x, page %d", told, c.wanted.Load(), c.core.pages[0].state)
			}
			if got := store.silent.Load(); got != (name == "silent") {
				t.Errorf("the store was told that nothing answers: %v", got)
			}
		})
	}
}

// TestStandstill: time in which the cache's process was stopped or got no processor is not the component's silence. The answer lies here unread, and nothing is lost;
// it used to be, at the first look after 4 seconds. Where nobody waits, nobody looks either.
func TestStandstill(t *testing.T) {
	for name, looks := range map[string]int{"stopped": 1, "starved": 5} {
		t.Run(name, func(t *testing.T) {
			store := &testStore{most: 1, held: func(*testOp) bool { return true }}
			c, s := bare(t, store)
			defer c.end(s)
			c.mu.Lock()
			defer c.mu.Unlock()
			i := under(c, s, sending, 0)
			for range looks {
				c.seen = c.seen.Add(-time.Minute)
				c.due.Store(true)
				if c.reap(); c.lost != nil {
					t.Fatal(c.lost)
				}
			}
			store.release()
			if c.reap(); c.under() != 0 || c.lost != nil || c.core.transfers[i].kind != idle {
				t.Errorf("under way %#x, lost %v", c.under(), c.lost)
			}
		})
	}
}

// TestPatience: a timer for silence goes on by one step for a standstill, ends in time without one, and not at all once it is stopped.
func TestPatience(t *testing.T) {
	var over atomic.Bool
	p := afterSilence(func() { over.Store(true) })
	defer p.stop()
	for range Silence / lookTime {
		if p.step(); over.Load() != (p.steps == 0) {
			t.Fatalf("over: %v, %d steps left", over.Load(), p.steps)
		}
	}
	over.Store(false)
	if p.step(); over.Load() {
		t.Error("it was over twice")
	}
	q := afterSilence(func() { t.Error("it was stopped") })
	q.stop()
	q.step()
}

// TestDiscard: the store forgets what a program frees, in long ranges, and what comes there afterwards stays.
func TestDiscard(t *testing.T) {
	for name, mapped := range map[string]bool{"mapped": true, "fetched": false} {
		t.Run(name, func(t *testing.T) {
			store := &testStore{most: 4, mapped: mapped}
			r := newRig(t, store, 2<<20)
			w := r.talk(t, "discard")
			w.hear("freed")
			until := time.Now().Add(10 * time.Second)
			for r.Stats().Discarded == 0 && time.Now().Before(until) {
				time.Sleep(time.Millisecond)
			}
			w.say()
			w.hear("ok")
			s := r.Stats() // not with the store's lock held: a fault that is being answered may want that
			store.mu.Lock()
			defer store.mu.Unlock()
			if s.Discarded*PageBytes != store.discarded || store.discarded < 4<<20 || store.discards > 40 {
				t.Errorf("%d pages were discarded, of the store %d bytes in %d ranges", s.Discarded, store.discarded, store.discards)
			}
		})
	}
}
