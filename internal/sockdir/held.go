package sockdir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// heldTries bounds attempts to make a folder that another process removes before it is held: each takes a race that was lost.
	heldTries = 16
	// mostCleared bounds what one Hold clears; the next one goes on.
	mostCleared = 256
	// youngTime is how long a folder without a socket is left alone: its process may be about to make it.
	youngTime = time.Minute
)

// Held is a folder for one socket, which this process holds a lock on. Where the process was killed and left it, the next Hold of that user removes it.
type Held struct {
	path string
	lock *os.File
}

// Hold makes a folder with a name that begins with prefix, and clears those of that prefix that processes of this user have left.
func Hold(prefix string) (*Held, error) {
	clearLeft(Root(), prefix)
	for range heldTries {
		path, err := Make(prefix)
		if err != nil {
			return nil, err
		}
		h, err := hold(path)
		if h != nil || err != nil {
			return h, err
		}
	}
	return nil, fmt.Errorf("sockdir: folders %s* are removed from %s as soon as they are made", prefix, Root())
}

// hold locks a folder; nil: it was removed before.
func hold(path string) (*Held, error) {
	lock, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if os.IsNotExist(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err == nil && unix.Fstat(int(lock.Fd()), &st) == nil && st.Nlink > 0 {
		return &Held{path, lock}, nil
	} else if err != nil {
		lock.Close()
		return nil, fmt.Errorf("sockdir: lock %s: %w", path, err)
	}
	lock.Close()
	return nil, nil
}

// Socket is the path for the socket.
func (h *Held) Socket() string { return filepath.Join(h.path, socketName) }

// Remove removes the folder.
func (h *Held) Remove() error {
	err := os.RemoveAll(h.path)
	h.lock.Close()
	return err
}

const socketName = "s"

// clearLeft removes folders that no living process holds. What cannot be looked at or removed stays: it is another user's, or holds what is not known here.
func clearLeft(root, prefix string) {
	parent, err := os.Open(root)
	if err != nil {
		return
	}
	defer parent.Close()
	names, _ := parent.Readdirnames(-1)
	cleared := 0
	for _, name := range names {
		if strings.HasPrefix(name, prefix) && cleared < mostCleared && clearOne(int(parent.Fd()), name) {
			cleared++
		}
	}
}

// clearOne removes a folder unless a process uses it. Links are not followed, and of other users' folders nothing is touched.
func clearOne(parent int, name string) bool {
	dir, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if unix.Fstat(dir, &st) != nil || int(st.Uid) != os.Geteuid() || unix.Flock(dir, unix.LOCK_EX|unix.LOCK_NB) != nil || unix.Fstat(dir, &st) != nil || st.Nlink == 0 {
		return false // it is used, or gone by now
	}
	if used(dir, &st) {
		return false
	}
	unix.Unlinkat(dir, socketName, 0)
	return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR) == nil
}

// used reports whether a process may have a folder that is not locked: one of a version that did not lock it.
func used(dir int, st *unix.Stat_t) bool {
	var socket unix.Stat_t
	if err := unix.Fstatat(dir, socketName, &socket, unix.AT_SYMLINK_NOFOLLOW); err == unix.ENOENT {
		return time.Since(time.Unix(st.Mtim.Unix())) < youngTime
	} else if err != nil || socket.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return true
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir, socketName)}) != unix.ECONNREFUSED
}
