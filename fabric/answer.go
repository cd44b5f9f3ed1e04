package fabric

import (
	"encoding/binary"
	"fmt"
)

// What peers answer to this element's operations. It runs on the leader, inside Frame, Place and Placed.

// getFragment finds the buffer that a Get's data is for and claims it; nil if the caller no longer wants
// it any more.
func (ep *Endpoint) getFragment(head []byte, n int) (*opRecord, []byte, error) {
	op, flags := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	at := binary.LittleEndian.Uint64(head[8:])
	rec, claimed := ep.ops.claim(op)
	if !claimed {
		return nil, nil, nil
	}
	if !fragmentFits(flags, at, n, rec.got, len(rec.dst)) {
		rec.unclaim()
		return nil, nil, fmt.Errorf("%w: a Get's data at %d of %d bytes, at %d expected", ErrProtocol, at, n, rec.got)
	}
	return rec, rec.dst[rec.got : rec.got+n : rec.got+n], nil
}

// endGetFragment counts data that has arrived in a claimed record's buffer.
func (ep *Endpoint) endGetFragment(rec *opRecord, flags uint32, n int) {
	rec.got += n
	switch {
	case flags&bulkLast == 0:
		rec.unclaim()
	case flags&bulkAbort != 0:
		rec.finishClaimed(&PeerError{Peer: ep.String(), Op: rec.verb, Err: ErrRevoked})
	default:
		rec.finishClaimed(nil)
	}
}

func (ep *Endpoint) getData(b []byte) error {
	if len(b) < PlaceHeadBytes {
		return short(frameGetData, len(b))
	}
	head, data := b[:PlaceHeadBytes], b[PlaceHeadBytes:]
	rec, dst, err := ep.getFragment(head, len(data))
	flags := binary.LittleEndian.Uint32(head[4:])
	if err != nil {
		return err
	}
	if rec == nil {
		if rec = ep.ops.find(binary.LittleEndian.Uint32(head)); rec != nil && flags&bulkLast != 0 {
			rec.finish(nil)
		}
		return nil
	}
	copy(dst, data)
	ep.endGetFragment(rec, flags, len(data))
	return nil
}

// answer ends an operation of ours with the peer's word.
func (ep *Endpoint) answer(id FrameID, b []byte) error {
	if len(b) < 4 || id != frameFlushed && len(b) < 8 || id == frameAtomicDone && len(b) != 16 || id == frameWideDone && len(b) != 8+wideBytes {
		return short(id, len(b))
	}
	rec, claimed := ep.ops.claim(binary.LittleEndian.Uint32(b))
	if rec == nil {
		return nil
	}
	if id == framePutDone {
		ep.mu.Lock()
		if rec.bulk != nil && rec.bulk.rec == rec {
			rec.bulk.gone, rec.bulk.data, rec.bulk.at, rec.bulk.rec = true, span{}, 0, nil
		}
		rec.bulk = nil
		ep.mu.Unlock()
	}
	if !claimed {
		rec.finish(nil) // abandoned: only the record is left to free
		return nil
	}
	var err error
	switch id {
	case frameFlushed:
	case frameImported, frameNarrowed:
		rec.blob = append([]byte(nil), b[8:]...)
		fallthrough
	default:
		if e := status(binary.LittleEndian.Uint32(b[4:])).err(); e != nil {
			err = &PeerError{Peer: ep.String(), Op: rec.verb, Err: e}
		} else if id == frameAtomicDone {
			rec.value = binary.LittleEndian.Uint64(b[8:])
		} else if id == frameWideDone {
			copy(rec.dst, b[8:])
		}
	}
	rec.finishClaimed(err)
	return nil
}
