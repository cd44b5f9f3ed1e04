package exchange

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// The model puts a network between two books that keeps no promise: messages
// are lost, come twice, and pass each other.

type messageKind int

const (
	aRequest messageKind = iota
	anAnswer
	aCancel
	aTaken
)

type message struct {
	kind messageKind
	id   ID
	low  uint64
	lent bool
}

// world is a caller, a callee and what is under way between them.
type world struct {
	*rapid.T
	now     int64
	caller  Caller
	lending Lending[ID]
	callee  Callee[*bool]
	wire    []message

	open    map[ID]bool // calls that have not ended here
	ran     map[uint64]int
	runs    map[ID]bool // at the callee now
	reading map[ID]bool // payloads that the callee is reading
	out     map[ID]bool // payloads that are lent
}

// steps are what can happen; each is drawn as often as it is named.
func (w *world) steps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"call":    w.call,
		"deliver": w.deliver, "deliver too": w.deliver, "deliver again": w.repeat,
		"lose": func(t *rapid.T) { w.take(t) },
		"finish": func(t *rapid.T) {
			if id, ok := pick(t, w.runs); ok {
				w.finish(id)
			}
		},
		"give up": func(t *rapid.T) {
			if id, ok := pick(t, w.open); ok && w.caller.Waiting(id) {
				w.end(id)
			}
		},
		"wait": func(t *rapid.T) {
			w.now += int64(rapid.IntRange(1, 40).Draw(t, "by"))
			w.caller.Expire(w.now, func(id ID) {
				if !w.open[id] {
					t.Fatalf("%v expires after its end", id)
				}
				w.caller.End(id)
				w.over(id)
				w.wire = append(w.wire, message{kind: aCancel, id: id})
			})
			w.lending.Expire(w.now, func(id ID) { delete(w.out, id) }) // closed: a reader fails
		},
		"": w.check,
	}
}

// pick draws one of a set.
func pick(t *rapid.T, set map[ID]bool) (ID, bool) {
	if len(set) == 0 {
		return 0, false
	}
	var list []ID
	for n := uint64(1); len(list) < len(set); n++ { // in an order that a seed repeats
		for id := range set {
			if id.Number() == n {
				list = append(list, id)
			}
		}
	}
	return rapid.SampledFrom(list).Draw(t, "which"), true
}

func (w *world) call(t *rapid.T) {
	deadline := int64(0)
	if rapid.Bool().Draw(t, "with a deadline") {
		deadline = w.now + int64(rapid.IntRange(1, 100).Draw(t, "deadline"))
	}
	id, ok := w.caller.Begin(deadline)
	if !ok {
		if w.caller.Live() < 8 {
			t.Fatalf("no room with %d calls", w.caller.Live())
		}
		return
	}
	if w.open[id] || w.ran[id.Number()] > 0 {
		t.Fatalf("%v was given twice", id)
	}
	if rapid.IntRange(0, 5).Draw(t, "no credit") == 0 {
		w.caller.Undo(id)
		return
	}
	w.open[id] = true
	m := message{kind: aRequest, id: id, low: w.caller.Low(), lent: rapid.Bool().Draw(t, "large")}
	if m.lent {
		w.lending.Lend(id, Ours, id, 0)
		w.out[id] = true
	}
	w.wire = append(w.wire, m)
}

// end gives a call up at the caller.
func (w *world) end(id ID) {
	if w.caller.End(id) {
		w.wire = append(w.wire, message{kind: aCancel, id: id})
	}
	w.over(id)
}

func (w *world) over(id ID) {
	delete(w.open, id)
	w.lending.Leave(id, Ours, w.now+200)
}

func (w *world) take(t *rapid.T) (m message, ok bool) {
	if len(w.wire) == 0 {
		return m, false
	}
	i := rapid.IntRange(0, len(w.wire)-1).Draw(t, "message")
	m = w.wire[i]
	w.wire = append(w.wire[:i], w.wire[i+1:]...)
	return m, true
}

func (w *world) deliver(t *rapid.T) {
	if m, ok := w.take(t); ok {
		w.arrive(m)
	}
}

func (w *world) repeat(t *rapid.T) {
	if m, ok := w.take(t); ok {
		w.wire = append(w.wire, m)
		w.arrive(m)
	}
}

func (w *world) arrive(m message) {
	switch m.kind {
	case aRequest:
		if !w.callee.Arrive(m.id, m.low) {
			return
		}
		w.ran[m.id.Number()]++
		gone := new(bool)
		if !w.callee.Begin(m.id, gone) {
			w.wire = append(w.wire, message{kind: anAnswer, id: m.id})
			return
		}
		w.runs[m.id] = true
		w.reading[m.id] = m.lent
	case anAnswer:
		if w.caller.Answer(m.id) {
			if !w.open[m.id] {
				w.Fatalf("an answer to %v, which has ended", m.id)
			}
			w.caller.End(m.id)
			w.over(m.id)
		}
		w.taken(m.id)
	case aCancel:
		if gone, running := w.callee.Cancel(m.id); running {
			*gone = true
		}
	case aTaken:
		w.taken(m.id)
	}
}

// taken gives a payload's memory back for use: nobody may be reading it.
func (w *world) taken(id ID) {
	got, ok := w.lending.Taken(id, Ours)
	if !ok {
		return
	}
	if got != id || w.reading[id] {
		w.Fatalf("the memory of %v is used again while it is read", id)
	}
	delete(w.out, id)
}

// finish ends a call at the callee: it has read the payload, says so, and answers.
func (w *world) finish(id ID) {
	if w.reading[id] {
		delete(w.reading, id)
		w.wire = append(w.wire, message{kind: aTaken, id: id})
	}
	gone, _ := w.callee.Cancel(id)
	if !*gone {
		w.wire = append(w.wire, message{kind: anAnswer, id: id})
	}
	w.callee.End(id, false)
	delete(w.runs, id)
}

func (w *world) check(t *rapid.T) {
	for n, times := range w.ran {
		if times > 1 {
			t.Fatalf("call %d ran %d times", n, times)
		}
	}
	if w.caller.Live() != len(w.open) || w.lending.Len() != len(w.out) || w.callee.Running() != len(w.runs) {
		t.Fatalf("%d slots for %d calls, %d payloads of %d, %d of %d run", w.caller.Live(), len(w.open), w.lending.Len(), len(w.out),
			w.callee.Running(), len(w.runs))
	}
}

// TestSimBooks holds the books against a network without promises.
func TestSimBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{T: t, caller: NewCaller(8), callee: NewCallee[*bool](4), open: map[ID]bool{}, ran: map[uint64]int{},
			runs: map[ID]bool{}, reading: map[ID]bool{}, out: map[ID]bool{}}
		t.Repeat(w.steps())
		// Whatever was lost, time ends everything.
		w.caller.Drop(func(id ID) {
			w.caller.End(id)
			w.over(id)
		})
		w.now += 1000
		w.lending.Expire(w.now, func(id ID) { delete(w.out, id) })
		if len(w.open) != 0 || w.lending.Len() != 0 {
			t.Fatal(fmt.Sprintf("at the end %d calls and %d payloads are left", len(w.open), w.lending.Len()))
		}
	})
}
