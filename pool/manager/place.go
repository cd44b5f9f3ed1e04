package manager

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/component"
)

// candidate is a component in the order in which extents are given to it.
type candidate struct {
	*componentView
	left uint64
}

// score is higher for those with more room in proportion, and less to do.
func (c *candidate) score() float64 {
	return float64(c.left)/float64(c.Capacity) - float64(min(c.Load, 100))/200
}

type candidates []*candidate

func (l candidates) Len() int { return len(l) }
func (l candidates) Less(i, j int) bool {
	if a, b := l[i].score(), l[j].score(); a != b {
		return a > b
	}
	return l[i].Name < l[j].Name
}
func (l candidates) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *candidates) Push(x any)   { *l = append(*l, x.(*candidate)) }
func (l *candidates) Pop() any {
	last := len(*l) - 1
	c := (*l)[last]
	*l = (*l)[:last]
	return c
}

// place chooses a component for each extent: always the one that then has the most room in proportion, and little to do. Those of except are passed
// over. It adds to a record's places and parts.
func (v *view) place(r *record, sizes []uint64, except map[string]bool) error {
	var list candidates
	for _, c := range v.components {
		if c.Capacity > 0 && !except[c.Name] {
			list = append(list, &candidate{c, c.free()})
		}
	}
	lend := slices.Clone(list)
	where := map[string]int{}
	for i, p := range r.Places {
		if v.alive(p) {
			where[p.Name] = i
		}
	}
	heap.Init(&list)
	for _, n := range sizes {
		var passed candidates // has too little room for this extent, whatever its score
		for len(list) > 0 && list[0].left < n {
			passed = append(passed, heap.Pop(&list).(*candidate))
		}
		if len(list) == 0 {
			return lack(lend, sizes, slices.Sorted(maps.Keys(except)))
		}
		c := list[0]
		at, ok := where[c.Name]
		if !ok {
			at = len(r.Places)
			where[c.Name] = at
			r.Places = append(r.Places, place{Name: c.Name, Incarnation: c.Incarnation})
		}
		r.Parts = append(r.Parts, part{at, n})
		c.left -= n
		heap.Fix(&list, 0)
		for _, p := range passed {
			heap.Push(&list, p)
		}
	}
	return nil
}

// lack says what components had, all together and one of them at most, where that was too little for extents of these sizes. What those had that refused is not counted.
func lack(lend candidates, sizes []uint64, refused []string) error {
	each := slices.Max(sizes)
	all, most, whole, rest, total := uint64(0), uint64(0), uint64(0), uint64(0), uint64(0)
	for _, c := range lend {
		n := c.free()
		all, most, whole, rest = all+n, max(most, n), whole+n/each*each, max(rest, n%each)
	}
	for _, n := range sizes {
		total += n
	}
	const do = "destroy regions, raise a component's pool_memory, or add one"
	free := fmt.Sprintf("%s free, at most %s at one of them", component.SizeText(int64(all)), component.SizeText(int64(most)))
	if total <= all { // what is missing is not to be seen from these; the last extent may be a smaller one, and lies in the largest rest
		free += fmt.Sprintf(". Extents are placed whole, and %d MiB fit in such: make the region smaller,", (whole+rest)>>20)
	} else {
		free += ":"
	}
	why := fmt.Sprintf("and the components that lend (%d) have %s", len(lend), free)
	switch names := strings.Join(refused, ", "); {
	case names == "":
	case len(lend) == 0:
		why = fmt.Sprintf("and all components that lend refused (%s):", names)
	default:
		why = fmt.Sprintf("%s refused, and the others that lend (%d) have %s", names, len(lend), free)
	}
	return fmt.Errorf("%w: %s in extents of up to %s are asked for, %s %s", pool.ErrMemory, component.SizeText(int64(total)), component.SizeText(int64(each)), why, do)
}

// top lists components, and the regions that see says may be shown.
func (v *view) top(see func(*record) bool) (t Top) {
	t.Components, t.Regions = []TopComponent{}, []TopRegion{}
	for _, c := range v.components {
		t.Components = append(t.Components, TopComponent{c.Component, c.placed, c.free(), c.extents})
	}
	for _, r := range v.regions {
		if see(r.record) {
			t.Regions = append(t.Regions, r.top())
		}
	}
	t.Managers = v.managerNames()
	slices.SortFunc(t.Components, func(a, b TopComponent) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(t.Regions, func(a, b TopRegion) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Region, b.Region))
	})
	return t
}

func (r *record) top() TopRegion {
	t := TopRegion{Region: r.Region, Name: r.Name, Owner: r.Owner, Size: r.Size, Epoch: r.Epoch, State: r.State, Extents: len(r.Parts), Components: []string{}}
	for _, p := range r.Places {
		if p.Lost {
			t.Lost = append(t.Lost, p.Name)
		} else {
			t.Components = append(t.Components, p.Name)
		}
	}
	return t
}
