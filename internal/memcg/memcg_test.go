package memcg

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestFind: the controller is found in the tree of either version; version 1 has it where both are mounted.
func TestFind(t *testing.T) {
	const (
		first  = "30 26 0:26 / /sys/fs/cgroup/memory rw,relatime shared:1 - cgroup cgroup rw,memory\n"
		others = "31 26 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
		second = "36 26 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	)
	for _, c := range []struct {
		mounts, controllers string
		want                Root
	}{
		{first + second, "", Root{"/sys/fs/cgroup/memory", 1}},
		{second + others + first, "memory", Root{"/sys/fs/cgroup/memory", 1}},
		{others + second, "cpu memory io\n", Root{"/sys/fs/cgroup/unified", 2}},
		{others + second, "cpu io\n", Root{}},
		{others, "memory", Root{}},
		{"nonsense\n - \na b - c\n", "", Root{}},
	} {
		got, err := find(c.mounts, func(path string) string {
			if path != "/sys/fs/cgroup/unified/cgroup.controllers" {
				t.Errorf("reads %s", path)
			}
			return c.controllers
		})
		if got != c.want || (c.want.Version == 0) != errors.Is(err, ErrNone) {
			t.Errorf("%q: %v, %v", c.mounts, got, err)
		}
	}
}

// TestGroup: a process that begins in a group is counted and bounded.
func TestGroup(t *testing.T) {
	root, err := Find()
	if err == nil {
		err = root.Usable()
	}
	if err != nil {
		if os.Getenv("CI") == "true" && os.Getuid() == 0 && !errors.Is(err, ErrNone) {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	g, err := root.New(fmt.Sprintf("wherry-test-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	const fill = `x=$(head -c 20000000 /dev/zero | tr '\0' x); echo ${#x}`
	out, err := g.Command(t.Context(), "sh", "-c", fill).CombinedOutput()
	if strings.TrimSpace(string(out)) != "20000000" || err != nil {
		t.Errorf("%s, %v", out, err)
	}
	peak, err := g.Peak()
	if err != nil || peak < 20_000_000 || peak > 1<<30 {
		t.Errorf("a peak of %d, %v", peak, err)
	}
	if err := g.SetLimit(8 << 20); err != nil {
		t.Error(err)
	}
	if out, err := g.Command(t.Context(), "sh", "-c", fill).CombinedOutput(); err == nil && strings.TrimSpace(string(out)) == "20000000" {
		t.Errorf("%s of 8 MiB", out)
	}
	if n, err := g.Kills(); n != 1 || err != nil {
		t.Errorf("%d were killed, %v", n, err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(g.dir); err == nil {
		t.Error("the group is still there")
	}
}
