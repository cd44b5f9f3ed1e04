package rpc

import (
	"context"
	"fmt"
	"sync/atomic"

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

// Transfer is a Pull or a Push that was started.
type Transfer struct {
	el     *fabric.Element
	cancel context.CancelFunc
	done   chan struct{}
	moved  atomic.Uint64
	err    error
}

// StartPull starts a Pull on a goroutine of its own. dst is the transfer's until it has ended.
func (p *Peer) StartPull(ctx context.Context, from *Bulk, offset uint64, dst Memory) *Transfer {
	return p.startTransfer(ctx, from, offset, dst, fabric.RightRead)
}

// StartPush starts a Push on a goroutine of its own. src must not change until it has ended.
func (p *Peer) StartPush(ctx context.Context, to *Bulk, offset uint64, src Memory) *Transfer {
	return p.startTransfer(ctx, to, offset, src, fabric.RightWrite)
}

func (p *Peer) startTransfer(ctx context.Context, b *Bulk, offset uint64, local Memory, need fabric.Rights) *Transfer {
	t := &Transfer{el: p.el, done: make(chan struct{})}
	ctx, t.cancel = context.WithCancel(ctx)
	if !p.goWork(func() {
		defer close(t.done)
		defer t.cancel()
		n, err := p.transfer(ctx, nil, b, offset, local, need)
		t.moved.Store(n)
		t.err = err
	}) {
		t.cancel()
		t.err = ErrClosed
		close(t.done)
	}
	return t
}

// Done is closed when the transfer has ended.
func (t *Transfer) Done() <-chan struct{} { return t.done }

// Cancel has the transfer end soon, with an error unless it is done by then.
func (t *Transfer) Cancel() { t.cancel() }

// Wait waits for the transfer's end, which comes soon after the context's too. The memory is
// the caller's again when it returns. With the context of an inline handler it fails with ErrInline if
// the transfer has not ended: it goes on, and the memory is still its own.
func (t *Transfer) Wait(ctx context.Context) (moved uint64, err error) {
	select {
	case <-t.done:
		return t.moved.Load(), t.err
	default:
	}
	if leads(ctx) {
		return 0, ErrInline
	}
	if t.el.Await(ctx, t.done) != nil {
		t.cancel()
		_ = t.el.Await(context.Background(), t.done) // soon
	}
	return t.moved.Load(), t.err
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
