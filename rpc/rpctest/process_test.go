package rpctest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
	"github.com/wherry-fabric/wherry/rpc"
)

func processChecks() []check {
	return []check{
		{"calls and bulk", processCalls},
		{"peer killed in the middle, called again after it came back", processKilled},
		{"caller killed", processCallerKilled},
		{"at most once per incarnation", processAtMostOnce},
	}
}

// roles are what children of the suite do.
func roles(f factory) map[string]suite.Role {
	return map[string]suite.Role{
		"serve": func(p *suite.Parent, args []string) error { return childServe(f, p, args) },
		"call":  func(_ *suite.Parent, args []string) error { return childCall(f, args) },
	}
}

// childServe serves until its standard input ends. args: where to listen, or "-"
// for the factory's word; a file to which "log" appends each request it runs.
func childServe(f factory, p *suite.Parent, args []string) error {
	if args[0] != "-" {
		made := f
		f = func() (fabric.Transport, string, error) {
			tr, _, err := made()
			return tr, args[0], err
		}
	}
	s, err := newSide(f, "child", rpc.Config{})
	if err != nil {
		return err
	}
	defer s.close()
	log, err := os.OpenFile(args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	err = errors.Join(
		s.Register("echo", echo, inline()),
		s.Register("hold", func(ctx context.Context, _ *rpc.Call) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }, blocking()),
		s.Register("log", func(_ context.Context, c *rpc.Call) ([]byte, error) {
			_, err := log.Write(append(c.Req, '\n')) // one write: a line is there whole, or not
			return nil, err
		}, inline()),
		s.Register("sum", func(ctx context.Context, c *rpc.Call) ([]byte, error) {
			b, _, err := rpc.DecodeBulk(c.Req)
			if err != nil {
				return nil, err
			}
			data := make([]byte, b.Size())
			if _, err := c.Pull(ctx, b, 0, rpc.Memory{data}); err != nil {
				return nil, err
			}
			sum := 0
			for i := range data {
				sum += int(data[i])
				data[i]++
			}
			_, err = c.Push(ctx, b, 0, rpc.Memory{data})
			return strconv.AppendInt(nil, int64(sum), 10), err
		}, blocking()))
	if err != nil {
		return err
	}
	if err := p.Encode(s.addr); err != nil {
		return err
	}
	var word string
	_ = p.Decode(&word) // nothing more is said: this waits for the end
	return s.close()
}

// childCall calls "hold" at an address, with a large request, until it is killed.
func childCall(f factory, args []string) error {
	s, err := newSide(f, "child", rpc.Config{})
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ep, err := s.el.Dial(ctx, args[0])
	if err != nil {
		return err
	}
	_, err = s.Call(ctx, ep, "hold", make([]byte, 100_000))
	return err
}

// child has a role played, by a process if the transport reaches one.
func (r *rig) child(role string, args ...string) suite.Child {
	r.Helper()
	if !r.local {
		return r.Spawn(role, args...)
	}
	f, made := suite.Kept(r.make)
	return r.Play(roles(f)[role], made, args...)
}

// server runs a child that serves, at an address or wherever it can.
func (r *rig) server(at, log string) (c suite.Child, addr string) {
	r.Helper()
	c = r.child("serve", at, log)
	return c, suite.Heard[string](r.Rig, c)
}

func processCalls(r *rig) {
	a := r.side(rpc.Config{})
	_, addr := r.server("-", filepath.Join(r.TempDir(), "log"))
	ep, err := a.el.Dial(r.Ctx, addr)
	r.Must(err)
	for _, n := range []int{0, 8, 5000, 100_000, 100_000, 3 << 20} {
		r.echoes(a, ep, suite.Pattern(n, 1))
	}
	seg := r.segment(a, 200_000, fabric.Writable, 0)
	copy(seg.Bytes(), make([]byte, 200_000))
	seg.Bytes()[7] = 5
	sum := rpc.Define("sum", rpc.BulkCodec{}, rpc.Text{})
	for i, spans := range [][]rpc.Span{{whole(seg)}, {{Segment: seg, Offset: 3, Size: 100_000}}} {
		b := r.expose(a, fabric.RightsAll, rpc.BulkOptions{}, spans...)
		want := []string{"5", "100005"}[i]
		if got, err := sum.Call(r.Ctx, a.Peer, ep, b); err != nil || got != want || seg.Bytes()[7] != byte(6+i) {
			r.Errorf("%q, %v, and %d is there", got, err, seg.Bytes()[7])
		}
	}
	r.settled(a)
}

func processKilled(r *rig) {
	a := r.side(rpc.Config{})
	log := filepath.Join(r.TempDir(), "log")
	server, addr := r.server("-", log)
	for range 3 {
		ep, err := a.el.Dial(r.Ctx, addr)
		r.Must(err)
		r.echoes(a, ep, suite.Pattern(100_000, 2))
		var futures []rpc.Future
		for i := range 20 {
			futures = append(futures, r.start(a, ep, "hold", make([]byte, i*5000)))
		}
		seg := r.segment(a, 8<<20, fabric.Writable, 3)
		b := r.expose(a, fabric.RightRead|fabric.RightWrite, rpc.BulkOptions{}, whole(seg))
		wire, err := b.Append(nil)
		r.Must(err)
		moving := r.start(a, ep, "sum", wire)
		server.Kill()
		for i, f := range futures {
			if _, err := f.Wait(r.Ctx); !errors.Is(err, rpc.ErrOutcomeUnknown) || !errors.Is(err, fabric.ErrPeerLost) {
				r.Fatalf("call %d of a killed peer: %v", i, err)
			}
		}
		if _, err := moving.Wait(r.Ctx); err != nil && !errors.Is(err, rpc.ErrOutcomeUnknown) {
			r.Errorf("the call that moved data: %v", err)
		}
		if _, err := a.Call(r.Ctx, ep, "echo", nil); !errors.Is(err, fabric.ErrPeerLost) || errors.Is(err, rpc.ErrOutcomeUnknown) {
			r.Errorf("a call that was not sent: %v", err)
		}
		r.Eventually("nothing is kept for the dead", func() bool { return a.Stats().BulkBytes == 0 })
		var again string
		if server, again = r.server(addr, log); again != addr {
			r.Fatalf("it came back at %s, not %s", again, addr)
		}
	}
	ep, err := a.el.Dial(r.Ctx, addr)
	r.Must(err)
	r.echoes(a, ep, suite.Pattern(100_000, 3))
}

func processCallerKilled(r *rig) {
	b := r.side(rpc.Config{})
	entered, ended := make(chan struct{}, 1), make(chan error, 1)
	r.serve(b, "hold", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		entered <- struct{}{}
		untilDone(ended)(ctx, c)
		return make([]byte, 1<<20), nil // for nobody
	})
	for range 2 {
		c := r.child("call", b.addr)
		<-entered
		c.Kill()
		if err := <-ended; !errors.Is(err, fabric.ErrPeerLost) {
			r.Errorf("the handler's context ended for %v", err)
		}
		r.settled(b)
		r.Eventually("nothing is kept for the dead", func() bool { return b.Stats().BulkBytes == 0 })
	}
}

// processAtMostOnce kills the callee again and again under calls that leave a
// mark: what succeeded was run once, what failed once or not at all.
func processAtMostOnce(r *rig) {
	a := r.side(rpc.Config{})
	log := filepath.Join(r.TempDir(), "log")
	server, addr := r.server("-", log)
	var mu sync.Mutex
	succeeded := map[string]bool{}
	unknown := 0
	for life := range 4 {
		ep, err := a.el.Dial(r.Ctx, addr)
		r.Must(err)
		var wg sync.WaitGroup
		for who := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					name := fmt.Sprintf("%d-%d-%d", life, who, i)
					_, err := a.Call(r.Ctx, ep, "log", []byte(name))
					mu.Lock()
					if err == nil {
						succeeded[name] = true
					} else if errors.Is(err, rpc.ErrOutcomeUnknown) {
						unknown++
					}
					mu.Unlock()
					if err != nil {
						if !errors.Is(err, fabric.ErrPeerLost) {
							r.Errorf("%s: %v", name, err)
						}
						return
					}
				}
			})
		}
		r.Eventually("a call succeeds", func() bool { mu.Lock(); defer mu.Unlock(); return len(succeeded) > 0 })
		time.Sleep(30 * time.Millisecond)
		server.Kill()
		wg.Wait()
		server, _ = r.server(addr, log)
	}
	text, err := os.ReadFile(log)
	r.Must(err)
	runs := map[string]int{}
	for line := range strings.Lines(string(text)) {
		runs[strings.TrimSpace(line)]++
	}
	for name, n := range runs {
		if n != 1 {
			r.Errorf("%s ran %d times", name, n)
		}
	}
	for name := range succeeded {
		if runs[name] != 1 {
			r.Errorf("%s succeeded and ran %d times", name, runs[name])
		}
	}
	if len(runs) > len(succeeded)+unknown || len(succeeded) == 0 {
		r.Errorf("%d ran, %d succeeded, of %d it is not known", len(runs), len(succeeded), unknown)
	}
}
