package inject

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// releaser is what has room in an engine: an instance, or a place for one.
type releaser interface{ Release() }

// errNoRoom says that a run has to wait for room (await). Only the runtime sees it.
var errNoRoom = errors.New("inject: the engine has no room just now")

// fresh reports whether a run can start over without anybody noticing: it has sent and written nothing, finds no scratch of
// earlier runs, and its payload is still here. It does so once. mu is held.
func (h *host) fresh() bool {
	return !h.again && !h.acted && !h.replied && !h.goes && !h.over && h.held == nil
}

// Scratch keeps the instance, and with it its scratch, for this invocation's
// later branches here. Of a run that finds no room for it, and has done nothing yet, the instance goes, and the run waits with the
// others and starts over: so a waiting run holds nothing here that others wait for.
func (h *host) Scratch(n uint64, short error) (abi.Status, error) {
	if h.held != nil && short == nil {
		return abi.OK, nil
	}
	rt := h.rt
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if h.bound.scratch = n; short != nil && h.run.Stateful() {
		if h.fresh() {
			h.scratch, h.again = n, true
			return abi.ErrBackpressure, errNoRoom
		}
		h.told("scratch", abi.ErrLimit)
		h.crowded = true
		h.lastError = fmt.Sprintf("no room for %d KiB of scratch, and it can only wait for that before it has done anything else: %v; or start fewer at once, or ask for all scratch at first", n>>10, short)
		return abi.ErrLimit, nil
	}
	if h.held != nil {
		return abi.OK, nil
	}
	state := &held{instance: h.instance, bound: h.bound, what: h.run.Binding().What}
	state.next, _ = h.run.State().(*held)
	if err := rt.core.HoldState(h.run, state); err != nil {
		if errors.Is(err, travel.ErrLimit) && !h.run.Stateful() {
			err = fmt.Errorf("%w: the manifest of the function that was called sets no limits.scratch_bytes: set it to the bytes of scratch that are needed at most", travel.ErrLimit)
		}
		return h.status("scratch", err), nil
	}
	h.held = state
	h.bound.runs++
	return abi.OK, nil
}

// unlist takes a bound off the list of those that may keep an instance, and
// appends the one it keeps to idle. mu is held.
func (rt *Runtime) unlist(b *bound, idle []releaser) []releaser {
	if i := slices.Index(rt.spares, b); i >= 0 {
		rt.spares = slices.Delete(rt.spares, i, i+1)
	}
	b.listed = false
	if in := rt.takeSpare(b); in != nil {
		idle = append(idle, in)
	}
	return idle
}

// unlistAll has the instances go back that are kept at hand for such bounds. mu is held.
func (rt *Runtime) unlistAll(which func(*bound) bool) {
	for i := len(rt.spares) - 1; i >= 0; i-- {
		if b := rt.spares[i]; which(b) {
			rt.release = rt.unlist(b, rt.release)
		}
	}
}

// noPlace is what a run gets that waited at an engine which has closed.
type noPlace struct{ err error }

func (p noPlace) Acquire(context.Context) (abi.Instance, error) { return nil, p.err }
func (noPlace) Ready() bool                                     { return true }
func (noPlace) Release()                                        {}

// acquire takes an instance from the engine: in the place that the run has waited for, or, if no run waits for
// one, in a new one.
func (rt *Runtime) acquire(h *host) (abi.Instance, error) {
	place := h.place
	if h.place = nil; place == nil {
		rt.mu.Lock()
		waits := rt.core.AwaitsRoom(h.principal)
		rt.mu.Unlock()
		if waits {
			return nil, errNoRoom
		}
		var err error
		place, err = h.bound.run.Reserve(0)
		if errors.Is(err, abi.ErrEngineBusy) {
			return nil, errNoRoom
		}
		if err != nil {
			return nil, err
		}
	}
	if place.Ready() {
		return place.Acquire(context.Background())
	}
	h.own(true) // what is made takes milliseconds, or seconds where a process does not answer: others go on meanwhile
	h.release()
	return place.Acquire(h.waitContext())
}

// await gives a run back to the core until there is room for it; its host stays with it. It reports whether there is more to do.
func (rt *Runtime) await(h *host) (more bool) {
	if h.instance != nil { // it starts over
		h.instance.Release()
		h.instance = nil
	}
	if h.endSpan != nil {
		h.endSpan(nil)
		h.endSpan = nil
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	h.rest()
	if h.bound.stale { // made by several at once: one is kept
		if b := rt.lookup(h.run, h.principal); b != nil {
			rt.leaveBound(h)
			h.bound = b
		}
	}
	if h.scratch == 0 && h.run.Stateful() {
		h.scratch = h.bound.scratch // as it will want about as much as others of its kind
	}
	now := rt.now()
	if !rt.core.Await(now, h.run, h.bound.run.Need(h.scratch)) {
		rt.leaveBound(h)
		rt.freeHost(h)
	}
	rt.soon(now)
	return rt.pending()
}

// rest clears what a host knows of a run that is given back and starts over. mu is held.
func (h *host) rest() {
	h.rests()
	h.told("", abi.OK)
	h.unname()
	h.message, h.leads, h.away, h.now, h.payload, h.dealt, h.said, h.slices, h.sent = fabric.Message{}, false, false, 0, nil, false, h.said[:0], 0, 0
	h.took, h.untypical = 0, false
}

// resume makes the host of a run that has waited ready to go on. mu is held.
func (rt *Runtime) resume(h *host) *host {
	h.payload, h.deadline = h.run.Payload, h.run.Deadline()
	if !rt.holds(h.bound) { // it is made anew, and fails or waits once more
		rt.leaveBound(h)
		rt.leavePlace(h)
		h.bound = rt.lookup(h.run, h.principal)
	}
	return h
}

// leaveBound takes a run off its bound. mu is held.
func (rt *Runtime) leaveBound(h *host) {
	h.bound.runs--
	rt.closeStale(h.bound)
	h.bound = nil
}

// leavePlace gives back the place that a run has waited for. mu is held.
func (rt *Runtime) leavePlace(h *host) {
	if h.place != nil {
		rt.release = append(rt.release, h.place)
		h.place = nil
	}
}

// roomFreed tells the core that an engine has room again: what was being given back (freeing) is.
func (rt *Runtime) roomFreed() {
	rt.mu.Lock()
	rt.freeing--
	rt.core.RoomFreed()
	rt.mu.Unlock()
}

// Reserve takes the place that a run waits for. If there is none, what is kept at hand goes back to the engines: all of it if an
// engine is full, that of the run's principal if the principal has its share.
func (fx *effects) Reserve(r *travel.Run) travel.Room {
	rt, h := (*Runtime)(fx), r.User.(*host)
	place, err := h.bound.run.Reserve(h.scratch)
	if err == nil {
		h.place = place
		return travel.RoomTaken
	}
	switch {
	case errors.Is(err, abi.ErrShareBusy):
		rt.unlistAll(func(b *bound) bool { return b.principal == h.principal })
		return travel.RoomShare
	case errors.Is(err, abi.ErrEngineBusy):
		rt.unlistAll(func(*bound) bool { return true })
		return travel.RoomShort
	}
	h.place = noPlace{err} // the run ends with that
	return travel.RoomTaken
}

// Freeing reports whether instances are on their way back to their engines.
func (fx *effects) Freeing() bool { return fx.freeing > 0 || len(fx.release) > 0 }

// Unreserve frees the host of a run that waited in vain, for room or for its program.
func (fx *effects) Unreserve(r *travel.Run) {
	rt, h := (*Runtime)(fx), r.User.(*host)
	if h.load != nil {
		rt.delist(h)
	}
	rt.leavePlace(h)
	if h.bound != nil {
		rt.leaveBound(h)
	}
	rt.freeHost(h)
}

// held is an instance that an invocation keeps at this element, because its
// scratch is in it.
type held struct {
	instance abi.Instance
	bound    *bound
	what     travel.What // that the invocation runs in it
	next     *held       // of another function of the invocation
}

// of finds the instance of a function among those of an invocation; nil if there is none.
func (in *held) of(what travel.What) *held {
	for in != nil && in.what != what {
		in = in.next
	}
	return in
}

func (in *held) release(rt *Runtime) {
	if in.next != nil {
		in.next.release(rt)
	}
	b, inst := in.bound, in.instance
	if b.runs--; b.runs == 0 && b.stale {
		rt.sweep = append(rt.sweep, b)
	}
	if rt.closed {
		inst.Release()
		return
	}
	rt.work.Add(1)
	rt.freeing++
	go func() { // zeroing scratch takes a while, and mu is held
		defer rt.work.Done()
		inst.Release()
		rt.roomFreed()
		rt.after()
	}()
}
