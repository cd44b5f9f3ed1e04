package fabric

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// TestEndedOpsWake: who watches an operation, or waits for it to end so that there is room for one more, is told of it,
// whoever ended it and however.
func TestEndedOpsWake(t *testing.T) {
	for name, end := range map[string]func(op Op, r *opRecord){
		"waited for": func(op Op, r *opRecord) { r.finish(nil); op.Wait(t.Context()) },
		"forgotten":  func(op Op, r *opRecord) { r.finish(nil); op.Forget() },
		"given up":   func(op Op, r *opRecord) { op.Forget(); r.finish(nil) },
	} {
		e := loneElement(t, 1, Limits{OpsPerEndpoint: 1})
		ep, _ := attach(t, e, 2)
		rec, err := ep.startOp(nil, "get", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ep.startOp(nil, "get", nil); !errors.Is(err, ErrBackpressure) {
			t.Errorf("%s: one more than there can be: %v", name, err)
		}
		told := ep.ops.roomy.lieDown() // as park does
		op := rec.op()
		done := op.Done()
		end(op, rec)
		select {
		case <-done:
		default:
			t.Errorf("%s: whoever watches it is not told", name)
		}
		if len(told) == 0 {
			t.Errorf("%s: whoever waits for room is not told", name)
		}
		ep.ops.roomy.asleep.Add(-1)
		if _, err := ep.startOp(nil, "get", nil); err != nil {
			t.Errorf("%s: then: %v", name, err)
		}
	}
}

// TestOpEndsOnce: a second end of an Op, by a deferred Forget for one, is none: its record is not put on the free list
// twice, and whoever has the record by then keeps it.
func TestOpEndsOnce(t *testing.T) {
	ends := map[string]func(op Op) error{
		"Wait":   func(op Op) error { return op.Wait(t.Context()) },
		"Value":  func(op Op) error { _, err := op.Value(t.Context()); return err },
		"keep":   func(op Op) error { _, err := (Importing{op, &Remote{ep: op.rec.ep}}).Wait(t.Context()); return err },
		"Forget": func(op Op) error { op.Forget(); return ErrEnded },
	}
	for first, end := range ends {
		for second, again := range ends {
			e := loneElement(t, 1, Limits{})
			ep, _ := attach(t, e, 2)
			start := func() Op {
				rec, err := ep.startOp(nil, "get", make([]byte, 8))
				if err != nil {
					t.Fatal(err)
				}
				return rec.op()
			}
			op := start()
			op.rec.finish(ErrRange) // keep would go on to map what it was given
			end(op)
			for _, when := range []string{"at once", "while another has the record"} {
				if err := again(op); err != ErrEnded {
					t.Errorf("%s, then %s %s: %v", first, second, when, err)
				}
				select {
				case <-op.Done():
				default:
					t.Errorf("%s, then %s %s: it is not Done", first, second, when)
				}
				if !op.Poll() {
					t.Errorf("%s, then %s %s: Wait would not return at once", first, second, when)
				}
				one, other := start(), start()
				if one.rec == other.rec {
					t.Fatalf("%s, then %s %s: two operations have one record", first, second, when)
				}
				if when == "at once" {
					one.Forget()
					one.rec.finish(nil)
					other.rec.finish(nil)
					other.Forget()
				}
			}
			if n := ep.ops.inUse(); n != 2 {
				t.Errorf("%s, then %s: %d operations, not the 2 that were started", first, second, n)
			}
		}
	}
}

// TestOpEndsOnceAtOnce: of goroutines that end one Op at the same time, one does.
func TestOpEndsOnceAtOnce(t *testing.T) {
	e := loneElement(t, 1, Limits{})
	ep, _ := attach(t, e, 2)
	for range 1000 {
		rec, err := ep.startOp(nil, "get", nil)
		if err != nil {
			t.Fatal(err)
		}
		op := rec.op()
		rec.finish(nil)
		var ended atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if op.Wait(t.Context()) == nil {
					ended.Add(1)
				}
				op.Forget()
			})
		}
		all.Wait()
		if n := ended.Load(); n > 1 || ep.ops.inUse() != 0 {
			t.Fatalf("%d goroutines ended one operation; %d are under way", n, ep.ops.inUse())
		}
	}
	if n, free := len(ep.ops.records), len(ep.ops.free); n != free {
		t.Errorf("%d of %d records are free", free, n)
	}
}

// inUse is how many records there are operations for.
func (t *opTable) inUse() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending
}
