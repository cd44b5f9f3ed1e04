package abi

import (
	"context"
	"errors"
	"time"
)

// What an Engine's errors are, for errors.Is, besides whatever else they say.
// Any other error of a run is a trap: the function's own fault.
var (
	ErrOverLimit  = errors.New("a limit is used up")
	ErrEngineBusy = errors.New("the engine has no room just now")
	// ErrShareBusy says that the principal has its share of the engine's room already. It is an ErrEngineBusy too.
	ErrShareBusy error = shareBusy{}
)

type shareBusy struct{}

func (shareBusy) Error() string        { return "the principal has its share of the engine's room already" }
func (shareBusy) Is(target error) bool { return target == ErrEngineBusy }

// Engine runs code of some forms. Its methods, and those of what it returns, may be called
// from any goroutine, but for an Instance's.
type Engine interface {
	// Offers are the forms of code that the engine knows, the one that it would rather run first. They are the same at each call.
	Offers() []Offer
	// Load checks code of a form that is offered, and compiles it if that is what its form takes. Its bytes must not change afterwards. It may take as long as ctx
	// allows: no run's place and no goroutine that drives the fabric waits for it.
	Load(ctx context.Context, code Code) (Program, error)
}

// Offer is a form of code that an engine runs here, or says why it does not.
type Offer struct {
	Form     string   // as images call it: "wasm32"
	Triple   string   // the target, as LLVM writes it ("x86_64-linux-gnu"); empty for wasm
	Features []string // what this machine's processor has of those that an image may ask for
	Tier     string   // how such code is made to run, for people: "compiled", "interpreted", "O2"; may be empty
	Why      string   // why it cannot be run here; empty: it can
}

func (o Offer) String() string {
	s := o.Form
	if o.Triple != "" {
		s += " for " + o.Triple
	}
	if o.Why != "" {
		s += " (not here: " + o.Why + ")"
	}
	return s
}

// Code is one entry of an image.
type Code struct {
	ID           [32]byte // the image's identity
	Form, Triple string   // "wasm32", "llvm-bitcode", "elf"; the triple as in the image
	Features     []string // that it was compiled for
	ABI          uint32   // the manifest's: which host calls there are, and in which form
	Imports      []string // host calls that the manifest lists
	Bytes        []byte
	Constants    []byte   // of a derived function; its Constants host call gives the same
	Limits       Limits   // the manifest's
	Signers      [][]byte // ed25519 public keys that the element trusts and whose signatures hold, sorted; none of a function that it knows by its identity
	Principal    string   // whom compiling is charged to
	// Best asks for the best code that the engine makes, however long that takes. Otherwise code that runs soon will do (Tiered).
	Best bool
}

// Program is code that an engine accepted.
type Program interface {
	// Bind makes it ready for one principal and one set of windows, as far as that takes long: no run waits in its place for it. A window of size 0 is
	// absent; the others' descriptors must stay open until the Bound is closed. The context's end ends what it does.
	Bind(ctx context.Context, principal string, windows []Window) (Bound, error)
	Close()
}

// Tiered is a Program whose engine makes code in more than one way.
type Tiered interface {
	Program
	// Tier is how this one's code was made, for people; better says that Load makes better code of it if Code.Best asks for that.
	Tier() (name string, better bool)
}

// Bound is a program with windows: a pool of instances that one principal's
// branches share, one after the other.
type Bound interface {
	// Need is how many bytes of the engine's room an instance takes whose run asks for so much scratch.
	Need(scratch uint64) uint64
	// Reserve takes room for such an instance, without waiting: ErrEngineBusy if there is not enough just now. A run can
	// ask for more scratch than that, and then finds room or not (Host.Scratch).
	Reserve(scratch uint64) (Place, error)
	Close()
}

// Place is room for one instance.
type Place interface {
	// Ready reports whether an instance is there, which Acquire gives at once; otherwise it makes one.
	Ready() bool
	// Acquire puts an instance there; an error gives the room back. It may take a while if the place is not ready: then ctx ends it.
	Acquire(ctx context.Context) (Instance, error)
	// Release gives the room back unused.
	Release()
}

// Instance runs branches, one at a time.
type Instance interface {
	// Run runs the function. The error says that it was stopped: by a trap, a
	// limit, or what Host.Tick returned, which it then wraps.
	// limits are the element's, which never change; nil: those of the program. What was reserved for scratch, and the
	// run has not asked for, is given back when it ends.
	Run(payload []byte, limits *Limits, h Host) (Status, error)
	// Waits says that a host call of the run is about to wait, so that the wait is not charged as the function's
	// processor time. The Host calls it, on the run's goroutine, before each wait.
	Waits()
	// Release gives the instance back, its scratch zeroed.
	Release()
}

// Timed is an Instance that knows how long its last run took: the host calls that the node answered and the hand-overs to it too, but no waits. Of others, as many slices as
// Host.Tick was told of are taken for it.
type Timed interface {
	// Took is the time of the run that ended last, or if that was not measured, of the last one that was; 0: there was none. typical says that it tells how long others
	// take: not so the first run of an instance, which is to touch its memory, nor one that was not measured.
	Took() (d time.Duration, typical bool)
}

// CopyConstants answers the host call constants.
func CopyConstants(h Host, to []byte) Status {
	switch c := h.Constants(); {
	case c == nil:
		return ErrUnsupported
	case len(c) != len(to):
		return ErrArgument
	default:
		copy(to, c)
		return OK
	}
}
