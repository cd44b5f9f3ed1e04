package fabric

import (
	"encoding/binary"
	"fmt"
)

// The owner's side of one-sided operations. All of it
// runs on the leader, inside Frame, Place and Placed.

// inlineGetBytes is the largest Get answered in one frame at once; a larger one
// goes out in fragments, in turn with everything else.
const inlineGetBytes = 4 << 10

// shortWriteBytes is the largest Put that is written with the key table held.
const shortWriteBytes = 4 << 10

// incoming holds the Puts that a peer sends in fragments.
type incoming struct {
	ep    *Endpoint
	puts  map[uint32]*incomingPut
	free  []*incomingPut // records of ended ones
	gets  int            // answers to Gets under way; the leader's and the pump's, under ep.mu
	limit int

	// The leader's, of the fragment that is arriving.
	get  *opRecord // whose buffer it is for; of a Get
	key  keyRef    // of a Put
	fail status    // why not all of it was written
	// What a link puts down for memory that has no bytes to name: where it shall go then, pinned.
	to      span
	landing []byte
}

type incomingPut struct {
	to   span // pinned, unless it failed
	key  keyRef
	got  int
	fail status
}

func (in *incoming) init(ep *Endpoint) {
	in.ep, in.limit = ep, ep.el.cfg.Limits.OpsPerEndpoint
}

// close lets go of what unfinished Puts held; the link is closed already.
func (in *incoming) close() {
	in.ep.mu.Lock()
	defer in.ep.mu.Unlock()
	for id, p := range in.puts {
		p.drop()
		delete(in.puts, id)
	}
	if in.to.seg != nil {
		in.to.seg.unpin()
		in.to = span{}
	}
}

// record is an empty record; ep.mu is held. There are at most limit of them.
func (in *incoming) record() *incomingPut {
	n := len(in.free)
	if n == 0 {
		return new(incomingPut)
	}
	p := in.free[n-1]
	in.free = in.free[:n-1]
	return p
}

// trim lets go of what is there for the next Puts; ep.mu is held.
func (in *incoming) trim() {
	in.free = nil
	in.ep.bounced = nil
	if in.to.seg == nil {
		in.landing = nil
	}
	if len(in.puts) == 0 {
		in.puts = nil
	}
}

func (p *incomingPut) drop() {
	if p.to.seg != nil {
		p.to.seg.unpin()
		p.to = span{}
	}
}

// control handles the fabric's own frames.
func (ep *Endpoint) control(id FrameID, b []byte) error {
	switch id {
	case framePing:
		return ep.sayShort(framePong, nil)
	case framePong:
		return nil
	case frameCredit:
		return ep.credit(b)
	case framePause:
		return ep.pauses(b)
	case frameGoodbye:
		return fmt.Errorf("the peer closed the connection")
	case frameGet, framePut, frameAtomic, frameNarrow, frameWide:
		if len(b) < accessBytes {
			return short(id, len(b))
		}
		return ep.serve(id, b)
	case frameImport:
		return ep.serveImport(b)
	case frameFlush:
		if len(b) != 4 {
			return short(id, len(b))
		}
		return ep.sayShort(frameFlushed, b)
	case framePutData:
		return ep.putData(b)
	case frameGetData:
		return ep.getData(b)
	case framePutDone, frameAtomicDone, frameGetDone, frameFlushed, frameImported, frameNarrowed, frameWideDone:
		return ep.answer(id, b)
	case frameUnmap:
		return ep.map_.unmap(b)
	case frameUnhandled:
		return ep.returned(b)
	}
	return fmt.Errorf("%w: frame %d is unknown", ErrProtocol, id)
}

func short(id FrameID, n int) error {
	return fmt.Errorf("%w: frame %d of %d bytes", ErrProtocol, id, n)
}

// sayShort sends a reserved frame of at most 64 bytes; its failure is the
// endpoint's own business, not the peer's fault.
func (ep *Endpoint) sayShort(id FrameID, b []byte) error {
	ep.mu.Lock()
	ep.sayLocked(id, append(ep.scratch[:0], b...), nil)
	ep.mu.Unlock()
	return nil
}

// done answers an operation with its status.
func (ep *Endpoint) done(id FrameID, op uint32, st status, value uint64) error {
	ep.mu.Lock()
	ep.doneLocked(id, op, st, value)
	ep.mu.Unlock()
	return nil
}

func (ep *Endpoint) doneLocked(id FrameID, op uint32, st status, value uint64) {
	b := binary.LittleEndian.AppendUint32(ep.scratch[:0], op)
	b = binary.LittleEndian.AppendUint32(b, uint32(st))
	if id == frameAtomicDone {
		b = binary.LittleEndian.AppendUint64(b, value)
	}
	ep.sayLocked(id, b, nil)
}

// bounce is where a span's bytes are read to that loads do not reach; ep.mu is held. They are good until the next.
func (ep *Endpoint) bounce(s span) []byte {
	if s.mem == nil && ep.bounced == nil {
		ep.bounced = make([]byte, fragmentBytes)
	}
	return ep.bounced
}

// serve answers one operation on this element's memory.
func (ep *Endpoint) serve(id FrameID, b []byte) error {
	op, key := binary.LittleEndian.Uint32(b), decodeKeyRef(b[4:])
	offset, size := binary.LittleEndian.Uint64(b[28:]), binary.LittleEndian.Uint64(b[36:])
	rest := b[accessBytes:]
	switch id {
	case frameGet:
		return ep.serveGet(op, key, offset, size)
	case framePut:
		return ep.servePut(op, key, offset, size, rest)
	case frameWide:
		return ep.serveWide(op, key, offset, size, rest)
	case frameNarrow:
		if len(rest) != 1 {
			return short(id, len(b))
		}
		k, st := ep.el.keys.narrow(key, offset, size, Rights(rest[0]), ep)
		ep.mu.Lock()
		defer ep.mu.Unlock()
		head := binary.LittleEndian.AppendUint32(ep.scratch[:0], op)
		head = binary.LittleEndian.AppendUint32(head, uint32(st))
		ep.sayLocked(frameNarrowed, k.Append(head), nil)
		return nil
	}
	if len(rest) != 17 {
		return short(id, len(b))
	}
	at, st := ep.el.keys.enter(key, offset, size, RightAtomic) // such keys are to memory that has bytes only
	if st != statusOK {
		return ep.done(frameAtomicDone, op, st, 0)
	}
	var old uint64
	old, st = doAtomic(at.mem, AtomicOp{AtomicKind(rest[16]), binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])}, int(size))
	ep.el.keys.leave()
	return ep.done(frameAtomicDone, op, st, old)
}

func (ep *Endpoint) serveGet(op uint32, key keyRef, offset, size uint64) error {
	at, st := ep.el.keys.access(key, offset, size, RightRead)
	if st != statusOK {
		return ep.done(frameGetDone, op, st, 0)
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	// Answers that find no room wait in the reserved queue; where that fills, data waits where it lies.
	if at.size <= inlineGetBytes && ep.reserved.bytes() < ep.reserved.max/2 {
		defer at.seg.unpin()
		mem, st := at.read(ep.bounce(at))
		if st != statusOK {
			ep.doneLocked(frameGetDone, op, st, 0)
			return nil
		}
		var word [8]byte
		if len(mem) == 8 || len(mem) == 4 {
			CopyOut(word[:len(mem)], mem)
			b := append(bulkHead(ep.scratch[:0], op, bulkLast, 0), word[:len(mem)]...)
			ep.sayLocked(frameGetData, b, nil)
		} else {
			ep.sayLocked(frameGetData, bulkHead(ep.scratch[:0], op, bulkLast, 0), mem)
		}
		return nil
	}
	if ep.dead.Load() != nil {
		at.seg.unpin()
		return nil
	}
	if len(ep.bulk) >= 2*ep.in.limit {
		at.seg.unpin()
		return fmt.Errorf("%w: more than %d operations at once", ErrProtocol, ep.in.limit)
	}
	ep.startBulk(frameGetData, op, at, key)
	return nil
}

func (ep *Endpoint) servePut(op uint32, key keyRef, offset, size uint64, data []byte) error {
	if len(data) > 0 {
		if uint64(len(data)) != size {
			return short(framePut, len(data))
		}
		st := ep.el.put(key, offset, data)
		if op == noOp { // a Post
			return nil
		}
		return ep.done(framePutDone, op, st, 0)
	}
	if op == noOp {
		return fmt.Errorf("%w: a Put without an operation announces data", ErrProtocol)
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.dead.Load() != nil {
		return nil
	}
	if len(ep.in.puts) >= ep.in.limit || ep.in.puts[op] != nil {
		return fmt.Errorf("%w: more than %d Puts at once, or one twice", ErrProtocol, ep.in.limit)
	}
	p := ep.in.record()
	if ep.in.puts == nil {
		ep.in.puts = map[uint32]*incomingPut{}
	}
	p.key = key
	p.to, p.fail = ep.el.keys.access(key, offset, size, RightWrite)
	ep.in.puts[op] = p
	return nil
}

// put writes a Put that came in one frame.
func (e *Element) put(key keyRef, offset uint64, data []byte) status {
	size := uint64(len(data))
	if size <= shortWriteBytes {
		at, st := e.keys.enter(key, offset, size, RightWrite)
		if st == statusOK {
			st = at.write(data)
			e.keys.leave()
		}
		return st
	}
	at, st := e.keys.access(key, offset, size, RightWrite)
	if st != statusOK {
		return st
	}
	defer at.seg.unpin()
	return e.write(key, at, data)
}

// write copies into lent memory that is pinned, unless the key has ended.
func (e *Element) write(key keyRef, to span, data []byte) status {
	e.writing.Lock()
	defer e.writing.Unlock()
	if !e.keys.holds(key) {
		return statusRevoked
	}
	return to.write(data)
}

// fragmentFits reports whether n bytes at offset at are what comes next of a
// transfer of which got of size bytes have arrived. An abort carries no data and ends it.
func fragmentFits(flags uint32, at uint64, n, got, size int) bool {
	if flags&bulkAbort != 0 {
		return n == 0 && flags&bulkLast != 0
	}
	return at == uint64(got) && n <= size-got && (flags&bulkLast == 0 || got+n == size)
}

// incomingFragment checks a fragment's head and says where its n bytes go; nowhere if they
// are to be discarded. If they go somewhere and keep is true, or loads and stores do not reach it, its segment is pinned for the caller.
func (ep *Endpoint) incomingFragment(head []byte, n int, keep bool) (to span, err error) {
	op := binary.LittleEndian.Uint32(head)
	flags, at := binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint64(head[8:])
	ep.mu.Lock() // the endpoint may end meanwhile, and its Puts with it
	defer ep.mu.Unlock()
	p := ep.in.puts[op]
	if p == nil {
		if ep.dead.Load() != nil {
			return span{}, nil
		}
		return span{}, fmt.Errorf("%w: data of a Put that was not announced", ErrProtocol)
	}
	if p.fail != statusOK {
		return span{}, nil
	}
	if !fragmentFits(flags, at, n, p.got, p.to.size) {
		return span{}, fmt.Errorf("%w: a Put's fragment at %d of %d bytes, at %d expected", ErrProtocol, at, n, p.got)
	}
	if _, st := ep.el.keys.find(p.key.slot, p.key.gen, &p.key.secret); st != statusOK {
		p.fail = st
		return span{}, nil
	}
	if (keep || p.to.mem == nil) && !p.to.seg.pin() {
		p.fail = statusRevoked
		return span{}, nil
	}
	ep.in.key = p.key
	return p.to.part(p.got, n), nil
}

// endFragment counts a fragment, and ends the Put with the last.
func (ep *Endpoint) endFragment(head []byte, n int) error {
	op, flags := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	ep.mu.Lock()
	p := ep.in.puts[op]
	if p == nil { // the endpoint has ended
		ep.mu.Unlock()
		return nil
	}
	p.got += n
	if ep.in.fail != statusOK {
		ep.in.fail, p.fail = statusOK, ep.in.fail
	}
	last, st := flags&bulkLast != 0, p.fail
	if last {
		p.drop()
		delete(ep.in.puts, op)
		*p = incomingPut{}
		ep.in.free = append(ep.in.free, p)
	}
	ep.mu.Unlock()
	if !last {
		return nil
	}
	return ep.done(framePutDone, op, st, 0)
}

// land is where the link puts a fragment down, until landed, that is for memory which cannot be named; nil if
// the endpoint has ended.
func (in *incoming) land(to span, n int) []byte {
	in.ep.mu.Lock()
	defer in.ep.mu.Unlock()
	if in.ep.dead.Load() != nil { // close may have been here already
		to.seg.unpin()
		return nil
	}
	in.to = to
	if in.landing == nil {
		in.landing = make([]byte, MaxFrameBytes)
	}
	return in.landing[:n:n]
}

func (in *incoming) landed() (to span) {
	in.ep.mu.Lock()
	defer in.ep.mu.Unlock()
	to, in.to = in.to, span{}
	return to
}

// writeTo puts a fragment where incomingFragment said, pinned.
func (in *incoming) writeTo(to span, data []byte) {
	if to.seg != nil {
		in.fail = in.ep.el.write(in.key, to, data)
		to.seg.unpin()
	}
}

func (ep *Endpoint) putData(b []byte) error {
	if len(b) < PlaceHeadBytes {
		return short(framePutData, len(b))
	}
	head, data := b[:PlaceHeadBytes], b[PlaceHeadBytes:]
	to, err := ep.incomingFragment(head, len(data), true)
	if err != nil {
		return err
	}
	ep.in.writeTo(to, data)
	return ep.endFragment(head, len(data))
}
