package excache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sharedBytes is more than a room, and no whole page.
const sharedBytes = RoomBytes + 5*PageBytes + 104

// sharedStore has a share whose words are their number; what lies behind its end is not zero.
func sharedStore(t *testing.T, mapped, writable bool) (*testStore, Share) {
	t.Helper()
	store := &testStore{most: 20, mapped: mapped, rooms: map[int][]byte{}}
	parts := [2][]byte{}
	for i := range parts {
		b, err := unix.Mmap(-1, 0, RoomBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < RoomBytes; at += 8 {
			if n := i*RoomBytes + at; n < sharedBytes {
				binary.LittleEndian.PutUint64(b[at:], uint64(n)/8)
			} else {
				b[at] = 0xee
			}
		}
		parts[i] = b
	}
	return store, Share{Name: "work:table", Size: sharedBytes, Writable: writable, Bind: func(r, part int) {
		store.mu.Lock()
		defer store.mu.Unlock()
		store.rooms[r] = parts[part]
	}}
}

func newSharedRig(t *testing.T, mapped, writable bool) (*rig, string) {
	t.Helper()
	store, share := sharedStore(t, mapped, writable)
	r := newRig(t, store, 2<<20, share)
	program := filepath.Join(t.TempDir(), "shared")
	if out, err := exec.Command("gcc", "-O1", "-pthread", "-o", program, "testdata/shared.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return r, program
}

// TestShared: several processes map one share together, and see its bytes, whether the store is mapped or not.
func TestShared(t *testing.T) {
	for name, mapped := range map[string]bool{"mapped": true, "fetched": false} {
		t.Run(name, func(t *testing.T) {
			r, program := newSharedRig(t, mapped, false)
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					if got := r.output(t, program, "reads", "/wherry/work:table"); got != "ok" {
						t.Error(got)
					}
				})
			}
			all.Wait()
			s := r.Stats()
			if s.Fetched < sharedBytes/PageBytes || s.Saved != 0 || s.LocalPages > 2<<20/PageBytes {
				t.Errorf("%+v", s)
			}
			if got := r.output(t, program, "refused", "/wherry/work:table"); got != "ok" {
				t.Error(got)
			}
			r.refusal(t, "share work:table: process ", "(EACCES): it was given to be read: give it with --share-write")
		})
	}
}

// output runs a program, and says what it wrote or how it failed. Unlike run it may be called by several goroutines.
func (r *rig) output(t *testing.T, args ...string) string {
	t.Helper()
	out, err := r.ends(args...)
	if err != nil {
		t.Errorf("%v: %v", args, err)
	}
	return strings.TrimSpace(out)
}

// ready starts a program and waits until it is ready. The other end of its input and what follows of its output are returned.
func (r *rig) ready(t *testing.T, args ...string) (*exec.Cmd, io.WriteCloser, io.Reader) {
	t.Helper()
	cmd := r.command(args...)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := limit(cmd)
	t.Cleanup(func() {
		timer.Stop()
		cmd.Process.Kill()
	})
	if b, err := io.ReadAll(io.LimitReader(out, 6)); string(b) != "ready\n" {
		rest, _ := io.ReadAll(out)
		t.Fatalf("%v: %q%q, %v", args, b, rest, err)
	}
	return cmd, in, out
}

// TestSharedWriter: one process at a time changes a share; the others see that at once, and the store has it when that process syncs, unmaps or ends.
func TestSharedWriter(t *testing.T) {
	for name, mapped := range map[string]bool{"mapped": true, "fetched": false} {
		t.Run(name, func(t *testing.T) {
			r, program := newSharedRig(t, mapped, true)
			holder, in, _ := r.ready(t, program, "holds", "/wherry/work:table")
			if got := r.output(t, program, "reads", "/wherry/work:table"); got != "ok" { // beside the writer
				t.Error(got)
			}
			if got := r.output(t, program, "second", "/wherry/work:table"); got != "ok" {
				t.Error(got)
			}
			r.refusal(t, "share work:table: process ", fmt.Sprintf("(EBUSY): process %d has, and one at a time may: let that unmap it or end first", holder.Process.Pid))
			in.Close()
			if err := holder.Wait(); err != nil {
				t.Error(err)
			}
			r.awaitSessions(t, 0) // the writer is one until the cache has heard of its end
			follower, _, out := r.ready(t, program, "follows", "/wherry/work:table")
			if got := r.run(t, program, "writes", "/wherry/work:table"); got != "ok" {
				t.Error(got)
			}
			rest, _ := io.ReadAll(out)
			if err := follower.Wait(); err != nil || string(rest) != "ok\n" {
				t.Errorf("the reader ended with %v, %s", err, rest)
			}
			r.awaitSessions(t, 0)
			r.store.mu.Lock()
			defer r.store.mu.Unlock()
			for part, room := range r.shares[0].rooms {
				b := r.store.rooms[room]
				for at := 0; at < RoomBytes && part*RoomBytes+at < sharedBytes; at += 8 {
					n := uint64(part*RoomBytes+at) / 8
					if got := binary.LittleEndian.Uint64(b[at:]); got != max(4*n, 4) {
						t.Fatalf("word %d is %d in the store", n, got)
					}
				}
			}
		})
	}
}

// refusal wants one line about a mapping that was refused, with these words.
func (r *rig) refusal(t *testing.T, words ...string) {
	t.Helper()
	err := r.told(t)
	for _, w := range words {
		if !errors.Is(err, ErrShare) || !strings.Contains(err.Error(), w) {
			t.Errorf("told: %v; want %q", err, w)
		}
	}
	if len(r.errs) != 0 {
		t.Errorf("told again: %v", <-r.errs)
	}
}

// TestSharedWriterLost: where a writer cannot save, as the share is gone, a line says what is lost with it, once.
func TestSharedWriterLost(t *testing.T) {
	for name, mapped := range map[string]bool{"mapped": true, "fetched": false} {
		t.Run(name, func(t *testing.T) {
			r, program := newSharedRig(t, mapped, true)
			holder, in, _ := r.ready(t, program, "holds", "/wherry/work:table")
			r.store.mu.Lock()
			r.store.gone = map[int]bool{}
			for _, room := range r.shares[0].rooms {
				r.store.gone[room] = true
			}
			r.store.mu.Unlock()
			in.Close()
			if err := holder.Wait(); err != nil {
				t.Error(err)
			}
			r.awaitSessions(t, 0)
			if err := r.told(t); !errors.Is(err, ErrLost) || !strings.HasPrefix(err.Error(), "share work:table: ") || !strings.Contains(err.Error(), "changed since it was last saved (msync); see whether its node runs") {
				t.Errorf("told: %v", err)
			}
			if len(r.errs) != 0 {
				t.Errorf("told again: %v", <-r.errs)
			}
		})
	}
}

// TestSharedOver: other pages of a share, and other memory, come where a part of a mapping was. Each address shows what was mapped there last, in a child too, and
// the store has what was written.
func TestSharedOver(t *testing.T) {
	for name, mapped := range map[string]bool{"mapped": true, "fetched": false} {
		t.Run(name, func(t *testing.T) {
			r, program := newSharedRig(t, mapped, true)
			if got := r.run(t, program, "over", "/wherry/work:table"); got != "ok" {
				t.Fatal(got)
			}
			r.awaitSessions(t, 0)
			r.store.mu.Lock()
			defer r.store.mu.Unlock()
			b := r.store.rooms[r.shares[0].rooms[0]]
			for i := range 16 {
				page := i
				switch {
				case i/4 == 1:
					page = 96 + i
				case i/2 == 5:
					page = 190 + i
				case i == 14:
					continue
				}
				if got := binary.LittleEndian.Uint64(b[page*PageBytes+16:]); got != uint64(2000+i) {
					t.Errorf("page %d has %d in the store", page, got)
				}
			}
		})
	}
}

// TestSharedThreads: a thread maps a share where another one has just unmapped it.
func TestSharedThreads(t *testing.T) {
	r, program := newSharedRig(t, true, false)
	if got := r.run(t, program, "threads", "/wherry/work:table"); got != "ok" {
		t.Error(got)
	}
}

// awaitSessions waits until so many processes are served.
func (r *rig) awaitSessions(t *testing.T, n int) {
	t.Helper()
	for until := time.Now().Add(time.Minute); r.live() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d processes are served, want %d", r.live(), n)
		}
	}
}

// TestSharedLost: a share that is gone is a SIGBUS and a line; the memory that a program has of its own is not touched.
func TestSharedLost(t *testing.T) {
	for name, mapped := range map[string]bool{"mapped": true, "fetched": false} {
		t.Run(name, func(t *testing.T) {
			r, program := newSharedRig(t, mapped, false)
			cmd, in, out := r.ready(t, program, "lost", "/wherry/work:table")
			shared := map[int]bool{}
			for _, room := range r.shares[0].rooms {
				shared[room] = true
			}
			r.store.mu.Lock()
			r.store.gone = shared
			r.store.mu.Unlock()
			io.WriteString(in, "\n")
			rest, _ := io.ReadAll(out)
			err := cmd.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGBUS || string(rest) != "own\n" {
				t.Errorf("the program ended with %v, %q; want SIGBUS", err, rest)
			}
			if err := r.told(t); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "work:table") {
				t.Errorf("told: %v", err)
			}
		})
	}
}

// TestSharedDescriptorsGone: a process that closes the window's descriptors by system calls of its own gets SIGBUS where it maps a share, also for what was local as
// it did: that may leave later, and would read as zeros. Who maps the share beside it goes on.
func TestSharedDescriptorsGone(t *testing.T) {
	for name, mapped := range map[string]bool{"mapped": true, "fetched": false} {
		t.Run(name, func(t *testing.T) {
			r, program := newSharedRig(t, mapped, true)
			writer, in, out := r.ready(t, program, "holds", "/wherry/work:table")
			text, err := r.ends(program, "hides", "/wherry/work:table")
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGBUS || len(text) != 0 {
				t.Errorf("the program ended with %v, %s; want SIGBUS", err, text)
			}
			if err := r.told(t); !errors.Is(err, ErrProgram) {
				t.Errorf("told: %v", err)
			}
			if got := r.output(t, program, "reads", "/wherry/work:table"); got != "ok" {
				t.Error(got)
			}
			in.Close()
			rest, _ := io.ReadAll(out)
			if err := writer.Wait(); err != nil {
				t.Errorf("the writer ended with %v, %s", err, rest)
			}
		})
	}
}

// TestDescriptorsGoneSlowly: what leaves of a process that closed the window's descriptors, while what it maps of a share is taken from it, is a SIGBUS too, and not zeros.
func TestDescriptorsGoneSlowly(t *testing.T) {
	r, program := newSharedRig(t, false, true)
	writer, end, _ := r.ready(t, program, "holds", "/wherry/work:table")
	shared := r.shares[0].rooms
	begun := make(chan struct{})
	r.store.mu.Lock()
	r.store.held = func(o *testOp) bool { return o.put && slices.Contains(shared, int(o.off/RoomBytes)) }
	r.store.started = func(o *testOp) {
		if r.store.held != nil && r.store.held(o) && begun != nil {
			close(begun)
			begun = nil
		}
	}
	flushes := begun
	r.store.mu.Unlock()
	keeper, in, out := r.ready(t, program, "keeps", "/wherry/work:table")
	select {
	case <-flushes:
	case <-time.After(time.Minute):
		t.Fatal("the share is not flushed when the process has closed its descriptors")
	}
	if got := r.run(t, r.program, "sizes"); got != "ok" { // all that was local leaves
		t.Error(got)
	}
	r.store.release()
	r.awaitSessions(t, 1)
	in.Close()
	rest, _ := io.ReadAll(out)
	err := keeper.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGBUS || len(rest) != 0 {
		t.Errorf("the program ended with %v, %s; want SIGBUS", err, rest)
	}
	if err := r.told(t); !errors.Is(err, ErrProgram) {
		t.Errorf("told: %v", err)
	}
	end.Close()
	if err := writer.Wait(); err != nil {
		t.Error(err)
	}
}
