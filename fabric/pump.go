package fabric

import (
	"encoding/binary"
)

// What cannot leave at once waits in its endpoint, and the endpoint in the
// element's busy list; the leader pumps. An endpoint that waits for room or
// credit leaves the list, and comes back when told that there is some.

const (
	// fragmentBytes is the largest piece of bulk data in one frame: small
	// messages queue behind at most a few of them. In whole pages, and with its headers less than
	// the 64 KiB that the kernel sends as one TCP segment where it can: one that is a little longer
	// makes two of every frame, which takes a quarter of the throughput over loopback.
	fragmentBytes = 60 << 10
	// pumpFragments is how many fragments one endpoint sends per round.
	pumpFragments = 4
)

// bulkSend is one large transfer on its way out: a Put's data, or the answer
// to a Get.
type bulkSend struct {
	id    FrameID   // framePutData or frameGetData
	op    uint32    // the op it belongs to, in the numbering of the side that started it
	data  span      // its segment is pinned while a Get is answered; a Put's has none
	rec   *opRecord // of a Put
	at    int
	epoch uint64 // of the Put
	gone  bool   // abandoned: tell the peer, send no more data
	// unannounced holds while a Put's request is still in the outbox: its data must not overtake it.
	unannounced bool
	// check reports whether the data may still be sent (its key still holds).
	key keyRef
}

// drop lets go of what the transfer held.
func (b *bulkSend) drop() {
	if b.data.seg != nil {
		b.data.seg.unpin()
	}
	b.data = span{}
}

func (e *Element) hasBusy() bool {
	return e.busyN.Load() > 0
}

func (e *Element) addBusy(ep *Endpoint) {
	e.busyMu.Lock()
	e.busy = append(e.busy, ep)
	e.busyN.Store(int32(len(e.busy)))
	e.busyMu.Unlock()
	e.leader.kick()
}

// markBusy puts the endpoint into the busy list; ep.mu is held.
func (ep *Endpoint) markBusy() {
	if !ep.inBusy {
		ep.inBusy = true
		ep.el.addBusy(ep)
	}
}

// pumpBusy gives each busy endpoint a round.
func (e *Element) pumpBusy() (sent int) {
	if e.busyN.Load() == 0 {
		return 0
	}
	e.busyMu.Lock()
	list := e.busy
	e.busy, e.spare = e.spare, nil
	e.busyN.Store(0)
	e.busyMu.Unlock()
	if e.answers.Load() > int64(e.cfg.Limits.ReservedBytesInAll) {
		e.giveUpMost()
	}
	more := list[:0]
	for _, ep := range list {
		if err := ep.doomed.Load(); err != nil {
			ep.fail(*err)
			continue
		}
		n, again := ep.pump()
		sent += n
		if again {
			more = append(more, ep)
		}
	}
	e.busyMu.Lock()
	e.busy = append(e.busy, more...)
	e.busyN.Store(int32(len(e.busy)))
	clear(list)
	e.spare = list[:0]
	e.busyMu.Unlock()
	return sent
}

// pump sends what it can; again says that there is more and nothing in the way.
func (ep *Endpoint) pump() (sent int, again bool) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.inBusy = false
	if ep.dead.Load() != nil || ep.link == nil {
		return 0, false
	}
	if ep.outbox.n > 0 {
		defer func() {
			if ep.outbox.n == 0 {
				ep.roomy.Wake() // they do not go before what was posted
			}
		}()
	}
	n, ok := ep.pumpQueue(&ep.reserved, Reserved)
	if sent += n; !ok {
		return sent, false
	}
	for {
		n, ok = ep.pumpQueue(&ep.outbox, Normal)
		if sent += n; !ok {
			return sent, false
		}
		n, ok = ep.pumpBulk()
		if sent += n; !ok {
			return sent, false
		}
		if !ep.atFence() || ep.hasPuts(ep.pumpEpoch) {
			break
		}
		ep.outbox.pop()
		ep.pumpEpoch++
	}
	ep.inBusy = ep.sendable()
	return sent, ep.inBusy
}

// atFence reports whether the outbox's oldest entry is a fence's mark.
func (ep *Endpoint) atFence() bool {
	if ep.outbox.n == 0 {
		return false
	}
	id, _ := ep.outbox.peek()
	return id == frameFence
}

// sendable reports whether there are fragments that may go out now.
func (ep *Endpoint) sendable() bool {
	for _, b := range ep.bulk {
		if b.sendable(ep.pumpEpoch) {
			return true
		}
	}
	return false
}

func (b *bulkSend) sendable(epoch uint64) bool {
	return b.id == frameGetData || b.epoch <= epoch && !b.unannounced
}

// putAnnounced hears that a Put's request has left the outbox.
func (ep *Endpoint) putAnnounced(request []byte) {
	op := binary.LittleEndian.Uint32(request)
	for _, b := range ep.bulk {
		if b.id == framePutData && b.op == op {
			b.unannounced = false
		}
	}
}

func (ep *Endpoint) pumpQueue(q *frameQueue, class Class) (sent int, ok bool) {
	for q.n > 0 {
		id, body := q.peek()
		if id == frameFence {
			return sent, true
		}
		c := uint64(0)
		if class == Normal && id >= FirstMessageID {
			if c = cost(len(body)); ep.sent+c > ep.allowed.Load() {
				return sent, true // credit frames will say when
			}
		}
		switch err := ep.transmit(id, class, body, nil); err {
		case nil:
			if c > 0 {
				ep.charge(c, len(body))
			}
			if id == framePut {
				ep.putAnnounced(body)
			}
			q.pop()
			sent++
		case ErrLinkFull:
			return sent, false
		default:
			ep.linkBroke(err, "send")
			return sent, false
		}
	}
	return sent, true
}

// pumpBulk sends fragments, one transfer after the other in turn.
func (ep *Endpoint) pumpBulk() (sent int, ok bool) {
	for tries := len(ep.bulk) * pumpFragments; tries > 0 && sent < pumpFragments && len(ep.bulk) > 0; tries-- {
		b := ep.bulk[0]
		if !b.sendable(ep.pumpEpoch) {
			copy(ep.bulk, ep.bulk[1:])
			ep.bulk[len(ep.bulk)-1] = b
			continue
		}
		done, err := ep.sendFragment(b)
		if err == ErrLinkFull {
			return sent, false
		}
		if err != nil {
			ep.linkBroke(err, "bulk")
			return sent, false
		}
		sent++
		copy(ep.bulk, ep.bulk[1:])
		ep.bulk = ep.bulk[:len(ep.bulk)-1]
		if done {
			b.rec = nil
			b.drop()
			ep.bulkFree = append(ep.bulkFree, b)
		} else {
			ep.bulk = append(ep.bulk, b)
		}
	}
	return sent, true
}

func (ep *Endpoint) sendFragment(b *bulkSend) (done bool, err error) {
	n := min(b.data.size-b.at, fragmentBytes)
	flags := uint32(0)
	if b.data.seg != nil {
		if _, st := ep.el.keys.find(b.key.slot, b.key.gen, &b.key.secret); st != statusOK {
			b.gone = true
		}
	}
	switch {
	case b.gone:
		n, flags = 0, bulkLast|bulkAbort
	case b.at+n == b.data.size:
		flags = bulkLast
	}
	part := b.data.part(b.at, n)
	data, st := part.read(ep.bounce(part))
	if st != statusOK { // also after some of the data: the operation ends with it
		ep.doneLocked(frameGetDone, b.op, st, 0)
		return true, nil
	}
	if err := ep.transmit(b.id, Normal, bulkHead(ep.scratch[:0], b.op, flags, uint64(b.at)), data); err != nil {
		return false, err
	}
	b.at += n
	return flags&bulkLast != 0, nil
}

// bulkHead is the fixed prefix of bulk frames: PlaceHeadBytes long.
func bulkHead(b []byte, op, flags uint32, offset uint64) []byte {
	b = binary.LittleEndian.AppendUint32(b, op)
	b = binary.LittleEndian.AppendUint32(b, flags)
	return binary.LittleEndian.AppendUint64(b, offset)
}

// startBulk queues a transfer; ep.mu is held.
func (ep *Endpoint) startBulk(id FrameID, op uint32, data span, key keyRef) *bulkSend {
	var b *bulkSend
	if n := len(ep.bulkFree); n > 0 {
		b, ep.bulkFree = ep.bulkFree[n-1], ep.bulkFree[:n-1]
	} else {
		b = new(bulkSend)
	}
	*b = bulkSend{id: id, op: op, data: data, key: key, epoch: ep.epoch}
	ep.bulk = append(ep.bulk, b)
	ep.markBusy()
	return b
}
