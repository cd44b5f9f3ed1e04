package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-fabric/wherry/fabric"
)

// Limits of a catalogue.
const (
	// DefaultCatalogEntries is far beyond the datasets that one node serves.
	DefaultCatalogEntries = 4096
	// DefaultCatalogBytes bounds all tables together, as they are encoded.
	DefaultCatalogBytes = 64 << 20
	// MaxGrants bounds the principals named in one entry's grants.
	MaxGrants = 256
)

// CatalogLimits bound a catalogue; zeros are the defaults.
type CatalogLimits struct {
	Entries int
	Bytes   int64
}

// Entry is what a catalogue keeps under a name.
type Entry struct {
	Name    string                   `json:"name"`
	Version uint64                   `json:"version"` // the table's
	Owner   string                   `json:"owner"`   // the principal that put it there
	Table   *Table                   `json:"table"`   // without keys
	Grants  map[string]fabric.Rights `json:"grants"`
}

// Catalog is the names that one node knows. They are in a Store; what is read comes from a copy of that, which is
// renewed by the catalogue's own changes and when one of them meets a change by another catalogue. Its methods may be called from any
// goroutine; what goes in and comes out is copied.
type Catalog struct {
	limits CatalogLimits
	store  Store
	writes sync.Mutex // held before mu, during a change

	mu      sync.RWMutex
	entries map[string]*slot
	bytes   int64
	highest uint64   // version ever seen
	seen    Revision // at which it changed
}

// slot is an entry, which does not change.
type slot struct {
	Entry
	bytes   int64 // of the table, encoded
	changed Revision
}

// NewCatalog makes a catalogue of what is in a store.
func NewCatalog(ctx context.Context, limits CatalogLimits, store Store) (*Catalog, error) {
	limits.Entries = cmp.Or(max(limits.Entries, 0), DefaultCatalogEntries)
	limits.Bytes = cmp.Or(max(limits.Bytes, 0), DefaultCatalogBytes)
	c := &Catalog{limits: limits, store: store}
	return c, c.renew(ctx)
}

// NextVersion is a version higher than any the catalogue has seen.
func (c *Catalog) NextVersion() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.highest + 1
}

// Put stores a table, without its keys, under its name; the principal becomes
// the owner of a new name and needs CapWrite or CapMember. If replace is set, an entry of that
// name with a lower version gives way, by its owner's or an admin's hand; it
// keeps its owner and grants.
func (c *Catalog) Put(ctx context.Context, p Principal, t *Table, replace bool) error {
	t = t.WithoutKeys()
	encoded, err := t.Encode()
	if err != nil {
		return err
	}
	if !p.Caps.Has(CapWrite) && !p.Caps.Has(CapMember) {
		return &ForbiddenError{p.Name, "capability write", t.Name, "use a token or certificate that has it"}
	}
	return c.change(ctx, func() (old, s *slot, err error) {
		s = &slot{bytes: int64(len(encoded))}
		s.Entry = Entry{Name: t.Name, Version: t.Version, Owner: p.Name, Table: t, Grants: map[string]fabric.Rights{}}
		if old, err = c.mayPut(p, t.Name, replace); err != nil {
			return nil, nil, err
		}
		total := c.bytes + s.bytes
		switch {
		case old != nil && t.Version <= old.Version:
			return nil, nil, fmt.Errorf("%w: %q has version %d, the new table %d: it must be higher", ErrVersion, t.Name, old.Version, t.Version)
		case old != nil:
			s.Owner, s.Grants = old.Owner, old.Grants
			total -= old.bytes
		case len(c.entries) >= c.limits.Entries:
			return nil, nil, fmt.Errorf("%w: it has %d entries; remove some first", ErrFull, len(c.entries))
		}
		if total > c.limits.Bytes {
			return nil, nil, fmt.Errorf("%w: its tables would take %d bytes, at most %d are allowed; remove some first", ErrFull, total, c.limits.Bytes)
		}
		return old, s, nil
	})
}

// MayPut is Put's check of the name alone. It returns the entry that would give way, if there is one.
func (c *Catalog) MayPut(p Principal, name string, replace bool) (*Entry, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	old, err := c.mayPut(p, name, replace)
	if old == nil {
		return nil, err
	}
	e := old.copy()
	return &e, nil
}

// mayPut finds the entry that gives way, nil if the name is free; the caller holds mu.
func (c *Catalog) mayPut(p Principal, name string, replace bool) (*slot, error) {
	old, exists := c.entries[name]
	switch {
	case !exists:
		return nil, nil
	case !replace:
		return nil, fmt.Errorf("%w: %q, version %d, of %q: choose another name, remove it first, or replace it (--replace)", ErrExists, name, old.Version, old.Owner)
	case !owns(p, old):
		return nil, forbiddenOwner(p, "replace", old)
	}
	return old, nil
}

// Get returns the entry called name if the principal has all of need on it. It
// needs some right even if need is 0.
func (c *Catalog) Get(p Principal, name string, need fabric.Rights) (Entry, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s, err := c.find(name)
	if err != nil {
		return Entry{}, err
	}
	if err := allow(p, s, need); err != nil {
		return Entry{}, err
	}
	return s.copy(), nil
}

// Allow is Get's check alone: nil if the principal has all of need.
func (c *Catalog) Allow(p Principal, name string, need fabric.Rights) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s, err := c.find(name)
	if err != nil {
		return err
	}
	return allow(p, s, need)
}

// Rights is what the principal may do with the dataset; 0 if there is no such dataset.
func (c *Catalog) Rights(p Principal, name string) fabric.Rights {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if s, ok := c.entries[name]; ok {
		return rights(p, s)
	}
	return 0
}

// ShardOf is one dataset's shard at an element.
type ShardOf struct {
	Dataset string
	Version uint64
	At      fabric.Incarnation // of the element, when the dataset was loaded
}

// ShardsOf lists the shards at an element.
func (c *Catalog) ShardsOf(element string) []ShardOf {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []ShardOf
	for name, s := range c.entries {
		if i := s.Table.Index(element); i >= 0 {
			out = append(out, ShardOf{name, s.Version, s.Table.Shards[i].Incarnation})
		}
	}
	return out
}

// Version is a dataset's version; 0 if there is no such dataset.
func (c *Catalog) Version(name string) uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if s, ok := c.entries[name]; ok {
		return s.Version
	}
	return 0
}

// List returns the entries that the principal has some right on, or owns, sorted by name.
func (c *Catalog) List(p Principal) []Entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := []Entry{}
	for _, name := range slices.Sorted(maps.Keys(c.entries)) {
		if s := c.entries[name]; owns(p, s) || rights(p, s) != 0 {
			out = append(out, s.copy())
		}
	}
	return out
}

// Delete removes a name; only its owner or an admin may. A version other than 0
// must be the entry's. It returns the version that was removed.
func (c *Catalog) Delete(ctx context.Context, p Principal, name string, version uint64) (removed uint64, err error) {
	err = c.change(ctx, func() (old, s *slot, err error) {
		old, err = c.find(name)
		switch {
		case err != nil:
			return nil, nil, err
		case !owns(p, old):
			return nil, nil, forbiddenOwner(p, "remove", old)
		case version != 0 && version != old.Version:
			return nil, nil, fmt.Errorf("%w: %q has version %d, not %d: it was replaced meanwhile", ErrVersion, name, old.Version, version)
		}
		removed = old.Version
		return old, nil, nil
	})
	return removed, err
}

// Grant sets what principal to (or Everyone) may do with a dataset; 0 takes the
// grant away. Only its owner or an admin may.
func (c *Catalog) Grant(ctx context.Context, p Principal, name, to string, r fabric.Rights) error {
	if to != Everyone {
		if err := ValidateName(to); err != nil {
			return fmt.Errorf("%w: principal: %w", ErrName, err)
		}
	}
	if r&^fabric.RightsAll != 0 {
		return fmt.Errorf("cluster: %#x has bits that are no rights", uint8(r))
	}
	return c.change(ctx, func() (old, s *slot, err error) {
		if old, err = c.find(name); err != nil {
			return nil, nil, err
		}
		if !owns(p, old) {
			return nil, nil, forbiddenOwner(p, "grant rights to", old)
		}
		s = &slot{Entry: old.Entry, bytes: old.bytes}
		s.Grants = maps.Clone(old.Grants)
		if s.Grants[to] = r; r == 0 {
			delete(s.Grants, to)
		}
		if len(s.Grants) > MaxGrants {
			return nil, nil, fmt.Errorf("%w: %q has grants for %d principals; take some away, or grant to %q", ErrFull, name, len(old.Grants), Everyone)
		}
		return old, s, nil
	})
}

// find looks a name up; the caller holds mu.
func (c *Catalog) find(name string) (*slot, error) {
	if err := ValidateName(name); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrName, err)
	}
	if s, ok := c.entries[name]; ok {
		return s, nil
	}
	return nil, fmt.Errorf("%w: %q", ErrNotFound, name)
}

func (s *slot) copy() Entry {
	e := s.Entry
	e.Table, e.Grants = s.Table.Clone(), maps.Clone(s.Grants)
	return e
}

// owns reports whether p may change an entry. An anonymous owner's entries are
// every anonymous principal's.
func owns(p Principal, s *slot) bool { return p.Caps.Has(CapAdmin) || p.Name == s.Owner }

func rights(p Principal, s *slot) fabric.Rights { return p.Caps.RightsOf(granted(p, s)) }

// granted are the rights that p's capabilities may narrow.
func granted(p Principal, s *slot) fabric.Rights {
	if owns(p, s) {
		return fabric.RightsAll
	}
	return s.Grants[p.Name] | s.Grants[Everyone]
}

// allow says what p lacks of the rights that are needed; 0: of any.
func allow(p Principal, s *slot, need fabric.Rights) error {
	have := rights(p, s)
	if have != 0 && have&need == need {
		return nil
	}
	able := p.Caps.RightsOf(fabric.RightsAll)
	missing := need &^ able
	switch {
	case need == 0 && granted(p, s) != 0: // none of which it is able to use
		missing = granted(p, s)
	case need == 0 && able == 0:
		missing = fabric.RightRead
	}
	if missing != 0 {
		do := fmt.Sprintf("its capabilities (%v) do not include it; use a token or certificate that has more", p.Caps)
		if missing&^granted(p, s) != 0 {
			do += fmt.Sprintf("; besides, the owner of the dataset, %q, has not granted it", s.Owner)
		}
		return &ForbiddenError{p.Name, NeedRights(missing), s.Name, do}
	}
	if missing = need &^ have; missing == 0 {
		missing = fabric.RightRead
	}
	return &ForbiddenError{p.Name, NeedRights(missing), s.Name,
		fmt.Sprintf("its owner %q or an admin can grant it (wherry mem grant)", s.Owner)}
}

// NeedRights is a ForbiddenError's Need of rights, as in "right read" or "rights read, write".
func NeedRights(r fabric.Rights) string {
	var words []string
	for _, w := range []struct {
		right fabric.Rights
		word  string
	}{{fabric.RightRead, "read"}, {fabric.RightWrite, "write"}, {fabric.RightAtomic, "atomic"}} {
		if r&w.right != 0 {
			words = append(words, w.word)
		}
	}
	if len(words) == 1 {
		return "right " + words[0]
	}
	return "rights " + strings.Join(words, ", ")
}

func forbiddenOwner(p Principal, do string, s *slot) error {
	return &ForbiddenError{p.Name, "ownership", s.Name, fmt.Sprintf("only its owner %q or an admin can %s it", s.Owner, do)}
}

// ParseRights reads rights as fabric.Rights prints them ("r--"), or as letters
// in any order ("rw"), or the words read, write, atomic, all, none with commas between.
func ParseRights(text string) (fabric.Rights, error) {
	words := map[string]fabric.Rights{"read": fabric.RightRead, "write": fabric.RightWrite, "atomic": fabric.RightAtomic,
		"all": fabric.RightsAll, "none": 0}
	var out fabric.Rights
	letters := true
	for _, c := range text {
		switch c {
		case 'r':
			out |= fabric.RightRead
		case 'w':
			out |= fabric.RightWrite
		case 'a':
			out |= fabric.RightAtomic
		case '-':
		default:
			letters = false
		}
	}
	if letters && text != "" {
		return out, nil
	}
	out = 0
	for word := range splitWords(text) {
		r, ok := words[word]
		if !ok {
			return 0, fmt.Errorf("cluster: there is no right %q: give r, w, a or several of them, as in rw; or words with commas between: read, write, atomic, all or none", clip(word))
		}
		out |= r
	}
	return out, nil
}
