package share

import (
	"container/list"
	"time"
)

// Door bounds strangers: connections that have not said yet who they are. When it is full, a newcomer takes the place of the one that has
// stood there longest, of those that came from where most did. So silent and slow ones cannot keep others out, however many there are. It is not safe for
// concurrent use.
type Door struct {
	Limit int
	// Grace is how long each may stand there at least: time to say who it is.
	Grace time.Duration

	line list.List // of *Guest, the first that came in front
	of   map[string]int
}

// Guest is one that stands in a Door.
type Guest struct {
	from  string
	came  time.Time
	end   func()
	place *list.Element // nil: not any more
}

// Enter lets one in that comes from a place (a host, a process), at a time that is never before the last. If it has to wait first, g is nil, and it can try again after
// that; else out, if it is not nil, is the end of the guest whose place it has: the caller calls it. A later Enter may answer this end likewise.
func (d *Door) Enter(now time.Time, from string, end func()) (g *Guest, out func(), wait time.Duration) {
	if d.line.Len() >= d.Limit {
		oldest := d.oldest()
		if wait = d.Grace - now.Sub(oldest.came); wait > 0 {
			return nil, nil, wait
		}
		d.Leave(oldest)
		out = oldest.end
	}
	g = &Guest{from: from, came: now, end: end}
	g.place = d.line.PushBack(g)
	if d.of == nil {
		d.of = map[string]int{}
	}
	d.of[from]++
	return g, out, 0
}

// oldest is the guest that came first, of those from where most are.
func (d *Door) oldest() *Guest {
	most := 0
	for _, n := range d.of {
		most = max(most, n)
	}
	for e := d.line.Front(); ; e = e.Next() {
		if g := e.Value.(*Guest); d.of[g.from] == most {
			return g
		}
	}
}

// Leave takes a guest away that has been let in, or has given up. More than once is no harm.
func (d *Door) Leave(g *Guest) {
	if g.place == nil {
		return
	}
	d.line.Remove(g.place)
	g.place = nil
	if d.of[g.from]--; d.of[g.from] == 0 {
		delete(d.of, g.from)
	}
}

// Len is how many stand there.
func (d *Door) Len() int { return d.line.Len() }

// Each calls fn for each one's end.
func (d *Door) Each(fn func(end func())) {
	for e := d.line.Front(); e != nil; e = e.Next() {
		fn(e.Value.(*Guest).end)
	}
}
