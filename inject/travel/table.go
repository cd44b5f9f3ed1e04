package travel

import "github.com/wherry-fabric/wherry/internal/invariants"

// table maps a pair of numbers to a record: open addressing, linear probing,
// deletion by shifting back, so that a steady load allocates nothing. It grows
// with its records and never shrinks; the records' own limits bound it.
type table[T any] struct {
	slots []entry[T]
	n     int
	shift uint8
	seed  uint64
}

type entry[T any] struct {
	a, b uint64
	v    *T // nil: empty
}

const (
	tableMin = 16
	hashA    = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	hashB    = 0xc2b2ae3d27d4eb4f // a prime of xxHash's
)

func (t *table[T]) home(a, b uint64) uint64 {
	h := (a ^ t.seed) * hashA
	h = (h ^ h>>29 ^ b) * hashB
	return h >> t.shift
}

func (t *table[T]) get(a, b uint64) *T {
	if t.n == 0 {
		return nil
	}
	mask := uint64(len(t.slots) - 1)
	for i := t.home(a, b); ; i = (i + 1) & mask {
		e := &t.slots[i]
		if e.v == nil || e.a == a && e.b == b {
			return e.v
		}
	}
}

// put adds a key that is not there.
func (t *table[T]) put(a, b uint64, v *T) {
	if (t.n+1)*4 > len(t.slots)*3 {
		t.grow()
	}
	mask := uint64(len(t.slots) - 1)
	i := t.home(a, b)
	for t.slots[i].v != nil {
		i = (i + 1) & mask
	}
	t.slots[i] = entry[T]{a, b, v}
	t.n++
}

func (t *table[T]) grow() {
	old := t.slots
	n := max(tableMin, len(old)*2)
	t.slots = make([]entry[T], n)
	t.shift = 64
	for n > 1 {
		t.shift--
		n /= 2
	}
	t.n = 0
	for _, e := range old {
		if e.v != nil {
			t.put(e.a, e.b, e.v)
		}
	}
}

// del removes a key and returns its record, nil if it was not there.
func (t *table[T]) del(a, b uint64) *T {
	if t.n == 0 {
		return nil
	}
	mask := uint64(len(t.slots) - 1)
	i := t.home(a, b)
	for {
		e := &t.slots[i]
		if e.v == nil {
			return nil
		}
		if e.a == a && e.b == b {
			break
		}
		i = (i + 1) & mask
	}
	v := t.slots[i].v
	t.n--
	for j := (i + 1) & mask; t.slots[j].v != nil; j = (j + 1) & mask {
		// An entry may move back to i unless its home lies after i, on the way to j.
		h := t.home(t.slots[j].a, t.slots[j].b)
		if (j-h)&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = entry[T]{}
	return v
}

// clear empties the table, keeping a small one's memory.
func (t *table[T]) clear() {
	if len(t.slots) > 256 {
		t.slots = nil
	} else if t.n > 0 {
		clear(t.slots)
	}
	t.n = 0
}

// fronted is a table with a direct-mapped front: what was put last mostly lies
// where its number says, and is found without hashing. Numbers are given out
// in sequence, so the front seldom holds another.
type fronted[T any] struct {
	front []entry[T] // a power of two
	far   table[T]
	n     int
}

func (t *fronted[T]) slot(a, b uint64) *entry[T] { return &t.front[(a^b>>20)&uint64(len(t.front)-1)] }

func (t *fronted[T]) get(a, b uint64) *T {
	if e := t.slot(a, b); e.a == a && e.b == b && e.v != nil {
		return e.v
	}
	if t.far.n == 0 {
		return nil
	}
	return t.far.get(a, b)
}

// put adds a key that is not there.
func (t *fronted[T]) put(a, b uint64, v *T) {
	t.n++
	if e := t.slot(a, b); e.v == nil {
		e.a, e.b, e.v = a, b, v
		return
	}
	t.far.put(a, b, v)
}

// del removes a key that is there.
func (t *fronted[T]) del(a, b uint64) {
	t.n--
	if e := t.slot(a, b); e.a == a && e.b == b && e.v != nil {
		e.v = nil
		return
	}
	t.far.del(a, b)
}

// all calls f for each record; the order means nothing, and f changes nothing.
func (t *fronted[T]) all(f func(*T)) {
	for _, part := range [2][]entry[T]{t.front, t.far.slots} {
		for i := range part {
			if v := part[i].v; v != nil {
				f(v)
			}
		}
	}
}

// list is a doubly linked list whose nodes lie in its records: joining and
// leaving allocate nothing.
type list[T any] struct {
	first, last *node[T]
	n           int
}

type node[T any] struct {
	next, prev *node[T]
	in         *list[T] // nil: in none
	v          *T       // the record; set once
}

func (l *list[T]) push(n *node[T]) {
	if invariants.Enabled && n.in != nil {
		panic("travel: a record joins a list while it is in one")
	}
	n.in, n.prev, n.next = l, l.last, nil
	if l.last != nil {
		l.last.next = n
	} else {
		l.first = n
	}
	l.last = n
	l.n++
}

// leave takes n out of its list, if it is in one.
func (n *node[T]) leave() {
	l := n.in
	if l == nil {
		return
	}
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		l.first = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	} else {
		l.last = n.prev
	}
	n.next, n.prev, n.in = nil, nil, nil
	l.n--
}

// pool keeps freed records. Limits bound how many are ever in use.
type pool[T any] struct{ free []*T }

func (p *pool[T]) get() *T {
	if n := len(p.free); n > 0 {
		v := p.free[n-1]
		p.free = p.free[:n-1]
		return v
	}
	return nil
}

func (p *pool[T]) put(v *T) { p.free = append(p.free, v) }
