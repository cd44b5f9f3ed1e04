package fabric

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/memfd"
)

// Backing is what a segment's bytes lie in: memory of this element (NewSegment), a file that is mapped, a guest's
// memory, the registers of a device. An implementation runs the suite fabrictest.RunBacking.
type Backing interface {
	// Bytes is the memory itself, at least as long as the segment, page-aligned, and the same until Close; nil where loads and
	// stores do not reach it. Such a segment cannot be mapped nor be a function's window, and has no atomics.
	Bytes() []byte
	// FD is a memfd, sealed against shrinking, in which the bytes begin at offset; -1 where there is none. Peers on the same machine are
	// given it if offset is 0, and can read all of it then, and write it if the segment is Writable: also what lies behind the segment. A
	// function is not: of such memory only whole multiples of SegmentAlign become its window.
	FD() (fd int, offset int64)
	// ReadAt and WriteAt are how others reach the bytes where Bytes is nil; otherwise they are not called. The leader calls them,
	// one at a time for one endpoint and with its locks held, so they must be as short as a register's access and use nothing of the
	// element: nothing else moves meanwhile. p is never empty. An error fails the operation with ErrBacking at the peer; it is told no more than that.
	ReadAt(p []byte, off uint64) error
	WriteAt(p []byte, off uint64) error
	// Close is called once, when the segment is closed and nobody here uses its bytes any more, by whoever was the last: also the leader, with an
	// endpoint's locks held.
	Close() error
}

// NewSegmentOn makes a segment of the first size bytes of a backing, which is the segment's from then on, unless an error
// is returned. Limits.LentBytes does not count it: whoever made the backing has paid for it.
func (e *Element) NewSegmentOn(b Backing, size uint64, kind SegmentKind) (*Segment, error) {
	if size == 0 || size > e.cfg.Limits.SegmentBytes {
		return nil, fmt.Errorf("fabric: a segment of %d bytes: the limit is %d (Limits.SegmentBytes)", size, e.cfg.Limits.SegmentBytes)
	}
	if err := kind.check(size); err != nil {
		return nil, err
	}
	mem := b.Bytes()
	if mem != nil && uint64(len(mem)) < size {
		return nil, fmt.Errorf("fabric: a segment of %d bytes on a backing of %d: %w", size, len(mem), ErrRange)
	}
	fd, offset := b.FD()
	if fd >= 0 {
		if mem == nil {
			return nil, fmt.Errorf("fabric: a backing with a descriptor and without bytes: %w", errors.ErrUnsupported)
		}
		if offset < 0 || offset%int64(unix.Getpagesize()) != 0 {
			return nil, fmt.Errorf("fabric: a backing at %d of its descriptor: it must begin at a page: %w", offset, ErrAlign)
		}
		if err := memfd.Check(fd, offset+int64(size), kind == Sealed); err != nil {
			return nil, fmt.Errorf("fabric: a backing's descriptor: %w", err)
		}
	}
	s := &Segment{el: e, on: b, id: e.nextSegment.Add(1), kind: kind, size: size}
	if mem != nil {
		s.mem = mem[:size:size]
	}
	if err := e.keys.addSegment(s); err != nil {
		return nil, err
	}
	return s, nil
}

// ForeignMemory is a Backing that is another program's memory, as a guest's: a memfd that is sealed against shrinking. All of it is mapped here, and
// can be exported. The descriptor is the Backing's from then on, unless an error is returned.
func ForeignMemory(fd int) (Backing, error) {
	f, err := memfd.Adopt(fd)
	if err != nil {
		return nil, fmt.Errorf("fabric: memory of another program: %w", err)
	}
	return foreign{f}, nil
}

type foreign struct{ *memfd.File }

func (m foreign) FD() (fd int, offset int64)   { return m.File.FD(), 0 }
func (m foreign) ReadAt([]byte, uint64) error  { return errHasBytes }
func (m foreign) WriteAt([]byte, uint64) error { return errHasBytes }

// ownMemory is the backing of NewSegment: a memfd, counted as lent.
type ownMemory struct {
	*memfd.File
	el    *Element
	whole int64
}

func (m *ownMemory) FD() (fd int, offset int64)   { return m.File.FD(), 0 }
func (m *ownMemory) ReadAt([]byte, uint64) error  { return errHasBytes }
func (m *ownMemory) WriteAt([]byte, uint64) error { return errHasBytes }
func (m *ownMemory) Close() error {
	m.el.lend(-m.whole)
	return m.File.Close()
}

var errHasBytes = errors.New("fabric: memory is not read by calls")

// span is a range of a segment.
type span struct {
	seg  *Segment
	mem  []byte // nil: the backing reads and writes it
	at   uint64 // in the segment
	size int
}

// part is n bytes of the span from at, which the caller has checked.
func (s span) part(at, n int) span {
	p := span{seg: s.seg, at: s.at + uint64(at), size: n}
	if s.mem != nil {
		p.mem = s.mem[at : at+n : at+n]
	}
	return p
}

// read is the span's bytes: where they lie, or in buf, which is as long.
func (s span) read(buf []byte) ([]byte, status) {
	if s.mem != nil || s.size == 0 {
		return s.mem, statusOK
	}
	if err := s.seg.on.ReadAt(buf[:s.size], s.at); err != nil {
		return nil, s.seg.broken("read", err)
	}
	return buf[:s.size], statusOK
}

// write fills the span from its beginning.
func (s span) write(data []byte) status {
	if s.mem != nil || len(data) == 0 {
		CopyIn(s.mem, data)
		return statusOK
	}
	if err := s.seg.on.WriteAt(data, s.at); err != nil {
		return s.seg.broken("write", err)
	}
	return statusOK
}

// broken is the status of a backing's failure, whose cause stays here. Not each one is logged: a peer must not be able to fill the log.
func (s *Segment) broken(verb string, err error) status {
	n := s.failed.Add(1)
	if now, at := s.el.Now(), s.warnAt.Load(); now >= at && s.warnAt.CompareAndSwap(at, now+warnEvery) {
		s.failed.Add(-n)
		s.el.log.Warn("a segment's backing failed", "segment", s.id, "verb", verb, "err", err, "count", n)
	}
	return statusBacking
}
