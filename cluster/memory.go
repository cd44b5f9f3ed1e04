package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// memoryChanges is how many changes a Memory remembers for Watch: more than come between two looks of a watcher.
	memoryChanges = 1024
	// memoryChangeBytes is what their values may take. They are kept besides the pairs, and a client that replaces a large one again and again
	// would have all of them kept.
	memoryChangeBytes = 16 << 20
)

// Memory is a Store in this process. It has no clock: leases end when Tick says how late it is.
type Memory struct {
	mu      sync.Mutex
	pairs   map[string]Pair
	rev     Revision
	changes []Pair   // the last ones, in order
	kept    int      // bytes of their values
	lost    Revision // changes up to it are not among them
	changed chan struct{}

	now    time.Duration
	leases map[Lease]*term
	last   Lease
}

// term is how long a lease lasts.
type term struct{ length, ends time.Duration }

// NewMemory makes an empty store.
func NewMemory() *Memory {
	return &Memory{pairs: map[string]Pair{}, leases: map[Lease]*term{}, changed: make(chan struct{})}
}

// Get implements Store.
func (m *Memory) Get(_ context.Context, prefix string) ([]Pair, Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Pair
	for key, p := range m.pairs {
		if strings.HasPrefix(key, prefix) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Pair) int { return cmp.Compare(a.Key, b.Key) })
	return out, m.rev, nil
}

// Commit implements Store.
func (m *Memory) Commit(_ context.Context, t Txn) (Revision, error) {
	if err := t.Validate(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, rev := range t.If {
		if is := m.pairs[key].Changed; is != rev {
			return 0, fmt.Errorf("%w: %q was changed at revision %d, not %d", ErrConflict, key, is, rev)
		}
	}
	for _, p := range t.Put {
		if p.Lease != 0 && m.leases[p.Lease] == nil {
			return 0, fmt.Errorf("%w: %d", ErrLease, p.Lease)
		}
	}
	m.apply(t.Put, t.Remove)
	return m.rev, nil
}

// apply makes changes, if there are any, and wakes those who watch. mu is held.
func (m *Memory) apply(put []Pair, remove []string) {
	remove = slices.DeleteFunc(slices.Clone(remove), func(key string) bool { _, ok := m.pairs[key]; return !ok })
	if len(put)+len(remove) == 0 {
		return
	}
	m.rev++
	for _, p := range put {
		p.Changed, p.Removed = m.rev, false
		m.pairs[p.Key] = p
		m.changes = append(m.changes, p)
		m.kept += len(p.Value)
	}
	for _, key := range remove {
		delete(m.pairs, key)
		m.changes = append(m.changes, Pair{Key: key, Changed: m.rev, Removed: true})
	}
	n := 0
	for ; len(m.changes)-n > memoryChanges || m.kept > memoryChangeBytes; n++ {
		m.lost = m.changes[n].Changed
		m.kept -= len(m.changes[n].Value)
	}
	m.changes = slices.Delete(m.changes, 0, n)
	close(m.changed)
	m.changed = make(chan struct{})
}

// Watch implements Store.
func (m *Memory) Watch(ctx context.Context, prefix string, after Revision) ([]Pair, Revision, error) {
	for {
		m.mu.Lock()
		rev, changed, lost := m.rev, m.changed, m.lost
		var out []Pair
		for _, p := range m.changes {
			if p.Changed > after && strings.HasPrefix(p.Key, prefix) {
				out = append(out, p)
			}
		}
		m.mu.Unlock()
		switch {
		case after < lost:
			return nil, 0, fmt.Errorf("%w: after revision %d; those after %d are left", ErrCompacted, after, lost)
		case len(out) > 0:
			return out, rev, nil
		}
		after = rev // nothing with this prefix up to here
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}
}

// Lease implements Store.
func (m *Memory) Lease(_ context.Context, length time.Duration) (Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	m.leases[m.last] = &term{length, m.now + length}
	return m.last, nil
}

// Renew implements Store.
func (m *Memory) Renew(_ context.Context, l Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.leases[l]
	if t == nil {
		return fmt.Errorf("%w: %d", ErrLease, l)
	}
	t.ends = m.now + t.length
	return nil
}

// End implements Store.
func (m *Memory) End(_ context.Context, l Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leases[l] == nil {
		return fmt.Errorf("%w: %d", ErrLease, l)
	}
	m.end(l)
	return nil
}

// end removes the keys under a lease. mu is held.
func (m *Memory) end(l Lease) {
	delete(m.leases, l)
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(m.pairs)) {
		if m.pairs[key].Lease == l {
			keys = append(keys, key)
		}
	}
	m.apply(nil, keys)
}

// Tick says how late it is, since any beginning, and ends the leases that are over, in the order in which they began.
func (m *Memory) Tick(now time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = max(m.now, now)
	for _, l := range slices.Sorted(maps.Keys(m.leases)) {
		if m.leases[l].ends <= m.now {
			m.end(l)
		}
	}
}
