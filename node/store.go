package node

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/share"
	"github.com/wherry-fabric/wherry/pool/component"
)

const (
	// maxLoads bounds the loads under way at one node, of which one principal has its share (share.Of).
	maxLoads = 256
	// keptOutcomes is how many finished loads are remembered, for clients that
	// ask again and for peers that ask what became of one.
	keptOutcomes = 4096
)

// store is what a node keeps of datasets: loads under way, and shards
// that are visible. The catalogue says which principals may see what; the store
// has the segments.
type store struct {
	el      *fabric.Element
	account *component.Account
	past    past

	mu       sync.Mutex
	loads    map[control.LoadID]*load
	places   share.Places              // of loads
	names    map[string]control.LoadID // reserved by loads
	shards   map[string]*shard
	outcomes map[control.LoadID]bool // committed or not
	ended    []control.LoadID        // in the order of outcomes

	committed, aborted, bytes atomic.Uint64
}

type loadState uint8

const (
	loadOpen    loadState = iota
	loadSettled           // nothing is written to it any more: its parts are being checked
	loadPrepared
)

// load is a shard in the making. Its fields are under store.mu.
type load struct {
	id      control.LoadID
	name    string
	replace bool
	base    uint64 // the version that it adds to; 0: none
	next    uint64 // the lowest version that it may become; set when it begins
	by      cluster.Principal
	from    *fabric.Endpoint
	state   loadState
	table   *cluster.Table
	windows []window
	charge  component.Charge
	busy    int // calls that work on it
	touched time.Time

	staging fabric.Key
	remote  *fabric.Remote // of staging
}

// window is a segment and how much of it the dataset uses, or a range of the segment of another window: its Arrow file's.
type window struct {
	seg      *fabric.Segment
	at, size uint64
	inFile   bool
	writable bool // by whoever has the right
}

// memory is the window's part of its segment.
func (w *window) memory() []byte { return w.seg.Bytes()[w.at : w.at+w.size] }

// key makes a key to the window.
func (w *window) key() (fabric.Key, error) {
	rights := fabric.RightRead
	if w.writable {
		rights = fabric.RightsAll
	}
	switch {
	case !w.inFile:
		return w.seg.Key(rights)
	case w.size == 0: // it has a key all the same
		return w.seg.KeyRange(0, 1, fabric.RightRead)
	}
	return w.seg.KeyRange(w.at, w.size, rights)
}

// shard is what this node holds of a dataset.
type shard struct {
	name     string
	version  uint64
	writable bool
	windows  []window
	own      int // of them, at the end, that no version before had
	charge   component.Charge
	root     []fabric.Key
	given    map[string]*given // by principal
	until    time.Time         // of past: to be dropped
}

func newStore(el *fabric.Element, account *component.Account) *store {
	return &store{el: el, account: account, past: past{el: el, account: account}, loads: map[control.LoadID]*load{}, places: share.Places{Limit: maxLoads, What: "loads under way"}, names: map[string]control.LoadID{},
		shards: map[string]*shard{}, outcomes: map[control.LoadID]bool{}}
}

// status is how much is lent, and to what.
func (s *store) status() control.MemoryStatus {
	all, regions, bounds := s.account.Used()
	s.mu.Lock()
	defer s.mu.Unlock()
	return control.MemoryStatus{LentBytes: all.Bytes, LimitBytes: bounds.Bytes, PoolBytes: regions.Bytes, PoolLimitBytes: bounds.Pool, PoolExtents: regions.Files, Datasets: len(s.shards), Loads: len(s.loads)}
}

func (s *store) datasets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.shards)
}

func (s *store) loading() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.loads)
}

// begin reserves a name for a load, and then asks for the lowest version that it may become. Nothing else of that name is published here before
// the load ends. So a number that was above all others of the name stays above them, also when loads of other names take higher ones.
func (s *store) begin(l *load, next func() uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other, ok := s.names[l.name]; ok {
		return fmt.Errorf("%w: %q is being loaded just now by %q: wait until that has ended, or choose another name", cluster.ErrExists, l.name, s.loads[other].by.Name)
	}
	if _, twice := s.loads[l.id]; twice {
		return fmt.Errorf("%w: load %s has begun already", control.ErrLoad, l.id)
	}
	if _, over := s.outcomes[l.id]; over {
		return fmt.Errorf("%w: load %s has ended already", control.ErrLoad, l.id)
	}
	if err := s.places.Take(l.by.Name); err != nil {
		return fmt.Errorf("%w: %w", control.ErrMemory, err)
	}
	s.loads[l.id], s.names[l.name], l.next = l, l.id, next()
	return nil
}

// enter finds a load of a client for a call that works on it; the caller leaves.
func (s *store) enter(id control.LoadID, from *fabric.Endpoint, want loadState) (*load, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.loads[id]
	if l == nil || l.from != from {
		return nil, fmt.Errorf("%w: %s is not a load of yours here; if it was interrupted, start again", control.ErrLoad, id)
	}
	if l.state != want {
		return nil, fmt.Errorf("%w: load %s of %q is too far, or not far enough, for this", control.ErrLoad, id, l.name)
	}
	l.busy++
	return l, nil
}

func (s *store) leave(l *load) {
	s.mu.Lock()
	l.busy--
	l.touched = time.Now()
	s.mu.Unlock()
}

// wholeBytes is what a window takes: whole pages of a segment; an empty one still has a segment, so that
// it has a key.
func wholeBytes(size uint64) int64 {
	return int64((max(size, 1) + fabric.SegmentAlign - 1) &^ (fabric.SegmentAlign - 1))
}

// alloc makes windows of a load, all zeros, behind those that it has. Where the kind has an Arrow file, that is one segment with the windows in it.
func (s *store) alloc(l *load, kind cluster.Kind, sizes []uint64, writable bool) error {
	if len(sizes) == 0 {
		return fmt.Errorf("%w: 0 windows, a shard has 1 to %d", control.ErrRequest, cluster.MaxWindows)
	}
	file := cluster.FileOf(kind, len(sizes))
	if writable && kind == cluster.CSR {
		return fmt.Errorf("%w: a graph is lists, which are sealed: load it without --writable; values of fixed width can be written", control.ErrRequest)
	}
	need := component.Charge{What: fmt.Sprintf("the shard of %q", l.name)}
	for i, n := range sizes {
		if n > cluster.MaxWindowBytes {
			return fmt.Errorf("%w: a window of %d bytes, at most %d are allowed", control.ErrRequest, n, uint64(cluster.MaxWindowBytes))
		}
		if !cluster.InFile(i, file) {
			need.Bytes, need.Files = need.Bytes+wholeBytes(n), need.Files+1
		}
	}
	made, err := windowsOf(sizes, file, writable)
	if err != nil {
		return err
	}
	if err := s.reserve(l, need); err != nil {
		return err
	}
	if err := s.fillIn(made, file, writable); err != nil {
		closeAll(made)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.loads[l.id] == l { // else abort has given it back
			s.account.Release(need)
			l.charge.Bytes, l.charge.Files = l.charge.Bytes-need.Bytes, l.charge.Files-need.Files
		}
		return err
	}
	s.mu.Lock()
	gone := s.loads[l.id] != l // given up meanwhile
	if !gone {
		l.windows = append(l.windows, made...)
	}
	s.mu.Unlock()
	if gone {
		closeAll(made)
		return fmt.Errorf("%w: load %s was given up", control.ErrLoad, l.id)
	}
	return nil
}

// windowsOf are windows of these sizes without memory; those in the file have their places.
func windowsOf(sizes []uint64, file int, writable bool) ([]window, error) {
	made := make([]window, len(sizes))
	var at []uint64
	if file >= 0 {
		var inside []uint64
		for i := range file {
			if cluster.InFile(i, file) {
				inside = append(inside, sizes[i])
			}
		}
		var want uint64
		if at, want = column.Places(inside); sizes[file] != want {
			return nil, fmt.Errorf("%w: an Arrow file of %d bytes, with these windows it has %d", control.ErrRequest, sizes[file], want)
		}
	}
	for i, n := range sizes {
		made[i] = window{size: n, writable: writable && (file < 0 || i == file)} // not the directory
		if cluster.InFile(i, file) {
			made[i].at, made[i].inFile, made[i].writable = at[i], true, writable
		}
	}
	return made, nil
}

// fillIn gives windows their segments: those in the file have the file's.
func (s *store) fillIn(made []window, file int, writable bool) error {
	for i := range made {
		if made[i].inFile {
			continue
		}
		kind := fabric.Sealed
		if made[i].writable {
			kind = fabric.Writable
		}
		seg, err := s.el.NewSegment(max(made[i].size, 1), kind)
		if err != nil {
			return err
		}
		made[i].seg = seg
	}
	for i := range made {
		if w := &made[i]; w.inFile {
			w.seg = made[file].seg
			w.seg.Pad(w.at + w.size) // functions map whole pages
		}
	}
	return nil
}

// reserve counts memory and descriptors before they are taken.
func (s *store) reserve(l *load, need component.Charge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all := l.charge.Files + need.Files; all > cluster.MaxWindows {
		return fmt.Errorf("%w: %d windows, a shard has 1 to %d", control.ErrRequest, all, cluster.MaxWindows)
	}
	if s.loads[l.id] != l {
		return fmt.Errorf("%w: load %s was given up", control.ErrLoad, l.id)
	}
	err := s.account.Reserve(need)
	if err == nil {
		l.charge.What, l.charge.Bytes, l.charge.Files = need.What, l.charge.Bytes+need.Bytes, l.charge.Files+need.Files
	}
	return err
}

// unreserve gives back what a load, or a shard, has reserved; mu is held.
func (s *store) unreserve(c *component.Charge) {
	s.account.Release(*c)
	*c = component.Charge{}
}

func closeAll(windows []window) {
	for _, w := range windows {
		if w.seg != nil { // several may be of one
			w.seg.Close()
		}
	}
}

// pin keeps a load's windows in place; the caller calls unpin.
func (s *store) pin(l *load) ([]window, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.windows) == 0 {
		return nil, fmt.Errorf("%w: load %s has no windows yet", control.ErrLoad, l.id)
	}
	for i, w := range l.windows {
		if !w.seg.Pin() {
			unpin(l.windows[:i])
			return nil, fmt.Errorf("%w: load %s was given up", control.ErrLoad, l.id)
		}
	}
	return l.windows, nil
}

func unpin(windows []window) {
	for _, w := range windows {
		w.seg.Unpin()
	}
}

// end takes a load out and remembers how it ended; mu is held.
func (s *store) end(l *load, committed bool) {
	delete(s.loads, l.id)
	s.places.Give(l.by.Name)
	delete(s.names, l.name)
	s.outcomes[l.id] = committed
	s.ended = append(s.ended, l.id)
	for len(s.ended) > keptOutcomes {
		delete(s.outcomes, s.ended[0])
		s.ended = s.ended[1:]
	}
}

// abort gives a load up and frees what it has. It reports whether it was still there.
func (s *store) abort(l *load) bool {
	s.mu.Lock()
	if s.loads[l.id] != l {
		s.mu.Unlock()
		return false
	}
	s.end(l, false)
	windows := l.windows
	l.windows = nil
	s.unreserve(&l.charge)
	s.mu.Unlock()
	s.aborted.Add(1)
	closeAll(windows)
	return true
}

// commit makes a prepared load's shard visible; publish puts its table into the catalogue.
func (s *store) commit(l *load, publish func() error) error {
	s.mu.Lock()
	if s.loads[l.id] != l || l.state != loadPrepared {
		s.mu.Unlock()
		return fmt.Errorf("%w: load %s of %q was given up", control.ErrLoad, l.id, l.name)
	}
	sh := &shard{name: l.name, version: l.table.Version, windows: l.windows, own: len(l.windows), charge: l.charge, given: map[string]*given{}}
	sh.writable = len(l.windows) > 0 && l.windows[0].writable
	old := s.shards[l.name]
	err := s.addTo(sh, l, old)
	if err == nil {
		err = sh.makeRoot()
	}
	if err == nil {
		err = publish()
	}
	if err != nil {
		s.mu.Unlock()
		s.abort(l)
		return err
	}
	s.shards[l.name] = sh
	l.windows, l.charge = nil, component.Charge{}
	s.end(l, true)
	var leave []*shard
	if old != nil {
		leave = s.succeed(sh, l, old, time.Now())
	}
	s.mu.Unlock()
	s.committed.Add(1)
	s.past.free(leave...)
	return nil
}

// makeRoot makes the keys that all others are narrowed from.
func (sh *shard) makeRoot() error {
	for _, w := range sh.windows[len(sh.root):] {
		k, err := w.key()
		if err != nil {
			return err
		}
		sh.root = append(sh.root, k)
	}
	return nil
}

// keys are a principal's keys to a shard, asked for by a connection. What it may do is asked under the
// lock, so that no key can be made past a grant that is taken away meanwhile.
func (s *store) keys(name string, version uint64, who cluster.Principal, by *fabric.Endpoint, may func() fabric.Rights) ([]fabric.Key, fabric.Rights, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rights := may()
	sh := s.shards[name]
	if sh == nil || sh.version != version {
		return nil, 0, fmt.Errorf("%w: %q, version %d", control.ErrNoShard, name, version)
	}
	if !sh.writable {
		rights &= fabric.RightRead
	}
	if rights == 0 {
		help := "its owner or an admin can grant that"
		if !who.Caps.Has(cluster.CapRead) {
			help = fmt.Sprintf("its capabilities (%v) do not include that; use a token or certificate that has more", who.Caps)
		}
		return nil, 0, &cluster.ForbiddenError{Principal: who.Name, Need: cluster.NeedRights(fabric.RightRead), Name: name,
			Do: "the dataset is sealed, so it can be read only; " + help}
	}
	g := sh.given[who.Name]
	if g == nil {
		g = &given{keys: map[fabric.Rights][]fabric.Key{}, readers: map[*fabric.Endpoint]int{}}
		sh.given[who.Name] = g
	}
	g.who = who
	g.asked(by)
	keys := slices.Clone(g.keys[rights]) // of parts that the version before had too
	if len(keys) == len(sh.root) && keys != nil {
		return keys, rights, nil
	}
	had := len(keys)
	for _, k := range sh.root[had:] {
		if rights&k.Rights == 0 { // what is around the values can be read only
			keys = append(keys, fabric.Key{})
			continue
		}
		n, err := s.el.Narrow(k, 0, k.Size, rights&k.Rights)
		if err != nil {
			revoke(s.el, keys[had:])
			return nil, 0, err
		}
		keys = append(keys, n)
	}
	g.keys[rights] = keys
	return keys, rights, nil
}

// regrant revokes the keys that allow more than rights says their holder may do now, of versions before too.
func (s *store) regrant(name string, rights func(cluster.Principal) fabric.Rights) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh := s.shards[name]; sh != nil {
		sh.regrant(s.el, rights)
	}
	s.past.regrant(name, rights)
}

// takeBack revokes all keys that principals have.
func (s *store) takeBack(principals []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.shards {
		sh.takeBack(s.el, principals)
	}
	s.past.takeBack(principals)
}

// remove frees a shard, and what is kept of the versions before it.
func (s *store) remove(name string, version uint64) {
	s.mu.Lock()
	leave := s.past.take(func(sh *shard) bool { return sh.name == name && sh.version <= version })
	if sh := s.shards[name]; sh != nil && sh.version == version {
		delete(s.shards, name)
		leave = append(leave, sh)
	}
	s.mu.Unlock()
	s.past.free(leave...)
}

// held is what a shard takes here, and whether peers may write it.
func (s *store) held(name string) (bytes int64, writable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh := s.shards[name]; sh != nil {
		return sh.charge.Bytes + s.past.bytes(name), sh.writable
	}
	return 0, false
}
