package excache

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// edgesProgram is testdata/edges.c.
func edgesProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "edges")
	if out, err := exec.Command("gcc", "-O1", "-pthread", "-Wall", "-o", program, "testdata/edges.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestClosing: what a program starts has remote memory too, where all descriptors that the program does not know are closed before, as Python's subprocess does.
func TestClosing(t *testing.T) {
	if o, out, errs := launch(t, 4<<20, nil, edgesProgram(t), "closing"); o.Code != 0 || out != "ok\n" || errs != "" {
		t.Errorf("exit code %d, %s, %s", o.Code, out, errs)
	}
}

// TestSystemsWay: what the system would do with memory happens to remote memory, or is refused.
func TestSystemsWay(t *testing.T) {
	r := newRig(t, &testStore{most: 10, mapped: true}, 2<<20)
	program := edgesProgram(t)
	for _, what := range []string{"advice", "numbers", "low", "keys", "handlers"} {
		t.Run(what, func(t *testing.T) {
			if got := r.run(t, program, what); got != "ok" {
				t.Errorf("%s", got)
			}
		})
	}
}

// TestForkRefused: where the daemon cannot be told of a fork, because the program has changed its user or its root folder or has no descriptor free, fork fails and the
// program goes on.
func TestForkRefused(t *testing.T) {
	r := newRig(t, &testStore{most: 10, mapped: true}, 2<<20)
	program := edgesProgram(t)
	for _, what := range []string{"crowded", "user", "root"} {
		t.Run(what, func(t *testing.T) {
			if what != "crowded" && os.Geteuid() != 0 {
				t.Skip("only root can change its user or its root folder")
			}
			got := r.run(t, program, what)
			if lines := strings.Split(got, "\n"); lines[len(lines)-1] != "ok" || !strings.Contains(got, "wherry run: fork: the daemon of remote memory cannot be reached") {
				t.Errorf("%s", got)
			}
		})
	}
}
