package wasm

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/room"
	"github.com/wherry-fabric/wherry/inject/wasm/internal/linear"
	"github.com/wherry-fabric/wherry/internal/cputime"
	"github.com/wherry-fabric/wherry/internal/invariants"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// Run is what one run of a function gets.
type Run struct {
	Payload []byte     // copied into the function's memory
	Limits  abi.Limits // of this run; zero fields and whatever exceeds the program's limits: the program's
	Host    abi.Host   // one invocation's host calls
}

// Instance is a function with its memory, ready to run. One goroutine at a time
// uses it, between Binding.Acquire and Release.
//
// It is the context.Context of its own calls into wazero: that is how a host
// call finds it without a look-up.
type Instance struct {
	// What every run touches lies together.
	entry    api.Function
	area     []byte      // for the payload
	box      []byte      // the mailbox
	limits   *abi.Limits // of the program, or narrowed
	asked    *abi.Limits // what narrowed was made from; nil: nothing
	host     abi.Host    // of the current run, as what follows
	stack    [4]uint64
	shifted  [4]uint64  // arguments of a call of ABI 1
	inbox    uint64     // bytes of the longest payload of the current acquisition
	address  uint64     // of the payload
	payload  uint32     // bytes
	mail     abi.Status // of a reply or forward that came through the mailbox
	forks    uint32
	logBytes uint32
	running  bool
	broken   bool // must not run again
	replies  bool // the program imports reply
	forwards bool // … forward

	replyBytes uint64
	slice      slice
	scratch    uint64 // bytes granted, of the current acquisition
	huge       bool   // some of them may have huge pages

	binding  *Binding
	module   api.Module
	fuel     api.MutableGlobal
	stores   api.MutableGlobal // what lies at or above this must not be written
	memory   *linear.Memory
	mem      []byte // all of it
	narrowed abi.Limits

	statics statics
	parts   []uint64 // by window, where the part begins that is mapped of one that slides; nil: none does
	staged  int      // the window that lies at the layout's stage; -1: none

	slot room.Slot
}

// Fuel: the function runs until it has used up the fuel of a slice and then
// calls back. How much a slice gets is adapted so that it takes about
// sliceTime; units cost between 0.1 ns (plain arithmetic) and hundreds (cache misses, page faults).
const (
	sliceTime = 100 * time.Microsecond
	firstFuel = 16 << 10 // about 5 µs of arithmetic, so that the first slice of slow code is short too
	minFuel   = 64
	maxFuel   = 1 << 22 // 100 µs of loads that hit the cache
	// maxGrant is how much of a slice's fuel the function gets at a time. It bounds what a slice takes whose code turns from fast to slow:
	// 14,000 loads that each touch a page for the first time, some 14 ms.
	maxGrant  = 1 << 18
	maxGrowth = 2
	maxShrink = 16
	deepUsage = 256 << 10 // fuel after which a recursive function's stack may have grown large
	keptInbox = 256 << 10 // bytes of the payload area that an idle instance keeps resident
)

// slice is where a run stands in its use of time.
//
// What counts against RunTime is processor time. Reading that clock takes a system call, so as long as slices take about as
// long as they should, the time that passes stands for it. From the first one on that does not, which is either slow code or a
// thread that had to wait for a processor, the run is metered: its goroutine keeps its thread while the
// function computes, and the thread's own clock counts.
type slice struct {
	ticks   int
	fuel    int64
	rest    int64 // of fuel: not yet granted
	used    int64
	spent   time.Duration // of RunTime
	last    time.Duration // when it began, since the engine's epoch
	cpu     time.Duration // of the thread when it was locked
	metered bool
	locked  bool // the goroutine keeps its thread
	blocked bool // a host call waited, so the time says nothing about the code
}

// unmetered is the longest that a slice may take before the run is metered, and the most it is charged.
const unmetered = 2 * sliceTime

// lock begins to count the thread's time.
func (s *slice) lock() {
	runtime.LockOSThread()
	s.cpu, s.locked = cputime.Thread(), true
}

// unlock adds what the thread has used since, and gives it up.
func (s *slice) unlock() (took time.Duration) {
	if s.locked {
		took = cputime.Thread() - s.cpu
		s.spent += took
		s.locked = false
		runtime.UnlockOSThread()
	}
	return took
}

// end charges a slice, and says how long it took if that tells something about the code; else 0.
func (s *slice) end(now time.Duration) (took time.Duration) {
	if s.metered {
		took = s.unlock()
	} else {
		took = now - s.last
		s.metered = took > unmetered
		s.spent += min(took, unmetered)
	}
	if s.blocked {
		s.blocked = false
		return 0
	}
	return took
}

// Run runs the function's entry point. A run that fails, by a trap, a limit, a
// store to a read-only window or because Host.Tick said so, leaves the instance unusable; Release then discards it.
func (in *Instance) Run(r *Run) (abi.Status, error) {
	in.narrow(nil)
	if r.Limits != (abi.Limits{}) {
		limits := r.Limits
		in.narrow(&limits)
	}
	return in.run(r.Payload, in.asked, r.Host)
}

// narrow makes limits those of the runs from here on; nil: the program's.
func (in *Instance) narrow(limits *abi.Limits) {
	if in.limits, in.asked = &in.binding.program.limits, limits; limits != nil {
		in.narrowed = limits.Or(*in.limits).AtMost(*in.limits)
		in.limits = &in.narrowed
	}
}

// run runs with limits that never change; nil: the program's.
func (in *Instance) run(payload []byte, limits *abi.Limits, host abi.Host) (abi.Status, error) {
	if in.broken {
		return 0, fmt.Errorf("%w: this instance failed before", ErrClosed)
	}
	if invariants.Enabled && in.running {
		panic("wasm: an instance runs twice at once")
	}
	if limits != in.asked {
		in.narrow(limits)
	}
	if n := uint64(len(payload)); n > in.limits.PayloadBytes {
		return 0, &LimitError{Limit: "payload_bytes", Wanted: n, Max: in.limits.PayloadBytes}
	}
	in.payload = uint32(copy(in.area, payload))
	in.inbox = max(in.inbox, uint64(in.payload))
	in.host = host
	in.replyBytes, in.forks, in.logBytes, in.mail = 0, 0, 0, abi.OK
	in.stack[0], in.stack[1] = in.address, uint64(in.payload)
	in.running = true
	err := in.call(in.entry)
	in.running = false
	in.host = nil
	if err != nil {
		return 0, err
	}
	if in.statics.some {
		if err := in.reset(); err != nil {
			in.broken = true
			return 0, err
		}
	}
	in.slot.Trim(in.scratch)
	st := abi.Status(uint32(in.stack[0]))
	if st == abi.OK {
		st = in.mail // the function was told OK before it was sent
	}
	return st, nil
}

// call runs f on in.stack and brings the fuel back to where it was.
func (in *Instance) call(f api.Function) error {
	err := f.CallWithStack(in, in.stack[:])
	if in.mailed() {
		in.deliver(err == nil)
	}
	if err != nil {
		in.slice.unlock()
		in.broken = true
		return in.stackUsedUp(runError(err))
	}
	if in.slice.ticks != 0 {
		in.slice.unlock()
		if in.slice.used > deepUsage && in.binding.program.recursive && f == in.entry {
			// wazero keeps a call's stack however deep it was, up to 100 MB; a new one starts small.
			in.entry = in.module.ExportedFunction(abi.Entry)
		}
		in.slice = slice{}
		in.fuel.Set(firstFuel)
	}
	return nil
}

// callTick grants more of a slice's fuel if the slice has been fast so far, and else ends it. It must be cheap: about ten thousand slices end in a second.
func (in *Instance) callTick(st []uint64) {
	e := in.binding.program.engine
	s := &in.slice
	now := time.Since(e.epoch)
	if s.rest > 0 && !s.blocked && now-s.last < sliceTime {
		st[0] = uint64(s.grant(s.rest))
		return
	}
	ran := s.fuel - s.rest
	s.ticks++
	s.used += max(ran, firstFuel)
	switch {
	case s.ticks == 1:
		s.fuel = firstFuel
	default:
		if took := s.end(now); took > 0 {
			s.fuel = adapt(ran, took)
		}
	}
	if limit := in.limits.RunTime; s.spent > limit {
		panic(&LimitError{Limit: "run_time_ns", Wanted: uint64(s.spent), Max: uint64(limit)})
	}
	if s.ticks > 1 { // the first slice may have begun with other runs, many a short one ago
		if err := in.host.Tick(); err != nil {
			panic(&StoppedError{err})
		}
	}
	s.last, s.blocked = time.Since(e.epoch), false
	if s.metered {
		s.lock()
	}
	st[0] = uint64(s.grant(s.fuel))
}

// grant is the next part of a slice's fuel, of which so much is left.
func (s *slice) grant(left int64) int64 {
	now := min(left, maxGrant)
	s.rest = left - now
	return now
}

// Waits says that the host call which the function is in is about to wait: what others do meanwhile on its thread is not
// counted. The host calls it, on the run's goroutine.
func (in *Instance) Waits() {
	in.slice.blocked = true
	in.slice.unlock()
}

// waited counts on after a host call that may have waited.
func (in *Instance) waited() {
	if s := &in.slice; s.metered && !s.locked {
		s.lock()
	}
}

// shortCopy is how many bytes cost no more than the host call itself, which fuel is taken for.
const shortCopy = 256

// copies takes fuel for bytes that a host call is about to copy, as a bulk instruction does for its own. Where that leaves none, the slice ends here:
// straight code can make hundreds of calls before it looks itself. A long copy does not lie in the slice that it was called in: before it others get the
// fabric to drive, the function is asked for as at the end of any slice, and what it takes is counted by the thread's clock. The error is always nil: a
// run that has to end panics, as in callTick.
func (in *Instance) copies(n int) error {
	if n < shortCopy {
		return nil
	}
	if n <= abi.LongCopy {
		fuel := int64(in.fuel.Get()) - int64(n/wasmcode.BytesPerUnit)
		if in.fuel.Set(uint64(fuel)); fuel < 0 {
			in.tick()
		}
		return nil
	}
	in.slice.metered = true
	for in.tick(); in.slice.ticks == 1; { // the first one asks the host nothing
		in.tick()
	}
	in.slice.blocked = true // what the copy takes says nothing about the code
	return nil
}

// tick ends a slice before its fuel is used up.
func (in *Instance) tick() {
	var st [1]uint64
	in.slice.blocked = true
	in.callTick(st[:])
	in.fuel.Set(st[0])
}

// adapt is the fuel for the next slice, after one with fuel took so long.
func adapt(fuel int64, took time.Duration) int64 {
	next := int64(float64(fuel) * float64(sliceTime) / float64(max(took, 1)))
	next = min(next, fuel*maxGrowth)
	next = max(next, fuel/maxShrink)
	return min(max(next, minFuel), maxFuel)
}

// callStoreTrap ends a run that was about to write at or above the layout's store limit.
func (in *Instance) callStoreTrap(st []uint64) {
	lay := &in.binding.layout
	addr := st[0]
	outside := fmt.Errorf("%w: a store at address %#x", errOutOfBounds, addr)
	if addr >= lay.end {
		panic(outside)
	}
	if in.written() < lay.store && addr < lay.store {
		panic(fmt.Errorf("%w, in scratch, of which the function has asked for %d bytes", outside, in.scratch))
	}
	addr = max(addr, lay.store) // a store may begin just below the first window
	for i, w := range lay.windows {
		if !w.writable && addr >= w.addr && addr < w.addr+w.span && (!w.staged || i == in.staged) {
			offset := addr - w.addr
			if w.slides() {
				offset += in.parts[i]
			}
			panic(&ReadOnlyError{Window: i, Addr: addr, Offset: offset})
		}
	}
	panic(outside)
}

// Window is where window i lies in the function's memory.
func (in *Instance) Window(i int) (addr uint32, size uint64, ok bool) {
	ws := in.binding.layout.windows
	if i < 0 || i >= len(ws) || ws[i].size == 0 {
		return 0, 0, false
	}
	return uint32(ws[i].addr), ws[i].size, true
}

// Broken reports whether a run failed, so that the instance cannot run again.
func (in *Instance) Broken() bool { return in.broken }

// Release gives the instance back. Scratch is dropped: the next run finds
// it zero. The instance must not be used afterwards.
func (in *Instance) Release() {
	if in.running || in.mem == nil || in.slot.Idle() {
		if invariants.Enabled {
			panic("wasm: an instance is released while it runs, or twice")
		}
		return // it must not get into the pool twice
	}
	lay := &in.binding.layout
	if !in.broken && in.scratch > 0 {
		in.broken = in.memory.Discard(lay.scratch, in.written()) != nil || in.huge && in.memory.Small(lay.scratch, in.written()) != nil
		in.scratch, in.huge = 0, false
		in.allow()
	}
	if !in.broken && in.inbox > keptInbox {
		in.broken = in.memory.Discard(lay.mailbox+keptInbox, lay.mailbox+pages(boxBytes+in.inbox)) != nil
	}
	in.inbox = 0
	in.slot.Release(in.broken)
}

// close frees the memory and what wazero holds. wazero frees the memory with the module.
func (in *Instance) close() {
	if in.module != nil {
		// Closing runs no code; it cannot fail.
		_ = in.module.Close(context.Background())
	}
	in.memory.Free()
	in.mem = nil
}

// Deadline, Done, Err and Value implement context.Context: no deadline, never
// done, no values. wazero asks for some values of its own on every call.
func (in *Instance) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (in *Instance) Done() <-chan struct{} { return nil }

// Err implements context.Context.
func (in *Instance) Err() error { return nil }

// Value implements context.Context.
func (in *Instance) Value(any) any { return nil }
