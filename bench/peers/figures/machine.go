package figures

import (
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine says where the figures were taken.
type Machine struct {
	CPU    string
	Cores  int
	OS     string
	Kernel string
	Go     string
	Time   string // UTC, RFC 3339
}

// ThisMachine describes the machine this runs on; what it does not tell is left empty.
func ThisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		Time: time.Now().UTC().Format(time.RFC3339)}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(v)
				break
			}
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return m
}

// String is the machine in one line.
func (m Machine) String() string {
	cpu := m.CPU
	if cpu == "" {
		cpu = m.OS
	}
	return cpu + ", Linux " + m.Kernel + ", " + m.Go + ", " + m.Time
}
