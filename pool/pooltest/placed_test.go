package pooltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
)

// patience bounds a test's waits.
const patience = time.Minute

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func random(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// same reports bytes of a region that are not those that should be there.
func same(t *testing.T, r interface {
	Get(ctx context.Context, dst []byte, off uint64) error
}, off uint64, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if err := r.Get(t.Context(), got, off); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes at %d: %v, or other bytes", len(want), off, err)
	}
}

// TestSeveralComponents: a region that a manager spread over three components is one: bytes, elements, words, zeros and copies, also over borders.
func TestSeveralComponents(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2", "n3")
		ctx, p := within(t), g.client(ann)
		r, err := p.CreateRegion(ctx, pool.Manager, pool.Spec{Name: "wide", Size: 7*part - 5})
		must(t, err)
		if r.Size() != 7*part || r.Info().Extents != 7 || r.Info().Rights != "rwa" {
			t.Fatalf("%+v", r.Info())
		}
		data := random(3*part+1000, 1)
		must(t, r.Put(ctx, data, part-500))
		again, err := p.LookupRegion(ctx, pool.Manager, "wide")
		must(t, err)
		same(t, again, part-500, data)
		must(t, r.StartPut(data[:200], 5*part-100).Wait(ctx))
		same(t, again, 5*part-100, data[:200])
		must(t, r.Put(ctx, data[part+400:][:200], 5*part-100)) // not what was there
		const size = 24
		var index []uint64
		for i := uint64(0); i < 500; i++ { // elements over borders among them
			index = append(index, (i*part/2+i*7)%(7*part)/size)
		}
		index = append(index, part/size, 2*part/size, 3*part/size)
		got := make([]byte, size*len(index))
		must(t, again.GatherIndexed(ctx, got, size, index))
		for i, n := range index {
			same(t, r, n*size, got[i*size:(i+1)*size])
		}
		must(t, r.Scatter(ctx, random(size*100, 2), size, 10, part/size/20))
		strided := make([]byte, size*100)
		must(t, again.Gather(ctx, strided, size, 10, part/size/20))
		if !bytes.Equal(strided, random(size*100, 2)) {
			t.Error("what was scattered is not what is gathered")
		}
		for off := range uint64(7) {
			if old, err := r.Atomic(ctx, fabric.FetchAdd(off+1), 8, off*part+64); err != nil {
				t.Error(old, err)
			}
		}
		must(t, r.Put(ctx, bytes.Repeat([]byte{9}, 2*part), part))
		must(t, r.Discard(ctx, part+10, 2*part-20))
		same(t, again, part, append(append(bytes.Repeat([]byte{9}, 10), make([]byte, 2*part-20)...), bytes.Repeat([]byte{9}, 10)...))
		for range 2 {
			must(t, r.Put(ctx, bytes.Repeat([]byte{9}, 20), part))
			must(t, r.DiscardInTurn(ctx, []pool.Range{{Off: part - 10, Size: 20}}))
			same(t, again, part, append(make([]byte, 10), bytes.Repeat([]byte{9}, 10)...))
		}
		r.Fence()
		must(t, r.Quiet(ctx))
		if err := r.Get(ctx, got, 7*part-1); !errors.Is(err, pool.ErrRange) {
			t.Errorf("beyond the end: %v", err)
		}
		must(t, r.Destroy(ctx))
		if err := again.Get(ctx, got, 0); !errors.Is(err, pool.ErrMoved) {
			t.Errorf("destroyed: %v", err)
		}
		for name, n := range g.nodes {
			if all, _, _ := n.book.Used(); all.Bytes != 0 || all.Files != 0 || n.pool.Count() != 0 {
				t.Errorf("%s still lends %+v", name, all)
			}
		}
	})
}

// TestPlacing: what a manager may ask for, and what it is told.
func TestPlacing(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2")
		ctx, p := within(t), g.client(ann)
		n1 := g.nodes["n1"].pool
		who := cluster.Principal{Name: sys, Caps: cluster.CapMember}
		at := func(epoch, size uint64, owner string) pool.EpochRequest {
			return pool.EpochRequest{Region: pool.FirstManaged + 1, Epoch: epoch, Size: size, Owner: owner}
		}
		reserve := func(e pool.EpochRequest, parts ...pool.Range) error {
			return n1.Reserve(who, &pool.ReserveRequest{EpochRequest: e, Parts: parts})
		}
		must(t, reserve(at(5, 2*part, ann), pool.Range{Off: part, Size: part}))
		low := at(5, part, ann)
		low.Region = 7
		for what, tc := range map[string]struct{ err, want error }{
			"again":              {reserve(at(5, 2*part, ann), pool.Range{Off: part, Size: part}), nil},
			"overlap":            {reserve(at(5, 2*part, ann), pool.Range{Off: part / 2, Size: part}), pool.ErrSpec},
			"overlap each other": {reserve(at(5, 2*part, ann), pool.Range{Off: 8 * part, Size: part}, pool.Range{Off: 8 * part, Size: part / 2}), pool.ErrSpec},
			"overtaken":          {reserve(at(4, 2*part, ann), pool.Range{Size: part}), pool.ErrMoved},
			"another owner":      {reserve(at(6, 2*part, bob), pool.Range{Size: part}), pool.ErrSpec},
			"unaligned":          {reserve(at(6, 2*part, ann), pool.Range{Size: part - 1}), pool.ErrSpec},
			"too large":          {reserve(at(6, 1<<40, ann), pool.Range{Size: 2 << 30}), pool.ErrSpec},
			"wraps":              {reserve(at(6, 1<<40, ann), pool.Range{Off: ^uint64(0) - part + 1, Size: part}), pool.ErrSpec},
			"more than lent":     {reserve(at(6, 1<<30, ann), pool.Range{Off: 4 * part, Size: 1 << 30}), pool.ErrMemory},
			"a static number":    {reserve(low, pool.Range{Size: part}), pool.ErrSpec},
			"no manager": {n1.Reserve(cluster.Principal{Name: ann, Caps: cluster.CapWrite | cluster.CapAdmin}, &pool.ReserveRequest{EpochRequest: at(9, part, ann),
				Parts: []pool.Range{{Size: part}}}), cluster.ErrForbidden},
			"nothing to release": {n1.Release(who, &pool.ReleaseRequest{Region: pool.FirstManaged + 9, Epoch: 1}), nil},
			"nothing there":      {n1.SetEpoch(who, &pool.EpochRequest{Region: pool.FirstManaged + 9, Epoch: 1, Size: 1, Owner: ann}), pool.ErrNoRegion},
		} {
			if !errors.Is(tc.err, tc.want) {
				t.Errorf("%s: %v, want %v", what, tc.err, tc.want)
			}
		}
		held, err := n1.Held(who)
		if err != nil || fmt.Sprintf("%+v", held.Parts) != fmt.Sprintf("[{Region:%d Epoch:5 Parts:[{Off:%d Size:%d}]}]", pool.FirstManaged+1, part, part) {
			t.Errorf("%+v, %v", held, err)
		}
		must(t, n1.Release(who, &pool.ReleaseRequest{Region: pool.FirstManaged + 1, Epoch: 6}))
		if all, _, _ := g.nodes["n1"].book.Used(); all.Bytes != 0 {
			t.Errorf("%+v are lent", all)
		}
		// A table of another epoch than the component's, in either direction, opens nothing.
		r, err := p.CreateRegion(ctx, pool.Manager, pool.Spec{Name: "x", Size: 2 * part})
		must(t, err)
		old := *g.managed[r.Info().Region]
		for _, epoch := range []uint64{old.Epoch - 1, old.Epoch + 1} {
			stale := old
			stale.Epoch = epoch
			if _, err := p.OpenTable(ctx, &stale); !errors.Is(err, pool.ErrMoved) {
				t.Errorf("a table of epoch %d, and it is %d: %v", epoch, old.Epoch, err)
			}
		}
		lost := old
		lost.Parts = append([]pool.Extent{}, old.Parts...)
		lost.Parts[1].Lost = true
		half, err := p.OpenTable(ctx, &lost)
		must(t, err)
		must(t, half.Put(ctx, []byte("here"), 100))
		if err := half.Get(ctx, make([]byte, 9), part-4); !errors.Is(err, pool.ErrLost) {
			t.Errorf("a lost extent: %v", err)
		}
		if err := half.Gather(ctx, make([]byte, 16), 8, part/8-1, 1); !errors.Is(err, pool.ErrLost) {
			t.Errorf("gathered from a lost extent: %v", err)
		}
		lost.Parts[0].Lost, lost.Parts[1].Lost = true, false
		half, err = p.OpenTable(ctx, &lost)
		must(t, err)
		_, list := half.ListItems(ctx)
		_, look := half.LookupItem(ctx, "item")
		_, alloc := half.CreateItem(ctx, pool.ItemSpec{Size: 1})
		for what, err := range map[string]error{"list": list, "lookup": look, "allocation": alloc} {
			if !errors.Is(err, pool.ErrLost) || !strings.Contains(fmt.Sprint(err), lost.Parts[0].Component) {
				t.Errorf("%s of items where the directory is lost: %v", what, err)
			}
		}
	})
}

// TestSpreadItemLost: an item one of whose components is gone is lost, and the error names the component, which nobody knows any more.
func TestSpreadItemLost(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2")
		ctx := within(t)
		r, err := g.client(ann).CreateRegion(ctx, pool.Manager, pool.Spec{Name: "x", Size: 4 * part})
		must(t, err)
		_, err = r.CreateItem(ctx, pool.ItemSpec{Name: "spread", Size: part, Components: 2})
		must(t, err)
		delete(g.nodes, "n2") // its connections stay, which only its clients of before have
		for i := range g.managed[r.Info().Region].Parts {
			e := &g.managed[r.Info().Region].Parts[i]
			e.Lost = e.Component == "n2"
		}
		p := g.client(ann)
		half, err := p.LookupRegion(ctx, pool.Manager, "x")
		must(t, err)
		_, inside := half.LookupItem(ctx, "spread")
		_, alone := p.LookupItem(ctx, pool.Manager, "x", "spread")
		for what, err := range map[string]error{"in its region": inside, "by both names": alone} {
			if !errors.Is(err, pool.ErrLost) || errors.Is(err, control.ErrNoNode) || !strings.Contains(fmt.Sprint(err), "node n2 had 131072 bytes of item \"spread\"") {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// TestLeasedAtSeveral: a leased region at two components goes with its client, at both.
func TestLeasedAtSeveral(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2")
		c := g.station("client-"+ann, ann)
		mine := newPool(c)
		r, err := mine.CreateRegion(within(t), pool.Manager, pool.Spec{Size: 2 * part, Leased: true})
		must(t, err)
		must(t, r.Put(within(t), []byte("mine"), part-2))
		c.el.Close()
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			left := int64(0)
			for _, n := range g.nodes {
				all, _, _ := n.book.Used()
				left += all.Bytes
			}
			if left == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d bytes of a client that is gone are lent", left)
			}
		}
	})
}

// late answers a manager's lookups as they were an epoch ago, for a while.
type late struct {
	pool.Asker
	left int
}

func (l *late) Ask(ctx context.Context, name, call string, req, reply any) (*fabric.Endpoint, error) {
	ep, err := l.Asker.Ask(ctx, name, call, req, reply)
	if t, ok := reply.(*pool.Table); ok && name == pool.Manager && l.left > 0 {
		l.left--
		t.Epoch--
	}
	return ep, err
}

// TestEpochRises: a region whose epoch rises while it is opened is looked up again, a few times.
func TestEpochRises(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2")
		ctx := within(t)
		_, err := g.client(ann).CreateRegion(ctx, pool.Manager, pool.Spec{Name: "x", Size: 2 * part})
		must(t, err)
		s := g.station("client-"+ann, ann)
		l := &late{&asker{control.NewAsker(s.rpc, s.reach), s}, 2}
		r, err := pool.New(l).LookupRegion(ctx, pool.Manager, "x")
		must(t, err)
		must(t, r.Put(ctx, []byte("here"), part-2))
		l.left = 1000
		if _, err := pool.New(l).LookupRegion(ctx, pool.Manager, "x"); !errors.Is(err, pool.ErrMoved) || l.left < 990 {
			t.Errorf("it moved all the time: %v after %d tries", err, 1000-l.left)
		}
	})
}
