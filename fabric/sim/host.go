package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// Host is a place in a network; each of its lives is an element.
type Host struct {
	Name  string
	Index int

	net     *Network
	program Program
	life    int
	el      *fabric.Element // nil while it has no life
	port    *Port           // of a Live network, in place of an element that the world drives
	cfg     fabric.Config
	tr      *Transport

	turnAt int64 // when its next round is due; 0: none is planned
	turns  uint64
	inTurn bool // inside Element.Progress

	procs    []*proc // goroutines of this life
	calls    []func(context.Context)
	caller   *proc   // the one that runs a call
	leading  *proc   // the one that waits inside the transport's Poll
	resting  []*proc // those that wait while another leads
	timeouts []*timeout
}

// ErrCrashed is the cause of a context whose host crashed.
var ErrCrashed = errors.New("sim: the host crashed")

// Alive reports whether the host has an element.
func (h *Host) Alive() bool { return h.el != nil || h.port != nil }

// Element is the element of the host's current life, nil if it has none.
func (h *Host) Element() *fabric.Element { return h.el }

// Life counts the host's lives and their ends: a number stands for one life only.
func (h *Host) Life() int { return h.life }

// Network is where the host is.
func (h *Host) Network() *Network { return h.net }

// Boot begins the host's next life, under a new incarnation.
func (h *Host) Boot() error {
	if h.Alive() {
		return nil
	}
	h.life++
	h.tr = &Transport{h: h}
	h.cfg = fabric.Config{Name: h.Name}
	if h.program.Configure != nil {
		h.program.Configure(h, &h.cfg)
	}
	h.cfg.Transports = []fabric.Transport{h.tr}
	h.cfg.Manual, h.cfg.Now = true, func() int64 { return h.net.W.now }
	h.cfg.Scheduler = scheduler{h}
	h.cfg.Policy = fabric.Efficient // others count polls, which take no time here, until they look at the clock
	h.cfg.Incarnation = fabric.Incarnation(h.net.W.Rand.Uint64() | 1)
	el, err := fabric.New(h.cfg)
	if err != nil {
		return fmt.Errorf("sim: %s: %w", h.Name, err)
	}
	h.el = el
	h.net.observe(Event{Kind: EventBoot, Host: h.Index})
	if h.program.Start != nil {
		if err := h.program.Start(h); err != nil {
			h.Crash()
			return fmt.Errorf("sim: %s: %w", h.Name, err)
		}
	}
	h.kick()
	return nil
}

// Do runs something in the host's current life d from now; if that life has
// ended by then, nothing happens. It must not block: use started operations, Post and TrySend.
func (h *Host) Do(d time.Duration, do func()) {
	life := h.life
	h.net.W.After(d, func() {
		if h.life == life && h.Alive() {
			do()
			h.kick()
		}
	})
}

// kick plans a round soon.
func (h *Host) kick() { h.plan(h.net.W.now + int64(h.net.W.Between(0, h.net.Faults.Lag))) }

// plan has the host do a round at the time at, if not sooner.
func (h *Host) plan(at int64) {
	if h.turnAt != 0 && h.turnAt <= at || !h.Alive() {
		return
	}
	h.turnAt = at
	h.turns++
	mine := h.turns
	h.net.W.After(time.Duration(at-h.net.W.now), func() {
		if h.turns == mine && h.Alive() {
			h.turnAt = 0
			h.turn()
		}
	})
}

// turn is one round of the element's progress: by the call that waits, if there
// is one, as that leads.
func (h *Host) turn() {
	if h.port != nil {
		h.port.turn()
		return
	}
	h.tr.active = false
	if p := h.leading; p != nil {
		p.resume()
	} else {
		h.inTurn = true
		h.el.Progress()
		h.inTurn = false
	}
	for _, p := range h.rested() {
		p.resume()
	}
	switch {
	case !h.Alive():
	case h.tr.active || h.tr.pick(false) != nil:
		h.kick()
	default:
		h.plan(h.net.W.now + int64(h.net.W.Between(restTime/2, restTime)))
	}
}

// Crash ends the host's life as power does: what was under way from it arrives up
// to some point, or not at all; the contexts of its calls end, and its memory is gone. Called from
// inside the life it happens at once after the present event.
func (h *Host) Crash() {
	if h.net.cur != nil || h.inTurn {
		life := h.life
		h.net.W.After(0, func() {
			if h.life == life {
				h.Crash()
			}
		})
		return
	}
	if !h.Alive() {
		return
	}
	h.die()
}

// Stop ends the host's life in an orderly way, at once after the present event: calls end
// with their contexts, then the element is closed, and says goodbye.
func (h *Host) Stop() {
	life := h.life
	h.net.W.After(0, func() {
		if h.life != life || !h.Alive() {
			return
		}
		h.calls = nil
		for _, e := range slices.Clone(h.tr.ends) {
			if e.pending != nil {
				e.Close()
			}
		}
		h.drain()
		el := h.el
		h.over()
		el.Close()
		h.drain()
	})
}

// die is a crash. What the dead life's callbacks do meanwhile is its own business: Alive is false.
func (h *Host) die() {
	el := h.el
	h.over()
	for _, e := range slices.Clone(h.tr.ends) {
		e.crash()
	}
	h.drain()
	el.Close()
	h.drain() // what that began
}

// over takes the host's life from it.
func (h *Host) over() {
	h.el = nil
	h.life++
	h.turns++
	h.turnAt = 0
	h.calls = nil
	h.net.observe(Event{Kind: EventCrash, Host: h.Index})
}

// drain lets calls run on until they have noticed that their contexts ended.
func (h *Host) drain() {
	for _, t := range slices.Clone(h.timeouts) {
		t.cancel(ErrCrashed)
	}
	h.timeouts = nil
	for i := 0; len(h.procs) > 0; i++ {
		if i == drainRounds {
			panic(fmt.Sprintf("sim: %v: a call at %s does not end though its context has", h.net.W, h.Name))
		}
		h.procs[i%len(h.procs)].resume()
	}
	h.resting = nil
}

// drainRounds is how often a call may look at its ended context before it is
// said to hang: one that polls looks every few polls.
const drainRounds = 100_000
