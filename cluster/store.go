package cluster

import (
	"context"
	"errors"
	"time"
)

// Store keeps what a cluster knows: keys with values, and a revision that grows with each change. The contract is what
// etcd can give; Memory keeps it in this process, and cluster/storetest tests any. Methods may be called from any
// goroutine; the context bounds each of them. A value must not be changed once it was given to or got from a store.
type Store interface {
	// Get returns the pairs whose keys begin with prefix, sorted by key, and the revision at which they were those.
	Get(ctx context.Context, prefix string) ([]Pair, Revision, error)
	// Commit makes all changes of a transaction at one revision. It makes none of them, with ErrConflict, if a condition
	// does not hold, or with ErrLease, if one is under a lease that has ended.
	Commit(ctx context.Context, t Txn) (Revision, error)
	// Watch waits for changes after a revision of keys that begin with prefix. It returns all of them up to the revision
	// at, in order. ErrCompacted says that the store does not have them all any more: Get, and watch from there.
	Watch(ctx context.Context, prefix string, after Revision) (changes []Pair, at Revision, err error)
	// Lease begins a lease, which ends time after it was begun or renewed last. Its end removes the keys under it.
	Lease(ctx context.Context, time time.Duration) (Lease, error)
	// Renew and End are of a lease that has not ended yet; ErrLease says that it has.
	Renew(ctx context.Context, l Lease) error
	End(ctx context.Context, l Lease) error
}

// StoreMember is one of the processes that keep a store together.
type StoreMember struct {
	Name    string `json:"name"`
	Addr    string `json:"addr"`    // host:port, for the other members
	Voting  bool   `json:"voting"`  // false: it is still catching up, and decides nothing
	Started bool   `json:"started"` // false: it was added, and has not been heard of
	Silent  bool   `json:"silent"`  // it has started, and does not answer the member that was asked now
}

// Membership lists the members that keep a store, and changes them.
type Membership interface {
	Members(ctx context.Context) ([]StoreMember, error)
	// Join makes room for a member that has nothing yet and returns all members, the new one too. One of that name or address whose data
	// was lost goes; one that is running stays, and that is an error.
	Join(ctx context.Context, name, addr string) ([]StoreMember, error)
	// Leave ends a membership; ErrNoMember says that there is none of that name.
	Leave(ctx context.Context, name string) error
}

// Revision counts the transactions of a store that changed something; a lease's end is one.
type Revision uint64

// Lease is a lease's number, which is never 0.
type Lease uint64

// Pair is a key with its value.
type Pair struct {
	Key     string
	Value   []byte
	Lease   Lease    // 0: none
	Changed Revision // at which it was put, or, in Watch, removed
	Removed bool     // in Watch only
}

// Txn is a transaction.
type Txn struct {
	// If has conditions: a key's Changed must be this; 0: there must be no such key.
	If     map[string]Revision
	Put    []Pair // Key, Value and Lease
	Remove []string
}

// MaxTxn bounds the changes of one transaction, and its conditions: etcd's default. No key may be in it twice.
const MaxTxn = 128

// What a Store's errors are, for errors.Is.
var (
	ErrConflict  = errors.New("cluster: another transaction was first")
	ErrLease     = errors.New("cluster: the lease has ended")
	ErrCompacted = errors.New("cluster: the store has forgotten changes that old")
	ErrTxn       = errors.New("cluster: bad transaction")
	// ErrAway: a change may have been made all the same; a caller that needs to know reads it back.
	ErrAway = errors.New("cluster: the store gives no answer")
	// ErrNoMember: the store has no such member.
	ErrNoMember = errors.New("cluster: no such member")
	// ErrRunning: a member cannot be replaced or removed as things are.
	ErrRunning = errors.New("cluster: the member is needed")
)

// Validate checks the limits.
func (t *Txn) Validate() error {
	seen := map[string]bool{}
	for _, p := range t.Put {
		seen[p.Key] = true
	}
	for _, key := range t.Remove {
		seen[key] = true
	}
	if n := len(t.Put) + len(t.Remove); n > MaxTxn || len(t.If) > MaxTxn || n != len(seen) || seen[""] {
		return ErrTxn
	}
	return nil
}
