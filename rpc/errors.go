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
	// CodeBusy: the callee runs as many calls as it may.
	CodeBusy
	// CodeDeadline: the call's time ran out at the callee.
	CodeDeadline
	// CodeCanceled: the callee ended the call, because it is stopping.
	CodeCanceled
	// CodeTooLarge: a payload exceeds the callee's limit.
	CodeTooLarge
	// CodeBulk: the callee could not fetch the request's payload.
	CodeBulk

	// FirstCode is the first that services can use.
	FirstCode Code = 256
)

// Sentinels to branch on with errors.Is.
var (
	// ErrNoSuchCall: the peer does not serve this call; it may be older.
	ErrNoSuchCall = errors.New("rpc: the peer does not serve this call")
	// ErrBusy: the peer (or this side, before sending) has as many calls under way as it may.
	ErrBusy = errors.New("rpc: too many calls under way")
	// ErrDeadline: the call's time ran out, here or there.
	ErrDeadline = fmt.Errorf("rpc: out of time: %w", context.DeadlineExceeded)
	// ErrCanceled: the peer ended the call because it is stopping.
	ErrCanceled = errors.New("rpc: the peer is stopping")
	// ErrTooLarge: a payload exceeds a limit.
	ErrTooLarge = errors.New("rpc: payload too large")
	// ErrName: a call cannot be registered under this name.
	ErrName = errors.New("rpc: bad name")
	// ErrWire: a peer's message is not one of this protocol.
	ErrWire = errors.New("rpc: malformed message")
	// ErrClosed: the Peer was closed here.
	ErrClosed = errors.New("rpc: closed")
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
	}
	return nil
}

// Error is what a handler returns to choose its error's code. Any other error is CodeFailed.
type Error struct {
	Code Code // CodeFailed, or from FirstCode
	Text string
}

func (e *Error) Error() string { return e.Text }

// RemoteError is an error that the callee sent back.
type RemoteError struct {
	Code Code
	Text string // the callee's words, made printable
	Peer string // the callee's name
	Call string // the name of the call
}

func (e *RemoteError) Error() string { return fmt.Sprintf("%s: %s", e.Peer, e.Text) }

// Unwrap makes errors.Is find the sentinel of the package's own codes.
func (e *RemoteError) Unwrap() error { return e.Code.sentinel() }

// remoteCode turns a handler's error into what travels.
func remoteCode(ctx context.Context, err error) (Code, string) {
	var own *Error
	if errors.As(err, &own) && own.Code != codeOK {
		return own.Code, err.Error()
	}
	if ctx.Err() != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return CodeDeadline, err.Error()
		}
		if errors.Is(err, context.Canceled) {
			return CodeCanceled, err.Error()
		}
	}
	return CodeFailed, err.Error()
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

// printable makes a peer's words safe to show; line ends stay.
func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '\ufffd'
		}
		return r
	}, strings.ToValidUTF8(string(b), "\ufffd"))
}
