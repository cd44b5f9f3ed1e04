package suite

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// TestChild converses with a child, kills one, and reads how one failed.
func TestChild(t *testing.T) {
	if BeChild(map[string]Role{"add": add}) {
		return
	}
	Run(t, "converses", patience, func(r *Rig) {
		p := r.Spawn("add", "40")
		r.Must(p.Tell(2))
		if n := Heard[int](r, p); n != 42 {
			r.Errorf("40 and 2 are %d", n)
		}
		p.Kill()
		if err := p.Tell(2); err == nil {
			r.Error("a dead child is told something")
		}
	})
	Run(t, "no such role", patience, func(r *Rig) {
		var n int
		if err := r.Spawn("subtract").Hear(&n); err == nil || !strings.Contains(err.Error(), "exit status 1") {
			r.Errorf("%v", err)
		}
	})
}

func add(p *Parent, args []string) error {
	var a, b int
	if _, err := fmt.Sscan(args[0], &a); err != nil {
		return err
	}
	for p.Decode(&b) == nil {
		if err := p.Encode(a + b); err != nil {
			return err
		}
	}
	return nil
}

// TestRunEnds: what ends with a check does so in order, the last first.
func TestRunEnds(t *testing.T) {
	var order []int
	Run(t, "check", patience, func(r *Rig) {
		for i := range 3 {
			r.AtEnd(func() { order = append(order, i) })
		}
	})
	if fmt.Sprint(order) != "[2 1 0]" {
		t.Errorf("ended in the order %v", order)
	}
}

// TestSteady: what goes wrong now and then is let pass, and once it has not, not measured again.
func TestSteady(t *testing.T) {
	n := 0
	Steady(t, func() string {
		if n++; n < steadyTries {
			return "slow"
		}
		return ""
	})
	if n != steadyTries {
		t.Errorf("measured %d times", n)
	}
}

// TestFaults is run again with the name of a fault, and must fail and say why.
func TestFaults(t *testing.T) {
	faults := map[string]struct {
		says string
		do   func(*Rig)
	}{
		"goroutine":  {"found unexpected goroutines", func(r *Rig) { go func() { time.Sleep(time.Hour) }() }},
		"descriptor": {"was left open", func(r *Rig) { _, err := syscall.Open("/dev/null", 0, 0); r.Must(err) }},
		"error":      {"as asked", func(r *Rig) { r.Must(errors.New("as asked")) }},
		"never":      {"never: the end", func(r *Rig) { r.Eventually("the end", func() bool { return false }) }},
		"slow": {"a nap: not done in 1ms", func(r *Rig) {
			over := make(chan struct{})
			r.AtEnd(func() { close(over) })
			r.Within(time.Millisecond, "a nap", func() error { <-over; return nil })
		}},
		"unsteady": {"4 times in a row, at last: slow 4", func(r *Rig) {
			n := 0
			Steady(r, func() string { n++; return fmt.Sprint("slow ", n) })
		}},
		"failing":   {"a call: as asked", func(r *Rig) { r.Within(patience, "a call", func() error { return errors.New("as asked") }) }},
		"childless": {"must call BeChild first", func(r *Rig) { r.Spawn("add") }},
		"closing":   {"closing took", func(r *Rig) { r.AtEnd(func() { time.Sleep(time.Second) }) }},
	}
	const env = "WHERRY_SUITE_TEST_FAULT"
	if name := os.Getenv(env); name != "" {
		Run(t, "check", 200*time.Millisecond, faults[name].do)
		return
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()                                                                             // each mostly waits
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestFaults$", "--", childMark, "none") // as a child that does not know that it is one
			cmd.Env = append(os.Environ(), env+"="+name)
			out, err := cmd.CombinedOutput()
			// The check itself must fail: TestMain finds goroutines too, later.
			if text := string(out); err == nil || !strings.Contains(text, f.says) || !strings.Contains(text, "--- FAIL: TestFaults/check") {
				t.Errorf("%v, want a check that fails and says %q:\n%s", err, f.says, out)
			}
		})
	}
}

func TestPattern(t *testing.T) {
	a, b := Pattern(100, 1), Pattern(100, 2)
	if string(a) != string(Pattern(200, 1)[:100]) || string(a) == string(b) || string(a[:50]) == string(a[50:]) {
		t.Error("patterns are not what they should be")
	}
}

// mortal is a transport that only notes what is done to it.
type mortal struct{ crashed, frozen, thawed bool }

func (m *mortal) Crash() { m.crashed = true }
func (m *mortal) Freeze(on bool) {
	m.frozen = m.frozen || on
	m.thawed = m.thawed || !on
}

// TestPlay: a goroutine converses as a process does, and what it made crashes before it is killed.
func TestPlay(t *testing.T) {
	Run(t, "converses", patience, func(r *Rig) {
		m := &mortal{}
		f, made := Kept(func() (*mortal, string, error) { return m, "", nil })
		told := false
		p := r.Play(func(p *Parent, args []string) error {
			f()
			err := add(p, args)
			told = !m.crashed
			return err
		}, made, "40")
		r.Must(p.Tell(2))
		if n := Heard[int](r, p); n != 42 {
			r.Errorf("40 and 2 are %d", n)
		}
		r.Must(p.Stop(true))
		r.Must(p.Stop(false))
		if p.Kill(); told || !m.crashed || !m.frozen || !m.thawed {
			r.Errorf("it went on %v; its transport crashed %v, froze %v, thawed %v", told, m.crashed, m.frozen, m.thawed)
		}
		if err := p.Tell(2); err == nil {
			r.Error("a dead player is told something")
		}
	})
	Run(t, "fails", patience, func(r *Rig) {
		_, none := Kept(func() (*mortal, string, error) { return nil, "", errors.New("none") })
		var n int
		if err := r.Play(add, none, "x").Hear(&n); err == nil || !strings.Contains(err.Error(), "integer") {
			r.Errorf("it ended with %v", err)
		}
	})
}
