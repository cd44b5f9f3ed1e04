package manager_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric/sim"
	"github.com/wherry-fabric/wherry/internal/seeds"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/manager"
)

const mib = 1 << 20

var owner = cluster.Principal{Name: "owner", Caps: cluster.CapRead | cluster.CapWrite}

// simulate runs a cluster of some components under load for a minute, with faults, and then in peace until all that is left must be right.
func simulate(seed uint64, fail seeds.Fail, components, managers int, faults bool) *world {
	w := newWorld(seed, fail, components, managers)
	w.Run(2 * time.Second)
	w.lossy = 0.05
	w.load(40 * time.Second)
	if faults {
		w.faults(40 * time.Second)
	}
	w.Run(45 * time.Second)
	w.lossy = 0
	for _, m := range w.managers {
		if m.life == 0 {
			m.boot()
		}
	}
	for _, c := range w.components {
		c.cut = false
	}
	w.Run(2 * time.Minute) // longer than managers take to ask all components what they hold
	w.checkEnd()
	return w
}

func newWorld(seed uint64, fail seeds.Fail, components, managers int) *world {
	w := &world{World: sim.New(seed, sim.Faults{}), t: fail, store: cluster.NewMemory(), made: map[string]*pool.Table{}, unsure: map[string]bool{}, ending: map[string]int{},
		replies: map[uint64]func(any, error){}}
	var clock func()
	clock = func() {
		if w.still <= w.now() {
			w.store.Tick(w.now())
		}
		w.After(100*time.Millisecond, clock)
	}
	clock()
	for i := range managers {
		w.managers = append(w.managers, &simManager{w: w, name: fmt.Sprint("m", i)})
		w.managers[i].boot()
	}
	for i := range components {
		w.components = append(w.components, &simComponent{w: w, name: fmt.Sprint("c", i), capacity: uint64(w.Rand.IntN(7)+2) * 64 * mib})
		w.components[i].boot()
	}
	return w
}

// ask has a manager that is up asked for something.
func (w *world) ask(body any, then func(answer any, err error)) {
	m := w.managers[w.Rand.IntN(len(w.managers))]
	if m.life == 0 || m.still > w.now() {
		then(nil, cluster.ErrAway)
		return
	}
	w.ticket++
	ticket, life := w.ticket, m.life
	w.replies[ticket] = then
	m.core.Ask(w.now(), manager.Request{Ticket: ticket, Who: owner, Time: 5 * time.Second, Body: body})
	m.carryOut()
	w.After(6*time.Second, func() { // a manager that is down answers nothing
		if then := w.replies[ticket]; then != nil {
			delete(w.replies, ticket)
			if m.life == life && m.still < w.now()-6*time.Second { // it did not stand still meanwhile
				w.fail("%s did not answer %T", m.name, body)
			}
			then(nil, cluster.ErrAway)
		}
	})
}

// load makes, resizes, looks up and destroys regions for a while.
func (w *world) load(d time.Duration) {
	for at := time.Duration(0); at < d; at += w.Between(0, 100*time.Millisecond) {
		w.After(at, w.act)
	}
}

func (w *world) act() {
	name := fmt.Sprint("r", w.Rand.IntN(60))
	n := pool.NameRequest{Name: name}
	size := uint64(w.Rand.IntN(6*64)+1) * mib
	done := func(_ any, err error) {
		if w.unsure[name] = w.unsure[name] || err != nil; err == nil {
			w.done++
		}
	}
	switch w.Rand.IntN(6) {
	case 0, 1, 2:
		w.ask(pool.CreateRequest{Name: name, Size: size}, func(answer any, err error) {
			t, ok := answer.(*pool.Table)
			switch {
			case ok:
				w.checkTable(t)
				if w.made[name] != nil && !w.unsure[name] && w.ending[name] == 0 {
					w.fail("%s was made twice", name)
				}
				w.done++
				w.made[name] = t
			case !errors.Is(err, pool.ErrExists) && !errors.Is(err, pool.ErrMemory):
				w.unsure[name] = true
			}
		})
	case 3:
		w.ending[name]++
		w.unsure[name] = w.unsure[name] || w.made[name] == nil
		w.ask(manager.DestroyRequest{NameRequest: n}, func(_ any, err error) {
			w.ending[name]--
			if err == nil {
				delete(w.made, name)
				w.done++
			} else if !errors.Is(err, pool.ErrNoRegion) {
				w.unsure[name] = true
			}
		})
	case 4:
		w.ask(pool.ResizeRequest{NameRequest: n, Size: size}, func(_ any, err error) {
			if err == nil {
				w.done++
			}
		})
	case 5:
		w.ask(pool.LookupRequest{NameRequest: n}, func(answer any, err error) {
			if t, ok := answer.(*pool.Table); ok {
				w.checkTable(t)
				done(nil, nil)
			}
		})
	}
}

// checkTable: a table covers its region.
func (w *world) checkTable(t *pool.Table) {
	next := uint64(0)
	for _, e := range t.Parts {
		if e.Off != next || e.Size == 0 || e.Component == "" {
			w.fail("table %+v", t)
		}
		next += e.Size
	}
	if next != t.Size {
		w.fail("a table of %d bytes for a region of %d", next, t.Size)
	}
}

// faults kills, restarts and cuts off components and managers for a while.
func (w *world) faults(d time.Duration) {
	for at := time.Second; at < d; at += w.Between(100*time.Millisecond, 2*time.Second) {
		w.After(at, func() {
			c, m := w.components[w.Rand.IntN(len(w.components))], w.managers[w.Rand.IntN(len(w.managers))]
			switch w.Rand.IntN(9) {
			case 0, 1:
				c.up = false
				w.After(w.Between(0, 10*time.Second), func() {
					if !c.up {
						c.boot()
					}
				})
			case 2, 3:
				c.cut = true
				w.After(w.Between(0, 10*time.Second), func() { c.cut = false })
			case 4:
				m.life = 0
				w.After(w.Between(0, 8*time.Second), func() {
					if m.life == 0 {
						m.boot()
					}
				})
			case 5:
				w.lossy = 0.05 + 0.4*w.Rand.Float64()
				w.After(2*time.Second, func() { w.lossy = 0.05 })
			case 6:
				w.stall(&w.still, w.Between(0, 8*time.Second))
			case 7:
				w.stall(&m.still, w.Between(0, 8*time.Second))
			case 8:
				w.revoke()
			}
		})
	}
}

// checkEnd: in peace the store, the components and what clients were answered agree.
func (w *world) checkEnd() {
	list, _, _ := w.store.Get(context.Background(), "/wherry/1/")
	regions, _ := manager.StoredRegions(list)
	type at struct {
		component string
		region    uint16
		pool.Range
	}
	owned := map[at]bool{}
	names := map[string]bool{}
	for _, r := range regions {
		names[r.Name] = true
		if r.State != "ready" {
			w.fail("region %d is still %s, by %s", r.Region, r.State, r.By)
		}
		room := uint64(0)
		r.Extents(func(name string, inc cluster.Incarnation, lost, dropped bool, off, size uint64) {
			room += size
			c := w.component(name)
			if gone := !c.up || cluster.Incarnation(c.life) != inc; lost {
				return
			} else if gone {
				w.fail("extent %d of region %d is said to be at %s, which has another life", off, r.Region, name)
				return
			}
			h := c.held[r.Region]
			if h == nil || h.made != r.Made || h.epoch != r.Epoch || h.size != r.Size || !h.parts[pool.Range{Off: off, Size: size}] {
				w.fail("extent %d of region %+v is lost: %s has %+v", off, *(r.Top()), name, h)
			}
			if dropped {
				w.fail("extent %d of region %d was never dropped", off, r.Region)
			}
			owned[at{name, r.Region, pool.Range{Off: off, Size: size}}] = true
		})
		if room < r.Size {
			w.fail("region %d has %d bytes of extents for its %d", r.Region, room, r.Size)
		}
	}
	for _, c := range w.components {
		for id, h := range c.held {
			for p := range h.parts {
				if c.up && !owned[at{c.name, id, p}] {
					w.fail("extent %+v of region %d at %s is nobody's: %+v", p, id, c.name, h)
				}
			}
		}
	}
	for name := range w.made {
		if !names[name] && !w.unsure[name] {
			w.fail("region %s is gone", name)
		}
	}
}

// TestSim: two to four managers that know nothing of each other but the store, under load, with managers and components killed and cut off.
func TestSim(t *testing.T) {
	done := 0
	n := 12
	if testing.Short() { // the race detector makes them long, and what is simulated has one goroutine
		n = 1
	}
	trials.Each(t, n, func(seed uint64, fail seeds.Fail) {
		done += simulate(seed, fail, 10+int(seed%20), 2+int(seed%3), seed%4 != 0).done
	})
	if done < 100 && !trials.One() {
		t.Errorf("%d requests succeeded: the simulation tries nothing", done)
	}
}

// TestThousand: a thousand components.
func TestThousand(t *testing.T) {
	components := 1000
	if testing.Short() {
		components = 50
	}
	trials.Each(t, 1, func(seed uint64, fail seeds.Fail) { simulate(seed, fail, components, 3, true) })
}

// TestSimBites: where the store forgets conditions, the simulation notices.
func TestSimBites(t *testing.T) {
	var found []string
	for seed := uint64(1); seed < 20 && len(found) == 0; seed++ {
		w := newWorld(seed, func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }, 6, 3)
		w.loose = true
		w.Run(2 * time.Second)
		w.load(10 * time.Second)
		w.Run(15 * time.Second)
	}
	if len(found) == 0 {
		t.Error("no extent was given twice although nothing kept managers from it")
	}
	slices.Sort(found)
}

// TestStall: the store stands still for a while, or managers do, all or all but one, or both, and no component does. Nothing is lost, and what is done then
// is done. A component that is killed meanwhile is lost all the same.
func TestStall(t *testing.T) {
	n := 60
	if testing.Short() {
		n = 6
	}
	trials.Each(t, n, func(seed uint64, fail seeds.Fail) {
		w := newWorld(seed, fail, 6, 1+int(seed%3))
		w.Run(10 * time.Second)
		var t1, t2 *pool.Table
		w.ask(pool.CreateRequest{Name: "a", Size: 512 * mib}, func(a any, err error) { t1, _ = a.(*pool.Table) })
		w.Run(time.Second)
		if t1 == nil {
			fail("nothing was made")
			return
		}
		lookup := func() {
			t2 = nil
			w.ask(pool.LookupRequest{NameRequest: pool.NameRequest{Name: "a"}}, func(a any, err error) { t2, _ = a.(*pool.Table) })
			w.Run(6 * time.Second)
		}
		for range 4 {
			d := w.Between(0, 16*time.Second)
			if seed%4 != 0 {
				w.stall(&w.still, d)
			}
			if seed%4 != 1 {
				spared := w.Rand.IntN(len(w.managers) + 1) // or none
				for i, m := range w.managers {
					if i != spared || len(w.managers) == 1 {
						w.stall(&m.still, w.Between(d/2, d))
					}
				}
			}
			w.Run(d)
			if w.chance(0.5) {
				w.revoke()
			}
			w.Run(w.Between(0, 10*time.Second))
			if lookup(); t2 == nil || t2.Epoch != t1.Epoch || slices.ContainsFunc(t2.Parts, func(e pool.Extent) bool { return e.Lost }) {
				fail("%v after they stood still for %v: %+v, not %+v", w.World, d, t2, t1)
				return
			}
		}
		w.stall(&w.still, 4*time.Second)
		c := w.component(t1.Parts[0].Component)
		c.up = false
		w.Run(30 * time.Second)
		if lookup(); t2 == nil || t2.Epoch == t1.Epoch || t2.Parts[0].Component != c.name || !t2.Parts[0].Lost {
			fail("%s is killed: %+v", c.name, t2)
		}
	})
}

// TestRefused: who asks for more than components take hears which of them refused, and what the others have; not what is free at those that refused.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		most [2]uint64
		size uint64
		want string    // "": it is made
		lend [2]uint64 // other than 512 and 256 MiB
	}{
		{size: 1000 * mib, lend: [2]uint64{700 * mib, 300 * mib}, want: "have 1000.0 MiB free, at most 700.0 MiB at one of them. Extents are placed whole, and 956 MiB fit in such"},
		{size: 956 * mib, lend: [2]uint64{700 * mib, 300 * mib}},
		{size: 957 * mib, lend: [2]uint64{700 * mib, 300 * mib}, want: "956 MiB fit"},
		{size: 40 * mib, lend: [2]uint64{30 * mib, 20 * mib}, want: "30 MiB fit"},
		{size: 1000 * mib, want: "and the components that lend (2) have 768.0 MiB free, at most 512.0 MiB at one of them"},
		{most: [2]uint64{64 * mib, 0}, size: 400 * mib, want: "c0 refused, and the others that lend (1) have "},
		{most: [2]uint64{mib, mib}, size: 200 * mib, want: "and all components that lend refused (c0, c1)"},
	} {
		w := newWorld(1, t.Fatalf, 3, 1)
		for i, n := range []uint64{cmp.Or(c.lend[0], 512*mib), cmp.Or(c.lend[1], 256*mib), 0} {
			w.components[i].capacity = n
		}
		w.components[0].most, w.components[1].most = c.most[0], c.most[1]
		w.Run(10 * time.Second)
		var got error
		w.ask(pool.CreateRequest{Name: "a", Size: c.size}, func(_ any, err error) { got = err })
		w.Run(8 * time.Second)
		if c.want == "" {
			if got != nil {
				t.Errorf("%d bytes: %v", c.size, got)
			}
			continue
		}
		if !errors.Is(got, pool.ErrMemory) || !strings.Contains(got.Error(), c.want) {
			t.Errorf("%v, without %q", got, c.want)
		}
	}
}

// TestLost: a component that is killed is named within the time of its lease and two seconds, its grace in them, and the region's epoch moves.
func TestLost(t *testing.T) {
	trials.Each(t, 5, func(seed uint64, fail seeds.Fail) {
		w := newWorld(seed, fail, 4, 2)
		w.Run(10 * time.Second)
		var t1, t2 *pool.Table
		w.ask(pool.CreateRequest{Name: "a", Size: 256 * mib}, func(a any, err error) { t1, _ = a.(*pool.Table) })
		w.Run(time.Second)
		if t1 == nil || len(t1.Members) < 2 {
			fail("%+v", t1)
			return
		}
		c := w.component(t1.Parts[0].Component)
		c.up = false
		w.Run(manager.LeaseTime + 2*time.Second)
		w.ask(pool.LookupRequest{NameRequest: pool.NameRequest{Name: "a"}}, func(a any, err error) { t2, _ = a.(*pool.Table) })
		w.Run(time.Second)
		if t2 == nil || t2.Epoch <= t1.Epoch || len(t2.Parts) != len(t1.Parts) {
			fail("%+v after %+v", t2, t1)
			return
		}
		for _, p := range t2.Parts {
			if p.Lost != (p.Component == c.name) {
				fail("%s is killed: %+v", c.name, p)
			}
		}
	})
}
