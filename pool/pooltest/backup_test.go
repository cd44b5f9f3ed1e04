package pooltest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

// TestBackup: what was backed up is there again, in another region, on other nodes; damage is told, and zeros take no room.
func TestBackup(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2")
		ctx, p := within(t), g.client(ann)
		r, err := p.CreateRegion(ctx, pool.Manager, pool.Spec{Name: "from", Size: 12 * part})
		must(t, err)
		data := random(part+999, 5)
		must(t, r.Put(ctx, data, 3*part-7))
		var file bytes.Buffer
		last := uint64(0)
		must(t, r.Backup(ctx, &file, func(done uint64) { last = done }))
		if last != 12*part || file.Len() > 5<<20 {
			t.Errorf("%d bytes read, %d written", last, file.Len())
		}
		to, err := p.CreateRegion(ctx, "n1", pool.Spec{Name: "to", Size: 13 * part})
		must(t, err)
		must(t, to.Put(ctx, bytes.Repeat([]byte{1}, 13*part), 0))
		must(t, to.Restore(ctx, bytes.NewReader(file.Bytes()), func(done uint64) { last = done }))
		want := make([]byte, 12*part)
		copy(want[3*part-7:], data)
		same(t, to, 0, want)
		same(t, to, 12*part, bytes.Repeat([]byte{1}, part))
		it, err := r.CreateItem(ctx, pool.ItemSpec{Size: 5000})
		must(t, err)
		damaged := bytes.Clone(file.Bytes())
		damaged[100]++
		for what, tc := range map[string]struct {
			err  error
			want error
			text string
		}{
			"does not fit": {it.Restore(ctx, bytes.NewReader(file.Bytes()), nil), pool.ErrRange, "resize"},
			"cut off":      {to.Restore(ctx, bytes.NewReader(file.Bytes()[:file.Len()-1]), nil), pool.ErrBackup, "ends"},
			"damaged":      {to.Restore(ctx, bytes.NewReader(damaged), nil), pool.ErrBackup, "checksum"},
			"no backup":    {to.Restore(ctx, strings.NewReader(strings.Repeat("a text ", 99)), nil), pool.ErrBackup, "begin"},
		} {
			if !errors.Is(tc.err, tc.want) || !strings.Contains(tc.err.Error(), tc.text) {
				t.Errorf("%s: %v, want %v", what, tc.err, tc.want)
			}
		}
	})
}

// TestBackupOfItem: the right to read an item is enough to back it up, and the right to write it to restore it, whoever has what right to its region; small or
// large, private or not, spread or not.
func TestBackupOfItem(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1")
		ctx, p := within(t), g.client(ann)
		r, err := p.CreateRegion(ctx, "n1", pool.Spec{Name: "work", Size: 4 * part})
		must(t, err)
		_, err = g.client(bob).LookupRegion(ctx, "n1", "work")
		if !errors.Is(err, pool.ErrNoRegion) {
			t.Errorf("the region itself: %v", err)
		}
		for _, s := range []pool.ItemSpec{{Name: "small", Size: 5000}, {Name: "large", Size: 2*part + 77}, {Name: "own", Size: part, Private: true}, {Name: "tiny", Size: 100, Private: true}} {
			it, err := r.CreateItem(ctx, s)
			must(t, err)
			data := random(int(s.Size), 9)
			must(t, it.Put(ctx, data, 0))
			if _, err := g.client(bob).LookupItem(ctx, "n1", "work", s.Name); !errors.Is(err, pool.ErrNoItem) {
				t.Errorf("%s, without a right: %v", s.Name, err)
			}
			must(t, it.Grant(ctx, bob, "r"))
			theirs, err := g.client(bob).LookupItem(ctx, "n1", "work", s.Name)
			must(t, err)
			var file bytes.Buffer
			must(t, theirs.Backup(ctx, &file, nil))
			if err := theirs.Restore(ctx, bytes.NewReader(file.Bytes()), nil); !errors.Is(err, pool.ErrRights) {
				t.Errorf("%s, restored with the right to read: %v", s.Name, err)
			}
			same(t, it, 0, data)
			must(t, it.Put(ctx, bytes.Repeat([]byte{1}, int(s.Size)), 0))
			must(t, it.Grant(ctx, bob, "w"))
			theirs, err = g.client(bob).LookupItem(ctx, "n1", "work", s.Name)
			must(t, err)
			if err := theirs.Backup(ctx, io.Discard, nil); !errors.Is(err, pool.ErrRights) {
				t.Errorf("%s, backed up with the right to write: %v", s.Name, err)
			}
			must(t, theirs.Restore(ctx, bytes.NewReader(file.Bytes()), nil))
			same(t, it, 0, data)
			must(t, it.Put(ctx, make([]byte, s.Size), 0))
			file.Reset()
			must(t, it.Backup(ctx, &file, nil))
			must(t, it.Put(ctx, data, 0))
			must(t, theirs.Restore(ctx, &file, nil)) // of zeros
			same(t, it, 0, make([]byte, s.Size))
		}
		eves := g.client(eve)
		if _, err := eves.CreateRegion(ctx, "n1", pool.Spec{Size: part}); !errors.Is(err, cluster.ErrForbidden) {
			t.Errorf("a region to restore to, by one that may only read: %v", err)
		}
	})
}

// TestMap: a view is the bytes themselves where they are mapped, and says so where they are not.
func TestMap(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1")
		ctx, p := within(t), g.client(ann)
		r, err := p.CreateRegion(ctx, "n1", pool.Spec{Name: "work", Size: 4 * part})
		must(t, err)
		it, err := r.CreateItem(ctx, pool.ItemSpec{Size: 5000})
		must(t, err)
		for _, m := range []*pool.Memory{&r.Memory, &it.Memory} {
			v, err := m.Map(1000, 3000)
			if m.MappedRun(0) == 0 {
				if !errors.Is(err, pool.ErrNotMapped) {
					t.Errorf("not mapped: %v", err)
				}
				continue
			}
			must(t, err)
			must(t, v.Access(func(mem []byte) { copy(mem[2000:], "by hand") }))
			same(t, m, 3000, []byte("by hand"))
			if _, err := m.Map(uint64(m.Size())-1, 2); !errors.Is(err, pool.ErrRange) {
				t.Errorf("beyond the end: %v", err)
			}
		}
		v, err := it.Map(0, 8)
		mapped := err == nil
		must(t, it.Destroy(ctx))
		if err := v.Access(func([]byte) {}); mapped && !errors.Is(err, pool.ErrMoved) {
			t.Errorf("a view of an item that is gone: %v", err)
		}
	})
}
