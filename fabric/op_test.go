package fabric

import (
	"errors"
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
		l, w := &e.leader, &Waiter{l: &e.leader, room: true}
		told := w.lieDown() // as park does
		l.enlist(w)
		done := Op{rec: rec}.Done()
		end(Op{rec: rec}, rec)
		select {
		case <-done:
		default:
			t.Errorf("%s: whoever watches it is not told", name)
		}
		if len(told) == 0 {
			t.Errorf("%s: whoever waits for room is not told", name)
		}
		l.delist(w)
		if _, err := ep.startOp(nil, "get", nil); err != nil {
			t.Errorf("%s: then: %v", name, err)
		}
	}
}
