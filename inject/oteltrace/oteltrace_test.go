package oteltrace_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/oteltrace"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector keeps the spans of all elements, as a tracing backend would.
type collector struct {
	mu    sync.Mutex
	spans []*span
}

// recorder is one element's tracer.
type recorder struct {
	embedded.Tracer
	to *collector
}

type span struct {
	noop.Span
	to     *collector
	sc     trace.SpanContext
	parent trace.SpanContext
	name   string
	attrs  map[string]string
	status codes.Code
	why    string
	ended  int
}

func (r *recorder) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	r.to.mu.Lock()
	defer r.to.mu.Unlock()
	cfg := trace.NewSpanStartConfig(opts...)
	s := &span{to: r.to, name: name, parent: trace.SpanContextFromContext(ctx), attrs: map[string]string{}}
	for _, a := range cfg.Attributes() {
		s.attrs[string(a.Key)] = a.Value.Emit()
	}
	c := trace.SpanContextConfig{TraceID: s.parent.TraceID(), TraceFlags: trace.FlagsSampled}
	if !s.parent.IsValid() {
		c.TraceID[0] = byte(len(r.to.spans) + 1)
	}
	binary.BigEndian.PutUint64(c.SpanID[:], uint64(len(r.to.spans)+1))
	s.sc = trace.NewSpanContext(c)
	r.to.spans = append(r.to.spans, s)
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) SpanContext() trace.SpanContext { return s.sc }

func (s *span) SetStatus(c codes.Code, why string) {
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	s.status, s.why = c, why
}

func (s *span) End(...trace.SpanEndOption) {
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	s.ended++
}

// patience bounds every wait that a bug could make endless.
const patience = 30 * time.Second

// ended waits until n spans have ended: the last one may end after its answer has arrived.
func (c *collector) ended(t *testing.T, n int) []*span {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		done := 0
		for _, s := range c.spans {
			done += s.ended
		}
		list := append([]*span(nil), c.spans...)
		c.mu.Unlock()
		if done >= n {
			return list
		}
		if time.Now().After(until) {
			t.Fatalf("%d spans have ended, want %d", done, n)
		}
	}
}

type everybody struct{}

func (everybody) Self() (string, []byte) { return "", nil }
func (everybody) Lookup(string) ([]byte, fabric.Principal, bool) {
	return nil, fabric.Principal{}, false
}
func (everybody) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{Name: "alice", Caps: uint32(cluster.CapsAll)}, true
}

type member struct {
	el *fabric.Element
	rt *inject.Runtime
	at string
}

// join makes an element with a runtime, connected to those before it.
func join(t *testing.T, name string, tracer trace.Tracer, before ...*member) *member {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tr, err := tcp.New(tcp.Config{})
	must(err)
	m := &member{}
	m.el, err = fabric.New(fabric.Config{Name: name, Transports: []fabric.Transport{tr}, Auth: everybody{}})
	must(err)
	engine, err := wasm.New(wasm.Config{})
	must(err)
	t.Cleanup(func() { engine.Close() })
	cfg := inject.Config{Engines: []abi.Engine{wasm.Runner{Engine: engine}}}
	if tracer != nil {
		cfg.Tracer = oteltrace.New(tracer)
	}
	m.rt, err = inject.NewRuntime(m.el, cfg)
	must(err)
	t.Cleanup(func() { m.el.Close() })
	t.Cleanup(func() { m.rt.Close() })
	m.at, err = m.el.Listen("tcp://127.0.0.1:0")
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, b := range before {
		_, err := m.el.Dial(ctx, b.at)
		must(err)
	}
	return m
}

// ring is a table of one row per node, each naming the next.
func ring(t *testing.T, nodes []*member) *cluster.Table {
	t.Helper()
	n := uint64(len(nodes))
	table := &cluster.Table{Name: "ring", Version: 1, Kind: cluster.Raw, Sharding: cluster.Sharding{Kind: cluster.Block, Elements: uint32(n), Rows: n}}
	for i, m := range nodes {
		seg, err := m.el.NewSegment(8, fabric.Writable)
		if err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint64(seg.Bytes(), (uint64(i)+1)%n)
		key, err := seg.Key(fabric.RightRead)
		if err != nil {
			t.Fatal(err)
		}
		table.Shards = append(table.Shards, cluster.Shard{Element: m.el.Name(), Incarnation: m.el.Incarnation(), Addrs: m.el.Addrs(),
			Windows: []cluster.Window{{Key: key, Size: 8}}})
	}
	table.FillRows()
	return table
}

// chase runs a chase of three steps round the ring, from the client's span.
func chase(t *testing.T, tracers [3]trace.Tracer, client trace.Tracer, args []byte) (parent trace.SpanContext, err error) {
	t.Helper()
	var nodes []*member
	for i, tr := range tracers {
		nodes = append(nodes, join(t, fmt.Sprintf("n%d", i), tr, nodes...))
	}
	origin := join(t, "client", nil, nodes...)
	f, err := origin.rt.Prepare(xrdma.Chase(), ring(t, nodes))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if client != nil {
		var s trace.Span
		ctx, s = client.Start(ctx, "question")
		defer s.End()
		parent = s.SpanContext()
	}
	fut, err := f.Start(ctx, []inject.Root{{Payload: args}}, inject.Options{Trace: oteltrace.FromContext(ctx)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = fut.Wait(ctx)
	return parent, err
}

// TestThreeHops reads one trace of a function that visits three processes'
// worth of elements: each visit is a span, the child of the visit before.
func TestThreeHops(t *testing.T) {
	c := &collector{}
	r := &recorder{to: c}
	parent, err := chase(t, [3]trace.Tracer{r, r, r}, r, xrdma.ChaseArgs(0, 3))
	if err != nil {
		t.Fatal(err)
	}
	spans := c.ended(t, 4)
	if len(spans) != 4 {
		t.Fatalf("%d spans, want the question's and one for each of three visits", len(spans))
	}
	invocation := spans[1].attrs["faas.invocation_id"]
	for i, s := range spans[1:] {
		switch {
		case s.sc.TraceID() != parent.TraceID():
			t.Errorf("visit %d is in trace %v, want %v", i, s.sc.TraceID(), parent.TraceID())
		case s.parent.SpanID() != spans[i].sc.SpanID() || !s.parent.IsRemote():
			t.Errorf("visit %d has the parent %v, want that of the visit before, %v, as a remote one", i, s.parent.SpanID(), spans[i].sc.SpanID())
		case s.attrs["wherry.element"] != fmt.Sprintf("n%d", i), s.name != "chase", s.attrs["enduser.id"] != "alice", s.attrs["faas.invocation_id"] != invocation || invocation == "":
			t.Errorf("visit %d: %s %v", i, s.name, s.attrs)
		case s.ended != 1 || s.status != codes.Unset:
			t.Errorf("visit %d ended %d times, with %v", i, s.ended, s.status)
		}
	}
}

// An element that traces nothing passes the context on as it came.
func TestGap(t *testing.T) {
	c := &collector{}
	r := &recorder{to: c}
	for name, middle := range map[string]trace.Tracer{"no tracer": nil, "one that records nothing": noop.NewTracerProvider().Tracer("")} {
		c.spans = nil
		if _, err := chase(t, [3]trace.Tracer{r, middle, r}, r, xrdma.ChaseArgs(0, 3)); err != nil {
			t.Fatal(err)
		}
		spans := c.ended(t, 3)
		if len(spans) != 3 || spans[2].attrs["wherry.element"] != "n2" || spans[2].parent.SpanID() != spans[1].sc.SpanID() {
			t.Errorf("%s: %d spans; n2's must be the child of n0's", name, len(spans))
		}
	}
}

// A function that fails says so in its span, and one that nobody traces has none.
func TestFailureAndSilence(t *testing.T) {
	c := &collector{}
	r := &recorder{to: c}
	if _, err := chase(t, [3]trace.Tracer{r, r, r}, r, []byte("neither 16 nor 22 bytes")); err == nil {
		t.Fatal("a chase took nonsense for arguments")
	}
	spans := c.ended(t, 2)
	if len(spans) != 2 || spans[1].status != codes.Error || spans[1].why == "" {
		t.Errorf("%d spans; the second has status %v, %q", len(spans), spans[1].status, spans[1].why)
	}
	c.spans = nil
	if _, err := chase(t, [3]trace.Tracer{r, r, r}, nil, xrdma.ChaseArgs(0, 3)); err != nil {
		t.Fatal(err)
	}
	if len(c.spans) != 0 {
		t.Errorf("%d spans of a function without a trace", len(c.spans))
	}
}
