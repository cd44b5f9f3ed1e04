package shm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/flock"
)

const (
	// maxPathBytes is sun_path without its final zero.
	maxPathBytes = 107
	listenQueue  = 128
	// lockTimeout bounds the wait for another process that is listening in the same folder.
	lockTimeout = 2 * time.Second
	// dialAgain is the wait before a listener whose queue is full is tried again.
	dialAgain = 2 * time.Millisecond
	// acceptPause is the wait after accept failed, as it does when descriptors run out.
	acceptPause = 20 * time.Millisecond
)

// listener is one address with its accepting goroutine.
type listener struct {
	ln   *net.UnixListener
	path string      // "" for abstract names
	file os.FileInfo // the socket file as we made it
	stop chan struct{}
	done chan struct{}
}

// Listen binds a socket at addr, a path or "@name", and hands each connection
// to accept on a goroutine of its own. A socket file without a listener
// any more is replaced; any other file there is an error.
func (t *Transport) Listen(addr string, accept func(fabric.Pending)) (bound string, err error) {
	if addr, err = checkAddr(addr); err != nil {
		return "", err
	}
	ln := &listener{stop: make(chan struct{}), done: make(chan struct{})}
	if strings.HasPrefix(addr, "@") {
		ln.ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
		if errors.Is(err, unix.EADDRINUSE) {
			err = fmt.Errorf("shm: another process listens at %s: %w", addr, unix.EADDRINUSE)
		}
	} else {
		ln.path = addr
		err = withFolderLock(filepath.Dir(addr), func() error { return ln.bind(t.cfg.SocketMode) })
	}
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.listeners = append(t.listeners, ln)
	}
	t.mu.Unlock()
	if closed {
		close(ln.done)
		_ = ln.close()
		return "", ErrClosed
	}
	go ln.run(t, accept)
	return addr, nil
}

// Dial connects to a listening element.
func (t *Transport) Dial(ctx context.Context, addr string) (fabric.Pending, error) {
	addr, err := checkAddr(addr)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", addr)
	full := false
	for errors.Is(err, unix.EAGAIN) && ctx.Err() == nil { // the listener's queue is full
		full = true
		select {
		case <-ctx.Done():
		case <-time.After(dialAgain):
		}
		conn, err = d.DialContext(ctx, "unix", addr)
	}
	if err != nil {
		if full {
			return nil, fmt.Errorf("shm: %s accepts nobody, its queue stays full: %w", addr, err)
		}
		if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("shm: nobody listens at %s: %w", addr, err)
		}
		return nil, fmt.Errorf("shm: %w", err)
	}
	p := newPending(t, conn.(*net.UnixConn), "shm://"+addr)
	if _, err := t.track(p, false); err != nil {
		conn.Close()
		return nil, err
	}
	return p, nil
}

// checkAddr makes a path absolute.
func checkAddr(addr string) (string, error) {
	if addr == "" || addr == "@" {
		return "", fmt.Errorf("shm: %w: an empty address; it is the path of a Unix socket, or @name", fabric.ErrAddress)
	}
	if strings.ContainsRune(addr, 0) {
		return "", fmt.Errorf("shm: %w: %q has a zero byte", fabric.ErrAddress, addr)
	}
	if !strings.HasPrefix(addr, "@") {
		abs, err := filepath.Abs(addr)
		if err != nil {
			return "", fmt.Errorf("shm: %w", err)
		}
		addr = abs
	}
	if len(addr) > maxPathBytes {
		return "", fmt.Errorf("shm: %w: %s has %d bytes, the kernel takes %d: use a shorter path", fabric.ErrAddress, addr, len(addr), maxPathBytes)
	}
	return addr, nil
}

// withFolderLock runs f while this process holds the folder: between finding a
// socket file dead and replacing it, no other process may do the same.
func withFolderLock(dir string, f func() error) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("shm: the socket's folder: %w", err)
	}
	defer d.Close()
	if err := flock.Lock(d, lockTimeout); err != nil {
		return fmt.Errorf("shm: %w", err)
	}
	return f()
}

// bind makes the socket file. Its mode is right before anyone can connect.
func (ln *listener) bind(mode fs.FileMode) error {
	if err := removeStale(ln.path); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("shm: socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), ln.path)
	defer f.Close() // FileListener has a duplicate
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: ln.path}); err != nil {
		return fmt.Errorf("shm: bind %s: %w", ln.path, err)
	}
	err = os.Chmod(ln.path, mode)
	if err == nil {
		err = unix.Listen(fd, listenQueue)
	}
	if err == nil {
		ln.file, err = os.Lstat(ln.path)
	}
	if err == nil {
		var l net.Listener
		if l, err = net.FileListener(f); err == nil {
			ln.ln = l.(*net.UnixListener)
			return nil
		}
	}
	os.Remove(ln.path)
	return fmt.Errorf("shm: listen at %s: %w", ln.path, err)
}

// removeStale removes a socket file without a listener.
func removeStale(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("shm: %w", err)
	}
	if st.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("shm: %w: %s exists and is no socket; choose another path or remove it", fabric.ErrAddress, path)
	}
	conn, err := net.DialTimeout("unix", path, lockTimeout)
	if err == nil {
		conn.Close()
		return fmt.Errorf("shm: another process listens at %s: %w", path, unix.EADDRINUSE)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("shm: %s exists, and it cannot be told whether anyone listens there: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("shm: replace a dead socket: %w", err)
	}
	return nil
}

// run accepts until close.
func (ln *listener) run(t *Transport, accept func(fabric.Pending)) {
	defer close(ln.done)
	for {
		conn, err := ln.ln.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case <-ln.stop:
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		if p := newPending(t, conn, ""); ln.admit(t, p) {
			go accept(p)
		} else {
			conn.Close()
		}
	}
}

// admit waits for a place for an accepted connection; false: the listener or the transport is closed.
func (ln *listener) admit(t *Transport, p *pending) bool {
	for {
		wait, err := t.track(p, true)
		if err != nil || wait == 0 {
			return err == nil
		}
		select {
		case <-ln.stop:
			return false
		case <-time.After(wait):
		}
	}
}

// close stops accepting and removes the socket file, unless it is another's by now.
func (ln *listener) close() error {
	close(ln.stop)
	err := ln.ln.Close()
	<-ln.done
	if ln.path != "" {
		lerr := withFolderLock(filepath.Dir(ln.path), func() error {
			if st, err := os.Lstat(ln.path); err == nil && os.SameFile(st, ln.file) {
				return os.Remove(ln.path)
			}
			return nil
		})
		if !errors.Is(lerr, fs.ErrNotExist) { // else the folder is gone, and the file with it
			err = errors.Join(err, lerr)
		}
	}
	return err
}
