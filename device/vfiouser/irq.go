package vfiouser

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	irqMSI = 1

	setNone    = 1 << 0 // data: none, bytes, descriptors
	setBytes   = 1 << 1
	setFDs     = 1 << 2
	setMask    = 1 << 3 // action
	setUnmask  = 1 << 4
	setTrigger = 1 << 5
)

// signals are the descriptors by which interrupts are raised.
type signals struct {
	mu   sync.RWMutex
	fds  [Vectors]int // one more than the descriptor; 0: there is none
	over bool
}

// irqInfo answers with argsz, flags, index, count.
func irqInfo(m *message) ([]byte, error) {
	index := binary.LittleEndian.Uint32(m.body[8:])
	if index >= irqs {
		return nil, fmt.Errorf("interrupts of kind %d: %w", index, unix.EINVAL)
	}
	b := make([]byte, 16)
	put32(b, 16, 1, index) // they are signalled by eventfds
	if index == irqMSI {
		put32(b, 16, 1|1<<3, index, Vectors) // … and their number stays
	}
	return b, nil
}

// set has argsz, flags, index, start, count.
func (s *signals) set(m *message) error {
	le := binary.LittleEndian
	flags, index, start, n := le.Uint32(m.body[4:]), le.Uint32(m.body[8:]), le.Uint32(m.body[12:]), le.Uint32(m.body[16:])
	if index != irqMSI {
		if n == 0 || len(m.fds) == 0 {
			return nil // to have none of what there is not is fine
		}
		return fmt.Errorf("interrupts of kind %d: %w", index, unix.EINVAL)
	}
	if start > Vectors || n > Vectors-start {
		return fmt.Errorf("vectors %d and %d more, of %d: %w", start, n, Vectors, unix.EINVAL)
	}
	switch {
	case flags&(setMask|setUnmask) != 0:
		return fmt.Errorf("MSI has no masks here: %w", unix.EOPNOTSUPP)
	case flags&setTrigger == 0:
		return fmt.Errorf("interrupts with flags %#x: %w", flags, unix.EINVAL)
	case n == 0: // none any more
		s.replace(m, 0, Vectors, false)
	case flags&setFDs != 0:
		for _, fd := range m.fds {
			if err := checkEvent(fd); err != nil {
				return err
			}
		}
		s.replace(m, start, n, true)
	case flags&setNone != 0: // the client tries whether they arrive
		for i := range n {
			s.raise(uint16(start + i))
		}
	default:
		return fmt.Errorf("interrupts with flags %#x: %w", flags, unix.EOPNOTSUPP)
	}
	return nil
}

// checkEvent makes sure that a descriptor is an eventfd: a write to whatever else a client passes might wait, on the leader.
func checkEvent(fd int) error {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return fmt.Errorf("what an interrupt is raised by cannot be looked up; is /proc mounted? %w", err)
	}
	if name != "anon_inode:[eventfd]" {
		return fmt.Errorf("an interrupt is raised by %.64q, which is no eventfd: %w", name, unix.EINVAL)
	}
	return nil
}

// replace takes new descriptors, and closes old ones. A message whose descriptors are fewer than its vectors means the rest have none.
func (s *signals) replace(m *message, start, n uint32, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		if old := s.fds[start+i]; old != 0 {
			unix.Close(old - 1)
		}
		s.fds[start+i] = 0
		if fresh && !s.over {
			fd := m.claim(int(i))
			if fd >= 0 {
				unix.SetNonblock(fd, true) // a client that reads none of them stops nobody
			}
			s.fds[start+i] = fd + 1
		}
	}
}

// raise implements Signal.
func (s *signals) raise(vector uint16) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if vector >= Vectors || s.fds[vector] == 0 {
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	unix.Write(s.fds[vector]-1, one[:])
}

func (s *signals) close() {
	var none message
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.replace(&none, 0, Vectors, false)
}
