package excache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/uffd"
)

// Window is remote memory of a Go program: what the shim is to others, without the allocator. The cache must be in another process: when that
// ends, the kernel kills the program. An access that waits for its page holds up the collector of the whole program; one whose page was lost is a
// SIGBUS. Methods are for one goroutine at a time.
type Window struct {
	conn   *net.UnixConn
	faults *uffd.FD
	mem    []byte
	fds    []int
}

// Join connects to a cache that serves at a Unix socket.
func Join(path string) (_ *Window, err error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	w := &Window{conn: conn}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	welcome, fds, err := receive(conn, welcomeWords)
	if w.fds = fds; err != nil {
		return nil, err
	}
	if welcome[0] != magic || len(fds) != 3 {
		return nil, errors.New("excache: the daemon speaks another language")
	}
	if err = dieWith(fds[2]); err != nil {
		return nil, fmt.Errorf("excache: bind this process's life to the daemon's: %w", err)
	}
	if w.faults, err = uffd.Open(uffd.Needed); err != nil {
		return nil, err
	}
	if w.mem, err = unix.Mmap(fds[0], 0, int(welcome[1]), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE); err != nil {
		return nil, fmt.Errorf("excache: map a window of %d bytes: %w", welcome[1], err)
	}
	if err = unix.Madvise(w.mem, unix.MADV_DONTDUMP); err != nil { // the kernel would walk it all, and bring what is away
		return nil, fmt.Errorf("excache: keep the window out of core dumps: %w", err)
	}
	base := uffd.Address(w.mem)
	if err := w.faults.Register(base, uint64(len(w.mem)), uffd.Missing|uffd.Minor|uffd.Protected); err != nil {
		return nil, err
	}
	if _, _, err := conn.WriteMsgUnix(words(magic, base, uint64(unix.Getpid()), 0), unix.UnixRights(w.faults.FD()), nil); err != nil {
		return nil, err
	}
	_, err = io.ReadFull(conn, make([]byte, 16))
	return w, err
}

// dieWith has the kernel kill this process when the daemon ends and its end of the pipe closes. Until then its own userfaultfd makes accesses wait. It
// comes before anything that waits for the daemon's answer to a fault; a daemon that has ended already answers no hello.
func dieWith(pipe int) error {
	for _, set := range [][2]int{{unix.F_SETSIG, int(unix.SIGKILL)}, {unix.F_SETOWN, unix.Getpid()}, {unix.F_SETFL, unix.O_ASYNC | unix.O_NONBLOCK}} {
		if _, err := unix.FcntlInt(uintptr(pipe), set[0], set[1]); err != nil {
			return err
		}
	}
	return nil
}

// Take makes the first n bytes of the window usable, and returns them.
func (w *Window) Take(n int) ([]byte, error) {
	if _, err := w.conn.Write(words(callTake, 0, uint64(n), 0)); err != nil {
		return nil, err
	}
	answer := make([]byte, 16)
	if _, err := io.ReadFull(w.conn, answer); err != nil {
		return nil, err
	}
	if errno := unix.Errno(binary.LittleEndian.Uint64(answer)); errno != 0 {
		return nil, fmt.Errorf("%w: %d bytes: %w", ErrFull, n, errno)
	}
	return w.mem[:n], nil
}

// Close gives everything back.
func (w *Window) Close() error {
	var err error
	if w.mem != nil {
		err = unix.Munmap(w.mem)
	}
	if w.faults != nil {
		err = errors.Join(err, w.faults.Close())
	}
	for _, fd := range w.fds {
		unix.Close(fd)
	}
	return errors.Join(err, w.conn.Close())
}
