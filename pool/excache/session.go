package excache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/uffd"
)

// What the shim and the daemon say to each other: 64-bit little-endian words, shim.c has the same.
//
//	daemon to shim: magic, window bytes, least allocation, the session's number, how many freed bytes may wait to be told; with the window, the counters' page, the end that lives as long as the daemon
//	shim to daemon: magic, base, pid, errno of what failed; with the userfaultfd
//	shim to daemon: call, count, argument, 0; then count pairs of offset and bytes
//	daemon to shim: errno, value; to callOpen and callView with a descriptor
const (
	// Freed memory is told of once it is half of what may be local: until then the program gets it again as it is. Programs that compute with
	// arrays free and allocate the same amounts all the time, and what was told has to be zeroed, page by page, when it is wanted again.
	untoldPart   = 2
	welcomeWords = 5
	helloWords   = 4

	magic       = 0x314e555259524857 // "WHRYRUN1"
	windowBytes = 256 << 30          // addresses, not memory
	callTake    = 1                  // rooms up to the argument, in bytes
	callFree    = 2                  // the pairs are ranges whose bytes are wanted no more
	callFork    = 3                  // the session of the argument gets a copy of the window, before its hello; writes wait until callParted
	callOpen    = 4                  // the pairs are a share's name, of as many bytes as the argument: the file that it is for programs
	callView    = 5                  // three pairs, a share's device and file number, address and size, offset and whether to write: the file to map there
	callUnview  = 6                  // the pair is an address and size: what was mapped there of shares is not any more
	callParted  = 8                  // the system has forked the process
	callSync    = 7                  // the same: what was changed of shares there is in the store
	callMove    = 9                  // the pairs are a room of which nothing is in use, and where else in the window it is to be: where there is none, or behind the last
	maxPairs    = 256
	// processDescriptors are the connection, the window, the pipe, two eventfds, the userfaultfd.
	processDescriptors = 6
	// faultsAtOnce are read from the kernel together.
	faultsAtOnce = 16
)

// session is one process of a program. What changes after Serve made it changes with the cache's mu held, but for what close and the fault
// loop alone look at.
type session struct {
	conn      *net.UnixConn
	number    uint64
	window    int // the memfd
	counters  []byte
	faults    *uffd.FD
	base      uint64
	pid       int             // as it says; until then the process that connected, for a child the one that forks
	follow    bool            // its thread ids mean here what they mean to it
	rooms     []int           // of its window, in order; noRoom where there is none any more
	views     []*view         // of shares
	ended     bool            // it takes no more rooms
	toldForks uint8           // why its forks were refused
	toldViews uint8           // why it may not change shares
	forked    bool            // a process has asked for it to get its copy
	copied    chan unix.Errno // hears of the copy; nil: it gets none
	fork      *forkUnderWay   // of its process; calls and end alone look at it
	filling   sync.Mutex      // held while the store copies to its rooms: they are its own until then
	life      int             // writing end of a pipe: when it closes the process is killed
	stop      int             // eventfd that ends the fault loops
	stopping  atomic.Bool
	turns
	placed int // bytes of the last install that are there
}

// Serve speaks with one process over conn, which is its from now on, until the process ends or the cache closes.
func (c *Cache) Serve(conn *net.UnixConn) error {
	pid, follow := near(conn)
	s := &session{conn: conn, pid: pid, follow: follow, window: -1, life: -1, stop: -1, turns: turns{kick: -1}}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		conn.Close()
		return net.ErrClosed
	}
	c.sessions[s] = struct{}{}
	c.numbers++
	s.number = c.numbers
	c.serving.Add(1)
	c.mu.Unlock()
	defer c.serving.Done()
	err := c.serve(s)
	err = errors.Join(err, c.end(s))
	c.part(s)
	s.close()
	return err
}

// part waits until the process has closed its end of the pipe that kills it. One that starts another program closes its descriptors one after the
// other, and would be killed if it had closed the connection only.
func (c *Cache) part(s *session) {
	const look = 20 // ms
	end := []unix.PollFd{{Fd: int32(s.life)}}
	for until := time.Now().Add(endTime); s.life >= 0 && c.ctx.Err() == nil && time.Now().Before(until) && end[0].Revents&unix.POLLERR == 0; {
		if _, err := unix.Poll(end, look); err != nil && err != unix.EINTR {
			return
		}
	}
}

func (c *Cache) serve(s *session) error {
	if err := c.greet(s); errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil // it has ended, or is a fork's that was refused
	} else if err != nil {
		return notServed(err)
	}
	c.mu.Lock()
	c.started++
	c.mu.Unlock()
	c.hire(s)
	err := c.calls(s)
	s.stopping.Store(true)
	unix.Write(s.stop, one[:])
	c.config.Store.Wake()
	s.looping.Wait()
	return err
}

// notServed is the error of a process that cannot be served, with what to do where this process is at its limit.
func notServed(err error) error {
	if errors.Is(err, unix.EMFILE) {
		err = fmt.Errorf("%w; each process of the program takes %d descriptors of wherry run: raise ulimit -n where that is started", err, processDescriptors)
	}
	return fmt.Errorf("%w: %w", ErrProgram, err)
}

func (s *session) close() {
	s.conn.Close()
	for _, fd := range []int{s.window, s.life, s.stop, s.kick} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if s.faults != nil {
		s.faults.Close()
	}
	if s.counters != nil {
		unix.Munmap(s.counters)
	}
}

// greet hands the process its window and takes its userfaultfd.
func (c *Cache) greet(s *session) error {
	var err error
	if s.window, err = unix.MemfdCreate("wherry-window", unix.MFD_CLOEXEC); err != nil {
		return err
	}
	if err := unix.Ftruncate(s.window, windowBytes); err != nil {
		return fmt.Errorf("a window of %d bytes of addresses: %w", uint64(windowBytes), err)
	}
	if s.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return err
	}
	if s.kick, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	counters, err := unix.MemfdCreate("wherry-counters", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(counters)
	if err := unix.Ftruncate(counters, PageBytes); err != nil {
		return err
	}
	shared, err := unix.Mmap(counters, 0, PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	c.mu.Lock()
	s.counters = shared
	c.mu.Unlock()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	s.life = ends[1]
	defer unix.Close(ends[0])
	if _, _, err := s.conn.WriteMsgUnix(words(magic, windowBytes, uint64(c.config.MinBytes), s.number, uint64(c.config.LocalBytes/untoldPart)), unix.UnixRights(s.window, counters, ends[0]), nil); err != nil {
		return err
	}
	hello, fds, err := receive(s.conn, helloWords)
	if len(fds) > 1 || err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return errors.Join(err, fmt.Errorf("a hello came with %d descriptors", len(fds)))
	}
	if len(fds) == 1 {
		if s.faults, err = uffd.Adopt(fds[0]); err != nil {
			return err
		}
	}
	switch errno := unix.Errno(hello[3]); {
	case hello[0] != magic:
		return fmt.Errorf("it speaks another language: %#x", hello[0])
	case errno != 0:
		return unwatched(hello[2], errno)
	case len(fds) != 1:
		return fmt.Errorf("process %d sent %d descriptors", hello[2], len(fds))
	}
	c.mu.Lock()
	s.base, s.pid = hello[1], int(hello[2])
	c.mu.Unlock()
	_, err = s.conn.Write(words(uint64(c.awaitCopy(s)), 0)) // with an error it ends by itself
	return err
}

// unwatched is the error of a process that could not map its window and watch it, with what to do.
func unwatched(pid uint64, errno unix.Errno) error {
	switch errno {
	case unix.ENOMEM:
		return fmt.Errorf("process %d has no addresses free for its window: %w; that takes %d GiB of them, whatever the program allocates: start wherry run, and have the program, without a limit of addresses (ulimit -v unlimited)",
			pid, errno, uint64(windowBytes>>30))
	case unix.EPERM, unix.EACCES, unix.ENOENT, unix.ENODEV, unix.ENOSYS, unix.EINVAL:
		return fmt.Errorf("process %d cannot watch its memory: %w; %w", pid, errno, uffd.ErrUnsupported)
	}
	return fmt.Errorf("process %d cannot watch its memory: %w", pid, errno)
}

// near says which process has connected, and reports whether it has this process's pid namespace, and gives it to its children: the kernel
// tells thread ids as the program sees them.
func near(conn *net.UnixConn) (pid int, near bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, false
	}
	var who *unix.Ucred
	if raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return 0, false
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid_for_children", who.Pid))
	ours, err2 := os.Readlink("/proc/self/ns/pid")
	return int(who.Pid), err == nil && err2 == nil && theirs == ours
}

// words lays 64-bit words out.
func words(all ...uint64) []byte {
	var b []byte
	for _, w := range all {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// receive reads the first words and the descriptors that come with them.
func receive(conn *net.UnixConn, count int) (first []uint64, fds []int, err error) {
	b, oob := make([]byte, 8*count), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, _, _, err := conn.ReadMsgUnix(b, oob) // descriptors are close-on-exec
	if err != nil {
		return nil, nil, err
	}
	if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
		for i := range messages {
			some, _ := unix.ParseUnixRights(&messages[i])
			fds = append(fds, some...)
		}
	}
	if _, err := io.ReadFull(conn, b[n:]); err != nil {
		return nil, fds, err
	}
	for ; len(b) > 0; b = b[8:] {
		first = append(first, binary.LittleEndian.Uint64(b))
	}
	return first, fds, nil
}

// calls answers what the shim asks for, until its end of the socket closes.
func (c *Cache) calls(s *session) error {
	b := make([]byte, 16*maxPairs)
	for {
		if _, err := io.ReadFull(s.conn, b[:32]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) {
				return nil // the process has ended, or the cache ends
			}
			return err
		}
		call, count, arg := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
		if count > maxPairs {
			return fmt.Errorf("%w: it asks for call %d with %d pairs", ErrProgram, call, count)
		}
		pairs := b[:16*count]
		if _, err := io.ReadFull(s.conn, pairs); err != nil {
			return err
		}
		status, value, fd, err := c.call(s, call, arg, pairs)
		if err != nil {
			return err
		}
		var rights []byte
		if fd >= 0 {
			rights = unix.UnixRights(fd)
		}
		if _, _, err := s.conn.WriteMsgUnix(words(status, value), rights, nil); err != nil {
			return nil
		}
	}
}

// call answers one: an errno, a value, a descriptor or -1.
func (c *Cache) call(s *session, call, arg uint64, pairs []byte) (status, value uint64, fd int, err error) {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(pairs[8*i:]) }
	count := len(pairs) / 16
	switch {
	case call == callTake && count == 0:
		status = c.allocated(s, arg)
	case call == callFork && count == 0:
		status = c.fork(s, arg)
	case call == callParted && count == 0:
		status = c.parted(s)
	case call == callFree:
		for i := range count {
			c.mu.Lock() // once for each range, so that faults need not wait for all
			c.freed(s, word(2*i)&^(PageBytes-1), word(2*i+1)&^(PageBytes-1))
			c.mu.Unlock()
		}
	case call == callMove:
		for i := range count {
			if status == 0 {
				status = c.move(s, word(2*i), word(2*i+1))
			}
		}
	case call == callOpen && arg <= uint64(len(pairs)):
		status, value, fd = c.opened(string(pairs[:arg]))
		return status, value, fd, nil
	case call == callView && count == 3:
		status, fd = c.viewed(s, word(0), word(1), view{addr: word(2), size: word(3), off: word(4), write: word(5) != 0})
		return status, 0, fd, nil
	case call == callUnview && count == 1:
		c.unviewed(s, word(0), word(1))
	case call == callSync && count == 1:
		status = c.synced(s, word(0), word(1))
	default:
		return 0, 0, -1, fmt.Errorf("%w: it asks for call %d with %d pairs", ErrProgram, call, count)
	}
	return status, uint64(len(s.rooms)) * RoomBytes, -1, nil
}

// takeUpTo makes s's window usable up to an offset.
func (c *Cache) takeUpTo(s *session, to uint64) error {
	if to > windowBytes {
		return fmt.Errorf("%w: a process has at most %d GiB", ErrFull, windowBytes>>30)
	}
	for uint64(len(s.rooms))*RoomBytes < to {
		if err := c.take(s); err != nil {
			return err
		}
	}
	return nil
}

// allocated answers callTake: an errno. The first time that there is no room for what a program allocates is told.
func (c *Cache) allocated(s *session, to uint64) uint64 {
	err := c.takeUpTo(s, to)
	if err == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, ErrFull) && !c.refused {
		c.refused = true
		c.tell(err)
	}
	return uint64(unix.ENOMEM)
}

// noRoom is at a place of a window whose room serves another.
const noRoom = -1

// move has a room of s's window that the program has freed serve other addresses; the answer is an errno. So what a program takes never fails because what is
// free does not lie together.
func (c *Cache) move(s *session, from, to uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, k, n := from/RoomBytes, to/RoomBytes, uint64(len(s.rooms))
	if from%RoomBytes != 0 || to%RoomBytes != 0 || to >= windowBytes || i >= n || s.rooms[i] == noRoom || k > n || k < n && s.rooms[k] != noRoom {
		return uint64(unix.EINVAL)
	}
	c.freed(s, from, RoomBytes) // an access to what was freed may have brought some of it
	r := s.rooms[i]
	if s.rooms[i] = noRoom; k == n {
		s.rooms = append(s.rooms, noRoom)
	}
	s.rooms[k], c.rooms[r].offset = r, to
	return 0
}

// outside reads the counters that the shim keeps.
func (s *session) outside() Outside {
	if s.counters == nil {
		return Outside{}
	}
	at := func(i int) uint64 { return binary.NativeEndian.Uint64(s.counters[8*i:]) }
	return Outside{Mappings: at(0), Bytes: at(1), Direct: at(2), Uring: at(3), Refused: at(4), Anonymous: at(5)}
}

// forks reads those of them that are about forks.
func (s *session) forks() ForkCounts {
	if s.counters == nil {
		return ForkCounts{}
	}
	return ForkCounts{Forks: binary.NativeEndian.Uint64(s.counters[6*8:]), ForksRefused: binary.NativeEndian.Uint64(s.counters[7*8:])}
}
