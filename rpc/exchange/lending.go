package exchange

// Side says whose payload is lent: numbers of both sides' calls look alike.
type Side uint8

const (
	// Ours is the request of a call of ours.
	Ours Side = iota
	// Theirs is the answer to a call of the peer.
	Theirs
)

type lentKey struct {
	id   ID
	side Side
}

type lent[T any] struct {
	item  T
	until int64 // 0: as long as the call
}

// Lending is the book of payloads that the peer may be reading. T is where one lies.
type Lending[T any] struct {
	items   map[lentKey]lent[T]
	soonest int64
	closed  bool
}

// Lend enters a payload; false if the endpoint has ended, so that it will not be read.
// It stays until it is taken, or until the time until if that is not 0.
func (l *Lending[T]) Lend(id ID, side Side, item T, until int64) bool {
	if l.closed {
		return false
	}
	if l.items == nil {
		l.items = map[lentKey]lent[T]{}
	}
	l.items[lentKey{id, side}] = lent[T]{item, until}
	l.note(until)
	return true
}

func (l *Lending[T]) note(until int64) {
	if until != 0 && (l.soonest == 0 || until < l.soonest) {
		l.soonest = until
	}
}

// Taken strikes a payload that the peer has read, or never will: it said so, or
// answered. What held it can be used again.
func (l *Lending[T]) Taken(id ID, side Side) (item T, ok bool) {
	k := lentKey{id, side}
	e, ok := l.items[k]
	delete(l.items, k)
	return e.item, ok
}

// Leave says that the call is over here, though the peer may still be reading:
// the payload stays until it says that it is not, but not longer than until.
func (l *Lending[T]) Leave(id ID, side Side, until int64) {
	k := lentKey{id, side}
	if e, ok := l.items[k]; ok && e.until == 0 {
		e.until = until
		l.items[k] = e
		l.note(until)
	}
}

// Len is the number of payloads that are lent.
func (l *Lending[T]) Len() int { return len(l.items) }

// Expire strikes payloads whose time is up, and gives them to fn. The peer may
// be reading them: what held them must not be used again.
func (l *Lending[T]) Expire(now int64, fn func(T)) {
	if l.soonest == 0 || l.soonest > now {
		return
	}
	l.soonest = 0
	for k, e := range l.items {
		if e.until != 0 && e.until <= now {
			delete(l.items, k)
			fn(e.item)
			continue
		}
		l.note(e.until)
	}
}

// Close strikes everything and gives it to fn: the endpoint has ended. Nothing is lent any more.
func (l *Lending[T]) Close(fn func(T)) {
	for k, e := range l.items {
		delete(l.items, k)
		fn(e.item)
	}
	l.closed = true
}
