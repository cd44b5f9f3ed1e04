package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Code says what kind of error a call came back with. Codes below FirstCode are
// this package's; a service numbers its own from there.
type Code uint32

const (
	codeOK Code = iota
	// CodeFailed is any error of a handler that has no code of its own.
	CodeFailed
	// CodeNoSuchCall: nothing is registered under the name.
	CodeNoSuchCall
	// CodeBusy: the callee runs as many calls as it may, and this one could not wait for its turn.
	CodeBusy
	// CodeDeadline: the call's time ran out at the callee.
	CodeDeadline
	// CodeCanceled: the callee ended the call, because it is stopping.
	CodeCanceled
	// CodeTooLarge: a payload exceeds the callee's limit.
	CodeTooLarge
	// CodeBulk: the callee could not fetch the request's payload.
	CodeBulk
	// CodeDenied: the caller's principal may not make this call.
	CodeDenied
	// CodeRequest: the callee could not read the request.
	CodeRequest
	// CodeAnswer: the call ran, and there was no room for its answer.
	CodeAnswer

	// FirstCode is the first that services can use.
	FirstCode Code = 256
)

// Sentinels to branch on with errors.Is.
var (
	// ErrNoSuchCall: the peer does not serve this call; it may be older.
	ErrNoSuchCall = errors.New("rpc: the peer does not serve this call")
	// ErrBusy: the peer (or this side, before sending) has as many calls under way, and waiting for their turn, as it may, or no room
	// for the request. The call did not run.
	ErrBusy = errors.New("rpc: too many calls under way")
	// ErrDeadline: the call's time ran out, here or there.
	ErrDeadline = fmt.Errorf("rpc: out of time: %w", context.DeadlineExceeded)
	// ErrCanceled: the peer ended the call because it is stopping, or it was cancelled here.
	ErrCanceled = fmt.Errorf("rpc: cancelled: %w", context.Canceled)
	// ErrTooLarge: a payload exceeds a limit.
	ErrTooLarge = errors.New("rpc: payload too large")
	// ErrDenied: the callee does not let this principal make the call.
	ErrDenied = errors.New("rpc: not allowed")
	// ErrRequest: the callee could not read the request, or the caller the answer: they disagree about its type.
	ErrRequest = errors.New("rpc: request or answer cannot be read")
	// ErrAnswer: the call ran, and there was no room for its answer, or not until it was waited for. To call again runs it again.
	ErrAnswer = errors.New("rpc: the call ran, but its answer found no room")
	// ErrOutcomeUnknown: the peer was lost after the call had been sent. It ran once
	// or not at all; it was not, and will not be, tried again.
	ErrOutcomeUnknown = errors.New("rpc: outcome unknown")
	// ErrName: a call cannot be registered under this name.
	ErrName = errors.New("rpc: bad name")
	// ErrWire: a peer's message is not one of this protocol.
	ErrWire = errors.New("rpc: malformed message")
	// ErrClosed: the Peer was closed here.
	ErrClosed = errors.New("rpc: closed")
	// ErrInline: a handler that runs on the goroutine which drives the fabric tried to wait.
	ErrInline = errors.New("rpc: an inline handler cannot wait; register it without Options.Inline, or use Start and Detach")
	// ErrEnded: a Future was waited for already, or forgotten.
	ErrEnded = errors.New("rpc: this future has been used")
)

func (c Code) sentinel() error {
	switch c {
	case CodeNoSuchCall:
		return ErrNoSuchCall
	case CodeBusy:
		return ErrBusy
	case CodeDeadline:
		return ErrDeadline
	case CodeCanceled:
		return ErrCanceled
	case CodeTooLarge:
		return ErrTooLarge
	case CodeDenied:
		return ErrDenied
	case CodeRequest:
		return ErrRequest
	case CodeAnswer:
		return ErrAnswer
	}
	return nil
}

// Error is what a handler returns to choose its error's code. Any other error is CodeFailed.
type Error struct {
	Code Code // one of this package's, or from FirstCode
	Text string
}

func (e *Error) Error() string { return e.Text }

// RemoteError is an error that the callee sent back.
type RemoteError struct {
	Code Code
	Text string // the callee's words in full, made printable
	Peer string // the callee's name
	Call string // the name of the call
}

func (e *RemoteError) Error() string { return fmt.Sprintf("%s at %s: %s", e.Call, e.Peer, e.Text) }

// Unwrap makes errors.Is find the sentinel of the package's own codes.
func (e *RemoteError) Unwrap() error { return e.Code.sentinel() }

// remoteCode turns a handler's error into what travels.
func remoteCode(err error) Code {
	var own *Error
	var inner *RemoteError
	switch {
	case errors.As(err, &own) && own.Code != codeOK:
		return own.Code
	case errors.As(err, &inner):
		return CodeFailed // what a call of the handler's came back with is not this call's code
	case errors.Is(err, context.DeadlineExceeded):
		return CodeDeadline
	case errors.Is(err, context.Canceled) || errors.Is(err, ErrClosed):
		return CodeCanceled
	case errors.Is(err, ErrTooLarge):
		return CodeTooLarge
	case errors.Is(err, ErrDenied):
		return CodeDenied
	case errors.Is(err, ErrRequest):
		return CodeRequest
	}
	return CodeFailed
}

// clipText bounds an error's text without cutting a rune in two.
func clipText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// errorText is an error's text as it travels: whole, unless it is absurd.
func errorText(s string) string {
	if len(s) <= maxTextBytes {
		return s
	}
	s, n := clipText(s, maxTextBytes-64), len(s)
	return fmt.Sprintf("%s… (%d bytes in all)", s, n)
}

// printable makes a peer's words safe to show; line ends stay.
func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '\ufffd'
		}
		return r
	}, strings.ToValidUTF8(string(b), "\ufffd"))
}
