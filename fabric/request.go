package fabric

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
)

// The requesting side of operations that the owner serves. Layouts are in
// docs/wire.md; every request starts with the operation's id, every answer too.

// accessBytes is what Get, Put and Atomic requests start with: id, key, offset, size.
const accessBytes = 4 + keyRefBytes + 8 + 8

func appendAccess(b []byte, id uint32, k keyRef, offset, size uint64) []byte {
	b = binary.LittleEndian.AppendUint32(b, id)
	b = k.append(b)
	b = binary.LittleEndian.AppendUint64(b, offset)
	return binary.LittleEndian.AppendUint64(b, size)
}

// startOp takes an operation record, waiting for one if ctx is given.
func (ep *Endpoint) startOp(ctx context.Context, verb string, dst []byte) (*opRecord, error) {
	if ep.dead.Load() != nil {
		return nil, ep.lost(verb)
	}
	if rec := ep.ops.start(verb, dst); rec != nil {
		return rec, nil
	}
	if ctx == nil {
		return nil, &PeerError{Peer: ep.String(), Op: verb, Err: fmt.Errorf("%w (%d operations are under way)", ErrBackpressure, ep.ops.limit)}
	}
	return ep.startOpSlow(ctx, verb, dst)
}

func (ep *Endpoint) startOpSlow(ctx context.Context, verb string, dst []byte) (rec *opRecord, err error) {
	werr := ep.ops.roomy.Wait(ctx, func() bool {
		rec = ep.ops.start(verb, dst)
		return rec != nil || ep.dead.Load() != nil
	})
	switch {
	case rec != nil:
		return rec, nil
	case werr != nil:
		return nil, &PeerError{Peer: ep.String(), Op: verb, Err: werr}
	}
	return nil, ep.lost(verb)
}

// request sends a blocking call's request; its failure is the operation's.
func (ep *Endpoint) request(ctx context.Context, id FrameID, rec *opRecord, head []byte) {
	ep.mu.Lock()
	err := ep.requestLocked(id, head)
	ep.mu.Unlock()
	if err != nil {
		ep.requestSlow(ctx, id, rec, head, nil, err)
	}
}

// requestSlow waits, if ctx is given, until the outbox has room for a request
// that a Fence holds back. Any other failure is the operation's.
func (ep *Endpoint) requestSlow(ctx context.Context, id FrameID, rec *opRecord, head, src []byte, err error) {
	if ctx != nil && err == ErrBackpressure {
		werr := ep.el.leader.waitRoom(ctx, func() bool {
			ep.mu.Lock()
			defer ep.mu.Unlock()
			if id == framePut {
				err = ep.putLocked(rec, head, src)
			} else {
				err = ep.requestLocked(id, head)
			}
			return err != ErrBackpressure
		})
		if werr != nil {
			err = fmt.Errorf("%w: %w", ErrBackpressure, werr)
		}
	}
	if err != nil {
		if _, said := err.(*PeerError); !said {
			err = &PeerError{Peer: ep.String(), Op: rec.verb, Err: err}
		}
		rec.finish(err)
	}
}

// requestLocked sends or queues a request; ep.mu is held. The number of
// requests is bounded by the operations that may be under way, so the reserved
// queue takes what finds no room.
func (ep *Endpoint) requestLocked(id FrameID, head []byte) error {
	if e := ep.dead.Load(); e != nil {
		return e.Err
	}
	if ep.epoch != ep.pumpEpoch {
		if !ep.outbox.push(id, head, nil) {
			return ErrBackpressure
		}
		return nil
	}
	return ep.sayLocked(id, head, nil)
}

// smallPutBytes is the largest Put whose data may wait in a queue.
const smallPutBytes = 256

// putLocked sends a Put's data along with the request if the link takes it at
// once, or if it is small. Other data waits where the caller keeps it, and
// goes out in fragments; ep.mu is held.
func (ep *Endpoint) putLocked(rec *opRecord, head, src []byte) error {
	if e := ep.dead.Load(); e != nil {
		return e.Err
	}
	behindFence := ep.epoch != ep.pumpEpoch
	if len(src) <= fragmentBytes && !behindFence && ep.reserved.n == 0 {
		switch err := ep.transmit(framePut, Normal, head, src); err {
		case nil:
			return nil
		case ErrLinkFull:
		default:
			return ep.linkBroke(err, "put")
		}
	}
	switch {
	case len(src) > smallPutBytes:
	case !behindFence:
		return ep.sayLocked(framePut, head, src)
	case ep.outbox.push(framePut, head, src):
		return nil
	default:
		return ErrBackpressure
	}
	if err := ep.requestLocked(framePut, head); err != nil {
		return err
	}
	b := ep.startBulk(framePutData, rec.id(), span{mem: src, size: len(src)}, keyRef{})
	b.rec, b.unannounced = rec, behindFence
	rec.bulk = b
	return nil
}

// served is the route by messages: the owner does what is asked of it.
type served struct{ r *Remote }

func (s served) get(ctx context.Context, dst []byte, offset uint64) error {
	return s.beginGet(ctx, dst, offset).Wait(ctx)
}

func (s served) startGet(dst []byte, offset uint64) Op { return s.beginGet(nil, dst, offset) }

func (s served) put(ctx context.Context, src []byte, offset uint64) error {
	return s.beginPut(ctx, src, offset).Wait(ctx)
}

func (s served) startPut(src []byte, offset uint64) Op { return s.beginPut(nil, src, offset) }

func (s served) atomic(ctx context.Context, op AtomicOp, width int, offset uint64) (uint64, error) {
	return s.beginAtomic(ctx, op, width, offset).Value(ctx)
}

func (s served) startAtomic(op AtomicOp, width int, offset uint64) Op {
	return s.beginAtomic(nil, op, width, offset)
}

// beginGet starts a Get, waiting for room to do so if ctx is given; beginPut and beginAtomic likewise.
func (s served) beginGet(ctx context.Context, dst []byte, offset uint64) Op {
	if len(dst) == 0 {
		return Op{}
	}
	rec, err := s.r.ep.startOp(ctx, "get", dst)
	if err != nil {
		return Op{err: err}
	}
	ep := s.r.ep
	ep.mu.Lock()
	head := appendAccess(ep.scratch[:0], rec.id(), s.r.key.ref(), offset, uint64(len(dst)))
	if err = ep.requestLocked(frameGet, head); err != nil {
		head = bytes.Clone(head)
	}
	ep.mu.Unlock()
	if err != nil {
		ep.requestSlow(ctx, frameGet, rec, head, nil, err)
	}
	return rec.op()
}

func (s served) beginPut(ctx context.Context, src []byte, offset uint64) Op {
	if len(src) == 0 {
		return Op{}
	}
	rec, err := s.r.ep.startOp(ctx, "put", nil)
	if err != nil {
		return Op{err: err}
	}
	ep := s.r.ep
	ep.mu.Lock()
	head := appendAccess(ep.scratch[:0], rec.id(), s.r.key.ref(), offset, uint64(len(src)))
	if err = ep.putLocked(rec, head, src); err != nil {
		head = bytes.Clone(head)
	}
	ep.mu.Unlock()
	if err != nil {
		ep.requestSlow(ctx, framePut, rec, head, src, err)
	}
	return rec.op()
}

func (s served) beginAtomic(ctx context.Context, op AtomicOp, width int, offset uint64) Op {
	rec, err := s.r.ep.startOp(ctx, "atomic", nil)
	if err != nil {
		return Op{err: err}
	}
	ep := s.r.ep
	ep.mu.Lock()
	b := appendAccess(ep.scratch[:0], rec.id(), s.r.key.ref(), offset, uint64(width))
	b = binary.LittleEndian.AppendUint64(b, op.Operand)
	b = binary.LittleEndian.AppendUint64(b, op.Compare)
	b = append(b, byte(op.Kind))
	if err = ep.requestLocked(frameAtomic, b); err != nil {
		b = bytes.Clone(b)
	}
	ep.mu.Unlock()
	if err != nil {
		ep.requestSlow(ctx, frameAtomic, rec, b, nil, err)
	}
	return rec.op()
}

func (s served) access(need Rights, _, _ uint64, _ func(mem []byte)) error {
	return s.r.errAt("access", fmt.Errorf("%w: it is not mapped here for %v", ErrRights, need))
}

func (s served) pin(need Rights) ([]byte, error) {
	return nil, s.r.errAt("pin", fmt.Errorf("%w: it is not mapped here for %v", ErrRights, need))
}

func (s served) unpin() {}

func (s served) ring(offset uint64, width int, v uint64) error {
	if !isWord(width, offset) {
		return s.r.errAt("ring", ErrAlign)
	}
	ep := s.r.ep
	ep.mu.Lock()
	head := appendAccess(ep.scratch[:0], noOp, s.r.key.ref(), offset, uint64(width))
	word := binary.LittleEndian.AppendUint64(head, v)[len(head):] // in scratch too: a variable here would be allocated
	err := ep.postLocked(head, word[:width])
	ep.mu.Unlock()
	return s.posted("ring", err)
}

// noOp is the operation of a Post, which is nobody's: its index is beyond maxOps.
const noOp = ^uint32(0)

func (s served) post(src []byte, offset uint64) error {
	if len(src) == 0 {
		return nil
	}
	ep := s.r.ep
	ep.mu.Lock()
	err := ep.postLocked(appendAccess(ep.scratch[:0], noOp, s.r.key.ref(), offset, uint64(len(src))), src)
	ep.mu.Unlock()
	return s.posted("post", err)
}

func (s served) posted(verb string, err error) error {
	if _, said := err.(*PeerError); err != nil && !said {
		return s.r.errAt(verb, err)
	}
	return err
}

// postLocked sends a Put that has no operation. Nothing else bounds how many there are, so what the link has no room for goes to the outbox, or is refused; ep.mu is held.
func (ep *Endpoint) postLocked(head, src []byte) error {
	if e := ep.dead.Load(); e != nil {
		return e.Err
	}
	if ep.epoch == ep.pumpEpoch && ep.reserved.n == 0 {
		switch err := ep.transmit(framePut, Normal, head, src); err {
		case nil:
			return nil
		case ErrLinkFull:
		default:
			return ep.linkBroke(err, "post")
		}
	}
	if len(src) > smallPutBytes || !ep.outbox.push(framePut, head, src) {
		return ErrBackpressure
	}
	ep.markBusy()
	return nil
}

// Narrow asks the owner of k for a key to part of it. The key ends with this
// endpoint, even if it was handed on; the owner bounds how many a peer can have
// (Limits.KeysPerPeer).
func (ep *Endpoint) Narrow(ctx context.Context, k Key, offset, size uint64, rights Rights) (Key, error) {
	if k.Owner != ep.Incarnation() {
		return Key{}, &PeerError{Peer: ep.String(), Op: "narrow", Err: ErrIncarnation}
	}
	rec, err := ep.startOp(ctx, "narrow", nil)
	if err != nil {
		return Key{}, err
	}
	b := appendAccess(nil, rec.id(), k.ref(), offset, size)
	ep.request(ctx, frameNarrow, rec, append(b, byte(rights)))
	if err := rec.op().waitKeep(ctx); err != nil {
		return Key{}, err
	}
	defer ep.ops.release(rec)
	return DecodeKey(rec.blob)
}

// Flush returns when everything sent on this endpoint before it has taken
// effect at the peer: Puts and Atomics are in memory, messages were handed to
// their handlers.
func (ep *Endpoint) Flush(ctx context.Context) error {
	rec, err := ep.startOp(ctx, "flush", nil)
	if err != nil {
		return err
	}
	ep.Fence()
	b := binary.LittleEndian.AppendUint32(nil, rec.id())
	ep.request(ctx, frameFlush, rec, b)
	return rec.op().Wait(ctx)
}

// Fence orders: what is sent after it on this endpoint takes effect after what
// was sent before. It does not wait. It orders operations served by the owner and
// messages with each other, and mapped operations before later messages; a mapped operation
// after one that the owner serves needs Flush between them.
func (ep *Endpoint) Fence() {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.dead.Load() != nil || ep.outbox.n == 0 && ep.reserved.n == 0 && !ep.hasPuts(ep.epoch) {
		return // the link keeps the order
	}
	if ep.outbox.mark() { // else nothing has been sent since the newest mark: behind one, all goes by the outbox
		ep.epoch++
		ep.markBusy()
	}
}

// hasPuts reports whether Puts of an epoch or older ones are still going out; ep.mu is held.
func (ep *Endpoint) hasPuts(epoch uint64) bool {
	for _, b := range ep.bulk {
		if b.id == framePutData && b.epoch <= epoch {
			return true
		}
	}
	return false
}

// waitKeep is Wait that leaves a successful operation's record to the caller.
func (o Op) waitKeep(ctx context.Context) error {
	r := o.rec
	if !o.end() {
		return ErrEnded
	}
	if !r.isDone() {
		if err := r.ep.el.leader.wait(ctx, r.isDone, &r.waiter); err != nil && !r.isDone() {
			lost := &PeerError{Peer: r.ep.String(), Op: r.verb, Err: err} // an abandoned record may be another operation's at once
			if r.abandon() {
				return lost
			}
		}
	}
	if err := r.err; err != nil {
		r.ep.ops.release(r)
		return err
	}
	return nil
}
