package native

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// endLost ends the worker that a nursery made without the node hearing of it: a child of the node's, in the group of the
// nursery, which has ended. It would wait for its first run for ever, and hold its windows. mu is held.
func (n *nursery) endLost(group int) error {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("native: a worker may be left in process group %d, end it by hand: %w", group, err)
	}
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !childIn(pid, group) {
			continue
		}
		if _, known := n.made.Load(pid); !known {
			endChild(pid)
		}
	}
	return nil
}

// childIn reports whether a process is a child of this one, and in a group.
func childIn(pid, group int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false // it has ended
	}
	text := string(stat)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // state, parent, group
	return len(f) > 2 && f[1] == strconv.Itoa(os.Getpid()) && f[2] == strconv.Itoa(group)
}

// endChild kills a child by its number and waits for it. If it is no child any more, as where SIGCHLD is ignored, the number may be a
// stranger's by now: that one is left alone.
func endChild(pid int) {
	got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	if err != nil || got == pid {
		return
	}
	_ = unix.Kill(pid, unix.SIGKILL) // it may have ended since
	for start := time.Now(); time.Since(start) < endTime; time.Sleep(time.Millisecond) {
		if got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); got == pid || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
