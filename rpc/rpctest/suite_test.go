// Package rpctest_test checks calls over every transport of this tree (transports_test.go).
//
// Every check runs twice, against another element and against the caller itself;
// those in the group "process" run against a process of its own, which they kill. For
// that the suite runs the test binary again, so runSuite must be called from a top-level test.
package rpctest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
	"github.com/wherry-fabric/wherry/rpc"
)

// A factory makes the transport of one element, and says where an element that
// has it can listen: an address with its scheme, another one each time or one that the
// system completes, as port 0.
type factory func() (t fabric.Transport, listen string, err error)

// patience bounds every wait of the suite: no check comes near it unless something hangs.
const patience = 60 * time.Second

// A check is one subtest.
type check struct {
	name string
	run  func(*rig)
}

// runSuite checks calls over a transport.
func runSuite(t *testing.T, f factory) {
	if suite.BeChild(roles(f)) {
		return
	}
	runGroups(t, f, false)
}

// runLocal is runSuite for a transport that reaches no other process, and is a suite.Mortal: what are processes
// over another one are goroutines here, and its Crash is what kills them.
func runLocal(t *testing.T, f factory) { runGroups(t, f, true) }

func runGroups(t *testing.T, f factory, local bool) {
	for _, place := range []struct {
		name string
		self bool
	}{{"remote", false}, {"self", true}} {
		t.Run(place.name, func(t *testing.T) {
			for _, group := range []struct {
				name   string
				checks []check
			}{
				{"call", callChecks()},
				{"overflow", overflowChecks()},
				{"cancel", cancelChecks()},
				{"crowd", crowdChecks()},
				{"turns", turnChecks()},
				{"bulk", bulkChecks()},
				{"middleware", middlewareChecks()},
			} {
				t.Run(group.name, func(t *testing.T) {
					for _, c := range group.checks {
						runCheck(t, c, rig{make: f, local: local, self: place.self})
					}
				})
			}
		})
	}
	t.Run("process", func(t *testing.T) {
		for _, c := range processChecks() {
			runCheck(t, c, rig{make: f, local: local})
		}
	})
}

func runCheck(t *testing.T, c check, r rig) {
	suite.Run(t, c.name, patience, func(s *suite.Rig) {
		r.Rig = s
		c.run(&r)
	})
}

// rig is what one check works with: elements that end with it.
type rig struct {
	*suite.Rig
	make  factory
	local bool // the transport reaches no other process
	self  bool // caller and callee are one element
	sides int
}

// side is an element that calls and serves.
type side struct {
	*rpc.Peer
	el   *fabric.Element
	addr string
}

func newSide(f factory, name string, cfg rpc.Config) (*side, error) {
	tr, listen, err := f()
	if err != nil {
		return nil, err
	}
	el, err := fabric.New(fabric.Config{Name: name, Several: true, Transports: []fabric.Transport{tr}})
	if err != nil {
		tr.Close()
		return nil, err
	}
	s := &side{el: el}
	if s.Peer, err = rpc.New(el, cfg); err == nil {
		s.addr, err = el.Listen(listen)
	}
	if err != nil {
		el.Close()
		return nil, err
	}
	return s, nil
}

func (s *side) close() error {
	s.Peer.Close()
	return s.el.Close()
}

// side makes a listening element.
func (r *rig) side(cfg rpc.Config) *side {
	r.Helper()
	s, err := newSide(r.make, fmt.Sprintf("side %d", r.sides), cfg)
	r.Must(err)
	r.sides++
	r.AtEnd(func() {
		if err := s.close(); err != nil {
			r.Errorf("Close: %v", err)
		}
	})
	return s
}

// pair makes a caller and a callee, which may be one, and the caller's endpoint. cfg
// is for both.
func (r *rig) pair(cfg rpc.Config) (a, b *side, ep *fabric.Endpoint) {
	r.Helper()
	a = r.side(cfg)
	b = a
	if !r.self {
		b = r.side(cfg)
	}
	return a, b, r.dial(a, b)
}

func (r *rig) dial(a, b *side) *fabric.Endpoint {
	r.Helper()
	ep, err := a.el.Dial(r.Ctx, b.addr)
	r.Must(err)
	return ep
}

// serve registers a handler.
func (r *rig) serve(s *side, name string, o rpc.Options, fn rpc.Handler) {
	r.Helper()
	r.Must(s.Register(name, fn, o))
}

func inline() rpc.Options   { return rpc.Options{Inline: true} }
func blocking() rpc.Options { return rpc.Options{} }

func echo(_ context.Context, c *rpc.Call) ([]byte, error) { return c.Req, nil }

// untilDone is a handler that waits for its context's end.
func untilDone(ended chan<- error) rpc.Handler {
	return func(ctx context.Context, _ *rpc.Call) ([]byte, error) {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}
}

// echoes calls echo and looks at the answer.
func (r *rig) echoes(a *side, ep *fabric.Endpoint, req []byte) {
	r.Helper()
	got, err := a.Call(r.Ctx, ep, "echo", req)
	r.Must(err)
	if !bytes.Equal(got, req) {
		r.Fatalf("%d bytes came back as %d others", len(req), len(got))
	}
}

// start starts a call as soon as there is room for it.
func (r *rig) start(a *side, ep *fabric.Endpoint, name string, req []byte) rpc.Future {
	r.Helper()
	for {
		f, err := a.Start(r.Ctx, ep, name, req)
		if !errors.Is(err, fabric.ErrBackpressure) || r.Ctx.Err() != nil {
			r.Must(err)
			return f
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// settled waits until no payload is lent any more, and no handler runs.
func (r *rig) settled(sides ...*side) {
	r.Helper()
	r.Eventually("all payloads are given back", func() bool {
		for _, s := range sides {
			if st := s.Stats(); st.BulkBytes != st.PoolBytes || st.Active != 0 || st.Parked != 0 || st.HeldBytes != 0 {
				return false
			}
		}
		return true
	})
}
