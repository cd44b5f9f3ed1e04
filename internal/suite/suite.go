// Package suite is what conformance suites are made of (fabric/fabrictest,
// rpc/rpctest): checks that each get a Rig and leave nothing behind, and roles that the test
// binary, run again, plays as a child.
//
//	func Run(t *testing.T, f Factory) {
//		if suite.BeChild(roles(f)) {
//			return
//		}
//		for _, c := range checks() {
//			suite.Run(t, c.name, patience, func(r *suite.Rig) { c.run(&rig{Rig: r, make: f}) })
//		}
//	}
package suite

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Rig is what one check works with: a context that bounds all its waits, and what ends with it.
type Rig struct {
	*testing.T
	Ctx    context.Context
	closer []func()
}

// Run runs a check as a subtest. It fails if the check leaves a goroutine or a descriptor
// behind, or if ending takes half its patience.
func Run(t *testing.T, name string, patience time.Duration, check func(*Rig)) {
	t.Run(name, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), patience) // before: with the first timer the runtime opens its poller
		before, open := goleak.IgnoreCurrent(), OpenFiles(t)
		r := &Rig{T: t, Ctx: ctx}
		t.Cleanup(func() {
			start := time.Now()
			r.close()
			cancel()
			if d := time.Since(start); d > patience/2 {
				t.Errorf("closing took %v", d)
			}
			checkGoroutines(t, before, patience)
			checkFiles(t, open, patience)
		})
		check(r)
	})
}

// OpenFiles lists this process's descriptors.
func OpenFiles(t testing.TB) map[string]string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			list[e.Name()] = to
		}
	}
	return list
}

// checkGoroutines fails the test if goroutines are there that are not among those before. What is on its way out may
// take patience for it: goleak by itself waits for less than half a second.
func checkGoroutines(t testing.TB, before goleak.Option, patience time.Duration) {
	var err error
	for end := time.Now().Add(patience); ; {
		if err = goleak.Find(before); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Error(err)
			return
		}
	}
}

// checkFiles fails the test if more descriptors are open than before. What is
// being closed may take patience for it.
func checkFiles(t testing.TB, before map[string]string, patience time.Duration) {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		now := OpenFiles(t)
		if len(now) <= len(before) {
			return
		}
		if time.Now().Before(end) {
			continue
		}
		for fd, to := range now {
			if before[fd] != to {
				t.Errorf("descriptor %s (%s) was left open", fd, to)
			}
		}
		return
	}
}

// AtEnd has fn called when the check is over, last one first.
func (r *Rig) AtEnd(fn func()) { r.closer = append(r.closer, fn) }

func (r *Rig) close() {
	for i := len(r.closer) - 1; i >= 0; i-- {
		r.closer[i]()
	}
}

// steadyTries is how often Steady measures. A measurement of ours on a machine with many times as much to do as it has cores
// went wrong one time in eight: four in a row, all for that reason, once in thousands.
const steadyTries = 4

// Steady takes a measurement that other things which the machine does can spoil, and fails the test if it finds a
// fault time after time: a fault in what is measured is there each time, and a machine that stands still is not.
func Steady(t testing.TB, measure func() (fault string)) {
	t.Helper()
	for try := 1; ; try++ {
		fault := measure()
		if fault == "" || t.Failed() {
			return
		}
		if try == steadyTries {
			t.Fatalf("%d times in a row, at last: %s", try, fault)
		}
		t.Logf("once more, as others may be to blame: %s", fault)
	}
}

// Must ends the check if there is an error.
func (r *Rig) Must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// Eventually polls cond; what is tested makes progress by itself.
func (r *Rig) Eventually(what string, cond func() bool) {
	r.Helper()
	for !cond() {
		if r.Ctx.Err() != nil {
			r.Fatalf("never: %s", what)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// Within runs fn on a goroutine and fails the test if it takes longer than d.
func (r *Rig) Within(d time.Duration, what string, fn func() error) {
	r.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		if err != nil {
			r.Fatalf("%s: %v", what, err)
		}
	case <-time.After(d):
		r.Fatalf("%s: not done in %v", what, d)
	}
}

// Pattern is n bytes that differ with seed and place. No other goroutine has them yet, so the race detector, which
// looks at each store, need not: half of the suites' time was that.
//
//go:norace
func Pattern(n int, seed uint32) []byte {
	b := make([]byte, n)
	x := seed*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// Fill sets all bytes to one.
func Fill(b []byte, to byte) {
	for n := copy(b, []byte{to}); n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
