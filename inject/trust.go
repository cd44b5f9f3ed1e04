package inject

import (
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/trust"
)

// policy is whom the runtime trusts now.
func (rt *Runtime) policy() *trust.Policy {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.store.policy
}

// SetTrust has the runtime go by another policy; nil trusts no key. All images here are judged anew. From now on no run begins of code that the policy
// does not allow; those that have begun, or wait for room, end as they would.
func (rt *Runtime) SetTrust(p *trust.Policy) {
	rt.mu.Lock()
	rt.store.policy = p
	var images []*object
	for _, o := range rt.store.byID {
		if o.code != nil {
			images = append(images, o)
		}
	}
	rt.mu.Unlock()
	verdicts := make([]trust.Verdict, len(images)) // checking signatures takes time, and mu must not be held for it
	for i, o := range images {
		verdicts[i] = o.judge(p)
	}
	rt.mu.Lock()
	if rt.store.policy == p { // else another call replaces it at the same time, and goes on
		for i, o := range images {
			o.verdict, o.judged = verdicts[i], p
		}
		rt.retrust()
	}
	rt.mu.Unlock()
	rt.after()
}

// judge says what a policy makes of this copy of an image.
func (o *object) judge(p *trust.Policy) trust.Verdict {
	img, err := image.Parse(o.bytes)
	if err != nil { // it was parsed before, and is not changed
		panic(err)
	}
	return p.Judge(img)
}

// retrust lets go of all that images' new verdicts do not allow. mu is held.
func (rt *Runtime) retrust() {
	for _, c := range rt.store.codes {
		c.verdict = trust.Verdict{}
	}
	for _, o := range rt.store.byID {
		if o.code != nil {
			o.code.verdict = o.code.verdict.Join(o.verdict)
		}
	}
	for set := range rt.sets {
		for _, b := range append([]*bound(nil), set.all...) {
			if b.code.distrusted(b.form) != "" {
				rt.forget(set, b)
			}
		}
	}
	for _, c := range rt.store.codes {
		c.unload()
		for _, d := range c.derived {
			d.unload()
		}
	}
}

// unload closes the programs of forms that are not trusted. mu is held.
func (c *code) unload() {
	for i, e := range c.img.Entries() {
		if p := &c.programs[i]; p.ready != nil && c.distrusted(e.Form) != "" {
			p.ready.Close() // its bounds keep what they need
			p.ready = nil
		}
	}
}

// withdrawn is why no run may begin in a bound that was made when it might; "": it may.
func (rt *Runtime) withdrawn(b *bound) string {
	if !trust.Needed(b.form) {
		return ""
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return b.code.distrusted(b.form)
}

// distrusted is why a function's code of a form may not run here; "": it may. mu is held.
func (c *code) distrusted(f image.Form) string {
	_, why := c.base().verdict.Allows(f, c.img.Name())
	return why
}
