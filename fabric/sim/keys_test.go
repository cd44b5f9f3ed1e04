package sim_test

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/wherry-fabric/wherry/fabric"
)

const (
	maxGrants  = 24 // ranges of one life that are given out
	grantBytes = 160 << 10
)

// grant is a key that was given out, and what its owner has on record.
type grant struct {
	owner    *life
	key      fabric.Key
	off      int // in the owner's segment
	size     int
	rights   fabric.Rights
	children []*grant
	revoked  bool // Revoke of it, or of what it was narrowed from, has returned
	parent   *grant
	by       *side           // the owner's side of the connection that it was narrowed over; nil: at the owner
	frozen   []byte          // what a root's range held then
	rented   *fabric.Segment // the key is to all of a segment that is closed some time
}

// guest is a grant that a side has imported, under whatever its key claims.
type guest struct {
	*grant
	r *fabric.Remote
}

// actRent closes a segment of the side's element, and lends another one: keys to
// it end as if they were revoked, and peers that mapped it let go.
func actRent(s *side) {
	l := s.l
	for _, g := range l.grants {
		if g.rented != nil && !g.revoked {
			if s.t.w.Rand.IntN(2) == 0 {
				return
			}
			g.rented.Close()
			g.end()
		}
	}
	g := &grant{owner: l, size: 5000, rights: fabric.RightsAll}
	var err error
	if g.rented, err = l.el.NewSegment(uint64(g.size), fabric.Writable); err == nil {
		g.key, err = g.rented.Key(g.rights)
	}
	if err != nil {
		s.t.fail("%s: rent: %v", l.h.Name, err)
	}
	l.grants = append(l.grants, g)
}

// ranged reports whether the grant is a range of its own in the owner's segment.
func (g *grant) ranged() bool { return g.parent == nil && g.rented == nil }

// checkFrozen looks for writes after the key was revoked, also of a fragment that was arriving just then.
func (g *grant) checkFrozen(t *trial) {
	if !bytes.Equal(g.bytes(), g.frozen) {
		t.fail("%s: the range [%d, +%d) was written after its key was revoked", g.owner.h.Name, g.off, g.size)
	}
}

func (g *grant) root() *grant {
	for g.parent != nil {
		g = g.parent
	}
	return g
}

func (g *grant) bytes() []byte { return g.owner.seg.Bytes()[g.off:][:g.size] }

// expect is the error of an access that is started now.
func (g *grant) expect(need fabric.Rights, off, size int) error {
	switch {
	case g.revoked:
		return fabric.ErrRevoked
	case g.rights&need != need:
		return fabric.ErrRights
	case off > g.size || size > g.size-off:
		return fabric.ErrRange
	}
	return nil
}

// check compares an access's end with what was expected when it started.
func (g *grant) check(s *side, what string, want, got error) {
	late := errors.Is(got, fabric.ErrRevoked) && (g.revoked || g.owner.dead) // meanwhile
	if late || want == nil && got == nil || want != nil && errors.Is(got, want) {
		return
	}
	s.t.fail("%v: %s with a key to [%d, +%d) %v (revoked %v): %v, want %v", s, what, g.off, g.size, g.rights, g.revoked, got, want)
}

// expect is the error of an access through the guest that is started now. A
// mapped one is held against its range before its key.
func (g *guest) expect(need fabric.Rights, off, size int) error {
	if g.r.Mapped() && (off > g.size || size > g.size-off) {
		return fabric.ErrRange
	}
	return g.grant.expect(need, off, size)
}

func someRights(n int) fabric.Rights { return fabric.Rights(1 + n) } // of 0 to 6

// actGrant has the side's element make a key: to a range of its own, or
// narrowed from one.
func actGrant(s *side) {
	l, r := s.l, s.t.w.Rand
	if g := l.anyGrant(r.IntN); g != nil && r.IntN(2) == 0 {
		off, size := r.IntN(g.size), 1+r.IntN(g.size)
		rights := someRights(r.IntN(7))
		want := g.narrowing(off, size, rights)
		k, err := l.el.Narrow(g.key, uint64(off), uint64(size), rights)
		g.check(s, "narrow", want, err)
		if err == nil {
			g.narrowed(k, off, size, rights, nil)
		}
		return
	}
	roots := 0
	for _, g := range l.grants {
		if g.ranged() {
			roots++
		}
	}
	if roots == maxGrants {
		return
	}
	g := &grant{owner: l, off: maxLanes*laneBytes() + roots*grantBytes, size: 64 + r.IntN(4000), rights: someRights(r.IntN(7))}
	if r.IntN(2) == 0 {
		g.size = grantBytes - r.IntN(40_000) // several fragments
	}
	var err error
	if g.key, err = l.seg.KeyRange(uint64(g.off), uint64(g.size), g.rights); err != nil {
		s.t.fail("%s: key: %v", l.h.Name, err)
	}
	l.grants = append(l.grants, g)
}

func (l *life) anyGrant(intn func(int) int) *grant {
	if len(l.grants) == 0 {
		return nil
	}
	return l.grants[intn(len(l.grants))]
}

func (g *grant) narrowing(off, size int, rights fabric.Rights) error {
	switch {
	case g.revoked:
		return fabric.ErrRevoked
	case rights&^g.rights != 0:
		return fabric.ErrRights
	case off > g.size || size > g.size-off:
		return fabric.ErrRange
	}
	return nil
}

func (g *grant) narrowed(k fabric.Key, off, size int, rights fabric.Rights, by *side) {
	child := &grant{owner: g.owner, key: k, off: g.off + off, size: size, rights: rights, parent: g, by: by}
	child.revoked = g.revoked || by != nil && by.lost != nil // while the answer was on its way
	g.children = append(g.children, child)
	g.owner.grants = append(g.owner.grants, child)
}

// actRevoke has the side's element revoke one of its keys.
func actRevoke(s *side) {
	g := s.l.anyGrant(s.t.w.Rand.IntN)
	if g == nil || g.parent != nil && s.t.w.Rand.IntN(2) == 0 {
		return
	}
	g.revoke(s)
}

// revoke ends a grant at its owner.
func (g *grant) revoke(s *side) {
	var want error
	if g.revoked {
		want = fabric.ErrRevoked
	}
	g.check(s, "revoke", want, g.owner.el.Revoke(g.key))
	g.end()
}

func (g *grant) end() {
	if g.revoked {
		return
	}
	g.revoked = true
	if g.ranged() {
		g.frozen = bytes.Clone(g.bytes())
	}
	for _, c := range g.children {
		c.end()
	}
}

// disown ends what the peer of a connection narrowed: the connection is lost.
func (s *side) disown() {
	for _, g := range s.l.grants {
		if g.by == s {
			g.end()
		}
	}
}

// actVisit imports one of the peer's keys, as it is or with larger claims, or
// has the peer narrow it.
func actVisit(s *side) {
	r := s.t.w.Rand
	g := s.peer().l.anyGrant(r.IntN)
	if g == nil {
		return
	}
	s.call(func(ctx context.Context) {
		if !s.live() {
			return
		}
		k, want := g.key, g.expect(0, 0, 0)
		if r.IntN(3) == 0 {
			off, size, rights := r.IntN(g.size), 1+r.IntN(g.size), someRights(r.IntN(7))
			want = g.narrowing(off, size, rights)
			k, err := s.ep.Narrow(ctx, g.key, uint64(off), uint64(size), rights)
			if s.failed(ctx, err) {
				return
			}
			if g.check(s, "narrow", want, err); err == nil {
				g.narrowed(k, off, size, rights, s.peer())
			}
			return
		}
		if g.rented == nil && r.IntN(2) == 0 {
			k.Size, k.Rights = k.Size*4, fabric.RightsAll
		}
		m, err := s.ep.Import(ctx, k)
		if s.failed(ctx, err) {
			return
		}
		if g.check(s, "import", want, err); err == nil {
			s.guests = append(s.guests, &guest{g, m})
		}
	})
}

// failed reports whether a call failed for another reason than the key.
func (s *side) failed(ctx context.Context, err error) bool {
	return !s.live() || ctx.Err() != nil || errors.Is(err, fabric.ErrPeerLost) || errors.Is(err, fabric.ErrBackpressure) || errors.Is(err, context.DeadlineExceeded)
}

// actForge shows keys that nobody gave out.
func actForge(s *side) {
	r := s.t.w.Rand
	p := s.peer().l
	g := p.anyGrant(r.IntN)
	if g == nil {
		return
	}
	k, want := g.key, []error{fabric.ErrKey, fabric.ErrRevoked}
	old := s.t.earlier(p)
	switch n := r.IntN(5); {
	case n == 0:
		k.Secret[r.IntN(16)] ^= 1 << r.IntN(8)
		if want = want[:1]; g.revoked {
			want = []error{fabric.ErrRevoked}
		}
	case n == 1:
		k.Generation += uint32(1 + r.IntN(3)) // what may come next, with another secret
	case n == 2:
		k.Slot += uint32(1 + r.IntN(1<<17))
	case n == 3:
		k.Owner ^= 1 << r.IntN(63)
		want = []error{fabric.ErrIncarnation}
	case old == nil:
		return
	default:
		if k = old.key; r.IntN(2) == 0 {
			want = []error{fabric.ErrIncarnation}
		} else {
			k.Owner = p.el.Incarnation()
		}
	}
	s.call(func(ctx context.Context) {
		if !s.live() {
			return
		}
		_, err := s.ep.Import(ctx, k)
		if !s.failed(ctx, err) && !slices.ContainsFunc(want, func(e error) bool { return errors.Is(err, e) }) &&
			!(g.revoked && errors.Is(err, fabric.ErrRevoked)) {
			s.t.fail("%v: Import of a forged key: %v, want %v", s, err, want)
		}
	})
}

// earlier is a key of an earlier life of l's host.
func (t *trial) earlier(l *life) *grant {
	for _, o := range t.lives {
		if o.h == l.h && o != l && len(o.grants) > 0 {
			return o.grants[t.w.Rand.IntN(len(o.grants))]
		}
	}
	return nil
}

// actUse gets, puts or changes a word through an imported key, inside its
// range and rights or not.
func actUse(s *side) {
	if len(s.guests) == 0 || !s.live() {
		return
	}
	r := s.t.w.Rand
	g := s.guests[r.IntN(len(s.guests))]
	off, n := r.IntN(g.size+8), 1+r.IntN(64)
	if r.IntN(3) == 0 {
		off, n = 0, g.size+r.IntN(8)/7
	}
	switch r.IntN(3) {
	case 0:
		want, dst := g.expect(fabric.RightRead, off, n), make([]byte, n)
		s.start("get", g.r.StartGet(dst, uint64(off)), g.checker(s, "get", want))
	case 1:
		want, src := g.expect(fabric.RightWrite, off, n), make([]byte, n)
		fillPattern(src, s.c.id, s.t.ended)
		s.start("put", g.r.StartPut(src, uint64(off)), g.checker(s, "put", want))
	default:
		off &^= 7
		want := g.expect(fabric.RightAtomic, off, 8)
		if want == nil && (g.off+off)%8 != 0 {
			return
		}
		s.start("atomic", g.r.StartAtomic(fabric.FetchXor(r.Uint64()), 8, uint64(off)), g.checker(s, "atomic", want))
	}
}

// actRace has a key revoked while a large Put with it is under way.
func actRace(s *side) {
	for _, g := range s.guests {
		if g.size <= fragmentBytes || g.expect(fabric.RightWrite, 0, g.size) != nil || g.owner.dead || !s.live() {
			continue
		}
		src := make([]byte, g.size)
		fillPattern(src, s.c.id, s.t.ended)
		s.start("put", g.r.StartPut(src, 0), g.checker(s, "put", nil))
		f := s.t.k.faults
		g.owner.h.Do(s.t.w.Between(0, 3*f.MaxDelay+3*f.Lag), func() { g.root().revoke(s) })
		return
	}
}

// fragmentBytes is the largest piece of a transfer in one frame.
const fragmentBytes = 64 << 10

func (g *grant) checker(s *side, what string, want error) func(*op) {
	return func(o *op) {
		if !o.unsure() && !errors.Is(o.err, fabric.ErrBackpressure) {
			g.check(s, what, want, o.err)
		}
	}
}
