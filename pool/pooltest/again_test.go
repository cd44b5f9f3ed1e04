package pooltest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

// TestNumberAgain: a component was away while a region was destroyed. The number's next region, of the same owner, finds none of its bytes there, and
// whoever has the old one open finds none of the new one's.
func TestNumberAgain(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1")
		ctx, p := within(t), g.client(ann)
		who := cluster.Principal{Name: sys, Caps: cluster.CapMember}
		made := func(epoch uint64) (*pool.Region, error) {
			req := &pool.ReserveRequest{EpochRequest: pool.EpochRequest{Region: pool.FirstManaged + 3, Epoch: epoch, Made: epoch, Size: part, Owner: ann}, Parts: []pool.Range{{Size: part}}}
			if err := g.nodes["n1"].pool.Reserve(who, req); err != nil {
				return nil, err
			}
			return p.OpenTable(ctx, &pool.Table{Info: pool.Info{Region: req.Region, Epoch: epoch, Made: epoch, Size: part, Owner: ann},
				Parts: []pool.Extent{{Size: part, Component: "n1"}}})
		}
		old, err := made(5)
		must(t, err)
		must(t, old.Put(ctx, []byte("the old one's"), 0))
		fresh, err := made(20)
		must(t, err)
		got := make([]byte, 16)
		if err := fresh.Get(ctx, got, 0); err != nil || !bytes.Equal(got, make([]byte, 16)) {
			t.Errorf("a new region has %q (%v)", got, err)
		}
		if err := old.Get(ctx, got, 0); !errors.Is(err, pool.ErrMoved) {
			t.Errorf("the old region: %v", err)
		}
		if _, err := made(5); !errors.Is(err, pool.ErrMoved) {
			t.Errorf("a manager that was overtaken: %v", err)
		}
	})
}
