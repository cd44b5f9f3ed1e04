// Package oteltrace has calls take part in OpenTelemetry traces: a span for each
// call at the caller, one for each that is served, and the W3C trace context between
// them. It needs the OpenTelemetry API only; the program brings the SDK:
//
//	tracer := provider.Tracer("wherry")
//	p, err := rpc.New(el, rpc.Config{
//		Callers: []rpc.CallerInterceptor{oteltrace.Caller(tracer)},
//		Servers: []rpc.ServerInterceptor{oteltrace.Server(tracer)},
//	})
//
// A handler's context has its span, so calls that it makes with that context
// belong to the same trace.
package oteltrace

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/wherry-fabric/wherry/rpc"
)

// Attribute names follow OpenTelemetry's conventions for calls.
const (
	attrSystem = attribute.Key("rpc.system")
	attrMethod = attribute.Key("rpc.method")
	attrPeer   = attribute.Key("peer.service")
	attrWho    = attribute.Key("enduser.id")
	attrBytes  = attribute.Key("rpc.request.size")
	attrCode   = attribute.Key("rpc.wherry.code")
)

// Caller makes a span for each call, and sends its context along.
func Caller(t trace.Tracer) rpc.CallerInterceptor {
	return func(ctx context.Context, o *rpc.Outgoing) (func(error), error) {
		_, span := t.Start(ctx, o.Name, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attrSystem.String("wherry"), attrMethod.String(o.Name), attrPeer.String(o.To.Name()), attrBytes.Int(o.Bytes)))
		o.Trace = FromSpan(span.SpanContext())
		return func(err error) { end(span, err) }, nil
	}
}

// Server makes a span for each call that is served, as a child of the caller's.
func Server(t trace.Tracer) rpc.ServerInterceptor {
	return func(ctx context.Context, c *rpc.Call) (context.Context, func(error), error) {
		if c.Trace.Valid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, ToSpan(c.Trace))
		}
		ctx, span := t.Start(ctx, c.Name, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attrSystem.String("wherry"), attrMethod.String(c.Name), attrPeer.String(c.From.Name()),
				attrWho.String(c.From.Principal().Name), attrBytes.Int(c.Bytes)))
		return ctx, func(err error) { end(span, err) }, nil
	}
}

func end(span trace.Span, err error) {
	if err != nil {
		var remote *rpc.RemoteError
		var own *rpc.Error
		switch {
		case errors.As(err, &remote):
			span.SetAttributes(attrCode.Int(int(remote.Code)))
		case errors.As(err, &own):
			span.SetAttributes(attrCode.Int(int(own.Code)))
		}
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// FromSpan is a span's context as it travels with a call; zero if it is not valid.
func FromSpan(sc trace.SpanContext) rpc.TraceContext {
	if !sc.IsValid() {
		return rpc.TraceContext{}
	}
	return rpc.TraceContext{TraceID: sc.TraceID(), SpanID: sc.SpanID(), Flags: byte(sc.TraceFlags()), State: sc.TraceState().String()}
}

// ToSpan is what came with a call as the context of a remote span. A state that does not parse
// is left out, as the W3C recommendation asks.
func ToSpan(t rpc.TraceContext) trace.SpanContext {
	state, err := trace.ParseTraceState(t.State)
	if err != nil {
		state = trace.TraceState{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: t.TraceID, SpanID: t.SpanID,
		TraceFlags: trace.TraceFlags(t.Flags), TraceState: state, Remote: true})
}
