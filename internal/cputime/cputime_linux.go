package cputime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Thread is the processor time that the calling thread has used.
func Thread() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return wall()
	}
	return time.Duration(t.Nano())
}
