package pooltest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/excache"
)

// TestShareForReading: who may only read a region can share it to be read, mapped here or not, and is told at once that it cannot be changed.
func TestShareForReading(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1")
		ctx, a := within(t), g.client(ann)
		r, err := a.CreateRegion(ctx, "n1", pool.Spec{Name: "table", Size: 64 << 10})
		must(t, err)
		want := random(4096, 7)
		must(t, r.Put(ctx, want, 8192))
		must(t, a.Grant(ctx, "n1", "table", bob, "r"))
		b := g.client(bob)
		read, err := b.LookupRegion(ctx, "n1", "table")
		must(t, err)
		store := excache.NewRegions(b, "n1")
		if _, err := store.Share("table", &read.Memory, true); !errors.Is(err, pool.ErrRights) {
			t.Errorf("to be changed: %v, want %v", err, pool.ErrRights)
		}
		share, err := store.Share("table", &read.Memory, false)
		must(t, err)
		share.Bind(0, 0)
		got := make([]byte, 4096)
		if store.Mapped(0) {
			must(t, store.Access(8192, len(got), func(mem []byte) { copy(got, mem) }))
		} else {
			store.StartGet(0, got, 8192)
			for until := time.Now().Add(time.Minute); store.Done(1) == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(until) {
					t.Fatal("it does not end")
				}
			}
			must(t, store.End(0))
		}
		if !bytes.Equal(got, want) {
			t.Error("it reads other bytes")
		}
		own, err := store.Share("own", &r.Memory, true)
		must(t, err)
		own.Bind(1, 0)
		if store.Mapped(1) != (r.MappedRun(0) > 0) {
			t.Errorf("with all rights: mapped %v, in place %d", store.Mapped(1), r.MappedRun(0))
		}
	})
}
