package travel_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestStatuses: which error a function's status is, if any; never one of another code's.
func TestStatuses(t *testing.T) {
	all := []error{travel.ErrKey, travel.ErrPeerLost, travel.ErrBackpressure, travel.ErrLimit, travel.ErrDeadline, travel.ErrCanceled, travel.ErrOutcomeUnknown, travel.ErrRefused}
	for status, want := range map[abi.Status]error{
		abi.ErrRights: travel.ErrKey, abi.ErrRevoked: travel.ErrKey, abi.ErrPeerLost: travel.ErrPeerLost, abi.ErrBackpressure: travel.ErrBackpressure,
		abi.ErrLimit: travel.ErrLimit, abi.ErrDeadline: travel.ErrDeadline, abi.ErrCanceled: travel.ErrCanceled, abi.ErrOutcomeUnknown: travel.ErrOutcomeUnknown,
		abi.ErrArgument: nil, abi.ErrMemory: nil, abi.ErrDone: nil, abi.ErrNoWindow: nil, abi.ErrUnsupported: nil, -14: nil, 7: nil,
	} {
		for _, code := range []travel.Code{travel.CodeFunction, travel.CodeTrap} {
			err := &travel.RemoteError{Code: code, Status: int32(status)}
			for _, is := range all {
				if got := errors.Is(err, is); got != (is == want && code == travel.CodeFunction) {
					t.Errorf("%v, status %d: is it %q? %v", code, status, is, got)
				}
			}
			if !errors.Is(err, travel.ErrRemote) {
				t.Errorf("%v is not ErrRemote", err)
			}
		}
	}
}

// TestErrors: how each failure reads at the origin.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		args travel.StartArgs
		do   func(t *testing.T, w *town, p placed)
		is   []error
		text []string
	}{
		{"function", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			p.finish(w, travel.End{Code: travel.CodeFunction, Status: -7, Text: "row 5 is missing"})
		}, []error{travel.ErrRemote, travel.ErrLimit}, []string{"status -7", "row 5 is missing", " on b"}},
		{"hops", travel.StartArgs{Hops: 1}, func(t *testing.T, w *town, p placed) {
			if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
				t.Fatal(err)
			}
			p.finish(w, travel.End{})
			p = w.one(t, w.settle(t, nil))
			p.r.Binding().Name = "walk"
			if err := p.d.core.Forward(w.now, p.r, 2, nil); !errors.Is(err, travel.ErrHopLimit) || !p.r.Ended() {
				t.Fatalf("a forward with no hops left gives %v", err)
			}
			p.finish(w, travel.End{Code: travel.CodeTrap, Text: "not this"})
		}, []error{travel.ErrRemote, travel.ErrHopLimit}, []string{"walk used up its hop budget on c (a budget of 1; 4095 is none)"}},
		{"no such peer", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			if err := p.d.core.Forward(w.now, p.r, 77, nil); !errors.Is(err, travel.ErrPeerLost) {
				t.Fatal(err)
			}
			p.finish(w, travel.End{})
		}, []error{travel.ErrPeerLost}, []string{"peer number 77"}},
		{"too large", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			p.finish(w, travel.End{HasResult: true, Result: make([]byte, travel.MaxMessageBytes)})
		}, []error{travel.ErrLimit}, []string{"send it in parts"}},
		{"too large a payload", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			if err := p.d.core.Forward(w.now, p.r, 3, make([]byte, travel.MaxMessageBytes)); !errors.Is(err, travel.ErrLimit) {
				t.Fatal(err)
			}
			p.finish(w, travel.End{})
		}, []error{travel.ErrLimit}, nil},
		{"failed after it moved", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			if err := p.d.core.Forward(w.now, p.r, 3, nil); err != nil {
				t.Fatal(err)
			}
			if err := p.d.core.Forward(w.now, p.r, 3, nil); !errors.Is(err, travel.ErrEnded) {
				t.Fatalf("a second forward gives %v", err)
			}
			p.finish(w, travel.End{Code: travel.CodeTrap, Text: "out of bounds"})
			q := w.one(t, w.settle(t, nil))
			if len(q.d.stops) != 1 {
				t.Error("the moved branch was not stopped")
			}
			q.finish(w, travel.End{})
		}, []error{travel.ErrRemote}, []string{"trapped", "out of bounds"}},
		{"parts", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			for range 4 {
				if err := p.d.core.Part(w.now, p.r, []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.d.core.Part(w.now, p.r, []byte("x")); !errors.Is(err, travel.ErrPartLimit) {
				t.Fatal(err)
			}
			p.finish(w, travel.End{})
		}, []error{travel.ErrLimit}, nil},
		{"forks", travel.StartArgs{Branches: 5}, func(t *testing.T, w *town, p placed) {
			for range 5 {
				if _, err := p.d.core.Fork(w.now, p.r, 3, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			p.finish(w, travel.End{})
			for _, q := range w.settle(t, nil) {
				q.finish(w, travel.End{})
			}
		}, []error{travel.ErrForkLimit}, nil},
		{"peer lost", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			w.desks[0].core.PeerLost(w.now, 2, errors.New("reset by peer"))
			p.d.core.PeerLost(w.now, 1, nil)
			p.finish(w, travel.End{})
		}, []error{travel.ErrPeerLost, travel.ErrOutcomeUnknown}, []string{"element b", "reset by peer", "branch 0"}},
		{"deadline", travel.StartArgs{}, func(t *testing.T, w *town, p placed) {
			w.pass(t, 2*second)
			if len(p.d.stops) != 1 {
				t.Error("the run was not stopped")
			}
			if err := p.d.core.Forward(w.now, p.r, 3, nil); !errors.Is(err, travel.ErrCanceled) {
				t.Errorf("a forward of a stopped run gives %v", err)
			}
			p.finish(w, travel.End{})
		}, []error{travel.ErrDeadline}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTown(t, 3, travel.Limits{Parts: 4})
			w.start(t, c.args, 2)
			c.do(t, w, w.one(t, w.settle(t, nil)))
			w.settle(t, nil)
			err := w.outcome(t)
			for _, is := range c.is {
				if !errors.Is(err, is) {
					t.Errorf("%v is not %v", err, is)
				}
			}
			for _, text := range c.text {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
			w.empty(t)
		})
	}
}
