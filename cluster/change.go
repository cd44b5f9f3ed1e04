package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/wherry-fabric/wherry/fabric"
)

// A catalogue has one key for each entry in its store, and one for the highest version.
const (
	catalogKeys = "catalog/"
	entryKeys   = catalogKeys + "name/"
	versionKey  = catalogKeys + "version"
	// changeTries bounds how often a change is planned anew. Each time another one was made.
	changeTries = 64
)

// change makes one change of an entry, by one transaction. plan says which it is and what is to be in its place (nil:
// none); it looks at the copy, with mu held, and is asked again if that turns out to be old.
func (c *Catalog) change(ctx context.Context, plan func() (old, s *slot, err error)) error {
	c.writes.Lock()
	defer c.writes.Unlock()
	for try := 1; ; try++ {
		c.mu.RLock()
		old, s, err := plan()
		seen, highest := c.seen, c.highest
		c.mu.RUnlock()
		if err != nil {
			return err
		}
		key, was := "", Revision(0)
		if old != nil {
			key, was = entryKeys+old.Name, old.changed
		}
		t := Txn{}
		if s != nil {
			value, err := s.value()
			if err != nil {
				return err
			}
			key = entryKeys + s.Name
			t.Put = []Pair{{Key: key, Value: value}}
		} else {
			t.Remove = []string{key}
		}
		t.If = map[string]Revision{key: was}
		if s.newVersion(old) { // the limits are for all catalogues of a store, so their Puts meet here
			t.If[versionKey] = seen
			t.Put = append(t.Put, Pair{Key: versionKey, Value: strconv.AppendUint(nil, max(highest, s.Version), 10)})
		}
		rev, err := c.store.Commit(ctx, t)
		switch {
		case err == nil:
			c.made(old, s, rev)
			return nil
		case !errors.Is(err, ErrConflict) || try == changeTries:
			return err
		}
		if err := c.renew(ctx); err != nil {
			return err
		}
	}
}

// newVersion reports whether s, in place of old, comes with a table.
func (s *slot) newVersion(old *slot) bool {
	return s != nil && (old == nil || old.Version != s.Version)
}

// made takes over what the store has taken.
func (c *Catalog) made(old, s *slot, rev Revision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old != nil {
		delete(c.entries, old.Name)
		c.bytes -= old.bytes
	}
	if s == nil {
		return
	}
	s.changed = rev
	c.entries[s.Name] = s
	c.bytes += s.bytes
	if s.newVersion(old) {
		c.highest, c.seen = max(c.highest, s.Version), rev
	}
}

// renew reads the copy anew.
func (c *Catalog) renew(ctx context.Context) error {
	pairs, _, err := c.store.Get(ctx, catalogKeys)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, total := map[string]*slot{}, int64(0)
	for _, p := range pairs {
		if p.Key == versionKey {
			if c.highest, err = strconv.ParseUint(string(p.Value), 10, 64); err != nil {
				return fmt.Errorf("cluster: the store's %s: %w", p.Key, err)
			}
			c.seen = p.Changed
			continue
		}
		name := strings.TrimPrefix(p.Key, entryKeys)
		s := c.entries[name]
		if s == nil || s.changed != p.Changed {
			if s, err = slotOf(name, p); err != nil {
				return fmt.Errorf("cluster: the store's %s: %w", p.Key, err)
			}
		}
		entries[name] = s
		total += s.bytes
	}
	c.entries, c.bytes = entries, total
	return nil
}

// record is an entry's beginning in the store, as JSON; a new line and the table follow.
type record struct {
	Owner  string                   `json:"owner"`
	Grants map[string]fabric.Rights `json:"grants"`
}

func (s *slot) value() ([]byte, error) {
	table, err := s.Table.Encode()
	if err != nil {
		return nil, err
	}
	head, err := json.Marshal(record{s.Owner, s.Grants})
	return slices.Concat(head, []byte{'\n'}, table), err
}

func slotOf(name string, p Pair) (*slot, error) {
	head, table, _ := bytes.Cut(p.Value, []byte{'\n'})
	r := record{Grants: map[string]fabric.Rights{}}
	if err := json.Unmarshal(head, &r); err != nil {
		return nil, err
	}
	t, err := DecodeTable(table)
	if err != nil {
		return nil, err
	}
	if t.Name != name {
		return nil, fmt.Errorf("%w: it is called %q", ErrTable, t.Name)
	}
	return &slot{Entry: Entry{Name: name, Version: t.Version, Owner: r.Owner, Table: t, Grants: r.Grants}, bytes: int64(len(table)), changed: p.Changed}, nil
}
