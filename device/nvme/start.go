package nvme

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/uring"
)

// A Starter begins requests that another ends, so that none takes a goroutine. Its methods are called one at a time.
type Starter interface {
	// Start begins a request, whose memory is the Starter's until Reap tells of its end; false: it has to be done by Backing.Do.
	Start(r *Request, token uint64) bool
	// Submit sends off what was started. It reports whether something is left that found no room.
	Submit() (left bool, err error)
	// Reap tells of at most budget ends: how many bytes were moved, which may be less than were asked for.
	Reap(budget int, ended func(token uint64, n int, err error)) int
	// Arm has ends ring the bell from now on, and reports whether some came before. Disarm undoes that.
	Arm() (ready bool)
	Disarm()
	// Close is called when nothing is under way.
	Close() error
}

// A startable Backing has a Starter of its own, which rings bell, an eventfd. Without one, and with an error that says why, Do is enough.
type startable interface {
	Starter(bell int) (Starter, error)
}

// startedAtOnce bounds what is under way by a Starter of a drive; the rest goes to workers.
const startedAtOnce = 256

// fileStarter carries out reads and writes of a File by io_uring.
type fileStarter struct {
	*uring.Ring
	b *File
}

// Starter implements startable.
func (b *File) Starter(bell int) (Starter, error) {
	if b.memory && b.direct == nil {
		return nil, errors.New("a file in memory does not block")
	}
	ring, err := uring.New(startedAtOnce, bell)
	if err != nil {
		return nil, err
	}
	return fileStarter{ring, b}, nil
}

// Start implements Starter. A write that is to be durable shares its fdatasync with others, and data in several pieces takes several calls: workers do these.
func (s fileStarter) Start(r *Request, token uint64) bool {
	if len(r.Pieces) != 1 || r.Durable {
		return false
	}
	fd := int(s.b.fileFor(r).Fd())
	switch r.Op {
	case OpRead:
		return s.Prepare(uring.OpRead, fd, r.Pieces[0], r.Off, token)
	case OpWrite:
		return s.Prepare(uring.OpWrite, fd, r.Pieces[0], r.Off, token)
	}
	return false
}

// Submit implements Starter.
func (s fileStarter) Submit() (left bool, err error) {
	if !s.Pending() {
		return false, nil
	}
	if err = s.Ring.Submit(); errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EBUSY) {
		err = nil
	}
	return s.Pending(), err
}

// fits reports whether a request can go past the page cache: the disk moves whole blocks of its own, to memory that begins where it likes.
func (a alignment) fits(r *Request) bool {
	if r.Op != OpRead && r.Op != OpWrite || r.Off%a.file != 0 || r.Size%a.file != 0 {
		return false
	}
	for _, p := range r.Pieces {
		if len(p) == 0 || int64(len(p))%a.file != 0 || !uring.Aligned(p, a.memory) {
			return false
		}
	}
	return true
}

// begin gives a command to its drive's Starter; false: a worker is to do it. e.mu is held.
func (e *Engine) begin(o *op) bool {
	k := o.c.crew
	if k.starter == nil || len(o.ranges) > 0 || o.second != nil {
		return false
	}
	token := slices.Index(k.started, nil)
	if token < 0 || !k.starter.Start(&o.req, uint64(token)) {
		return false
	}
	k.started[token] = o
	k.begun(o)
	e.flying++
	e.count()
	return true
}

// submit sends off what was begun in a turn; e.mu is held.
func (e *Engine) submit() {
	if e.flying == 0 {
		return
	}
	for _, k := range e.crews {
		if k.starter == nil {
			continue
		}
		if _, err := k.starter.Submit(); err != nil { // the next turn tries again
			e.log.Warn("a drive's requests could not be submitted", "err", err)
		}
	}
}

// reap ends the commands whose requests have ended; e.mu is held.
func (e *Engine) reap() (n int) {
	if e.flying == 0 {
		return 0
	}
	var held *fabric.Endpoint // what ends in a row for one borrower leaves together
	hold := func(ep *fabric.Endpoint) {
		if ep == held {
			return
		}
		if held != nil {
			held.Release()
		}
		if held = nil; ep != nil && ep.Hold() {
			held = ep
		}
	}
	defer func() { hold(nil) }()
	for _, k := range e.crews {
		if k.starter == nil {
			continue
		}
		n += k.starter.Reap(turnCommands, func(token uint64, moved int, err error) {
			o := k.started[token]
			k.started[token] = nil
			e.flying--
			if err == nil && int64(moved) < o.req.Size || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECANCELED) {
				e.hand(o) // by a call, which goes on until it is done or says what is wrong
				return
			}
			hold(o.q.cq.far())
			o.finish(err)
		})
	}
	e.count()
	return n
}

// armStarters has ends wake the leader; it reports whether there is something to do first. e.mu is held.
func (e *Engine) armStarters() (ready bool) {
	if e.flying == 0 {
		return false
	}
	for _, k := range e.crews {
		if k.starter == nil {
			continue
		}
		left, _ := k.starter.Submit()
		ready = k.starter.Arm() || left || ready
	}
	return ready
}

func (e *Engine) disarmStarters() {
	if e.active.Load() == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, k := range e.crews {
		if k.starter != nil {
			k.starter.Disarm()
		}
	}
}
