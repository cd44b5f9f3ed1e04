// Package oteltrace has functions that travel take part in OpenTelemetry traces: a
// span for each visit to an element, a child of the one before, whichever processes
// they are in. It needs the OpenTelemetry API only; the program brings the SDK:
//
//	rt, err := inject.NewRuntime(el, inject.Config{Tracer: oteltrace.New(provider.Tracer("wherry"))})
//	fut, err := fn.Start(ctx, roots, inject.Options{Trace: oteltrace.FromContext(ctx)})
//
// What travels is the W3C trace context without its tracestate: a branch's header
// has room for 25 bytes of it, not for vendors' notes.
package oteltrace

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// Attribute names follow OpenTelemetry's conventions for functions as a service.
const (
	attrFunction   = attribute.Key("faas.name")
	attrInvocation = attribute.Key("faas.invocation_id")
	attrElement    = attribute.Key("wherry.element")
	attrBranch     = attribute.Key("wherry.branch")
	attrHops       = attribute.Key("wherry.hops_left")
	attrWho        = attribute.Key("enduser.id")
	attrBytes      = attribute.Key("wherry.payload.size")
)

// New makes spans with t, which must not be nil.
func New(t trace.Tracer) inject.Tracer { return &tracer{t} }

type tracer struct{ t trace.Tracer }

// StartRun implements inject.Tracer. The span's kind is consumer: no caller waits for a hop as a client waits for a server.
func (t *tracer) StartRun(parent travel.Trace, run inject.RunInfo) (own travel.Trace, end func(error)) {
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), ToSpan(parent))
	_, span := t.t.Start(ctx, run.Function, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attrFunction.String(run.Function), attrInvocation.String(run.Invocation.String()), attrElement.String(run.Element),
			attrBranch.Int64(int64(run.Branch)), attrHops.Int(int(run.HopsLeft)), attrWho.String(run.Principal), attrBytes.Int(run.Bytes)))
	if own = parent; span.SpanContext().IsValid() { // else nothing is recorded here, and what comes after belongs to what came before
		own = fromSpan(span.SpanContext())
	}
	return own, func(err error) {
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// FromContext is the trace context of ctx's span, for inject.Options; nil if there is none.
func FromContext(ctx context.Context) *travel.Trace {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return nil
	}
	t := fromSpan(sc)
	return &t
}

func fromSpan(sc trace.SpanContext) travel.Trace {
	return travel.Trace{TraceID: sc.TraceID(), Span: sc.SpanID(), Flags: byte(sc.TraceFlags())}
}

// ToSpan is what came with a branch as the context of a remote span.
func ToSpan(t travel.Trace) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: t.TraceID, SpanID: t.Span, TraceFlags: trace.TraceFlags(t.Flags), Remote: true})
}
