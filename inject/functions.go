package inject

import (
	"cmp"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// FunctionStats say what one function, whose image is in the code cache, did at
// this element since its image came.
type FunctionStats struct {
	Name   string
	ID     travel.ID
	Bytes  int      // of the image
	Forms  []string // that the image has code in
	Ready  bool     // its code is loaded here
	Pinned bool     // somebody uses it, so it cannot be evicted
	Runs   uint64   // that ended, whatever way
	Failed uint64   // of them: those that ended with an error
	Idle   time.Duration
	Used   bool // it ran here at all; else Idle means nothing
}

// note counts a run that ended for its function. mu is held.
func (rt *Runtime) note(h *host, now travel.Instant, code travel.Code) {
	var o *object
	if h.bound != nil {
		o = h.bound.image
	} else if b := h.run.Binding(); b != nil {
		o = rt.store.byID[b.Image]
	}
	if o == nil {
		return
	}
	o.used = now
	if o.runs++; code != travel.CodeOK {
		o.failed++
	}
}

// Functions lists the functions in the code cache, the last used first, but at
// most limit of them; left says how many are not in the list.
func (rt *Runtime) Functions(limit int) (list []FunctionStats, left int) {
	rt.mu.Lock()
	objects := make([]object, 0, len(rt.store.byID))
	for _, o := range rt.store.byID {
		if o.img != nil {
			objects = append(objects, *o)
		}
	}
	rt.mu.Unlock()
	slices.SortFunc(objects, func(a, b object) int {
		return cmp.Or(cmp.Compare(b.used, a.used), cmp.Compare(a.img.Name(), b.img.Name()), cmp.Compare(a.id.String(), b.id.String()))
	})
	if len(objects) > limit {
		objects, left = objects[:limit], len(objects)-limit
	}
	now := rt.now()
	for _, o := range objects {
		f := FunctionStats{Name: o.img.Name(), ID: o.id, Bytes: len(o.bytes), Forms: []string{}, Ready: o.prog != nil, Pinned: o.pins > 0,
			Runs: o.runs, Failed: o.failed, Used: o.used != 0}
		if f.Used {
			f.Idle = max(0, time.Duration(now-o.used))
		}
		for _, e := range o.img.Entries() {
			if form := e.Form.String(); !slices.Contains(f.Forms, form) {
				f.Forms = append(f.Forms, form)
			}
		}
		list = append(list, f)
	}
	return list, left
}

// Forms are the forms of code that this element runs; none if it only starts functions.
func (rt *Runtime) Forms() []string {
	forms := []string{}
	for _, e := range rt.cfg.Engines {
		for _, o := range e.Offers() {
			if o.Why == "" && !slices.Contains(forms, o.Form) {
				forms = append(forms, o.Form)
			}
		}
	}
	return forms
}

// CacheLimit is how many bytes of images and shard tables are kept.
func (rt *Runtime) CacheLimit() int64 { return rt.cfg.CacheBytes }
