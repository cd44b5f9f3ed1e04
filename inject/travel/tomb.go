package travel

import "fmt"

// tombs remember invocations that ended here before all their branches had. Canceled ones are those that their
// origin ended: their branches are dropped, and to forget one early costs a run whose report is not awaited. Lapsed ones
// kept scratch here when their deadline passed or the connection to their origin was lost: their branches are refused,
// for they would find no scratch and answer as if all were well. A lapsed one is never forgotten early, so each
// stateful invocation takes a place when it arrives, which its tombstone needs if it lapses.
type tombs struct {
	byID     table[tomb]
	canceled tombHeap
	lapsed   tombHeap
	pool     pool[tomb]
	places   int            // stateful invocations that are here, and lapsed ones
	placesOf map[string]int // … by their origin's principal
}

type tomb struct {
	id        InvocationID
	until     Instant
	why       Code   // CodeOK: canceled; else what a branch is refused with
	principal string // the origin's: of a lapsed one it has the place; "": not known
	at        int    // in its heap
}

// tombHeap has the earliest on top.
type tombHeap []*tomb

func (t *tombs) has(id InvocationID) bool { return t.get(id) != nil }

func (t *tombs) get(id InvocationID) *tomb { return t.byID.get(id.Origin, id.Seq) }

func (t *tombs) heapOf(n *tomb) *tombHeap {
	if n.why == CodeOK {
		return &t.canceled
	}
	return &t.lapsed
}

func (t *tombs) earliest() (at Instant, ok bool) {
	for _, h := range [2]tombHeap{t.canceled, t.lapsed} {
		if len(h) > 0 && (!ok || h[0].until < at) {
			at, ok = h[0].until, true
		}
	}
	return at, ok
}

// take gives a stateful invocation of a principal its place; if there is none, over says which limit is used up.
func (t *tombs) take(principal string, l *Limits) (over string) {
	const what = "invocations that keep scratch here, or lost it here and are not over yet"
	switch of := t.placesOf[principal]; {
	case t.places >= l.Stateful:
		return fmt.Sprintf("%d %s (Limits.Stateful); try again later", t.places, what)
	case of >= l.PrincipalStateful:
		return fmt.Sprintf("%d %s are principal %q's (Limits.PrincipalStateful); try again when some of them are over", of, what, principal)
	}
	if t.placesOf == nil {
		t.placesOf = map[string]int{}
	}
	t.places++
	t.placesOf[principal]++
	return ""
}

// leave gives a place back.
func (t *tombs) leave(principal string) {
	t.places--
	if t.placesOf[principal]--; t.placesOf[principal] == 0 {
		delete(t.placesOf, principal)
	}
}

// cancel remembers until then that its origin ended an invocation; limit bounds those.
func (t *tombs) cancel(id InvocationID, until Instant, principal string, limit int) {
	if old := t.get(id); old != nil && old.why != CodeOK {
		t.remove(old)
	} else if old != nil {
		old.principal = principal
		if until > old.until {
			old.until = until
			t.canceled.down(old.at)
		}
		return
	}
	if len(t.canceled) >= limit {
		t.remove(t.canceled[0])
	}
	t.add(id, until, CodeOK, principal)
}

// lapse remembers until then that an invocation lost its scratch here; it has a place of the principal's.
func (t *tombs) lapse(id InvocationID, until Instant, why Code, principal string) {
	if t.has(id) { // canceled
		t.leave(principal)
		return
	}
	t.add(id, until, why, principal)
}

func (t *tombs) add(id InvocationID, until Instant, why Code, principal string) {
	n := t.pool.get()
	if n == nil {
		n = new(tomb)
	}
	*n = tomb{id: id, until: until, why: why, principal: principal}
	t.byID.put(id.Origin, id.Seq, n)
	t.heapOf(n).push(n)
}

// free forgets a lapsed invocation whose origin says that it is complete.
func (t *tombs) free(id InvocationID) {
	if n := t.get(id); n != nil && n.why != CodeOK {
		t.remove(n)
	}
}

func (t *tombs) expire(now Instant) {
	for _, h := range [2]*tombHeap{&t.canceled, &t.lapsed} {
		for len(*h) > 0 && (*h)[0].until <= now {
			t.remove((*h)[0])
		}
	}
}

func (t *tombs) remove(n *tomb) {
	t.byID.del(n.id.Origin, n.id.Seq)
	t.heapOf(n).remove(n)
	if n.why != CodeOK {
		t.leave(n.principal)
	}
	*n = tomb{}
	t.pool.put(n)
}

func (h *tombHeap) push(n *tomb) {
	n.at = len(*h)
	*h = append(*h, n)
	h.up(n.at)
}

func (h *tombHeap) remove(n *tomb) {
	at, last := n.at, len(*h)-1
	h.swap(at, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	if at < last {
		h.up(at)
		h.down(at)
	}
}

func (h tombHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h tombHeap) up(i int) {
	for i > 0 && h[i].until < h[(i-1)/2].until {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h tombHeap) down(i int) {
	for {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(h); k++ {
			if h[k].until < h[least].until {
				least = k
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

// lapseText says to the sender of a branch why it is refused.
func lapseText(why Code) string {
	const gone = "the invocation had ended here before this branch came, and with it what it kept here: "
	switch why {
	case CodeDeadline:
		return gone + "its time was over"
	case CodeStopping:
		return gone + "the element is stopping"
	}
	return gone + "the element had lost its connection to the origin"
}
