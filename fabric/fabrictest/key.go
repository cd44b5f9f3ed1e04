package fabrictest

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
)

func keyChecks() []check {
	return []check{
		{"rights", keyRights},
		{"revoke", keyRevoke},
		{"revoke under way", keyRevokeBusy},
		{"sealed", keySealed},
		{"of an earlier incarnation", keyEarlier},
		{"handed on", keyHandedOn},
		{"segment closed meanwhile", keySegmentClosed},
		{"segment closed while it is imported", keyImportClosed},
	}
}

// tries does each verb once, and says how it went.
func (r *rig) tries(rem *fabric.Remote) map[fabric.Rights]error {
	_, err := rem.Atomic(r.Ctx, fabric.FetchAdd(1), 8, 8)
	return map[fabric.Rights]error{
		fabric.RightAtomic: err,
		fabric.RightRead:   rem.Get(r.Ctx, make([]byte, 8), 0),
		fabric.RightWrite:  rem.Put(r.Ctx, make([]byte, 8), 0),
	}
}

// allFail expects one error from each verb and from Import.
func (r *rig) allFail(what string, rem *fabric.Remote, want error) {
	r.Helper()
	for verb, err := range r.tries(rem) {
		if !errors.Is(err, want) {
			r.Errorf("%s: %v: %v, want %v", what, verb, err, want)
		}
	}
	big := make([]byte, min(rem.Size(), 200_000))
	if err := rem.Put(r.Ctx, big, 0); !errors.Is(err, want) {
		r.Errorf("%s: large put: %v, want %v", what, err, want)
	}
	if err := rem.Get(r.Ctx, big, 0); !errors.Is(err, want) {
		r.Errorf("%s: large get: %v, want %v", what, err, want)
	}
	if _, err := rem.Endpoint().Import(r.Ctx, rem.Key()); !errors.Is(err, want) {
		r.Errorf("%s: import: %v, want %v", what, err, want)
	}
}

func keyRights(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 4096)
	for rights := fabric.Rights(1); rights <= fabric.RightsAll; rights++ {
		for _, size := range []uint64{seg.Size(), 100} {
			k, err := seg.KeyRange(0, size, rights)
			r.Must(err)
			if k.Rights != rights || k.Size != size || k.Owner != b.Incarnation() {
				r.Errorf("key %v", k)
			}
			rem, err := ab.Import(r.Ctx, k)
			r.Must(err)
			for verb, err := range r.tries(rem) {
				if allowed := rights&verb != 0; allowed && err != nil || !allowed && !errors.Is(err, fabric.ErrRights) {
					r.Errorf("%v of %d bytes: %v: %v", rights, size, verb, err)
				}
			}
			// A holder that writes more rights or size into its copy has no more than before.
			k.Rights, k.Size = fabric.RightsAll, 1<<20
			forged, err := ab.Import(r.Ctx, k)
			if err != nil {
				continue // a mapping that is too small is noticed at once
			}
			for verb, err := range r.tries(forged) {
				if rights&verb == 0 && err == nil {
					r.Errorf("%v of %d bytes, forged to all: %v works", rights, size, verb)
				}
			}
			if err := forged.Get(r.Ctx, make([]byte, 8), size); err == nil {
				r.Errorf("a forged size reads beyond %d bytes", size)
			}
		}
	}
}

func keyRevoke(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 1<<20)
	routes := r.routes(ab, seg)
	root := routes[0].Key()
	child, err := ab.Narrow(r.Ctx, root, 0, 4096, fabric.RightsAll)
	r.Must(err)
	grandchild, err := ab.Narrow(r.Ctx, child, 0, 64, fabric.RightsAll)
	r.Must(err)
	sibling, err := ab.Narrow(r.Ctx, root, 0, 64, fabric.RightsAll)
	r.Must(err)
	imported := map[fabric.Key]*fabric.Remote{}
	for _, k := range []fabric.Key{child, grandchild, sibling} {
		imported[k], err = ab.Import(r.Ctx, k)
		r.Must(err)
	}
	r.Must(b.Revoke(child))
	r.allFail("a revoked key", imported[child], fabric.ErrRevoked)
	for verb, err := range r.tries(imported[grandchild]) {
		if !errors.Is(err, fabric.ErrRevoked) {
			r.Errorf("narrowed from a revoked key: %v: %v", verb, err)
		}
	}
	for verb, err := range r.tries(imported[sibling]) {
		if err != nil {
			r.Errorf("beside a revoked key: %v: %v", verb, err)
		}
	}
	r.Must(b.Revoke(root))
	r.allFail("the root, revoked", routes[0].Remote, fabric.ErrRevoked)
	for verb, err := range r.tries(routes[1].Remote) {
		if err != nil {
			r.Errorf("another key to the segment: %v: %v", verb, err)
		}
	}
	for _, k := range []fabric.Key{root, child, sibling} {
		if err := b.Revoke(k); !errors.Is(err, fabric.ErrRevoked) {
			r.Errorf("revoked twice: %v", err)
		}
	}
	// The slots are used again; the old keys must not come to life.
	for range 10 {
		_, err := seg.Key(fabric.RightsAll)
		r.Must(err)
	}
	r.allFail("a revoked key whose slot is used again", routes[0].Remote, fabric.ErrRevoked)
	if err := ab.Element().Revoke(sibling); !errors.Is(err, fabric.ErrIncarnation) {
		r.Errorf("an element revokes a peer's key: %v", err)
	}
}

// keyRevokeBusy: what the owner serves writes nothing any more once Revoke has returned, however much was under way.
func keyRevokeBusy(r *rig) {
	_, b, ab, _ := r.pair()
	for round := range 12 {
		seg := r.segment(b, 1<<20)
		parent, err := b.Narrow(r.served(ab, seg).Key(), 0, 1<<20-64, fabric.RightsAll)
		r.Must(err)
		key, err := b.Narrow(parent, 0, parent.Size, fabric.RightsAll)
		r.Must(err)
		rem, err := ab.Import(r.Ctx, key)
		r.Must(err)
		var wg sync.WaitGroup
		var begun atomic.Int64
		for i, n := range []int{8, 3000, 50_000, 300_000, 600_000} {
			wg.Go(func() {
				for turn := byte(1); ; turn++ {
					err := rem.Put(r.Ctx, bytes.Repeat([]byte{turn}, n), uint64(i*70_000))
					if begun.Add(1); err != nil {
						if !errors.Is(err, fabric.ErrRevoked) {
							r.Errorf("a Put of %d bytes: %v", n, err)
						}
						return
					}
				}
			})
		}
		wg.Go(func() {
			for {
				if _, err := rem.Atomic(r.Ctx, fabric.FetchAdd(1), 8, 960_000); err != nil {
					return
				}
			}
		})
		r.Eventually("Puts", func() bool { return begun.Load() > int64(3*round) })
		r.Must(b.Revoke([]fabric.Key{parent, key}[round%2]))
		then := bytes.Clone(seg.Bytes())
		wg.Wait()
		if at := firstDifference(then, seg.Bytes()); at >= 0 {
			r.Fatalf("round %d: byte %d was written after Revoke", round, at)
		}
		r.Must(seg.Close())
	}
	r.Must(ab.Err())
}

// firstDifference is negative where a and b are the same.
func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

func keySealed(r *rig) {
	_, b, ab, _ := r.pair()
	seg, err := b.NewSegment(70_000, fabric.Sealed)
	r.Must(err)
	copy(seg.Bytes(), "sealed")
	for rights := fabric.Rights(1); rights <= fabric.RightsAll; rights++ {
		if _, err := seg.Key(rights); (err == nil) != (rights == fabric.RightRead) {
			r.Errorf("a key to a sealed segment with %v: %v", rights, err)
		}
	}
	whole, err := seg.Key(fabric.RightRead)
	r.Must(err)
	part, err := seg.KeyRange(0, 64, fabric.RightRead)
	r.Must(err)
	for _, k := range []fabric.Key{whole, part} {
		if !k.Sealed {
			r.Errorf("%v does not say that it is sealed", k)
		}
		for _, rights := range []fabric.Rights{fabric.RightRead, fabric.RightsAll} { // true and forged
			k.Rights = rights
			rem, err := ab.Import(r.Ctx, k)
			r.Must(err)
			got := make([]byte, 6)
			if err := rem.Get(r.Ctx, got, 0); err != nil || string(got) != "sealed" {
				r.Errorf("reads %q, %v", got, err)
			}
			for verb, err := range r.tries(rem) {
				if verb != fabric.RightRead && !errors.Is(err, fabric.ErrRights) {
					r.Errorf("a sealed segment: %v: %v", verb, err)
				}
			}
			copy(seg.Bytes(), "SEALED") // what the owner writes is seen
			if err := rem.Get(r.Ctx, got, 0); err != nil || string(got) != "SEALED" {
				r.Errorf("reads %q, %v", got, err)
			}
			copy(seg.Bytes(), "sealed")
		}
	}
}

func keyEarlier(r *rig) {
	a, b := r.node(), r.node()
	ab, _ := r.connect(a, b)
	rem := r.routes(ab, r.segment(b, 4096))
	r.Must(b.Close())
	r.Eventually("the endpoint ends", func() bool { return ab.Err() != nil })
	for _, rem := range rem {
		r.allFail(rem.name+" of a peer that is gone", rem.Remote, fabric.ErrPeerLost)
	}
	again := r.node()
	_, err := again.NewSegment(4096, fabric.Writable)
	r.Must(err)
	ep, _ := r.connect(a, again)
	for _, rem := range rem {
		if _, err := ep.Import(r.Ctx, rem.Key()); !errors.Is(err, fabric.ErrIncarnation) {
			r.Errorf("import of an earlier incarnation's key: %v", err)
		}
		if _, err := ep.Narrow(r.Ctx, rem.Key(), 0, 8, fabric.RightRead); !errors.Is(err, fabric.ErrIncarnation) {
			r.Errorf("narrowing an earlier incarnation's key: %v", err)
		}
	}
}

func keyHandedOn(r *rig) {
	a, b, ab, _ := r.pair()
	c := r.node()
	ac, _ := r.connect(a, c)
	cb, _ := r.connect(c, b)
	seg := r.segment(b, 4096)
	k, err := seg.KeyRange(8, 100, fabric.RightsAll)
	r.Must(err)
	narrow, err := ab.Narrow(r.Ctx, k, 0, 50, fabric.RightWrite)
	r.Must(err)
	got := make(chan fabric.Key, 1)
	c.Handle(idData, func(m fabric.Message) {
		k, err := fabric.DecodeKey(m.Body)
		if err != nil {
			r.Error(err)
		}
		got <- k
	})
	r.Must(ac.Send(r.Ctx, idData, nil, narrow.Append(nil)))
	rem, err := cb.Import(r.Ctx, <-got)
	r.Must(err)
	r.Must(rem.Put(r.Ctx, []byte("from the third"), 0))
	if string(seg.Bytes()[8:22]) != "from the third" {
		r.Error("the put of a key handed on went astray")
	}
}

func keySegmentClosed(r *rig) {
	_, b, ab, _ := r.pair()
	for round := range 6 {
		seg := r.segment(b, 4<<20)
		routes := r.routes(ab, seg)
		var wg sync.WaitGroup
		for _, rem := range routes {
			rem.mem = nil
			for _, n := range []int{8, 3000, 60_000, 1 << 20} {
				buf := make([]byte, n)
				for _, fn := range []func() error{
					func() error { return rem.Put(r.Ctx, buf, 64) },
					func() error { return rem.Get(r.Ctx, make([]byte, n), 64) },
					func() error { _, err := rem.Atomic(r.Ctx, fabric.FetchAdd(1), 8, 0); return err },
				} {
					wg.Go(func() {
						for {
							if err := fn(); err != nil {
								if !errors.Is(err, fabric.ErrRevoked) {
									r.Errorf("%s, %d bytes: %v, want ErrRevoked", rem.name, n, err)
								}
								return
							}
						}
					})
				}
			}
		}
		time.Sleep(time.Duration(round*3) * time.Millisecond)
		r.Must(seg.Close())
		r.Must(seg.Close())
		r.Within(patience/2, "operations on a closed segment", func() error { wg.Wait(); return nil })
		for range 3 {
			if seg.Pin() {
				r.Fatal("a closed segment can be pinned")
			}
			r.allFail("a closed segment", routes[round%2].Remote, fabric.ErrRevoked)
		}
		if _, err := seg.Key(fabric.RightRead); !errors.Is(err, fabric.ErrRevoked) {
			r.Errorf("a key to a closed segment: %v", err)
		}
		r.Eventually("the memory is given back", func() bool { return b.LentBytes() == 0 })
	}
	r.Must(ab.Err())
}

// keyImportClosed: whichever comes first, nothing is left of the segment.
func keyImportClosed(r *rig) {
	_, b, ab, _ := r.pair()
	files := len(suite.OpenFiles(r))
	for i := range 60 {
		seg := r.segment(b, 1<<16)
		k, err := seg.Key(fabric.RightsAll)
		r.Must(err)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				rem, err := ab.Import(r.Ctx, k)
				if err == nil {
					err = rem.Get(r.Ctx, make([]byte, 8), 0)
				}
				if err != nil && !errors.Is(err, fabric.ErrRevoked) {
					r.Errorf("import of a segment that closes: %v", err)
				}
			})
		}
		time.Sleep(time.Duration(i*5) * time.Microsecond)
		r.Must(seg.Close())
		wg.Wait()
	}
	r.Must(ab.Flush(r.Ctx))
	r.Eventually("no descriptor of a closed segment stays", func() bool { return len(suite.OpenFiles(r)) <= files+1 }) // the keys' own
	r.Must(ab.Err())
}
