package sim

import (
	"context"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/fabric"
)

// Transport is the fabric.Transport of one life of a host. Elements get theirs
// from the network; addresses are "sim://" and a host's name.
type Transport struct {
	h      *Host
	accept func(fabric.Pending) // nil: it does not listen
	ends   []*wireEnd
	ready  []*wireEnd // scratch
	active bool       // something happened since the host's last round began
}

var (
	_ fabric.Transport = (*Transport)(nil)
	_ fabric.Link      = (*wireEnd)(nil)
	_ fabric.FDCarrier = (*wireEnd)(nil)
)

// Scheme implements fabric.Transport.
func (t *Transport) Scheme() string { return "sim" }

// Listen implements fabric.Transport; addr is the host's own name.
func (t *Transport) Listen(addr string, accept func(fabric.Pending)) (string, error) {
	switch {
	case addr != t.h.Name:
		return "", fmt.Errorf("sim: %s cannot listen at %q: a host's address is its name", t.h.Name, addr)
	case t.accept != nil:
		return "", fmt.Errorf("sim: %s listens already", t.h.Name)
	}
	t.accept = accept
	return addr, nil
}

// Dial implements fabric.Transport. It waits, so it belongs in a call (Host.Go).
func (t *Transport) Dial(ctx context.Context, addr string) (fabric.Pending, error) {
	return t.h.net.dial(ctx, t.h, addr)
}

// Poll implements fabric.Transport. Called by a call that waits, it lets the
// world go on until it is the host's turn again.
func (t *Transport) Poll(budget int, turn fabric.Turn) int {
	h := t.h
	if p := h.net.cur; p != nil {
		h.leading = p
		p.park()
		h.leading = nil
	} else if !h.inTurn {
		panic("sim: a call of the fabric waits outside Host.Go: nothing could happen meanwhile")
	}
	limit := min(budget, 1+h.net.W.Rand.IntN(h.net.Faults.Burst))
	for n := range limit {
		e := t.pick(true)
		if e == nil {
			return n
		}
		t.active = true
		e.step()
		if turn.Over() {
			return n + 1
		}
	}
	return limit
}

// pick is an end that has something for the element, nil if none has: a random
// one, as endpoints have no order between each other.
func (t *Transport) pick(random bool) *wireEnd {
	t.ready = t.ready[:0]
	for _, e := range t.ends {
		if e.hasWork() {
			if !random {
				return e
			}
			t.ready = append(t.ready, e)
		}
	}
	switch n := len(t.ready); n {
	case 0:
		return nil
	case 1:
		return t.ready[0]
	default:
		return t.ready[t.h.net.W.Rand.IntN(n)]
	}
}

func (t *Transport) forget(e *wireEnd) {
	if i := slices.Index(t.ends, e); i >= 0 {
		t.ends = slices.Delete(t.ends, i, i+1)
	}
}

// Arm implements fabric.Transport: an element driven by Progress never sleeps.
func (t *Transport) Arm() bool { return true }

// Disarm implements fabric.Transport.
func (t *Transport) Disarm() {}

// WaitFD implements fabric.Transport: there is nothing to sleep on.
func (t *Transport) WaitFD() int { return -1 }

// Features implements fabric.Transport.
func (t *Transport) Features() fabric.TransportFeatures { return fabric.TransportFeatures{} }

// Close implements fabric.Transport.
func (t *Transport) Close() error {
	t.accept = nil
	for _, e := range slices.Clone(t.ends) {
		e.Close()
	}
	return nil
}
