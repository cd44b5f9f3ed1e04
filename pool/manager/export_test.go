package manager

import (
	"encoding/json"
	"strings"

	"github.com/wherry-fabric/wherry/cluster"
)

// StoredRegion is a region as the store has it, for tests.
type StoredRegion struct{ *record }

// StoredRegions reads the regions and components of a store's pairs.
func StoredRegions(list []cluster.Pair) (regions []StoredRegion, components map[string]Component) {
	components = map[string]Component{}
	for _, p := range list {
		switch {
		case strings.HasPrefix(p.Key, keyRegion):
			r := new(record)
			if err := json.Unmarshal(p.Value, r); err != nil {
				panic(err)
			}
			regions = append(regions, StoredRegion{r})
		case strings.HasPrefix(p.Key, keyComponent):
			var c Component
			if err := json.Unmarshal(p.Value, &c); err != nil {
				panic(err)
			}
			components[c.Name] = c
		}
	}
	return regions, components
}

// Extents calls fn for each extent that a region has or is to drop, with its place.
func (r StoredRegion) Extents(fn func(component string, incarnation cluster.Incarnation, lost, dropped bool, off, size uint64)) {
	off := uint64(0)
	for _, p := range r.Parts {
		at := r.Places[p.Place]
		fn(at.Name, at.Incarnation, at.Lost, false, off, p.Size)
		off += p.Size
	}
	for _, d := range r.Drop {
		at := r.Places[d.Place]
		fn(at.Name, at.Incarnation, at.Lost, true, d.Off, d.Size)
	}
}

// Top describes it.
func (r StoredRegion) Top() *TopRegion { t := r.top(); return &t }
