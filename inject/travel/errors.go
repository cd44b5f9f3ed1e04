package travel

import (
	"errors"
	"fmt"
	"strings"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// Sentinels to branch on with errors.Is. The typed errors below match them.
var (
	ErrPeerLost       = errors.New("travel: an element was lost")
	ErrRemote         = errors.New("travel: a branch failed")
	ErrDeadline       = errors.New("travel: no time is left")
	ErrCanceled       = errors.New("travel: canceled")
	ErrHopLimit       = errors.New("travel: the hop budget is used up")
	ErrForkLimit      = errors.New("travel: too many branches")
	ErrPartLimit      = errors.New("travel: too many parts")
	ErrBackpressure   = errors.New("travel: a queue is full")
	ErrOutcomeUnknown = errors.New("travel: the branch may or may not have run")
	ErrRefused        = errors.New("travel: an element refused the branch")
	ErrNoCode         = errors.New("travel: the code or shard table could not be had")
	ErrLimit          = errors.New("travel: a limit is used up")
	ErrTooLarge       = errors.New("travel: too large for one message")
	ErrEnded          = errors.New("travel: the branch has ended or moved on already")
	ErrNoPeer         = errors.New("travel: no such peer")
	ErrNoFuture       = errors.New("travel: no such future")
	ErrStopping       = errors.New("travel: the element is stopping")
	ErrKey            = errors.New("travel: a key does not allow it, or was revoked")
	// ErrProtocol is what Recv returns for a message that breaks the rules:
	// the caller closes the endpoint.
	ErrProtocol = errors.New("travel: protocol violation")
)

// Code says why a branch failed. The numbers are on the wire.
type Code uint8

const (
	CodeOK           Code = iota
	CodeFunction          // the function returned a status other than 0
	CodeTrap              // the function was stopped by its engine
	CodeDeadline          // no time was left
	CodeBackpressure      // a queue was full
	CodeHopLimit          // the hop budget was used up
	CodeForkLimit         // too many forks
	CodeNoCode            // code or table could not be had
	CodeRefused           // the element does not run it
	CodePeerLost          // the next element is gone
	CodeLimit             // another limit is used up
	CodeCanceled          // it was stopped here
	CodeOriginLost        // the element lost its connection to the origin
	CodeStopping          // the element is about to stop
	codeCount
)

var codeTexts = [codeCount]string{"ok", "function failed", "trapped", "deadline", "backpressure", "hop limit",
	"fork limit", "no code", "refused", "peer lost", "limit", "canceled", "origin lost", "stopping"}

func (c Code) String() string {
	if c < codeCount {
		return codeTexts[c]
	}
	return fmt.Sprintf("Code(%d)", uint8(c))
}

// sentinel is the error that a code stands for, nil for those with none but ErrRemote.
func (c Code) sentinel() error {
	switch c {
	case CodeDeadline:
		return ErrDeadline
	case CodeBackpressure:
		return ErrBackpressure
	case CodeHopLimit:
		return ErrHopLimit
	case CodeForkLimit:
		return ErrForkLimit
	case CodeNoCode:
		return ErrNoCode
	case CodeRefused:
		return ErrRefused
	case CodePeerLost, CodeOriginLost:
		return ErrPeerLost
	case CodeLimit:
		return ErrLimit
	case CodeCanceled:
		return ErrCanceled
	case CodeStopping:
		return ErrStopping
	}
	return nil
}

// statusSentinel is the error that a function's status stands for, nil for those with none but ErrRemote: it has the
// host's statuses from the host calls, or says with one of them what is wrong.
func statusSentinel(s abi.Status) error {
	switch s {
	case abi.ErrRights, abi.ErrRevoked:
		return ErrKey
	case abi.ErrPeerLost:
		return ErrPeerLost
	case abi.ErrBackpressure:
		return ErrBackpressure
	case abi.ErrLimit:
		return ErrLimit
	case abi.ErrDeadline:
		return ErrDeadline
	case abi.ErrCanceled:
		return ErrCanceled
	case abi.ErrOutcomeUnknown:
		return ErrOutcomeUnknown
	}
	return nil
}

// RemoteError is a branch's failure as the element where it happened tells it.
// It Is ErrRemote and whatever its code, or with CodeFunction its status, stands for.
type RemoteError struct {
	Branch   uint64
	Code     Code
	Status   int32  // the function's own, with CodeFunction
	Element  string // where
	Function string // what
	Text     string // why, in full
}

func (e *RemoteError) Error() string {
	s := fmt.Sprintf("travel: branch %x of %s failed on %s: %v", e.Branch, e.Function, e.Element, e.Code)
	if e.Code == CodeFunction {
		s += fmt.Sprintf(" with status %d", e.Status)
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

func (e *RemoteError) Is(target error) bool {
	why := e.Code.sentinel()
	if e.Code == CodeFunction {
		why = statusSentinel(abi.Status(e.Status))
	}
	return target == ErrRemote || target == why && target != nil
}

// PeerLostError says that the element holding a branch is gone. It Is
// ErrPeerLost, and ErrOutcomeUnknown where the branch may have run.
type PeerLostError struct {
	Branch      uint64
	Element     string // the lost one
	Incarnation uint64
	MayHaveRun  bool
	Text        string
}

func (e *PeerLostError) Error() string {
	run := "it did not run there"
	if e.MayHaveRun {
		run = "it may have run there"
	}
	s := fmt.Sprintf("travel: branch %x was lost with element %s (%016x); %s", e.Branch, e.Element, e.Incarnation, run)
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

func (e *PeerLostError) Is(target error) bool {
	return target == ErrPeerLost || target == ErrOutcomeUnknown && e.MayHaveRun
}

// RefusedError says that an element did not take a branch; it did not run
// there. It Is ErrRefused and whatever its code stands for.
type RefusedError struct {
	Branch  uint64
	Element string
	Code    Code
	Text    string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("travel: element %s refused branch %x: %v: %s", e.Element, e.Branch, e.Code, e.Text)
}

func (e *RefusedError) Is(target error) bool {
	return target == ErrRefused || target == e.Code.sentinel() && target != nil
}

// maxNamed is how many unfinished branches a DeadlineError names, and how many elements.
const maxNamed = 8

// DeadlineError says that time ran out before every branch had ended. It Is ErrDeadline.
type DeadlineError struct {
	Pending int      // announced branches that had not ended
	Named   []uint64 // some of them
	// Elements may still have them, and did not say so in time. Of a function that goes nowhere each has one; of any other they are all
	// elements that it may have gone to; of what nobody else can have it is the element that called. There is one at least. More is how many else there are.
	Elements []string
	More     int
}

func (e *DeadlineError) Error() string {
	s := fmt.Sprintf("travel: no time is left; %d branches had not ended", e.Pending)
	if len(e.Named) > 0 {
		s += fmt.Sprintf(", among them %x", e.Named)
	}
	s += "; they were at " + strings.Join(e.Elements, ", ")
	if e.More > 0 {
		s += fmt.Sprintf(" and %d more", e.More)
	}
	if len(e.Elements)+e.More > 1 {
		s += ", or some of these"
	}
	return s
}

func (e *DeadlineError) Is(target error) bool { return target == ErrDeadline }
