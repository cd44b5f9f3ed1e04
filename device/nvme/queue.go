package nvme

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/fabric"
)

// queue is a pair of queues; Engine.mu guards it.
type queue struct {
	c         *Controller
	id        uint16
	entries   uint32 // of the submission queue
	cqEntries uint32
	sq        *window
	sqAt      uint64
	cq        *window
	cqAt      uint64
	bell      *window // has the word that is rung for completions; nil: each completion rings by itself
	bellAt    uint64
	head      uint32 // of the submission queue: what is fetched next
	tail      uint32 // of the completion queue: what is written next
	phase     bool   // of what is written next
	rung      uint64 // what the bell says
	inflight  uint32
	late      []end         // completions that found no room at the endpoint, in order: they are tried again
	short     int           // bytes that the command at head needs, and found no room for
	needs     uint32        // places for completions that must be free besides one for the commands at head to be fetched
	blocked   bool          // the command at head waits for a write that is under way
	gone      chan struct{} // closed when it was removed and nothing of it is under way; nil: it was not removed
}

// end is how a command ended.
type end struct {
	id     uint16
	status Status
}

// look reads the doorbells once: how many commands wait, and for how many completions there is room.
func (q *queue) look() (waiting, room uint32, err error) {
	tail, head := q.doorbells()
	if tail >= q.entries || head >= q.cqEntries {
		return 0, 0, fmt.Errorf("queue %d: doorbells at %d of %d entries and %d of %d", q.id, tail, q.entries, head, q.cqEntries)
	}
	room = q.cqEntries - 1 - distance(head, q.tail, q.cqEntries) // one stays free, so that full and empty differ
	return distance(q.head, tail, q.entries), room - min(room, q.inflight+uint32(len(q.late))), nil
}

// distance is how many entries of a ring lie from one index to another.
func distance(from, to, entries uint32) uint32 {
	if to < from {
		to += entries
	}
	return to - from
}

// ready reports whether serve would find something to do.
func (q *queue) ready() bool {
	waiting, room, err := q.look()
	return err != nil || len(q.late) > 0 || waiting > 0 && room > q.needs && q.admitted()
}

// admitted reports whether another command may be fetched.
func (q *queue) admitted() bool {
	return !q.blocked && q.c.e.admits(q.c) && (q.short == 0 || q.c.e.bounces(q.c, q.short))
}

// serve fetches commands and carries out what does not block. It returns how many there were, and of how many bytes.
func (q *queue) serve(commands, bytes int) (n, moved int) {
	waiting, room, err := q.look()
	if err != nil {
		q.c.fault(err)
		return 1, 0
	}
	if len(q.late) > 0 && !q.catchUp() || waiting == 0 || room <= q.needs || !q.admitted() {
		if !q.blocked {
			q.c.crew.unclaim(q.c.e, q)
		}
		return 0, 0
	}
	mem := q.sq.pin(fabric.RightRead)
	if mem == nil {
		q.c.fault(fmt.Errorf("queue %d: its memory is gone", q.id))
		return 1, 0
	}
	defer q.sq.unpin()
	if far := q.cq.far(); far != nil && far.Hold() { // what it is answered leaves together
		defer far.Release()
	}
	for n < commands && waiting > 0 && room > 0 && moved < bytes && !q.c.stopped && q.c.e.admits(q.c) {
		cmd := q.fetch(mem, 0)
		var took uint32
		var size int
		var done bool
		if cmd.Fused == 0 {
			took, size, done = q.single(&cmd)
		} else {
			took, size, done = q.pair(mem, &cmd, waiting, room)
		}
		if !q.blocked { // the head may be another command than the pair that claimed: its memory is the borrower's
			q.c.crew.unclaim(q.c.e, q)
		}
		if !done { // it waits in the queue
			break
		}
		q.short, q.needs = 0, 0
		q.c.commands += uint64(took)
		n += int(took)
		moved += size
		waiting, room = waiting-took, room-took
	}
	return n, moved
}

// fetch reads the command i behind the queue's head, once: what is checked is what is done.
func (q *queue) fetch(mem []byte, i uint32) Command {
	var e [CommandBytes]byte
	copy(e[:], mem[q.sqAt+uint64((q.head+i)%q.entries)*CommandBytes:])
	return Decode(&e)
}

// advance moves the head on.
func (q *queue) advance(n uint32) { q.head = (q.head + n) % q.entries }

// single carries out a command that is not fused.
func (q *queue) single(cmd *Command) (took uint32, moved int, done bool) {
	o := q.c.e.take(q, cmd.ID)
	if o == nil {
		return 0, 0, false
	}
	q.advance(1)
	if moved, done = o.execute(cmd); !done {
		q.advance(q.entries - 1)
	}
	return 1, moved, done
}

// execute carries a command out, or has a worker do it. It returns the bytes that it is about. Not done: it is to be fetched again later.
func (o *op) execute(cmd *Command) (moved int, done bool) {
	if cmd.Op.reserves() {
		return o.executeReservation(cmd)
	}
	if o.status = o.prepare(cmd); o.status != StatusOK {
		o.c.post(o.q, o.id, o.status)
		o.c.e.end(o)
		return 0, true
	}
	return o.run()
}

// run carries out what has been prepared.
func (o *op) run() (moved int, done bool) {
	if o.c.crew.blocked(o) {
		o.c.e.end(o)
		return 0, false
	}
	size := int(o.req.Size)
	err := o.do(false)
	if err == ErrWait {
		if done = o.keep(); done && !o.c.e.begin(o) {
			o.c.e.hand(o)
		}
		size = 0
	} else {
		done = o.conclude(err)
	}
	if !done {
		o.c.e.end(o)
	}
	return size, done
}

// prepare checks a command and finds its data.
func (o *op) prepare(cmd *Command) Status {
	if cmd.NS != Namespace && !(cmd.Op == OpFlush && cmd.NS == ^uint32(0)) {
		return StatusNamespace
	}
	if cmd.Fused != 0 {
		return StatusField
	}
	o.req.Op = cmd.Op
	if reads := cmd.Op == OpRead || cmd.Op == OpCompare; len(o.c.crew.reserved) > 0 && !o.c.crew.allows(o.c, !reads) {
		return StatusReserved
	}
	switch cmd.Op {
	case OpFlush:
		return StatusOK
	case OpRead, OpWrite, OpCompare, OpWriteZeroes:
	case OpDataset:
		return o.prepareDataset(cmd)
	default:
		return StatusOpcode
	}
	if cmd.Block >= o.c.blocks || uint64(cmd.Blocks) > o.c.blocks-cmd.Block {
		return StatusLBA
	}
	if o.c.readOnly && (cmd.Op == OpWrite || cmd.Op == OpWriteZeroes) {
		return StatusProtected
	}
	size := uint64(cmd.Blocks) * BlockBytes
	o.req.Off, o.req.Size, o.req.Durable = o.c.base+int64(cmd.Block*BlockBytes), int64(size), cmd.FUA
	if cmd.Op == OpWriteZeroes {
		return StatusOK
	}
	if size > MaxTransferBytes {
		return StatusField
	}
	need := fabric.RightRead // of the memory
	if cmd.Op == OpRead {
		need = fabric.RightWrite
	}
	if st := o.locate(cmd, size, need); st != StatusOK {
		return st
	}
	if cmd.Op == OpCompare || len(o.far) > 0 {
		o.bounce = o.c.e.scratch[:size]
		o.into[0] = o.bounce
		o.req.Op, o.req.Pieces = OpRead, o.into[:]
		return StatusOK
	}
	o.req.Pieces = o.pieces
	return StatusOK
}

// borrow takes memory for data that cannot be read to where it goes; false: there is none now.
func (o *op) borrow(size int) bool {
	if !o.c.e.bounces(o.c, size) {
		o.q.short = size
		return false
	}
	o.c.e.add(o.c, 0, size)
	o.bounced = size
	o.bounce = make([]byte, size)
	o.into[0] = o.bounce
	return true
}

// prepareDataset reads the ranges, once.
func (o *op) prepareDataset(cmd *Command) Status {
	if !cmd.Free {
		return StatusOK // hints about how blocks are used
	}
	if o.c.readOnly {
		return StatusProtected
	}
	size := uint64(cmd.Blocks) * rangeBytes
	var all [maxRanges * rangeBytes]byte
	if st := o.locate(cmd, size, fabric.RightRead); st != StatusOK {
		return st
	}
	n := 0
	for _, p := range o.pieces {
		n += copy(all[n:], p)
	}
	for r := all[:size]; len(r) > 0; r = r[rangeBytes:] {
		blocks, first := uint64(binary.LittleEndian.Uint32(r[4:])), binary.LittleEndian.Uint64(r[8:])
		if first > o.c.blocks || blocks > o.c.blocks-first {
			return StatusLBA
		}
		if blocks > 0 {
			o.ranges = append(o.ranges, Request{Op: OpDataset, Off: o.c.base + int64(first*BlockBytes), Size: int64(blocks * BlockBytes)})
		}
	}
	return StatusOK
}

// post writes a completion. There is room in the queue: a command is fetched only if there will be. Where the endpoint has none it is written later.
func (c *Controller) post(q *queue, id uint16, st Status) {
	if !c.stopped && (len(q.late) > 0 || !q.complete(id, st)) {
		q.late = append(q.late, end{id, st})
	}
}

// catchUp writes what was late; false: there is no room still.
func (q *queue) catchUp() bool {
	q.cq.fence() // behind the data: the one before may have found no room either
	for len(q.late) > 0 && !q.c.stopped {
		if !q.complete(q.late[0].id, q.late[0].status) {
			return false
		}
		q.late = append(q.late[:0], q.late[1:]...)
	}
	return !q.c.stopped
}

// complete writes a completion; false: the endpoint has no room for it now.
func (q *queue) complete(id uint16, st Status) bool {
	w := Completion{Head: uint16(q.head), Queue: q.id, ID: id, Status: st, Phase: q.phase}.Word()
	err := q.cq.store(q.c.e, q.cqAt+uint64(q.tail)*CompletionBytes+8, w, q.bell == nil)
	if errors.Is(err, fabric.ErrBackpressure) {
		return false
	}
	if q.tail++; q.tail == q.cqEntries {
		q.tail, q.phase = 0, !q.phase
	}
	if q.rung++; err == nil && q.bell != nil { // whose memory is mapped
		err = q.bell.store(q.c.e, q.bellAt, q.rung, true)
	}
	if err != nil { // the endpoint is about to end, or the borrower took the memory back
		q.c.fault(fmt.Errorf("queue %d: a completion could not be written: %w", q.id, err))
	}
	return true
}
