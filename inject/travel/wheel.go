package travel

import "math/bits"

const (
	wheelBits   = 6
	wheelSlots  = 1 << wheelBits
	wheelLevels = 6
	tickBits    = 20 // a tick is 2^20 ns, about 1 ms: no deadline needs better
)

// wheel is a hierarchical timing wheel: arming and disarming take constant
// time, and timers of one tick fire in the order they were armed, so that a
// run of the core can be repeated exactly. A timer fires up to one tick late,
// never early.
type wheel struct {
	cur  uint64 // the last tick that was worked off
	n    int
	used [wheelLevels]uint64 // which slots hold timers
	slot [wheelLevels][wheelSlots]list[timer]
}

// timer lies in the record it is for.
type timer struct {
	node  node[timer]
	tick  uint64
	level uint8
	index uint8
	inv   *invocation // one of inv and fetch is set
	fetch *fetch
}

func (w *wheel) arm(t *timer, when Instant) {
	if t.node.in != nil {
		w.disarm(t)
	}
	tick := uint64(when>>tickBits) + 1
	if tick <= w.cur {
		tick = w.cur + 1
	}
	t.tick = tick
	t.node.v = t
	w.n++
	w.insert(t)
}

func (w *wheel) insert(t *timer) {
	d := t.tick - w.cur
	level := 0
	if d > 0 {
		level = (bits.Len64(d) - 1) / wheelBits
	}
	tick := t.tick
	if level >= wheelLevels { // farther than the wheel reaches: come by again at its end
		level = wheelLevels - 1
		tick = w.cur + 1<<(wheelBits*wheelLevels) - 1
	}
	t.level, t.index = uint8(level), uint8(tick>>(wheelBits*level)%wheelSlots)
	w.slot[level][t.index].push(&t.node)
	w.used[level] |= 1 << t.index
}

func (w *wheel) disarm(t *timer) {
	if t.node.in == nil {
		return
	}
	t.node.leave()
	w.n--
	if w.slot[t.level][t.index].first == nil {
		w.used[t.level] &^= 1 << t.index
	}
}

// next is the first tick at which something fires or moves to a finer level.
func (w *wheel) next() (tick uint64, ok bool) {
	for level := range wheelLevels {
		if w.used[level] == 0 {
			continue
		}
		at := w.cur >> (wheelBits * level)
		r := bits.RotateLeft64(w.used[level], -int((at+1)%wheelSlots))
		t := (at + 1 + uint64(bits.TrailingZeros64(r))) << (wheelBits * level)
		if !ok || t < tick {
			tick, ok = t, true
		}
	}
	return tick, ok
}

// advance takes one timer that is due at now off the wheel, nil if none is.
func (w *wheel) advance(now Instant) *timer {
	target := uint64(now >> tickBits)
	for {
		if l := &w.slot[0][w.cur%wheelSlots]; l.first != nil && l.first.v.tick <= w.cur {
			t := l.first.v
			w.disarm(t)
			return t
		}
		tick, ok := w.next()
		if !ok || tick > target {
			w.cur = max(w.cur, target)
			return nil
		}
		w.cur = tick
		for level := wheelLevels - 1; level > 0; level-- {
			if tick&(1<<(wheelBits*level)-1) == 0 {
				w.cascade(level, int(tick>>(wheelBits*level)%wheelSlots))
			}
		}
	}
}

func (w *wheel) cascade(level, index int) {
	l := &w.slot[level][index]
	w.used[level] &^= 1 << index
	for n := l.n; n > 0; n-- {
		t := l.first.v
		t.node.leave()
		w.insert(t)
	}
	if l.first != nil {
		w.used[level] |= 1 << index
	}
}
