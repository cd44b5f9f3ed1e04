package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric/schemes"
)

func TestRun(t *testing.T) {
	checks := Run(t.Context(), schemes.All())
	seen := map[string]bool{}
	for _, c := range checks {
		if c.Name == "" || c.For == "" || seen[c.Name] {
			t.Errorf("a check without name or purpose, or twice: %+v", c)
		}
		seen[c.Name] = true
		if c.State != Good && c.State != Limited && c.State != Missing {
			t.Errorf("%s: state %q", c.Name, c.State)
		}
		if c.State == Missing && c.Do == "" {
			t.Errorf("%s is missing, and nothing is said about what to do", c.Name)
		}
		if c.Detail == "" {
			t.Errorf("%s: no detail", c.Name)
		}
	}
	if !Works(checks) {
		t.Errorf("wherry cannot work on the machine of this test: %+v", checks)
	}
	if Works([]Check{{Name: "segments", State: Missing, vital: true}}) {
		t.Error("without segments wherry does not work")
	}
}

// TestDeepFolder: a folder for temporary files that is too deep for a socket's path is not taken for a machine
// without shared memory.
func TestDeepFolder(t *testing.T) {
	deep := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", deep)
	list := schemes.All()
	for i := range list {
		if c := transport(t.Context(), &list[i]); c.State != Good {
			t.Errorf("%+v", c)
		}
	}
}

// TestClock: a busy machine is not taken for a slow clock, and nobody is told to
// set the source that is set.
func TestClock(t *testing.T) {
	for _, c := range []struct {
		name         string
		source       string
		reading      time.Duration
		pause, every int // what others take of the processor: for so long in µs, after so many readings
		state        State
		do           string
	}{
		{"quick", "tsc", 25 * time.Nanosecond, 0, 1, Good, ""},
		{"busy", "tsc", 100 * time.Nanosecond, 4000, 1000, Good, ""},
		{"chip", "hpet", time.Microsecond, 0, 1, Limited, "set the kernel's clocksource"},
		{"chip, busy", "acpi_pm", 700 * time.Nanosecond, 4000, 1000, Limited, "set the kernel's clocksource"},
		{"traced", "tsc", time.Microsecond, 0, 1, Limited, "nothing to set"},
		{"emulated", "arch_sys_counter", time.Microsecond, 0, 1, Limited, "nothing to set"},
		{"unknown and quick", "unknown", 50 * time.Nanosecond, 0, 1, Good, ""},
	} {
		at, readings := time.Unix(0, 0), 0
		each := readingTime(func() time.Time {
			at = at.Add(c.reading)
			if readings++; readings%c.every == 0 {
				at = at.Add(time.Duration(c.pause) * time.Microsecond)
			}
			return at
		})
		if each != c.reading {
			t.Errorf("%s: a reading of %v was found to take %v", c.name, c.reading, each)
		}
		got := judgeClock(c.source, each)
		if got.State != c.state || !strings.Contains(got.Do, c.do) || (got.Do == "") != (c.do == "") || !strings.Contains(got.Detail, c.source) {
			t.Errorf("%s: %+v; want it %s, to do: %q", c.name, got, c.state, c.do)
		}
	}
}

// TestSwap: what can be swapped to, and what is in use, is told; a kernel without swap is no reason for alarm.
func TestSwap(t *testing.T) {
	const head, devices = "Filename\tType\tSize\tUsed\tPriority\n", "Block devices:\n  7 loop\n253 zram\n"
	for _, c := range []struct {
		used, devices string
		err           error
		state         State
		want          string
	}{
		{head, devices, nil, Good, "can be on files, zram, loop; none is in use"},
		{head + "/swapfile file 100 0 -2\n", devices, nil, Good, "1 in use, /swapfile the first"},
		{head, "Block devices:\n  7 loop\n", nil, Limited, "can be on files, loop"},
		{"", "", os.ErrNotExist, Missing, "cannot swap"},
	} {
		got := judgeSwap(c.used, c.devices, c.err)
		if got.State != c.state || !strings.Contains(got.Detail, c.want) || (got.State == Good) != (got.Do == "") {
			t.Errorf("%q, %q: %+v", c.used, c.devices, got)
		}
	}
}
