package cputime

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Process is the processor time that all threads of a process have used, of any of the same machine, by the clock that the kernel has of each: the times in /proc are in steps
// of 10 ms.
func Process(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED, of a whole process
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|scheduled, &t); err != nil {
		return 0, fmt.Errorf("cputime: process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
