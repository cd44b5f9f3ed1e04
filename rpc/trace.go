package rpc

import (
	"encoding/hex"
	"fmt"
)

const (
	traceBytes = 16 + 8 + 1
	// MaxTraceStateBytes bounds what vendors may add to a trace context: the W3C
	// recommendation has implementations carry at least this much.
	MaxTraceStateBytes = 512
)

// TraceContext says which trace a call belongs to (W3C Trace Context, level 1). It
// travels with the request. The zero value is no trace.
type TraceContext struct {
	TraceID [16]byte
	SpanID  [8]byte // the caller's span: the parent of the handler's
	Flags   byte    // 1: sampled
	State   string  // tracestate, as in the header of that name; at most MaxTraceStateBytes
}

// Valid reports whether there is a trace.
func (t *TraceContext) Valid() bool { return t.TraceID != [16]byte{} && t.SpanID != [8]byte{} }

// String is the value of a traceparent header.
func (t TraceContext) String() string {
	return fmt.Sprintf("00-%s-%s-%02x", hex.EncodeToString(t.TraceID[:]), hex.EncodeToString(t.SpanID[:]), t.Flags)
}
