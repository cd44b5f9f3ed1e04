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
			goleak.VerifyNone(t, before)
			checkFiles(t, open)
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

// checkFiles fails the test if more descriptors are open than before. What is
// being closed gets a moment.
func checkFiles(t testing.TB, before map[string]string) {
	var now map[string]string
	for range 100 {
		if now = OpenFiles(t); len(now) <= len(before) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	for fd, to := range now {
		if before[fd] != to {
			t.Errorf("descriptor %s (%s) was left open", fd, to)
		}
	}
}

// AtEnd has fn called when the check is over, last one first.
func (r *Rig) AtEnd(fn func()) { r.closer = append(r.closer, fn) }

func (r *Rig) close() {
	for i := len(r.closer) - 1; i >= 0; i-- {
		r.closer[i]()
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

// Pattern is n bytes that differ with seed and place. Nobody else has them yet, so the race detector, which
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
