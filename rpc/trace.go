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

// ParseTraceparent reads the value of a traceparent header.
func ParseTraceparent(s string) (TraceContext, error) {
	var t TraceContext
	bad := func() (TraceContext, error) {
		return TraceContext{}, fmt.Errorf("rpc: %q is no traceparent: want 00-<32 hex digits>-<16 hex digits>-<2 hex digits>", clipText(s, 64))
	}
	if len(s) < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" || s[:2] == "00" && len(s) != 55 || len(s) > 55 && s[55] != '-' {
		return bad()
	}
	for i, c := range []byte(s[:55]) {
		if i != 2 && i != 35 && i != 52 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return bad()
		}
	}
	var flags [1]byte
	hex.Decode(t.TraceID[:], []byte(s[3:35]))
	hex.Decode(t.SpanID[:], []byte(s[36:52]))
	hex.Decode(flags[:], []byte(s[53:55]))
	t.Flags = flags[0]
	if !t.Valid() {
		return bad()
	}
	return t, nil
}
