package main

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSilentManager: one manager of three stands still. A command whose answer comes from the other nodes does not wait for it, and one that is for all
// nodes names it.
func TestSilentManager(t *testing.T) {
	g := newManaged(t, nil, "m0", "m1", "m2", "c0", "c1")
	for _, name := range []string{"m0", "m1", "m2", "c0", "c1"} {
		g.start(name)
	}
	c := g.connect("c0")
	g.has(c, "c0", "c1")
	g.votes(c, "m0", "m1", "m2")
	g.signal(syscall.SIGSTOP, []*exec.Cmd{g.processes["m0"]})
	defer g.signal(syscall.SIGCONT, []*exec.Cmd{g.processes["m0"]})
	c = g.connect("m1")
	g.destroys(c, g.create(c, "first", 64<<20).Info().Name) // the others decide
	ask := func(peers []string, args ...string) (out, errs string, took time.Duration, err error) {
		var list []string
		for _, name := range peers {
			if n, bare := strings.CutPrefix(name, "="); bare {
				list = append(list, g.addr[n])
			} else {
				list = append(list, name+"="+g.addr[name])
			}
		}
		at := slices.Index(args, "--")
		if at < 0 {
			at = len(args)
		}
		args = slices.Insert(slices.Clone(args), at, "--peers", strings.Join(list, ","), "--token-file", g.tokens, "--token", "me", "--timeout", "80s")
		cmd := self(t.Context(), "", args...)
		var o, e bytes.Buffer
		cmd.Stdout, cmd.Stderr = &o, &e
		begin := time.Now()
		err = cmd.Run()
		return o.String(), e.String(), time.Since(begin), err
	}
	all, bare := []string{"m0", "m1", "m2"}, []string{"=m0", "=m1", "=m2"}
	for _, s := range []struct {
		peers []string
		args  []string
		want  []string
		quiet bool // it says nothing of m0
	}{
		{all, []string{"pool", "create", "one", "64MiB"}, []string{"region one"}, false},
		{[]string{"m1"}, []string{"pool", "create", "two", "64MiB"}, []string{"region two"}, false},
		{bare, []string{"pool", "create", "apart", "1MiB", "--on", "c1"}, []string{"at node c1"}, true},
		{all, []string{"pool", "ls"}, []string{"one", "two", "apart"}, false},
		{[]string{"c0"}, []string{"pool", "ls"}, []string{"one", "two", "apart"}, false},
		{[]string{"m1"}, []string{"pool", "stat", "apart"}, []string{"at node c1"}, false},
		{[]string{"c0"}, []string{"run", "--on", "c0", "--", "echo", "ran"}, []string{"ran"}, true},
		{all, []string{"run", "--on", "c0", "--", "echo", "ran"}, []string{"ran"}, true},
		{[]string{"c0"}, []string{"run", "--on", "c0", "--share", "one", "--share", "apart", "--", "echo", "ran"}, []string{"ran"}, false},
		{[]string{"m1"}, []string{"manager", "ls"}, []string{"m0", "m1", "m2", "votes, but does not answer"}, false},
		{[]string{"c0"}, []string{"top", "--once"}, []string{"c0", "c1", "one"}, false},
	} {
		out, errs, took, err := ask(s.peers, s.args...)
		said := s.quiet && errs != ""
		for _, want := range s.want {
			said = said || !strings.Contains(out, want)
		}
		if err != nil || said || took > 12*time.Second { // 15 s are what a client of all nodes waits
			t.Errorf("%q with %v: %v after %v, want %q\n%s%s", s.args, s.peers, err, took, s.want, out, errs)
		}
		t.Logf("%.4q with %v: %v", s.args, s.peers, took)
	}
	if out, errs, _, err := ask([]string{"c0"}, "node", "status"); !strings.Contains(out+errs, "m0") {
		t.Errorf("status, and m0 is silent: %v\n%s%s", err, out, errs)
	}
}
