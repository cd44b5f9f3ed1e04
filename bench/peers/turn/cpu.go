package turn

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// CPUs are where a turn's two sides run.
type CPUs struct {
	Client, Server int
	Pin            bool
}

// Pinned picks the first two processors that this process may use, both the
// same if there is only one. With pin false the sides run wherever the system puts them.
func Pinned(pin bool) (CPUs, error) {
	if !pin {
		return CPUs{}, nil
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return CPUs{}, fmt.Errorf("which CPUs may be used: %w (run with --pin=false)", err)
	}
	var may []int
	for cpu := 0; cpu < len(set)*64 && len(may) < 2; cpu++ {
		if set.IsSet(cpu) {
			may = append(may, cpu)
		}
	}
	if len(may) == 0 {
		return CPUs{}, fmt.Errorf("no CPU may be used (run with --pin=false)")
	}
	return CPUs{Client: may[0], Server: may[len(may)-1], Pin: true}, nil
}

// String is the pinning as rows show it.
func (c CPUs) String() string {
	if !c.Pin {
		return "none"
	}
	return fmt.Sprintf("client cpu %d, server cpu %d", c.Client, c.Server)
}

// On runs start, which starts a process of either side, on its CPU.
func (c CPUs) On(server bool, start func() error) error {
	cpu := c.Client
	if server {
		cpu = c.Server
	}
	if !c.Pin {
		return start()
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			result <- fmt.Errorf("pin to CPU %d: %w (run with --pin=false)", cpu, err)
			return
		}
		result <- start()
	}()
	return <-result
}
