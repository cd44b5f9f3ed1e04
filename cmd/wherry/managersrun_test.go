package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// steady is a program under wherry run, with memory of its own at c0 and a share of a region that managers placed.
type steady struct {
	*testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errs   bytes.Buffer
	rounds int
	timer  *time.Timer
}

// steady starts the program; 2 MiB are local.
func (g *managed) steady(region string) *steady {
	g.Helper()
	program := filepath.Join(g.dir, "steady")
	must(g.T, exec.Command("gcc", "-O1", "-o", program, "testdata/steady.c"))
	s := &steady{T: g.T}
	s.cmd = self(context.Background(), "", "run", "--peers", "c0="+g.addr["c0"], "--token-file", g.tokens, "--token", "me", "--insecure",
		"--on", "c0", "--local", "2M", "--share-write", region, "--", program, "/wherry/"+region)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell does
	in, err := s.cmd.StdinPipe()
	if err != nil {
		g.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		g.Fatal(err)
	}
	s.in, s.out, s.cmd.Stderr = in, bufio.NewReader(out), &s.errs
	if err := s.cmd.Start(); err != nil {
		g.Fatal(err)
	}
	s.timer = time.AfterFunc(3*patience, func() { s.cmd.Process.Kill() })
	g.Cleanup(func() {
		s.timer.Stop()
		s.cmd.Process.Kill()
	})
	return s
}

// goesOn has the program fill and check all of its memory once more, a room more than the last time.
func (s *steady) goesOn(when string) {
	s.Helper()
	s.rounds++
	fmt.Fprintln(s.in)
	if got, err := s.out.ReadString('\n'); got != fmt.Sprintf("round %d\n", s.rounds) {
		s.in.Close()
		s.cmd.Wait()
		s.Fatalf("%s: wherry run's program says %q, %v\n%s", when, got, err, &s.errs)
	}
}

// suspended stops wherry run and its program for a while, as a terminal does by Ctrl-Z.
func (s *steady) suspended(d time.Duration) {
	s.Helper()
	group := -s.cmd.Process.Pid
	syscall.Kill(group, syscall.SIGTSTP)
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		if err == nil && strings.Contains(string(b), ") T ") {
			break
		}
		if err != nil || time.Now().After(end) {
			s.Fatalf("it does not stop: %s, %v", b, err)
		}
	}
	time.Sleep(d)
	syscall.Kill(group, syscall.SIGCONT)
}

// ends lets the program end by itself: no memory was refused or lost.
func (s *steady) ends() {
	s.Helper()
	s.in.Close()
	rest, _ := io.ReadAll(s.out)
	if err := s.cmd.Wait(); err != nil || string(rest) != "ended\n" || strings.Contains(s.errs.String(), "wherry run:") {
		s.Errorf("wherry run's program ended with %v, %q\n%s", err, rest, &s.errs)
	}
}

// TestSuspended: who stops wherry run by Ctrl-Z goes on later, also after longer than nodes wait for a peer that fell silent without a word.
func TestSuspended(t *testing.T) {
	g := newManaged(t, nil, "m0", "c0")
	g.etcd = ""
	for _, name := range []string{"m0", "c0"} {
		g.start(name)
	}
	c := g.connect("c0")
	g.has(c, "c0")
	g.create(c, "work", 64<<20)
	s := g.steady("work")
	s.goesOn("at first")
	for _, d := range []time.Duration{0, 20 * time.Second} {
		s.suspended(d)
		s.goesOn(fmt.Sprintf("after %v", d))
	}
	s.ends()
}
