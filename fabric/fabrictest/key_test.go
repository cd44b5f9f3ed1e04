package fabrictest

import (
	"errors"
	"slices"
	"strings"

	"github.com/wherry-fabric/wherry/fabric"
)

// keyCore is what the fabric does with keys, whatever the transport.
func keyCore() []check {
	return []check{
		{"making keys", keyMaking},
		{"narrow", keyNarrow},
		{"narrow without end", keyNarrowMany},
		{"forged", keyForged},
		{"own keys", keyOwn},
		{"memory bounds", keyBounds},
		{"imports that are started", keyStarted},
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
