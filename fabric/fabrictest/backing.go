package fabrictest

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
)

// RunBacking checks a Backing under segments that peers use over a transport. open makes a zeroed one of at least size bytes, at most 1 MiB, that holds
// whatever is written to it.
func RunBacking(t *testing.T, f Factory, open func(size uint64) (fabric.Backing, error)) {
	if suite.BeChild(roles(f)) {
		return
	}
	for _, c := range []struct {
		name string
		run  func(*backed)
	}{
		{"put and get", backingPutGet},
		{"many at once", backingMany},
		{"words", backingWords},
		{"range and rights", backingRights},
		{"revoked", backingRevoked},
		{"closed once", backingClosed},
	} {
		suite.Run(t, c.name, patience, func(r *suite.Rig) {
			c.run(&backed{rig: &rig{Rig: r, make: f}, open: open})
		})
	}
}

// backed is what a check of a Backing works with.
type backed struct {
	*rig
	open func(size uint64) (fabric.Backing, error)
}

// closing counts how often a Backing is closed.
type closing struct {
	fabric.Backing
	times atomic.Int32
}

func (c *closing) Close() error {
	c.times.Add(1)
	return c.Backing.Close()
}

// segment makes one at n on a new Backing.
func (r *backed) segment(n *node, size uint64) (*fabric.Segment, *closing) {
	r.Helper()
	b, err := r.open(size)
	r.Must(err)
	c := &closing{Backing: b}
	seg, err := n.NewSegmentOn(c, size, fabric.Writable)
	r.Must(err)
	return seg, c
}

// backedBytes is the size of most segments here: not whole pages, and several fragments.
const backedBytes = 300_001

// rights are all that a key to the segment can have.
func rights(seg *fabric.Segment) fabric.Rights {
	if seg.Bytes() == nil {
		return fabric.RightRead | fabric.RightWrite
	}
	return fabric.RightsAll
}

// ways imports all of a segment, which may be mapped, and a part from skip on, which is not.
func (r *backed) ways(ep *fabric.Endpoint, seg *fabric.Segment, skip uint64) (list []*fabric.Remote) {
	r.Helper()
	for _, at := range []uint64{0, skip} {
		k, err := seg.KeyRange(at, seg.Size()-at, rights(seg))
		r.Must(err)
		rem, err := ep.Import(r.Ctx, k)
		r.Must(err)
		if rem.Mapped() && (at > 0 || seg.Bytes() == nil) {
			r.Errorf("a key to [%d, …) is mapped", at)
		}
		list = append(list, rem)
	}
	return list
}

// owners is the owner's view of the segment's bytes.
func (r *backed) owners(seg *fabric.Segment, at, n int) []byte {
	r.Helper()
	b := make([]byte, n)
	r.Must(seg.ReadAt(b, uint64(at)))
	return b
}

func backingPutGet(r *backed) {
	_, b, ab, _ := r.pair()
	const skip = 64
	seg, _ := r.segment(b, backedBytes)
	for i, rem := range r.ways(ab, seg, skip) {
		for _, n := range []int{0, 1, 3, 4, 8, 9, 255, 4096, 4097, 61440, 61441, 65537, 200_003} {
			for _, at := range []int{0, 3, 8} {
				base := i*skip + at
				r.Must(seg.WriteAt(make([]byte, n+64), uint64(i*skip)))
				src := suite.Pattern(n, uint32(n+at))
				r.Must(rem.Put(r.Ctx, src, uint64(at)))
				if !bytes.Equal(r.owners(seg, base, n), src) {
					r.Fatalf("put of %d bytes to %d: the owner reads others", n, base)
				}
				if r.owners(seg, base+n, 1)[0] != 0 || at > 0 && r.owners(seg, base-1, 1)[0] != 0 {
					r.Fatalf("put of %d bytes to %d went beyond", n, base)
				}
				dst := make([]byte, n)
				r.Must(rem.Get(r.Ctx, dst, uint64(at)))
				if !bytes.Equal(dst, src) {
					r.Fatalf("get of %d bytes at %d: others came", n, base)
				}
			}
		}
	}
}

func backingMany(r *backed) {
	_, b, ab, _ := r.pair()
	seg, _ := r.segment(b, 1<<20)
	const pieces = 8
	for _, rem := range r.ways(ab, seg, 4096) {
		n := int(rem.Size()) / pieces
		var ops []fabric.Op
		for i := range pieces {
			ops = append(ops, rem.StartPut(suite.Pattern(n, uint32(i)), uint64(i*n)))
		}
		r.waitAll(ops)
		got := make([][]byte, pieces)
		ops = ops[:0]
		for i := range got {
			got[i] = make([]byte, n)
			ops = append(ops, rem.StartGet(got[i], uint64(i*n)))
		}
		r.waitAll(ops)
		for i, b := range got {
			if !bytes.Equal(b, suite.Pattern(n, uint32(i))) {
				r.Errorf("piece %d differs", i)
			}
		}
	}
}

// backingWords: a word is written and read by one access, as a register's must be, and atomics are for memory only.
func backingWords(r *backed) {
	_, b, ab, _ := r.pair()
	seg, _ := r.segment(b, backedBytes)
	for _, rem := range r.ways(ab, seg, 4096) {
		for _, n := range []int{4, 8} {
			word := suite.Pattern(n, 77)
			r.Must(rem.Put(r.Ctx, word, 16))
			got := make([]byte, n)
			r.Must(rem.Get(r.Ctx, got, 16))
			if !bytes.Equal(got, word) {
				r.Errorf("a word of %d bytes: %x, not %x", n, got, word)
			}
		}
		old, err := rem.Atomic(r.Ctx, fabric.FetchAdd(5), 8, 64)
		switch {
		case seg.Bytes() == nil && !errors.Is(err, fabric.ErrRights):
			r.Errorf("an atomic where there are no bytes: %v", err)
		case seg.Bytes() != nil && (err != nil || old != 0):
			r.Errorf("fetch-add: %d, %v", old, err)
		}
		r.Must(seg.WriteAt(make([]byte, 128), 0))
		r.Must(seg.WriteAt(make([]byte, 128), 4096))
	}
	if _, err := seg.Key(fabric.RightsAll); seg.Bytes() == nil && !errors.Is(err, fabric.ErrRights) {
		r.Errorf("a key with atomics where there are no bytes: %v", err)
	}
}

func backingRights(r *backed) {
	_, b, ab, _ := r.pair()
	seg, _ := r.segment(b, backedBytes)
	for _, rem := range r.ways(ab, seg, 4096) {
		for _, at := range []uint64{rem.Size() - 3, rem.Size() + 1, 1 << 40} {
			if err := rem.Put(r.Ctx, make([]byte, 4), at); !errors.Is(err, fabric.ErrRange) {
				r.Errorf("put at %d of %d: %v", at, rem.Size(), err)
			}
			if err := rem.Get(r.Ctx, make([]byte, 4), at); !errors.Is(err, fabric.ErrRange) {
				r.Errorf("get at %d of %d: %v", at, rem.Size(), err)
			}
		}
	}
	k, err := seg.Key(fabric.RightRead)
	r.Must(err)
	rem, err := ab.Import(r.Ctx, k)
	r.Must(err)
	for _, n := range []int{8, 100_000} {
		if err := rem.Put(r.Ctx, make([]byte, n), 0); !errors.Is(err, fabric.ErrRights) {
			r.Errorf("put of %d bytes by a key for reading: %v", n, err)
		}
	}
	if err := seg.ReadAt(make([]byte, 2), backedBytes-1); !errors.Is(err, fabric.ErrRange) {
		r.Errorf("the owner reads beyond the segment: %v", err)
	}
	if err := seg.WriteAt(make([]byte, 2), backedBytes-1); !errors.Is(err, fabric.ErrRange) {
		r.Errorf("the owner writes beyond the segment: %v", err)
	}
	large, err := r.open(4096)
	r.Must(err)
	defer large.Close()
	if mem := large.Bytes(); mem != nil {
		if _, err := b.NewSegmentOn(large, uint64(len(mem))+1, fabric.Writable); err == nil {
			r.Error("a segment larger than what it lies in")
		}
	}
}

func backingRevoked(r *backed) {
	_, b, ab, _ := r.pair()
	seg, _ := r.segment(b, backedBytes)
	k, err := seg.KeyRange(0, backedBytes-1, rights(seg))
	r.Must(err)
	rem, err := ab.Import(r.Ctx, k)
	r.Must(err)
	r.Must(rem.Put(r.Ctx, suite.Pattern(backedBytes-1, 1), 0))
	r.Must(b.Revoke(k))
	before := r.owners(seg, 0, backedBytes)
	for _, n := range []int{8, 5000, 200_000} {
		if err := rem.Put(r.Ctx, make([]byte, n), 0); !errors.Is(err, fabric.ErrRevoked) {
			r.Errorf("put of %d bytes by a revoked key: %v", n, err)
		}
		if err := rem.Get(r.Ctx, make([]byte, n), 0); !errors.Is(err, fabric.ErrRevoked) {
			r.Errorf("get of %d bytes by a revoked key: %v", n, err)
		}
	}
	if !bytes.Equal(before, r.owners(seg, 0, backedBytes)) {
		r.Error("a revoked key wrote")
	}
}

// backingClosed: the Backing is closed once, when nobody uses it any more: not under a pin, nor under a transfer that its endpoint's end cuts off.
func backingClosed(r *backed) {
	_, b, ab, _ := r.pair()
	seg, c := r.segment(b, backedBytes)
	for _, rem := range r.ways(ab, seg, 4096) {
		r.Must(rem.Put(r.Ctx, suite.Pattern(5000, 3), 0))
	}
	if !seg.Pin() {
		r.Fatal("an open segment cannot be pinned")
	}
	r.Must(seg.Close())
	r.Must(seg.Close())
	if n := c.times.Load(); n != 0 {
		r.Errorf("closed %d times under a pin", n)
	}
	if got := r.owners(seg, 0, 1); len(got) != 1 {
		r.Error("a pinned segment does not read")
	}
	seg.Unpin()
	if n := c.times.Load(); n != 1 {
		r.Errorf("closed %d times, not once", n)
	}
	seg, c = r.segment(b, 1<<20)
	rem := r.ways(ab, seg, 4096)[1]
	var ops []fabric.Op
	for range 16 {
		ops = append(ops, rem.StartPut(make([]byte, rem.Size()), 0), rem.StartGet(make([]byte, rem.Size()), 0))
	}
	r.Must(ab.Close())
	for _, op := range ops {
		op.Wait(context.WithoutCancel(r.Ctx))
	}
	r.Must(seg.Close())
	r.Eventually("the backing is closed", func() bool { return c.times.Load() == 1 })
}
