package shm

import (
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/memfd"
)

// one is what a doorbell is written.
var one = [8]byte{1}

// bell is a board as seen by the side that rings it.
type bell struct {
	page *boardPage
	fd   int // eventfd
}

// set marks link idx. Loads before the read-modify-writes keep the line shared
// while a burst finds its bit set already. That is safe: the reader clears a bit
// before it looks at the ring, so a bit still seen set is cleared after our frame
// was published.
func (b bell) set(idx int) {
	w, bit := &b.page.words[idx>>6], uint64(1)<<(idx&63)
	if w.Load()&bit == 0 {
		w.Or(bit)
	}
	if bit = 1 << (idx >> 6); b.page.summary.Load()&bit == 0 {
		b.page.summary.Or(bit)
	}
}

// ring marks link idx and wakes the element if it sleeps.
func (b bell) ring(idx int) {
	b.set(idx)
	b.wake()
}

// wake wakes the element if it sleeps.
func (b bell) wake() {
	if b.page.armed.Load() == 1 && b.page.armed.CompareAndSwap(1, 0) {
		// EAGAIN means that the counter is full: then it is readable, which is all we want.
		_, _ = unix.Write(b.fd, one[:])
	}
}

// board is an element's own board for the peers of one user.
type board struct {
	sink [][]byte // what is read off the doorbell; the leader's
	bell
	uid    int
	mem    *memfd.File
	cursor int // next link to look at
}

func newBoard(uid int) (*board, error) {
	mem, err := memfd.Create("wherry-board", boardBytes, false)
	if err != nil {
		return nil, fmt.Errorf("shm: board: %w", err)
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		mem.Close()
		return nil, fmt.Errorf("shm: eventfd: %w", err)
	}
	return &board{bell: bell{boardAt(mem.Bytes()), fd}, uid: uid, mem: mem}, nil
}

// pop finds the next marked link and clears its mark; -1 if there is none. It
// goes round, so that a link which is marked again and again hides no other.
func (b *board) pop() int {
	for range boardWords + 1 {
		sum := b.page.summary.Load()
		if sum == 0 {
			return -1
		}
		at := b.cursor >> 6
		if skip := bits.TrailingZeros64(bits.RotateLeft64(sum, -at)); skip > 0 {
			b.cursor = (at + skip) % boardWords << 6
			at = b.cursor >> 6
		}
		w := &b.page.words[at]
		if v := w.Load() &^ (1<<(b.cursor&63) - 1); v != 0 {
			bit := bits.TrailingZeros64(v)
			w.And(^(uint64(1) << bit))
			idx := at<<6 + bit
			b.cursor = (idx + 1) % (boardWords * 64)
			return idx
		}
		// Nothing at or after the cursor in this word. If there is nothing before
		// it either, clear its summary, then look again: a bit set meanwhile puts it back.
		if w.Load() == 0 {
			b.page.summary.And(^(uint64(1) << at))
			if w.Load() != 0 {
				b.page.summary.Or(1 << at)
			}
		}
		b.cursor = (at + 1) % boardWords << 6
	}
	return -1
}

// hush empties the eventfd. A peer may have cleared the descriptor's
// O_NONBLOCK, which all holders share: RWF_NOWAIT does not depend on it.
func (b *board) hush() {
	if b.sink == nil { // made once: a sleep must not allocate
		b.sink = [][]byte{make([]byte, 8)}
	}
	_, err := unix.Preadv2(b.fd, b.sink, -1, unix.RWF_NOWAIT)
	if err == unix.EOPNOTSUPP {
		_, _ = unix.Read(b.fd, b.sink[0])
	}
}

func (b *board) close() {
	unix.Close(b.fd)
	b.mem.Close()
}
