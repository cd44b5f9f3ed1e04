package seeds

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// listener is a test that writes down what is said to it, and ends with a panic.
type listener struct {
	testing.TB
	log, fatal string
}

func (l *listener) Logf(format string, args ...any) { l.log += fmt.Sprintf(format, args...) }
func (l *listener) Fatalf(format string, args ...any) {
	l.fatal = fmt.Sprintf(format, args...)
	panic(l)
}

// tried runs up to 4 seeds, of which one fails, and returns those that were run.
func (l *listener) tried(s *Seeds, fails uint64) (list []uint64) {
	defer func() {
		if r := recover(); r != nil && r != any(l) {
			panic(r)
		}
	}()
	s.Each(l, 4, func(seed uint64, fail Fail) {
		if list = append(list, seed); seed == fails {
			fail("%d is %s", seed, "bad")
		}
	})
	return list
}

func TestWhichSeeds(t *testing.T) {
	for name, c := range map[string]struct {
		seeds             Seeds
		fails             uint64
		want, log, failed string
	}{
		"all":         {Seeds{base: 7}, 0, "[7 8 9 10]", "seeds 7 to 10", ""},
		"one":         {Seeds{base: 7, one: 3}, 0, "[3]", "", ""},
		"one, failed": {Seeds{base: 7, one: 3}, 3, "[3]", "", "3 is bad; repeat with go test -tags invariants -run '^TestWhichSeeds/one,_failed$' ./x -seed=3"},
		"all, failed": {Seeds{base: 7}, 8, "[7 8]", "", "8 is bad; repeat with go test -tags invariants -run '^TestWhichSeeds/all,_failed$' ./x -seed=8"},
	} {
		t.Run(name, func(t *testing.T) {
			c.seeds.pkg = "./x"
			l := &listener{TB: t}
			if got := fmt.Sprint(l.tried(&c.seeds, c.fails)); got != c.want || l.log != c.log || l.fatal != c.failed || c.seeds.One() != (c.seeds.one != 0) {
				t.Errorf("ran %v, said %q, failed with %q; want %v, %q, %q", got, l.log, l.fatal, c.want, c.log, c.failed)
			}
		})
	}
}

// TestNewSeeds: each run of many takes others.
func TestNewSeeds(t *testing.T) {
	s := &Seeds{base: 1, soak: 10 * time.Millisecond}
	l := &listener{TB: t}
	first := l.tried(s, 0)
	then := l.tried(s, 0)
	if one := l.tried(&Seeds{base: 1, soak: 1}, 0); len(one) == 0 {
		t.Error("where there is no time, no seed is run")
	}
	if len(first) == 0 || len(then) == 0 || first[0] == 1 || then[0] == first[0] || !strings.Contains(l.log, fmt.Sprintf("%d seeds from %d", len(first), first[0])) {
		t.Errorf("%d seeds from %d, then %d from %d; said %q", len(first), first[0], len(then), then[0], l.log)
	}
}

// TestPanics: what a trial panics with by itself is not swallowed.
func TestPanics(t *testing.T) {
	defer func() {
		if r := recover(); r != "oh" {
			t.Errorf("the panic became %v", r)
		}
	}()
	(&Seeds{base: 1}).Each(t, 1, func(uint64, Fail) { panic("oh") })
}
