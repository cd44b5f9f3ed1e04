package native

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/native/worker"
	"github.com/wherry-fabric/wherry/inject/room"
	"github.com/wherry-fabric/wherry/internal/cputime"
	"github.com/wherry-fabric/wherry/internal/invariants"
)

// instance is a worker as its runs see it. One goroutine at a time uses it.
type instance struct {
	bound    *bound
	slot     room.Slot
	process  *process
	limits   *abi.Limits // of the program, or narrowed
	asked    *abi.Limits // what narrowed was made from; nil: nothing
	narrowed abi.Limits
	running  bool
	told     bool   // its worker knows which rows are where, if that can be known
	near     bool   // … and that elements may be near
	broken   bool   // its worker is gone, or must go
	scratch  uint64 // bytes granted, of the current acquisition

	// Of the current run.
	host       abi.Host
	mail       abi.Status // of a reply or forward that the function was told OK for
	letter     [worker.MailBytes]byte
	args       [8]uint64 // of the host call
	replyBytes uint64
	forks      uint32
	logBytes   uint32
	slice      slice
	runs       uint64
	waited     bool          // in the current one
	measured   bool          // the last one was, …
	took       time.Duration // … or one before it took so long
}

const (
	// timedRuns is of how many short runs in this process one is measured: to look at the clock twice takes as long as the rest of it.
	timedRuns = 16
	// shortRun is up to how long a run is short: of longer ones each is measured, as the clock takes a hundredth at most.
	shortRun = 10 * time.Microsecond
)

// slice is where a run stands in its use of time.
type slice struct {
	end   time.Time
	next  time.Duration // how long the next one is
	begun time.Time     // the run
	// Of the worker's processor time:
	looked bool          // in this run
	cpu    time.Duration // when it began; once looked
	used   time.Duration // by it, when that was last looked at

	spent time.Duration // by the node for it
	held  time.Duration // of the worker's turns, asleep or not
}

const (
	firstSlice = 100 * time.Microsecond // as wasm's: then others drive the fabric
	// longestSlice is how late a run hears that it is to stop, and how late the death of a worker is noticed.
	longestSlice = 5 * time.Millisecond
)

// narrow makes limits those of the runs from here on; nil: the program's.
func (in *instance) narrow(limits *abi.Limits) {
	own := &in.bound.program.limits
	if in.limits, in.asked = own, limits; limits != nil {
		in.narrowed = limits.Or(*own).AtMost(*own)
		in.limits = &in.narrowed
	}
}

func (s *slice) begin() {
	s.begun = time.Now()
	s.end = s.begun.Add(s.next)
}

// Run runs the function. After an error the worker is gone, and Release forgets it.
func (in *instance) Run(payload []byte, limits *abi.Limits, host abi.Host) (abi.Status, error) {
	if in.broken {
		return 0, fmt.Errorf("%w: this worker ended before", ErrClosed)
	}
	if invariants.Enabled && in.running {
		panic("native: an instance runs twice at once")
	}
	if limits != in.asked {
		in.narrow(limits)
	}
	if n := uint64(len(payload)); n > in.limits.PayloadBytes {
		return 0, &LimitError{Limit: "payload_bytes", Wanted: n, Max: in.limits.PayloadBytes}
	}
	p := in.process
	if p.zeroBytes > 0 {
		if err := unix.Fallocate(p.room.FD(), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, p.zeroAt, p.zeroBytes); err != nil {
			return 0, in.fail(&WorkerError{fmt.Errorf("zero %d bytes of statics: %w", p.zeroBytes, err)})
		}
	}
	in.tell(host)
	copy(p.payload, payload)
	p.page.Begin(uint32(len(payload)), host.Self(), host.Elements())
	in.host, in.running = host, true
	in.mail, in.replyBytes, in.forks, in.logBytes = abi.OK, 0, 0, 0
	in.slice = slice{next: firstSlice}
	if p.inside == nil { // else it begins at the first host call, where the clock is looked at
		in.slice.begin()
	}
	st, err := in.timedConverse()
	in.host, in.running = nil, false
	if err != nil {
		return 0, in.fail(err)
	}
	in.slot.Trim(in.scratch)
	if st == abi.OK {
		st = in.mail // the function was told OK before it was sent
	}
	return st, nil
}

// tell tells a worker, before a run, what it then need not ask: once which rows are where, and that elements are near when the first has become so.
func (in *instance) tell(host abi.Host) {
	if in.told && in.near {
		return
	}
	teller, ok := host.(abi.RangeTeller)
	if !ok {
		return
	}
	if !in.near && teller.Near() {
		worker.WriteNear(in.process.context)
		in.near = true
	}
	if in.told {
		return
	}
	in.told = true
	elements := host.Elements()
	if elements > worker.MaxRanges {
		return
	}
	ranges, end := make([][2]uint64, elements), uint64(0)
	for i := range ranges {
		first, count, ok := teller.Range(uint32(i))
		if !ok || first < end || first+count < first {
			return
		}
		ranges[i], end = [2]uint64{first, count}, first+count
	}
	worker.WriteRanges(in.process.context, ranges)
}

// fail ends the worker.
func (in *instance) fail(err error) error {
	in.broken = true
	in.process.end()
	return err
}

// Slot is where the worker lies in its bound's pool.
func (in *instance) Slot() *room.Slot { return &in.slot }

// Release gives the worker back, its scratch gone. One that failed, or whose bound is closed, ends.
func (in *instance) Release() {
	if in.running {
		if invariants.Enabled {
			panic("native: an instance is released while it runs")
		}
		return
	}
	if !in.broken && in.scratch > 0 {
		in.broken = in.process.resizeScratch(0) != nil
		in.scratch = 0
	}
	in.slot.Release(in.broken)
}

// Discard ends the worker: it is in no pool any more.
func (in *instance) Discard() { in.process.end() }

// timedConverse is converse of a run whose time is to be known. In this process the first run of an instance tells whether its runs are short, and the second one
// is the first that did not find everything cold.
func (in *instance) timedConverse() (abi.Status, error) {
	in.waited = false
	in.runs++
	if in.process.inside == nil {
		st, err := in.converse()
		if in.measured, in.took = true, in.slice.held; !in.waited {
			in.took = time.Since(in.slice.begun) // hand-overs too
		}
		return st, err
	}
	if in.measured = in.runs <= 2 || in.runs%timedRuns == 0 || in.took > shortRun; !in.measured {
		return in.converse()
	}
	begun := time.Now()
	st, err := in.converse()
	if in.measured = !in.waited; in.measured {
		in.took = time.Since(begun)
	}
	return st, err
}

// Took is how long the last run took, with its hand-overs; if it waited, how long it held its worker. In this process it is known if it was measured, and has not waited.
func (in *instance) Took() (d time.Duration, typical bool) {
	return in.took, in.measured && in.runs > 1
}

// converse gives the worker its turn until its run has ended.
func (in *instance) converse() (abi.Status, error) {
	page := in.process.page
	for {
		if inside := in.process.inside; inside != nil {
			inside.Resume()
		} else {
			page.HandOver()
			if err := in.await(); err != nil {
				return 0, err
			}
		}
		switch wants := page.Wants(); wants {
		case worker.WantsDone:
			st := abi.Status(page.Status())
			in.deliver(st == abi.OK)
			return st, nil
		case worker.WantsCall:
			in.deliver(false)
			if err := in.call(page.Call()); err != nil {
				return 0, err
			}
		case worker.WantsFault:
			return 0, in.fault(page.Fault())
		default:
			return 0, &TrapError{Text: fmt.Sprintf("its worker stopped for %d, which means nothing", wants)}
		}
	}
}

// await sleeps until it is the node's turn, and asks at each slice's end whether the run may go on.
func (in *instance) await() error {
	s := &in.slice
	for {
		now := time.Now()
		left := max(s.end.Sub(now), 0)
		if left > 0 && in.process.page.Await(left) {
			s.held += min(time.Since(now), left)
			return nil
		}
		s.held += left // not more, if this process was stopped meanwhile
		if in.process.dead() {
			if in.process.page.Await(0) && in.process.page.Wants() == worker.WantsFault {
				return in.fault(in.process.page.Fault())
			}
			words, _ := in.process.lastWords()
			return &TrapError{Text: words}
		}
		if err := in.tick(); err != nil {
			return err
		}
		if s.next *= 2; s.next > longestSlice {
			s.next = longestSlice
		}
		s.end = time.Now().Add(s.next)
	}
}

// lapse ends a slice that is over of a run in this process, which is asked at its host calls only.
func (in *instance) lapse() error {
	s := &in.slice
	if s.begun.IsZero() {
		s.begin()
		return nil
	}
	now := time.Now()
	if now.Before(s.end) {
		return nil
	}
	s.held = now.Sub(s.begun)
	s.next = min(2*s.next, longestSlice)
	s.end = now.Add(s.next)
	return in.tick()
}

// look looks at the processor time that the run has used. The first time that can be no more than what has passed; to look when the run begins too would take a
// tenth as long as an empty run does.
func (in *instance) look() error {
	s := &in.slice
	used := s.held
	if in.process.inside == nil {
		var err error
		if used, err = cputime.Process(in.process.pid); err != nil {
			return &WorkerError{err}
		}
	}
	if !s.looked {
		s.looked, s.cpu = true, used-min(used, time.Since(s.begun))
	}
	s.used = used - s.cpu
	return nil
}

// tick ends a slice.
func (in *instance) tick() error {
	s := &in.slice
	if err := in.look(); err != nil {
		return err
	}
	if spent := s.used + s.spent; spent > in.limits.RunTime {
		return &LimitError{Limit: "run_time_ns", Wanted: uint64(spent), Max: uint64(in.limits.RunTime)}
	}
	if s.held/holds > in.limits.RunTime {
		return fmt.Errorf("the function held its worker for %v, %d times its run time, and computed for %v of it: it sleeps, or the machine is overloaded: %w",
			s.held, holds, s.used, &LimitError{Limit: "run_time_ns", Wanted: uint64(s.held / holds), Max: uint64(in.limits.RunTime)})
	}
	if err := in.host.Tick(); err != nil {
		return &StoppedError{err}
	}
	return nil
}

const (
	// holds is how many times its run time a run may hold its worker: one that sleeps uses no processor time, and one that shares
	// its processor with others has to wait for it.
	holds = 10
	// copyRate is how many bytes a host call copies in a nanosecond, for what a run is charged: memory that is in no cache.
	copyRate = 8
	// callTime is what a host call is charged that the node answers: two hand-overs and the call.
	callTime = 2 * time.Microsecond
)

// charge charges a run for what the node is about to do for it, which is not done if that exceeds its run time: on a busy machine, where a worker waits for
// its turn and slices grow meanwhile, a run can ask for many times as much before its slice ends.
func (in *instance) charge(d time.Duration) error {
	s := &in.slice
	if s.spent += d; s.used+s.spent <= in.limits.RunTime {
		return nil
	}
	return in.tick()
}

// copies charges a run for bytes that a host call is about to copy: it is the node's processor time, and its own by right.
func (in *instance) copies(n int) error {
	if err := in.charge(time.Duration(n / copyRate)); err != nil || n <= abi.LongCopy {
		return err
	}
	return in.tick()
}

// Waits says that what passes is not the function's. A worker uses no processor time while the node waits for it, but in the first slice its clock has to be looked at before
// the wait: later that would look like the run's time.
func (in *instance) Waits() {
	in.waited = true
	if in.running && in.process.inside == nil && !in.slice.looked {
		_ = in.look() // where it cannot be told, the next tick says so
	}
}

// fault says what a worker's last words mean.
func (in *instance) fault(f worker.Fault) error {
	t := &TrapError{Signal: unix.SignalName(unix.Signal(f.Signal))}
	if t.Signal == "" {
		t.Signal = fmt.Sprintf("signal %d", f.Signal)
	}
	in.at(t, f.PC)
	where := t.Function
	if where == "" {
		where = fmt.Sprintf("address %#x", f.PC)
	} else {
		where = fmt.Sprintf("%s+%#x", where, t.Offset)
	}
	if t.File != "" {
		where = fmt.Sprintf("%s (%s:%d)", where, t.File, t.Line)
	}
	t.Text = fmt.Sprintf("%s in %s: %s", t.Signal, where, in.reason(f))
	return t
}

// at says in which function an address lies, and in which line of its source.
func (in *instance) at(t *TrapError, pc uint64) {
	var ok bool
	if t.Function, t.Offset, ok = in.process.image.Function(pc); !ok {
		t.Function, t.Offset, _ = in.bound.program.engine.runtime.Image.Function(pc)
		return
	}
	t.File, t.Line, _ = in.bound.program.object.Line(in.process.image, pc)
}

// reason says what a fault's address or code tells about its cause.
func (in *instance) reason(f worker.Fault) string {
	const below = worker.PageBytes // how far below the stack's end an address still looks like running over it
	switch sig := unix.Signal(f.Signal); {
	case sig == unix.SIGSYS:
		return fmt.Sprintf("a system call, number %d; a function makes host calls only", f.Code)
	case int32(f.Code) <= 0: // SI_USER, SI_TKILL, …: the kernel's own are above
		return "another process sent the signal; the function did nothing wrong"
	case sig == unix.SIGFPE:
		return "an arithmetic error, as a division by zero is"
	case sig == unix.SIGILL || sig == unix.SIGTRAP:
		return "an instruction that is none here, as what a compiler puts where nothing can be reached, or on arm64 and riscv64 where it finds a division by zero"
	}
	switch a := f.Addr; {
	case a == f.PC:
		return fmt.Sprintf("it went on at address %#x, where no code is", a)
	case a >= worker.StackAt-below && a < worker.StackAt, // or beyond, by a frame that probes no pages
		f.SP >= worker.InitialAt && f.SP < worker.StackAt && a+below >= f.SP && a < worker.StackAt:
		return fmt.Sprintf("the stack of %d KiB is used up", worker.StackBytes>>10)
	case a >= worker.ScratchAt && a < worker.ScratchAt+worker.MaxScratch:
		return fmt.Sprintf("it touched byte %d of scratch, of which it has asked for %d", a-worker.ScratchAt, in.scratch)
	}
	for i := range in.bound.windows {
		w := &in.bound.windows[i]
		switch off := f.Addr - w.addr; {
		case w.Size == 0 || f.Addr < w.addr:
		case off < w.span && !w.Writable:
			return fmt.Sprintf("it tried to write to window %d, which is read-only, at its byte %d", i, off)
		case off < w.span+worker.PageBytes:
			return fmt.Sprintf("it touched byte %d of window %d, which has %d", off, i, w.Size)
		}
	}
	if base := in.process.image; f.Addr >= base.Base && f.Addr < base.Base+base.Data {
		return fmt.Sprintf("it tried to write to its own code or constants, at %#x", f.Addr)
	}
	return fmt.Sprintf("it touched address %#x, where nothing is", f.Addr)
}
