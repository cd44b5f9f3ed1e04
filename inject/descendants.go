package inject

import (
	"cmp"
	"slices"

	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// maxDescendants is how many functions one answer tells of: more than people read.
const maxDescendants = 16

// Kind is how a function came from another one.
type Kind string

const (
	Derived   Kind = "derived"   // it is the other one with constants
	Assembled Kind = "assembled" // a run of the other one wrote it
)

// Descendant is a function that came from another one at this element.
type Descendant struct {
	ID, Parent image.ID // Parent is what it came from itself
	Name       string
	Kind       Kind
	Explanation
}

// origin is whose run had a function made here, and of which function.
type origin struct {
	parent    image.ID
	principal string
	at        travel.Instant
}

const (
	// maxOrigins bounds the origins of one function: as many principals as one binding is kept ready for.
	maxOrigins = maxPrincipals
	// maxParents is how many of them are one principal's: the same code has few makers.
	maxParents = 8
)

// cameFrom notes where a function came from; the oldest such note of the principal gives way, or of all. mu is held.
func (c *code) cameFrom(o origin) {
	oldest, own := 0, 0
	for i := len(c.origins) - 1; i >= 0; i-- {
		switch old := &c.origins[i]; {
		case old.principal != o.principal:
		case old.parent == o.parent:
			c.origins = append(slices.Delete(c.origins, i, i+1), o)
			return
		default:
			oldest, own = i, own+1
		}
	}
	if own < maxParents {
		oldest = 0
	}
	if own >= maxParents || len(c.origins) >= maxOrigins {
		c.origins = slices.Delete(c.origins, oldest, oldest+1)
	}
	c.origins = append(c.origins, o)
}

// Descendants lists the functions that came from one, directly or not, at this element: derived ones that ran here as a wish has it, and those that runs assembled here, also
// where they ran elsewhere only. The newest is first. Told of are only those that calls of the principal made or ran, or, where all is set, of all principals; left says how
// many are not in the list. What is no longer in the code cache is not known.
func (rt *Runtime) Descendants(id image.ID, wish forms.Wish, principal string, all bool) (list []Descendant, left int) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	type child struct {
		code *code
		from origin
	}
	children := map[image.ID][]child{}
	add := func(c *code) {
		for _, o := range slices.Backward(c.origins) { // the last one is told of
			if all || o.principal == principal {
				children[o.parent] = append(children[o.parent], child{c, o})
			}
		}
	}
	for _, c := range rt.store.codes {
		add(c)
		for _, d := range c.derived {
			add(d)
		}
	}
	made := map[image.ID]travel.Instant{id: 0} // functions can assemble each other, and several principals the same one
	for next := []image.ID{id}; len(next) > 0; next = next[1:] {
		for _, c := range children[next[0]] {
			d := Descendant{ID: c.code.id(), Parent: c.from.parent, Name: c.code.img.Name()}
			if _, seen := made[d.ID]; seen || !rt.descended(c.code, wish, &d) {
				continue
			}
			made[d.ID] = c.from.at
			list, next = append(list, d), append(next, d.ID)
		}
	}
	slices.SortFunc(list, func(a, b Descendant) int {
		return cmp.Or(cmp.Compare(made[b.ID], made[a.ID]), slices.Compare(a.ID[:], b.ID[:]))
	})
	if len(list) > maxDescendants {
		list, left = list[:maxDescendants], len(list)-maxDescendants
	}
	return list, left
}

// descended completes what is told of a function; false: nothing, as it was derived for calls with another wish. mu is held.
func (rt *Runtime) descended(c *code, wish forms.Wish, d *Descendant) (ok bool) {
	if d.Kind = Derived; c.parent == nil { // then it runs as wasm, whatever its maker was to run as
		d.Kind, wish = Assembled, forms.Auto
	}
	if d.Explanation, ok = rt.explain(c, wish); !ok && d.Kind == Assembled {
		d.Why, ok = "it has not run here", true
	}
	return ok
}
