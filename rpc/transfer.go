package rpc

import (
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/fabric"
)

// Pull copies from a Bulk, from offset on, until dst is full. It returns how many bytes
// arrived, counted from dst's start; after an error, or when the context ends, dst may hold more than
// these, and is the caller's again. With the context of an inline handler only what
// travelled along, or is this element's own, can be pulled.
func (p *Peer) Pull(ctx context.Context, from *Bulk, offset uint64, dst Memory) (moved uint64, err error) {
	return p.transfer(ctx, nil, from, offset, dst, fabric.RightRead)
}

// Push copies src to a Bulk, from offset on. It returns how many bytes are there, counted from
// src's start; after an error more may be.
func (p *Peer) Push(ctx context.Context, to *Bulk, offset uint64, src Memory) (moved uint64, err error) {
	return p.transfer(ctx, nil, to, offset, src, fabric.RightWrite)
}

// Pull is Peer.Pull that reaches the caller's own Bulks through the caller's
// endpoint, whoever else may say that it is the same incarnation.
func (k *Call) Pull(ctx context.Context, from *Bulk, offset uint64, dst Memory) (moved uint64, err error) {
	return k.c.p.transfer(ctx, k.c, from, offset, dst, fabric.RightRead)
}

// Push is Peer.Push, as Call.Pull is Peer.Pull.
func (k *Call) Push(ctx context.Context, to *Bulk, offset uint64, src Memory) (moved uint64, err error) {
	return k.c.p.transfer(ctx, k.c, to, offset, src, fabric.RightWrite)
}

func (p *Peer) transfer(ctx context.Context, via *conn, b *Bulk, offset uint64, local Memory, need fabric.Rights) (uint64, error) {
	size := local.Size()
	switch {
	case offset > b.Size() || size > b.Size()-offset:
		return 0, fmt.Errorf("%w: [%d, +%d) of %d", ErrRange, offset, size, b.Size())
	case size == 0:
		return 0, nil
	case b.rights&need != need:
		return 0, fmt.Errorf("rpc: bulk: %w", fabric.ErrRights)
	case ctx.Err() != nil:
		return 0, timedOut(context.Cause(ctx))
	}
	if b.kind == bulkEager {
		data, err := b.carried()
		if err != nil {
			return 0, err
		}
		return copyMemory(local, Memory{data[offset : offset+size]}), nil
	}
	if leads(ctx) && b.owner != p.el.Incarnation() {
		return 0, ErrInline
	}
	t := mover{p: p, b: b, local: local, need: need}
	err := t.open(ctx, via)
	if err == nil {
		err = t.run(ctx, offset)
	}
	if err != nil {
		return t.moved, fmt.Errorf("rpc: bulk, after %d of %d bytes: %w", t.moved, size, timedOut(err))
	}
	return t.moved, nil
}

func copyMemory(dst, src Memory) (n uint64) {
	d, f := cursor{m: dst}, cursor{m: src}
	for {
		to, from := d.next(chunkBytes), f.next(chunkBytes)
		m := copy(to, from)
		if m == 0 {
			return n
		}
		n += uint64(m)
		d.advance(m)
		f.advance(m)
	}
}

// cursor is a place in memory.
type cursor struct {
	m  Memory
	i  int
	at int // in m[i]
}

// next is what comes next and is in one piece, at most limit bytes; nothing at the end.
func (c *cursor) next(limit uint64) []byte {
	for c.i < len(c.m) && c.at == len(c.m[c.i]) {
		c.i, c.at = c.i+1, 0
	}
	if c.i == len(c.m) {
		return nil
	}
	n := min(uint64(len(c.m[c.i])-c.at), limit)
	return c.m[c.i][c.at : c.at+int(n) : c.at+int(n)]
}

func (c *cursor) advance(n int) { c.at += n }
