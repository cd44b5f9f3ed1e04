package fabric

import (
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// receiver is an Endpoint as its link sees it, which users do not: the Receiver that a transport's Pending gets.
type receiver Endpoint

func (ep *Endpoint) receiver() *receiver { return (*receiver)(ep) }

// Frame takes a frame from the link.
func (r *receiver) Frame(id FrameID, body []byte) error {
	ep := (*Endpoint)(r)
	if !ep.open.Load() {
		ep.opening.Lock()
		ep.open.Store(true)
		ep.opening.Unlock()
	}
	if ep.dead.Load() != nil {
		return nil // ended here while the transport had the frame at hand: no fault of the peer's
	}
	ep.heard++
	if id >= FirstMessageID {
		return ep.message(id, body)
	}
	return ep.control(id, body)
}

// Place says where a fragment's data goes: straight into a segment, or into a Get's buffer.
func (r *receiver) Place(id FrameID, head []byte, n int) ([]byte, error) {
	ep := (*Endpoint)(r)
	if id == framePutData {
		// Link.Close, which comes before the segment is let go, ends writing to dst; so does the key's end (BeginWrite).
		to, err := ep.incomingFragment(head, n, false)
		if to.seg == nil || to.mem != nil {
			return to.mem, err
		}
		return ep.in.land(to, n), nil
	}
	rec, dst, err := ep.getFragment(head, n)
	if rec == nil || err != nil {
		return nil, err
	}
	ep.in.get = rec
	rec.state.Store(uint32(opPlacing))
	return dst, nil
}

// BeginWrite is called before the transport writes to what Place named.
func (r *receiver) BeginWrite(id FrameID) bool {
	ep := (*Endpoint)(r)
	if id != framePutData {
		return ep.in.get.beginWrite()
	}
	ep.el.writing.Lock()
	if ep.el.keys.holds(ep.in.key) {
		return true
	}
	ep.el.writing.Unlock()
	ep.in.fail = statusRevoked
	return false
}

// EndWrite ends what BeginWrite began.
func (r *receiver) EndWrite(id FrameID) {
	ep := (*Endpoint)(r)
	if id != framePutData {
		ep.in.get.endWrite()
		return
	}
	ep.el.writing.Unlock()
}

// Placed ends what Place began.
func (r *receiver) Placed(id FrameID, head []byte, n int) error {
	ep := (*Endpoint)(r)
	ep.heard++
	op, flags := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	if id == framePutData {
		if to := ep.in.landed(); to.seg != nil {
			if ep.in.fail != statusOK {
				to.seg.unpin()
			} else {
				ep.in.writeTo(to, ep.in.landing[:n])
			}
		}
		return ep.endFragment(head, n)
	}
	ep.in.get = nil
	rec := ep.ops.find(op)
	if rec == nil {
		return nil
	}
	if rec.state.CompareAndSwap(uint32(opPlacing), uint32(opBusy)) {
		ep.endGetFragment(rec, flags, n)
	} else if flags&bulkLast != 0 {
		rec.finish(nil) // abandoned: only the record is left to free
	}
	return nil
}

// FD takes a descriptor from the link.
func (r *receiver) FD(tag uint64, fd int) {
	ep := (*Endpoint)(r)
	ms := &ep.map_
	ms.mu.Lock()
	defer ms.mu.Unlock()
	_, twice := ms.fds[tag]
	_, over := ms.over[uint32(tag)]
	if over {
		ms.over[uint32(tag)] = true
	}
	if twice || over || ms.closed || len(ms.fds) >= maxMappings {
		unix.Close(fd)
		return
	}
	ms.fds[tag] = fd
}

// Writable hears that the link has room again.
func (r *receiver) Writable() {
	ep := (*Endpoint)(r)
	ep.mu.Lock()
	ep.linkFull = false
	ep.markBusy()
	ep.mu.Unlock()
	ep.roomy.Wake()
}

// SendLock is held over Link.Send.
func (r *receiver) SendLock() *sync.Mutex { return &r.mu }

// Lost hears that the link is gone.
func (r *receiver) Lost(err error) {
	ep := (*Endpoint)(r)
	if !ep.open.Load() {
		ep.opening.Lock()
		ep.open.Store(true)
		ep.opening.Unlock()
	}
	ep.fail(fmt.Errorf("%w: %w", ErrPeerLost, err))
}
