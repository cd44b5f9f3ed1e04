package excache

import "testing"

// farCore has remote pages in rooms of a store that is not mapped.
func farCore(limit, rooms int) *Core {
	c := NewCore(limit)
	for r := range rooms {
		c.AddRoom(r)
		c.Own(r, 1, true)
		c.Put(uint32(r)*roomPages, roomPages)
	}
	return c
}

// TestReadAhead: a walk through a far store, a run of which takes as long as it takes the program to walk through three, waits for none once it
// has gone on for a while.
func TestReadAhead(t *testing.T) {
	const pages, delay = 2 * roomPages, 3
	for name, page := range map[string]func(i uint32) uint32{
		"up":   func(i uint32) uint32 { return i },
		"down": func(i uint32) uint32 { return pages - 1 - i },
	} {
		c := farCore(1024, 2)
		type flight struct {
			transfer uint8
			until    uint64
		}
		var under []flight
		apply := func(effects []effect) (waits bool) {
			for _, e := range effects {
				if e.kind == fetch || e.kind == send {
					under = append(under, flight{e.transfer, c.Counts.Faults + delay})
					waits = waits || c.transfers[e.transfer].wanted
				}
				waits = waits || e.kind == await || e.kind == stall
			}
			return waits
		}
		late := 0
		for i := range uint32(pages) {
			for p := page(i); !c.Allows(p, false); {
				for len(under) > 0 && under[0].until <= c.Counts.Faults {
					apply(c.Ended(under[0].transfer))
					under = under[1:]
				}
				if c.Allows(p, false) {
					break
				}
				waits := apply(c.Fault(p, false, false))
				apply(c.MakeRoom())
				if waits && i > 500 {
					late++
				}
				for waits && !c.Allows(p, false) { // however long it takes
					apply(c.Ended(under[0].transfer))
					under = under[1:]
				}
			}
		}
		if late > 0 {
			t.Errorf("%s: it waited %d times", name, late)
		}
		if per := float64(c.Counts.Fetched) / float64(c.Counts.Faults); per < 12 {
			t.Errorf("%s: %.1f pages a fault", name, per)
		}
	}
}

// TestFarNoAllocation: neither faults nor the ends of operations allocate.
func TestFarNoAllocation(t *testing.T) {
	c := farCore(256, 1)
	p := uint32(0)
	if n := testing.AllocsPerRun(5000, func() {
		p = p*1664525 + 1013904223
		c.Fault(p>>16%roomPages, p>>9&1 == 0, false)
		for i := range c.transfers {
			if k := c.transfers[i].kind; k == fetching || k == sending {
				c.Ended(uint8(i))
			}
		}
		c.Resume()
		c.MakeRoom()
	}); n != 0 {
		t.Errorf("%v allocations a fault", n)
	}
}
