package rpctest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

func middlewareChecks() []check {
	return []check{
		{"begin and end at both sides", interceptorEnds},
		{"refusal by the caller", interceptorRefuses},
		{"trace context", traceContext},
		{"authorisation by principal", authorisation},
	}
}

// journal notes what interceptors see.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "error"
}

func (j *journal) caller(tag string) rpc.CallerInterceptor {
	return func(_ context.Context, o *rpc.Outgoing) (func(error), error) {
		j.add("%s> %s %d %v", tag, o.Name, o.Bytes, o.OneWay)
		return func(err error) { j.add("%s< %s %s", tag, o.Name, outcome(err)) }, nil
	}
}

func (j *journal) server(tag string) rpc.ServerInterceptor {
	return func(ctx context.Context, c *rpc.Call) (context.Context, func(error), error) {
		j.add("%s> %s %d %v", tag, c.Name, c.Bytes, c.OneWay)
		name := c.Name
		return context.WithValue(ctx, tagKey{}, tag), func(err error) { j.add("%s< %s %s", tag, name, outcome(err)) }, nil
	}
}

type tagKey struct{}

func interceptorEnds(r *rig) {
	var calls, serves journal
	a, b, ep := r.pair(rpc.Config{
		Callers: []rpc.CallerInterceptor{calls.caller("outer"), calls.caller("inner")},
		Servers: []rpc.ServerInterceptor{serves.server("outer"), serves.server("inner")},
	})
	r.serve(b, "inline", inline(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		if ctx.Value(tagKey{}) != "inner" {
			return nil, errors.New("not the interceptors' context")
		}
		return nil, nil
	})
	r.serve(b, "fails", blocking(), func(context.Context, *rpc.Call) ([]byte, error) { return nil, errors.New("no") })
	r.serve(b, "later", inline(), func(_ context.Context, c *rpc.Call) ([]byte, error) {
		err := c.Detach()
		go c.Reply(nil, nil)
		return nil, err
	})
	entered, ended := make(chan struct{}, 1), make(chan error, 1)
	r.serve(b, "hold", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		entered <- struct{}{}
		return untilDone(ended)(ctx, c)
	})
	look := func(name string, bytes int, oneWay bool, caller, server string) {
		r.Helper()
		want := func(result string) []string {
			head := fmt.Sprintf("> %s %d %v", name, bytes, oneWay)
			return []string{"outer" + head, "inner" + head, "inner< " + name + " " + result, "outer< " + name + " " + result}
		}
		if got := calls.take(); !slices.Equal(got, want(caller)) {
			r.Errorf("%s: the caller's interceptors saw %q", name, got)
		}
		r.settled(b)
		var got []string
		r.Eventually("the callee's interceptors saw it", func() bool { got = append(got, serves.take()...); return len(got) == 4 })
		if !slices.Equal(got, want(server)) {
			r.Errorf("%s: the callee's interceptors saw %q", name, got)
		}
	}
	for _, n := range []int{3, 100_000} {
		_, err := a.Call(r.Ctx, ep, "inline", make([]byte, n))
		r.Must(err)
		look("inline", n, false, "ok", "ok")
	}
	if _, err := a.Call(r.Ctx, ep, "fails", nil); err == nil {
		r.Error("it succeeded")
	}
	look("fails", 0, false, "error", "error")
	_, err := a.Call(r.Ctx, ep, "later", []byte("x"))
	r.Must(err)
	look("later", 1, false, "ok", "ok")
	r.Must(a.Send(r.Ctx, ep, "inline", nil))
	look("inline", 0, true, "ok", "ok")
	f := r.start(a, ep, "hold", nil)
	<-entered
	f.Forget()
	<-ended
	look("hold", 0, false, "cancelled", "cancelled")
}

func interceptorRefuses(r *rig) {
	refused := errors.New("not today")
	var ends atomic.Int64
	a, b, ep := r.pair(rpc.Config{Callers: []rpc.CallerInterceptor{
		func(context.Context, *rpc.Outgoing) (func(error), error) {
			return func(err error) {
				if errors.Is(err, refused) {
					ends.Add(1)
				}
			}, nil
		},
		func(_ context.Context, o *rpc.Outgoing) (func(error), error) {
			if o.Bytes > 10 {
				return nil, refused
			}
			return nil, nil
		},
	}})
	r.serve(b, "echo", inline(), echo)
	r.echoes(a, ep, []byte("short"))
	for _, n := range []int{11, 100_000} {
		if _, err := a.Call(r.Ctx, ep, "echo", make([]byte, n)); !errors.Is(err, refused) {
			r.Errorf("%v", err)
		}
	}
	if ends.Load() != 2 || b.Stats().Served != 1 {
		r.Errorf("%d ends, %d served", ends.Load(), b.Stats().Served)
	}
	r.settled(a, b)
}

// tracer is a small one: a span is a number, and a context carries the current one.
type tracer struct {
	mu    sync.Mutex
	spans map[[8]byte]string // span to "parent name"
	n     byte
}

type spanKey struct{}

func (t *tracer) begin(parent rpc.TraceContext, name string) rpc.TraceContext {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	child := parent
	child.SpanID = [8]byte{t.n}
	t.spans[child.SpanID] = fmt.Sprintf("%d %s", parent.SpanID[0], name)
	return child
}

func (t *tracer) caller(ctx context.Context, o *rpc.Outgoing) (func(error), error) {
	if parent, ok := ctx.Value(spanKey{}).(rpc.TraceContext); ok {
		o.Trace = t.begin(parent, "call "+o.Name)
	}
	return nil, nil
}

func (t *tracer) server(ctx context.Context, c *rpc.Call) (context.Context, func(error), error) {
	if !c.Trace.Valid() {
		return ctx, nil, nil
	}
	return context.WithValue(ctx, spanKey{}, t.begin(c.Trace, "serve "+c.Name)), nil, nil
}

func traceContext(r *rig) {
	t := &tracer{spans: map[[8]byte]string{}}
	a, b, ep := r.pair(rpc.Config{Callers: []rpc.CallerInterceptor{t.caller}, Servers: []rpc.ServerInterceptor{t.server}})
	seen := make(chan rpc.TraceContext, 3)
	r.serve(a, "leaf", inline(), func(_ context.Context, c *rpc.Call) ([]byte, error) { seen <- c.Trace; return nil, nil })
	r.serve(b, "relay", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		seen <- c.Trace
		return b.Call(ctx, c.From, "leaf", c.Req)
	})
	root := rpc.TraceContext{TraceID: [16]byte{0xaa, 1}, SpanID: [8]byte{100}, Flags: 1, State: "vendor=value,other=1"}
	for _, n := range []int{0, 20_000} {
		t.n, t.spans = 0, map[[8]byte]string{}
		_, err := a.Call(context.WithValue(r.Ctx, spanKey{}, root), ep, "relay", make([]byte, n))
		r.Must(err)
		for range 2 {
			if got := <-seen; got.TraceID != root.TraceID || got.Flags != 1 || got.State != root.State {
				r.Errorf("a handler got %+v", got)
			}
		}
		want := map[byte]string{1: "100 call relay", 2: "1 serve relay", 3: "2 call leaf", 4: "3 serve leaf"}
		for id, line := range want {
			if t.spans[[8]byte{id}] != line {
				r.Errorf("span %d is %q, want %q", id, t.spans[[8]byte{id}], line)
			}
		}
	}
	// Without a trace none arrives, and a state that is too long stays at home.
	_, err := a.Call(r.Ctx, ep, "relay", nil)
	r.Must(err)
	if got := <-seen; got.Valid() {
		r.Errorf("a handler got %+v of nothing", got)
	}
	<-seen
	root.State = strings.Repeat("x", rpc.MaxTraceStateBytes+1)
	_, err = a.Call(context.WithValue(r.Ctx, spanKey{}, root), ep, "relay", nil)
	r.Must(err)
	if got := <-seen; got.TraceID != root.TraceID || got.State != "" {
		r.Errorf("a handler got %+v", got)
	}
	<-seen
}

func authorisation(r *rig) {
	var asked sync.Map
	allow := func(who fabric.Principal, call string) error {
		asked.Store(who.Name, true)
		if strings.HasPrefix(call, "admin.") {
			return errors.New("it is the operator's")
		}
		return nil
	}
	a, b, ep := r.pair(rpc.Config{Servers: []rpc.ServerInterceptor{rpc.Authorize(allow)}})
	var ran atomic.Int64
	count := func(context.Context, *rpc.Call) ([]byte, error) { ran.Add(1); return nil, nil }
	r.serve(b, "user.x", inline(), count)
	r.serve(b, "admin.inline", inline(), count)
	r.serve(b, "admin.blocking", blocking(), count)
	for _, name := range []string{"admin.inline", "admin.blocking"} {
		for _, n := range []int{0, 200_000} {
			_, err := a.Call(r.Ctx, ep, name, make([]byte, n))
			var re *rpc.RemoteError
			if !errors.Is(err, rpc.ErrDenied) || !errors.As(err, &re) || !strings.Contains(re.Text, "it is the operator's") {
				r.Errorf("%s with %d bytes: %v", name, n, err)
			}
			r.Must(a.Send(r.Ctx, ep, name, make([]byte, n)))
		}
	}
	_, err := a.Call(r.Ctx, ep, "user.x", nil)
	r.Must(err)
	r.settled(a, b)
	r.Eventually("the one-way calls are over", func() bool { return b.Stats().Served == 9 })
	if ran.Load() != 1 {
		r.Errorf("%d handlers ran", ran.Load())
	}
	if _, ok := asked.Load(b.el.Endpoints()[0].Principal().Name); !ok {
		r.Error("the caller's principal was not asked about")
	}
}
