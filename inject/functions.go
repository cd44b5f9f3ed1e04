package inject

import (
	"cmp"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// FunctionStats say what one function, whose image is in the code cache, did at
// this element since its image came.
type FunctionStats struct {
	Name   string
	ID     travel.ID // the image's identity
	Bytes  int       // of all copies of the image
	Forms  []string  // that the image has code in
	Ready  bool      // its code is loaded here
	Pinned bool      // it is in use, so it cannot be evicted
	Runs   uint64    // that ended, whatever way
	Failed uint64    // of them: those that ended with an error
	Ran    []FormStats
	Idle   time.Duration
	Used   bool // it ran here at all; else Idle means nothing
}

// FormStats say how a function has run here in one form.
type FormStats struct {
	Form  string
	Bytes uint64 // of its runs' payloads, and of what they replied and sent on
	Tier  string // how the code was made that is ready now, where its engine makes it in more than one way
	Why   string // why no better code could be made; "": it could, or was not tried
	forms.History
}

// note counts a run that ended for its function. mu is held.
func (rt *Runtime) note(h *host, now travel.Instant, end travel.Code) {
	var c *code
	form := image.Form(0)
	if h.bound != nil {
		c, form = h.bound.code, h.bound.form
	} else if b := h.run.Binding(); b != nil && rt.store.byID[b.Image] != nil {
		c = rt.store.byID[b.Image].code
	}
	if c == nil {
		return
	}
	of := c.base()
	of.used, c.used = now, now
	past := &of.history[form]
	past.runs++
	past.bytes += uint64(len(h.run.Payload)) + h.sent
	if h.replied {
		past.bytes += uint64(len(h.reply))
	}
	if h.bound != nil {
		rt.judge(now, h)
	}
	if end != travel.CodeOK {
		of.failed++
	}
}

// judge has a run's time count for its function, and has what follows from it done. mu is held.
func (rt *Runtime) judge(now travel.Instant, h *host) {
	b := h.bound
	of, native := b.code.base(), b.form != image.Wasm
	took := max(h.took, time.Duration(h.slices)*sliceTime) // a run's first slice is short, and its last one ends anywhere
	of.history[b.form].time += took
	if !native || took > 0 { // else it did not begin
		better := b.soon && now >= b.code.at(b.entry).until // code is on its way
		of.tally.Ran(b.form, took, b.warm && !h.untypical && !better)
		b.warm = true
	}
	if (native || h.slices > 0) && forms.Wish(b.binding.Form) == forms.Auto {
		rt.turn(now, b)
	}
	if b.soon {
		rt.improve(now, b)
	}
}

// Functions lists the functions in the code cache, the last used first, but at
// most limit of them; left says how many are not in the list.
func (rt *Runtime) Functions(limit int) (list []FunctionStats, left int) {
	type item struct {
		f    FunctionStats
		used travel.Instant
	}
	now := rt.now()
	byCode := map[*code]*item{}
	var all []*item
	rt.mu.Lock()
	for _, o := range rt.store.byID {
		if o.code == nil {
			continue
		}
		it := byCode[o.code]
		if it == nil {
			it = &item{o.code.stats(now), o.code.used}
			byCode[o.code] = it
			all = append(all, it)
		}
		it.f.Bytes += len(o.bytes)
		it.f.Pinned = it.f.Pinned || o.pins > 0
	}
	rt.mu.Unlock()
	slices.SortFunc(all, func(a, b *item) int {
		return cmp.Or(cmp.Compare(b.used, a.used), cmp.Compare(a.f.Name, b.f.Name), cmp.Compare(a.f.ID.String(), b.f.ID.String()))
	})
	if len(all) > limit {
		all, left = all[:limit], len(all)-limit
	}
	for _, it := range all {
		list = append(list, it.f)
	}
	return list, left
}

// stats are what is to say of a function but its copies. mu is held.
func (c *code) stats(now travel.Instant) FunctionStats {
	f := FunctionStats{Name: c.img.Name(), ID: travel.ID(c.img.ID()), Forms: []string{}, Failed: c.failed, Used: c.used != 0}
	if f.Used {
		f.Idle = max(0, time.Duration(now-c.used))
	}
	for i, e := range c.img.Entries() {
		if form := e.Form.String(); !slices.Contains(f.Forms, form) {
			f.Forms = append(f.Forms, form)
		}
		f.Ready = f.Ready || c.programs[i].ready != nil
	}
	for form, past := range c.history {
		if f.Runs += past.runs; past.runs > 0 && form > 0 {
			tier, why := c.tier(image.Form(form), now)
			f.Ran = append(f.Ran, FormStats{image.Form(form).String(), past.bytes, tier, why, past.said()})
		}
	}
	return f
}

// Ran says what all runs here came to by form, of functions too whose images are here no more.
func (rt *Runtime) Ran() (list []FormStats) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	sum := rt.store.past
	for _, c := range rt.store.codes {
		for form := range c.history {
			sum[form].add(c.history[form])
		}
	}
	for form, past := range sum {
		if form > 0 {
			list = append(list, FormStats{Form: image.Form(form).String(), Bytes: past.bytes, History: past.said()})
		}
	}
	return list
}

// tier is that of the first program of a form that is ready, and why it is no better one.
func (c *code) tier(f image.Form, now travel.Instant) (name, why string) {
	for i, e := range c.img.Entries() {
		if p := &c.programs[i]; e.Form == f && p.ready != nil {
			if p.lesser != nil {
				why = p.whyLesser(now)
			}
			return tier(p.ready, ""), why
		}
	}
	return "", ""
}

// Forms are the forms of code that this element runs just now (Offers); none if it only starts functions.
func (rt *Runtime) Forms() []string {
	forms := []string{}
	for _, o := range rt.Offers() {
		if o.Why == "" && !slices.Contains(forms, o.Form) {
			forms = append(forms, o.Form)
		}
	}
	return forms
}

// CacheLimit is how many bytes of images and shard tables are kept.
func (rt *Runtime) CacheLimit() int64 { return rt.cfg.CacheBytes }
