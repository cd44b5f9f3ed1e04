package nvme

import "slices"

// Compare and Write is two commands in a row that are carried out as one: the blocks are written if they are as expected, and no other write comes in between.
// What the leader carries out in its turn is whole by itself. A pair that blocks is done by a worker; it begins only when no write of its blocks is under way, and until it ends
// none begins. A pair that waits for such a write claims its blocks: no write that comes later begins before it.

// pair carries out the fused command at the queue's head, with the next if it belongs to it. left and room are what the doorbells say.
func (q *queue) pair(mem []byte, first *Command, left, room uint32) (took uint32, moved int, done bool) {
	e := q.c.e
	var second Command
	if left > 1 {
		second = q.fetch(mem, 1)
	}
	if first.Fused != fusedFirst || second.Fused != fusedSecond {
		o := e.take(q, first.ID)
		q.advance(1)
		q.c.post(q, o.id, StatusFusedMissing)
		e.end(o)
		return 1, 0, true
	}
	if q.needs = 1; room < 2 || e.ops+2 > maxOps {
		q.c.crew.unclaim(e, q)
		return 0, 0, false
	}
	o := e.take(q, first.ID)
	o.second = e.take(q, second.ID)
	q.advance(2)
	if moved, done = o.executePair(first, &second); !done {
		q.advance(q.entries - 2)
		return 0, 0, false
	}
	return 2, moved, true
}

// executePair is execute of two.
func (o *op) executePair(first, second *Command) (moved int, done bool) {
	s := o.second
	first.Fused, second.Fused = 0, 0
	switch {
	case first.Op != OpCompare || second.Op != OpWrite || first.Block != second.Block || first.Blocks != second.Blocks:
		o.status, s.status = StatusField, StatusFusedFailed
	default:
		if o.status = o.prepare(first); o.status != StatusOK {
			s.status = StatusFusedFailed
		} else if s.status = s.prepare(second); s.status != StatusOK {
			o.status = StatusFusedFailed
		}
	}
	if o.status != StatusOK {
		o.postPair()
		o.c.e.end(o)
		return 0, true
	}
	return o.run()
}

// doPair is do of two.
func (o *op) doPair(wait bool) error {
	if err := o.c.backing.Do(&o.req, wait); err != nil {
		return err
	}
	if o.status = o.compare(); o.status != StatusOK {
		return nil
	}
	err := o.c.backing.Do(&o.second.req, wait)
	if err == ErrWait {
		return err
	}
	if err != nil {
		o.second.status = statusOf(OpWrite, err)
	}
	return nil
}

// postPair says how both ended.
func (o *op) postPair() {
	o.c.post(o.q, o.id, o.status)
	o.c.post(o.second.q, o.second.id, o.second.status)
}

// writes reports whether a command changes blocks.
func (o *op) writes() bool {
	return o.second != nil || len(o.ranges) > 0 || o.req.Op == OpWrite || o.req.Op == OpWriteZeroes
}

// overlaps reports whether two commands are about some of the same blocks.
func (o *op) overlaps(w *op) bool {
	if len(o.ranges) > 0 {
		return slices.ContainsFunc(o.ranges, w.touches)
	}
	return w.touches(o.req)
}

func (o *op) touches(r Request) bool {
	if len(o.ranges) > 0 {
		return slices.ContainsFunc(o.ranges, func(own Request) bool { return own.Off < r.Off+r.Size && r.Off < own.Off+own.Size })
	}
	return o.req.Off < r.Off+r.Size && r.Off < o.req.Off+o.req.Size
}

// claim is a pair that waits, at the head of its queue.
type claim struct {
	q   *queue
	req Request
}

// blocked reports whether a write has to wait for one that is under way, or for a pair that came before it, and then says so to its queue; Engine.mu is held.
func (k *crew) blocked(o *op) bool {
	if o.second == nil && k.pairs == 0 && len(k.claims) == 0 || !o.writes() {
		return false
	}
	waits := slices.ContainsFunc(k.writing, func(w *op) bool { return (o.second != nil || w.second != nil) && o.overlaps(w) })
	own := false
	for _, c := range k.claims { // in the order in which they came
		if own = c.q == o.q; own {
			break
		}
		waits = waits || o.touches(c.req)
	}
	switch {
	case !waits:
		k.unclaim(o.c.e, o.q)
		return false
	case o.second != nil && !own:
		k.claims = append(k.claims, claim{o.q, o.req})
	}
	o.q.blocked, k.waits = true, true
	return true
}

// unclaim is called when a queue's pair begins, cannot, or is another command now: it is not to keep others waiting for a place of its own. Engine.mu is held.
func (k *crew) unclaim(e *Engine, q *queue) {
	if i := slices.IndexFunc(k.claims, func(c claim) bool { return c.q == q }); i >= 0 {
		k.claims = slices.Delete(k.claims, i, i+1)
		k.look(e)
		e.ring() // a lease that ends is no leader's turn
	}
}

// look has the queues that wait look again; Engine.mu is held.
func (k *crew) look(e *Engine) {
	if !k.waits {
		return
	}
	k.waits = false
	for _, q := range e.queues {
		if q.c.crew == k {
			q.blocked = false
		}
	}
}

// begun notes a write that goes on after the leader's turn; Engine.mu is held.
func (k *crew) begun(o *op) {
	if o.noted || !o.writes() {
		return
	}
	o.noted = true
	k.writing = append(k.writing, o)
	if o.second != nil {
		k.pairs++
	}
}

// over undoes begun: whoever waited looks again. e.mu is held.
func (e *Engine) over(k *crew, o *op) {
	if !o.noted {
		return
	}
	i := slices.Index(k.writing, o)
	k.writing = slices.Delete(k.writing, i, i+1)
	if o.second != nil {
		k.pairs--
	}
	k.look(e)
}
