package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// profileHz is how often a second a profiled process is looked at: a benchmark
// takes a second or two.
const profileHz = 1000

// profileFile names a role's profile, "" if none is wanted.
func profileFile(c *Config, role string) string {
	if c.Profiles == "" {
		return ""
	}
	return filepath.Join(c.Profiles, fmt.Sprintf("%s-%s-%s-%d.pprof", c.Kind, c.Transport, role, os.Getpid()))
}

// startProfile profiles this process into a file until stop is called.
func startProfile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("bench: profile: %w", err)
	}
	runtime.SetCPUProfileRate(profileHz) // pprof then keeps this rate, and says on standard error that it does
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("bench: profile: %w", err)
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}
