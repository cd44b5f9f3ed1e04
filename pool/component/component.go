package component

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/memfd"
	"github.com/wherry-fabric/wherry/pool"
)

// Limits bound what a component keeps, besides memory. A zero field means its default.
type Limits struct {
	// PrincipalBytes is how much of the pool's memory the regions of one principal may take; default three quarters of it.
	PrincipalBytes int64
	Regions        int // of all principals together; default 4096
	// PrincipalRegions is how many of them are one principal's; default 1024.
	PrincipalRegions int
	// Items is how many items all regions have together; default 16384.
	Items int
	// PrincipalItems is how many of them are one principal's; default 8192.
	PrincipalItems int
	// Keys is how many keys principals have together: one for each principal, and each extent of a region or item that it looked up; default 49152, three
	// quarters of the element's.
	Keys int
	// PrincipalKeys is how many of them are one principal's; default 16384. At the bound its oldest key to an item ends, or else to a region of another principal.
	PrincipalKeys int
}

// maxGrants bounds the principals that one region is granted to.
const maxGrants = 1024

// firstEpochs bounds the random epoch that a component begins with, so that no handle is good for a region of the node's next life. It keeps epochs
// exact where JSON's numbers are floating-point.
const firstEpochs = 1<<52 - 1

// lastRegion is the highest number that a region of the component's own can have.
const lastRegion = pool.FirstManaged - 1

func (l *Limits) defaults() {
	if l.Regions == 0 {
		l.Regions = 4096
	}
	if l.PrincipalRegions == 0 {
		l.PrincipalRegions = 1024
	}
	if l.Items == 0 {
		l.Items = 16384
	}
	if l.PrincipalItems == 0 {
		l.PrincipalItems = 8192
	}
	if l.Keys == 0 {
		l.Keys = 49152
	}
	if l.PrincipalKeys == 0 {
		l.PrincipalKeys = 16384
	}
}

// Validate reports what is wrong with limits.
func (l Limits) Validate() error {
	if l.PrincipalBytes < 0 || l.Regions < 0 || l.PrincipalRegions < 0 || l.Regions > lastRegion || l.Items < 0 || l.PrincipalItems < 0 || l.Keys < 0 || l.PrincipalKeys < 0 {
		return fmt.Errorf("pool: PrincipalBytes %d, Regions %d, PrincipalRegions %d, Items %d, PrincipalItems %d, Keys %d, PrincipalKeys %d: none can be negative, and there are %d numbers for regions",
			l.PrincipalBytes, l.Regions, l.PrincipalRegions, l.Items, l.PrincipalItems, l.Keys, l.PrincipalKeys, lastRegion)
	}
	return nil
}

// Bounds are the account's bounds by a node's memory, and how much of it is the pool's.
func (l Limits) Bounds(memory, pool int64) Bounds {
	b := Bounds{Bytes: memory, Pool: pool, Principal: l.PrincipalBytes}
	if b.Principal == 0 {
		b.Principal = pool - pool/4
	}
	return b
}

// Component keeps the regions of one node.
type Component struct {
	el      *fabric.Element
	account *Account
	limits  Limits

	placing sync.Mutex // held while a manager's request is served

	mu      sync.Mutex
	regions map[uint16]*region
	names   map[string]*region
	count   map[string]int // regions, by owner
	last    uint16         // number that was given out last: the next are tried first, so that an old one is not soon another region's
	epoch   uint64         // that was given out last

	pulls pulls
	keys  keys

	items     int
	itemCount map[string]int // items, by owner
}

// region is one region, or what is here of one that a manager placed. Its fields but the constant ones are under Component.mu.
type region struct {
	id      uint16
	managed bool // its name is the managers'
	made    uint64
	epoch   uint64
	shrunk  uint64 // the epoch since which no bytes went
	name    string // "": it has none
	owner   string
	size    uint64
	charge  Charge
	leased  *fabric.Endpoint // it goes with this connection; nil: it stays
	leasing bool             // the first connection that opens it will be that
	extents []*extent        // by offset; empty while the region is being made
	grants  map[string]fabric.Rights
	holders map[string]cluster.Principal // principals that were given keys
	dir     directory
	turns   turns
	gone    bool
}

// turns keeps discards of one region in order.
type turns struct {
	mu   sync.Mutex // held while one is carried out
	last uint64
}

// extent is an extent of a region. Its segment has more bytes where the region was made smaller.
type extent struct {
	off, size uint64
	seg       *fabric.Segment
	root      fabric.Key // all others are narrowed from it
	keys      ring
}

// New makes a Component that lends an element's memory.
func New(el *fabric.Element, account *Account, limits Limits) *Component {
	limits.defaults()
	return &Component{el: el, account: account, limits: limits, regions: map[uint16]*region{}, names: map[string]*region{}, count: map[string]int{}, itemCount: map[string]int{},
		keys: keys{el: el, most: limits.Keys, principal: limits.PrincipalKeys, by: map[string]*share{}}, epoch: uint64(el.Incarnation()) & firstEpochs}
}

// Create makes a region for a principal. from is the connection that a leased one goes with.
func (c *Component) Create(who cluster.Principal, from *fabric.Endpoint, req *pool.CreateRequest) (*pool.Table, error) {
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
	sizes, err := Plan(req.Size)
	if err != nil {
		return nil, err
	}
	r, err := c.begin(who, from, req, sizes)
	if err != nil {
		return nil, err
	}
	extents, err := c.segments(0, sizes)
	if err == nil && req.Leased && from.Err() != nil { // lost meanwhile, before the region was there to be ended
		err = from.Err()
	}
	c.mu.Lock()
	r.extents = extents
	if err != nil || r.gone {
		c.mu.Unlock()
		c.end(r)
		if err == nil {
			err = fmt.Errorf("%w: region %s was destroyed while it was made", pool.ErrNoRegion, r.label())
		}
		return nil, err
	}
	r.added(0, r.size)
	t, err := c.table(who, r, r.rights(who))
	c.mu.Unlock()
	if err != nil { // no principal could use it
		c.end(r)
	}
	return t, err
}

// begin takes a number, a name and memory.
func (c *Component) begin(who cluster.Principal, from *fabric.Endpoint, req *pool.CreateRequest, sizes []uint64) (*region, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case req.Name != "" && c.names[req.Name] != nil:
		return nil, fmt.Errorf("%w: %q, of %q: choose another name, or destroy it first", pool.ErrExists, req.Name, c.names[req.Name].owner)
	}
	if err := c.another(who.Name); err != nil {
		return nil, err
	}
	for c.last = c.last%lastRegion + 1; c.regions[c.last] != nil; c.last = c.last%lastRegion + 1 { // there are fewer regions than numbers
	}
	c.epoch++
	r := &region{id: c.last, made: c.epoch, epoch: c.epoch, shrunk: c.epoch, name: req.Name, owner: who.Name,
		grants: map[string]fabric.Rights{}, holders: map[string]cluster.Principal{}}
	if req.Leased {
		r.leased = from
	}
	for _, n := range sizes {
		r.size += n
	}
	r.charge = Charge{Lent: Lent{int64(r.size), len(sizes)}, What: "region " + r.label(), Region: true, Principal: who.Name}
	if err := c.account.Reserve(r.charge); err != nil {
		return nil, err
	}
	c.regions[r.id] = r
	c.count[r.owner]++
	if r.name != "" {
		c.names[r.name] = r
	}
	return r, nil
}

// another says why there cannot be one more region of a principal's; c.mu is held.
func (c *Component) another(owner string) error {
	switch {
	case len(c.regions) >= c.limits.Regions:
		return fmt.Errorf("%w: %d regions are there, the most there can be: destroy some, or raise Limits.Regions", pool.ErrMemory, c.limits.Regions)
	case c.count[owner] >= c.limits.PrincipalRegions:
		return fmt.Errorf("%w: %q has %d regions, the most that one principal can have: destroy some, or raise Limits.PrincipalRegions", pool.ErrMemory, owner, c.limits.PrincipalRegions)
	}
	return nil
}

// segments makes memory for a region, from off on.
func (c *Component) segments(off uint64, sizes []uint64) (made []*extent, err error) {
	for _, n := range sizes {
		seg, err := c.el.NewSegment(n, fabric.Writable)
		if err != nil {
			return made, err
		}
		e := &extent{off: off, size: n, seg: seg, keys: ring{}}
		made = append(made, e)
		if e.root, err = seg.Key(fabric.RightsAll); err != nil {
			return made, err
		}
		off += n
	}
	return made, nil
}

func closeAll(extents []*extent) {
	for _, e := range extents {
		e.seg.Close()
	}
}

// end takes a region out, and frees what it has. It does nothing where that was done, but for segments that came since.
func (c *Component) end(r *region) {
	c.mu.Lock()
	extents := r.extents
	for _, e := range extents {
		c.keys.drop(e.keys)
	}
	r.extents = nil
	own := c.forgetAll(r)
	if !r.gone {
		r.gone = true
		delete(c.regions, r.id)
		if r.name != "" && !r.managed {
			delete(c.names, r.name)
		}
		if c.count[r.owner]--; c.count[r.owner] == 0 {
			delete(c.count, r.owner)
		}
		defer c.account.Release(r.charge)
	}
	c.mu.Unlock()
	closeAll(extents)
	for _, seg := range own {
		seg.Close()
	}
}

func (r *region) label() string {
	if r.name != "" {
		return fmt.Sprintf("%q", r.name)
	}
	return fmt.Sprintf("number %d", r.id)
}

// rights are what a principal may do with the region; c.mu is held.
func (r *region) rights(who cluster.Principal) fabric.Rights {
	granted := r.grants[who.Name] | r.grants[cluster.Everyone]
	if who.Name == r.owner || who.Caps.Has(cluster.CapAdmin) {
		granted = fabric.RightsAll
	}
	return who.Caps.RightsOf(granted)
}

// known is the region that a request is about; c.mu is held.
func (c *Component) known(req pool.NameRequest) (*region, error) {
	r := c.names[req.Name]
	if req.Name == "" {
		r = c.regions[req.Region]
	}
	if req.Epoch != 0 && (r == nil || req.Epoch > r.epoch || req.Epoch < r.shrunk) {
		return nil, fmt.Errorf("%w: %v was destroyed, made smaller, or is another one now: look it up again", pool.ErrMoved, req)
	}
	if r == nil || len(r.extents) == 0 {
		return nil, noRegion(req)
	}
	return r, nil
}

func noRegion(req pool.NameRequest) error {
	return fmt.Errorf("%w: %v; wherry pool ls lists those that you may see", pool.ErrNoRegion, req)
}

// find is the region that a request is about, if the principal may see it; c.mu is held.
func (c *Component) find(who cluster.Principal, req pool.NameRequest) (*region, error) {
	r, err := c.known(req)
	if err == nil && r.rights(who) == 0 && !r.owned(who) {
		err = noRegion(req)
	}
	return r, err
}

// owned reports whether a principal may do what an owner may.
func (r *region) owned(who cluster.Principal) bool {
	return who.Name == r.owner || who.Caps.Has(cluster.CapAdmin)
}

func (r *region) forbidden(who cluster.Principal, need string) error {
	return &cluster.ForbiddenError{Principal: who.Name, Need: fmt.Sprintf("%s on region %s", need, r.label()),
		Do: fmt.Sprintf("its owner, %q, or an admin can grant it (wherry pool grant), if its capabilities (%v) include it", r.owner, who.Caps)}
}

// owning is find for what takes ownership.
func (c *Component) owning(who cluster.Principal, req pool.NameRequest) (*region, error) {
	r, err := c.find(who, req)
	if err == nil && !r.owned(who) {
		err = &cluster.ForbiddenError{Principal: who.Name, Need: "ownership of region " + r.label(), Do: fmt.Sprintf("only its owner, %q, or an admin can do this", r.owner)}
	}
	return r, err
}

// Lookup gives a principal keys to a region. from is the connection that it is opened over.
func (c *Component) Lookup(who cluster.Principal, from *fabric.Endpoint, req *pool.LookupRequest) (*pool.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := c.find(who, req.NameRequest)
	if err == nil && r.managed && req.Epoch != r.epoch {
		err = fmt.Errorf("%w: region %d is under epoch %d here, and was asked for under %d: ask a manager again", pool.ErrMoved, r.id, r.epoch, req.Epoch)
	}
	if err == nil {
		err = r.lease(who, from)
	}
	if err != nil {
		return nil, err
	}
	rights := r.rights(who)
	if req.Rights != "" {
		need, err := cluster.ParseRights(req.Rights)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", pool.ErrSpec, err)
		}
		if need == 0 || need&^rights != 0 {
			return nil, r.forbidden(who, cluster.NeedRights(need&^rights))
		}
		rights = need
	}
	return c.table(who, r, rights)
}

// table is a region's table with a principal's keys; c.mu is held.
func (c *Component) table(who cluster.Principal, r *region, rights fabric.Rights) (*pool.Table, error) {
	if rights == 0 {
		return nil, r.forbidden(who, "any right")
	}
	t := &pool.Table{Info: c.info(who, r), Parts: make([]pool.Extent, len(r.extents))}
	t.Rights = rights.String()
	a := r.answer(who, rights)
	for i, e := range r.extents { // under the lock: none can be made past a grant that is taken away meanwhile
		k, err := c.keys.give(a, e.keys, e.root, 0, e.seg.Size())
		if err != nil {
			return nil, err
		}
		t.Parts[i] = pool.Extent{Off: e.off, Size: e.size, Key: k.Append(nil)}
	}
	return t, nil
}

// answer begins an answer with keys to a region; c.mu is held.
func (r *region) answer(who cluster.Principal, rights fabric.Rights) *answer {
	r.holders = hold(r.holders, who, func(yield func(ring) bool) {
		for _, e := range r.extents {
			if !yield(e.keys) {
				return
			}
		}
	})
	a := &answer{who: who.Name, rights: rights, ages: ofRegion}
	if who.Name == r.owner {
		a.ages = never
	}
	return a
}

// info describes a region to a principal; c.mu is held.
func (c *Component) info(who cluster.Principal, r *region) pool.Info {
	i := pool.Info{Region: r.id, Epoch: r.epoch, Made: r.made, Name: r.name, Component: c.el.Name(), Owner: r.owner, Size: r.size, Extents: len(r.extents),
		Leased: r.leased != nil || r.leasing, Rights: r.rights(who).String()}
	if r.owned(who) && len(r.grants) > 0 {
		i.Grants = map[string]string{}
		for to, rights := range r.grants {
			i.Grants[to] = rights.String()
		}
	}
	return i
}

// Stat describes a region.
func (c *Component) Stat(who cluster.Principal, req pool.NameRequest) (*pool.Info, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := c.find(who, req)
	if err != nil {
		return nil, err
	}
	i := c.info(who, r)
	return &i, nil
}

// List lists the regions that a principal may see.
func (c *Component) List(who cluster.Principal) *pool.ListReply {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply := &pool.ListReply{Regions: []pool.Info{}}
	for _, r := range c.regions {
		if len(r.extents) > 0 && !r.managed && (r.rights(who) != 0 || r.owned(who)) {
			reply.Regions = append(reply.Regions, c.info(who, r))
		}
	}
	slices.SortFunc(reply.Regions, func(a, b pool.Info) int {
		if n := strings.Compare(a.Name, b.Name); n != 0 {
			return n
		}
		return int(a.Region) - int(b.Region)
	})
	return reply
}

// Destroy frees a region; its keys end.
func (c *Component) Destroy(who cluster.Principal, req pool.NameRequest) error {
	c.mu.Lock()
	r, err := c.owning(who, req)
	if err == nil && r.managed {
		err = fmt.Errorf("%w: managers placed region %s: ask one of them", pool.ErrSpec, r.label())
	}
	c.mu.Unlock()
	if err == nil {
		c.end(r)
	}
	return err
}

// Grant sets what a principal may do with a region. Keys that allow more than their holder may do now end.
func (c *Component) Grant(who cluster.Principal, req *pool.GrantRequest) error {
	rights, err := cluster.ParseRights(req.Rights)
	if err == nil && req.To != cluster.Everyone {
		err = cluster.ValidateName(req.To)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", pool.ErrSpec, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := c.owning(who, req.NameRequest)
	if err == nil && r.managed {
		err = fmt.Errorf("%w: managers placed region %s: ask one of them", pool.ErrSpec, r.label())
	}
	if err != nil {
		return err
	}
	if err := grant(r.grants, req.To, rights, "region "+r.label()); err != nil {
		return err
	}
	c.sweep(r)
	return nil
}

// grant sets a principal's rights among the grants of something.
func grant(grants map[string]fabric.Rights, to string, rights fabric.Rights, of string) error {
	if rights == 0 {
		delete(grants, to)
	} else if _, known := grants[to]; known || len(grants) < maxGrants {
		grants[to] = rights
	} else {
		return fmt.Errorf("%w: %s is granted to %d principals, the most there can be: take one away, or grant to %q", pool.ErrSpec, of, maxGrants, cluster.Everyone)
	}
	return nil
}

// sweep ends keys that allow more than their holders may do now; c.mu is held.
func (c *Component) sweep(r *region) {
	for _, e := range r.extents {
		c.keys.sweep(e.keys, func(name string) fabric.Rights { return r.rights(r.holders[name]) })
	}
	for _, it := range r.dir.items {
		c.sweepItem(r, it)
	}
}

// Discard makes ranges of a region zeros.
func (c *Component) Discard(who cluster.Principal, req *pool.DiscardRequest) error {
	if len(req.Ranges) > pool.MaxRanges {
		return fmt.Errorf("%w: %d ranges, at most %d in one request", pool.ErrSpec, len(req.Ranges), pool.MaxRanges)
	}
	r, err := c.use(who, req.NameRequest, fabric.RightWrite)
	if err != nil {
		return err
	}
	defer r.unpin()
	for _, g := range req.Ranges {
		if err := r.has(g.Off, g.Size); err != nil {
			return err
		}
	}
	if req.Turn != 0 {
		if r.turns == nil {
			return fmt.Errorf("%w: %s has no turns, only regions have", pool.ErrSpec, r.label)
		}
		r.turns.mu.Lock()
		defer r.turns.mu.Unlock()
		if req.Turn <= r.turns.last {
			return fmt.Errorf("%w: %s had discard %d of its writer's before this one, %d, which was given up", pool.ErrSpec, r.label, r.turns.last, req.Turn)
		}
		r.turns.last = req.Turn
	}
	for _, g := range req.Ranges {
		for _, e := range r.extents {
			if from, to := max(g.Off, e.off), min(g.Off+g.Size, e.off+e.size); from < to {
				if err := memfd.Zero(e.seg.Bytes(), int(e.at+from-e.off), int(to-from)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// TakeBack ends all keys that principals have.
func (c *Component) TakeBack(principals []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	may := func(name string) fabric.Rights {
		if slices.Contains(principals, name) {
			return 0
		}
		return fabric.RightsAll
	}
	for _, r := range c.regions {
		for _, e := range r.extents {
			c.keys.sweep(e.keys, may)
		}
		for _, it := range r.dir.items {
			for _, p := range it.pieces {
				c.keys.sweep(p.keys, may)
			}
		}
	}
}

// Abandoned frees the regions that were leased to a connection. It may take as long as it takes to give their memory back.
func (c *Component) Abandoned(ep *fabric.Endpoint) {
	c.mu.Lock()
	var left []*region
	for _, r := range c.regions {
		if r.leased == ep {
			left = append(left, r)
		}
	}
	c.mu.Unlock()
	for _, r := range left {
		c.end(r)
	}
}

// Count is how many regions there are.
func (c *Component) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.regions)
}
