package nbd

import (
	"errors"
	"slices"

	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/fabric"
)

// job is a request under way: one command, or several where it is larger than a slot's buffer.
type job struct {
	c     *conn
	q     request
	errno uint32
	data  []byte // of a write, or of a read of several commands
	mine  bool   // data is not the client's buffer
	have  int    // of data, while it arrives
	asked int    // bytes that commands have been sent for
	all   bool   // all commands have been sent
	under int    // commands under way
	flush bool   // a flush is to come, or under way
}

// flight is a command under way.
type flight struct {
	j    *job
	off  int // in the job's data
	size int
}

// job is one of a client.
func (s *Server) job(c *conn, q request) *job {
	j := &job{}
	if n := len(s.idle); n > 0 {
		j, s.idle = s.idle[n-1], s.idle[:n-1]
	}
	j.c, j.q = c, q
	c.jobs++
	return j
}

// own gives a job memory for its data.
func (j *job) own(size int) {
	j.data, j.mine = make([]byte, size), true
	j.c.kept += size
}

// free ends a job.
func (s *Server) free(j *job) {
	c := j.c
	c.jobs--
	if j.mine {
		c.kept -= len(j.data)
	}
	*j = job{}
	if len(s.idle) < maxRequests {
		s.idle = append(s.idle, j)
	}
}

// begin carries a request out whose data is there.
func (s *Server) begin(j *job) {
	if j.errno = s.check(&j.q); j.errno != 0 || j.q.size == 0 && j.q.kind != cmdFlush {
		j.all = true
		s.settle(j)
		return
	}
	buffers := s.bufferBytes()
	if j.q.kind == cmdRead && int(j.q.size) > buffers {
		j.own(int(j.q.size))
	}
	if len(s.wanting) == 0 && s.advance(j) {
		return
	}
	if j.q.kind == cmdWrite && !j.mine { // the client's buffer is for what comes next
		data := j.data
		j.own(len(data))
		copy(j.data, data)
	}
	j.c.wants = j
	s.wanting = append(s.wanting, j)
}

// bufferBytes is the size of a slot's buffer.
func (s *Server) bufferBytes() int { return len(s.drive.Buffer(0)) }

// serve sends commands of requests that wait for slots, in the order in which they came.
func (s *Server) serve() {
	for len(s.wanting) > 0 {
		j := s.wanting[0]
		c, waits := j.c, j.c.wants == j
		switch {
		case !c.over:
			if !s.advance(j) {
				return
			}
		case j.under == 0:
			s.free(j)
		default:
			j.all = true
		}
		s.wanting = slices.Delete(s.wanting, 0, 1)
		if waits {
			c.wants = nil
			c.parse()
		}
	}
}

// advance sends a request's commands. False: there is no slot for the next one now.
func (s *Server) advance(j *job) bool {
	for !j.all && j.errno == 0 {
		slot, ok := s.drive.TryAcquire()
		if !ok {
			return false
		}
		t := s.transfer(j, len(s.drive.Buffer(slot)))
		if t.Op == nvme.OpWrite {
			copy(s.drive.Buffer(slot), j.data[j.asked:][:t.Size])
		}
		if err := s.drive.TrySubmit(slot, t); err != nil {
			s.drive.Release(slot)
			if errors.Is(err, fabric.ErrBackpressure) {
				return false
			}
			j.errno = ErrnoIO // of a drive that is over, which Poll finds out
			break
		}
		for int(slot) >= len(s.flights) {
			s.flights = append(s.flights, flight{})
		}
		s.flights[slot] = flight{j, j.asked, t.Size}
		s.flying++
		j.under++
		j.asked += t.Size
		j.all = j.flush || j.asked == int(j.q.size)
	}
	j.all = true
	if j.under == 0 {
		s.settle(j)
	}
	return true
}

// transfer is a request's next command.
func (s *Server) transfer(j *job, buffer int) host.Transfer {
	t := host.Transfer{Off: j.q.off + uint64(j.asked), FUA: j.q.flags&cmdFlagFUA != 0}
	most := buffer
	switch {
	case j.q.kind == cmdFlush || j.flush:
		j.flush = true
		return host.Transfer{Op: nvme.OpFlush}
	case j.q.kind == cmdRead:
		t.Op, t.FUA = nvme.OpRead, false
	case j.q.kind == cmdWrite:
		t.Op = nvme.OpWrite
	case j.q.kind == cmdTrim:
		t.Op, most, t.FUA = nvme.OpDataset, s.drive.MaxTrimBytes(), false
	case j.q.kind == cmdZeroes:
		t.Op, most = nvme.OpWriteZeroes, s.drive.MaxZeroBytes()
	}
	t.Size = min(int(j.q.size)-j.asked, most)
	return t
}

// reap takes the ends of commands.
func (s *Server) reap() (n int) {
	for {
		k := s.drive.TryReap(s.done[:])
		if k == 0 {
			return n
		}
		for i := range s.done[:k] {
			s.ended(&s.done[i])
		}
		n += k
	}
}

// ended is called with a command's end.
func (s *Server) ended(d *host.Done) {
	f := s.flights[d.Slot]
	s.flights[d.Slot] = flight{}
	s.flying--
	j := f.j
	j.under--
	if d.Status != nvme.StatusOK && j.errno == 0 {
		j.errno = errnoOf(d.Status)
	}
	if j.q.kind == cmdRead && j.errno == 0 && !j.c.over {
		data := s.drive.Buffer(d.Slot)[:f.size]
		if !j.mine {
			j.c.answer(&j.q, 0, data, d.Slot, true)
			s.free(j)
			return
		}
		copy(j.data[f.off:], data)
	}
	s.drive.Release(d.Slot)
	if j.under == 0 && j.all {
		s.settle(j)
	}
}

// settle answers a request of which no command is under way.
func (s *Server) settle(j *job) {
	c := j.c
	if j.errno == 0 && j.q.kind == cmdTrim && j.q.flags&cmdFlagFUA != 0 && !j.flush && !c.over { // a trim has no such flag
		j.flush, j.all = true, false
		s.wanting = append(s.wanting, j)
		return
	}
	if !c.over {
		var data []byte
		if j.q.kind == cmdRead && j.errno == 0 {
			data = j.data
		}
		c.answer(&j.q, j.errno, data, 0, false)
	}
	s.free(j)
}

// check refuses what makes no sense.
func (s *Server) check(q *request) uint32 {
	known := uint16(cmdFlagFUA)
	switch q.kind {
	case cmdRead, cmdWrite, cmdTrim:
	case cmdZeroes:
		known |= cmdFlagNoHole
		if q.flags&cmdFlagFastZero != 0 {
			return errnoNotSup
		}
	case cmdFlush:
		if q.off != 0 || q.size != 0 {
			return ErrnoInvalid
		}
	default:
		return ErrnoInvalid
	}
	block := uint64(s.drive.BlockBytes())
	switch {
	case q.flags&^known != 0:
		return ErrnoInvalid
	case s.drive.ReadOnly() && q.kind != cmdRead && q.kind != cmdFlush:
		return ErrnoPermission
	case q.kind == cmdRead && q.size > MaxRequestBytes:
		return ErrnoInvalid
	case q.off%block != 0 || uint64(q.size)%block != 0:
		return ErrnoInvalid
	case q.off > s.drive.Size() || uint64(q.size) > s.drive.Size()-q.off:
		if q.kind == cmdWrite || q.kind == cmdZeroes {
			return ErrnoNoSpace
		}
		return ErrnoInvalid
	}
	return 0
}

// errnoOf is the protocol's number for how a command ended.
func errnoOf(st nvme.Status) uint32 {
	switch st {
	case nvme.StatusCapacity:
		return ErrnoNoSpace
	case nvme.StatusProtected, nvme.StatusReserved:
		return ErrnoPermission
	case nvme.StatusLBA, nvme.StatusField:
		return ErrnoInvalid
	}
	return ErrnoIO
}
