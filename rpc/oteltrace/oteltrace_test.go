package oteltrace_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/rpc"
	"github.com/wherry-fabric/wherry/rpc/oteltrace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryTracer is a tracer that keeps its spans. It stands for an SDK.
type memoryTracer struct {
	embedded.Tracer
	mu    sync.Mutex
	spans []*memorySpan
}

type memorySpan struct {
	noop.Span
	t      *memoryTracer
	sc     trace.SpanContext
	parent trace.SpanContext
	name   string
	kind   trace.SpanKind
	status codes.Code
	ended  bool
}

func (t *memoryTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cfg := trace.NewSpanStartConfig(opts...)
	s := &memorySpan{t: t, name: name, kind: cfg.SpanKind(), parent: trace.SpanContextFromContext(ctx)}
	c := trace.SpanContextConfig{TraceID: s.parent.TraceID(), TraceFlags: trace.FlagsSampled, TraceState: s.parent.TraceState()}
	if !s.parent.IsValid() {
		binary.BigEndian.PutUint64(c.TraceID[:], uint64(len(t.spans)+1))
	}
	binary.BigEndian.PutUint64(c.SpanID[:], uint64(len(t.spans)+1))
	s.sc = trace.NewSpanContext(c)
	t.spans = append(t.spans, s)
	return trace.ContextWithSpan(ctx, s), s
}

func (s *memorySpan) SpanContext() trace.SpanContext { return s.sc }

func (s *memorySpan) SetStatus(c codes.Code, _ string) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.status = c
}

func (s *memorySpan) End(...trace.SpanEndOption) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.ended = true
}

// side is an element with a Peer that is traced.
func side(t *testing.T, name string, tr trace.Tracer) (*rpc.Peer, string) {
	t.Helper()
	tp, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: name, Transports: []fabric.Transport{tp}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := rpc.New(el, rpc.Config{Callers: []rpc.CallerInterceptor{oteltrace.Caller(tr)}, Servers: []rpc.ServerInterceptor{oteltrace.Server(tr)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(); el.Close() })
	addr, err := el.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return p, addr
}

// TestOneTrace follows a call over three elements: every span is in one trace, each below the one before.
func TestOneTrace(t *testing.T) {
	tr := &memoryTracer{}
	a, _ := side(t, "a", tr)
	b, bAddr := side(t, "b", tr)
	c, cAddr := side(t, "c", tr)
	ab, err := a.Element().Dial(t.Context(), bAddr)
	if err != nil {
		t.Fatal(err)
	}
	bc, err := b.Element().Dial(t.Context(), cAddr)
	if err != nil {
		t.Fatal(err)
	}
	c.Register("fail", func(context.Context, *rpc.Call) ([]byte, error) { return nil, errors.New("no") }, rpc.Options{Inline: true})
	b.Register("relay", func(ctx context.Context, _ *rpc.Call) ([]byte, error) { return b.Call(ctx, bc, "fail", nil) }, rpc.Options{})
	ctx, root := tr.Start(t.Context(), "root")
	if _, err := a.Call(ctx, ab, "relay", nil); err == nil {
		t.Fatal("it succeeded")
	}
	root.End()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	want := []string{"root 1", "relay 3", "relay 2", "fail 3", "fail 2"} // internal, client, server
	if len(tr.spans) != len(want) {
		t.Fatalf("%d spans", len(tr.spans))
	}
	for i, s := range tr.spans {
		if got := fmt.Sprintf("%s %d", s.name, s.kind); got != want[i] && i > 0 {
			t.Errorf("span %d is %s, want %s", i, got, want[i])
		}
		if !s.ended || s.sc.TraceID() != root.SpanContext().TraceID() || i > 0 && s.status != codes.Error {
			t.Errorf("span %d (%s): ended %v, trace %v, status %v", i, s.name, s.ended, s.sc.TraceID(), s.status)
		}
		if i > 0 && s.parent.SpanID() != tr.spans[i-1].sc.SpanID() {
			t.Errorf("span %d (%s) is below %v", i, s.name, s.parent.SpanID())
		}
		if remote := s.kind == trace.SpanKindServer; i > 0 && s.parent.IsRemote() != remote {
			t.Errorf("span %d (%s): its parent is remote: %v", i, s.name, s.parent.IsRemote())
		}
	}
}

func TestSpanContexts(t *testing.T) {
	if got := oteltrace.FromSpan(trace.SpanContext{}); got.Valid() || got.State != "" {
		t.Errorf("no span became %+v", got)
	}
	want := rpc.TraceContext{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 1, State: "a=b,c=d"}
	if got := oteltrace.FromSpan(oteltrace.ToSpan(want)); got != want {
		t.Errorf("%+v became %+v", want, got)
	}
	want.State = "no state at all"
	if got := oteltrace.ToSpan(want); got.TraceState().Len() != 0 || !got.IsValid() || !got.IsRemote() {
		t.Errorf("%+v", got)
	}
}
