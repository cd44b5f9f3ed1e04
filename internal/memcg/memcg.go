// Package memcg bounds and measures what processes together take of the machine's memory, by a memory control group of whichever version
// has the controller.
package memcg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNone: no memory controller can be used here; the text says why, and what to do.
var ErrNone = errors.New("no memory control groups")

// Root is where groups are made: a version's tree that has the memory controller.
type Root struct {
	Dir     string
	Version int // 1 or 2
}

// Find looks where the memory controller is.
func Find() (Root, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Root{}, fmt.Errorf("%w: %w", ErrNone, err)
	}
	return find(string(mounts), func(path string) string {
		b, _ := os.ReadFile(path) // what cannot be read has no controllers
		return string(b)
	})
}

func find(mounts string, read func(path string) string) (Root, error) {
	var second string
	for line := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		switch {
		case kind[0] == "cgroup" && slices.Contains(strings.Split(kind[2], ","), "memory"):
			return Root{fields[4], 1}, nil
		case kind[0] == "cgroup2":
			second = fields[4]
		}
	}
	if second != "" && slices.Contains(strings.Fields(read(filepath.Join(second, "cgroup.controllers"))), "memory") {
		return Root{second, 2}, nil
	}
	return Root{}, fmt.Errorf("%w: neither version has the memory controller mounted; boot with cgroup_enable=memory, or mount -t cgroup2 none /sys/fs/cgroup", ErrNone)
}

// files of each version.
func (r Root) files() (limit, peak string) {
	if r.Version == 1 {
		return "memory.limit_in_bytes", "memory.max_usage_in_bytes"
	}
	return "memory.max", "memory.peak"
}

// Usable reports whether groups can be made and bounded.
func (r Root) Usable() error {
	g, err := r.New(fmt.Sprintf("wherry-probe-%d", os.Getpid()))
	if err != nil {
		return err
	}
	return errors.Join(g.SetLimit(1<<30), g.Close())
}

// Group is one control group.
type Group struct {
	root Root
	dir  string
}

// New makes a group without a limit. Close removes it.
func (r Root) New(name string) (*Group, error) {
	if r.Version == 2 {
		control := filepath.Join(r.Dir, "cgroup.subtree_control")
		if b, err := os.ReadFile(control); err == nil && !bytes.Contains(b, []byte("memory")) {
			if err := os.WriteFile(control, []byte("+memory"), 0); err != nil {
				return nil, fmt.Errorf("%w: hand the controller down: %w; run as root, outside a group of its own (systemd-run --scope)", ErrNone, err)
			}
		}
	}
	g := &Group{r, filepath.Join(r.Dir, name)}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("%w: %w; run as root, or let the user write there", ErrNone, err)
	}
	return g, nil
}

// SetLimit bounds what its processes take together, in bytes.
func (g *Group) SetLimit(n int64) error {
	limit, _ := g.root.files()
	return os.WriteFile(filepath.Join(g.dir, limit), []byte(strconv.FormatInt(n, 10)), 0)
}

// Peak is the most that they have taken, in bytes.
func (g *Group) Peak() (int64, error) {
	_, peak := g.root.files()
	b, err := os.ReadFile(filepath.Join(g.dir, peak))
	if err != nil {
		return 0, fmt.Errorf("memcg: %w (version 2 has it from Linux 5.19 on)", err)
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// Command is a command that begins in the group, with all that it starts.
func (g *Group) Command(ctx context.Context, args ...string) *exec.Cmd {
	const enter = `echo $$ >"$0" && exec "$@"`
	return exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", enter, filepath.Join(g.dir, "cgroup.procs")}, args...)...)
}

// Close removes the group, whose processes have ended; what the kernel has not finished with is waited for, a second at most.
func (g *Group) Close() error {
	var err error
	for range 100 {
		if err = unix.Rmdir(g.dir); err != unix.EBUSY {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("memcg: remove %s: %w", g.dir, err)
	}
	return nil
}

// Processes are those in the group now.
func (g *Group) Processes() []int {
	b, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return nil // it is gone, and they with it
	}
	var all []int
	for line := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(line); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// Kills is how many of its processes the kernel has ended, because the limit left them no memory.
func (g *Group) Kills() (int, error) {
	name := "memory.events"
	if g.root.Version == 1 {
		name = "memory.oom_control"
	}
	b, err := os.ReadFile(filepath.Join(g.dir, name))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strconv.Atoi(strings.TrimSpace(n))
		}
	}
	return 0, fmt.Errorf("memcg: %s does not count what was killed", name)
}
