package excache

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hookStore calls hook before it takes a room.
type hookStore struct {
	testStore
	hook func()
}

func (s *hookStore) Take(ctx context.Context, r int) error {
	if s.hook != nil {
		s.hook()
	}
	return s.testStore.Take(ctx, r)
}

// TestForkedChildEnds: a process that is killed while it forks takes the child's session with it; the cache goes on, and has all rooms back.
func TestForkedChildEnds(t *testing.T) {
	store := &hookStore{testStore: testStore{most: 10}}
	c, err := New(Config{LocalBytes: MinLocalBytes, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	parent := &session{window: -1, number: 1000}
	for range 2 {
		if err := c.take(parent); err != nil {
			t.Fatal(err)
		}
	}
	ours, theirs := pair(t)
	served := make(chan error, 1)
	go func() { served <- c.Serve(theirs) }()
	number := uint64(0)
	for until := time.Now().Add(10 * time.Second); number == 0 && time.Now().Before(until); time.Sleep(time.Millisecond) {
		c.mu.Lock()
		for s := range c.sessions {
			number = s.number
		}
		c.mu.Unlock()
	}
	store.hook = func() {
		store.hook = nil
		ours.Close()
		<-served // the session has ended
	}
	if status := c.fork(parent, number); status == 0 {
		t.Error("a child that is gone was forked")
	}
	if n := len(store.rooms); n != len(parent.rooms) {
		t.Errorf("%d rooms are taken, the parent has %d", n, len(parent.rooms))
	}
	c.end(parent)
	if s := c.Stats(); s.Rooms != 0 || len(store.rooms) != 0 {
		t.Errorf("%d rooms are taken, of the store %d", s.Rooms, len(store.rooms))
	}
}

// TestForkedOnce: of two processes that name one child the first gives it its copy.
func TestForkedOnce(t *testing.T) {
	store := &hookStore{testStore: testStore{most: 10}}
	c, err := New(Config{LocalBytes: MinLocalBytes, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first, other := bareSession(t, c, 1), bareSession(t, c, 2)
	child := &session{window: -1, number: 3000}
	c.mu.Lock()
	c.sessions[child] = struct{}{}
	c.mu.Unlock()
	again := unix.Errno(0)
	store.hook = func() {
		store.hook = nil
		again = unix.Errno(c.fork(other, child.number))
	}
	if status := c.fork(first, child.number); status != 0 || again != unix.EINVAL {
		t.Errorf("the first fork: %v; another process's of the same child, meanwhile: %v", unix.Errno(status), again)
	}
	for _, s := range []*session{first, other, child} {
		c.end(s)
	}
}

// pair is two ends of a socket.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = conn.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// TestForkGoesOn: while the store copies for a child, its parent's threads write, and another process is served; the child sees what was there before.
func TestForkGoesOn(t *testing.T) {
	for name, mapped := range map[string]bool{"mapped": true, "fetched": false} {
		t.Run(name, func(t *testing.T) {
			store := &testStore{most: 10, mapped: mapped}
			begun, goOn := make(chan struct{}), make(chan struct{})
			store.clones = sync.OnceFunc(func() {
				close(begun)
				select {
				case <-goOn:
				case <-time.After(20 * time.Second):
				}
			})
			r := newRig(t, store, 2<<20)
			w := r.talk(t, "forks")
			w.hear("written")
			<-begun
			w.say()
			w.hear("went on")
			other := r.talk(t, "recall")
			other.hear("written")
			other.say()
			other.hear("ok")
			other.say()
			close(goOn)
			w.hear("ok")
		})
	}
}

// TestForkedChildEndsLate: a child that is killed while the store copies for it keeps its rooms until that has ended: they are nobody else's before.
func TestForkedChildEndsLate(t *testing.T) {
	store := &testStore{most: 10}
	c, parent := bare(t, store)
	if err := c.take(parent); err != nil {
		t.Fatal(err)
	}
	other := &session{window: -1, number: 2000, faults: gone(t)}
	child := &session{window: -1, number: 3000}
	c.mu.Lock()
	c.sessions[child] = struct{}{}
	for _, r := range parent.rooms {
		c.core.Put(uint32(r)*roomPages, 8)
	}
	c.mu.Unlock()
	ended := make(chan struct{})
	store.clones = sync.OnceFunc(func() {
		go func() {
			c.end(child)
			close(ended)
		}()
		for over := false; !over; time.Sleep(time.Millisecond) {
			c.mu.Lock()
			over = child.ended
			c.mu.Unlock()
		}
		time.Sleep(50 * time.Millisecond)
		for range 2 {
			if err := c.take(other); err != nil {
				t.Error(err)
			}
		}
	})
	for _, r := range parent.rooms {
		store.rooms[r][0] = 7
	}
	for what, status := range []uint64{c.fork(parent, child.number), c.parted(parent)} {
		if status != 0 {
			t.Errorf("answer %d of the fork of a child that is killed: %v", what, unix.Errno(status))
		}
	}
	<-ended
	for _, r := range other.rooms {
		if b := store.rooms[r][0]; b != 0xee {
			t.Errorf("room %d is another process's, and has %#x of the parent's", r, b)
		}
	}
}

// TestForkStuck: a fork that the system does not get done does not hold up the threads for ever.
func TestForkStuck(t *testing.T) {
	c, parent := bare(t, &testStore{most: 10})
	if err := c.take(parent); err != nil {
		t.Fatal(err)
	}
	child := &session{window: -1, number: 3000}
	c.mu.Lock()
	c.sessions[child] = struct{}{}
	c.mu.Unlock()
	if status := c.fork(parent, child.number); status != 0 {
		t.Fatal(unix.Errno(status))
	}
	page := uint32(parent.rooms[0]) * roomPages
	stalls := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		effects := c.core.Fault(page, true, false)
		return effects[len(effects)-1].kind == stall
	}
	if !stalls() {
		t.Error("a write does not wait for the fork")
	}
	end := parent.fork.timer
	end.mu.Lock()
	end.steps = 1 // silence is over
	end.timer.Reset(0)
	end.mu.Unlock()
	for until := time.Now().Add(time.Minute); stalls(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("a write waits still")
		}
	}
	if status := c.parted(parent); status != 0 {
		t.Error(unix.Errno(status))
	}
	c.end(child)
	c.end(parent)
}
