package child

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell starts a script.
func shell(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(exec.Command("/bin/sh", "-c", script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// TestConversation has a child answer, and end by itself when its input does.
func TestConversation(t *testing.T) {
	p := shell(t, `while read line; do echo "{\"Heard\": $line}"; done; exit 7`)
	for _, word := range []string{"one", "two"} {
		var a struct{ Heard string }
		if err := p.Tell(word); err != nil {
			t.Fatal(err)
		}
		if err := p.Hear(&a); err != nil || a.Heard != word {
			t.Fatalf("it heard %q, %v", a.Heard, err)
		}
	}
	p.EndInput()
	p.End()
	p.End()
	if code := p.cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("it ended with %d, want 7", code)
	}
}

// TestHearSaysWhy: what is wrong with a child that gives no answer.
func TestHearSaysWhy(t *testing.T) {
	for script, want := range map[string]string{
		"exit 3":                     "exit status 3",
		"kill -9 $$":                 "signal: killed",
		"echo ouch >&2; exit 1":      "ouch",
		"echo nonsense":              "without an answer",
		"echo ouch >&2; echo {; cat": "ouch",
	} {
		p := shell(t, script)
		if strings.Contains(script, "cat") {
			p.EndInput()
		}
		var v any
		if err := p.Hear(&v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want something with %q", script, err, want)
		}
	}
}

func TestKill(t *testing.T) {
	p := shell(t, `trap "" TERM; echo 1; while true; do read line; done`) // never ends by itself
	var v int
	if err := p.Hear(&v); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p.Kill()
	if ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGKILL || time.Since(began) >= endTime {
		t.Errorf("after %v: %v", time.Since(began), p.cmd.ProcessState)
	}
}

// TestEnd: a child that does not end when its input does is killed, and one whose own child lives on is not waited for.
func TestEnd(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		most   time.Duration
		killed bool
	}{
		"deaf":       {`trap "" TERM; echo 1; while true; do sleep 1; done`, 2 * endTime, true},
		"grandchild": {`sleep 60 >/dev/null & echo 1`, 20 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it takes its time
			p := shell(t, "echo $$; "+c.script)
			var pid, v int
			if err := errors.Join(p.Hear(&pid), p.Hear(&v)); err != nil || pid != p.Pid() {
				t.Fatalf("process %d says that it is %d, %v", p.Pid(), pid, err)
			}
			began := time.Now()
			p.End()
			ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
			if d := time.Since(began); d > c.most || (ws.Signaled() && ws.Signal() == syscall.SIGKILL) != c.killed {
				t.Errorf("after %v: %v", d, p.cmd.ProcessState)
			}
		})
	}
}

func TestStartFails(t *testing.T) {
	open := openFiles(t)
	for range 10 {
		if _, err := Start(exec.Command("/no/such/program")); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Fatalf("%v", err)
		}
	}
	if now := openFiles(t); now > open {
		t.Errorf("%d descriptors are open, %d were", now, open)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestText(t *testing.T) {
	var text Text
	for _, s := range []string{" a", strings.Repeat("x", 3*maxTextBytes), "y", "z\n"} {
		if n, err := text.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("wrote %d of %d: %v", n, len(s), err)
		}
	}
	s := text.String()
	if len(s) != maxTextBytes+len(gap)-2 || !strings.HasPrefix(s, "ax") || !strings.HasSuffix(s, "xyz") || !strings.Contains(s, gap) {
		t.Errorf("kept %d bytes, from %q to %q", len(s), s[:2], s[len(s)-3:])
	}
	var short Text
	short.Write([]byte(strings.Repeat("x", maxTextBytes)))
	if s := short.String(); len(s) != maxTextBytes || strings.Contains(s, gap) {
		t.Errorf("kept %d of %d bytes", len(s), maxTextBytes)
	}
}
