package inject

import (
	"fmt"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// Tracer makes spans of runs. A run is one visit of one branch to one element;
// only those whose origin sent a trace context along (Options.Trace) are traced. StartRun is
// called on the goroutine that runs the function and must not block. It returns the context that goes along with
// what the run sends on, so that the next hop's span is a child of this one's, and a function
// that is called once when the run has ended. Package inject/oteltrace has one for OpenTelemetry.
type Tracer interface {
	StartRun(parent travel.Trace, run RunInfo) (own travel.Trace, end func(err error))
}

// RunInfo says what a Tracer may want to know of a run.
type RunInfo struct {
	Function   string // the image's name
	Element    string // this element's name
	Principal  string // whose authority it has: its origin's
	Invocation travel.InvocationID
	Branch     uint64
	HopsLeft   uint16
	Bytes      int // of the payload
}

// startSpan begins the run's span, if it is traced.
func (h *host) startSpan() {
	rt, run := h.rt, h.run
	parent, ok := run.Trace()
	if !ok {
		return
	}
	own, end := rt.cfg.Tracer.StartRun(parent, RunInfo{Function: h.bound.code.img.Name(), Element: rt.el.Name(), Principal: h.bound.principal,
		Invocation: run.Invocation(), Branch: run.Branch(), HopsLeft: run.Hops(), Bytes: len(run.Payload)})
	rt.mu.Lock()
	run.SetTrace(own)
	rt.mu.Unlock()
	h.endSpan = end
}

// spanError is what the span of a run hears of its end.
func spanError(end *travel.End) error {
	if end.Code == travel.CodeOK {
		return nil
	}
	if end.Code == travel.CodeFunction {
		return fmt.Errorf("status %d: %s", end.Status, end.Text)
	}
	return fmt.Errorf("%v: %s", end.Code, end.Text)
}
