package inject

import (
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// hostOf makes a visit's host; the visit becomes a run if not all that it needs is at hand. mu is held.
func (rt *Runtime) hostOf(v *travel.Visit) *host {
	set, _ := v.Binding.Data.(*boundSet)
	principal := rt.about[v.Origin()].principal
	h := rt.idleHost()
	v.User, v.Run = h, &h.run
	if set != nil && set.last != nil && set.last.principal == principal && set.last.spare != nil && rt.holds(set.last) {
		b := set.last
		b.runs++
		h.payload, h.deadline = v.Payload, v.Deadline()
		h.bound, h.instance, b.spare = b, b.spare, nil
		return h
	}
	rt.core.Become()
	return rt.equip(h, h.run)
}

// become makes a visit a run. mu is held.
func (h *host) become() {
	if h.run == nil {
		h.rt.core.Become()
	}
}

// visit runs a branch that is only a visit so far. Most end as one: what they
// do is here, in as few steps as possible. It reports whether there is more to do (see after).
func (rt *Runtime) visit(h *host) (more bool) {
	status, err := rt.runBranch(h)
	if err != nil {
		if more, back := rt.giveBack(h, err); back {
			return more
		}
	}
	if err == nil && status == abi.OK && h.now != 0 {
		rt.mu.Lock()
		if h.run == nil && rt.leave(h) {
			more = rt.pending()
			rt.mu.Unlock()
			return more
		}
		rt.mu.Unlock()
	}
	return rt.conclude(h, status, err)
}

// leave ends a visit within its first slice that answers or goes on; false: it takes a run. mu is held.
func (rt *Runtime) leave(h *host) bool {
	now := h.now
	if !h.goes {
		if !rt.core.Answer(h.reply, h.replied) {
			return false
		}
	} else if n, st := h.peer(h.to); st != abi.OK || n == travel.Self || !rt.core.Onward(now, n, h.onward) {
		return false
	}
	b := h.bound
	b.code.used = now
	b.code.history[b.form].runs++
	b.runs--
	if b.spare == nil && b.listed && !b.stale {
		b.spare = h.instance
	} else {
		rt.keep(b, h.instance)
		rt.closeStale(b)
	}
	if h.lastStatus != abi.OK || len(h.said) > 0 || h.ctx != nil || cap(h.reply) > keptReplyBytes {
		rt.freeHost(h)
	} else { // nothing else was set
		h.bound, h.instance, h.leads, h.now = nil, nil, false, 0
		h.reply, h.replied, h.goes, h.acted = h.reply[:0], false, false, false
		rt.hosts = append(rt.hosts, h)
	}
	rt.soon(now)
	return true
}
