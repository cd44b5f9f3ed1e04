package excache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// bare makes a cache, and a session that has one room and no process.
func bare(t *testing.T, store *testStore) (*Cache, *session) {
	t.Helper()
	c, err := New(Config{LocalBytes: MinLocalBytes, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, bareSession(t, c, 1)
}

func bareSession(t *testing.T, c *Cache, number uint64) *session {
	t.Helper()
	s := &session{window: -1, number: number, faults: gone(t)}
	if err := c.take(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// under has a transfer of one page under way.
func under(c *Cache, s *session, kind transferKind, page uint32) uint8 {
	i, _ := c.core.begin(kind, page, 1)
	c.core.Put(page, 1)
	c.core.pages[page].transfer = i + 1
	c.core.transfers[i].wanted = kind == fetching
	c.core.transfers[i].page = page
	c.start(int(i), flight{s: s, put: kind == sending, off: uint64(page) * PageBytes, size: PageBytes})
	return i
}

// TestEndsDuringPut: a process ends while its page is on its way. That the room is gone then is no loss of the others' memory, and nothing is
// started again in a room that was given back.
func TestEndsDuringPut(t *testing.T) {
	for name, err := range map[string]error{"revoked": fmt.Errorf("%w: revoked", ErrLost), "busy": errBusy} {
		t.Run(name, func(t *testing.T) {
			store := &testStore{most: 2, held: func(*testOp) bool { return true }, fails: func(*testOp) error { return err }}
			c, s := bare(t, store)
			i := under(c, s, sending, 0)
			retried := errors.Is(err, errBusy)
			if retried { // it is to be started again when the process ends
				c.flying.Store(0)
				c.retries.Store(1 << i)
			}
			c.end(s)
			if !retried {
				store.release()
			}
			store.started = func(*testOp) { t.Error("it was started again") }
			c.mu.Lock()
			defer c.mu.Unlock()
			c.attempts = time.Time{}
			c.reap()
			if c.lost != nil || c.under() != 0 || c.core.transfers[i].kind != idle {
				t.Errorf("lost %v, under way %#x, transfer %d", c.lost, c.under(), c.core.transfers[i].kind)
			}
		})
	}
}

// TestArrivedWithoutRoom: what has arrived and finds no room is placed when a put has ended, though no other fault comes.
func TestArrivedWithoutRoom(t *testing.T) {
	store := &testStore{most: 2, held: func(o *testOp) bool { return o.put }}
	c, s := bare(t, store)
	defer c.end(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	for q := range uint32(c.core.limit) { // all that is local is full
		c.core.pages[q].state = dirty
		c.core.enter(q, false)
	}
	for q := range uint32(sendTransfers) {
		under(c, s, sending, 1000+q)
	}
	i := under(c, s, fetching, 2000)
	c.reap()
	if got := c.core.transfers[i].kind; got != arrived {
		t.Fatalf("transfer %d, want one that has arrived", got)
	}
	if c.wanted.Load() == 0 {
		t.Fatal("nobody waits for the puts")
	}
	store.release()
	c.reap()
	if got := c.core.transfers[i].kind; got != idle {
		t.Errorf("transfer %d after the puts, want it to be placed", got)
	}
}

// discarding frees so many of s's pages that the store is asked to forget them.
func discarding(c *Cache, s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.core.Put(uint32(s.rooms[0])*roomPages, discardPages)
	c.freed(s, 0, discardPages*PageBytes)
}

// TestDiscardOfAnother: what a process freed is not discarded in the room of the next one.
func TestDiscardOfAnother(t *testing.T) {
	asked, answer := make(chan int), make(chan error)
	store := &testStore{most: 3, forgets: func(r int) error {
		asked <- r
		return <-answer
	}}
	c, s := bare(t, store)
	discarding(c, s)
	r := <-asked
	c.end(s)
	next := bareSession(t, c, 2)
	if next.rooms[0] == r {
		t.Error("a room that is being discarded is another's")
	}
	answer <- fmt.Errorf("%w: no such region", ErrLost)
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		c.mu.Lock()
		over := !c.core.discards(r)
		c.mu.Unlock()
		if over {
			break
		}
	}
	last := bareSession(t, c, 3)
	if !slices.Equal(last.rooms, []int{r}) || c.lost != nil {
		t.Errorf("rooms %d, want the one that is free, %d; lost %v", last.rooms, r, c.lost)
	}
	c.end(next)
	c.end(last)
}

// TestDiscardOfLost: that the memory is gone is known by a discard too, and who waits for room hears of it.
func TestDiscardOfLost(t *testing.T) {
	store := &testStore{most: 2, forgets: func(int) error { return fmt.Errorf("%w: the connection has ended", ErrLost) }}
	c, s := bare(t, store)
	defer c.end(s)
	c.mu.Lock()
	c.core.Put(2000, 1)
	c.stalls = append(c.stalls, stalled{s: s, page: 2000})
	c.mu.Unlock()
	discarding(c, s)
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		told, waits := c.lost, len(c.stalls)
		c.mu.Unlock()
		if errors.Is(told, ErrLost) && waits == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("lost %v, %d faults wait", told, waits)
		}
	}
}

// TestDiscardAwaits: what begins when a discard has ended is waited for, though no other fault comes.
func TestDiscardAwaits(t *testing.T) {
	c, s := bare(t, &testStore{most: 2})
	defer c.end(s)
	c.mu.Lock()
	c.core.Put(2000, 1)
	c.stalls = append(c.stalls, stalled{s: s, page: 2000})
	c.mu.Unlock()
	discarding(c, s)
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		begun, under := c.core.Counts.Fetched, c.under()
		c.mu.Unlock()
		if begun > 0 && under == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d pages were fetched, %#x are under way", begun, under)
		}
	}
}

// TestStartsAnother: a process that starts another program closes its descriptors one after the other, and is not killed after the first.
func TestStartsAnother(t *testing.T) {
	r := newRig(t, &testStore{most: 10}, 2<<20)
	w, err := Join(r.socket)
	if err != nil {
		t.Fatal(err)
	}
	life := w.fds[2]
	w.conn.Close()
	end := []unix.PollFd{{Fd: int32(life)}}
	for until := time.Now().Add(10 * time.Second); r.live() != 0 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if n, err := unix.Poll(end, 100); n != 0 || err != nil {
		t.Errorf("its life ends: %d, %v, %#x", n, err, end[0].Revents)
	}
	w.Close()
}

// condStore hands the conditions that are waited for to a test.
type condStore struct {
	testStore
	conds chan func() bool
}

func (s *condStore) Wait(ctx context.Context, cond func() bool) error {
	s.conds <- cond
	return ctx.Err()
}

// TestDiscardsInARow: a fork that waits for a discard hears of its end, though another room's discard has begun before or begins at once.
func TestDiscardsInARow(t *testing.T) {
	asked, answer := make(chan int), make(chan error)
	store := &condStore{testStore: testStore{most: 2, forgets: func(r int) error {
		asked <- r
		return <-answer
	}}, conds: make(chan func() bool, 1)}
	c, err := New(Config{LocalBytes: MinLocalBytes, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for number := range uint64(2) {
		s := bareSession(t, c, number+1)
		defer c.end(s)
		discarding(c, s)
	}
	for range 2 {
		r := <-asked
		time.Sleep(20 * time.Millisecond) // what began it has ended
		var p patience
		c.mu.Lock()
		c.more(&p)
		c.mu.Unlock()
		p.end()
		cond := <-store.conds
		if cond() {
			t.Errorf("room %d is being discarded still", r)
		}
		answer <- nil
		for until := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("room %d is discarded, and nobody hears of it", r)
			}
		}
	}
}
