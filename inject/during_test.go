package inject_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// gate is the word that programs wait for.
const gate = words - 1

// open lets programs that wait at an element go on.
func (s *street) open(at uint8) { binary.LittleEndian.PutUint64(s.memory[at].Bytes()[gate*8:], 1) }

// begun is closed when a run begins at an element; what was seen there before is forgotten.
func (s *street) begun(at uint8) <-chan struct{} {
	ch := make(chan struct{})
	var once sync.Once
	s.spies[at].watch(func(abi.Host) {
		once.Do(func() { close(ch) })
	}, nil)
	return ch
}

// await waits for a run that a test has begun.
func await(t testing.TB, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatal("nothing runs")
	}
}

// ran waits until the run that began first at an element has ended.
func (s *street) ran(t testing.TB, at uint8) (one sight) {
	t.Helper()
	eventually(t, func() string {
		if one = s.spies[at].runs()[0]; !one.ended {
			return fmt.Sprintf("what ran at n%d never ended", at)
		}
		return ""
	})
	return one
}

// TestVisitEnded: what would never end, and began as a visit, ends when somebody wants it to.
func TestVisitEnded(t *testing.T) {
	for _, c := range []struct {
		name string
		time time.Duration
		do   func(s *street, fut *inject.Future)
		err  error
		text string
	}{
		{"canceled", time.Hour, func(_ *street, fut *inject.Future) { fut.Cancel() }, travel.ErrCanceled, ""},
		{"its time is up", shortTime, func(*street, *inject.Future) {}, travel.ErrDeadline, ""},
		{"its origin lost", time.Hour, func(s *street, _ *inject.Future) { s.client.eps["n0"].Close() }, travel.ErrPeerLost, "n0"},
		{"its origin closed", time.Hour, func(s *street, _ *inject.Future) { s.client.rt.Close(); s.client.el.Close() }, travel.ErrPeerLost, ""},
		{"all ended", time.Hour, func(s *street, _ *inject.Future) { s.nodes[0].rt.EndAll(within(s.t, patience), "the lights go out") }, travel.ErrStopping, "the lights go out"},
		{"its element closed", time.Hour, func(s *street, _ *inject.Future) { s.nodes[0].rt.Close(); s.nodes[0].el.Close() }, travel.ErrPeerLost, "n0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for end := time.Now().Add(patience); ; {
				s := newStreet(t)
				s.ready(0)
				begun := s.begun(0)
				fut := s.start(within(t, c.time), 0, payload(1, one(opHang, 0, 0)))
				await(t, begun)
				c.do(s, fut)
				_, err := wait(t, fut)
				if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("ended with %v, want %v %s", err, c.err, c.text)
				}
				one := s.ran(t, 0)
				if one.err == nil {
					t.Error("what never ends has ended by itself")
				}
				s.quiet()
				if one.began {
					return
				}
				if time.Now().After(end) {
					t.Fatal("no run began as a visit")
				}
			}
		})
	}
}

// TestVisitMeanwhile: a run that began as a visit and lasts is not disturbed by what else happens at its element, and
// ends as it would have.
func TestVisitMeanwhile(t *testing.T) {
	ends := []struct {
		name  string
		steps [][]step
	}{
		{"a reply", [][]step{one(opReply, 0, 8)}},
		{"a part", [][]step{one(opPart, 0, 8)}},
		{"onward", [][]step{on(1, one(opTime, 0, 7200)...)}},
		{"onward with more", [][]step{on(1, padding...)}},
		{"a fork", [][]step{fork(0), fork(1)}},
		{"a word elsewhere", [][]step{one(opAdd, 1, 1)}},
		{"a failure", [][]step{one(opFail, 0, 9)}},
		{"a trap", [][]step{one(opTrap, 0, 0)}},
	}
	for _, c := range []struct {
		name string
		do   func(s *street)
	}{
		{"somebody looks", func(s *street) { s.nodes[0].rt.Stats() }},
		{"another call", func(s *street) { s.call(s.client, 0) }},
		{"another passes through", func(s *street) {
			if _, err := wait(s.t, s.start(within(s.t, patience), 1, payload(1, on(0, on(2)...)))); err != nil {
				s.t.Error(err)
			}
		}},
		{"another is canceled", func(s *street) {
			begun := s.begun(0)
			fut := s.start(within(s.t, patience), 0, payload(1, one(opHang, 0, 0)))
			await(s.t, begun)
			fut.Cancel()
			s.ran(s.t, 0)
		}},
		{"its element calls", func(s *street) { s.call(s.nodes[0], 1) }},
		{"another element lost", func(s *street) {
			s.nodes[2].eps["n0"].Close()
			eventually(s.t, func() string {
				if n := len(s.nodes[0].el.Endpoints()); n > 2 {
					return fmt.Sprintf("n0 has %d endpoints", n)
				}
				return ""
			})
		}},
		{"draining", func(s *street) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if s.nodes[0].rt.Drain(ctx) == nil {
				s.t.Error("nothing was here")
			}
			if _, err := wait(s.t, s.start(within(s.t, patience), 0, payload(1))); !errors.Is(err, travel.ErrStopping) {
				s.t.Errorf("something new ended with %v", err)
			}
		}},
		{"time", func(s *street) { time.Sleep(50 * time.Millisecond) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, e := range ends {
				program := payload(1, append([][]step{one(opWait, 0, gate)}, e.steps...)...)
				want := newModel(houses).play(0, program)
				for end := time.Now().Add(patience); ; {
					s := newStreet(t)
					s.call(s.nodes[0], 1)
					s.ready(0)
					begun := s.begun(0)
					fut := s.start(within(t, time.Hour), 0, program)
					await(t, begun)
					began := s.spies[0].runs()[0].began
					c.do(s)
					s.open(0)
					results, err := wait(t, fut)
					if d := want.matches(results, err); d != "" {
						t.Errorf("%s: %s", e.name, d)
					}
					if began {
						break
					}
					if time.Now().After(end) {
						t.Fatal("no run began as a visit")
					}
				}
			}
		})
	}
}

// TestEndlessBesideOthers: a principal's functions that never end, many more than compute at once, let another's go on and end; and all of them end once
// nobody wants them, those that wait for their turn too.
func TestEndlessBesideOthers(t *testing.T) {
	const crowd, others = 90, 20
	s := newStreet(t)
	s.ready(0)
	var endless []*inject.Future
	for range crowd {
		endless = append(endless, s.start(within(t, time.Hour), 0, payload(1, one(opHang, 0, 0))))
	}
	own := s.prepare(s.nodes[0], "steps") // the node is another principal
	start := func(program []byte) *inject.Future {
		fut, err := own.Start(within(t, patience), []inject.Root{{Element: 0, Payload: program}}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return fut
	}
	var waits []*inject.Future
	for range others {
		waits = append(waits, start(payload(1, one(opWait, 0, gate))))
	}
	eventually(t, func() string {
		if n := s.nodes[0].rt.Stats().Sizes.Running; n < crowd+others {
			return fmt.Sprintf("%d run", n)
		}
		return ""
	})
	s.open(0)
	for _, fut := range waits {
		if _, err := wait(t, fut); err != nil {
			t.Error(err)
		}
	}
	for _, fut := range endless {
		fut.Cancel()
	}
	for _, fut := range endless {
		if _, err := wait(t, fut); err == nil {
			t.Error("what never ends has ended by itself")
		}
	}
	s.quiet()
	if n := inject.Turns(s.nodes[0].rt); n != 0 {
		t.Errorf("%d turns are left", n)
	}
}
