package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/fabric"
)

const (
	// chunkBytes is the most that one operation of a transfer moves: between two of
	// them a context's end is noticed.
	chunkBytes = 1 << 20
	// chunksAtOnce is how many operations of a transfer are under way: enough to hide a
	// round trip, few enough that they leave room for others (fabric's Limits.OpsPerEndpoint).
	chunksAtOnce = 16
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
	t := &Transfer{done: make(chan struct{})}
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
	select {
	case <-t.done:
	case <-ctx.Done():
		t.cancel()
		<-t.done
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

// mover is a transfer under way.
type mover struct {
	p     *Peer
	b     *Bulk
	c     *conn // to the owner; nil if that is this element
	local Memory
	need  fabric.Rights
	parts []bulkPart
	moved uint64

	ops   [chunksAtOnce]chunk
	first int
	n     int
}

type chunk struct {
	op   fabric.Op
	size uint64
	key  fabric.Key
}

// open finds the way to the owner, and the parts.
func (t *mover) open(ctx context.Context, via *conn) (err error) {
	b := t.b
	switch {
	case b.owner == t.p.el.Incarnation():
	case via != nil && via.ep.Incarnation() == b.owner:
		t.c = via
	default:
		if t.c, err = t.p.ownerOf(ctx, b); err != nil {
			return err
		}
	}
	if t.parts = b.parts; b.fetched == nil {
		return nil
	}
	b.fetched.mu.Lock()
	t.parts = b.fetched.parts
	b.fetched.mu.Unlock()
	if t.parts != nil {
		return nil
	}
	list, err := t.fetchList(ctx)
	if err != nil {
		return fmt.Errorf("its list of parts: %w", err)
	}
	if t.parts, err = b.readParts(list); err != nil {
		return err
	}
	b.fetched.mu.Lock()
	b.fetched.parts = t.parts
	b.fetched.mu.Unlock()
	return nil
}

func (t *mover) fetchList(ctx context.Context) ([]byte, error) {
	at := t.b.list
	if t.c != nil {
		return t.c.fetch(ctx, at.append(nil), MaxParts*partBytes, nil)
	}
	list := make([]byte, at.size)
	return list, t.p.ownCopy(at.key, 0, list, fabric.RightRead)
}

// ownerOf finds or makes an endpoint to a Bulk's owner.
func (p *Peer) ownerOf(ctx context.Context, b *Bulk) (*conn, error) {
	p.mu.RLock()
	c := p.owners[b.owner]
	p.mu.RUnlock()
	if c != nil {
		return c, nil
	}
	if p.cfg.Dial == nil || len(b.addrs) == 0 {
		return nil, fmt.Errorf("%w (%v): dial it first, or have it bound (Bulk.Bind) and allow dialling (Config.Dial)", ErrNotConnected, b.owner)
	}
	var errs []error
	for _, addr := range b.addrs {
		ep, err := p.cfg.Dial(ctx, addr)
		switch {
		case err != nil:
			errs = append(errs, err)
		case ep.Incarnation() != b.owner:
			errs = append(errs, fmt.Errorf("%s is %v now: %w", addr, ep.Incarnation(), fabric.ErrIncarnation))
		default:
			if c := p.conn(ep); c != nil {
				return c, nil
			}
			errs = append(errs, p.gone(ep))
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrNotConnected, errors.Join(errs...))
}

// run moves everything, part by part and chunk by chunk.
func (t *mover) run(ctx context.Context, offset uint64) error {
	var err error
	local := cursor{m: t.local}
	for i := 0; i < len(t.parts) && err == nil && len(local.next(1)) > 0; i++ {
		k := t.parts[i].key
		if offset >= k.Size {
			offset -= k.Size
			continue
		}
		var mem *fabric.Remote
		if t.c != nil {
			if mem, err = t.c.remotes.get(ctx, t.c.ep, k); err != nil {
				break
			}
		}
		for offset < k.Size && err == nil {
			piece := local.next(min(k.Size-offset, chunkBytes))
			if len(piece) == 0 {
				break
			}
			err = t.move(ctx, mem, k, offset, piece)
			offset += uint64(len(piece))
			local.advance(len(piece))
		}
		offset = 0
	}
	return t.end(ctx, err)
}

// move starts the transfer of one chunk, or does it.
func (t *mover) move(ctx context.Context, mem *fabric.Remote, k fabric.Key, offset uint64, local []byte) error {
	if mem == nil {
		if err := t.p.ownCopy(k, offset, local, t.need); err != nil {
			return err
		}
		t.moved += uint64(len(local))
		return ctx.Err()
	}
	if t.n == chunksAtOnce {
		if err := t.await(ctx); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c := chunk{size: uint64(len(local)), key: k, op: t.start(mem, offset, local)}
	if c.op.Poll() { // done at once, or not begun
		err := c.op.Wait(ctx)
		if errors.Is(err, fabric.ErrBackpressure) { // the endpoint has other operations: wait for room
			err = t.blocking(ctx, mem, offset, local)
		}
		if err != nil {
			t.c.remotes.failed(k, err)
			return err
		}
		c.op = fabric.Op{}
		if t.n == 0 {
			t.moved += c.size
			return nil
		}
	}
	t.ops[(t.first+t.n)%chunksAtOnce] = c
	t.n++
	return nil
}

func (t *mover) start(mem *fabric.Remote, offset uint64, local []byte) fabric.Op {
	if t.need == fabric.RightRead {
		return mem.StartGet(local, offset)
	}
	return mem.StartPut(local, offset)
}

func (t *mover) blocking(ctx context.Context, mem *fabric.Remote, offset uint64, local []byte) error {
	if t.need == fabric.RightRead {
		return mem.Get(ctx, local, offset)
	}
	return mem.Put(ctx, local, offset)
}

// await waits for the oldest chunk.
func (t *mover) await(ctx context.Context) error {
	c := t.ops[t.first]
	t.first, t.n = (t.first+1)%chunksAtOnce, t.n-1
	if err := c.op.Wait(ctx); err != nil {
		t.c.remotes.failed(c.key, err)
		return err
	}
	t.moved += c.size
	return nil
}

// end waits for what is under way; after an error it only makes the memory quiet.
func (t *mover) end(ctx context.Context, err error) error {
	for t.n > 0 {
		if err == nil {
			err = t.await(ctx)
			continue
		}
		t.ops[t.first].op.Forget()
		t.first, t.n = (t.first+1)%chunksAtOnce, t.n-1
	}
	return err
}

// ownCopy moves between this element's own segments and local memory.
func (p *Peer) ownCopy(k fabric.Key, offset uint64, local []byte, need fabric.Rights) error {
	r, err := p.el.OwnRange(k, need)
	if err != nil {
		return err
	}
	defer r.Segment.Unpin()
	if offset > r.Size || uint64(len(local)) > r.Size-offset {
		return fabric.ErrRange
	}
	mem := r.Segment.Bytes()[r.Offset+offset:][:len(local)]
	if need == fabric.RightRead {
		fabric.CopyOut(local, mem)
	} else {
		fabric.CopyIn(mem, local)
	}
	return nil
}
