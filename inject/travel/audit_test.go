package travel

import (
	"reflect"
	"slices"
	"testing"
)

// audit looks at every record of a core as it lies there, before anything that was put off is caught up with: no
// record that is in use lies in a pool, none lies there twice, lists and counts agree.
// bound are what Bind gave and Unbind did not get back.
func audit(t *testing.T, c *Core, bound ...*Binding) {
	t.Helper()
	a := auditor{t: t, c: c, free: map[any]string{}, refs: map[*Binding]int{}, holds: map[*hold]int{}, tenants: map[*tenant][4]int{}}
	for _, b := range bound {
		a.refs[b]++
	}
	pooled(&a, "run", c.runPool.free)
	pooled(&a, "invocation", c.invPool.free)
	pooled(&a, "hold", c.holdPool.free)
	pooled(&a, "record", c.recordPool.free)
	pooled(&a, "future", c.futPool.free)
	pooled(&a, "branch", c.branchPool.free)
	c.invs.all(func(inv *invocation) {
		if inv == c.loose {
			t.Error("the loose invocation is in the table")
		}
		if got := c.invs.get(inv.id.Seq, inv.id.Origin); got != inv {
			t.Errorf("invocation %v is in the table and is not found there", inv.id)
		}
		if inv.timer.armed() == inv.dead {
			t.Errorf("invocation %v: armed %v, dead %v", inv.id, inv.timer.armed(), inv.dead)
		}
		a.invocation(inv)
	})
	if c.loose != nil {
		if c.loose.timer.armed() {
			t.Error("the loose invocation has a timer")
		}
		if n := c.loose.runs.first; n != nil && (c.loose.runs.n != 1 || n.v.hold.count != 1+c.loose.records.n || n.v.hold.refused && !n.v.ended) {
			t.Error("of the loose invocation more is here than one run and what that sent, or its branch ended and may go on")
		}
		a.invocation(c.loose)
	}
	for _, s := range c.spent {
		a.live("future of a spent one", s.f)
		a.live("record of a spent one", s.r)
		if s.f.inv == nil || s.r.inv != s.f.inv || s.f.inv.fut != nil {
			t.Error("a spent future and its record have come apart")
			continue
		}
		a.futures++
		a.refs[s.f.binding]++
	}
	a.visit()
	a.errand()
	a.peers()
	a.sums()
}

// visit: all that is kept of it is in one place, and what it would become is in no other.
func (a *auditor) visit() {
	v := &a.c.visit
	if !v.open {
		return
	}
	if a.running++; v.Run == nil || *v.Run != nil || a.c.loose != nil {
		a.t.Error("the visit has a run already, or nowhere to put it")
	}
	a.refs[v.Binding]++
	if !v.from.up || !v.origin.up || v.transfer >= v.from.recvLow || a.c.invs.get(v.seq, v.origin.Incarnation) != nil {
		a.t.Errorf("the visit by transfer %d is of a peer that is gone, never came, or its invocation is here", v.transfer)
	}
}

// errand: a future and a record without them.
func (a *auditor) errand() {
	e := &a.c.errand
	if !e.open {
		return
	}
	a.futures++
	a.errands++
	a.record(&a.c.own)
	a.refs[e.binding]++
	if !e.p.up || e.transfer >= e.p.next || e.p.records.get(e.transfer, 0) != nil || e.p.relayed(e.transfer) != nil ||
		e.seq > a.c.nextID || a.c.invs.get(e.seq, a.c.cfg.Self) != nil {
		a.t.Errorf("the errand %d by transfer %d is to a peer that is gone, never went, or is noted down too", e.seq, e.transfer)
	}
}

type auditor struct {
	t       *testing.T
	c       *Core
	free    map[any]string
	refs    map[*Binding]int
	holds   map[*hold]int
	tenants map[*tenant][4]int // runs, ready ones, those that await room, records
	runs    int
	running int
	records int
	relays  int
	errands int
	futures int
	invs    int
	placed  int
}

func pooled[T any](a *auditor, what string, free []*T) {
	for _, v := range free {
		if a.free[v] != "" {
			a.t.Errorf("a %s lies in its pool twice", what)
		}
		a.free[v] = what
	}
}

func (a *auditor) live(what string, v any) {
	a.t.Helper()
	if reflect.ValueOf(v).IsNil() {
		a.t.Errorf("%s: none is there", what)
	} else if a.free[v] != "" {
		a.t.Errorf("%s: it is in use and in the pool", what)
	}
}

// counts adds a run to its principal's.
func (a *auditor) counts(r *Run) {
	n := a.tenants[r.tenant(a.c)]
	switch r.state {
	case runRunning:
		a.running++
		n[0]++
	case runQueued:
		n[1]++
	case runAwaiting:
		n[2]++
	}
	a.tenants[r.tenant(a.c)] = n
}

// record counts one to its principal's.
func (a *auditor) record(t *tenant) {
	n := a.tenants[t]
	n[3]++
	a.tenants[t] = n
}

func (a *auditor) invocation(inv *invocation) {
	t := a.t
	a.invs++
	a.live("invocation", inv)
	if inv.placed {
		a.placed++
	}
	if !inv.dead && inv.placed != (inv.stateful && inv.originPeer != nil) {
		t.Errorf("invocation %v: placed %v, stateful %v", inv.id, inv.placed, inv.stateful)
	}
	for n := inv.runs.first; n != nil; n = n.next {
		r := n.v
		a.live("run", r)
		a.live("a run's hold", r.hold)
		if r.inv != inv || r.state == runFree {
			t.Errorf("a run of %v is another's, or free", inv.id)
		}
		a.runs++
		a.counts(r)
		if r.binding != nil {
			a.refs[r.binding]++
		}
		a.holds[r.hold]++
	}
	if inv.active != nil && inv.active.inv != inv {
		t.Errorf("the run whose turn it is in %v is another's", inv.id)
	}
	n := 0
	for at := inv.records.first; at != nil; at = at.next {
		r := at.v
		n++
		a.live("record", r)
		if r.inv != inv || r.to == nil {
			t.Errorf("a record of %v is another's, or free", inv.id)
			continue
		}
		if got := r.to.records.get(r.transfer, 0); got != r {
			t.Errorf("transfer %d to %s is not found by its number", r.transfer, r.to.Name)
		}
		a.record(a.c.tenantOf(inv))
		if r.binding != nil {
			a.refs[r.binding]++
		}
		if r.hold != nil {
			a.live("a record's hold", r.hold)
			a.holds[r.hold]++
		}
	}
	if n != inv.records.n {
		t.Errorf("%v: %d records in a list of %d", inv.id, n, inv.records.n)
	}
	a.records += n
	if f := inv.fut; f != nil {
		a.live("future", f)
		if f.inv != inv {
			t.Errorf("the future of %v is another's", inv.id)
		}
		a.futures++
		a.refs[f.binding]++
		for i := range f.others.slots {
			if b := f.others.slots[i].v; b != nil {
				a.live("branch", b)
			}
		}
	}
}

func (a *auditor) peers() {
	n := 0
	for _, p := range a.c.peers {
		if p == nil {
			continue
		}
		p.records.all(func(r *record) {
			n++
			a.live("a peer's record", r)
			if r.to != p {
				a.t.Errorf("%s has a record of another peer's", p.Name)
			}
		})
		a.relaysOf(p)
	}
	onward := 0
	if inv := a.c.loose; inv != nil && inv.runs.first != nil && inv.runs.first.v.onward != nil {
		onward = 1 // its record is put off
		a.record(a.c.tenantOf(inv))
	}
	if n != a.records || n+a.relays+a.errands+onward != a.c.records || a.relays != a.c.relays {
		a.t.Errorf("%d records at peers, %d at invocations, %d relays, %d errands; counted %d and %d", n, a.records, a.relays, a.errands, a.c.records, a.c.relays)
	}
}

func (a *auditor) relaysOf(p *peer) {
	n := 0
	for i := range p.relays {
		s := &p.relays[i]
		if s.tag == 0 {
			continue
		}
		n++
		a.record(s.origin.tenant)
		a.refs[s.binding]++
		if t := s.tag - 1; p.relayed(t) != s || t >= p.next || p.records.get(t, 0) != nil {
			a.t.Errorf("the relay of transfer %d to %s is in the wrong slot, or has a record too", t, p.Name)
		}
		if s.origin == nil || !s.origin.up || s.pred != nil && !s.pred.up {
			a.t.Errorf("the relay of transfer %d to %s is of a peer that is gone", s.tag-1, p.Name)
		}
	}
	if n != p.relayN {
		a.t.Errorf("%s has %d relays and counts %d", p.Name, n, p.relayN)
	}
	a.relays += n
}

func (a *auditor) sums() {
	c, loose := a.c, 0
	queued, awaiting := 0, 0
	for t, n := range a.tenants {
		waits := 0
		for i := range t.rooms {
			waits += t.rooms[i].n
		}
		if t.running != n[0] || t.ready.n != n[1] || waits != n[2] || t.records != n[3] || (t.inReady.in != nil) != (n[1] > 0) || (t.inRooms.in != nil) != (n[2] > 0) {
			a.t.Errorf("principal %q: %v run, are ready, wait for room and are recorded; counted %d, %d, %d and %d", t.name, n, t.running, t.ready.n, waits, t.records)
		}
		queued, awaiting = queued+n[1], awaiting+n[2]
	}
	if queued != c.queued || awaiting != c.rooms.n || (c.rooms.look != 0) != (awaiting > 0) {
		a.t.Errorf("%d are ready, %d wait for room; counted %d and %d", queued, awaiting, c.queued, c.rooms.n)
	}
	if c.loose != nil {
		loose = 1
	}
	if a.invs != c.invs.n+loose || a.futures != c.futures || a.running != c.running {
		a.t.Errorf("%d invocations, %d futures, %d running; counted %d+%d, %d, %d", a.invs, a.futures, a.running, c.invs.n, loose, c.futures, c.running)
	}
	if got := a.placed + len(c.tombs.lapsed); got != c.tombs.places {
		a.t.Errorf("%d places are taken, %d are counted", got, c.tombs.places)
	}
	for h, n := range a.holds {
		if h != nil && h.count != n {
			a.t.Errorf("a hold of %d counts %d", n, h.count)
		}
	}
	for _, b := range c.bindings {
		if got := a.refs[b]; b.refs != got {
			a.t.Errorf("binding %v is used %d times and counts %d", b.Image, got, b.refs)
		}
	}
	for b := range a.refs {
		if !slices.Contains(c.bindings, b) {
			a.t.Error("a binding in use is in no slot")
		}
	}
}
