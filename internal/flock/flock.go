// Package flock locks files and folders against other processes, and waits for a lock no longer than is said.
package flock

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// every is how often a lock that another process holds is asked for again.
const every = 5 * time.Millisecond

// Lock locks an open file or folder for this open file alone, until it is closed. Another one's lock is waited for as long as is said at most: unix.EWOULDBLOCK
// then. Where the file system has no locks the error is unix.ENOTSUP or unix.ENOSYS.
func Lock(f *os.File, most time.Duration) error {
	for end := time.Now().Add(most); ; time.Sleep(every) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case err == unix.EWOULDBLOCK && time.Now().After(end):
			return fmt.Errorf("another process has held the lock of %s for %v: %w", f.Name(), most, err)
		case err != unix.EWOULDBLOCK && err != unix.EINTR:
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}
