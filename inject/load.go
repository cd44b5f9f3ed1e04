package inject

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/internal/share"
)

// A load makes a function ready for one principal at this element: it has a program made of its code, which can take long, and binds
// that to the windows. The runs that want it wait in the core meanwhile (travel's AwaitProgram), so none of them holds a place, and no
// goroutine that drives the fabric takes part. Loads are bounded in all and per principal; those beyond that wait in a queue, which holds
// one for each binding and principal whose runs wait. When the last run that waits for a load is gone, its context ends.
type load struct {
	code      *code
	wish      forms.Wish
	principal string          // the principal that is charged
	binding   *travel.Binding // nil: it is a program for later (turn)
	table     *cluster.Table
	entry     int  // the program for later
	best      bool // the best that there is, in place of one that is there
	hosts     []*host
	skip      map[int]error // entries that do not do for this load
	ctx       context.Context
	cancel    context.CancelFunc
	gone      bool // no run wants it any more
}

type loadKey struct {
	binding   *travel.Binding
	principal string
}

// loads are a runtime's.
type loads struct {
	byKey   map[loadKey]*load
	queue   []*load
	running int
	by      map[string]int // of them, by principal
	longest time.Duration
}

// errUnready says that a run has to wait for its program (awaitProgram). Only the runtime sees it.
var errUnready = errors.New("inject: the program is not ready")

// giveBack gives a run back to the core that found no room, or whose program is not ready; back is false if err is neither. It
// reports whether there is more to do.
func (rt *Runtime) giveBack(h *host, err error) (more, back bool) {
	switch {
	case errors.Is(err, errNoRoom):
		return rt.await(h), true
	case errors.Is(err, errUnready):
		return rt.awaitProgram(h), true
	}
	return false, false
}

// awaitProgram gives a run back to the core until its program is ready; its host stays with it.
func (rt *Runtime) awaitProgram(h *host) (more bool) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	h.rest()
	now := rt.now()
	if !rt.core.AwaitProgram(now, h.run) {
		rt.freeHost(h)
	} else if end := rt.enlist(now, h); end != nil {
		rt.failProgram(now, h, end)
	}
	rt.soon(now)
	return rt.pending()
}

// failProgram ends a run that cannot have its program. mu is held.
func (rt *Runtime) failProgram(now travel.Instant, h *host, end *travel.End) {
	rt.note(h, now, end.Code)
	rt.core.ProgramFailed(now, h.run, end.Code, end.Text)
}

// enlist makes a host one of those that wait for a load, which begins if there is none yet; or says why there can be none. mu is held.
func (rt *Runtime) enlist(now travel.Instant, h *host) *travel.End {
	b := h.run.Binding()
	key := loadKey{b, h.principal}
	l := rt.loads.byKey[key]
	if l == nil {
		o, t := rt.store.byID[b.Image], rt.store.byID[b.Table]
		switch {
		case rt.closed:
			return &travel.End{Code: travel.CodeStopping, Text: travel.StoppingText}
		case o == nil || o.code == nil:
			return &travel.End{Code: travel.CodeNoCode, Text: fmt.Sprintf("the object %v is no function image", b.Image)}
		case !b.Table.IsZero() && (t == nil || t.table == nil):
			return &travel.End{Code: travel.CodeNoCode, Text: fmt.Sprintf("the object %v is no shard table", b.Table)}
		}
		b.Name = o.code.img.Name() // for errors, also if it cannot run
		if n := o.code.img.Call().ConstantsBytes; b.Constants != "" && len(b.Constants) != n {
			return &travel.End{Code: travel.CodeRefused, Text: fmt.Sprintf("a function was derived from %s with %d bytes of constants, its manifest names %d", b.Name, len(b.Constants), n)}
		}
		l = &load{code: o.code.derive(b.Constants, h.principal, now), wish: forms.Wish(b.Form), principal: h.principal, binding: b}
		if t != nil {
			l.table = t.table
		}
		rt.loads.byKey[key] = l
		l.code.loads++
		rt.queueLoad(l)
	}
	l.hosts = append(l.hosts, h)
	h.load = l
	return nil
}

// delist takes a host whose run has ended off the load that it waited for. mu is held.
func (rt *Runtime) delist(h *host) {
	l := h.load
	h.load = nil
	if l.hosts = slices.DeleteFunc(l.hosts, func(x *host) bool { return x == h }); len(l.hosts) > 0 {
		return
	}
	l.gone = true
	rt.forgetLoad(l)
	rt.loads.queue = slices.DeleteFunc(rt.loads.queue, func(x *load) bool { return x == l })
	if l.cancel != nil {
		l.cancel()
	}
}

// forgetLoad lets runs that come from now on begin a load of their own. mu is held.
func (rt *Runtime) forgetLoad(l *load) {
	if key := (loadKey{l.binding, l.principal}); rt.loads.byKey[key] == l {
		delete(rt.loads.byKey, key)
		l.code.loads--
	}
}

// queueLoad has a load begin as soon as it may. mu is held.
func (rt *Runtime) queueLoad(l *load) {
	rt.loads.queue = append(rt.loads.queue, l)
	rt.beginLoads()
}

// beginLoads begins the loads that may, in their order: no principal has more than three quarters of those at once. mu is held.
func (rt *Runtime) beginLoads() {
	ls := &rt.loads
	for i := 0; i < len(ls.queue) && ls.running < rt.cfg.Loads && !rt.closed; {
		l := ls.queue[i]
		if ls.by[l.principal] >= share.Of(rt.cfg.Loads) {
			i++
			continue
		}
		ls.queue = slices.Delete(ls.queue, i, i+1)
		ls.running++
		ls.by[l.principal]++
		l.ctx, l.cancel = context.WithTimeoutCause(rt.life, rt.cfg.LoadTime,
			fmt.Errorf("%w: it was not ready after %v (the element's LoadTime; a node's is %v, or ten times the compile_time that it was given where that is more)",
				context.DeadlineExceeded, rt.cfg.LoadTime, DefaultLoadTime))
		rt.work.Add(1)
		cancel := l.cancel
		rt.layer.Compute(func() { rt.runLoad(l, cancel) })
	}
}

// runLoad carries out a load. By its end the load may have begun once more, with another context.
func (rt *Runtime) runLoad(l *load, cancel context.CancelFunc) {
	defer rt.work.Done()
	begun := rt.now()
	b, err := rt.makeReady(l)
	cancel()
	rt.mu.Lock()
	ls := &rt.loads
	ls.longest = max(ls.longest, time.Duration(rt.now()-begun))
	ls.running--
	if ls.by[l.principal]--; ls.by[l.principal] == 0 {
		delete(ls.by, l.principal)
	}
	if !errors.Is(err, errUnready) { // else it waits for another load, which queues it again
		rt.endLoad(l, b, err)
	}
	rt.beginLoads()
	rt.mu.Unlock()
	rt.after()
}

// endLoad lets those go on that waited for a load, or ends them. mu is held.
func (rt *Runtime) endLoad(l *load, b *bound, err error) {
	rt.forgetLoad(l)
	hosts := l.hosts
	l.hosts = nil
	now := rt.now()
	if err == nil && l.binding != nil {
		if why := b.code.distrusted(b.form); why != "" { // its key was withdrawn meanwhile
			err = refuse(travel.CodeRefused, "%s cannot run on %s: %s", b.code.img.Name(), rt.el.Name(), why)
		}
		rt.install(b, err == nil && len(hosts) > 0 && !rt.closed)
	}
	for _, h := range hosts {
		h.load = nil
		if err != nil {
			end := failure(err)
			rt.failProgram(now, h, &end)
			continue
		}
		h.bound = b
		b.runs++
		rt.core.ProgramReady(h.run)
	}
	if b != nil && !b.stale && (b.outdated() || rt.surpassed(l, b)) { // these run in it, and the next ones in what is better
		rt.forget(b.binding.Data.(*boundSet), b)
	}
	rt.soon(now)
}

// install keeps a bound for its principal's runs, if there are any; else it is to be closed. mu is held.
func (rt *Runtime) install(b *bound, wanted bool) {
	if !wanted { // the binding may have let go of its objects
		b.stale = true
		rt.sweep = append(rt.sweep, b)
		return
	}
	set, _ := b.binding.Data.(*boundSet)
	if set == nil {
		set = &boundSet{}
		b.binding.Data = set
		rt.sets[set] = struct{}{}
	}
	if other := set.find(b.principal); other != nil {
		rt.forget(set, other)
	}
	if len(set.all) >= maxPrincipals {
		rt.forget(set, set.all[0])
	}
	set.all, set.last = append(set.all, b), b
}

// makeReady makes what a load is for. errUnready says that another load makes the program meanwhile, and queues this one again.
func (rt *Runtime) makeReady(l *load) (*bound, error) {
	if l.binding == nil {
		return nil, rt.makeProgram(l, l.entry, l.best)
	}
	b := &bound{principal: l.principal, binding: l.binding, code: l.code, table: l.table, self: -1}
	windows, err := rt.openWindows(b)
	for err == nil && b.run == nil {
		var prog chosen
		if prog, err = rt.pick(l); err != nil {
			break
		}
		b.form, b.entry, b.program = prog.Form, prog.Entry, prog.program
		if t, ok := b.program.(abi.Tiered); ok {
			_, b.soon = t.Tier()
		}
		var run abi.Bound
		run, err = prog.program.Bind(l.ctx, b.principal, windows)
		for err != nil && rt.madeRoom(l.principal, err) {
			run, err = prog.program.Bind(l.ctx, b.principal, windows)
		}
		switch {
		case err == nil:
			b.run = run
		case rt.replaced(b): // as it was closed meanwhile
			err = nil
		case l.wish == forms.Auto && len(l.skip) < l.code.img.EntryCount():
			l.avoid(prog.Entry, err)
			err = nil
		}
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// replaced reports whether a bound's program is not its function's any more: there is better code, or its key was withdrawn.
func (rt *Runtime) replaced(b *bound) bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return b.outdated()
}

// outdated is replaced; mu is held.
func (b *bound) outdated() bool { return b.code.at(b.entry).ready != b.program }

// avoid has a load do without an entry.
func (l *load) avoid(entry int, err error) {
	if l.skip == nil {
		l.skip = map[int]error{}
	}
	l.skip[entry] = err
}
