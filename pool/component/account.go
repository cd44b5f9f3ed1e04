package component

import (
	"fmt"
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/pool"
)

// Lent is what something takes of a node: memory, and a descriptor for each segment.
type Lent struct {
	Bytes int64
	Files int
}

func (l *Lent) add(m Lent) { l.Bytes, l.Files = l.Bytes+m.Bytes, l.Files+m.Files }
func (l *Lent) sub(m Lent) { l.Bytes, l.Files = l.Bytes-m.Bytes, l.Files-m.Files }

// Charge is what is taken, and on whose account.
type Charge struct {
	Lent
	What      string // what it is for, in an error's words: the shard of "x"
	Region    bool   // of the pool; else a dataset's
	Principal string // whose region it is
}

// Bounds are how much an Account lends.
type Bounds struct {
	Bytes     int64 // to everybody
	Pool      int64 // of them, to regions
	Principal int64 // of these, to those of one principal
}

// Account is what a node lends, and to whom. Its methods may be called from any goroutine.
type Account struct {
	files func() (limit, all int, err error)
	yield func(lacks Lent) bool // nil: nothing is kept that could be given back

	mu     sync.Mutex
	bounds Bounds
	all    Lent
	pool   Lent            // of all, regions
	by     map[string]Lent // of pool, by principal
}

// NewAccount makes an Account of memory, and of the descriptors that FilesLimit says.
func NewAccount(b Bounds) *Account {
	return &Account{files: FilesLimit, bounds: b, by: map[string]Lent{}}
}

// filesShare is the part of the process's descriptors that may be lent: the other half is for connections, so that a client
// can still connect, at least to remove something.
const filesShare = 2

// FilesLimit is how many descriptors segments may have. Go raises the soft limit to the hard one as a process starts; the operator may change both
// while it runs (prlimit).
func FilesLimit() (limit, all int, err error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, 0, fmt.Errorf("limit of open files: %w", err)
	}
	all = int(min(r.Cur, math.MaxInt32))
	return all / filesShare, all, nil
}

// YieldBy has Reserve ask for memory back that is lent only as long as nothing else needs it. yield gets what is lacking, releases at least that or
// nothing, and reports which. It is called without the Account's lock, by callers of Reserve with theirs. To be called before the first Reserve.
func (a *Account) YieldBy(yield func(lacks Lent) bool) { a.yield = yield }

// Reserve counts what will be taken, or says which bound it would break and what to do.
func (a *Account) Reserve(c Charge) error {
	for {
		lacks, err := a.reserve(c)
		if lacks == (Lent{}) || a.yield == nil || !a.yield(lacks) {
			return err
		}
	}
}

// reserve is Reserve without what others may yield; lacks is what would be enough.
func (a *Account) reserve(c Charge) (lacks Lent, err error) {
	files, all, err := a.files()
	if err != nil {
		return Lent{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	lacks = Lent{Bytes: max(c.Bytes-(a.bounds.Bytes-a.all.Bytes), 0), Files: max(c.Files-(files-a.all.Files), 0)}
	if free := a.bounds.Bytes - a.all.Bytes; c.Bytes > free {
		return lacks, fmt.Errorf("%w: %s takes %s, and %s of %s are free: remove datasets or regions, raise the node's memory, or spread over more nodes",
			pool.ErrMemory, c.What, SizeText(c.Bytes), SizeText(max(free, 0)), SizeText(a.bounds.Bytes))
	}
	if c.Files > files-a.all.Files {
		return lacks, fmt.Errorf("%w: %s takes %d descriptors, and %d are left of the %d for datasets and regions, half of the process's open files (%d): "+
			"remove some, or raise the node's limit (ulimit -n, LimitNOFILE= in systemd)",
			pool.ErrMemory, c.What, c.Files, max(files-a.all.Files, 0), files, all)
	}
	if c.Region {
		if err := a.poolRoom(c, files); err != nil {
			return Lent{}, err
		}
		a.pool.add(c.Lent)
		by := a.by[c.Principal]
		by.add(c.Lent)
		a.by[c.Principal] = by
	}
	a.all.add(c.Lent)
	return Lent{}, nil
}

// poolRoom says which of the pool's bounds a region would break, of the descriptors too; mu is held.
func (a *Account) poolRoom(c Charge, files int) error {
	if a.bounds.Pool == 0 {
		return fmt.Errorf("%w: this node lends no regions: start it with --pool-memory (pool_memory in its configuration), or choose another node", pool.ErrMemory)
	}
	if free := a.bounds.Pool - a.pool.Bytes; c.Bytes > free {
		return fmt.Errorf("%w: %s takes %s, and %s of the node's pool_memory, %s, are free: destroy regions, raise pool_memory, or choose another node",
			pool.ErrMemory, c.What, SizeText(c.Bytes), SizeText(max(free, 0)), SizeText(a.bounds.Pool))
	}
	if free := a.bounds.Principal - a.by[c.Principal].Bytes; c.Bytes > free {
		return fmt.Errorf("%w: %s takes %s, and regions of %q may take %s more of the %s for one principal: destroy some, or have the node's operator raise Limits.PrincipalBytes",
			pool.ErrMemory, c.What, SizeText(c.Bytes), c.Principal, SizeText(max(free, 0)), SizeText(a.bounds.Principal))
	}
	// Small regions take as many descriptors as large ones, and hardly any memory: one principal leaves a quarter.
	if most := files - files/4; c.Files > most-a.by[c.Principal].Files {
		return fmt.Errorf("%w: %s takes %d descriptors, and regions of %q may take %d more of the %d for one principal: make fewer and larger ones, or raise the node's limit of open files",
			pool.ErrMemory, c.What, c.Files, c.Principal, max(most-a.by[c.Principal].Files, 0), most)
	}
	return nil
}

// Release undoes a Reserve.
func (a *Account) Release(c Charge) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all.sub(c.Lent)
	if !c.Region {
		return
	}
	a.pool.sub(c.Lent)
	by := a.by[c.Principal]
	by.sub(c.Lent)
	if a.by[c.Principal] = by; by == (Lent{}) {
		delete(a.by, c.Principal)
	}
}

// SetBounds changes the bounds. What is lent stays; it returns by how much that is more than Bytes, and regions than Pool.
func (a *Account) SetBounds(b Bounds) (over, poolOver int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bounds = b
	return max(a.all.Bytes-b.Bytes, 0), max(a.pool.Bytes-b.Pool, 0)
}

// Used is what is lent to everybody, and of it to regions, and the bounds.
func (a *Account) Used() (all, regions Lent, b Bounds) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all, a.pool, a.bounds
}

// SizeText writes a size for people.
func SizeText(n int64) string {
	v, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, u
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}
