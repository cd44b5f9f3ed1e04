package fabric

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// maxOps bounds the one-sided operations of one endpoint that are under way.
const maxOps = 1 << 14

// opChunk is how many operation records are made at a time.
const opChunk = 64

type opState uint32

const (
	opFree opState = iota
	opPending
	opBusy      // the leader is writing its buffer, inside one callback
	opPlacing   // the link may write its buffer (Endpoint.Place), and is not at it
	opWriting   // the link is writing its buffer
	opAbandoned // its waiter has gone; the buffer must not be touched
	opDone
)

// opRecord is one operation under way. Its index and generation travel as the
// operation's id, so that a late answer cannot meet another operation's buffer.
type opRecord struct {
	ep    *Endpoint
	index uint16
	gen   uint16 // of the record, raised at each reuse; under opTable.mu
	state atomic.Uint32

	verb   string
	dst    []byte // Get's buffer, from start to end
	got    int
	value  uint64 // an atomic's old value
	blob   []byte // an answer kept whole (import, narrow)
	err    error
	bulk   *bulkSend // a Put's data under way; under ep.mu
	isDone func() bool
	waiter Waiter
	use    atomic.Uint32 // of the record by an Op; raised by the one caller that ends that Op

	closeMu sync.Mutex
	done    chan struct{} // made by Done
}

// opTable holds an endpoint's operations.
type opTable struct {
	ep    *Endpoint
	limit int

	mu       sync.Mutex
	records  []*opRecord
	free     []*opRecord
	pending  int
	roomy    Waiter // of those that wait for a record
	firstGen uint16 // of new records: no earlier one with their index had it for long
}

func (t *opTable) init(ep *Endpoint, limit int) {
	t.ep, t.limit, t.roomy.l = ep, max(1, min(limit, maxOps)), &ep.el.leader
}

// start takes a record; nil if all are in use.
func (t *opTable) start(verb string, dst []byte) *opRecord {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 && !t.grow() {
		return nil
	}
	r := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.pending++
	r.verb, r.dst, r.got, r.value, r.blob, r.err = verb, dst, 0, 0, nil, nil
	r.state.Store(uint32(opPending))
	return r
}

func (t *opTable) grow() bool {
	n := min(opChunk, t.limit-len(t.records))
	if n <= 0 {
		return false
	}
	chunk := make([]opRecord, n)
	for i := range chunk {
		r := &chunk[i]
		r.ep, r.index, r.gen = t.ep, uint16(len(t.records)), t.firstGen
		r.waiter.l = &t.ep.el.leader
		r.isDone = func() bool { return opState(r.state.Load()) == opDone }
		t.records = append(t.records, r)
		t.free = append(t.free, r)
	}
	return true
}

// trim lets the records go if none is in use. Generations go on from theirs.
func (t *opTable) trim() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending > 0 {
		return
	}
	for _, r := range t.records {
		if int16(r.gen-t.firstGen) > 0 { // they wrap
			t.firstGen = r.gen
		}
	}
	t.firstGen++ // also where one has gone round since
	t.records, t.free = nil, nil
}

// id is what travels.
func (r *opRecord) id() uint32 { return uint32(r.gen)<<16 | uint32(r.index) }

// find is the record an answer is for; nil if it is over.
func (t *opTable) find(id uint32) *opRecord {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.findLocked(id)
}

func (t *opTable) findLocked(id uint32) *opRecord {
	if i := int(id & 0xffff); i < len(t.records) {
		if r := t.records[i]; r.gen == uint16(id>>16) && opState(r.state.Load()) != opFree {
			return r
		}
	}
	return nil
}

// claim finds the record an answer is for and lets the leader write its
// buffer; claimed is false if the operation was given up. Under one lock: the record cannot
// become another operation's in between.
func (t *opTable) claim(id uint32) (r *opRecord, claimed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r = t.findLocked(id); r == nil {
		return nil, false
	}
	return r, r.state.CompareAndSwap(uint32(opPending), uint32(opBusy))
}

func (t *opTable) release(r *opRecord) {
	t.mu.Lock()
	if t.pending >= t.limit {
		defer t.roomy.Wake() // the waiter that gets the record wakes the next: there may be more by then
	}
	defer t.mu.Unlock()
	r.gen++
	r.dst, r.blob = nil, nil
	r.closeMu.Lock()
	if r.done != nil { // it was forgotten
		close(r.done)
		r.done = nil
	}
	r.closeMu.Unlock()
	r.state.Store(uint32(opFree))
	t.free = append(t.free, r)
	t.pending--
}

// finish ends an operation that is not claimed, from the leader or at the
// endpoint's end (after Link.Close, when nothing is placed any more).
func (r *opRecord) finish(err error) {
	for {
		s := opState(r.state.Load())
		switch s {
		case opBusy, opWriting: // another goroutine is inside a callback, or copies; that is short
			runtime.Gosched()
			continue
		case opFree, opDone:
			return
		}
		if !r.state.CompareAndSwap(uint32(s), uint32(opBusy)) {
			continue
		}
		if s == opAbandoned {
			r.ep.ops.release(r)
		} else {
			r.finishClaimed(err)
		}
		return
	}
}

// finishClaimed ends an operation that claim gave to the caller. The waiter
// cannot release the record, and start something else with it, before it was told.
func (r *opRecord) finishClaimed(err error) {
	r.closeMu.Lock()
	defer r.closeMu.Unlock()
	r.err = err
	r.state.Store(uint32(opDone)) // publishes err, got, value, blob
	r.waiter.Wake()
	if r.done != nil {
		close(r.done)
		r.done = nil
	}
}

// beginWrite has the link write a buffer that it was given; false if it was given up.
func (r *opRecord) beginWrite() bool {
	return r.state.CompareAndSwap(uint32(opPlacing), uint32(opWriting))
}

func (r *opRecord) endWrite() { r.state.Store(uint32(opPlacing)) }

func (r *opRecord) unclaim() { r.state.Store(uint32(opPending)) }

func (t *opTable) failAll(err error) {
	t.mu.Lock()
	list := append([]*opRecord(nil), t.records...)
	t.mu.Unlock()
	for _, r := range list {
		if s := opState(r.state.Load()); s != opFree && s != opDone {
			r.finish(&PeerError{Peer: t.ep.String(), Op: r.verb, Err: err})
		}
	}
}

// Op is an operation that was started. Whichever of Wait, Value and Forget is called first ends it;
// until then it owns its buffer. To end it again does no harm: Wait and Value fail with ErrEnded, and
// Forget does nothing. The zero Op is one that succeeded.
type Op struct {
	rec   *opRecord
	use   uint32 // which of the record's operations it is
	value uint64
	err   error
}

// op is the Op of a record that was just started.
func (r *opRecord) op() Op { return Op{rec: r, use: r.use.Load()} }

// end claims the Op's end: false if it has ended, and the record may be another operation's.
func (o Op) end() bool { return o.rec.use.CompareAndSwap(o.use, o.use+1) }

func (o Op) ended() bool { return o.rec.use.Load() != o.use }

// Poll reports whether Wait would return at once.
func (o Op) Poll() bool { return o.rec == nil || o.ended() || o.rec.isDone() }

// Done is closed when the operation has ended and Wait returns at once. It is for
// select; the background goroutine then drives progress.
func (o Op) Done() <-chan struct{} {
	if o.rec != nil {
		o.rec.closeMu.Lock()
		defer o.rec.closeMu.Unlock()
		if !o.ended() && !o.rec.isDone() {
			if o.rec.done == nil {
				o.rec.done = make(chan struct{})
			}
			return o.rec.done
		}
	}
	done := make(chan struct{})
	close(done)
	return done
}

// Wait drives progress until the operation has ended, and returns its error.
// When the context ends first, the operation is given up: Wait returns once its
// buffer will not be touched any more; whether it happened at the peer is then unknown.
func (o Op) Wait(ctx context.Context) error {
	_, err := o.Value(ctx)
	return err
}

// Value is Wait for atomics: it returns the old value too.
func (o Op) Value(ctx context.Context) (uint64, error) {
	if o.rec == nil {
		return o.value, o.err
	}
	r := o.rec
	if !o.end() {
		return 0, ErrEnded
	}
	if !r.isDone() {
		if err := r.ep.el.leader.wait(ctx, r.isDone, &r.waiter); err != nil && !r.isDone() {
			err = &PeerError{Peer: r.ep.String(), Op: r.verb, Err: err}
			if r.abandon() {
				return 0, err
			}
		}
	}
	value, err := r.value, r.err
	r.ep.ops.release(r)
	return value, err
}

// Forget gives the operation up without waiting for its end. Its buffer is not
// touched any more when Forget returns. After Wait it does nothing, so it can be deferred.
func (o Op) Forget() {
	if o.rec == nil || !o.end() {
		return
	}
	if o.rec.isDone() || !o.rec.abandon() {
		o.rec.ep.ops.release(o.rec)
	}
}

// abandon makes the buffer the caller's again; false if the operation has ended
// after all.
func (r *opRecord) abandon() bool {
	r.ep.mu.Lock()
	if r.bulk != nil && r.bulk.rec == r {
		r.bulk.gone, r.bulk.data, r.bulk.at = true, span{}, 0
	}
	r.ep.mu.Unlock()
	for {
		switch s := opState(r.state.Load()); s {
		case opPending, opPlacing: // what is still to come of a fragment is discarded
			if r.state.CompareAndSwap(uint32(s), uint32(opAbandoned)) {
				return true
			}
		case opBusy, opWriting:
			runtime.Gosched()
		default:
			return false
		}
	}
}
