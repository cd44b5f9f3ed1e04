package native

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/inject/elf"
	"github.com/wherry-fabric/wherry/inject/native/worker"
	"github.com/wherry-fabric/wherry/inject/room"
	"github.com/wherry-fabric/wherry/internal/memfd"
	"github.com/wherry-fabric/wherry/internal/stackswitch"
)

// process is a worker.
type process struct {
	pid, pidfd int
	nursery    *nursery // that made it
	base       uint64   // where what workers have from worker.Base on begins
	image      *elf.Image
	inside     *stackswitch.Frame // it is no process, but runs in this one; nil: it is
	room       *memfd.File
	page       worker.Page
	context    []byte // parts of room
	payload    []byte
	statics    []byte
	stack      []byte
	zeroAt     int64  // in room: statics that the node zeroes before each run …
	zeroBytes  int64  // … and how many bytes
	scratchFD  int    // -1: none; a file as long as what was asked for
	scratch    []byte // all that can be asked for; what is beyond the file's end must not be touched
	ended      bool
	reserved   *worker.Reservation // inside: its addresses
}

// longZeros is how many bytes of zeroed statics the node drops before a run, rather than having the worker zero them: at
// some 10 GB/s it zeroes as many in the time of a system call or two.
const longZeros = 256 << 10

// Make makes a worker of a bound.
func (b *bound) Make(ctx context.Context) (room.Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i := range b.windows {
		w := &b.windows[i]
		if w.Size == 0 {
			continue
		}
		if id, err := identify(w.FD); err != nil {
			return nil, &WindowError{i, err}
		} else if id != w.id {
			return nil, &WindowError{i, fmt.Errorf("descriptor %d is another memfd than when the window was bound; close the bound before its descriptors", w.FD)}
		}
	}
	p, err := b.process(ctx)
	if err != nil {
		return nil, err
	}
	return &instance{bound: b, process: p, limits: &b.program.limits}, nil
}

// layout collects a worker's mappings.
type layout struct {
	maps []worker.Map
	fds  []int
}

func (l *layout) file(fd int) int {
	l.fds = append(l.fds, fd)
	return len(l.fds) - 1
}

func (l *layout) add(addr, size uint64, file int, offset uint64, write, exec bool) {
	if size > 0 {
		l.maps = append(l.maps, worker.Map{Addr: addr, Size: size, FD: file, Offset: int64(offset), Write: write, Exec: exec})
	}
}

// code maps an image's code and read-only data.
func (l *layout) code(base, constAt, dataAt uint64, c *codeFile) (file int) {
	file = l.file(c.fd)
	l.add(base, constAt, file, 0, false, true)
	l.add(base+constAt, dataAt-constAt, file, constAt, false, false)
	return file
}

// process makes the memory of a worker and the worker.
func (b *bound) process(ctx context.Context) (p *process, err error) {
	e := b.program.engine
	p = &process{pid: -1, pidfd: -1, scratchFD: -1, nursery: e.nursery, base: worker.Base, image: b.program.image}
	defer func() {
		if err != nil {
			p.end()
		}
	}()
	c := codes{e.runtime, e.code, b.program.code}
	if e.config.InProcess {
		if c, err = p.reserve(b); err != nil {
			return p, &WorkerError{err}
		}
		defer c.close()
	}
	l, err := b.room(p, c)
	if err != nil {
		return p, &WorkerError{err}
	}
	start := worker.Start{Maps: l.maps, Entry: c.runtime.Image.Entry, Stack: worker.StackAt - worker.Base + p.base + worker.StackBytes}
	if e.config.InProcess {
		if err := p.enter(l, &start); err != nil {
			return p, &WorkerError{err}
		}
		return p, nil
	}
	if p.pid, p.pidfd, err = e.nursery.request(ctx, &start, l.fds); err != nil {
		return p, err
	}
	return p, p.settle(ctx, e.config.StartTime)
}

// codes are what a worker executes, at its address.
type codes struct {
	runtime               *worker.Runtime
	runtimeCode, function *codeFile
}

func (c *codes) close() {
	c.runtimeCode.close()
	c.function.close()
}

// room makes the memory of a worker, and says where it goes.
func (b *bound) room(p *process, c codes) (*layout, error) {
	img, run, moved := p.image, c.runtime.Image, p.base-worker.Base
	runData := pages(run.Size - run.Data)
	contextAt := runData
	payloadAt := contextAt + worker.ContextBytes
	staticsAt := payloadAt + pages(b.program.limits.PayloadBytes)
	stackAt := staticsAt + pages(b.program.statics())
	var err error
	if p.room, err = memfd.Create("wherry-worker", int64(stackAt+worker.StackBytes), false); err != nil {
		return nil, err
	}
	mem := p.room.Bytes()
	p.payload = mem[payloadAt:][:b.program.limits.PayloadBytes]
	p.statics = mem[staticsAt:][:b.program.statics()]
	p.stack = mem[stackAt:][:worker.StackBytes]
	copy(mem[:runData], run.Bytes[run.Data:])
	p.page = worker.PageOf(mem[c.runtime.Page:])
	p.page.SetContext(worker.ContextAt + moved)
	p.context = mem[contextAt:][:worker.ContextBytes]
	b.context(p, staticsAt).Write(p.context, p.base)

	l := &layout{}
	l.code(run.Base, run.Const, run.Data, c.runtimeCode)
	code := l.code(img.Base, img.Const, img.Data, c.function)
	l.add(worker.InitialAt+moved, c.function.bytes-img.Data, code, img.Data, false, false)
	room := l.file(p.room.FD())
	l.add(run.Base+run.Data, runData, room, 0, true, false)
	l.add(worker.ContextAt+moved, worker.ContextBytes, room, contextAt, false, false)
	l.add(worker.PayloadAt+moved, staticsAt-payloadAt, room, payloadAt, true, false)
	l.add(img.Base+img.Data, stackAt-staticsAt, room, staticsAt, true, false)
	l.add(worker.StackAt+moved, worker.StackBytes, room, stackAt, true, false)
	if err := p.mapScratch(b, l); err != nil {
		return nil, err
	}
	for i := range b.windows {
		if w := &b.windows[i]; w.Size > 0 && moved == 0 { // they are in this process already
			l.add(w.addr, w.span, l.file(w.FD), uint64(w.Offset), w.Writable, false)
		}
	}
	return l, nil
}

// context is what a worker of b is told.
func (b *bound) context(p *process, staticsAt uint64) *worker.Context {
	img := p.image
	filled := uint64(len(img.Bytes)) - img.Data
	c := &worker.Context{Entry: img.Entry, Data: img.Base + img.Data, DataBytes: filled}
	if zero := img.Size - uint64(len(img.Bytes)); zero <= longZeros {
		c.ZeroBytes = align8(b.program.statics()) - min(align8(filled), align8(b.program.statics()))
	} else { // whole pages are dropped, the rest is part of what is copied
		from := pages(staticsAt + filled)
		p.zeroAt, p.zeroBytes = int64(from), int64(pages(staticsAt+b.program.statics())-from)
		c.ZeroBytes = from - staticsAt - align8(filled)
	}
	for i := range b.windows {
		w := &b.windows[i]
		c.Windows = append(c.Windows, worker.Window{Addr: w.addr, Size: w.Size, Writable: w.Writable})
	}
	return c
}

func align8(n uint64) uint64 { return (n + 7) &^ 7 }

// mapScratch makes the file behind scratch, which is empty until there is some.
func (p *process) mapScratch(b *bound, l *layout) error {
	size := b.program.scratchBytes()
	if size == 0 {
		return nil
	}
	var err error
	if p.scratchFD, err = unix.MemfdCreate("wherry-scratch", unix.MFD_CLOEXEC); err != nil {
		return fmt.Errorf("a file for scratch: %w", err)
	}
	if p.scratch, err = unix.Mmap(p.scratchFD, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE); err != nil {
		return fmt.Errorf("map %d bytes of scratch: %w", size, err)
	}
	l.add(worker.ScratchAt-worker.Base+p.base, size, l.file(p.scratchFD), 0, true, false)
	return nil
}

// resizeScratch makes n bytes of scratch touchable, whole pages; what is dropped is gone, and what is new is zero.
func (p *process) resizeScratch(n uint64) error {
	return unix.Ftruncate(p.scratchFD, int64(pages(n)))
}

// settle waits until the worker is locked down, or nobody wants it any more.
func (p *process) settle(ctx context.Context, limit time.Duration) error {
	for end := time.Now().Add(limit); !p.page.Await(time.Millisecond); {
		if p.dead() {
			words, status := p.lastWords()
			if status.Exited() && status.ExitStatus() > 1 { // nursery.c: why it could not become a worker
				words = fmt.Sprintf("its memory could not be mapped: %v", unix.Errno(status.ExitStatus()))
			}
			return &WorkerError{errors.New(words)}
		}
		if ctx.Err() != nil {
			return &WorkerError{fmt.Errorf("it was not ready yet: %w", ctx.Err())}
		}
		if time.Now().After(end) {
			return &WorkerError{fmt.Errorf("it was not ready after %v", limit)}
		}
	}
	switch f := p.page.Fault(); p.page.Wants() {
	case worker.WantsReady:
		return nil
	case worker.WantsFailed:
		return &WorkerError{fmt.Errorf("it could not lock itself down: step %d (1 to die with the node, 2 no core, 3 close_range, 4 the system-call filter): %w", f.Signal, unix.Errno(f.Addr))}
	default:
		return &WorkerError{fmt.Errorf("it stopped for %d before it was ready, by signal %d", p.page.Wants(), f.Signal)}
	}
}

// dead reports whether the worker has ended.
func (p *process) dead() bool {
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// lastWords says how an ended worker ended.
func (p *process) lastWords() (words string, status unix.WaitStatus) {
	p.nursery.made.Delete(p.pid) // first: once it is waited for, another can have the number
	pid, err := unix.Wait4(p.pid, &status, unix.WNOHANG, nil)
	if err != nil || pid != p.pid {
		return fmt.Sprintf("its process ended, and how is not known (%v)", err), 0
	}
	p.pid = -1
	if status.Signaled() {
		return fmt.Sprintf("its process was ended by %s", unix.SignalName(status.Signal())), status
	}
	return fmt.Sprintf("its process ended with status %d", status.ExitStatus()), status
}

// endTime is how long a killed worker may take to be gone.
const endTime = 5 * time.Second

// kill ends the worker's process and waits for it. It goes by the descriptor, where there is one: the embedding program may have
// waited for the process already, and its number be another's.
func (p *process) kill() {
	if p.nursery != nil {
		p.nursery.made.Delete(p.pid) // first: once it is waited for, another can have the number
	}
	if p.pidfd < 0 {
		endChild(p.pid)
		return
	}
	_ = unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0) // it may have ended already
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	for start := time.Now(); time.Since(start) < endTime; {
		if n, err := unix.Poll(fds, int(endTime/time.Millisecond)); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = unix.Waitid(unix.P_PIDFD, p.pidfd, nil, unix.WEXITED|unix.WNOHANG, nil) // one that the kernel cannot end yet stays a child of the node's
}

// end kills the worker and frees its memory. It may be called for one that is made in part.
func (p *process) end() {
	if p.ended {
		return
	}
	p.ended = true
	if p.pid > 0 {
		p.kill()
	}
	if p.reserved != nil {
		p.reserved.Close()
	}
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
	}
	if p.scratch != nil {
		_ = unix.Munmap(p.scratch) // it is one of ours
	}
	if p.scratchFD >= 0 {
		unix.Close(p.scratchFD)
	}
	if p.room != nil {
		p.room.Close()
	}
}
