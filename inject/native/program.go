package native

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/elf"
	"github.com/wherry-fabric/wherry/inject/native/worker"
	"github.com/wherry-fabric/wherry/inject/room"
	"github.com/wherry-fabric/wherry/internal/memfd"
)

// codeFile is code in a memfd that nobody can change any more: what is mapped executable in workers, and
// nowhere writable.
type codeFile struct {
	fd    int
	bytes uint64
}

// newCodeFile is of an image's bytes up to end. The gaps between its segments, which are most of a small program, are neither written nor looked at.
func newCodeFile(img *elf.Image, end uint64) (*codeFile, error) {
	fd, err := unix.MemfdCreate("wherry-code", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("native: a file for code: %w", err)
	}
	c := &codeFile{fd: fd, bytes: pages(end)}
	err = unix.Ftruncate(fd, int64(c.bytes))
	for _, p := range img.Parts {
		for at := p.From; err == nil && at < min(p.To, end); {
			var n int
			n, err = unix.Pwrite(fd, img.Bytes[at:min(p.To, end)], int64(at))
			at += uint64(n)
		}
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("native: a file for %d bytes of code: %w", end, err)
	}
	return c, nil
}

func (c *codeFile) close() { unix.Close(c.fd) }

// tier is how a program's code was made.
type tier struct {
	name   string
	better bool // there can be a better one
}

// firstTier is what can be better.
const firstTier = "first tier, not optimised here"

// hostCalls are the symbols of a runtime that stand for those that an object leaves open: of a host call the form that the object's ABI version has.
type hostCalls map[string]string

// in gives the addresses that they have in a runtime.
func (c hostCalls) in(r *worker.Runtime) func(symbol string) (uint64, bool) {
	return func(symbol string) (uint64, bool) { return r.Image.Address(c[symbol]) }
}

// program is code at its address.
type program struct {
	engine    *Engine
	payer     string // for whom it was loaded
	tier      tier
	object    *elf.Object
	calls     hostCalls
	image     *elf.Image // at its address in workers
	code      *codeFile
	limits    abi.Limits
	scratches bool // it can ask for scratch

	mu     sync.Mutex
	uses   int // bounds
	closed bool
}

// Tier is for abi.Tiered.
func (p *program) Tier() (name string, better bool) { return p.tier.name, p.tier.better }

// statics is how many bytes the function may write to that have names.
func (p *program) statics() uint64 { return p.image.Size - p.image.Data }

func (p *program) hold() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	p.uses++
	return nil
}

func (p *program) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.uses--; p.uses < 0 {
		p.code.close()
		p.engine.loaded.Drop(p.payer, p.codeBytes())
	}
}

// codeBytes is what a program takes, however often it is bound: its image here and in the file, and the object.
func (p *program) codeBytes() uint64 {
	n := uint64(len(p.image.Bytes))
	return n + pages(n) + uint64(p.object.Bytes())
}

const maxPrograms = 4096 // each has a descriptor of the process's

// Close gives the program up; its code goes when its last bound has.
func (p *program) Close() {
	p.mu.Lock()
	was := p.closed
	p.closed = true
	p.mu.Unlock()
	if !was {
		p.drop()
	}
}

// bound is a program for one principal with one set of windows.
type bound struct {
	*room.Pool
	program *program
	windows []window
}

// window is one as workers and the node have it.
type window struct {
	abi.Window
	addr uint64
	mem  []byte // the node's mapping, for what host calls name
	span uint64 // mapped: whole pages of the machine
	id   identity
}

// identity tells memfds apart, however their descriptors are numbered.
type identity struct{ dev, ino uint64 }

// Bind checks the windows and gives them their addresses. Errors are *WindowError, *LimitError and ErrClosed.
func (p *program) Bind(_ context.Context, principal string, windows []abi.Window) (abi.Bound, error) {
	if len(windows) > worker.MaxWindows {
		return nil, &LimitError{Limit: "windows", Wanted: uint64(len(windows)), Max: worker.MaxWindows}
	}
	b := &bound{program: p}
	base, scratch := fixedBytes(p.statics(), p.limits.PayloadBytes), p.scratchBytes()
	ahead := false // all scratch is charged at once: the function writes to windows, so it cannot start over when there is no room
	at := uint64(worker.WindowsAt)
	for i, w := range windows {
		own := window{Window: w, addr: at}
		if w.Size > 0 {
			if err := own.open(); err != nil {
				b.unmap()
				return nil, &WindowError{i, err}
			}
			at += pages(own.span) + worker.PageBytes // a gap, so that running off a window's end faults
		}
		if p.engine.config.InProcess && w.Size > 0 {
			own.addr = worker.AddressOf(own.mem)
		}
		ahead = ahead || w.Writable && w.Size > 0
		b.windows = append(b.windows, own)
		if at > worker.WindowsEnd {
			b.unmap()
			return nil, &WindowError{i, fmt.Errorf("the windows up to this one take %d bytes, a worker has room for %d", at-worker.WindowsAt, uint64(worker.WindowsEnd-worker.WindowsAt))}
		}
	}
	if p.engine.config.InProcess {
		base += p.codeBytes() // each instance has the code at an address of its own
	}
	if ahead {
		base, scratch = base+scratch, 0
	}
	if err := p.hold(); err != nil {
		b.unmap()
		return nil, err
	}
	b.Pool = p.engine.room.Pool(principal, b, base, scratch)
	return b, nil
}

// open checks that a window's descriptor can be mapped for good, and maps it here.
func (w *window) open() error {
	page := int64(unix.Getpagesize())
	if w.Offset < 0 || w.Offset%page != 0 || w.Size > worker.WindowsEnd-worker.WindowsAt {
		return fmt.Errorf("%d bytes at %d; want an offset that is a multiple of %d, and at most %d bytes", w.Size, w.Offset, page, uint64(worker.WindowsEnd-worker.WindowsAt))
	}
	w.span = (w.Size + uint64(page) - 1) &^ uint64(page-1)
	if err := memfd.Check(w.FD, w.Offset+int64(w.span), false); err != nil {
		return err
	}
	prot := unix.PROT_READ
	if w.Writable {
		prot |= unix.PROT_WRITE
	}
	var err error
	if w.id, err = identify(w.FD); err != nil {
		return err
	}
	if w.mem, err = unix.Mmap(w.FD, w.Offset, int(w.span), prot, unix.MAP_SHARED|unix.MAP_NORESERVE); err != nil {
		return fmt.Errorf("map %d bytes: %w", w.span, err)
	}
	return nil
}

func identify(fd int) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return identity{}, fmt.Errorf("fstat: %w", err)
	}
	return identity{uint64(st.Dev), st.Ino}, nil
}

func (b *bound) unmap() {
	for i := range b.windows {
		if w := &b.windows[i]; w.mem != nil {
			_ = unix.Munmap(w.mem) // it is one of ours
			w.mem = nil
		}
	}
}

// scratchBytes is what all scratch takes that the function can ask for.
func (p *program) scratchBytes() uint64 {
	if !p.scratches {
		return 0
	}
	return pages(p.limits.ScratchBytes)
}

// Gone takes the windows along: the pool is closed, and its last worker gone.
func (b *bound) Gone() {
	b.unmap()
	b.program.drop()
}
