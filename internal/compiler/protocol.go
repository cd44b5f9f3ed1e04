package compiler

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// Version is the protocol's; both sides are of one build or the compiler is refused.
	Version = 5
	// Revision is of what compilers make: raise it with every change of internal/libllvm or internal/llvmrt that gives other objects, so
	// that none made before is taken from a cache.
	Revision = "6"
	// Descriptor is where a compiler finds its socket.
	Descriptor = 3
	// MaxBytes bounds code and objects: four times the largest image.
	MaxBytes = 64 << 20
	// maxHeadBytes bounds the rest of a message: some 20 imports, a list of processor features and a reason.
	maxHeadBytes = 128 << 10
	// maxReasonBytes bounds each reason in it, which may name what an author made long.
	maxReasonBytes = 4 << 10
)

// Hello is the first message of a compiler: what it is and the machine it is on.
type Hello struct {
	Version  int
	Compiler string // name and version: "LLVM 22.1.8"
	Triple   string // this machine
	CPU      string
	Features string
	Why      string // why it can compile nothing here; empty: it can
	Loose    string // why it is not confined though it compiles; empty: it is, or was told not to be
}

// Request asks for an object.
type Request struct {
	Triple    string   // of a machine of another kind; "": the one that Hello named
	Imports   []string // symbols that the object may leave open
	Level     int      // of optimisation, 1 to 3; 0: 3
	Fast      bool     // no optimisation: the object soon
	Constants []byte   // of a derived function; nil: it is none
	Code      []byte   `json:"-"`
}

// Answer is a compiler's, one for each Request.
type Answer struct {
	Refused string // what is wrong with the code
	Failed  string // what is wrong with the compiler or the machine
	Object  []byte `json:"-"`
}

// bounded is an answer that one message holds: the caller would wait for a larger one until the deadline.
func (a Answer) bounded() Answer {
	if n := len(a.Object); n > MaxBytes {
		a = Answer{Refused: fmt.Sprintf("what it compiles to has %d bytes, at most %d are taken; split the function", n, MaxBytes)}
	}
	for _, reason := range []*string{&a.Refused, &a.Failed} {
		if len(*reason) > maxReasonBytes {
			*reason = strings.ToValidUTF8((*reason)[:maxReasonBytes], "") + "…"
		}
	}
	return a
}

// A message is two lengths in 4 bytes little-endian each, a head in JSON and a body.
const lengthBytes = 8

func writeMessage(w io.Writer, head any, body []byte) error {
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	if len(text) > maxHeadBytes || len(body) > MaxBytes {
		return fmt.Errorf("compiler: a message of %d and %d bytes; at most %d and %d are allowed", len(text), len(body), maxHeadBytes, MaxBytes)
	}
	b := make([]byte, 0, lengthBytes+len(text)+len(body))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	_, err = w.Write(append(append(b, text...), body...))
	return err
}

func readMessage(r io.Reader, head any) (body []byte, err error) {
	var lengths [lengthBytes]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return nil, err
	}
	text, size := binary.LittleEndian.Uint32(lengths[:]), binary.LittleEndian.Uint32(lengths[4:])
	if text > maxHeadBytes || size > MaxBytes {
		return nil, fmt.Errorf("compiler: a message of %d and %d bytes; at most %d and %d are allowed", text, size, maxHeadBytes, MaxBytes)
	}
	b := make([]byte, int(text)+int(size))
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("compiler: a message is cut short: %w", err)
	}
	if err := json.Unmarshal(b[:text], head); err != nil {
		return nil, fmt.Errorf("compiler: a message's head: %w", err)
	}
	return b[text:], nil
}

// restAfter is when a compiler does what can wait after an answer: once the node and the function's first run have had the processor.
const restAfter = 5 * time.Millisecond

// Serve is a compiler's side of the protocol. rest, unless it is nil, does what can wait until nobody waits for an answer; it is called where compile is. Serve returns when the socket ends, though a compile may be at work: the
// program should end then.
func Serve(socket io.ReadWriter, hello Hello, compile func(Request) Answer, rest func()) error {
	hello.Version = Version
	if err := writeMessage(socket, hello, nil); err != nil {
		return err
	}
	work := make(chan Request)
	defer close(work)
	idle := make(chan struct{}, 1)
	idle <- struct{}{}
	go func() {
		var later <-chan time.Time
		for {
			select {
			case <-later:
				rest()
				continue
			case r, more := <-work:
				if !more {
					return
				}
				a := compile(r).bounded()
				idle <- struct{}{}                    // first: the caller may ask again as soon as it has the answer
				_ = writeMessage(socket, a, a.Object) // if the socket has ended, the reader sees it too
			}
			if rest != nil {
				later = time.After(restAfter)
			}
		}
	}()
	for {
		var r Request
		var err error
		if r.Code, err = readMessage(socket, &r); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		select {
		case <-idle:
		default:
			return errors.New("compiler: a second request came before the first was answered")
		}
		work <- r
	}
}
