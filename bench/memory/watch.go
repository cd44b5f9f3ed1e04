package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// watch returns an error when what used counts stands still for so long, and nil when ctx ends.
func watch(ctx context.Context, used func() uint64, every, still time.Duration) error {
	t := time.NewTicker(every)
	defer t.Stop()
	last, since := used(), time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		now := used()
		if since += every; now != last {
			last, since = now, 0
		}
		if since >= still {
			return fmt.Errorf("the run stood still for %v, and was ended", still)
		}
	}
}

// used is processor time and page faults of processes, in no unit: it grows while they do anything.
func used(pids []int) (sum uint64) {
	for _, pid := range pids {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue // it has ended
		}
		sum += counted(string(b))
	}
	return sum
}

// counted adds up minflt, majflt, utime and stime of a process's stat: the fields 10, 12, 14 and 15.
func counted(stat string) (sum uint64) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // a name may hold any character
	for _, i := range [...]int{10, 12, 14, 15} {
		if i-3 < len(fields) {
			n, _ := strconv.ParseUint(fields[i-3], 10, 64)
			sum += n
		}
	}
	return sum
}
