package component

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
)

const (
	// pullChunk is what one Get of a pull fetches, and pullWindow how many are under way: a pull has at most 1 MiB on its way.
	pullChunk  = 256 << 10
	pullWindow = 4
	// maxPulls bounds the pulls of a component, and principalPulls those of one principal. More wait for their turn.
	maxPulls       = 16
	principalPulls = 4
)

// pulls are the turns of principals that have this component fetch bytes.
type pulls struct {
	mu    sync.Mutex
	all   int
	by    map[string]int
	freed chan struct{} // closed when one ends; nil: none is waited for
}

// begin waits for a turn, until the context ends.
func (p *pulls) begin(ctx context.Context, who string) error {
	for {
		p.mu.Lock()
		if p.all < maxPulls && p.by[who] < principalPulls {
			if p.by == nil {
				p.by = map[string]int{}
			}
			p.all, p.by[who] = p.all+1, p.by[who]+1
			p.mu.Unlock()
			return nil
		}
		if p.freed == nil {
			p.freed = make(chan struct{})
		}
		freed, n := p.freed, p.by[who]
		p.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %q has %d copies between nodes under way here, at most %d, and all have at most %d: wait for some of them (%w)",
				pool.ErrMemory, who, n, principalPulls, maxPulls, context.Cause(ctx))
		}
	}
}

func (p *pulls) end(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all, p.by[who] = p.all-1, p.by[who]-1; p.by[who] == 0 {
		delete(p.by, who)
	}
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// Read gives a principal keys by which another component can read bytes.
func (c *Component) Read(who cluster.Principal, req *pool.ReadRequest) (*pool.ReadReply, error) {
	if req.Size > pool.MaxCopyBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d in one request", pool.ErrSpec, req.Size, pool.MaxCopyBytes)
	}
	u, err := c.use(who, req.From, fabric.RightRead)
	if err != nil {
		return nil, err
	}
	defer u.unpin()
	if err := u.has(req.Off, req.Size); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Whatever became of it meanwhile: what ended has no keys to narrow.
	r, err := c.known(pool.NameRequest{Region: req.From.Region})
	if err != nil {
		return nil, err
	}
	reply := &pool.ReadReply{Pieces: []pool.Source{}}
	add := func(a *answer, keys ring, root fabric.Key, at, size, from, to uint64) error {
		k, err := c.keys.give(a, keys, root, at, size)
		if err == nil {
			reply.Pieces = append(reply.Pieces, pool.Source{Key: k.Append(nil), Off: from, Size: to - from})
		}
		return err
	}
	end := req.Off + req.Size
	if it := r.dir.items[req.From.Item]; req.From.Item != 0 {
		if it == nil || it.gen != req.From.Epoch || r.itemRights(it, who)&fabric.RightRead == 0 {
			return nil, fmt.Errorf("%w: item %d of region %s: look it up again", pool.ErrMoved, req.From.Item, r.label())
		}
		it.holds(who)
		a := &answer{who: who.Name, rights: fabric.RightRead, ages: ofItem}
		for _, p := range it.pieces {
			if from, to := max(req.Off, p.off), min(end, p.off+p.size); from < to {
				if err := add(a, p.keys, p.root, p.at, p.size, from-p.off, to-p.off); err != nil {
					return nil, err
				}
			}
		}
		return reply, nil
	}
	if r.rights(who)&fabric.RightRead == 0 {
		return nil, r.forbidden(who, cluster.NeedRights(fabric.RightRead))
	}
	a := r.answer(who, fabric.RightRead)
	for _, e := range r.extents {
		if from, to := max(req.Off, e.off), min(end, e.off+e.size); from < to {
			if err := add(a, e.keys, e.root, 0, e.seg.Size(), from-e.off, to-e.off); err != nil {
				return nil, err
			}
		}
	}
	return reply, nil
}

// Pull fetches bytes from another component. reach finds the connection to it.
func (c *Component) Pull(ctx context.Context, who cluster.Principal, req *pool.PullRequest, reach func(ctx context.Context, component string) (*fabric.Endpoint, error)) error {
	size := req.Size()
	if size > pool.MaxCopyBytes || len(req.Pieces) > pool.MaxExtents {
		return fmt.Errorf("%w: %d pieces of %d bytes, at most %d of %d in one request", pool.ErrSpec, len(req.Pieces), size, pool.MaxExtents, pool.MaxCopyBytes)
	}
	to, err := c.use(who, req.To, fabric.RightWrite)
	if err != nil {
		return err
	}
	defer to.unpin()
	if err := to.has(req.ToOff, size); err != nil {
		return err
	}
	if err := c.pulls.begin(ctx, who.Name); err != nil {
		return err
	}
	defer c.pulls.end(who.Name)
	ep, err := reach(ctx, req.From)
	if err != nil {
		return err
	}
	at := req.ToOff
	for _, p := range req.Pieces {
		k, err := fabric.DecodeKey(p.Key)
		if err != nil {
			return fmt.Errorf("%w: %w", pool.ErrSpec, err)
		}
		if k.Owner != ep.Incarnation() {
			return fmt.Errorf("%w: node %s was restarted since its keys were made", pool.ErrLost, req.From)
		}
		if err := fetch(ctx, ep.Served(k), p.Off, to, at, p.Size); err != nil {
			return fmt.Errorf("from node %s: %w", req.From, pool.VerbError(err))
		}
		at += p.Size
	}
	return nil
}

// chunkOp is a Get of a pull.
type chunkOp struct {
	op  fabric.Op
	mem []byte
	off uint64
}

// fetch gets bytes of a peer into memory of ours, several chunks at a time.
func fetch(ctx context.Context, from *fabric.Remote, off uint64, to *used, at, n uint64) (err error) {
	var ops []chunkOp
	wait := func(most int) {
		for len(ops) > most { // each must end
			o := ops[0]
			ops = ops[1:]
			e := o.op.Wait(ctx)
			if errors.Is(e, fabric.ErrBackpressure) && err == nil {
				e = from.Get(ctx, o.mem, o.off) // waits for its turn
			}
			if err == nil {
				err = e
			}
		}
	}
	for done := uint64(0); done < n && err == nil; {
		to.span(at+done, min(pullChunk, n-done), func(mem []byte) {
			wait(pullWindow - 1)
			ops = append(ops, chunkOp{from.StartGet(mem, off+done), mem, off + done})
			done += uint64(len(mem))
		})
	}
	wait(0)
	return err
}
