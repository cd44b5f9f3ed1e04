package rpc

import (
	"context"
	"errors"

	"github.com/wherry-fabric/wherry/internal/stream"
)

// A large answer is copied twice where memory is mapped: by the callee into the segment, and by the caller out of it. So that the
// second copy need not wait for the end of the first, the callee tells the caller of each piece that it has written. These
// messages are hints: one that is late, or for which there was no room, costs time and nothing else, and whether the call has an
// answer, only the response says.

const (
	// pieceBytes is the least that the caller is told of: a tenth of the time of a message goes for the message.
	pieceBytes = 64 << 10
	// mostPieces bounds the messages for one answer.
	mostPieces = 32
)

// written says how much of an answer is where.
type written struct {
	at ref
	n  uint64
}

// write copies an answer into the segment that it is lent in, and returns the reference to it.
func (k *Call) write(s *lentSegment, body []byte) (at []byte) {
	c, mem := k.c, s.seg.Bytes()
	msg := s.ref.append(make([]byte, writtenHead, writtenHead+refBytes))
	piece := max(pieceBytes, (len(body)+mostPieces-1)/mostPieces)
	if piece >= len(body) || !c.ep.Shared() {
		stream.Copy(mem, body)
		return msg[writtenHead:]
	}
	for from := 0; from < len(body); from += piece {
		to := min(from+piece, len(body))
		c.copier.Copy(mem[from:], body[from:to])
		if to < len(body) {
			appendWritten(msg[:0], k.id, uint64(to))
			_ = c.ep.TrySend(IDWritten, msg, nil)
		}
	}
	return msg[writtenHead:]
}

// onWritten hears that a part of an answer is there.
func (c *conn) onWritten(b []byte) error {
	id, w, err := decodeWritten(b, c.p.limits.MaxBytes)
	if errors.Is(err, ErrTooLarge) { // which the response will be as well
		return nil
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.caller.Waiting(id) {
		return nil
	}
	if r := c.records[id.Slot()]; r.awaited {
		r.written = w
		r.news.Store(true)
		r.waiter.Wake()
	}
	return nil
}

// incoming is an answer that is being appended to dst.
type incoming struct {
	dst  []byte
	have written // what was read beyond dst's end so far
}

// follow reads what was written since. Memory that is not mapped yet is left to the answer's end.
func (in *incoming) follow(c *conn, w written) {
	if in.have.n != 0 && in.have.at != w.at || w.n <= in.have.n {
		return
	}
	mem := c.remotes.find(w.at.key)
	if mem == nil || !mem.Mapped() {
		return
	}
	in.dst = withRoom(in.dst, int(w.at.size))
	n := len(in.dst)
	if mem.Get(context.Background(), in.dst[n : n+int(w.n)][in.have.n:], in.have.n) == nil { // which does not wait
		in.have = w
		c.p.stats.followed.Add(1)
	}
}
