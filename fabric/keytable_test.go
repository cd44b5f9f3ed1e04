package fabric

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// keyModel is what a key should allow.
type keyModel struct {
	key          Key
	seg          *Segment
	offset, size uint64
	rights       Rights
	parent       *keyModel
	revoked      bool
}

func (k *keyModel) holds() bool {
	for ; k != nil; k = k.parent {
		if k.revoked {
			return false
		}
	}
	return true
}

func TestKeyTableModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, err := New(Config{Manual: true})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		var keys []*keyModel
		var segs []*Segment
		pick := func(t *rapid.T) *keyModel {
			if len(keys) == 0 {
				t.Skip("no keys")
			}
			return rapid.SampledFrom(keys).Draw(t, "key")
		}
		t.Repeat(map[string]func(*rapid.T){
			"segment": func(t *rapid.T) {
				if len(segs) >= 4 {
					t.Skip("enough")
				}
				s, err := e.NewSegment(rapid.Uint64Range(1, 5000).Draw(t, "size"), SegmentKind(rapid.IntRange(0, 1).Draw(t, "kind")))
				if err != nil {
					t.Fatal(err)
				}
				segs = append(segs, s)
			},
			"key": func(t *rapid.T) {
				if len(segs) == 0 {
					t.Skip("no segments")
				}
				s := rapid.SampledFrom(segs).Draw(t, "segment")
				offset, size := rapid.Uint64Range(0, s.size).Draw(t, "offset"), rapid.Uint64Range(0, s.size).Draw(t, "size")
				rights := Rights(rapid.IntRange(0, 8).Draw(t, "rights"))
				k, err := s.KeyRange(offset, size, rights)
				ok := size > 0 && offset+size <= s.size && rights != 0 && rights <= RightsAll && (s.kind == Writable || rights == RightRead)
				if (err == nil) != ok {
					t.Fatalf("key to [%d, +%d) %v of %d: %v", offset, size, rights, s.size, err)
				}
				if ok {
					keys = append(keys, &keyModel{key: k, seg: s, offset: offset, size: size, rights: rights})
				}
			},
			"narrow": func(t *rapid.T) {
				k := pick(t)
				offset, size := rapid.Uint64Range(0, 5000).Draw(t, "offset"), rapid.Uint64Range(0, 5000).Draw(t, "size")
				rights := Rights(rapid.IntRange(0, 7).Draw(t, "rights"))
				n, err := e.Narrow(k.key, offset, size, rights)
				ok := k.holds() && size > 0 && offset+size <= k.size && rights != 0 && rights&^k.rights == 0
				if (err == nil) != ok {
					t.Fatalf("narrow %v: %v", k.key, err)
				}
				if ok {
					keys = append(keys, &keyModel{key: n, seg: k.seg, offset: k.offset + offset, size: size, rights: rights, parent: k})
				}
			},
			"revoke": func(t *rapid.T) {
				k := pick(t)
				if err := e.Revoke(k.key); (err == nil) != k.holds() {
					t.Fatalf("revoke %v: %v", k.key, err)
				}
				k.revoked = true
			},
			"close": func(t *rapid.T) {
				if len(segs) == 0 || rapid.IntRange(0, 5).Draw(t, "rarely") > 0 {
					t.Skip("not now")
				}
				i := rapid.IntRange(0, len(segs)-1).Draw(t, "segment")
				segs[i].Close()
				for _, k := range keys {
					k.revoked = k.revoked || k.seg == segs[i]
				}
				segs = append(segs[:i], segs[i+1:]...)
			},
			"": func(t *rapid.T) { checkKeys(t, e, keys) },
		})
	})
}

func checkKeys(t *rapid.T, e *Element, keys []*keyModel) {
	for _, k := range keys {
		if e.Holds(k.key) != k.holds() {
			t.Fatalf("%v holds: %v", k.key, e.Holds(k.key))
		}
		need := Rights(1 << rapid.IntRange(0, 2).Draw(t, "need"))
		offset, size := rapid.Uint64Range(0, 6000).Draw(t, "at"), rapid.Uint64Range(0, 6000).Draw(t, "n")
		at, st := e.keys.access(k.key.ref(), offset, size, need)
		want := statusOK
		switch {
		case !k.holds():
			want = statusRevoked
		case k.rights&need == 0:
			want = statusRights
		case offset+size > k.size:
			want = statusRange
		}
		if st != want {
			t.Fatalf("access to [%d, +%d) by %v: status %d, want %d", offset, size, k.key, st, want)
		}
		if st != statusOK {
			continue
		}
		if at.seg != k.seg || uint64(at.size) != size || uint64(len(at.mem)) != size || size > 0 && &at.mem[0] != &k.seg.Bytes()[k.offset+offset] {
			t.Fatalf("access by %v leads elsewhere", k.key)
		}
		at.seg.unpin()
	}
}

func TestKeyTableFull(t *testing.T) {
	e := loneElement(t, 1, Limits{})
	seg, err := e.NewSegment(100, Writable)
	if err != nil {
		t.Fatal(err)
	}
	var last Key
	for range maxKeys {
		if last, err = seg.Key(RightRead); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := seg.Key(RightRead); !errors.Is(err, ErrTooMany) {
		t.Errorf("one more key: %v", err)
	}
	if _, err := e.Narrow(last, 0, 1, RightRead); !errors.Is(err, ErrTooMany) {
		t.Errorf("one more narrowed key: %v", err)
	}
	if err := e.Revoke(last); err != nil {
		t.Fatal(err)
	}
	if _, err := seg.Key(RightRead); err != nil {
		t.Errorf("after one was revoked: %v", err)
	}
}
