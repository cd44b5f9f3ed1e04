package fabrictest

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
)

func keyChecks() []check {
	return []check{
		{"rights", keyRights},
		{"making keys", keyMaking},
		{"narrow", keyNarrow},
		{"narrow without end", keyNarrowMany},
		{"revoke", keyRevoke},
		{"revoke under way", keyRevokeBusy},
		{"forged", keyForged},
		{"sealed", keySealed},
		{"of an earlier incarnation", keyEarlier},
		{"handed on", keyHandedOn},
		{"segment closed meanwhile", keySegmentClosed},
		{"segment closed while it is imported", keyImportClosed},
		{"own keys", keyOwn},
		{"memory bounds", keyBounds},
		{"imports that are started", keyStarted},
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

func keyMaking(r *rig) {
	n := r.node()
	seg := r.segment(n, 1000)
	for _, c := range []struct {
		offset, size uint64
		rights       fabric.Rights
		want         error
	}{
		{0, 0, fabric.RightRead, fabric.ErrRange},
		{0, 1001, fabric.RightRead, fabric.ErrRange},
		{1000, 1, fabric.RightRead, fabric.ErrRange},
		{1 << 63, 1 << 63, fabric.RightRead, fabric.ErrRange},
		{^uint64(0), 2, fabric.RightRead, fabric.ErrRange},
		{0, 10, 0, fabric.ErrRights},
		{0, 10, 8, fabric.ErrRights},
		{990, 10, fabric.RightsAll, nil},
	} {
		if _, err := seg.KeyRange(c.offset, c.size, c.rights); !errors.Is(err, c.want) {
			r.Errorf("key to [%d, +%d) %#x: %v, want %v", c.offset, c.size, uint8(c.rights), err, c.want)
		}
	}
}

// keyNarrowMany: a peer can narrow so many keys; they end with it.
func keyNarrowMany(r *rig) {
	const most = 5
	a, b, ab, ba := r.pair(func(c *fabric.Config) { c.Limits.KeysPerPeer = most })
	c := r.node()
	cb, _ := r.connect(c, b)
	root, err := r.segment(b, 4096).Key(fabric.RightsAll)
	r.Must(err)
	var keys []fabric.Key
	for range most {
		k, err := ab.Narrow(r.Ctx, root, 0, 8, fabric.RightRead)
		r.Must(err)
		keys = append(keys, k)
	}
	_, err = ab.Narrow(r.Ctx, root, 0, 8, fabric.RightRead)
	if !errors.Is(err, fabric.ErrTooMany) || !strings.Contains(err.Error(), "narrowed by this peer") {
		r.Errorf("one more than the limit: %v", err)
	}
	other, err := cb.Narrow(r.Ctx, root, 0, 8, fabric.RightRead)
	r.Must(err) // another peer has its own
	_, err = b.Narrow(keys[1], 0, 8, fabric.RightRead)
	r.Must(err) // and so has the owner
	r.Must(b.Revoke(keys[0]))
	keys[0], err = ab.Narrow(r.Ctx, root, 0, 8, fabric.RightRead)
	r.Must(err)
	r.Must(a.Close())
	r.Eventually("the keys of a lost peer end", func() bool {
		return ba.Err() != nil && !slices.ContainsFunc(keys, b.Holds)
	})
	if !b.Holds(other) || !b.Holds(root) {
		r.Error("keys that others made ended with the peer")
	}
}

func keyNarrow(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 4096)
	root, err := seg.Key(fabric.RightsAll)
	r.Must(err)
	copy(seg.Bytes()[1024:], "narrow")
	byPeer, err := ab.Narrow(r.Ctx, root, 1024, 512, fabric.RightRead|fabric.RightWrite)
	r.Must(err)
	byOwner, err := b.Narrow(byPeer, 0, 256, fabric.RightRead)
	r.Must(err)
	for _, k := range []fabric.Key{byPeer, byOwner} {
		rem, err := ab.Import(r.Ctx, k)
		r.Must(err)
		got := make([]byte, 6)
		if err := rem.Get(r.Ctx, got, 0); err != nil || string(got) != "narrow" {
			r.Errorf("%v reads %q, %v", k, got, err)
		}
		if err := rem.Get(r.Ctx, got, k.Size-5); !errors.Is(err, fabric.ErrRange) {
			r.Errorf("%v reads past its range: %v", k, err)
		}
		if err := rem.Put(r.Ctx, got, 0); (err == nil) != (k.Rights&fabric.RightWrite != 0) {
			r.Errorf("%v: put: %v", k, err)
		}
	}
	for _, c := range []struct {
		of           fabric.Key
		offset, size uint64
		rights       fabric.Rights
		want         error
	}{
		{byPeer, 0, 513, fabric.RightRead, fabric.ErrRange},
		{byPeer, 512, 1, fabric.RightRead, fabric.ErrRange},
		{byPeer, ^uint64(0), 2, fabric.RightRead, fabric.ErrRange},
		{byPeer, 0, 0, fabric.RightRead, fabric.ErrRange},
		{byPeer, 0, 8, fabric.RightAtomic, fabric.ErrRights},
		{byPeer, 0, 8, 0, fabric.ErrRights},
		{byOwner, 0, 8, fabric.RightWrite, fabric.ErrRights},
	} {
		for by, narrow := range map[string]func() (fabric.Key, error){
			"peer":  func() (fabric.Key, error) { return ab.Narrow(r.Ctx, c.of, c.offset, c.size, c.rights) },
			"owner": func() (fabric.Key, error) { return b.Narrow(c.of, c.offset, c.size, c.rights) },
		} {
			if k, err := narrow(); !errors.Is(err, c.want) {
				r.Errorf("%s narrows to [%d, +%d) %v: %v, %v; want %v", by, c.offset, c.size, c.rights, k, err, c.want)
			}
		}
	}
	if _, err := ab.Element().Narrow(root, 0, 8, fabric.RightRead); !errors.Is(err, fabric.ErrIncarnation) {
		r.Errorf("an element narrows a peer's key: %v", err)
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

func keyForged(r *rig) {
	_, b, ab, _ := r.pair()
	k, err := r.segment(b, 4096).KeyRange(0, 100, fabric.RightsAll)
	r.Must(err)
	for name, change := range map[string]func(*fabric.Key){
		"secret":      func(k *fabric.Key) { k.Secret[7] ^= 1 },
		"no secret":   func(k *fabric.Key) { k.Secret = [16]byte{} },
		"free slot":   func(k *fabric.Key) { k.Slot += 5 },
		"far slot":    func(k *fabric.Key) { k.Slot = 1 << 31 },
		"generation":  func(k *fabric.Key) { k.Generation += 7 },
		"incarnation": func(k *fabric.Key) { k.Owner++ },
	} {
		forged := k
		change(&forged)
		want := map[string]error{"generation": fabric.ErrRevoked, "incarnation": fabric.ErrIncarnation}[name]
		if want == nil {
			want = fabric.ErrKey
		}
		if _, err := ab.Import(r.Ctx, forged); !errors.Is(err, want) {
			r.Errorf("%s: import: %v, want %v", name, err, want)
		}
		if _, err := ab.Narrow(r.Ctx, forged, 0, 8, fabric.RightRead); !errors.Is(err, want) {
			r.Errorf("%s: narrow: %v, want %v", name, err, want)
		}
		if _, _, err := b.OwnKey(forged, fabric.RightRead); !errors.Is(err, want) {
			r.Errorf("%s: own key: %v, want %v", name, err, want)
		}
	}
	r.Must(ab.Err())
	back, err := fabric.DecodeKey(k.Append(nil))
	if err != nil || back != k {
		r.Errorf("%v travels as %v, %v", k, back, err)
	}
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

func keyOwn(r *rig) {
	n := r.node()
	seg := r.segment(n, 4096)
	k, err := seg.KeyRange(256, 64, fabric.RightRead|fabric.RightWrite)
	r.Must(err)
	s, at, err := n.OwnKey(k, fabric.RightRead)
	if err != nil || s != seg || at != 256 {
		r.Fatalf("own key: %v at %d, %v", s, at, err)
	}
	if _, _, err := n.OwnKey(k, fabric.RightAtomic); !errors.Is(err, fabric.ErrRights) {
		r.Errorf("own key without the right: %v", err)
	}
	r.Must(seg.Close()) // pinned: the memory stays until Unpin
	if len(s.Bytes()) != 4096 || n.LentBytes() == 0 || n.Holds(k) {
		r.Error("a pinned segment went, or its key stayed")
	}
	s.Unpin()
	if n.LentBytes() != 0 {
		r.Errorf("%d bytes are lent after the last Unpin", n.LentBytes())
	}
	if _, _, err := n.OwnKey(k, fabric.RightRead); !errors.Is(err, fabric.ErrRevoked) {
		r.Errorf("own key of a closed segment: %v", err)
	}
}

func keyBounds(r *rig) {
	n := r.node(func(c *fabric.Config) {
		c.Limits.SegmentBytes = 1 << 20
		c.Limits.LentBytes = 2 << 20
	})
	for _, size := range []uint64{0, 1<<20 + 1, 1 << 63, ^uint64(0)} {
		if _, err := n.NewSegment(size, fabric.Writable); err == nil {
			r.Errorf("made a segment of %d bytes", size)
		}
	}
	first := r.segment(n, 1<<20)
	r.segment(n, 1<<20)
	if _, err := n.NewSegment(1, fabric.Writable); !errors.Is(err, fabric.ErrTooMany) {
		r.Errorf("lent beyond the limit: %v", err)
	}
	r.Must(first.Close())
	if seg := r.segment(n, 1000); seg.Size() != 1000 || len(seg.Bytes()) != 1000 || cap(seg.Bytes()) != 1000 {
		r.Errorf("a segment of 1000 bytes has %d, cap %d", len(seg.Bytes()), cap(seg.Bytes()))
	}
}

// keyStarted starts many imports before it waits for any: of good keys, of one that is revoked, one
// that is forged and one of another incarnation, and gives up every third.
func keyStarted(r *rig) {
	const n = 300
	_, b, ab, _ := r.pair()
	revoked, forged, earlier := n/2, n/2+1, n/2+4
	var keys []fabric.Key
	for i := range n {
		seg := r.segment(b, 4096)
		seg.Bytes()[8] = byte(i)
		k, err := seg.Key(fabric.RightsAll)
		r.Must(err)
		keys = append(keys, k)
	}
	r.Must(b.Revoke(keys[revoked]))
	keys[forged].Secret[3]++
	keys[earlier].Owner++
	started := make([]fabric.Importing, n)
	for i, k := range keys {
		started[i] = ab.StartImport(k)
	}
	if !started[earlier].Poll() {
		r.Error("the key of another incarnation is asked for")
	}
	for i, s := range started {
		if i%3 == 2 && i != earlier {
			s.Forget()
			continue
		}
		rem, err := s.Wait(r.Ctx)
		want := map[int]error{revoked: fabric.ErrRevoked, forged: fabric.ErrKey, earlier: fabric.ErrIncarnation}[i]
		if want != nil || err != nil {
			if !errors.Is(err, want) {
				r.Errorf("key %d: %v, want %v", i, err, want)
			}
			continue
		}
		got := make([]byte, 1)
		if err := rem.Get(r.Ctx, got, 8); err != nil || got[0] != byte(i) || rem.Key() != keys[i] {
			r.Errorf("key %d: %d of %v, %v", i, got, rem.Key(), err)
		}
	}
	// What was given up can be imported later, and leaves room: this gives up more than there can be at once.
	for range 20 {
		for i := range started {
			if started[i] = ab.StartImport(keys[0]); i%2 == 1 {
				started[i].Forget()
			}
		}
		for i := 0; i < n; i += 2 {
			if _, err := started[i].Wait(r.Ctx); err != nil && !errors.Is(err, fabric.ErrBackpressure) {
				r.Errorf("again: %v", err)
			}
		}
	}
	rem, err := ab.Import(r.Ctx, keys[2])
	r.Must(err)
	r.Must(rem.Get(r.Ctx, make([]byte, 8), 0))
	for i := range started { // all that was asked for before has been answered
		started[i] = ab.StartImport(keys[0])
	}
	for _, s := range started {
		if _, err := s.Wait(r.Ctx); err != nil {
			r.Fatalf("what was given up takes room for ever: %v", err)
		}
	}
}
