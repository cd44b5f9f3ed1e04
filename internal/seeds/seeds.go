// Package seeds runs simulations with one seed after the other, and says with which of them
// one failed:
//
//	var trials = seeds.Flags("./fabric/sim")
//
//	func TestSim(t *testing.T) {
//		trials.Each(t, 40, func(seed uint64, fail seeds.Fail) { ... })
//	}
//
// The caller of the test chooses the seeds: scripts/soak.sh does.
package seeds

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

// Fail ends a trial as failed.
type Fail func(format string, args ...any)

// Seeds are those that a package's simulations run with.
type Seeds struct {
	pkg  string
	one  uint64 // 0: no particular one
	base uint64
	soak time.Duration // 0: as many as the test asks for
}

// Flags adds what is to be run to the flags of a package's tests. pkg names the package to the go command.
func Flags(pkg string) *Seeds {
	s := &Seeds{pkg: pkg}
	flag.Uint64Var(&s.one, "seed", 0, "run only this seed of each simulation")
	flag.Uint64Var(&s.base, "base", 1, "the first seed of each simulation")
	flag.DurationVar(&s.soak, "soak", 0, "run each simulation for this long, with new seeds")
	return s
}

// One reports whether only one seed is run: figures over many have nothing to say then.
func (s *Seeds) One() bool { return s.one != 0 }

// Each runs a simulation with n seeds, or those that the flags say.
func (s *Seeds) Each(t testing.TB, n int, trial func(seed uint64, fail Fail)) {
	t.Helper()
	switch {
	case s.one != 0:
		s.try(t, s.one, trial)
	case s.soak > 0:
		first, n := uint64(time.Now().UnixNano()), uint64(0)
		for end := time.Now().Add(s.soak); n == 0 || time.Now().Before(end); n++ { // one at least, on whatever machine
			s.try(t, first+n, trial)
		}
		t.Logf("%d seeds from %d", n, first)
	default:
		for i := range uint64(n) {
			s.try(t, s.base+i, trial)
		}
		t.Logf("seeds %d to %d", s.base, s.base+uint64(n)-1) // scripts/soak.sh looks for it
	}
}

// failure is the panic that ends a trial.
type failure string

func (s *Seeds) try(t testing.TB, seed uint64, trial func(uint64, Fail)) {
	t.Helper()
	repeat := fmt.Sprintf("repeat with go test -tags invariants -run '^%s$' %s -seed=%d", t.Name(), s.pkg, seed)
	defer func() {
		t.Helper()
		switch r := recover().(type) {
		case nil:
		case failure:
			t.Fatalf("%s; %s", string(r), repeat)
		default:
			fmt.Fprintln(os.Stderr, "panic;", repeat)
			panic(r)
		}
	}()
	trial(seed, func(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) })
}
