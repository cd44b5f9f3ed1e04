package sim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = sim.WireFaults{MinDelay: 2 * time.Microsecond, MaxDelay: 50 * time.Microsecond, Detect: time.Millisecond, Lag: 5 * time.Microsecond}

// lender is a host that lends a segment to whoever asks this process for its key.
type lender struct {
	seg *fabric.Segment
	key fabric.Key
}

func (l *lender) program(t *testing.T) sim.Program {
	return sim.Program{Start: func(h *sim.Host) (err error) {
		if l.seg, err = h.Element().NewSegment(300_000, fabric.Writable); err != nil {
			return err
		}
		if l.key, err = l.seg.Key(fabric.RightsAll); err != nil {
			return err
		}
		_, err = h.Element().Listen("sim://" + h.Name)
		return err
	}}
}

// TestDial: HELLO, Import, the verbs and Flush, by calls that wait, also over a network that
// loses every fifth packet.
func TestDial(t *testing.T) {
	rough := quiet
	rough.Loss, rough.Duplicate, rough.Pieces = 0.2, 0.2, 0.5
	for name, f := range map[string]sim.WireFaults{"quiet": quiet, "rough": rough} {
		t.Run(name, func(t *testing.T) {
			w := sim.New(7, sim.Faults{})
			n := sim.NewNetwork(w, f)
			defer n.Close()
			var there lender
			a, err := n.Add("a", sim.Program{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = n.Add("b", there.program(t)); err != nil {
				t.Fatal(err)
			}
			done := false
			a.Go(func(ctx context.Context) {
				if err := verbs(ctx, a, &there); err != nil {
					t.Error(err)
				}
				done = true
			})
			w.Run(5 * time.Second)
			if !done {
				t.Error("the call did not end")
			}
		})
	}
}

func verbs(ctx context.Context, a *sim.Host, there *lender) error {
	ep, err := a.Element().Dial(ctx, "sim://b")
	if err != nil {
		return err
	}
	r, err := ep.Import(ctx, there.key)
	if err != nil {
		return err
	}
	data, back := make([]byte, 200_000), make([]byte, 200_000)
	for i := range data {
		data[i] = byte(i * 7)
	}
	if err := r.Put(ctx, data, 1000); err != nil {
		return err
	}
	if err := r.Get(ctx, back, 1000); err != nil {
		return err
	}
	if string(back) != string(data) {
		return errors.New("Get does not give what Put was given")
	}
	if _, err := r.Atomic(ctx, fabric.FetchAdd, 8, 0, 5, 0); err != nil {
		return err
	}
	if v, err := r.Atomic(ctx, fabric.FetchAdd, 8, 0, 5, 0); err != nil || v != 5 {
		return errors.Join(errors.New("an atomic was lost"), err)
	}
	return ep.Flush(ctx)
}
