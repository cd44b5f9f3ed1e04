package inject

import (
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// hostOf makes a light run's host. mu is held.
func (rt *Runtime) hostOf(run *travel.Run) *host {
	set, _ := run.Binding().Data.(*boundSet)
	if set == nil || set.last == nil || set.last.spare == nil || set.last.principal != rt.principal(run) || !rt.holds(set.last) {
		return rt.equip(rt.idleHost(), run)
	}
	h, b := rt.idleHost(), set.last
	b.runs++
	h.run, run.User, h.principal = run, h, b.principal
	h.worker, h.workers = run.Worker() // the host may have been another worker's
	h.payload, h.deadline = run.Payload, run.Deadline()
	h.bound, h.instance, b.spare = b, b.spare, nil
	return h
}

// visit runs a branch whose run is light. Most end as such: what they
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
		if h.run.Light() && rt.leave(h) {
			more = rt.pending()
			rt.mu.Unlock()
			return more
		}
		rt.mu.Unlock()
	}
	return rt.conclude(h, status, err)
}

// leave ends a light run within its first slice that answers or goes on; false: the run is not light, or that takes more. mu is held.
func (rt *Runtime) leave(h *host) bool {
	now, moved := h.now, len(h.run.Payload)
	if h.goes {
		moved += len(h.onward)
	} else {
		moved += len(h.reply)
	}
	if !h.goes {
		if !rt.core.Answer(h.run, h.reply, h.replied) {
			return false
		}
	} else if n, _, st := h.peer(h.to); st != abi.OK || n == travel.Self || !rt.core.Onward(now, h.run, n, h.onward) {
		return false
	}
	b := h.bound
	of := b.code.base()
	of.used, b.code.used = now, now
	past := &of.history[b.form]
	past.runs++
	past.bytes += uint64(moved)
	if b.form == image.Wasm {
		of.tally.Light()
	} else {
		rt.judge(now, h)
		h.took, h.untypical = 0, false
	}
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
		h.run, h.bound, h.instance, h.leads, h.now, h.principal = nil, nil, nil, false, 0, ""
		h.reply, h.replied, h.goes, h.acted = h.reply[:0], false, false, false
		rt.hosts = append(rt.hosts, h)
	}
	rt.soon(now)
	return true
}
