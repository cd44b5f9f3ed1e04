package rpc

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/fabric"
)

// Options say how a call is served. The zero value: each call on a goroutine of its own, where the handler may
// wait and take its time.
type Options struct {
	// Inline runs the handler on the goroutine that drives the fabric. That saves about a microsecond, and nothing else moves
	// meanwhile: it must be short and must not wait. One that holds up the fabric for 10 ms is named in the log.
	Inline bool
	// Concurrent bounds the calls under this name that are served at once; others wait, within
	// Limits.Queued, and run on goroutines then. 0: only the Peer's own limits hold.
	Concurrent int
	// MaxBytes bounds the request; what is larger is refused with ErrTooLarge before it is
	// fetched. 0: Limits.MaxBytes.
	MaxBytes int
	// Allow, if it is there, says why an endpoint may not make the call: it is refused with that before its request is fetched, read or
	// queued. It runs on the goroutine that drives the fabric.
	Allow func(from *fabric.Endpoint) error
}

// Handler serves one call. What it returns as answer is the Peer's until the answer is sent, and may be
// the request itself. The context ends at the call's deadline, when the
// caller cancels or is lost, and when the Peer closes. Context, call and request
// must not be used after the handler has returned, unless it called Detach.
type Handler func(ctx context.Context, c *Call) ([]byte, error)

// method is a call that is served.
type method struct {
	name string
	id   uint64
	fn   Handler
	opts Options

	line    list.List // under queue.mu: of *Call, that wait for a place
	running atomic.Int64
	gone    atomic.Bool
	once    sync.Once
	idle    chan struct{} // closed when it is gone and nothing runs
}

// enter counts one more call that is served; false if the method has gone, or
// has as many as it may.
func (m *method) enter() (ok bool, busy bool) {
	if m.opts.Concurrent == 0 {
		m.running.Add(1)
	} else if !take(&m.running, 1, int64(m.opts.Concurrent)) {
		return false, !m.gone.Load()
	}
	if m.gone.Load() { // looked at after the count: Deregister does it the other way round
		m.leave()
		return false, false
	}
	return true, false
}

func (m *method) leave() {
	if m.running.Add(-1) == 0 && m.gone.Load() {
		m.once.Do(func() { close(m.idle) })
	}
}

// registry finds methods by their hash. It is never changed, only replaced.
type registry struct {
	slots []*method // open addressing, a power of two, at most half full
	n     int
}

func (r *registry) find(id uint64) *method {
	if r.n == 0 {
		return nil
	}
	for i := id; ; i++ {
		m := r.slots[i&uint64(len(r.slots)-1)]
		if m == nil || m.id == id {
			return m
		}
	}
}

// changed is a registry with one method more, and one less.
func (r *registry) changed(add, remove *method) *registry {
	size := 16
	for size < 2*(r.n+1) {
		size *= 2
	}
	next := &registry{slots: make([]*method, size)}
	for _, m := range append(r.slots[:len(r.slots):len(r.slots)], add) {
		if m == nil || m == remove {
			continue
		}
		i := m.id
		for next.slots[i&uint64(size-1)] != nil {
			i++
		}
		next.slots[i&uint64(size-1)] = m
		next.n++
	}
	return next
}

// HashName is what travels instead of a name: 64-bit FNV-1a.
func HashName(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// Register serves calls of the given name. Two names with one hash are refused,
// so that a call can never reach the wrong handler.
func (p *Peer) Register(name string, fn Handler, o Options) error {
	if name == "" || len(name) > MaxNameBytes || fn == nil {
		return fmt.Errorf("%w: %q: a name has 1 to %d bytes and a handler", ErrName, clipText(name, MaxNameBytes), MaxNameBytes)
	}
	if o.Concurrent < 0 || o.MaxBytes < 0 {
		return fmt.Errorf("rpc: %s: Concurrent %d, MaxBytes %d: neither can be negative", name, o.Concurrent, o.MaxBytes)
	}
	if o.MaxBytes == 0 || o.MaxBytes > p.limits.MaxBytes {
		o.MaxBytes = p.limits.MaxBytes
	}
	m := &method{name: name, id: HashName(name), fn: fn, opts: o, idle: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.methods.Load()
	switch other := r.find(m.id); {
	case other != nil && other.name == name:
		return fmt.Errorf("%w: %q is registered already", ErrName, name)
	case other != nil:
		return fmt.Errorf("%w: %q and %q have the same hash: rename one", ErrName, name, other.name)
	case r.n >= maxNames:
		return fmt.Errorf("%w: %d calls are registered, the most there can be", ErrName, maxNames)
	}
	p.methods.Store(r.changed(m, nil))
	return nil
}

// Deregister ends the serving of a name and waits until no handler of it runs
// any more, or the context ends. New calls are refused with ErrNoSuchCall from the start; those that
// run are not disturbed. A handler must not deregister itself, and with the context of an inline one
// the wait fails with ErrInline.
func (p *Peer) Deregister(ctx context.Context, name string) error {
	p.mu.Lock()
	r := p.methods.Load()
	m := r.find(HashName(name))
	if m == nil || m.name != name {
		p.mu.Unlock()
		return fmt.Errorf("%w: %q is not registered", ErrName, clipText(name, MaxNameBytes))
	}
	p.methods.Store(r.changed(nil, m))
	p.mu.Unlock()
	m.gone.Store(true)
	p.unpark(&m.line) // which are refused now, or go to whatever is registered next
	if m.running.Load() == 0 {
		return nil
	}
	if leads(ctx) { // what runs may need this goroutine to end
		return fmt.Errorf("rpc: deregister %s: %d calls still run: %w", name, m.running.Load(), ErrInline)
	}
	if err := p.layer.Await(ctx, m.idle); err != nil {
		return fmt.Errorf("rpc: deregister %s: %d calls still run: %w", name, m.running.Load(), err)
	}
	return nil
}
