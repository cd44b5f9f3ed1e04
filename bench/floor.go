package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// The floor of a round trip: what it takes on this machine, in this minute, without anything of wherry. The same two processes on the same
// CPUs spin on a bare socket, or on two words of memory that they share, in turns with what is measured.

const (
	// floorBytes is what goes each way over the socket: as much as the frame of a Send of 8 bytes.
	floorBytes = 20
	// floorTime bounds a batch: a process that spins for one that has died ends then.
	floorTime = 10 * time.Second
	// floorLook is how many looks go by before the clock is asked.
	floorLook = 1 << 16
	// floorWords is where the second word lies: on a cache line that the first one's neighbour is not fetched with.
	floorWords = 256
	floorSpan  = 4096
)

var errFloor = errors.New("bench: the other process does not answer on the bare connection")

// floor is one side's bare connection.
type floor struct {
	send func(i uint64) error
	recv func(i uint64) error
	stop func()
	trip uint64 // number of the last; both sides count
}

// hasFloor reports whether the processes spin on processors of their own, as a floor has them do, for one thing at a time.
func (r *role) hasFloor() bool {
	return r.Policy == fabric.Latency && r.Apart && (r.Kind == "verbs" || r.Inflight == 1)
}

// openFloor makes the client's side, and has the first server make its own; nil if there is to be none.
func (c *client) openFloor() (f *floor, err error) {
	if !c.spec.hasFloor() {
		return nil, nil
	}
	if c.spec.scheme.Local() {
		return c.openWords()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err := c.ask(c.eps[0], idFloor, []byte("tcp "+l.Addr().String())); err != nil {
		return nil, err
	}
	l.(*net.TCPListener).SetDeadline(time.Now().Add(floorTime))
	conn, err := l.Accept()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFloor, err)
	}
	return newSocketFloor(conn)
}

func (c *client) openWords() (*floor, error) {
	fd, err := unix.MemfdCreate("wherry-bench", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, floorSpan); err != nil {
		return nil, err
	}
	f, err := newWordFloor(fd, 0)
	if err != nil {
		return nil, err
	}
	return f, c.ask(c.eps[0], idFloor, fmt.Appendf(nil, "shm /proc/%d/fd/%d", os.Getpid(), fd))
}

// dialFloor makes a server's side.
func dialFloor(where string) (*floor, error) {
	var kind, place string
	if _, err := fmt.Sscan(where, &kind, &place); err != nil {
		return nil, err
	}
	if kind == "tcp" {
		conn, err := net.DialTimeout("tcp", place, floorTime)
		if err != nil {
			return nil, err
		}
		return newSocketFloor(conn)
	}
	fd, err := unix.Open(place, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return newWordFloor(fd, 1)
}

// newSocketFloor takes a connection over.
func newSocketFloor(conn net.Conn) (*floor, error) {
	file, err := conn.(*net.TCPConn).File() // Go sets TCP_NODELAY
	conn.Close()
	if err != nil {
		return nil, err
	}
	fd, buf := file.Fd(), new([floorBytes]byte)
	call := func(trap uintptr, n int, flags uintptr) (int, syscall.Errno) {
		got, _, errno := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(&buf[0])), uintptr(n), flags, 0, 0) // which does not block
		return int(got), errno
	}
	return &floor{
		send: func(uint64) error {
			if n, errno := call(syscall.SYS_SENDTO, floorBytes, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); errno != 0 || n != floorBytes {
				return fmt.Errorf("%w: %d bytes, %w", errFloor, n, errno)
			}
			return nil
		},
		recv: func(uint64) error {
			got := 0
			return spin(func() (bool, error) {
				n, errno := call(syscall.SYS_RECVFROM, floorBytes-got, unix.MSG_DONTWAIT)
				switch {
				case errno == unix.EAGAIN || errno == unix.EINTR:
					return false, nil
				case errno != 0 || n == 0:
					return false, fmt.Errorf("%w: %w", errFloor, errno)
				}
				got += n
				return got == floorBytes, nil
			})
		},
		stop: func() { file.Close() },
	}, nil
}

// newWordFloor maps the words; a side writes its own and reads the other's.
func newWordFloor(fd, side int) (*floor, error) {
	mem, err := unix.Mmap(fd, 0, floorSpan, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	word := func(i int) *uint64 { return (*uint64)(unsafe.Pointer(&mem[i*floorWords])) }
	mine, other := word(side), word(1-side)
	return &floor{
		send: func(i uint64) error { atomic.StoreUint64(mine, i); return nil },
		recv: func(i uint64) error {
			for range floorLook { // without a call between two looks
				if atomic.LoadUint64(other) == i {
					return nil
				}
			}
			return spin(func() (bool, error) { return atomic.LoadUint64(other) == i, nil })
		},
		stop: func() { unix.Munmap(mem) },
	}, nil
}

// spin looks until there is something, or floorTime is over.
func spin(look func() (bool, error)) error {
	var end time.Time
	for n := 0; ; n++ {
		if there, err := look(); there || err != nil {
			return err
		}
		if n%floorLook == floorLook-1 {
			now := time.Now()
			if end.IsZero() {
				end = now.Add(floorTime)
			} else if now.After(end) {
				return errFloor
			}
		}
	}
}

// measure makes n round trips with the first server.
func (f *floor) measure(c *client, n int) (samples, error) {
	body := binary.LittleEndian.AppendUint64(nil, uint64(n))
	if err := c.eps[0].Send(c.ctx, idFloorTrips, nil, body); err != nil {
		return nil, err
	}
	return each(n, func() error {
		f.trip++
		if err := f.send(f.trip); err != nil {
			return err
		}
		return f.recv(f.trip)
	})
}

// floorShare is which part of the rounds the floor takes.
const floorShare = 4

// floored measures in turns with the floor, if there is one, and sets what it comes to and how often it fits into what take finds.
func (c *client) floored(f *floor, name string, turns, rounds int, take func(turn int) (samples, error)) (all samples, err error) {
	var bare samples
	for turn := range turns {
		s, err := take(turn)
		if err != nil {
			return nil, err
		}
		all = append(all, s...)
		if f != nil {
			before := mallocs()
			if s, err = f.measure(c, max(rounds/turns/floorShare, 1)); err != nil {
				return nil, err
			}
			c.aside += mallocs() - before
			bare = append(bare, s...)
		}
	}
	if f != nil {
		f.stop()
		c.r.Set("floor_rtt_ns_p50", bare.p(0.5))
		c.r.Set(name+"_over_floor", all.p(0.5)/bare.p(0.5))
	}
	return all, nil
}

// handleFloor has a server make its side of the floor, and answer there, on the goroutine that drives the fabric.
func (s *station) handleFloor() {
	var f *floor
	s.el.Handle(idFloor, func(m fabric.Message) {
		if f != nil {
			f.stop()
		}
		f, _ = dialFloor(string(m.Body)) // the client misses it
		m.From.Post(idPong, nil, nil)
	})
	s.el.Handle(idFloorTrips, func(m fabric.Message) {
		if f == nil || len(m.Body) != 8 {
			return
		}
		for range binary.LittleEndian.Uint64(m.Body) {
			if f.trip++; f.recv(f.trip) != nil || f.send(f.trip) != nil {
				return
			}
		}
	})
}
