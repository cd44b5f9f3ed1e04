package inject

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/travel"
)

const (
	// maxReplyBytes is the longest reply that goes with the report of a
	// branch's end; what is longer is sent in parts.
	maxReplyBytes = 48 << 10
	// keptDataBytes is the result buffer that an idle future keeps.
	keptDataBytes = 64 << 10
)

// Future is an invocation under way: Function.Start makes one. It ends exactly once. The zero value, and nil, is no
// invocation's: it counts as ended, and Wait fails.
type Future struct {
	rt     *Runtime
	id     travel.FutureID
	cond   func() bool
	waiter fabric.Waiter
	done   atomic.Uint64 // the id, once it has ended

	sent     int    // roots, so far; Start's
	function string // its name, for errors
	deadline travel.Instant

	// Under Runtime.mu until done.
	pieces   []Piece
	data     []byte
	err      error
	branches uint32
	bounds   [][2]int
	plain    bool // Do's: only the bytes matter

	freed   atomic.Uint64 // the id, once Do is done with it
	watched atomic.Bool
	mu      sync.Mutex
	notify  chan struct{}
	closed  bool
	result  *Result // once a caller has waited
}

// errNoInvocation: a Future that Start did not return.
var errNoInvocation = errors.New("inject: this Future is of no invocation, because Start did not make it: use what Function.Start returns")

// started reports whether f is an invocation's.
func (f *Future) started() bool { return f != nil && f.rt != nil }

// Piece is a part of a branch's result.
type Piece struct {
	Branch uint64
	Index  uint32 // parts of one branch count from 0; its reply is the last
	Last   bool
	Data   []byte
}

// Result is what an invocation returned: the pieces of all its branches, in
// the order of branches (roots first, by their position) and then of parts.
type Result struct {
	Pieces   []Piece
	Branches uint32 // that took part
}

func newFuture(rt *Runtime) *Future {
	f := &Future{rt: rt}
	f.cond = f.ended
	f.waiter.Init(rt.el)
	return f
}

// ended reports whether the invocation has ended. It has an id by now: what is asked before the start is none's.
func (f *Future) ended() bool { return f.done.Load() == uint64(f.id) && f.id != 0 }

// part keeps a piece of a result; called under Runtime.mu.
func (f *Future) part(branch uint64, index uint32, last bool, data []byte) {
	at := len(f.data)
	f.data = append(f.data, data...)
	if f.plain {
		return
	}
	f.pieces = append(f.pieces, Piece{Branch: branch, Index: index, Last: last})
	f.bounds = append(f.bounds, [2]int{at, len(f.data)})
}

// complete ends the future; called under Runtime.mu.
func (f *Future) complete(o *travel.Outcome) {
	if f.branches = o.Branches; o.Err != nil {
		f.err = fmt.Errorf("inject: %s: %w", f.function, o.Err)
	}
	f.done.Store(uint64(f.id)) // before watched is looked at; Done does it the other way round
	if f.watched.Load() {
		f.mu.Lock()
		f.close()
		f.mu.Unlock()
	}
	f.waiter.Wake()
}

// Done is closed when the future has ended.
func (f *Future) Done() <-chan struct{} {
	if !f.started() {
		ch := make(chan struct{})
		close(ch)
		return ch
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.notify == nil {
		f.notify = make(chan struct{})
		f.watched.Store(true)
		if f.ended() {
			f.close()
		}
	}
	return f.notify
}

// close closes notify, once; f.mu is held.
func (f *Future) close() {
	if f.notify != nil && !f.closed {
		f.closed = true
		close(f.notify)
	}
}

// Wait drives progress until the invocation has ended, and returns its result
// or its error, which names the function and wraps a *travel.RemoteError with what the element that failed had to
// say, a *travel.PeerLostError that names the branch, …; never a part of a result.
// If the context ends first, Wait returns its error and the invocation goes on. All waiters get the same.
func (f *Future) Wait(ctx context.Context) (*Result, error) {
	if !f.started() {
		return nil, errNoInvocation
	}
	if err := f.wait(ctx); err != nil {
		return nil, fmt.Errorf("inject: wait for %s: %w", f.function, err)
	}
	if f.err != nil {
		return nil, f.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.result != nil {
		return f.result, nil
	}
	r := &Result{Branches: f.branches, Pieces: f.pieces}
	for i := range r.Pieces {
		r.Pieces[i].Data = f.data[f.bounds[i][0]:f.bounds[i][1]:f.bounds[i][1]]
	}
	slices.SortStableFunc(r.Pieces, func(a, b Piece) int {
		if a.Branch != b.Branch {
			if a.Branch < b.Branch {
				return -1
			}
			return 1
		}
		return int(a.Index) - int(b.Index)
	})
	f.pieces, f.bounds, f.result = nil, nil, r
	return r, nil
}

// deadlineGrace is how much longer than its context a wait lasts whose invocation
// ends at the same time: that error says more.
const deadlineGrace = 10 * time.Millisecond

// wait drives progress until the future has ended or the context has.
func (f *Future) wait(ctx context.Context) error {
	err := f.waiter.Wait(ctx, f.cond)
	if err == nil || !errors.Is(err, context.DeadlineExceeded) || f.rt.now()+travel.Instant(deadlineGrace) < f.deadline {
		return err
	}
	grace, cancel := context.WithTimeout(context.Background(), deadlineGrace)
	defer cancel()
	if f.waiter.Wait(grace, f.cond) == nil {
		return nil
	}
	f.rt.tick(int64(f.rt.now())) // the leader is late
	if f.cond() {
		return nil
	}
	return err
}

// Progress is what has arrived of an invocation that is under way: parts of
// results, and their bytes. It is nothing any more once the invocation has ended.
func (f *Future) Progress() (parts, bytes int) {
	if !f.started() {
		return 0, 0
	}
	f.rt.mu.Lock()
	defer f.rt.mu.Unlock()
	if f.ended() { // what has come is Wait's now
		return 0, 0
	}
	return len(f.pieces), len(f.data)
}

// Cancel ends the invocation with travel.ErrCanceled, unless it has ended.
// Elements are told; branches stop there, or as they arrive.
func (f *Future) Cancel() {
	if !f.started() {
		return
	}
	f.rt.mu.Lock()
	defer f.rt.mu.Unlock()
	if !f.ended() {
		f.rt.core.Cancel(f.rt.now(), f.id) // an error says that it has ended
		f.rt.soon(f.rt.now())
	}
}

// futures are those under way. Ids are consecutive, so most are found by
// their low bits; those in the way of a newer one are in a map.
type futures struct {
	recent [1024]*Future
	others map[travel.FutureID]*Future
}

func (fs *futures) init() { fs.others = map[travel.FutureID]*Future{} }

func (fs *futures) add(f *Future) {
	at := &fs.recent[uint64(f.id)%uint64(len(fs.recent))]
	if *at != nil {
		fs.others[(*at).id] = *at
	}
	*at = f
}

func (fs *futures) find(id travel.FutureID) *Future {
	if f := fs.recent[uint64(id)%uint64(len(fs.recent))]; f != nil && f.id == id {
		return f
	}
	return fs.others[id]
}

func (fs *futures) remove(id travel.FutureID) *Future {
	at := &fs.recent[uint64(id)%uint64(len(fs.recent))]
	if f := *at; f != nil && f.id == id {
		*at = nil
		return f
	}
	f := fs.others[id]
	delete(fs.others, id)
	return f
}

func (fs *futures) cancelAll(rt *Runtime) {
	var all []*Future
	for _, f := range fs.recent {
		if f != nil {
			all = append(all, f)
		}
	}
	for _, f := range fs.others {
		all = append(all, f)
	}
	for _, f := range all {
		rt.core.Cancel(rt.now(), f.id) // an error says that it has ended
	}
}
