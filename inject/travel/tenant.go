package travel

// tenant is one principal's part of what is here: which of its branches run, which are ready to run and which
// wait for room. Each tenant takes its turn, so that no principal's crowd delays another's branch by more than one of it.
type tenant struct {
	name  string
	peers int // endpoints of the principal's

	running             int
	asleep              int // runs that wait for room to send: they do not count as running, and have their instances
	records             int // messages that were not acknowledged
	heldRuns, heldBytes int
	backlogBytes        int
	made                int          // functions that its runs have made
	fetches, fetchBytes int          // objects that are being asked for, and what of them is here
	unready             int          // runs that wait for their programs
	kept                list[Run]    // whose messages' credit is withheld
	inKeepers           node[tenant] // Core.keepers, while there are some
	paced               []pacedLink  // the members that keep branches of its back
	inPaced             node[tenant] // Core.paced, while there are some

	ready   list[Run]              // may begin, in their order
	granted list[Run]              // of those, the ones that have waited for room and have it: they begin first
	rooms   [roomClasses]list[Run] // wait for room, by the size of what they need
	most    uint64                 // scratch of Core.grantOne: what it may still ask for needs less
	inReady node[tenant]           // Core.ready, while some are ready
	inRooms node[tenant]           // Core.rooms.tenants, while some wait for room
}

func (t *tenant) init(name string) *tenant {
	t.name, t.inReady.v, t.inRooms.v, t.inKeepers.v, t.inPaced.v = name, t, t, t, t
	return t
}

// tenantFor finds or makes a principal's tenant for one more endpoint.
func (c *Core) tenantFor(principal string) *tenant {
	t := c.tenants[principal]
	if t == nil {
		t = new(tenant).init(principal)
		c.tenants[principal] = t
	}
	t.peers++
	return t
}

// vacate forgets a tenant of which nothing is left here.
func (c *Core) vacate(t *tenant) {
	if t.peers == 0 && t.running == 0 && t.heldRuns == 0 && t.records == 0 && t.backlogBytes == 0 && len(t.paced) == 0 && t.made == 0 && t.fetches == 0 && c.tenants[t.name] == t {
		delete(c.tenants, t.name)
	}
}

// tenant is the principal of a run's origin, for which it runs.
func (r *Run) tenant(c *Core) *tenant {
	return c.tenantOf(r.inv)
}

// enqueue makes a run wait for its turn to begin.
func (c *Core) enqueue(r *Run) {
	t := r.tenant(c)
	r.state = runQueued
	if r.reserved {
		t.granted.push(&r.inQueue)
	} else {
		t.ready.push(&r.inQueue)
	}
	c.queued++
	if t.inReady.in == nil {
		c.ready.push(&t.inReady)
	}
}

// dequeue takes a run out of the queue.
func (c *Core) dequeue(r *Run) {
	t := r.tenant(c)
	r.inQueue.leave()
	c.queued--
	if t.ready.n+t.granted.n == 0 {
		t.inReady.leave()
	}
}

// awaits reports whether runs of the tenant's wait for room or for their programs. They hold no place, so places do not bound them.
func (t *tenant) awaits() bool { return t.inRooms.in != nil || t.unready > 0 }

// begins is the tenant's run whose turn it is to begin, nil if none may. While some of the tenant's wait for room or programs, one that keeps
// its sender's credit does not: it could not go on keeping that if it found no room either.
func (t *tenant) begins() *Run {
	if n := t.granted.first; n != nil {
		return n.v
	}
	if n := t.ready.first; n != nil && (n.v.credit == nil || !t.awaits()) {
		return n.v
	}
	return nil
}

// crowds reports whether a run that arrives has to wait behind others of its tenant's that wait for room or programs, because it could not wait as
// they do.
func (c *Core) crowds(t *tenant, r *Run) bool { return t.awaits() && !c.fitsHeld(t, r.cost()) }

// next is the tenant whose turn it is to begin a run, nil if none may.
func (c *Core) next() *tenant {
	if c.running >= c.lim.Running {
		return nil
	}
	for n := c.ready.first; n != nil; n = n.next {
		if n.v.running < c.runShare && n.v.begins() != nil {
			return n.v
		}
	}
	return nil
}

// Ready reports whether NextRun would give a run.
func (c *Core) Ready() bool { return c.ready.first != nil && c.next() != nil }

// NextRun gives a run that waited in the queue, nil if there is none or the
// runtime has enough. The caller asks whenever a call of the core may have
// made one runnable, and after Finish.
func (c *Core) NextRun() *Run {
	t := c.next()
	if t == nil {
		return nil
	}
	r := t.begins()
	c.dequeue(r)
	if t.inReady.in != nil { // the others' turn
		t.inReady.leave()
		c.ready.push(&t.inReady)
	}
	c.uncharge(r)
	c.begin(r)
	return r
}

// begin marks a run as the runtime's.
func (c *Core) begin(r *Run) {
	if r.inv.stateful {
		r.inv.seats.take(r)
	}
	r.state, r.reserved = runRunning, false
	c.running++
	r.tenant(c).running++
	if !r.awaited {
		c.stats.Runs++
	}
}

// endRunning takes a run off those that are the runtime's: it has ended.
func (c *Core) endRunning(r *Run) {
	c.Awake(r)
	c.unjam(r)
	c.pause(r)
}

// pause takes a run off those that are the runtime's.
func (c *Core) pause(r *Run) {
	c.running--
	t := r.tenant(c)
	if t.running--; t.peers == 0 {
		c.vacate(t)
	}
}
