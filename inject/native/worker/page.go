package worker

import (
	"encoding/binary"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Wants is what a worker stopped for.
type Wants uint32

// As runtime.c has them.
const (
	WantsDone   Wants = 1 + iota // a run has ended
	WantsCall                    // a host call
	WantsFault                   // it has faulted, and is gone
	WantsReady                   // it is locked down
	WantsFailed                  // it could not be
)

// The kinds of mail.
const (
	NoMail uint32 = iota
	MailReply
	MailForward
)

// MailBytes is the longest reply or forward that waits in the page.
const MailBytes = 64

const (
	theirs, ours = 0, 1 // turn, as the worker sees it

	turnAt, wantsAt, callAt, statusAt    = 0, 4, 8, 12
	argAt, resultAt                      = 16, 80
	mailAt, mailElementAt, mailSizeAt    = 96, 100, 104
	mailDataAt                           = 112
	signalAt, codeAt, addrAt, pcAt, spAt = 176, 180, 184, 192, 200
	contextAt                            = 208
	payloadSizeAt, elementsAt, selfAt    = 216, 220, 224
	parkedAt                             = 228
	yieldAt, frameAt                     = 232, 240
	pageStruct                           = 248
)

// Page is the node's side of what a worker and the node say to each other. What it reads may be
// anything: a function can write there.
type Page struct{ mem *[pageStruct]byte }

// PageOf is the page at the start of mem.
func PageOf(mem []byte) Page { return Page{(*[pageStruct]byte)(mem)} }

// turn is in memory that both processes have mapped, at a multiple of 4.
func (p Page) turn() *uint32 { return (*uint32)(unsafe.Pointer(&p.mem[turnAt])) }

// parked is 1 while the node sleeps.
func (p Page) parked() *uint32 { return (*uint32)(unsafe.Pointer(&p.mem[parkedAt])) }

func (p Page) u32(at int) uint32      { return binary.LittleEndian.Uint32(p.mem[at:]) }
func (p Page) u64(at int) uint64      { return binary.LittleEndian.Uint64(p.mem[at:]) }
func (p Page) put32(at int, v uint32) { binary.LittleEndian.PutUint32(p.mem[at:], v) }
func (p Page) put64(at int, v uint64) { binary.LittleEndian.PutUint64(p.mem[at:], v) }

const (
	futexWait = 0 // FUTEX_WAIT, not the private one: the worker is another process
	futexWake = 1
)

// HandOver gives the worker its turn.
func (p Page) HandOver() {
	atomic.StoreUint32(p.turn(), ours)
	// It does not wait, so the Go runtime need not hear of it. An error says that the address is bad, which it is not.
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(p.turn())), futexWake, 1, 0, 0, 0)
}

// yielding is how long Await polls before it sleeps: as fabric's waiters, a few tens of microseconds. On the worker's own CPU each
// poll is a hand-over, so a short run costs neither a timer nor a wake-up.
const yielding = 20 * time.Microsecond

// Await waits at most d for the node's turn. It yields and sleeps in system calls that the Go runtime knows of, so that
// neither its collector nor other goroutines wait meanwhile.
func (p Page) Await(d time.Duration) bool {
	if atomic.LoadUint32(p.turn()) == theirs {
		return true
	}
	start := time.Now()
	for waited := time.Duration(0); waited < min(yielding, d); waited = time.Since(start) {
		unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		if atomic.LoadUint32(p.turn()) == theirs {
			return true
		}
	}
	atomic.StoreUint32(p.parked(), 1)
	defer atomic.StoreUint32(p.parked(), 0)
	for atomic.LoadUint32(p.turn()) == ours {
		left := d - time.Since(start)
		if left <= 0 {
			return false
		}
		ts := unix.NsecToTimespec(int64(left))
		// It ends early for signals and when the word has changed already: the loop looks again.
		unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(p.turn())), futexWait, ours, uintptr(unsafe.Pointer(&ts)), 0, 0)
	}
	return true
}

// Wants is what the worker stopped for.
func (p Page) Wants() Wants { return Wants(p.u32(wantsAt)) }

// Call is the number of the host call in abi.Calls.
func (p Page) Call() uint32 { return p.u32(callAt) }

// Args are its arguments.
func (p Page) Args() (args [8]uint64) {
	for i := range args {
		args[i] = p.u64(argAt + 8*i)
	}
	return args
}

// Answer is what the call gives back: its status, and what else it has to say.
func (p Page) Answer(status int32, result ...uint64) {
	for i, r := range result {
		p.put64(resultAt+8*i, r)
	}
	p.put32(statusAt, uint32(status))
}

// Status is what the function returned.
func (p Page) Status() int32 { return int32(p.u32(statusAt)) }

// Begin sets what a run gets.
func (p Page) Begin(payloadBytes, self, elements uint32) {
	p.put32(payloadSizeAt, payloadBytes)
	p.put32(selfAt, self)
	p.put32(elementsAt, elements)
}

// SetContext tells a worker where its context is, before it starts.
func (p Page) SetContext(addr uint64) { p.put64(contextAt, addr) }

// SetYield has the code run in this process: it gives the turn back by calling yield, a C function, with frame.
func (p Page) SetYield(yield, frame uintptr) {
	p.put64(yieldAt, uint64(yield))
	p.put64(frameAt, uint64(frame))
}

// Mail is the reply or forward that waits, and takes it out; kind is NoMail if there is none.
func (p Page) Mail(to *[MailBytes]byte) (kind, element uint32, data []byte) {
	kind = p.u32(mailAt)
	if kind == NoMail {
		return NoMail, 0, nil
	}
	n := p.u32(mailSizeAt)
	element = p.u32(mailElementAt)
	p.put32(mailAt, NoMail)
	if n > MailBytes || kind > MailForward { // nonsense of the function's own
		return NoMail, 0, nil
	}
	return kind, element, to[:copy(to[:n], p.mem[mailDataAt:mailDataAt+MailBytes])]
}

// Fault is what a worker says about its end.
type Fault struct {
	Signal, Code uint32 // of SIGSYS: the system call; of WantsFailed: the step
	Addr, PC, SP uint64
}

// Fault reads it.
func (p Page) Fault() Fault {
	return Fault{Signal: p.u32(signalAt), Code: p.u32(codeAt), Addr: p.u64(addrAt), PC: p.u64(pcAt), SP: p.u64(spAt)}
}
