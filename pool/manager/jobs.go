package manager

import (
	"errors"
	"fmt"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/component"
)

// Request is what a client asks of a manager.
type Request struct {
	Ticket uint64 // of the Reply; unique and rising
	Who    cluster.Principal
	From   uint64        // the connection that it came over, for a leased region; Gone tells of its end
	Time   time.Duration // that there is for it; 0: jobTime
	// Body is a pool.CreateRequest, LookupRequest, ResizeRequest, GrantRequest, DestroyRequest or StatRequest (both a NameRequest), or a ListRequest.
	Body any
}

// DestroyRequest, StatRequest and ListRequest tell requests apart whose bodies are the same.
type (
	DestroyRequest struct{ pool.NameRequest }
	StatRequest    struct{ pool.NameRequest }
	ListRequest    struct{}
	TopRequest     struct{}
)

// job is a request that is not answered yet.
type job struct {
	Request
	ticket   uint64
	deadline time.Duration
	region   uint16           // that it is about; 0: not known yet
	made     uint64           // and its first epoch
	placed   cluster.Revision // the view must have these revisions of extents
	lost     cluster.Revision // and of losses, so that an answer is no older than the question
	known    bool             // they are known,
	syncing  bool             // or is being asked for
	acted    bool             // its transaction was made
	busy     bool             // or is under way
	last     error
	except   map[string]bool // components that refused
	tries    int
}

func (j *job) wantsSync() bool { return !j.known && !j.syncing }

// placeTries bounds how often a region is placed anew because components refused.
const placeTries = 4

// Ask begins a request.
func (c *Core) Ask(now time.Duration, r Request) {
	if r.Time <= 0 || r.Time > jobTime {
		r.Time = jobTime
	}
	if len(c.jobs) >= MaxJobs || c.by[r.Who.Name] >= PrincipalJobs {
		c.do(Reply{r.Ticket, nil, fmt.Errorf("%w: %d of at most %d, %d of at most %d of %q: ask again later, or another manager",
			ErrBusy, len(c.jobs), MaxJobs, c.by[r.Who.Name], PrincipalJobs, r.Who.Name)})
		return
	}
	c.next++
	j := &job{Request: r, ticket: c.next, deadline: now + r.Time}
	c.jobs[j.ticket] = j
	c.by[r.Who.Name]++
	c.step(now)
}

// Gone says that a connection has ended: regions that were leased to it end.
func (c *Core) Gone(now time.Duration, from uint64) {
	for id, f := range c.leasedTo { // in any order: each is looked at once
		if f == from {
			delete(c.leasedTo, id)
			c.view.dirty[id] = true
		}
	}
	for _, j := range c.ordered() {
		if j.From == from {
			c.finish(j, nil, fmt.Errorf("%w: its asker is gone", ErrTime))
		}
	}
	c.step(now)
}

// finish answers a job. What it began is given up by drive.
func (c *Core) finish(j *job, answer any, err error) {
	if c.jobs[j.ticket] != j {
		return
	}
	delete(c.jobs, j.ticket)
	if c.by[j.Who.Name]--; c.by[j.Who.Name] == 0 {
		delete(c.by, j.Who.Name)
	}
	if j.region != 0 {
		c.view.dirty[j.region] = true
	}
	c.do(Reply{j.Ticket, answer, err})
}

// advance brings a job a step on.
func (c *Core) advance(j *job) {
	if c.jobs[j.ticket] != j || j.busy || !j.known || c.view.placed < j.placed || c.view.lost < j.lost {
		return
	}
	var err error
	switch b := j.Body.(type) {
	case pool.CreateRequest:
		c.create(j, &b)
	case pool.LookupRequest:
		err = c.lookup(j, &b)
	case StatRequest:
		err = c.stat(j, b.NameRequest)
	case ListRequest:
		c.finish(j, c.list(j.Who), nil)
	case TopRequest:
		c.finish(j, c.topOf(j.Who), nil)
	case DestroyRequest:
		err = c.destroy(j, b.NameRequest)
	case pool.GrantRequest:
		err = c.grant(j, &b)
	case pool.ResizeRequest:
		err = c.resize(j, &b)
	default:
		err = fmt.Errorf("%w: %T", pool.ErrSpec, j.Body)
	}
	if err != nil {
		c.finish(j, nil, err)
	}
}

// rights are what a principal may do with a region.
func (r *record) rights(who cluster.Principal) fabric.Rights {
	granted := fabric.Rights(0)
	for _, to := range []string{who.Name, cluster.Everyone} {
		rights, err := cluster.ParseRights(r.Grants[to])
		if r.Grants[to] != "" && err == nil {
			granted |= rights
		}
	}
	if r.owned(who) {
		granted = fabric.RightsAll
	}
	return who.Caps.RightsOf(granted)
}

func (r *record) owned(who cluster.Principal) bool {
	return who.Name == r.Owner || who.Caps.Has(cluster.CapAdmin)
}

func (r *record) visible(who cluster.Principal) bool { return r.rights(who) != 0 || r.owned(who) }

func (r *record) label() string {
	if r.Name != "" {
		return fmt.Sprintf("%q", r.Name)
	}
	return fmt.Sprintf("number %d", r.Region)
}

// find is the region that a request is about, if the principal may see it.
func (c *Core) find(who cluster.Principal, n pool.NameRequest) (*regionView, error) {
	id := n.Region
	if n.Name != "" {
		id = c.view.names[n.Name]
	}
	r := c.view.regions[id]
	if n.Epoch != 0 && (r == nil || r.State == ending || n.Epoch < r.Made || n.Epoch > r.Epoch) {
		return nil, fmt.Errorf("%w: %v was destroyed, or is another one now: look it up again", pool.ErrMoved, n)
	}
	if r == nil || r.State == ending || !r.visible(who) {
		return nil, fmt.Errorf("%w: %v; wherry pool ls lists those that you may see", pool.ErrNoRegion, n)
	}
	return r, nil
}

// owning is find for what takes ownership.
func (c *Core) owning(who cluster.Principal, n pool.NameRequest) (*regionView, error) {
	r, err := c.find(who, n)
	if err == nil && !r.owned(who) {
		err = &cluster.ForbiddenError{Principal: who.Name, Need: "ownership of region " + r.label(), Do: fmt.Sprintf("only its owner, %q, or an admin can do this", r.Owner)}
	}
	return r, err
}

func (c *Core) lookup(j *job, req *pool.LookupRequest) error {
	r, err := c.find(j.Who, req.NameRequest)
	if err != nil {
		return err
	}
	rights := r.rights(j.Who)
	need, err := fabric.Rights(0), error(nil)
	if req.Rights != "" {
		if need, err = cluster.ParseRights(req.Rights); err != nil {
			return fmt.Errorf("%w: %w", pool.ErrSpec, err)
		}
	}
	if rights == 0 || need&^rights != 0 {
		return &cluster.ForbiddenError{Principal: j.Who.Name, Need: fmt.Sprintf("%s on region %s", cluster.NeedRights(need&^rights), r.label()),
			Do: fmt.Sprintf("its owner, %q, or an admin can grant it (wherry pool grant), if its capabilities (%v) include it", r.Owner, j.Who.Caps)}
	}
	if j.region = r.Region; r.State != ready {
		return nil // until its components know what it is
	}
	c.finish(j, c.table(r.record, rights.String()), nil)
	return nil
}

func (c *Core) infoFor(who cluster.Principal, r *record) pool.Info {
	i := r.info(r.rights(who).String())
	if r.owned(who) {
		i.Grants = r.Grants
	}
	return i
}

func (c *Core) stat(j *job, n pool.NameRequest) error {
	r, err := c.find(j.Who, n)
	if err == nil {
		i := c.infoFor(j.Who, r.record)
		c.finish(j, &i, nil)
	}
	return err
}

func (c *Core) list(who cluster.Principal) *pool.ListReply {
	l := &pool.ListReply{Regions: []pool.Info{}}
	for _, t := range c.view.top(func(r *record) bool { return r.State != ending && r.visible(who) }).Regions {
		l.Regions = append(l.Regions, c.infoFor(who, c.view.regions[t.Region].record))
	}
	return l
}

func (c *Core) topOf(who cluster.Principal) *Top {
	t := c.view.top(func(r *record) bool { return r.visible(who) })
	t.Manager, t.Store = c.cfg.Name, c.cfg.Store
	return &t
}

func (c *Core) create(j *job, req *pool.CreateRequest) {
	r := c.view.regions[j.region]
	mine := r != nil && r.Made == j.made && r.Origin == c.origin(j)
	if mine && r.By == c.instance && r.State == making {
		return // its components are being told
	} else if mine && r.State == ready {
		if req.Leased {
			c.leasedTo[r.Region] = j.From
		}
		c.finish(j, c.table(r.record, r.rights(j.Who).String()), nil)
		return
	} else if mine { // it is given up: a component refused, or is gone
		if j.tries++; j.tries >= placeTries {
			c.finish(j, nil, errors.Join(fmt.Errorf("%w: no components were found that take its extents", pool.ErrMemory), j.last))
			return
		}
		j.region, j.made = 0, 0
	}
	n, err := c.plan(j, req)
	if err != nil {
		c.finish(j, nil, errors.Join(err, j.last))
		return
	}
	if !c.mayPlace() {
		return
	}
	t := c.placedTxn(n.Region, 0)
	t.Put = append(t.Put, put(n))
	j.busy, j.region, j.made = true, n.Region, n.Made
	c.commitPlaced(j.ticket, t, func(_ time.Duration, _ cluster.Revision, err error) {
		if j.busy = false; err != nil && !errors.Is(err, cluster.ErrConflict) {
			j.last = err
		}
	})
}

// origin names a job among those of all managers.
func (c *Core) origin(j *job) string { return fmt.Sprintf("%s/%d", c.instance, j.ticket) }

// plan checks what is asked for and places it.
func (c *Core) plan(j *job, req *pool.CreateRequest) (*record, error) {
	who := j.Who
	if !who.Caps.Has(cluster.CapWrite) {
		return nil, &cluster.ForbiddenError{Principal: who.Name, Need: "capability write", Do: "making regions takes it; use a token or certificate that has it"}
	}
	if req.Name == "" && !req.Leased {
		return nil, fmt.Errorf("%w: a region without a name could not be found again: name it, or lease it to its connection", pool.ErrSpec)
	}
	if req.Name != "" {
		if err := cluster.ValidateName(req.Name); err != nil {
			return nil, fmt.Errorf("%w: %w", cluster.ErrName, err)
		}
	}
	if id, taken := c.view.names[req.Name]; taken && req.Name != "" {
		return nil, fmt.Errorf("%w: %q, of %q: choose another name, or destroy it first", pool.ErrExists, req.Name, c.view.regions[id].Owner)
	}
	if n := c.view.owned[who.Name]; n >= PrincipalRegions {
		return nil, fmt.Errorf("%w: %q has %d regions, the most that one principal can have: destroy some", pool.ErrMemory, who.Name, n)
	}
	sizes, err := component.Plan(req.Size)
	if err != nil {
		return nil, err
	}
	id := c.freeNumber()
	if id == 0 {
		return nil, fmt.Errorf("%w: all numbers for regions are in use: destroy some", pool.ErrMemory)
	}
	epoch := uint64(c.view.placed) + 1 // one transaction is made from each value of placed: no other region is made under this epoch
	r := &record{Region: id, Epoch: epoch, Made: epoch, Name: req.Name, Owner: who.Name, State: making, By: c.instance, Job: j.ticket, Origin: c.origin(j)}
	if req.Leased {
		r.Leased = c.instance
	}
	for _, n := range sizes {
		r.Size += n
	}
	return r, c.view.place(r, sizes, j.except)
}

// freeNumber is a number that no region has: one that was not used lately, where there are some.
func (c *Core) freeNumber() uint16 {
	const numbers = 1 << (pool.RegionBits - 1)
	for i := range numbers {
		id := uint16(pool.FirstManaged + (int(c.view.placed)+i)%numbers)
		if c.view.regions[id] == nil {
			return id
		}
	}
	return 0
}

// act commits a change of a region once, for a job, and has it answered when the region is ready.
func (c *Core) act(j *job, r *regionView, how func(n *record)) {
	if !c.mayPlace() {
		return
	}
	n := r.clone()
	n.By, n.Job = c.instance, j.ticket
	how(n)
	t := c.placedTxn(r.Region, r.rev)
	t.Put = append(t.Put, put(n))
	j.busy, j.region, j.made = true, r.Region, r.Made
	c.commitPlaced(j.ticket, t, func(_ time.Duration, _ cluster.Revision, err error) {
		j.busy = false
		if j.acted = err == nil; err != nil && !errors.Is(err, cluster.ErrConflict) {
			j.last = err
		}
	})
}

// mineNow reports whether a region is being changed for this very job: also where the store did not say so.
func (c *Core) mineNow(j *job, r *regionView) bool { return r.By == c.instance && r.Job == j.ticket }

func (c *Core) destroy(j *job, n pool.NameRequest) error {
	if j.acted || j.region != 0 {
		r := c.view.regions[j.region]
		if r == nil || r.Made != j.made {
			c.finish(j, &pool.Nothing{}, nil)
			return nil
		}
		if r.State == ending {
			return nil
		}
	}
	r, err := c.owning(j.Who, n)
	if err != nil {
		return err
	}
	if r.State == ready {
		c.act(j, r, func(n *record) { n.State, n.Name = ending, "" })
	}
	return nil
}

func (c *Core) grant(j *job, req *pool.GrantRequest) error {
	rights, err := cluster.ParseRights(req.Rights)
	if err == nil && req.To != cluster.Everyone {
		err = cluster.ValidateName(req.To)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", pool.ErrSpec, err)
	}
	r, err := c.owning(j.Who, req.NameRequest)
	switch {
	case err != nil:
		return err
	case r.State != ready:
	case j.acted || r.Grants[req.To] == rights.String():
		c.finish(j, &pool.Nothing{}, nil)
	case rights != 0 && r.Grants[req.To] == "" && len(r.Grants) >= maxGrants:
		return fmt.Errorf("%w: region %s is granted to %d principals, the most there can be: take one away, or grant to %q", pool.ErrSpec, r.label(), maxGrants, cluster.Everyone)
	case rights == 0 && r.Grants[req.To] == "":
		c.finish(j, &pool.Nothing{}, nil)
	default:
		c.act(j, r, func(n *record) {
			n.State = moving
			n.Epoch++ // so that a component which hears of an earlier grant late refuses that
			if n.Grants == nil {
				n.Grants = map[string]string{}
			}
			if n.Grants[req.To] = rights.String(); rights == 0 {
				delete(n.Grants, req.To)
			}
		})
	}
	return nil
}

// resize gives a region another size. What is added goes where there is room; what is taken away are whole extents at the end, and what is left of the
// last stays reserved.
func (c *Core) resize(j *job, req *pool.ResizeRequest) error {
	r, err := c.owning(j.Who, req.NameRequest)
	if err != nil {
		return err
	}
	if req.Size == 0 || req.Size > pool.MaxRegionBytes {
		return fmt.Errorf("%w: %d bytes: 1 to %d are possible", pool.ErrSpec, req.Size, uint64(pool.MaxRegionBytes))
	}
	size := (req.Size + fabric.SegmentAlign - 1) &^ (fabric.SegmentAlign - 1)
	switch {
	case c.mineNow(j, r) && r.State != ready:
		return nil
	case r.State != ready:
		return nil // after the one that is at it
	case r.Size == size:
		c.finish(j, c.table(r.record, r.rights(j.Who).String()), nil)
		return nil
	case j.tries >= placeTries:
		return errors.Join(fmt.Errorf("%w: no components were found that take what is to be added", pool.ErrMemory), j.last)
	}
	n, err := c.resized(j, r, size)
	if err != nil {
		return errors.Join(err, j.last)
	}
	c.act(j, r, func(to *record) { *to = *n })
	if j.busy {
		j.tries++
	}
	return nil
}

func (c *Core) resized(j *job, r *regionView, size uint64) (*record, error) {
	n := r.clone()
	n.By, n.Job, n.State, n.Size, n.Epoch = c.instance, j.ticket, moving, size, n.Epoch+1
	off, keep := uint64(0), 0
	for _, p := range n.Parts {
		if off < size {
			keep++
		} else {
			n.Drop = append(n.Drop, drop{p.Place, pool.Range{Off: off, Size: p.Size}})
		}
		off += p.Size
	}
	n.Parts = n.Parts[:keep]
	room := n.room()
	if size <= room {
		return n, nil
	}
	n.Was = &was{r.Size, len(r.Parts)}
	sizes, err := component.Plan(size - room)
	if err == nil && len(sizes)+len(n.Parts) > pool.MaxExtents {
		err = fmt.Errorf("%w: the region would have %d extents, at most %d: make a new one of that size, and copy", pool.ErrSpec, len(sizes)+len(n.Parts), pool.MaxExtents)
	}
	if err != nil {
		return nil, err
	}
	return n, c.view.place(n, sizes, j.except)
}
