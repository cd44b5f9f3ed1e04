package excache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/uffd"
	"github.com/wherry-fabric/wherry/pool/excache/shim"
)

func TestMain(m *testing.M) {
	if os.Getenv(joinVariable) != "" {
		if err := joined(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// rig is a cache that listens, and the compiled program.
type rig struct {
	*Cache
	store   *testStore
	socket  string
	program string
	shim    *os.File
	preload string // and what else
	errs    chan error
}

func newRig(t *testing.T, store *testStore, local int64, shares ...Share) *rig {
	t.Helper()
	if err := uffd.Probe(); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	dir := t.TempDir()
	r := &rig{store: store, socket: filepath.Join(dir, "s"), program: filepath.Join(dir, "program"), errs: make(chan error, 100)}
	if out, err := exec.Command("gcc", "-O1", "-pthread", "-o", r.program, "testdata/program.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var err error
	if r.shim, err = os.Create(filepath.Join(dir, "shim.so")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.shim.Close() })
	if _, err := r.shim.Write(shim.Library()); err != nil {
		t.Fatal(err)
	}
	if r.Cache, err = New(Config{LocalBytes: local, Store: store, Shares: shares, Told: func(err error) { r.errs <- err }}); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			served.Go(func() {
				if err := r.Serve(conn); err != nil {
					r.errs <- err
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		served.Wait()
		if n := len(store.rooms); n != 0 {
			t.Errorf("%d rooms were not given back", n)
		}
	})
	return r
}

func (r *rig) command(args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+r.shim.Name()+r.preload, "WHERRY_RUN="+r.socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

func (r *rig) run(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := r.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer limit(cmd).Stop()
	err := cmd.Wait()
	select {
	case e := <-r.errs:
		if r.store.most > 2 || !errors.Is(e, ErrFull) {
			t.Errorf("%v: %v", args, e)
		}
	default:
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s\n%+v", args, err, out.Bytes(), r.Stats())
	}
	return strings.TrimSpace(out.String())
}

// limit ends a program that takes a minute, and what it has started: a test that waits for it says so then.
func limit(cmd *exec.Cmd) *time.Timer {
	return time.AfterFunc(time.Minute, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
}

// told waits for the next error that the cache tells of.
func (r *rig) told(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.errs:
		return err
	case <-time.After(time.Minute):
		t.Fatal("nothing was told in a minute")
		return nil
	}
}

// ends runs a program to its end, and says what it wrote and how that was.
func (r *rig) ends(args ...string) (string, error) {
	cmd := r.command(args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	defer limit(cmd).Stop()
	err := cmd.Wait()
	return out.String(), err
}

// TestPrograms: programs whose memory is many times what is local see what they wrote, over a store that is mapped and one that is not.
func TestPrograms(t *testing.T) {
	for name, mapped := range map[string]bool{"mapped": true, "fetched": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, &testStore{most: 10, mapped: mapped}, 2<<20)
			for _, what := range []string{"sizes", "maps", "threads", "churn", "files", "forks", "moments"} {
				t.Run(what, func(t *testing.T) {
					before := r.Stats()
					if got := r.run(t, r.program, what); got != "ok" {
						t.Errorf("%s", got)
					}
					s := r.Stats()
					if s.Saved == before.Saved || s.Fetched == before.Fetched {
						t.Errorf("nothing went to the store: %+v", s)
					}
					if what == "files" && (s.Outside.Direct == before.Outside.Direct || s.Outside.Uring != before.Outside.Uring+2) {
						t.Errorf("O_DIRECT and io_uring are not counted: %+v", s.Outside)
					}
					t.Logf("%+v", s)
				})
			}
		})
	}
}

// TestEdges: what programs may do to the window, the descriptors behind it and the shim, and still see what they wrote.
func TestEdges(t *testing.T) {
	r := newRig(t, &testStore{most: 10, mapped: true}, 2<<20)
	for what, times := range map[string]int{"grows": 1, "closes": 1, "resolves": 10, "handlers": 1, "borders": 1, "mistakes": 1, "within": 1} {
		t.Run(what, func(t *testing.T) {
			for range times {
				if got := r.run(t, r.program, what); got != "ok" {
					t.Fatalf("%s", got)
				}
			}
		})
	}
}

// TestOtherAllocator: where a malloc other than the C library's maps its memory in the window, its allocations are its own to free.
func TestOtherAllocator(t *testing.T) {
	r := newRig(t, &testStore{most: 10, mapped: true}, 2<<20)
	r.preload = ":libjemalloc.so.2"
	for _, what := range []string{"small", "aligned", "smallforks", "streams"} {
		if got := r.run(t, r.program, what); got != "ok" {
			t.Errorf("%s: %s", what, got)
		}
	}
	if s := r.Stats(); s.Fetched == 0 {
		t.Errorf("nothing was remote: %+v", s)
	}
}

// TestOutside: what a program has of memory besides the window is told, when it has ended.
func TestOutside(t *testing.T) {
	r := newRig(t, &testStore{most: 10, mapped: true}, 2<<20)
	if got := r.run(t, r.program, "heap"); got != "ok" {
		t.Errorf("%s", got)
	}
	if n := r.Stats().Outside.Anonymous; n < 16_000_000 || n > 50_000_000 {
		t.Errorf("%d bytes, want some 16 MB", n)
	}
}

// TestFreedAgain: what is freed and allocated again is not zeroed each time, nor does it leave. The program needs 22 MiB once.
func TestFreedAgain(t *testing.T) {
	r := newRig(t, &testStore{most: 10, mapped: true}, 8<<20)
	if got := r.run(t, r.program, "reuses"); got != "ok" {
		t.Errorf("%s", got)
	}
	if zeroed := r.Stats().Zeroed * PageBytes; zeroed < 18<<20 || zeroed > 30<<20 {
		t.Errorf("%d bytes were zeroed, want some 20 MiB, as 50 rounds of 1.5 MiB are the same bytes", zeroed)
	}
}

// TestDescriptorsGone: a program that closes the window's descriptors by system calls of its own gets SIGBUS where its bytes are remote, and never zeros.
func TestDescriptorsGone(t *testing.T) {
	r := newRig(t, &testStore{most: 10, mapped: true}, 2<<20)
	out, err := r.ends(r.program, "hides")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGBUS {
		t.Errorf("the program ended with %v, %s; want SIGBUS", err, out)
	}
	if err := r.told(t); !errors.Is(err, ErrProgram) {
		t.Errorf("told: %v", err)
	}
}

// TestFull: more than the store has is ENOMEM, and the program goes on.
func TestFull(t *testing.T) {
	r := newRig(t, &testStore{most: 2, mapped: true}, 2<<20)
	if got := r.run(t, r.program, "full"); got != "ok" {
		t.Errorf("%s", got)
	}
}

// TestFragments: what a program has freed is enough for what it takes, wherever that lies; also for its children.
func TestFragments(t *testing.T) {
	for _, mapped := range []bool{true, false} {
		for what, most := range map[string]int{"fragments": 6, "fragmentforks": 25} {
			r := newRig(t, &testStore{most: most, mapped: mapped}, 4<<20)
			if got := r.run(t, r.program, what); got != "ok" {
				t.Errorf("%s, mapped %v: %s", what, mapped, got)
			}
		}
	}
}

// TestStoreLost: when the store is gone the program gets SIGBUS at its next access, and the reason is told.
func TestStoreLost(t *testing.T) {
	r := newRig(t, &testStore{most: 10}, 2<<20)
	cmd := r.command(r.program, "lose")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() }).Stop()
	if b, err := io.ReadAll(io.LimitReader(out, 6)); string(b) != "ready\n" {
		t.Fatalf("%q, %v", b, err)
	}
	r.store.broken.Store(true)
	io.WriteString(in, "\n")
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGBUS {
		t.Errorf("the program ended with %v, want SIGBUS", err)
	}
	select {
	case err := <-r.errs:
		if !errors.Is(err, ErrLost) || !errors.Is(err, errBroken) {
			t.Errorf("told: %v", err)
		}
	default:
		t.Error("nobody was told")
	}
}

// TestDaemonGone: when the daemon ends, the program is killed, before a page of its memory reads as zeros.
func TestDaemonGone(t *testing.T) {
	r := newRig(t, &testStore{most: 10, mapped: true}, 2<<20)
	cmd := r.command(r.program, "lose")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(20*time.Second, func() { cmd.Process.Signal(syscall.SIGTERM) }).Stop()
	if b, err := io.ReadAll(io.LimitReader(out, 6)); string(b) != "ready\n" {
		t.Fatalf("%q, %v", b, err)
	}
	io.WriteString(in, "\n")
	r.mu.Lock()
	for s := range r.sessions { // what the kernel does when a process is killed, in the order that is worst for the program
		s.faults.Close()
		unix.Close(s.life)
		s.life = -1
	}
	r.mu.Unlock()
	rest, _ := io.ReadAll(out)
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || len(rest) != 0 {
		t.Errorf("the program ended with %v, %q, want SIGKILL", err, rest)
	}
}
