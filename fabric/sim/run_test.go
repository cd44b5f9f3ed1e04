package sim_test

import (
	"hash/crc32"
	"time"

	"github.com/wherry-fabric/wherry/fabric/sim"
)

// run is one whole trial: everything happens, then faults end and time passes until
// nothing is left to happen, and the books are compared.
func (t *trial) run() {
	t.populate()
	t.w.Run(t.k.spread)
	t.over = true
	t.net.Calm()
	for _, h := range t.net.Hosts() {
		if err := h.Boot(); err != nil {
			t.fail("%v", err)
		}
	}
	t.w.Run(t.settling())
	t.sweep()
	t.check()
	for range 3 { // credit does not wear out
		for _, s := range t.liveSides() {
			s.refill()
		}
		t.w.Run(300 * time.Millisecond)
		t.check()
	}
	for _, h := range t.net.Hosts() {
		if l := t.current(h); l != nil {
			l.dead = true
		}
	}
	t.net.Close()
	t.sweep()
	if len(t.ops) > 0 {
		t.fail("%d operations outlive their elements, the first a %s", len(t.ops), t.ops[0].what)
	}
	t.checkQuiet()
}

// settling is how long it may take until nothing is under way any more.
func (t *trial) settling() time.Duration {
	return 2*t.k.limits.PeerTime + t.k.limits.OpTime + t.k.hold + 300*time.Millisecond
}

// populate plans everything that is going to happen.
func (t *trial) populate() {
	r, hosts, spread := t.w.Rand, t.net.Hosts(), t.k.spread
	at := func(n int, do func()) {
		for range n {
			t.w.After(t.w.Between(0, spread), do)
		}
	}
	pick := func() *sim.Host { return hosts[r.IntN(len(hosts))] }
	two := func() (a, b *sim.Host) {
		i := r.IntN(len(hosts))
		return hosts[i], hosts[(i+1+r.IntN(len(hosts)-1))%len(hosts)]
	}
	t.mesh()
	total := 0
	for _, m := range t.k.mix {
		total += m.weight
	}
	at(t.k.actions, func() {
		sides := t.liveSides()
		if len(sides) == 0 {
			return
		}
		s, n := sides[r.IntN(len(sides))], r.IntN(total)
		for _, m := range t.k.mix {
			if n -= m.weight; n < 0 {
				s.l.h.Do(0, func() {
					if s.live() {
						m.act(s)
					}
				})
				return
			}
		}
	})
	at(t.k.crashes, func() { t.crash(pick(), (*sim.Host).Crash) })
	at(t.k.stops, func() { t.crash(pick(), (*sim.Host).Stop) })
	at(t.k.cuts, func() { t.net.Cut(two()) })
	at(t.k.silent, func() {
		a, b := two()
		t.net.Partition(a, b, true)
		t.w.After(t.w.Between(0, 2*t.k.limits.PeerTime), func() { t.net.Partition(a, b, false) })
	})
	at(t.k.closes, func() {
		if sides := t.liveSides(); len(sides) > 0 {
			s := sides[r.IntN(len(sides))]
			s.l.h.Do(0, func() { s.ep.Close() })
		}
	})
}

// mesh keeps all hosts connected, until the trial ends.
func (t *trial) mesh() {
	if t.over {
		return
	}
	hosts := t.net.Hosts()
	for i, a := range hosts {
		for _, b := range hosts[:i] {
			for range t.k.wires - t.between(a, b) {
				t.connect(a, b)
			}
		}
	}
	t.w.After(time.Millisecond, t.mesh)
}

// between counts the connections of two hosts that an end of believes in.
func (t *trial) between(a, b *sim.Host) (n int) {
	for _, c := range t.conns {
		x, y := c.side[0].l.h, c.side[1].l.h
		if (x == a && y == b || x == b && y == a) && (c.side[0].live() || c.side[1].live()) {
			n++
		}
	}
	return n
}

func (t *trial) liveSides() (list []*side) {
	for _, c := range t.conns {
		for _, s := range c.side {
			if s.live() {
				list = append(list, s)
			}
		}
	}
	return list
}

// crash ends a host's life and gives it another one later.
func (t *trial) crash(h *sim.Host, end func(*sim.Host)) {
	l := t.current(h)
	if l == nil {
		return
	}
	l.dead = true
	end(h)
	t.w.After(t.w.Between(0, 20*time.Millisecond), func() {
		if err := h.Boot(); err != nil {
			t.fail("%v", err)
		}
	})
}

// check compares everything with the model, once nothing is under way.
func (t *trial) check() {
	for _, o := range t.ops {
		t.fail("%v: a %s started at %v never ended; the side is live %v, its peer %v, its connection's end here: %v", o.s, o.what, o.at, o.s.live(), o.s.peer().live(), o.s.lost)
	}
	for _, l := range t.lives {
		if !l.dead && l.calls > 0 {
			t.fail("%s: %d calls never ended", l.h.Name, l.calls)
		}
		if !l.dead {
			l.check()
		}
	}
	for _, c := range t.conns {
		a, b := c.side[0], c.side[1]
		for _, s := range c.side {
			p := s.peer()
			switch {
			case s.got > p.sent:
				t.fail("%v got %d messages of %d", s, s.got, p.sent)
			case s.live() && p.live():
				s.check()
			case s.live():
				t.fail("%v still believes in its peer (dead %v, lost %v)", s, p.l.dead, p.lost)
			}
		}
		if t.k.reliable && (!a.live() || !b.live()) {
			t.fail("%v was lost", a)
		}
	}
}

// check looks at a side of a connection that lives.
func (s *side) check() {
	p, t := s.peer(), s.t
	st := s.ep.Stats()
	switch {
	case s.doomed:
		t.fail("%v had operations end as if it were lost, and lives", s)
	case s.got != p.sent:
		t.fail("%v got %d of %d messages", s, s.got, p.sent)
	case len(s.asked) > 0:
		t.fail("%v never got the answers %v", s, s.asked)
	case len(s.held) > 0 || s.cost != 0:
		t.fail("%v still holds %d messages", s, len(s.held))
	case st.Outbox != 0 || st.Reserved != 0:
		t.fail("%v still queues %+v", s, st)
	case s.mem == nil || s.static == nil || s.words == nil:
		t.fail("%v never imported what its peer lends", s)
	}
	for _, c := range s.cells[1:] {
		if c.busy {
			t.fail("%v: cell %d is still busy", s, c.index)
		}
		if !c.matches(s.bytesOf(c), c.may) {
			t.fail("%v: cell %d of %d bytes is none of the versions %v", s, c.index, c.size, c.may)
		}
	}
	c := s.cells[0]
	if v := leUint64(s.bytesOf(c)); !c.lost && v != c.word {
		t.fail("%v: the word is %x, want %x", s, v, c.word)
	}
}

// check looks at what a life lent.
func (l *life) check() {
	t := l.t
	for i := range l.adds {
		a := &l.adds[i]
		if v := leUint64(l.words.Bytes()[i*8:]); v&a.done != a.done || v&^a.maybe != 0 {
			t.fail("%s: counter %d is %x; %x were added, and perhaps %x", l.h.Name, i, v, a.done, a.maybe)
		}
	}
	for _, g := range l.grants {
		if g.revoked && g.ranged() {
			g.checkFrozen(t)
		}
	}
	for _, s := range l.sides {
		if s.lost != nil && crc32.ChecksumIEEE(l.laneOf(s.peer().lane)) != s.frozen {
			t.fail("%v: its peer wrote memory after the connection's end", s)
		}
	}
}
