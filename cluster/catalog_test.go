package cluster

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-fabric/wherry/fabric"
)

var (
	ann   = Principal{"ann", CapRead | CapWrite | CapInject}
	bob   = Principal{"bob", CapRead | CapInject}
	root  = Principal{"root", CapAdmin}
	other = Principal{"node-2", CapMember}
)

func named(t testing.TB, name string, version uint64) *Table {
	tab := logTable(t)
	tab.Name, tab.Version = name, version
	return tab
}

func newCatalog(t *testing.T, limits CatalogLimits) *Catalog {
	t.Helper()
	c, err := NewCatalog(t.Context(), limits, NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func check(t *testing.T, err, want error, texts ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
		return
	}
	for _, text := range texts {
		if err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want …%s…", err, text)
		}
	}
}

// TestGrantWithoutCapability: who lacks the capability has nothing of a grant, and is told of a missing grant besides, not instead.
func TestGrantWithoutCapability(t *testing.T) {
	c := newCatalog(t, CatalogLimits{})
	check(t, c.Put(t.Context(), ann, named(t, "logs", 1), false), nil)
	eve, amy := Principal{"eve", CapInject}, Principal{"amy", CapWrite}
	for _, granted := range []fabric.Rights{0, fabric.RightRead} {
		check(t, c.Grant(t.Context(), ann, "logs", "eve", granted), nil)
		for _, need := range []fabric.Rights{0, fabric.RightRead} {
			err := c.Allow(eve, "logs", need)
			if besides := strings.Contains(err.Error(), `besides, the owner of the dataset, "ann", has not granted it`); besides != (granted == 0) {
				t.Errorf("granted %v: %v", granted, err)
			}
			check(t, err, ErrForbidden, "eve lacks right read", "its capabilities (inject) do not include it; use a token or certificate that has more")
		}
	}
	check(t, c.Allow(amy, "logs", 0), ErrForbidden, `its owner "ann" or an admin can grant it`)
	check(t, c.Grant(t.Context(), ann, "logs", "amy", fabric.RightRead), nil)
	check(t, c.Allow(amy, "logs", 0), ErrForbidden, "amy lacks right read", "its capabilities (write) do not include it")
}

func TestCatalog(t *testing.T) {
	c := newCatalog(t, CatalogLimits{})
	check(t, c.Put(t.Context(), bob, named(t, "logs", 1), false), ErrForbidden, "bob lacks capability write", `"logs"`, "use a token or certificate that has it")
	check(t, c.Put(t.Context(), ann, named(t, "logs", 3), false), nil)
	check(t, c.Put(t.Context(), ann, named(t, "logs", 4), false), ErrExists, `"logs", version 3, of "ann"`)
	check(t, c.Put(t.Context(), ann, named(t, "logs", 3), true), ErrVersion, "must be higher")
	check(t, c.Put(t.Context(), Principal{"eve", CapWrite}, named(t, "logs", 9), true), ErrForbidden, "eve lacks ownership", `only its owner "ann" or an admin can replace it`)
	check(t, c.Put(t.Context(), other, named(t, "placed", 4), false), nil)
	if v := c.NextVersion(); v != 5 {
		t.Errorf("next version %d", v)
	}

	_, err := c.Get(bob, "logs", fabric.RightRead)
	check(t, err, ErrForbidden, "bob lacks right read", `"logs"`, `its owner "ann" or an admin can grant it`)
	check(t, c.Grant(t.Context(), bob, "logs", "bob", fabric.RightRead), ErrForbidden, "grant rights to")
	check(t, c.Grant(t.Context(), ann, "logs", "bob", fabric.RightsAll), nil)
	e, err := c.Get(bob, "logs", fabric.RightRead)
	check(t, err, nil)
	if !e.Table.Shards[0].Windows[0].Key.IsZero() || e.Owner != "ann" || e.Version != 3 {
		t.Errorf("%+v", e)
	}
	e.Table.Shards[0].Element, e.Grants["eve"] = "changed", fabric.RightsAll
	if again, _ := c.Get(bob, "logs", 0); again.Table.Shards[0].Element != "node-0" || len(again.Grants) != 1 {
		t.Error("the catalogue's own entry was changed from outside")
	}
	check(t, c.Allow(bob, "logs", fabric.RightWrite), ErrForbidden, "right write", "its capabilities (inject,read) do not include it")
	if r := c.Rights(bob, "logs"); r != fabric.RightRead {
		t.Error(r)
	}
	if r := c.Rights(root, "logs"); r != fabric.RightsAll {
		t.Error(r)
	}
	if r := c.Rights(root, "nothing"); r != 0 {
		t.Error(r)
	}
	check(t, c.Put(t.Context(), root, named(t, "logs", 8), true), nil)
	if e, _ := c.Get(ann, "logs", 0); e.Owner != "ann" || e.Grants["bob"] != fabric.RightsAll || e.Version != 8 {
		t.Errorf("replacing lost the owner or the grants: %+v", e)
	}
	check(t, c.Grant(t.Context(), ann, "logs", "bob", 0), nil)
	check(t, c.Grant(t.Context(), ann, "logs", Everyone, fabric.RightRead), nil)
	check(t, c.Allow(Principal{"", CapRead}, "logs", fabric.RightRead), nil)
	check(t, c.Allow(Principal{"", 0}, "logs", 0), ErrForbidden, "(anonymous)")

	var names []string
	for _, e := range c.List(root) {
		names = append(names, e.Name)
	}
	if diff := cmp.Diff([]string{"logs", "placed"}, names); diff != "" {
		t.Error(diff)
	}
	if l := c.List(bob); len(l) != 1 || l[0].Name != "logs" {
		t.Error(l)
	}
	check(t, drop(t, c, bob, "logs", 0), ErrForbidden, "remove")
	check(t, drop(t, c, ann, "logs", 3), ErrVersion, "it was replaced meanwhile")
	check(t, drop(t, c, ann, "logs", 8), nil)
	check(t, drop(t, c, ann, "logs", 8), ErrNotFound, `"logs"`)
	_, err = c.Get(ann, "a b", 0)
	check(t, err, ErrName)
	check(t, c.Grant(t.Context(), ann, "logs", "no no", 0), ErrName)
	if err := c.Grant(t.Context(), ann, "logs", "eve", 64); err == nil || !strings.Contains(err.Error(), "no rights") {
		t.Error(err)
	}
}

// TestMayPut: Put's check, and which version Delete removes.
func TestMayPut(t *testing.T) {
	c := newCatalog(t, CatalogLimits{})
	check(t, c.Put(t.Context(), ann, named(t, "logs", 8), false), nil)
	for replace, want := range map[bool]error{false: ErrExists, true: nil} {
		old, err := c.MayPut(ann, "logs", replace)
		check(t, err, want)
		if (old != nil) != replace || replace && old.Version != 8 {
			t.Errorf("the entry that gives way (replace: %v): %+v", replace, old)
		}
	}
	if _, err := c.MayPut(bob, "logs", true); !errors.Is(err, ErrForbidden) {
		t.Error(err)
	}
	if old, err := c.MayPut(bob, "free", false); old != nil || err != nil {
		t.Error(old, err)
	}
	if v, err := c.Delete(t.Context(), ann, "logs", 0); v != 8 || err != nil {
		t.Errorf("version %d was removed, %v", v, err)
	}
}

func drop(t *testing.T, c *Catalog, p Principal, name string, version uint64) error {
	_, err := c.Delete(t.Context(), p, name, version)
	return err
}

func TestCatalogLimits(t *testing.T) {
	c := newCatalog(t, CatalogLimits{Entries: 2})
	for i := range 2 {
		check(t, c.Put(t.Context(), ann, named(t, fmt.Sprint("d", i), 1), false), nil)
	}
	check(t, c.Put(t.Context(), ann, named(t, "d2", 1), false), ErrFull, "it has 2 entries")
	check(t, c.Put(t.Context(), ann, named(t, "d1", 2), true), nil)
	for i := range MaxGrants {
		check(t, c.Grant(t.Context(), ann, "d0", fmt.Sprint("p", i), fabric.RightRead), nil)
	}
	check(t, c.Grant(t.Context(), ann, "d0", "more", fabric.RightRead), ErrFull, "256 principals")
	check(t, c.Grant(t.Context(), ann, "d0", "p1", fabric.RightsAll), nil)

	one, _ := named(t, "d", 1).Encode()
	small := newCatalog(t, CatalogLimits{Bytes: int64(len(one)) + 10})
	check(t, small.Put(t.Context(), ann, named(t, "d", 1), false), nil)
	check(t, small.Put(t.Context(), ann, named(t, "d", 2), true), nil)
	check(t, small.Put(t.Context(), ann, named(t, "e", 2), false), ErrFull, "bytes")
	check(t, drop(t, small, ann, "d", 2), nil)
	check(t, small.Put(t.Context(), ann, named(t, "e", 2), false), nil)
	bad := named(t, "x", 1)
	bad.Rows++
	check(t, small.Put(t.Context(), ann, bad, false), ErrTable)
}

func TestCatalogConcurrently(t *testing.T) {
	c := newCatalog(t, CatalogLimits{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := fmt.Sprint("d", i%4)
			for v := range uint64(50) {
				_ = c.Put(t.Context(), root, named(t, name, v+1), true)
				_, _ = c.Get(root, name, fabric.RightRead)
				_ = c.Grant(t.Context(), root, name, "bob", fabric.RightRead)
				c.List(bob)
				if v%10 == 9 {
					_, _ = c.Delete(t.Context(), root, name, 0)
				}
			}
		})
	}
	wg.Wait()
	want := int64(0)
	for _, e := range c.List(root) {
		b, _ := e.Table.Encode()
		want += int64(len(b))
	}
	if c.bytes != want {
		t.Errorf("%d bytes are accounted for, entries take %d", c.bytes, want)
	}
}

// TestCatalogsOfOneStore: catalogues of one store see each other's changes at the latest when theirs meet one, and none is lost.
func TestCatalogsOfOneStore(t *testing.T) {
	store := NewMemory()
	make := func() *Catalog {
		c, err := NewCatalog(t.Context(), CatalogLimits{Entries: 3}, store)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b := make(), make()
	check(t, a.Put(t.Context(), ann, named(t, "logs", 3), false), nil)
	check(t, a.Grant(t.Context(), ann, "logs", "bob", fabric.RightRead), nil)
	check(t, b.Put(t.Context(), ann, named(t, "logs", 4), false), ErrExists, "version 3")
	if r := b.Rights(bob, "logs"); r != fabric.RightRead || b.NextVersion() != 4 {
		t.Errorf("bob has %v, the next version is %d", r, b.NextVersion())
	}
	check(t, b.Put(t.Context(), ann, named(t, "logs", 5), true), nil)
	check(t, a.Grant(t.Context(), ann, "logs", "eve", fabric.RightRead), nil) // of the new version, not the one that it knew
	check(t, b.Grant(t.Context(), ann, "logs", "bob", 0), nil)
	check(t, a.Put(t.Context(), ann, named(t, "more", 6), false), nil)
	check(t, b.Put(t.Context(), ann, named(t, "most", 7), false), nil)
	check(t, a.Put(t.Context(), ann, named(t, "toomuch", 8), false), ErrFull, "3 entries")
	check(t, drop(t, a, ann, "most", 0), nil)
	check(t, drop(t, b, ann, "most", 0), ErrNotFound)

	var wg sync.WaitGroup
	for i, c := range []*Catalog{a, b} {
		wg.Go(func() {
			for n := range 20 {
				check(t, c.Grant(t.Context(), ann, "logs", fmt.Sprintf("p%d-%d", i, n), fabric.RightRead), nil)
			}
		})
	}
	wg.Wait()
	c := make()
	e, err := c.Get(ann, "logs", 0)
	if check(t, err, nil); e.Version != 5 || len(e.Grants) != 41 || e.Owner != "ann" || c.NextVersion() != 8 {
		t.Errorf("%+v, then %d", e, c.NextVersion())
	}
	want, _ := e.Table.Encode()
	if more, _ := c.Get(ann, "more", 0); c.bytes != int64(2*len(want)) || more.Version != 6 {
		t.Errorf("%d bytes, twice %d; %+v", c.bytes, len(want), more)
	}
}

func TestParseRights(t *testing.T) {
	for text, want := range map[string]fabric.Rights{"r--": 1, "rw": 3, "rwa": 7, "---": 0, "read, write": 3, "all": 7, "none": 0, "atomic": 4} {
		if got, err := ParseRights(text); err != nil || got != want {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "rx", "reed", "read,"} {
		if r, err := ParseRights(text); err == nil || !strings.Contains(err.Error(), "give r, w, a or several") || !strings.Contains(err.Error(), "read, write, atomic, all or none") {
			t.Errorf("%q: %v, %v", text, r, err)
		}
	}
}

func TestNeedRights(t *testing.T) {
	for r, want := range map[fabric.Rights]string{fabric.RightRead: "right read", fabric.RightWrite | fabric.RightRead: "rights read, write", fabric.RightsAll: "rights read, write, atomic"} {
		if got := NeedRights(r); got != want {
			t.Errorf("%v: %q, want %q", r, got, want)
		}
	}
}
