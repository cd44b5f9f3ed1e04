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
	a := auditor{t: t, c: c, free: map[any]string{}, refs: map[*Binding]int{}, tenants: map[*tenant][4]int{}}
	for _, b := range bound {
		a.refs[b]++
	}
	pooled(&a, "run", c.runPool.free)
	pooled(&a, "invocation", c.invPool.free)
	pooled(&a, "future", c.futPool.free)
	pooled(&a, "branch", c.branchPool.free)
	c.invs.all(func(inv *invocation) {
		if got := c.invs.get(inv.id.Seq, inv.id.Origin); got != inv {
			t.Errorf("invocation %v is in the table and is not found there", inv.id)
		}
		if inv.timer.armed() == inv.dead {
			t.Errorf("invocation %v: armed %v, dead %v", inv.id, inv.timer.armed(), inv.dead)
		}
		a.invocation(inv)
	})
	a.light()
	a.lightFuture()
	a.peers()
	a.sums()
}

// light: it lies in no list, and its invocation is in no table.
func (a *auditor) light() {
	r := a.c.light
	if r == nil {
		return
	}
	a.running++
	a.live("the light run", r)
	a.refs[r.binding]++
	if r.stowed {
		a.refs[r.as]++
	}
	if r.inv != nil || r.state != runRunning || r.inInv.in != nil {
		a.t.Error("the light run has an invocation, or does not run")
	}
	if !r.from.up || !r.origin.up || r.came >= r.from.recvLow || a.c.invs.get(r.seq, r.origin.Incarnation) != nil {
		a.t.Errorf("the light run by transfer %d is of a peer that is gone, never came, or its invocation is here", r.came)
	}
}

// lightFuture: a future and a record without them.
func (a *auditor) lightFuture() {
	e := &a.c.lightFuture
	if !e.open {
		return
	}
	a.futures++
	a.refs[e.binding]++
	if s := e.p.sentAt(e.transfer); !e.p.up || e.transfer >= e.p.next || s != nil && (s.seq != e.seq || s.origin != a.c.cfg.Self) ||
		e.seq > a.c.nextID || a.c.invs.get(e.seq, a.c.cfg.Self) != nil {
		a.t.Errorf("the light future %d by transfer %d is to a peer that is gone, never went, or is noted down too", e.seq, e.transfer)
	}
}

type auditor struct {
	t       *testing.T
	c       *Core
	free    map[any]string
	refs    map[*Binding]int
	tenants map[*tenant][4]int // runs, ready ones, those that await room, records
	runs    int
	running int
	records int
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
		if r.inv != inv || r.state == runFree {
			t.Errorf("a run of %v is another's, or free", inv.id)
		}
		a.runs++
		a.counts(r)
		if r.binding != nil {
			a.refs[r.binding]++
			if r.stowed {
				a.refs[r.as]++
			}
		}
	}
	a.seats(inv)
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

// seats: each one's run is its invocation's and its worker's, and they are counted.
func (a *auditor) seats(inv *invocation) {
	worker, busy, held := 0, 0, 0
	inv.seats.all(func(s *seat) {
		if r := s.active; r != nil {
			if busy++; r.inv != inv || int(r.worker) != worker {
				a.t.Errorf("the run whose turn it is in %v, of worker %d, is another's", inv.id, worker)
			}
		}
		for n := s.waiting.first; n != nil; n = n.next {
			if n.v.inv != inv || int(n.v.worker) != worker || n.v.state != runWaiting {
				a.t.Errorf("a run that waits for its turn in %v, of worker %d, is another's", inv.id, worker)
			}
		}
		if s.holds {
			held++
		}
		worker++
	})
	if s := &inv.seats; s.busy != busy || s.held != held || busy > a.c.lim.Workers || (inv.inHolders.in != nil) != (held > 0) {
		a.t.Errorf("invocation %v: %d workers are busy and %d hold state, counted %d and %d", inv.id, busy, held, s.busy, s.held)
	}
}

// peers: what is under way to each lies where its number says, and counts.
func (a *auditor) peers() {
	for _, p := range a.c.peers {
		if p == nil {
			continue
		}
		used := 0
		for i := range p.sent {
			if p.sent[i].used {
				used++
			}
		}
		n := 0
		for t := p.low; t < p.next; t++ {
			s := p.sentAt(t)
			if s == nil {
				continue
			}
			n++
			a.record(s.tenant)
			if s.binding != nil {
				a.refs[s.binding]++
			}
			if s.deadline < a.c.sentEnd {
				a.t.Errorf("transfer %d to %s ends before all do", t, p.Name)
			}
		}
		if n != used || p.next-p.low > WindowTransfers || p.low < p.next && p.sentAt(p.low) == nil {
			a.t.Errorf("%s has %d messages under way, %d of them between %d and %d", p.Name, used, n, p.low, p.next)
		}
		a.records += n
	}
	if a.records != a.c.records {
		a.t.Errorf("%d messages under way, counted %d", a.records, a.c.records)
	}
}

func (a *auditor) sums() {
	c := a.c
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
	if a.invs != c.invs.n || a.futures != c.futures || a.running != c.running {
		a.t.Errorf("%d invocations, %d futures, %d running; counted %d, %d, %d", a.invs, a.futures, a.running, c.invs.n, c.futures, c.running)
	}
	if got := a.placed + len(c.tombs.lapsed); got != c.tombs.places {
		a.t.Errorf("%d places are taken, %d are counted", got, c.tombs.places)
	}
	owned, sum := map[string]int{}, 0
	for _, b := range c.bindings {
		if b.owner != nil {
			owned[*b.owner]++
			sum++
		}
	}
	for owner, n := range c.bindingsOf {
		if sum -= n; n != owned[owner] || n == 0 {
			a.t.Errorf("principal %q has %d bindings, counted %d", owner, owned[owner], n)
		}
	}
	if sum != 0 {
		a.t.Errorf("%d bindings are counted for nobody", sum)
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
