package inject

import (
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// A function that starts by chunk (image.StartChunk) may have several workers at each element. To it each of them is an element: with two,
// numbers 0 and 1 are element 0 of the table, 2 and 3 element 1.

// ErrWorkers says that a function cannot have several workers at an element.
var ErrWorkers = errors.New("inject: the function has one worker at an element")

// checkWorkers finds workers for a function that does not share its element's data among them.
func (f *Function) checkWorkers(o *Options) error {
	switch {
	case o.Workers > travel.MaxWorkers:
		return fmt.Errorf("%w: %d workers at an element, at most %d", travel.ErrLimit, o.Workers, travel.MaxWorkers)
	case o.Workers > 1 && f.img.Call().Start != image.StartChunk:
		return fmt.Errorf("%w: %s does not share an element's rows among several, or its manifest would say \"start\": %q: leave the workers out", ErrWorkers, f.img.Name(), image.StartChunk)
	}
	return nil
}

// checkWorkers refuses a run as one of several workers to a function that takes elements for what they are: what its instance was told of
// them holds for its other runs too.
func (h *host) checkWorkers() error {
	if h.workers > 1 && h.bound.code.img.Call().Start != image.StartChunk {
		return refuse(travel.CodeRefused, "%s was sent as worker %d of %d, and its manifest does not say \"start\": %q: call it without workers", h.bound.code.img.Name(), h.worker, h.workers, image.StartChunk)
	}
	return nil
}

// Self is the number of this element's worker; 0 without a table.
func (h *host) Self() uint32 {
	return uint32(max(h.bound.self, 0))*uint32(h.workers) + uint32(h.worker)
}

// Elements is how many workers all elements of the table have; one each, as a rule.
func (h *host) Elements() uint32 {
	if h.bound.table == nil {
		return uint32(h.workers)
	}
	return uint32(len(h.bound.table.Shards)) * uint32(h.workers)
}

// element is the element of the table that a number stands for.
func (h *host) element(number uint32) uint32 { return number / uint32(h.workers) }

// peer resolves a number to its endpoint's number, and a worker there. mu is held.
func (h *host) peer(number uint32) (to travel.Peer, worker uint8, st abi.Status) {
	element, worker := h.element(number), uint8(number%uint32(h.workers))
	to, st = h.peerOf(element, number)
	return to, worker, st
}
