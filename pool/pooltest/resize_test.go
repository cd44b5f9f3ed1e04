package pooltest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/component"
)

// homes are a region at one component, and one that a manager spreads.
var homes = []string{"n1", pool.Manager}

// TestResize: what a region had stays, what is added is zeros, what goes is told, and nobody reads anything else there.
func TestResize(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2")
		ctx, p := within(t), g.client(ann)
		for _, home := range homes {
			r, err := p.CreateRegion(ctx, home, pool.Spec{Name: "grows", Size: 2*part - 1})
			must(t, err)
			data := random(2*part, 3)
			must(t, r.Put(ctx, data, 0))
			other, err := g.client(ann).LookupRegion(ctx, home, "grows")
			must(t, err)
			must(t, r.Resize(ctx, 5*part+1))
			if want := int64(5*part + 1<<16); r.Size() != want || r.Info().Made != other.Info().Made || r.Info().Epoch <= other.Info().Epoch {
				t.Errorf("at %q: %+v, want %d bytes", home, r.Info(), want)
			}
			same(t, r, 0, data)
			same(t, r, 2*part, make([]byte, 3*part))
			same(t, other, 0, data) // nothing of that went
			if err := other.Gather(ctx, make([]byte, 80), 8, 0, 1); err != nil {
				t.Errorf("at %q: gathered by an older table: %v", home, err)
			}
			if err := other.Get(ctx, make([]byte, 1), 2*part); !errors.Is(err, pool.ErrRange) {
				t.Errorf("at %q: by an older table: %v", home, err)
			}
			must(t, other.Refresh(ctx))
			must(t, other.Put(ctx, data, 3*part))
			must(t, r.Resize(ctx, 1))
			if r.Size() != 1<<16 {
				t.Errorf("at %q: %+v", home, r.Info())
			}
			for _, off := range []uint64{1 << 16, part, 3 * part} {
				if err := other.Get(ctx, make([]byte, 10), off); !errors.Is(err, pool.ErrMoved) {
					t.Errorf("at %q: at %d, which is gone: %v", home, off, err)
				}
			}
			if err := other.Discard(ctx, 0, 1); !errors.Is(err, pool.ErrMoved) {
				t.Errorf("at %q: discarded by an older table: %v", home, err)
			}
			must(t, r.Resize(ctx, 4*part))
			same(t, r, 0, data[:1<<16])
			same(t, r, 1<<16, make([]byte, 4*part-1<<16)) // never what was there
			must(t, other.Refresh(ctx))
			same(t, other, 3*part, make([]byte, part))
			must(t, r.Destroy(ctx))
			if err := other.Refresh(ctx); !errors.Is(err, pool.ErrMoved) {
				t.Errorf("at %q: destroyed: %v", home, err)
			}
			again, err := p.CreateRegion(ctx, home, pool.Spec{Name: "grows", Size: part})
			must(t, err)
			if err := other.Refresh(ctx); !errors.Is(err, pool.ErrMoved) {
				t.Errorf("at %q: another of the same name: %v", home, err)
			}
			if err := errors.Join(again.Close(), again.Refresh(ctx)); !errors.Is(err, pool.ErrClosed) {
				t.Errorf("at %q: closed: %v", home, err)
			}
			must(t, p.DestroyRegion(ctx, home, "grows"))
		}
		for name, n := range g.nodes {
			if all, _, _ := n.book.Used(); all != (component.Lent{}) {
				t.Errorf("%s still lends %+v", name, all)
			}
		}
	})
}

// TestResizeRefuses: nobody but the owner, nothing that there is no room for; and nothing has changed then.
func TestResizeRefuses(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1")
		ctx, p := within(t), g.client(ann)
		r, err := p.CreateRegion(ctx, "n1", pool.Spec{Name: "mine", Size: component.MinExtentBytes + 1})
		must(t, err)
		must(t, p.Grant(ctx, "n1", "mine", "bob", "all"))
		bobs, err := g.client(bob).LookupRegion(ctx, "n1", "mine")
		must(t, err)
		data := random(3000, 4)
		must(t, r.Put(ctx, data, component.MinExtentBytes-1000))
		if err := bobs.Resize(ctx, 1); err == nil {
			t.Error("bob made ann's region smaller")
		}
		for _, size := range []uint64{0, 1 << 30, 1 << 47, 1 << 60} {
			if err := r.Resize(ctx, size); !errors.Is(err, pool.ErrMemory) && !errors.Is(err, pool.ErrSpec) {
				t.Errorf("to %d: %v", size, err)
			}
		}
		same(t, bobs, component.MinExtentBytes-1000, data)
		all, _, _ := g.nodes["n1"].book.Used()
		must(t, r.Resize(ctx, component.MinExtentBytes-500))
		must(t, r.Resize(ctx, component.MinExtentBytes))
		if now, _, _ := g.nodes["n1"].book.Used(); now.Files != 1 || all.Files != 2 || now.Bytes != component.MinExtentBytes {
			t.Errorf("%+v and then %+v are lent", all, now)
		}
		got := make([]byte, 1000)
		if err := r.Get(ctx, got, component.MinExtentBytes-1000); err != nil || !bytes.Equal(got, data[:1000]) {
			t.Error(err, "or other bytes")
		}
	})
}
