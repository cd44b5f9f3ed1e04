package inject_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// passed starts a program at n0 that goes on to n1 at once, where steps are done, and waits until those have begun and
// n0 keeps nothing of the branch.
func passed(t *testing.T, time time.Duration, steps []step) (*street, *inject.Future) {
	t.Helper()
	s := newStreet(t)
	s.path()
	s.quiet()
	begun := s.begun(1)
	fut := s.start(within(t, time), 0, payload(1, on(1, steps...)))
	await(t, begun)
	s.idleAt(0)
	eventually(t, func() string {
		if z := s.nodes[0].rt.Stats().Sizes; z.Invocations+z.Records > 0 {
			return fmt.Sprintf("n0 keeps %+v", z)
		}
		return ""
	})
	return s, fut
}

// idleAt waits until one element runs nothing.
func (s *street) idleAt(at uint8) {
	s.t.Helper()
	eventually(s.t, func() string {
		if z := s.nodes[at].rt.Stats().Sizes; z.Running > 0 {
			return fmt.Sprintf("n%d still runs %+v", at, z)
		}
		return ""
	})
}

// TestPassed: whatever happens after a branch has passed through an element, its invocation ends as it must, and in time.
func TestPassed(t *testing.T) {
	hang, pass := one(opHang, 0, 0), one(opWait, 0, gate)
	for _, c := range []struct {
		name  string
		time  time.Duration
		steps []step
		do    func(s *street, fut *inject.Future)
		err   error
		text  string
	}{
		{"nothing", time.Hour, pass, func(*street, *inject.Future) {}, nil, ""},
		{"canceled", time.Hour, hang, func(_ *street, fut *inject.Future) { fut.Cancel() }, travel.ErrCanceled, ""},
		{"its time is up", shortTime, hang, func(*street, *inject.Future) {}, travel.ErrDeadline, ""},
		{"its element lost by the origin", time.Hour, hang, func(s *street, _ *inject.Future) { s.client.eps["n1"].Close() }, travel.ErrPeerLost, "n1"},
		{"its element lost by the one before", time.Hour, pass, func(s *street, _ *inject.Future) { s.nodes[1].eps["n0"].Close() }, nil, ""},
		{"the first one lost by the origin", time.Hour, hang, func(s *street, _ *inject.Future) { s.client.eps["n0"].Close() }, travel.ErrPeerLost, "n0"},
		{"another one lost by the origin", time.Hour, hang, func(s *street, _ *inject.Future) { s.client.eps["n2"].Close() }, travel.ErrPeerLost, "n2"},
		{"a third one lost", time.Hour, pass, func(s *street, _ *inject.Future) { s.nodes[2].eps["n0"].Close() }, nil, ""},
		{"it comes back", time.Hour, append(pass, on(0)...), func(*street, *inject.Future) {}, nil, ""},
		{"it comes back to one that is draining", time.Hour, append(pass, on(0)...), func(s *street, _ *inject.Future) { drain(s, 0) }, nil, ""},
		{"a fork comes back to one that is draining", time.Hour, append(pass, fork(0)...), func(s *street, _ *inject.Future) { drain(s, 0) }, nil, ""},
		{"it goes on from one that is draining", time.Hour, append(pass, on(2)...), func(s *street, _ *inject.Future) { drain(s, 1) }, nil, ""},
		{"it comes back and traps", time.Hour, append(pass, on(0, one(opTrap, 0, 0)...)...), func(*street, *inject.Future) {}, nil, ""},
		{"many more pass", time.Hour, pass, func(s *street, _ *inject.Future) {
			for range 600 {
				if _, err := s.f.Do(within(s.t, patience), inject.Root{Payload: payload(1, on(1))}, nil); err != nil {
					s.t.Fatal(err)
				}
			}
		}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, fut := passed(t, c.time, c.steps)
			want := newModel(houses).play(0, payload(1, on(1, c.steps...)))
			c.do(s, fut)
			s.open(1)
			results, err := wait(t, fut)
			if c.err != nil {
				if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("ended with %v, want %v %s", err, c.err, c.text)
				}
			} else if d := want.matches(results, err); d != "" {
				t.Error(d)
			}
			s.ran(t, 1)
			s.quiet()
		})
	}
}

// drain makes an element take nothing new.
func drain(s *street, at uint8) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.nodes[at].rt.Drain(ctx) // its time is up
}

// TestLightFuture: whatever happens while a call is only a light future at its origin, it ends as one with the general records.
func TestLightFuture(t *testing.T) {
	look := func(s *street, _ context.CancelFunc) { s.client.rt.Stats() }
	nothing := func(*street, context.CancelFunc) {}
	pass := one(opWait, 0, gate)
	for _, c := range []struct {
		name  string
		time  time.Duration
		steps [][]step
		do    func(s *street, cancel context.CancelFunc)
		err   error
		text  string
	}{
		{"a reply", time.Hour, [][]step{pass}, nothing, nil, ""},
		{"no reply", time.Hour, [][]step{pass, one(opEnd, 0, 0)}, nothing, nil, ""},
		{"a long reply", time.Hour, [][]step{pass, one(opReply, 0, 60000)}, nothing, nil, ""},
		{"parts", time.Hour, [][]step{one(opPart, 0, 10), pass, one(opPart, 0, 20), one(opReply, 0, 30)}, nothing, nil, ""},
		{"a trap", time.Hour, [][]step{pass, one(opTrap, 0, 0)}, nothing, nil, ""},
		{"a failure", time.Hour, [][]step{pass, one(opFail, 0, 8)}, nothing, nil, ""},
		{"onward", time.Hour, [][]step{pass, on(1)}, nothing, nil, ""},
		{"onward and a trap", time.Hour, [][]step{pass, on(1, one(opTrap, 0, 0)...)}, nothing, nil, ""},
		{"a fork", time.Hour, [][]step{pass, fork(1, one(opEnd, 0, 0)...)}, nothing, nil, ""},
		{"somebody looks, and a reply", time.Hour, [][]step{pass}, look, nil, ""},
		{"somebody looks, and onward", time.Hour, [][]step{pass, on(1)}, look, nil, ""},
		{"somebody looks, and a trap", time.Hour, [][]step{pass, one(opTrap, 0, 0)}, look, nil, ""},
		{"another call", time.Hour, [][]step{pass}, func(s *street, _ context.CancelFunc) {
			before := s.f.Asked()
			if _, err := s.f.Do(within(s.t, patience), inject.Root{Element: 1, Payload: payload(1)}, nil); err != nil || s.f.Asked() == before {
				s.t.Errorf("the other call was not started in the quick way, or: %v", err)
			}
		}, nil, ""},
		{"another lost", time.Hour, [][]step{one(opHang, 0, 0)}, func(s *street, _ context.CancelFunc) { s.client.eps["n1"].Close() }, travel.ErrPeerLost, "n1"},
		{"the function closed", time.Hour, [][]step{pass}, func(s *street, _ context.CancelFunc) { s.f.Close() }, nil, ""},
		{"draining", time.Hour, [][]step{pass}, func(s *street, _ context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if s.client.rt.Drain(ctx) == nil {
				s.t.Error("the client has nothing under way")
			}
		}, nil, ""},
		{"given up", time.Hour, [][]step{one(opHang, 0, 0)}, func(_ *street, cancel context.CancelFunc) { cancel() }, context.Canceled, ""},
		{"its time is up", shortTime, [][]step{one(opHang, 0, 0)}, nothing, travel.ErrDeadline, ""},
		{"its element lost", time.Hour, [][]step{one(opHang, 0, 0)}, func(s *street, _ context.CancelFunc) { s.client.eps["n0"].Close() }, travel.ErrPeerLost, "n0"},
		{"its element ends all", time.Hour, [][]step{one(opHang, 0, 0)}, func(s *street, _ context.CancelFunc) { s.nodes[0].rt.EndAll(within(s.t, patience), "good night") }, travel.ErrStopping, "good night"},
		{"all ended", time.Hour, [][]step{one(opHang, 0, 0)}, func(s *street, _ context.CancelFunc) { s.client.rt.EndAll(within(s.t, patience), "good night") }, travel.ErrStopping, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStreet(t)
			s.ready(1)
			s.ready(0)
			ctx, cancel := context.WithTimeout(context.Background(), c.time)
			defer cancel()
			program := payload(1, c.steps...)
			want := newModel(houses).play(0, program)
			begun, before := s.begun(0), s.f.Asked()
			var got []byte
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				got, err = s.f.Do(ctx, inject.Root{Payload: program}, nil)
			}()
			await(t, begun)
			if s.f.Asked() == before {
				t.Error("it was not started in the quick way")
			}
			c.do(s, cancel)
			s.open(0)
			await(t, done)
			if c.err != nil {
				if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("ended with %v, want %v %s", err, c.err, c.text)
				}
			} else if d := want.matches([]string{string(got)}, err); d != "" && !(len(want.results) == 0 && len(got) == 0) {
				t.Error(d)
			}
			s.ran(t, 0)
			s.quiet()
		})
	}
}

// TestLightFutureRefused: a light future's element has begun to drain, which the origin learns of only by its refusal.
func TestLightFutureRefused(t *testing.T) {
	s := newStreet(t)
	s.ready(0)
	if err := s.nodes[0].rt.Drain(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	before := s.f.Asked()
	_, err := s.f.Do(within(t, patience), inject.Root{Payload: payload(1)}, nil)
	if !errors.Is(err, travel.ErrStopping) {
		t.Errorf("ended with %v", err)
	}
	if s.f.Asked() == before {
		t.Error("it was not started in the quick way")
	}
	s.quiet()
}

// TestClosedBeforeElement: a node stops its functions before its element, which still hears of new ones meanwhile:
// those who send them are told that it stops, nothing of a log that has nothing to say.
func TestClosedBeforeElement(t *testing.T) {
	s := newStreet(t)
	s.ready(0)
	if err := s.nodes[0].rt.Close(); err != nil {
		t.Fatal(err)
	}
	says := func(how string, err error) {
		if !errors.Is(err, travel.ErrStopping) || !strings.Contains(err.Error(), travel.StoppingText) || strings.Contains(err.Error(), "log") {
			t.Errorf("%s: ended with %v", how, err)
		}
	}
	_, err := s.f.Do(within(t, patience), inject.Root{Payload: payload(1)}, nil)
	says("a call", err)
	_, err = wait(t, s.start(within(t, patience), 0, payload(1)))
	says("a start", err)
	_, err = wait(t, s.start(within(t, patience), 1, payload(1, on(0))))
	says("a forward from another element", err)
}
