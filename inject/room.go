package inject

import (
	"context"
	"errors"
	"slices"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// releaser is what has room in an engine: an instance, or a place for one.
type releaser interface{ Release() }

// errNoRoom says that a run has to wait for room (await). Only the runtime sees it.
var errNoRoom = errors.New("inject: the engine has no room just now")

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

// noPlace is what a run gets that waited at an engine which has closed.
type noPlace struct{ err error }

func (p noPlace) Acquire(context.Context) (abi.Instance, error) { return nil, p.err }
func (noPlace) Release()                                        {}

// acquire takes an instance from the engine: in the place that the run has waited for, or, if nobody waits for
// one, in a new one.
func (rt *Runtime) acquire(h *host) (abi.Instance, error) {
	place := h.place
	if h.place = nil; place == nil {
		rt.mu.Lock()
		waits := rt.core.AwaitsRoom()
		rt.mu.Unlock()
		if waits {
			return nil, errNoRoom
		}
		var err error
		place, err = h.bound.run.Reserve()
		if errors.Is(err, abi.ErrEngineBusy) {
			return nil, errNoRoom
		}
		if err != nil {
			return nil, err
		}
	}
	return place.Acquire(context.Background())
}

// await gives a run back to the core until there is room for it; its host stays with it. It reports whether there is more to do.
func (rt *Runtime) await(h *host) (more bool) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	h.become()
	h.message, h.leads, h.away, h.now, h.payload = fabric.Message{}, false, false, 0, nil
	if h.bound.stale { // made by several at once: one is kept
		if b := rt.lookup(h.run, h.principal); b != nil {
			rt.leaveBound(h)
			h.bound = b
		}
	}
	now := rt.now()
	if !rt.core.Await(now, h.run, h.bound.run.Need()) {
		rt.leaveBound(h)
		rt.freeHost(h)
	}
	rt.soon(now)
	return rt.pending()
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

// roomFreed tells the core that an engine has room again.
func (rt *Runtime) roomFreed() {
	rt.mu.Lock()
	rt.core.RoomFreed()
	rt.mu.Unlock()
}

// Reserve takes the place that a run waits for. If there is none, what is kept at hand goes back to the engines.
func (fx *effects) Reserve(r *travel.Run) travel.Room {
	rt, h := (*Runtime)(fx), r.User.(*host)
	place, err := h.bound.run.Reserve()
	if err == nil {
		h.place = place
		return travel.RoomTaken
	}
	for len(rt.spares) > 0 {
		rt.release = rt.unlist(rt.spares[0], rt.release)
	}
	switch {
	case errors.Is(err, abi.ErrShareBusy):
		return travel.RoomShare
	case errors.Is(err, abi.ErrEngineBusy):
		return travel.RoomShort
	}
	h.place = noPlace{err} // the run ends with that
	return travel.RoomTaken
}

// Unreserve frees the host of a run that waited in vain.
func (fx *effects) Unreserve(r *travel.Run) {
	rt, h := (*Runtime)(fx), r.User.(*host)
	rt.leavePlace(h)
	rt.leaveBound(h)
	rt.freeHost(h)
}

// held is an instance that an invocation keeps at this element, because its
// scratch is in it.
type held struct {
	instance abi.Instance
	bound    *bound
}

func (in *held) release(rt *Runtime) {
	b, inst := in.bound, in.instance
	if b.runs--; b.runs == 0 && b.stale {
		rt.sweep = append(rt.sweep, b)
	}
	if rt.closed {
		inst.Release()
		return
	}
	rt.work.Add(1)
	go func() { // zeroing scratch takes a while, and mu is held
		defer rt.work.Done()
		inst.Release()
		rt.roomFreed()
		rt.after()
	}()
}
