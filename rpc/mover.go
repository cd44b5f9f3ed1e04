package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/fabric"
)

const (
	// chunkBytes is the most that one operation of a transfer moves: between two of
	// them a context's end is noticed.
	chunkBytes = 1 << 20
	// opsAtOnce is how many operations of a transfer are under way, imports or chunks: enough to
	// hide a round trip, few enough that they leave room for others (fabric's Limits.OpsPerEndpoint).
	opsAtOnce = 64
	// bytesAtOnce bounds what they move: sixteen large chunks hide a round trip as well.
	bytesAtOnce = 16 * chunkBytes
)

// mover is a transfer under way.
type mover struct {
	p     *Peer
	b     *Bulk
	c     *conn // to the owner, which counts it; nil if that is this element
	local Memory
	need  fabric.Rights
	parts []bulkPart
	moved uint64

	window []imported // the parts from the one with number from on
	from   int

	ops   [opsAtOnce]chunk
	first int
	n     int
	bytes uint64 // under way
}

// imported is a part that was imported, or could not be.
type imported struct {
	mem    *fabric.Remote
	err    error
	coming fabric.Importing // while both are nil
}

type chunk struct {
	op   fabric.Op
	size uint64
	mem  *fabric.Remote
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
		return t.c.fetch(ctx, at.append(nil), MaxParts*partBytes, nil, written{})
	}
	list := make([]byte, at.size)
	return list, t.p.ownCopy(at.key, 0, list, fabric.RightRead)
}

// dial is one that is under way to a Bulk's owner.
type dial struct {
	addrs []string
	done  chan struct{}

	// Set before done is closed.
	err    error
	gaveUp bool // the dialling goroutine ran out of time
}

// ownerOf finds or makes an endpoint to a Bulk's owner. Goroutines that need the same one wait for the first of them.
func (p *Peer) ownerOf(ctx context.Context, b *Bulk) (*conn, error) {
	for {
		p.mu.Lock()
		c, d := p.owners[b.owner], p.dials[b.owner]
		if c != nil {
			p.mu.Unlock()
			return c, nil
		}
		if p.cfg.Dial == nil || len(b.addrs) == 0 {
			p.mu.Unlock()
			return nil, fmt.Errorf("%w (%v): %s", ErrNotConnected, b.owner, p.howToOwn())
		}
		first := d == nil
		if first {
			d = &dial{addrs: b.addrs, done: make(chan struct{})}
			p.dials[b.owner] = d
		}
		p.mu.Unlock()
		if first {
			c, d.err = p.dialOwner(ctx, b)
			d.gaveUp = ctx.Err() != nil
			p.mu.Lock()
			delete(p.dials, b.owner)
			p.mu.Unlock()
			close(d.done)
			return c, d.err
		}
		if err := p.layer.Await(ctx, d.done); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotConnected, timedOut(err))
		}
		if d.err != nil && !d.gaveUp && slices.Equal(d.addrs, b.addrs) {
			return nil, d.err
		}
	}
}

// howToOwn says what would make a way to a Bulk's owner.
func (p *Peer) howToOwn() string {
	const dial = "dial it first, or have it bound (Bulk.Bind) and allow dialling (Config.Dial)"
	if p.cfg.Members {
		return dial + "; if it is no member of the cluster, it has to hand its bulk over itself"
	}
	return dial
}

func (p *Peer) dialOwner(ctx context.Context, b *Bulk) (*conn, error) {
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
	local, left := cursor{m: t.local}, t.local.Size()
	for i := 0; i < len(t.parts) && err == nil && left > 0; i++ {
		k := t.parts[i].key
		if offset >= k.Size {
			offset -= k.Size
			continue
		}
		var mem *fabric.Remote
		if t.c != nil {
			if mem, err = t.memory(ctx, i, offset+left); err != nil {
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
			left -= uint64(len(piece))
		}
		offset = 0
	}
	return t.end(ctx, err)
}

// memory is that of part i. The parts after it are imported together with it, as far as the next
// ahead bytes from its start reach and as many as may be under way.
func (t *mover) memory(ctx context.Context, i int, ahead uint64) (*fabric.Remote, error) {
	if i >= t.from+len(t.window) {
		t.importFrom(ctx, i, ahead)
	}
	w := &t.window[i-t.from]
	return w.mem, w.err
}

// importFrom fills the window with part i and others that follow.
func (t *mover) importFrom(ctx context.Context, i int, ahead uint64) {
	t.from, t.window = i, t.window[:0]
	for ; i < len(t.parts) && len(t.window) < opsAtOnce && ahead > 0; i++ {
		k := t.parts[i].key
		w := imported{mem: t.c.remotes.find(k)}
		if w.mem == nil {
			w.coming = t.c.ep.StartImport(k)
		}
		if w.mem == nil && w.coming.Poll() { // done at once, or not begun
			w.mem, w.err = w.coming.Wait(ctx)
			if errors.Is(w.err, fabric.ErrBackpressure) && len(t.window) > 0 {
				break // its turn comes with the next window
			}
			if errors.Is(w.err, fabric.ErrBackpressure) {
				if w.err = t.end(ctx, nil); w.err == nil { // a transfer that waits for room holds none
					w.mem, w.err = t.c.ep.Import(ctx, k)
				}
			}
			if w.err == nil {
				t.c.remotes.keep(w.mem)
			}
		}
		t.window = append(t.window, w)
		ahead -= min(ahead, k.Size)
	}
	for j := range t.window {
		if w := &t.window[j]; w.mem == nil && w.err == nil {
			if w.mem, w.err = w.coming.Wait(ctx); w.err == nil {
				t.c.remotes.keep(w.mem)
			}
		}
	}
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
	for t.n == opsAtOnce || t.n > 0 && t.bytes+uint64(len(local)) > bytesAtOnce {
		if err := t.await(ctx); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c := chunk{size: uint64(len(local)), mem: mem, op: t.start(mem, offset, local)}
	if c.op.Poll() { // done at once, or not begun
		err := c.op.Wait(ctx)
		if errors.Is(err, fabric.ErrBackpressure) { // the endpoint has other operations: wait for room, and hold none meanwhile
			if err = t.end(ctx, nil); err == nil {
				err = t.blocking(ctx, mem, offset, local)
			}
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
	t.ops[(t.first+t.n)%opsAtOnce] = c
	t.n++
	t.bytes += c.size
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
	t.first, t.n, t.bytes = (t.first+1)%opsAtOnce, t.n-1, t.bytes-c.size
	if err := c.op.Wait(ctx); err != nil {
		t.c.remotes.failed(c.mem.Key(), err)
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
		t.first, t.n = (t.first+1)%opsAtOnce, t.n-1
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
	if need == fabric.RightRead {
		return r.Segment.ReadAt(local, r.Offset+offset)
	}
	return r.Segment.WriteAt(local, r.Offset+offset)
}
