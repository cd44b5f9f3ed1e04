package rpc

import (
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/fabric"
)

// Outgoing is a call that is about to be sent, for interceptors.
type Outgoing struct {
	Name   string
	To     *fabric.Endpoint
	OneWay bool
	Bytes  int          // of the request
	Trace  TraceContext // an interceptor's to set: it travels with the request
}

// CallerInterceptor sees a call before it is sent. An error ends the call with it.
// Otherwise end, unless it is nil, is called once with the call's outcome, on the
// goroutine that learns of it; for a one-way call that is when it was sent.
type CallerInterceptor func(ctx context.Context, o *Outgoing) (end func(err error), err error)

// ServerInterceptor sees a call before its handler does, and before a large
// request is fetched: Call.Req may not be there yet. It runs where the handler will. The
// context it returns is the handler's. An error is the call's answer. Otherwise end, unless
// it is nil, is called once with the outcome, before the answer is sent.
type ServerInterceptor func(ctx context.Context, c *Call) (inner context.Context, end func(err error), err error)

// intercept has the interceptors see a call.
func (c *conn) intercept(ctx context.Context, s *sending) error {
	o := &Outgoing{Name: s.to.name, To: c.ep, OneWay: s.req.oneWay(), Bytes: len(s.req.body)}
	for _, fn := range c.p.cfg.Callers {
		end, err := fn(ctx, o)
		if end != nil {
			s.ends = append(s.ends, end)
		}
		if err != nil {
			return err
		}
	}
	if o.Trace.Valid() {
		if len(o.Trace.State) > MaxTraceStateBytes {
			o.Trace.State = "" // the recommendation's rule for what is too long to carry
		}
		s.req.ext = appendTrace(nil, &o.Trace)
	}
	return nil
}

// endAll tells interceptors of an end, the innermost first.
func endAll(ends []func(error), err error) {
	for i := len(ends) - 1; i >= 0; i-- {
		ends[i](err)
	}
}

// Authorize makes an interceptor that asks allow whether a principal may make a
// call; its error, with CodeDenied, is what a caller who may not gets to read.
func Authorize(allow func(who fabric.Principal, call string) error) ServerInterceptor {
	return func(ctx context.Context, c *Call) (context.Context, func(error), error) {
		who := c.From.Principal()
		if err := allow(who, c.Name); err != nil {
			return ctx, nil, &Error{CodeDenied, fmt.Sprintf("%q may not call %s: %v", who.Name, c.Name, err)}
		}
		return ctx, nil, nil
	}
}
