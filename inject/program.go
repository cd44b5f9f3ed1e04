package inject

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

const (
	// sliceTime is what a run computes between two calls of Host.Tick, roughly.
	sliceTime = 100 * time.Microsecond
	// failedFor is how long code that could not be made ready is not tried again. What is wrong with it rarely changes, and a
	// compiler's time is dear; but a compiler that was killed is there again.
	failedFor = 10 * time.Second
	// lesserFor is the longest that better code is not tried again; each failure doubles the time, from failedFor. A compile that uses up its time takes 1.2 s
	// of a processor: every 10 s that is 12 % of it for as long as the function runs.
	lesserFor = 10 * time.Minute
)

// Explanation says in which form a function runs at this element, and why.
type Explanation struct {
	Form, Triple, Tier, Why string // Form "": in none
	Refused                 []forms.Refusal
}

// Explain says in which form a function runs here whose image is in the code cache, as it was chosen last for a wish, and why that is the best now; false: nothing was.
func (rt *Runtime) Explain(id image.ID, wish forms.Wish) (Explanation, bool) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if c := rt.store.codes[id]; c != nil {
		return rt.explain(c, wish)
	}
	return Explanation{}, false
}

// explain is Explain of a function; mu is held.
func (rt *Runtime) explain(c *code, wish forms.Wish) (Explanation, bool) {
	e := Explanation{Why: "its code is not ready yet"}
	switch last := c.explain[wish]; {
	case last != nil:
		e = *last
		e.Why = rt.whyNow(c, wish, last)
	case slices.ContainsFunc(c.programs, func(p program) bool { return p.loading || p.err != nil }):
	case len(c.derived) > 0:
		e.Why = "only functions that were derived from it have"
	default:
		return Explanation{}, false
	}
	var unready []forms.Refusal
	for i, entry := range c.img.Entries() { // what could not be made ready since
		p := c.at(i)
		if p.ready != nil && p.lesser != nil && entry.Form.String() == e.Form && entry.Triple == e.Triple {
			e.Why += "; " + p.whyLesser(rt.now())
		}
		if p.err != nil && p.ready == nil && !slices.ContainsFunc(e.Refused, func(r forms.Refusal) bool { return r.Form == entry.Form && r.Triple == entry.Triple }) {
			unready = append(unready, forms.Refusal{Form: entry.Form, Triple: entry.Triple, Why: p.err.Error()})
		}
	}
	e.Refused = append(unready, e.Refused...)
	return e, true
}

// whyNow is why a function runs in the form that was chosen last, by how it has run since. mu is held.
func (rt *Runtime) whyNow(c *code, wish forms.Wish, last *Explanation) string {
	good, _, _ := rt.choose(c, wish, nil)
	switch i := slices.IndexFunc(good, func(can forms.Candidate) bool { return can.Form.String() == last.Form && can.Triple == last.Triple }); {
	case i == 0:
		return good[0].Why
	case i > 0 && wish == forms.Auto && c.at(good[0].Entry).ready == nil:
		return notYet(good[0])
	}
	return last.Why
}

// notYet is why another candidate than the best runs.
func notYet(best forms.Candidate) string {
	return fmt.Sprintf("%v is to run (%s), and is not ready yet", best.Form, best.Why)
}

// Offers are what this element's engines run, and why they do not run the rest: nobody may be trusted with it just now.
func (rt *Runtime) Offers() []abi.Offer {
	nobody := rt.policy().Nobody()
	all := []abi.Offer{}
	for _, o := range rt.offers {
		if o.Why == "" && o.Form != image.Wasm.String() {
			o.Why = nobody
		}
		all = append(all, o.Offer)
	}
	return all
}

// chosen is code that is ready.
type chosen struct {
	forms.Candidate
	program abi.Program
}

// past is how a function has run here.
func (c *code) past() *forms.Past { return &c.base().tally }

// choose orders what code may run, for a load; those are refused too that could not be made ready a moment ago. mu is held.
func (rt *Runtime) choose(c *code, wish forms.Wish, skip map[int]error) (good []forms.Candidate, refused []forms.Refusal, failed error) {
	all, refused := forms.Choose(c.img.Entries(), rt.offers, c.distrusted, c.past(), wish)
	now := rt.now()
	var unready []forms.Refusal
	for _, can := range all {
		p := c.at(can.Entry)
		err := skip[can.Entry]
		if err == nil && p.err != nil && now < p.until {
			err = p.err
		}
		if err != nil {
			failed = err
			unready = append(unready, forms.Refusal{Form: can.Form, Triple: can.Triple, Why: err.Error()})
			continue
		}
		good = append(good, can)
	}
	return good, append(unready, refused...), failed
}

// pick finds the program for a load, and makes it if it is not there. By forms.Auto it is the best that is ready, or else what is ready soonest,
// and what would be best is made meanwhile.
func (rt *Runtime) pick(l *load) (chosen, error) {
	for {
		rt.mu.Lock()
		good, refused, failed := rt.choose(l.code, l.wish, l.skip)
		if len(good) == 0 {
			err := rt.cannot(l.code, refused, failed)
			l.code.explained(l.wish, Explanation{Refused: refused, Why: err.Error()})
			rt.mu.Unlock()
			return chosen{}, err
		}
		can := good[0]
		if l.wish == forms.Auto {
			if can = l.code.soonest(good); can.Entry != good[0].Entry {
				rt.makeLater(l.code, good[0].Entry, l.principal)
				can.Why = notYet(good[0])
			}
		}
		if p := l.code.at(can.Entry).ready; p != nil {
			l.code.explained(l.wish, Explanation{Form: can.Form.String(), Triple: can.Triple, Tier: tier(p, can.Tier), Why: can.Why, Refused: refused})
			rt.mu.Unlock()
			return chosen{can, p}, nil
		}
		rt.mu.Unlock()
		if err := rt.makeProgram(l, can.Entry, false); errors.Is(err, errUnready) || err != nil && l.ctx.Err() != nil {
			return chosen{}, err
		} else if err != nil {
			l.avoid(can.Entry, err)
		}
	}
}

// tier is how a program's code was made; usual is what its engine offers.
func tier(p abi.Program, usual string) string {
	if t, ok := p.(abi.Tiered); ok {
		usual, _ = t.Tier()
	}
	return usual
}

// soonest is the best candidate that is ready, else wasm if that is one of them, else the best.
func (c *code) soonest(good []forms.Candidate) forms.Candidate {
	soon := good[0]
	for _, can := range good {
		if c.at(can.Entry).ready != nil {
			return can
		}
		if can.Form == image.Wasm {
			soon = can
		}
	}
	return soon
}

func (c *code) explained(wish forms.Wish, e Explanation) {
	if c.explain == nil {
		c.explain = map[forms.Wish]*Explanation{}
	}
	c.explain[wish] = &e
}

// cannot is why a function cannot run here. Code that could not be made ready has not run, so it is refused and has not trapped. mu is held.
func (rt *Runtime) cannot(c *code, refused []forms.Refusal, failed error) error {
	text := fmt.Sprintf("%s cannot run on %s: %s", c.img.Name(), rt.el.Name(), forms.Refusals(refused))
	if failed != nil && failure(failed).Code != travel.CodeTrap { // it may be another time
		if len(refused) == 1 {
			return failed
		}
		return fmt.Errorf("%w (%s)", failed, text)
	}
	return refuse(travel.CodeRefused, "%s", text)
}

// makeProgram has a program made of an entry, or waits for the load that does so already (errUnready). best asks for the best code that the
// engine makes, in place of what is ready (improve).
func (rt *Runtime) makeProgram(l *load, entry int, best bool) error {
	c := l.code
	p := c.at(entry)
	rt.mu.Lock()
	switch {
	case p.ready != nil && !best:
		rt.mu.Unlock()
		return nil
	case p.loading && l.binding != nil:
		p.waiting = append(p.waiting, l)
		rt.mu.Unlock()
		return errUnready
	}
	p.loading = true
	can, engine := rt.codeOf(c, entry, l.principal)
	can.Best = best
	rt.mu.Unlock()
	ready, err := engine.Load(l.ctx, can)
	for err != nil && rt.madeRoom(l.principal, err) {
		ready, err = engine.Load(l.ctx, can)
	}
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		err = context.Cause(l.ctx)
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	p.loading = false
	for _, other := range p.waiting {
		if !other.gone {
			rt.queueLoad(other)
		}
	}
	p.waiting = nil
	switch {
	case err != nil && p.ready != nil: // what is there does, for some time
		rt.keepLesser(l, p, err)
	case err != nil && l.ctx.Err() == nil && !errors.Is(err, abi.ErrEngineBusy) || err != nil && errors.Is(context.Cause(l.ctx), context.DeadlineExceeded):
		p.err, p.until = err, rt.now()+travel.Instant(failedFor)
	case err == nil && (rt.closed || c.keeper(entry).lost() || c.distrusted(c.img.Entries()[entry].Form) != ""): // it came too late
		ready.Close()
		return context.Canceled
	case err == nil:
		rt.installProgram(l, entry, ready)
		if best {
			p.lesser, p.again = nil, 0
		}
		if base := c.base(); base.payer == "" {
			base.payer = l.principal
		}
	}
	return err
}

// madeRoom has code that nothing uses give way to a load that an engine has no room for: the principal's own where it has its share. false: there is none, or that is not
// what is wrong.
func (rt *Runtime) madeRoom(principal string, err error) bool {
	if !errors.Is(err, abi.ErrEngineBusy) {
		return false
	}
	only := errors.Is(err, abi.ErrShareBusy)
	rt.mu.Lock()
	made := rt.store.spare(principal, only)
	mayGo := func(image travel.ID) bool {
		payer, ok := rt.store.payer(image)
		return ok && (payer == principal || !only && rt.left(payer))
	}
	for !made && rt.core.LetGo(mayGo) { // what ran a moment ago: of who asks, and of who has left
		made = rt.store.spare(principal, only)
	}
	for rt.tidy() { // else what gave way takes its room until somebody has the time
		rt.mu.Lock()
	}
	rt.mu.Unlock()
	return made
}

// left reports whether there is no connection to a principal any more. mu is held.
func (rt *Runtime) left(principal string) bool {
	for n, ep := range rt.peers {
		if ep != nil && rt.about[n].principal == principal {
			return false
		}
	}
	return principal != ""
}

// installProgram has runs that begin from now on find a program. Those of the one before it end there. mu is held.
func (rt *Runtime) installProgram(l *load, entry int, ready abi.Program) {
	p := l.code.at(entry)
	old := p.ready
	p.ready, p.err = ready, nil
	if keeper := l.code.keeper(entry); old != nil {
		l.code.past().Renewed()
		rt.outdate(keeper, func(b *bound) bool { return b.program == old })
		old.Close()
	} else {
		rt.turned(keeper, entry)
	}
}

// improve has better code made in the background than what a run of bound b has just ended in. Before its first run has ended, a function
// needs the processors itself: the compiler took them for 3 ms of a first use of 6. mu is held.
func (rt *Runtime) improve(now travel.Instant, b *bound) {
	if p := b.code.at(b.entry); p.ready == b.program && !p.loading && !rt.closed && now >= p.until {
		p.loading = true
		rt.queueLoad(&load{code: b.code, entry: b.entry, principal: b.principal, best: true})
	}
}

// keepLesser notes that no better code could be made than what is ready, and when that is tried again. mu is held.
func (rt *Runtime) keepLesser(l *load, p *program, err error) {
	p.again = min(max(2*p.again, failedFor), lesserFor)
	p.until = rt.now() + travel.Instant(p.again)
	if rt.closed {
		return
	}
	if p.lesser == nil {
		rt.log.Warn("better code of a function could not be made; it runs as it is", "function", l.code.img.Name(), "id", l.code.id().Short(),
			"form", l.code.img.Entries()[l.entry].Form.String(), "principal", l.principal, "err", err)
	}
	p.lesser = err
}

// whyLesser says that, for people; now is when they ask. mu is held.
func (p *program) whyLesser(now travel.Instant) string {
	when := ""
	if wait := time.Duration(p.until - now).Round(time.Second); wait > 0 {
		when = fmt.Sprintf(" in %v or later", wait)
	}
	return fmt.Sprintf("better code could not be made, which is tried again when it runs%s: %v", when, p.lesser)
}

// outdate has bounds of a function forgotten. mu is held.
func (rt *Runtime) outdate(c *code, these func(*bound) bool) {
	for set := range rt.sets {
		for _, b := range append([]*bound(nil), set.all...) {
			if (b.code == c || b.code.parent == c) && these(b) {
				rt.forget(set, b)
			}
		}
	}
}

// codeOf is what an engine is given of an entry. mu is held.
func (rt *Runtime) codeOf(c *code, entry int, principal string) (abi.Code, abi.Engine) {
	e := c.img.Entries()[entry]
	signers, _ := c.base().verdict.Allows(e.Form, c.img.Name())
	good, _ := forms.Choose([]image.Entry{e}, rt.offers, func(image.Form) string { return "" }, c.past(), forms.Auto)
	of, constants := c.keeper(entry), []byte(nil)
	if of.parent != nil {
		constants = []byte(of.constants)
	}
	return abi.Code{ID: of.id(), Constants: constants, Form: e.Form.String(), Triple: e.Triple, Features: e.Features, ABI: c.img.Manifest().ABI, Imports: c.img.Manifest().Imports,
		Bytes: e.Code, Limits: c.img.Call().Limits, Signers: signers, Principal: principal}, rt.cfg.Engines[good[0].Engine]
}

// makeLater has a program made that no run waits for. mu is held.
func (rt *Runtime) makeLater(c *code, entry int, principal string) {
	if p := c.at(entry); p.ready == nil && !p.loading && !rt.closed {
		p.loading = true
		rt.queueLoad(&load{code: c, entry: entry, principal: principal})
	}
}

// turn looks after a run of a bound whether its function is to go on in the other form, as wasm or as native code, and has that made ready. mu is held.
func (rt *Runtime) turn(now travel.Instant, b *bound) {
	c, native := b.code, b.form != image.Wasm
	past := c.past()
	if native && !past.Wasm.Tried() && !past.Looks() || past.PrefersNative() == native || now < c.turnAt && !native {
		return
	}
	c.turnAt = now + travel.Instant(failedFor)
	good, _, _ := rt.choose(c, forms.Auto, nil)
	switch {
	case len(good) == 0 || (good[0].Form != image.Wasm) == native: // the other form cannot run here
	case c.at(good[0].Entry).ready == nil:
		rt.makeLater(c, good[0].Entry, b.principal)
	case past.Looks(): // for that one bound is enough
		c.turnAt = 0
		rt.outdate(c, func(x *bound) bool { return x == b })
	default:
		c.turnAt = 0
		rt.turned(c, good[0].Entry)
	}
}

// turned has runs find a new program where it is the best of those that each element chooses from. mu is held.
func (rt *Runtime) turned(c *code, entry int) {
	good, _, _ := rt.choose(c, forms.Auto, nil)
	if len(good) == 0 || good[0].Entry != entry {
		return
	}
	rt.outdate(c, func(b *bound) bool {
		return forms.Wish(b.binding.Form) == forms.Auto && b.form != good[0].Form
	})
}

// surpassed reports whether a better form than a bound's has become ready since its load chose. turned did not find the bound then, for it was
// not installed yet. What the load could not use does not count, or the next load would try it in vain again. mu is held.
func (rt *Runtime) surpassed(l *load, b *bound) bool {
	if l.wish != forms.Auto {
		return false
	}
	good, _, _ := rt.choose(l.code, l.wish, l.skip)
	return len(good) > 0 && good[0].Form != b.form && l.code.at(good[0].Entry).ready != nil
}
