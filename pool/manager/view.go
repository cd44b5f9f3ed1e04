package manager

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

// The keys in the store. The number is the version of what the values look like.
const (
	prefix       = "/wherry/1/"
	keyComponent = prefix + "component/" // and a name: Component, leased
	keyManager   = prefix + "manager/"   // and an instance: managerEntry, leased
	keyRegion    = prefix + "region/"    // and a number, 4 hex digits: record
	keyPlaced    = prefix + "placed"     // put by each transaction that takes or frees extents
	keyLost      = keyPlaced + "/lost"   // put by each that calls a component lost; below keyPlaced, so that one read finds both
)

func regionKey(id uint16) string { return fmt.Sprintf("%s%04x", keyRegion, id) }

// The states of a region. In all but ready components are to be told of it, by the manager that the record names.
const (
	making = "making" // its extents are being taken
	ready  = "ready"
	moving = "moving" // its epoch, extents or rights have changed
	ending = "ending" // its extents are being freed
)

// record is a region in the store.
type record struct {
	Region uint16            `json:"region"`
	Epoch  uint64            `json:"epoch"`
	Made   uint64            `json:"made"` // its first epoch
	Name   string            `json:"name,omitempty"`
	Owner  string            `json:"owner"`
	Size   uint64            `json:"size"`
	Grants map[string]string `json:"grants,omitempty"`
	Leased string            `json:"leased,omitempty"` // the manager's instance that it goes with
	State  string            `json:"state"`
	By     string            `json:"by,omitempty"`  // the manager's instance that tells components
	Job    uint64            `json:"job,omitempty"` // and its job
	Origin string            `json:"origin"`        // the manager's instance and its job that made it: two may try the same number under the same epoch
	Places []place           `json:"places"`
	Parts  []part            `json:"parts"`
	Drop   []drop            `json:"drop,omitempty"` // moving: extents to be freed
	Was    *was              `json:"was,omitempty"`  // moving, where it grows
}

// was is what a region had before it began to grow: so it is again where a component refuses, whichever manager is told so.
type was struct {
	Size  uint64 `json:"size"`
	Parts int    `json:"parts"`
}

// place is a component's life that has extents of a region.
type place struct {
	Name        string              `json:"name"`
	Incarnation cluster.Incarnation `json:"incarnation"`
	Lost        bool                `json:"lost,omitempty"`
}

// part is an extent: the next Size bytes of the region.
type part struct {
	Place int    `json:"p"`
	Size  uint64 `json:"n"`
}

// drop is an extent that a region has no more.
type drop struct {
	Place int `json:"p"`
	pool.Range
}

// clone copies a record deeply enough to change it.
func (r *record) clone() *record {
	c := *r
	c.Grants, c.Places, c.Parts, c.Drop = maps.Clone(r.Grants), slices.Clone(r.Places), slices.Clone(r.Parts), slices.Clone(r.Drop)
	return &c
}

// ranges are the extents of a place.
func (r *record) ranges(at int) (out []pool.Range) {
	off := uint64(0)
	for _, p := range r.Parts {
		if p.Place == at {
			out = append(out, pool.Range{Off: off, Size: p.Size})
		}
		off += p.Size
	}
	return out
}

// room is how many bytes its extents have.
func (r *record) room() (n uint64) {
	for _, p := range r.Parts {
		n += p.Size
	}
	return n
}

// managerEntry is a manager in the store.
type managerEntry struct {
	cluster.Member
	Instance string `json:"instance"`
}

type componentView struct {
	Component
	lease   cluster.Lease
	rev     cluster.Revision
	placed  uint64 // bytes of regions' extents
	extents int
}

// free is what can still be placed there.
func (c *componentView) free() uint64 {
	if taken := c.Local + c.placed; taken < c.Capacity {
		return c.Capacity - taken
	}
	return 0
}

type regionView struct {
	*record
	rev cluster.Revision
}

// view is what is in the store, as far as it was heard of.
type view struct {
	components map[string]*componentView
	regions    map[uint16]*regionView
	names      map[string]uint16
	owned      map[string]int    // regions, by owner
	managers   map[string]string // instance to name
	placed     cluster.Revision
	lost       cluster.Revision
	members    uint64                      // changes of the list of components and their addresses that were heard of
	removed    map[string]cluster.Revision // keys that this manager removed before the store's watch told of it
	left       []string                    // keys of components and managers that have gone and were not looked at yet
	bad        []error                     // entries that make no sense
	dirty      map[uint16]bool             // regions to be looked at
}

func newView() view {
	return view{components: map[string]*componentView{}, regions: map[uint16]*regionView{}, names: map[string]uint16{}, owned: map[string]int{},
		managers: map[string]string{}, removed: map[string]cluster.Revision{}, dirty: map[uint16]bool{}}
}

// allDirty has all regions looked at: components have come or gone.
func (v *view) allDirty() {
	for id := range v.regions {
		v.dirty[id] = true
	}
}

// lacks notices what was in an earlier view and has gone.
func (v *view) lacks(was *view) {
	v.left = was.left
	for name := range was.components {
		if v.components[name] == nil {
			v.left = append(v.left, keyComponent+name)
		}
	}
	for name := range was.managers {
		if _, there := v.managers[name]; !there {
			v.left = append(v.left, keyManager+name)
		}
	}
}

// managerNames are the managers that are there, by name.
func (v *view) managerNames() []string { return slices.Compact(slices.Sorted(maps.Values(v.managers))) }

// alive reports whether a place's component is there in that life.
func (v *view) alive(p place) bool {
	c := v.components[p.Name]
	return !p.Lost && c != nil && c.Incarnation == p.Incarnation
}

// apply takes a change. Changes of one key come in order, except that what this manager committed itself may come again.
func (v *view) apply(p cluster.Pair) {
	if rev, ok := v.removed[p.Key]; ok {
		if p.Changed <= rev {
			if p.Changed == rev {
				delete(v.removed, p.Key)
			}
			return
		}
		delete(v.removed, p.Key)
	}
	kind, name := strings.TrimPrefix(p.Key, prefix), ""
	if i := strings.IndexByte(kind, '/'); i >= 0 {
		kind, name = kind[:i], kind[i+1:]
	}
	var err error
	switch kind {
	case "placed":
		v.changed([]cluster.Pair{p})
	case "component":
		err = v.component(name, p)
	case "manager":
		delete(v.managers, name)
		if p.Removed {
			v.left = append(v.left, p.Key)
			v.allDirty()
		} else {
			var m managerEntry
			err = json.Unmarshal(p.Value, &m)
			v.managers[name] = m.Name
		}
	case "region":
		err = v.region(p)
	}
	if err != nil {
		v.bad = append(v.bad[max(0, len(v.bad)-15):], fmt.Errorf("%s: %w", p.Key, err))
	}
}

// changed takes what keyPlaced and keyLost were put at last.
func (v *view) changed(list []cluster.Pair) {
	for _, p := range list {
		switch p.Key {
		case keyPlaced:
			v.placed = max(v.placed, p.Changed)
		case keyLost:
			v.lost = max(v.lost, p.Changed)
		}
	}
}

func (v *view) component(name string, p cluster.Pair) error {
	old := v.components[name]
	if old != nil && p.Changed <= old.rev {
		return nil
	}
	if p.Removed {
		if old != nil {
			v.members++
			v.allDirty()
			v.left = append(v.left, p.Key)
		}
		delete(v.components, name)
		return nil
	}
	c := &componentView{lease: p.Lease, rev: p.Changed}
	if err := json.Unmarshal(p.Value, &c.Component); err != nil {
		return err
	}
	if old == nil || old.Incarnation != c.Incarnation || !slices.Equal(old.Addrs, c.Addrs) {
		v.members++
	}
	if old != nil && old.Incarnation == c.Incarnation {
		c.placed, c.extents = old.placed, old.extents
		v.components[name] = c
		return nil
	}
	v.components[name] = c
	v.allDirty()
	for _, r := range v.regions { // its extents may have been heard of before it
		v.countExtents(r.record, 1, func(component string) bool { return component == name })
	}
	return nil
}

func (v *view) region(p cluster.Pair) error {
	var id uint16
	if _, err := fmt.Sscanf(strings.TrimPrefix(p.Key, keyRegion), "%04x", &id); err != nil {
		return err
	}
	old := v.regions[id]
	if old != nil && p.Changed <= old.rev {
		return nil
	}
	if old != nil {
		v.count(old.record, -1)
		delete(v.regions, id)
		if v.names[old.Name] == id {
			delete(v.names, old.Name)
		}
	}
	if p.Removed {
		return nil
	}
	r := new(record)
	if err := json.Unmarshal(p.Value, r); err != nil {
		return err
	}
	for _, e := range r.Parts {
		if e.Place < 0 || e.Place >= len(r.Places) || e.Size == 0 {
			return fmt.Errorf("extent of %d bytes at place %d of %d", e.Size, e.Place, len(r.Places))
		}
	}
	if r.Region != id || id < pool.FirstManaged {
		return fmt.Errorf("it says that it is region %d", r.Region)
	}
	v.regions[id] = &regionView{r, p.Changed}
	v.dirty[id] = true
	if r.Name != "" {
		v.names[r.Name] = id
	}
	v.count(r, 1)
	return nil
}

// count adds a region's extents to its components, or takes them off. What is to be dropped counts until it is freed.
func (v *view) count(r *record, sign int) {
	if v.owned[r.Owner] += sign; v.owned[r.Owner] == 0 {
		delete(v.owned, r.Owner)
	}
	v.countExtents(r, sign, func(string) bool { return true })
}

// countExtents counts those at some components. A component can be at two places of a region: an earlier life's, whose extents are lost, and this one's.
func (v *view) countExtents(r *record, sign int, of func(component string) bool) {
	add := func(at int, n uint64) {
		if p := r.Places[at]; of(p.Name) && v.alive(p) {
			c := v.components[p.Name]
			c.extents += sign
			if sign < 0 {
				n = -n
			}
			c.placed += n
		}
	}
	for _, p := range r.Parts {
		add(p.Place, p.Size)
	}
	for _, d := range r.Drop {
		add(d.Place, d.Size)
	}
}
