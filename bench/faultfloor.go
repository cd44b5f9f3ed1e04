package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/wherry-fabric/wherry/internal/child"
)

// The floor of a page fault: what it takes on this processor, in this minute, with bare system calls and nothing to decide. A program in C does it, in turns with
// what is measured.

//go:embed native/fault_floor.c
var faultFloorSource []byte

// compileFaultFloor makes the floor's program in dir.
func compileFaultFloor(ctx context.Context, dir string) (string, error) {
	path, source := filepath.Join(dir, "fault_floor"), filepath.Join(dir, "fault_floor.c")
	if err := os.WriteFile(source, faultFloorSource, 0o600); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "clang", "-O2", "-o", path, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("it needs clang (apt-get install clang): %w: %s", err, out)
	}
	return path, nil
}

// faultFloor is the floor's program; nil: there is none. After an error it does nothing more.
type faultFloor struct {
	p      *child.Process
	f      *faulted
	passes int // read
	took   float64
}

// openFaultFloor starts the floor's program, where there is one.
func openFaultFloor(spec *role, f *faulted) *faultFloor {
	if spec.FaultFloor == "" {
		return nil
	}
	p, err := child.Start(exec.Command(spec.FaultFloor)) // where this process may run
	if err != nil {
		f.Aside = err.Error()
		return nil
	}
	f.Floor = &faultTimes{}
	return &faultFloor{p: p, f: f}
}

func (l *faultFloor) close() {
	if l != nil {
		l.p.End()
	}
}

// misses adds the times of n faults of a kind, as in faultTimes.
func (l *faultFloor) misses(kind, n int) {
	var a struct{ Ns samples }
	if l.ask(fmt.Sprintf("%s %d", [2]string{"pages", "runs"}[kind], n), &a) {
		l.f.Floor.Misses[kind] = append(l.f.Floor.Misses[kind], a.Ns...)
	}
}

// read adds a pass over all bytes.
func (l *faultFloor) read() {
	var a struct{ Ns float64 }
	if l.ask("row 1", &a) {
		l.took += a.Ns
		l.passes++
		l.f.Floor.Read = float64(l.passes*cachedBytes) / l.took * 1e9
	}
}

// ask asks the program; an error ends it, and what it measured is not used.
func (l *faultFloor) ask(what string, answer any) bool {
	if l == nil || l.f.Floor == nil {
		return false
	}
	_ = l.p.Tell(what) // if it fails the program has ended, and Hear says why
	if err := l.p.Hear(answer); err != nil {
		l.f.Floor, l.f.Aside = nil, err.Error()
		return false
	}
	return true
}

// overFloor says what the floor is and how far above it this is.
func (c *client) overFloor(f *faulted, gets samples) {
	if f.Aside != "" {
		c.w.Encode(note{Aside: noFloor(errors.New(f.Aside))})
	}
	if f.Floor == nil {
		return
	}
	c.r.Set("floor_4k_us_p50", f.Floor.Misses[0].p(0.5)/1e3)
	c.r.Set("floor_64k_us_p50", f.Floor.Misses[1].p(0.5)/1e3)
	c.r.Set("floor_seq_gbytes_per_s", f.Floor.Read/1e9)
	c.r.Set("miss_4k_over_get_and_floor", f.Misses[0].p(0.5)/(gets.p(0.5)+f.Floor.Misses[0].p(0.5)))
	c.r.Set("miss_4k_over_floor", f.Misses[0].p(0.5)/f.Floor.Misses[0].p(0.5))
	c.r.Set("miss_64k_over_floor", f.Misses[1].p(0.5)/f.Floor.Misses[1].p(0.5))
	c.r.Set("seq_over_floor", f.Read/f.Floor.Read)
}

func noFloor(err error) string { return fmt.Sprintf("there is no floor beside the misses: %v", err) }
