package compiler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// mark makes this test program a compiler, which does what its code says.
const mark = "be-a-compiler"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == mark {
		beCompiler()
		return
	}
	goleak.VerifyTestMain(m)
}

func beCompiler() {
	conn, err := net.FileConn(os.NewFile(Descriptor, "requests"))
	if err == nil {
		served := 0
		err = Serve(conn, Hello{Compiler: "test", Triple: "t"}, func(r Request) Answer {
			served++
			return obey(string(r.Code), served)
		}, nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func obey(order string, served int) Answer {
	switch order {
	case "who": // this process is, and how often it was asked
		return Answer{Object: fmt.Appendf(nil, "%d %d", os.Getpid(), served)}
	case "refuse":
		return Answer{Refused: "it is bad code"}
	case "fail":
		return Answer{Failed: "the disk is full"}
	case "spin":
		for { //nolint // until it is killed
		}
	case "go on": // after the answer: code that has taken the process over
		go func() {
			for { //nolint // until it is killed
			}
		}()
	case "sleep":
		time.Sleep(time.Hour)
	case "crash":
		fmt.Fprintln(os.Stderr, "LLVM ERROR: out of ideas\nmore")
		os.Exit(134)
	case "hoard":
		kept = make([]byte, 600<<20)
		for i := 0; i < len(kept); i += 4096 {
			kept[i] = 1
		}
	}
	return Answer{Object: []byte("done")}
}

var kept []byte

func pool(t *testing.T, c Config) *Pool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.Command = []string{self, mark}
	p := NewPool(c)
	t.Cleanup(func() { p.Close() })
	return p
}

func job(principal, signer, order string) Job {
	return Job{Principal: principal, Signer: signer, Request: Request{Code: []byte(order)}}
}

// who asks for the process that serves a signer and how often it has served.
func who(t *testing.T, p *Pool, signer string) (pid, served int) {
	t.Helper()
	text, err := p.Compile(t.Context(), job("ada", signer, "who"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(text), &pid, &served); err != nil {
		t.Fatal(err)
	}
	return pid, served
}

func TestReplaced(t *testing.T) {
	p := pool(t, Config{Requests: 3})
	h, err := p.Hello(t.Context())
	if err != nil || h.Compiler != "test" || h.Version != Version {
		t.Fatalf("%+v, %v", h, err)
	}
	first, served := who(t, p, "alice")
	if again, twice := who(t, p, "alice"); again != first || served != 1 || twice != 2 {
		t.Errorf("process %d, then %d; requests %d and %d", first, again, served, twice)
	}
	other, served := who(t, p, "bob")
	if other == first || served != 1 {
		t.Errorf("bob's code meets what alice's left behind: process %d, request %d", other, served)
	}
	if again, third := who(t, p, "alice"); again == first && third != 3 {
		t.Errorf("process %d, request %d", again, third)
	}
	for range 3 {
		who(t, p, "carol")
	}
	if _, served := who(t, p, "carol"); served != 1 {
		t.Errorf("after 3 requests the process goes on, with number %d", served)
	}
}

// TestContained: what a compiler does to itself ends one request, says why, and the next is served.
func TestContained(t *testing.T) {
	p := pool(t, Config{Deadline: 50 * time.Millisecond})
	var refused *RefusedError
	if _, err := p.Compile(t.Context(), job("ada", "s", "refuse")); !errors.As(err, &refused) || err.Error() != "it is bad code" {
		t.Errorf("refused: %v", err)
	}
	if _, err := p.Compile(t.Context(), job("ada", "s", "fail")); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("failed: %v", err)
	}
	healthy, _ := who(t, p, "s")
	for _, c := range []struct {
		order, says string
		is          error
	}{
		{"crash", "exit status 134: LLVM ERROR: out of ideas)", ErrCrashed},
		{"spin", "more than 50ms of processor time", ErrDeadline},
		{"sleep", "or 500ms on the clock", ErrDeadline},
	} {
		_, err := p.Compile(t.Context(), job("ada", "s", c.order))
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.order, err)
		}
		next, served := who(t, p, "s")
		if next == healthy || served != 1 {
			t.Errorf("after %s process %d goes on", c.order, next)
		}
		healthy = next
	}
}

// TestKilled kills the compiler in the middle of a request, and again while it is idle.
func TestKilled(t *testing.T) {
	p := pool(t, Config{})
	pid, _ := who(t, p, "s")
	failed := make(chan error)
	go func() {
		_, err := p.Compile(t.Context(), job("ada", "s", "sleep"))
		failed <- err
	}()
	for p.idles(pid) {
		time.Sleep(time.Millisecond)
	}
	unix.Kill(pid, unix.SIGKILL)
	if err := <-failed; !errors.Is(err, ErrCrashed) || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("the request ends with %v", err)
	}
	next, _ := who(t, p, "s")
	unix.Kill(next, unix.SIGKILL)
	for p.idles(next) && p.aliveProcess(next) {
		time.Sleep(time.Millisecond)
	}
	last, _ := who(t, p, "s")
	if next == pid || last == next {
		t.Errorf("processes %d, %d, %d", pid, next, last)
	}
}

func (p *Pool) aliveProcess(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.idle, func(c *process) bool { return c.cmd.Process.Pid == pid && c.alive() })
}

// idles reports whether a process waits for a request.
func (p *Pool) idles(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		if c.cmd.Process.Pid == pid {
			return true
		}
	}
	return false
}

// TestIdle: a process that computes while nobody asks it for anything is ended, and charged to whoever it computed for last.
func TestIdle(t *testing.T) {
	p := pool(t, Config{Processes: 3})
	well, _ := who(t, p, "s")
	if _, err := p.Compile(t.Context(), job("eve", "e", "go on")); err != nil {
		t.Fatal(err)
	}
	for len(p.idlePids()) == 0 || slices.ContainsFunc(p.idlePids(), func(pid int) bool { return pid != well && !p.fresh(pid) }) {
		time.Sleep(time.Millisecond)
	}
	p.mu.Lock()
	eve, ada := p.queue.used["eve"], p.queue.used["ada"]
	p.mu.Unlock()
	if eve < idleTime || eve < ada {
		t.Errorf("eve is charged %v, ada %v", eve, ada)
	}
	if again, served := who(t, p, "s"); again != well || served != 2 {
		t.Errorf("one that was idle has gone too: process %d was asked for the %dth time, %d before", again, served, well)
	}
}

func (p *Pool) idlePids() (pids []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		pids = append(pids, c.cmd.Process.Pid)
	}
	return pids
}

// fresh reports whether an idle process has served nobody.
func (p *Pool) fresh(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.idle, func(c *process) bool { return c.cmd.Process.Pid == pid && c.served == 0 })
}

// TestMemory: a process that holds too much is replaced; one that asks for more than twice that cannot have it.
func TestMemory(t *testing.T) {
	if testing.Short() { // as it is under the race detector
		t.Skip("the race detector's own memory is more than any of these bounds")
	}
	p := pool(t, Config{MemoryBytes: 400 << 20, Deadline: 20 * time.Second})
	before, _ := who(t, p, "s")
	if _, err := p.Compile(t.Context(), job("ada", "s", "hoard")); err != nil {
		t.Fatal(err)
	}
	if after, _ := who(t, p, "s"); after == before {
		t.Error("a process of 600 MiB goes on")
	}
	small := pool(t, Config{MemoryBytes: 250 << 20, Deadline: 20 * time.Second})
	if _, err := small.Compile(t.Context(), job("ada", "s", "hoard")); !errors.Is(err, ErrCrashed) || !strings.Contains(err.Error(), "exit status 2") {
		t.Errorf("600 MiB in a process that may have 500: %v", err)
	}
}

// TestCancelled: who gives up waits no longer, and what was compiled for nobody ends.
func TestCancelled(t *testing.T) {
	p := pool(t, Config{Deadline: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := p.Compile(ctx, job("ada", "s", "spin")); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	for p.waiting() < 2 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	all.Wait()
	who(t, p, "s")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := p.Compile(t.Context(), job("ada", "s", "who")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := p.Hello(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Hello after Close: %v", err)
	}
}

func (p *Pool) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.total
}

// TestCloseEndsCompiles: nobody's request keeps a pool from closing.
func TestCloseEndsCompiles(t *testing.T) {
	p := pool(t, Config{Deadline: time.Hour})
	failed := make(chan error)
	for range 2 {
		go func() {
			_, err := p.Compile(t.Context(), job("ada", "s", "sleep"))
			failed <- err
		}()
	}
	for p.waiting() < 1 {
		time.Sleep(time.Millisecond)
	}
	p.Close()
	for range 2 {
		if err := <-failed; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}

// TestSilent: a compiler that never says hello holds up neither whoever gives up nor the pool's end.
func TestSilent(t *testing.T) {
	p := NewPool(Config{Command: []string{"/bin/sleep", "1000"}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.Compile(ctx, job("ada", "s", "who")); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	failed := make(chan error)
	go func() { _, err := p.Hello(t.Context()); failed <- err }()
	for p.Started() < 2 {
		time.Sleep(time.Millisecond)
	}
	p.Close()
	if err := <-failed; err == nil {
		t.Error("a compiler that said nothing is one")
	}
}

func TestNoCompiler(t *testing.T) {
	p := NewPool(Config{Command: []string{"/nowhere/wherry-llvm"}})
	defer p.Close()
	if _, err := p.Hello(t.Context()); err == nil || !strings.Contains(err.Error(), "/nowhere/wherry-llvm") {
		t.Error(err)
	}
	q := NewPool(Config{Command: []string{"/bin/false"}})
	defer q.Close()
	if _, err := q.Compile(t.Context(), job("ada", "s", "who")); !errors.Is(err, ErrCrashed) || !strings.Contains(err.Error(), "exit status 1") {
		t.Error(err)
	}
}
