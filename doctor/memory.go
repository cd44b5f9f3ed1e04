package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/wherry-fabric/wherry/internal/memcg"
	"github.com/wherry-fabric/wherry/internal/uffd"
	"github.com/wherry-fabric/wherry/pool/excache"
)

// What programs with remote memory need, and what they are compared with.

func watching(context.Context) Check {
	c := Check{Name: "userfaultfd", State: Good, For: "wherry run: programs whose memory is on a node", Detail: "faults of memfds can be watched, in system calls too"}
	if err := uffd.Probe(); err != nil {
		c.State, c.Detail, c.Do = Missing, err.Error(), "run as root, or sysctl vm.unprivileged_userfaultfd=1, or give the user /dev/userfaultfd; Linux 6.6 or later"
	}
	return c
}

func allocator(context.Context) Check {
	c := Check{Name: "jemalloc", State: Good, For: "wherry run --heap all: small allocations on a node too"}
	path, err := excache.Heap()
	if c.Detail = path; err != nil {
		c.State, c.Detail, c.Do = Missing, "libjemalloc.so.2 is not installed", "apt-get install libjemalloc2 (Fedora: jemalloc); without it, --heap large works"
	}
	return c
}

func groups(context.Context) Check {
	c := Check{Name: "memory groups", State: Good, For: "make bench-memory: each side gets as much memory as the other"}
	root, err := memcg.Find()
	if err != nil {
		c.State, c.Detail, c.Do = Missing, err.Error(), "boot with cgroup_enable=memory, or mount -t cgroup2 none /sys/fs/cgroup"
		return c
	}
	c.Detail = fmt.Sprintf("version %d, at %s", root.Version, root.Dir)
	info, err := os.Stat(root.Dir)
	if os.Getuid() != 0 && (err != nil || info.Mode()&0o002 == 0) {
		c.State, c.Do = Limited, "run make bench-memory as root: groups cannot be made by this user"
	}
	return c
}

// swapping tells what the kernel can swap to, and whether it does: what is local of a program can then be on a disk.
func swapping(context.Context) Check {
	used, err := os.ReadFile("/proc/swaps")
	devices, err2 := os.ReadFile("/proc/devices")
	if err := errors.Join(err, err2); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return judgeSwap("", "", err)
	}
	return judgeSwap(string(used), string(devices), err)
}

func judgeSwap(used, devices string, err error) Check {
	c := Check{Name: "swap", State: Good, For: "make bench-memory: swap is what remote memory is compared with"}
	if err != nil {
		c.State, c.Detail, c.Do = Missing, "this kernel cannot swap: "+err.Error(), "nothing, for wherry run; a kernel with CONFIG_SWAP for the comparison"
		return c
	}
	have := []string{"files"}
	fields := strings.Fields(devices)
	for _, kind := range []string{"zram", "loop"} {
		if slices.Contains(fields, kind) {
			have = append(have, kind)
		} else {
			c.State, c.Do = Limited, "modprobe zram loop, for all columns of make bench-memory; nothing, for wherry run"
		}
	}
	lines := strings.Split(strings.TrimSpace(used), "\n")
	c.Detail = "can be on " + strings.Join(have, ", ") + "; none is in use"
	if n := len(lines) - 1; n > 0 {
		first, _, _ := strings.Cut(lines[1], " ")
		c.Detail = fmt.Sprintf("can be on %s; %d in use, %s the first", strings.Join(have, ", "), n, first)
	}
	return c
}
