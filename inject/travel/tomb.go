package travel

// tombs remember canceled invocations until no branch of them can arrive any
// more. The heap gives up the earliest deadline when the table is full.
type tombs struct {
	byID table[tomb]
	heap []*tomb
	pool pool[tomb]
}

type tomb struct {
	id    InvocationID
	until Instant
	at    int // in the heap
}

func (t *tombs) len() int { return len(t.heap) }

func (t *tombs) has(id InvocationID) bool {
	return len(t.heap) > 0 && t.byID.get(id.Origin, id.Seq) != nil
}

func (t *tombs) earliest() (Instant, bool) {
	if len(t.heap) == 0 {
		return 0, false
	}
	return t.heap[0].until, true
}

// add remembers id until then; limit bounds the table.
func (t *tombs) add(id InvocationID, until Instant, limit int) {
	if old := t.byID.get(id.Origin, id.Seq); old != nil {
		if until > old.until {
			old.until = until
			t.down(old.at)
		}
		return
	}
	if len(t.heap) >= limit {
		t.removeFirst()
	}
	n := t.pool.get()
	if n == nil {
		n = new(tomb)
	}
	n.id, n.until, n.at = id, until, len(t.heap)
	t.byID.put(id.Origin, id.Seq, n)
	t.heap = append(t.heap, n)
	t.up(n.at)
}

func (t *tombs) expire(now Instant) {
	for len(t.heap) > 0 && t.heap[0].until <= now {
		t.removeFirst()
	}
}

func (t *tombs) removeFirst() {
	n, last := t.heap[0], len(t.heap)-1
	t.byID.del(n.id.Origin, n.id.Seq)
	t.swap(0, last)
	t.heap[last] = nil
	t.heap = t.heap[:last]
	if last > 0 {
		t.down(0)
	}
	t.pool.put(n)
}

func (t *tombs) swap(i, j int) {
	h := t.heap
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (t *tombs) up(i int) {
	for i > 0 && t.heap[i].until < t.heap[(i-1)/2].until {
		t.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (t *tombs) down(i int) {
	for {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(t.heap); k++ {
			if t.heap[k].until < t.heap[least].until {
				least = k
			}
		}
		if least == i {
			return
		}
		t.swap(i, least)
		i = least
	}
}
