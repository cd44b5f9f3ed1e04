package lender

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/fabric"
)

// Limits bound what is lent. A zero field means its default.
type Limits struct {
	Leases          int // of all principals together; default 256
	PrincipalLeases int // of one; default 32
	// PrincipalQueueBytes is how much of the node's memory the queues of one principal's leases may take; default 64 MiB.
	PrincipalQueueBytes int64
}

func (l *Limits) defaults() {
	if l.Leases == 0 {
		l.Leases = 256
	}
	if l.PrincipalLeases == 0 {
		l.PrincipalLeases = 32
	}
	if l.PrincipalQueueBytes == 0 {
		l.PrincipalQueueBytes = 64 << 20
	}
}

// Validate reports what is wrong with limits.
func (l Limits) Validate() error {
	if l.Leases < 0 || l.PrincipalLeases < 0 || l.PrincipalQueueBytes < 0 {
		return fmt.Errorf("device: Leases %d, PrincipalLeases %d, PrincipalQueueBytes %d: none can be negative", l.Leases, l.PrincipalLeases, l.PrincipalQueueBytes)
	}
	return nil
}

// closeTime is how long Close waits for commands under way.
const closeTime = 10 * time.Second

// Config is what a Lender needs.
type Config struct {
	Element *fabric.Element
	Log     *slog.Logger
	Limits  Limits
	// Reserve counts memory that is lent, for what is said in an error; release undoes it.
	Reserve func(what string, bytes int64) (release func(), err error)
	Open    func(Spec) (nvme.Backing, error) // nil: nvme.OpenFile
	// GrantFile keeps grants; "": they end with the Lender.
	GrantFile string
}

// Lender lends an element's devices. Its methods may be called from any goroutine but handlers.
type Lender struct {
	cfg    Config
	engine *nvme.Engine
	work   sync.WaitGroup // one for each lease that is ending

	granting sync.Mutex // of Grant, which writes a file

	mu     sync.Mutex
	grants grants
	drives map[string]*drive
	leases map[uint64]*lease
	last   uint64 // lease's number
	closed bool
}

// drive is one device. What changes is under Lender.mu.
type drive struct {
	Spec
	backing nvme.Backing
	book    *device.Book
}

// lease is one lease.
type lease struct {
	id      uint64
	drive   *drive
	who     string
	from    *fabric.Endpoint
	ctl     *nvme.Controller // nil while it is being made
	charged int64            // bytes
	release []func()
	gone    chan struct{} // closed when it is free
}

// New makes a Lender of nothing yet.
func New(cfg Config) (*Lender, error) {
	cfg.Limits.defaults()
	if cfg.Open == nil {
		cfg.Open = func(s Spec) (nvme.Backing, error) {
			return nvme.OpenFile(s.Path, nvme.FileOptions{ReadOnly: s.ReadOnly, Direct: s.Direct})
		}
	}
	var given grants
	if cfg.GrantFile != "" {
		var err error
		if given, err = readGrants(cfg.GrantFile); err != nil {
			return nil, fmt.Errorf("device: grants: %w", err)
		}
	}
	engine, err := nvme.NewEngine(cfg.Element, cfg.Log)
	if err != nil {
		return nil, err
	}
	// Numbers begin anywhere, so that an earlier life's lease is nobody's here.
	return &Lender{cfg: cfg, engine: engine, grants: given, drives: map[string]*drive{}, leases: map[uint64]*lease{}, last: uint64(cfg.Element.Incarnation()) & (1<<40 - 1)}, nil
}

// Lend opens a device.
func (l *Lender) Lend(s Spec) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drives[s.Name] != nil {
		return fmt.Errorf("%w: two devices are called %s", device.ErrSpec, s.Name)
	}
	b, err := l.cfg.Open(s)
	if err != nil {
		return fmt.Errorf("lend %s: %w", s.Name, err)
	}
	l.drives[s.Name] = &drive{Spec: s, backing: b, book: device.NewBook(b.Size(), nvme.BlockBytes)}
	l.cfg.Log.Info("lending", "device", s.Name, "class", s.Class, "path", s.Path, "bytes", b.Size(), "readonly", s.ReadOnly, "direct", s.Direct)
	return nil
}

// rights are what a principal may do with the device; l.mu is held.
func (l *Lender) rights(d *drive, who cluster.Principal) fabric.Rights {
	of := l.grants[d.Name]
	granted := of[who.Name] | of[cluster.Everyone]
	if who.Caps.Has(cluster.CapAdmin) {
		granted = fabric.RightRead | fabric.RightWrite
	}
	if !who.Caps.Has(cluster.CapDevice) {
		return 0
	}
	if d.ReadOnly {
		granted &= fabric.RightRead
	}
	return granted & (fabric.RightRead | fabric.RightWrite)
}

func (l *Lender) modes(d *drive, who cluster.Principal) []device.Mode {
	switch r := l.rights(d, who); {
	case r&fabric.RightWrite != 0:
		return device.Modes
	case r&fabric.RightRead != 0:
		return []device.Mode{device.Read}
	}
	return []device.Mode{}
}

// find is the device that a principal asks for; l.mu is held.
func (l *Lender) find(who cluster.Principal, name string) (*drive, error) {
	if err := mayAsk(who); err != nil {
		return nil, err
	}
	d := l.drives[name]
	if d == nil || l.rights(d, who) == 0 { // which of the two is not for strangers
		return nil, fmt.Errorf("%w: %.64q at node %s, or %q has no grant for it: an admin gives one (wherry dev grant %.64s %s rw); wherry dev ls lists those that you may borrow",
			device.ErrNoDrive, name, l.cfg.Element.Name(), who.Name, name, who.Name)
	}
	return d, nil
}

// mayAsk refuses principals that have nothing to do with devices, at a node without any too.
func mayAsk(who cluster.Principal) error {
	if who.Caps.Has(cluster.CapDevice) {
		return nil
	}
	return &cluster.ForbiddenError{Principal: who.Name, Need: "capability device", Do: "listing and borrowing devices take it; use a token or certificate that has it (wherry token new NAME --caps device)"}
}

// Borrow grants a lease, which goes with the connection from.
func (l *Lender) Borrow(who cluster.Principal, from *fabric.Endpoint, req *device.BorrowRequest) (*device.BorrowReply, error) {
	if err := req.Mode.Validate(); err != nil {
		return nil, err
	}
	ls, term, err := l.grant(who, from, req)
	if err != nil {
		return nil, err
	}
	ctl, key, err := l.open(ls, term)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && from.Err() != nil { // lost meanwhile: nobody else would notice
		err = from.Err()
	}
	if err == nil && !ls.drive.book.Opened(ls.id) {
		err = fmt.Errorf("%w: lease %d was taken back while it was made", device.ErrNoLease, ls.id)
	}
	if err != nil {
		if ctl != nil { // nobody else has it, and it has no queues
			<-ctl.Stop()
			ctl.Free()
		}
		l.act(ls.drive.book.End(ls.id))
		for _, release := range ls.release { // of what was counted after the lease had ended
			release()
		}
		ls.release = nil
		return nil, err
	}
	ls.ctl = ctl
	l.cfg.Log.Info("lease granted", "device", ls.drive.Name, "lease", ls.id, "mode", term.Mode, "offset", term.Range.Offset, "bytes", term.Range.Size, "to", who.Name)
	return &device.BorrowReply{LeaseInfo: l.info(ls, true), SizeBytes: term.Range.Size, BlockBytes: nvme.BlockBytes, ReadOnly: readOnly(ls.drive, term.Mode),
		MaxTransfer: nvme.MaxTransferBytes, MaxEntries: nvme.MaxEntries, MaxQueues: nvme.MaxQueues, RegistersKey: key.Append(nil)}, nil
}

func readOnly(d *drive, m device.Mode) bool { return d.ReadOnly || m == device.Read }

// grant enters a lease into the book.
func (l *Lender) grant(who cluster.Principal, from *fabric.Endpoint, req *device.BorrowRequest) (*lease, device.Term, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, err := l.find(who, req.Name)
	if err != nil {
		return nil, device.Term{}, err
	}
	if !slices.Contains(l.modes(d, who), req.Mode) {
		why := "an admin can grant rw (wherry dev grant)"
		if d.ReadOnly {
			why = "it is lent read-only: borrow it in mode read"
		}
		return nil, device.Term{}, &cluster.ForbiddenError{Principal: who.Name, Need: fmt.Sprintf("right write on device %s for mode %s", d.Name, req.Mode), Do: why}
	}
	n := 0
	for _, ls := range l.leases {
		if ls.who == who.Name {
			n++
		}
	}
	switch {
	case l.closed:
		return nil, device.Term{}, fmt.Errorf("%w: the node is stopping", device.ErrNoDrive)
	case len(l.leases) >= l.cfg.Limits.Leases:
		return nil, device.Term{}, fmt.Errorf("%w: there are %d leases, the most there can be: return some, or raise Limits.Leases", device.ErrLimit, l.cfg.Limits.Leases)
	case n >= l.cfg.Limits.PrincipalLeases:
		return nil, device.Term{}, fmt.Errorf("%w: %q has %d leases, the most that one principal can have: return some, or raise Limits.PrincipalLeases", device.ErrLimit, who.Name, n)
	}
	term, err := d.book.Borrow(l.last+1, device.Term{Principal: who.Name, Mode: req.Mode, Range: device.Range{Offset: req.Offset, Size: req.Size}})
	if err != nil {
		return nil, term, fmt.Errorf("%s: %w", d.Name, err)
	}
	l.last++
	ls := &lease{id: l.last, drive: d, who: who.Name, from: from, gone: make(chan struct{})}
	l.leases[ls.id] = ls
	return ls, term, nil
}

// open makes what a lease needs.
func (l *Lender) open(ls *lease, term device.Term) (*nvme.Controller, fabric.Key, error) {
	release, err := l.cfg.Reserve(fmt.Sprintf("lease %d of device %s", ls.id, ls.drive.Name), fabric.SegmentAlign)
	if err != nil {
		return nil, fabric.Key{}, err
	}
	l.mu.Lock()
	ls.release = append(ls.release, release)
	l.mu.Unlock()
	ctl, err := l.engine.NewController(nvme.Spec{Lease: ls.id, Who: ls.who, Backing: ls.drive.backing, Range: term.Range, ReadOnly: readOnly(ls.drive, term.Mode),
		Faulted: func(err error) { l.faulted(ls, err) }})
	if err != nil {
		return nil, fabric.Key{}, err
	}
	key, err := ctl.RegistersKey()
	return ctl, key, err
}

// faulted ends the lease of a borrower that broke the rules.
func (l *Lender) faulted(ls *lease, err error) {
	if !errors.Is(err, fabric.ErrPeerLost) && !errors.Is(err, fabric.ErrClosed) { // of these Abandoned hears too
		l.cfg.Log.Warn("lease ended: its borrower broke the rules of its queues", "device", ls.drive.Name, "lease", ls.id, "of", ls.who, "err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.act(ls.drive.book.End(ls.id))
}

// act does what a book says; l.mu is held.
func (l *Lender) act(actions []device.Action) {
	for len(actions) > 0 {
		a := actions[0]
		actions = actions[1:]
		ls := l.leases[a.Lease]
		switch a.Effect {
		case device.Stop:
			if ls.ctl == nil {
				actions = append(actions, ls.drive.book.Stopped(ls.id)...)
				break
			}
			quiet := ls.ctl.Stop()
			l.work.Go(func() { // until the disk has answered
				<-quiet
				l.mu.Lock()
				defer l.mu.Unlock()
				l.act(ls.drive.book.Stopped(ls.id))
			})
		case device.Reclaim:
			if ls.ctl != nil {
				ls.ctl.Free()
			}
			for _, release := range ls.release {
				release()
			}
			ls.release = nil
			actions = append(actions, ls.drive.book.Reclaimed(ls.id)...)
		case device.Release:
			delete(l.leases, ls.id)
			close(ls.gone)
			l.cfg.Log.Info("lease over", "device", ls.drive.Name, "lease", ls.id, "of", ls.who)
		}
	}
}

// borrowed is the active lease that a borrower makes windows and queues for; l.mu is held.
func (l *Lender) borrowed(from *fabric.Endpoint, id uint64) (*lease, error) {
	ls := l.leases[id]
	if ls == nil || ls.from != from || ls.ctl == nil || ls.drive.book.State(id) != device.Active {
		return nil, fmt.Errorf("%w: %d, or it was granted over another connection, or has ended", device.ErrNoLease, id)
	}
	return ls, nil
}

// Window opens a borrower's memory to its lease.
func (l *Lender) Window(ctx context.Context, from *fabric.Endpoint, req *device.WindowRequest) (*device.WindowReply, error) {
	key, err := fabric.DecodeKey(req.Key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrSpec, err)
	}
	l.mu.Lock()
	ls, err := l.borrowed(from, req.Lease)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r, err := from.Import(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%w: the window's key: %w", device.ErrSpec, err)
	}
	w := nvme.Window{ID: req.Window, Base: device.Address(req.Window, 0), Remote: r, Size: r.Size()}
	if p := req.Place; p != nil {
		w.Base, w.Offset, w.Size = p.Base, p.Offset, p.Size
	}
	if err := ls.ctl.AddWindow(w); err != nil {
		return nil, err
	}
	return &device.WindowReply{Mapped: r.Mapped()}, nil
}

// Queue makes a queue pair.
func (l *Lender) Queue(from *fabric.Endpoint, req *device.QueueRequest) (*device.QueueReply, error) {
	spec := nvme.QueueSpec{ID: req.Queue, Entries: req.Entries, CompletionEntries: req.CompletionEntries, Commands: req.Commands, BufferBytes: req.BufferBytes,
		Completions: req.Completions, Bell: req.Bell}
	l.mu.Lock()
	ls, err := l.borrowed(from, req.Lease)
	if err == nil && req.Commands == 0 {
		err = l.charge(ls, &spec)
	}
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	key, err := ls.ctl.AddQueue(spec) // what was charged stays so until the lease ends
	if err != nil {
		return nil, err
	}
	if req.Commands != 0 {
		return &device.QueueReply{}, nil
	}
	return &device.QueueReply{Key: key.Append(nil)}, nil
}

// charge counts what a queue pair takes here; l.mu is held.
func (l *Lender) charge(ls *lease, spec *nvme.QueueSpec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	bytes := int64(spec.LenderBytes())
	used := bytes
	for _, other := range l.leases {
		if other.who == ls.who {
			used += other.charged
		}
	}
	if used > l.cfg.Limits.PrincipalQueueBytes {
		return fmt.Errorf("%w: queues of %q would take %d bytes here, at most %d: use fewer or smaller ones, or raise Limits.PrincipalQueueBytes", device.ErrLimit, ls.who, used, l.cfg.Limits.PrincipalQueueBytes)
	}
	release, err := l.cfg.Reserve(fmt.Sprintf("a queue of lease %d", ls.id), bytes)
	if err != nil {
		return err
	}
	ls.charged += bytes
	ls.release = append(ls.release, release)
	return nil
}

// Return ends a lease, and waits until its blocks are free. Its borrower may, and an admin.
func (l *Lender) Return(ctx context.Context, who cluster.Principal, id uint64) error {
	l.mu.Lock()
	ls := l.leases[id]
	if ls == nil || ls.who != who.Name && !who.Caps.Has(cluster.CapAdmin) {
		l.mu.Unlock()
		return fmt.Errorf("%w: %d; wherry dev stat lists a device's leases", device.ErrNoLease, id)
	}
	l.act(ls.drive.book.End(id))
	l.mu.Unlock()
	select {
	case <-ls.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("lease %d has ended, but a command of it is under way still: %w", id, context.Cause(ctx))
	}
}

// Abandoned ends the leases that went with a connection.
func (l *Lender) Abandoned(ep *fabric.Endpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ls := range l.leases {
		if ls.from == ep {
			l.act(ls.drive.book.End(ls.id))
		}
	}
}

// Grant sets what a principal may do with a device. Leases stay.
func (l *Lender) Grant(who cluster.Principal, req *device.GrantRequest) error {
	rights, err := parseGrant(req.To, req.Rights)
	if err != nil {
		return err
	}
	l.granting.Lock()
	defer l.granting.Unlock()
	next, err := l.granted(who, req, rights)
	if err != nil {
		return err
	}
	if l.cfg.GrantFile != "" {
		if err := next.write(l.cfg.GrantFile); err != nil {
			return fmt.Errorf("the grant was not made, as it could not be kept: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants = next
	return nil
}

// granted are the grants with another one.
func (l *Lender) granted(who cluster.Principal, req *device.GrantRequest, rights fabric.Rights) (grants, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !who.Caps.Has(cluster.CapAdmin) {
		return nil, &cluster.ForbiddenError{Principal: who.Name, Need: "capability admin", Do: "a node's devices are its operator's: only an admin can grant them"}
	}
	d, err := l.find(who, req.Name)
	if err != nil {
		return nil, err
	}
	return l.grants.with(d.Name, req.To, rights)
}

// Stat describes a device.
func (l *Lender) Stat(who cluster.Principal, name string) (*device.Info, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, err := l.find(who, name)
	if err != nil {
		return nil, err
	}
	i := l.describe(who, d)
	return &i, nil
}

// List lists the devices that a principal may borrow.
func (l *Lender) List(who cluster.Principal) (*device.ListReply, error) {
	if err := mayAsk(who); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	reply := &device.ListReply{Devices: []device.Info{}}
	for _, d := range l.drives {
		if l.rights(d, who) != 0 {
			reply.Devices = append(reply.Devices, l.describe(who, d))
		}
	}
	slices.SortFunc(reply.Devices, func(a, b device.Info) int { return strings.Compare(a.Name, b.Name) })
	return reply, nil
}

// describe is a device as a principal sees it; l.mu is held.
func (l *Lender) describe(who cluster.Principal, d *drive) device.Info {
	i := device.Info{Name: d.Name, Node: l.cfg.Element.Name(), Class: d.Class, SizeBytes: d.backing.Size(), BlockBytes: nvme.BlockBytes,
		Modes: l.modes(d, who), ReadOnly: d.ReadOnly, Leases: []device.LeaseInfo{}}
	admin := who.Caps.Has(cluster.CapAdmin)
	for _, id := range slices.Sorted(maps.Keys(l.leases)) {
		if ls := l.leases[id]; ls.drive == d {
			i.Leases = append(i.Leases, l.info(ls, admin || ls.who == who.Name))
		}
	}
	if of := l.grants[d.Name]; admin && len(of) > 0 {
		i.Grants = map[string]string{}
		for to, rights := range of {
			i.Grants[to] = rights.String()
		}
	}
	return i
}

// info describes a lease, with whose it is or without; l.mu is held.
func (l *Lender) info(ls *lease, named bool) device.LeaseInfo {
	term, _ := ls.drive.book.Term(ls.id)
	i := device.LeaseInfo{ID: ls.id, Mode: term.Mode, State: ls.drive.book.State(ls.id).String(), Offset: term.Range.Offset, Size: term.Range.Size}
	if named {
		i.Principal = ls.who
	}
	if ls.ctl != nil {
		i.Queues, i.Windows, i.Inflight, i.Commands = ls.ctl.Counts()
	}
	return i
}

// Close ends all leases, waits for what is under way, and closes the devices. The element must be driven still.
func (l *Lender) Close() error {
	l.mu.Lock()
	l.closed = true
	for _, ls := range l.leases {
		l.act(ls.drive.book.End(ls.id))
	}
	l.mu.Unlock()
	over := make(chan struct{})
	go func() {
		l.work.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(closeTime):
		return fmt.Errorf("device: commands are under way still after %v: their disk does not answer", closeTime)
	}
	err := l.engine.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.drives {
		d.backing.Close()
	}
	return err
}
