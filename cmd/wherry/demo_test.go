package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/demo/debgraph"
	"github.com/wherry-fabric/wherry/internal/ports"
)

// demoReport is what the tests read of the demo's JSON.
type demoReport struct {
	Format      int
	Environment struct {
		Vertices, Elements int
		Transports         []string
		Processors         []string
		Objects, Bitcode   []string
		LentBytes          int64 `json:"lent_bytes_at_most"`
		DataBytes          int64 `json:"data_bytes"`
	}
	Answers      []struct{ Question string }
	Measurements []struct {
		Question, Method, Failure string
		Checked                   bool
		TimeNs                    int64  `json:"time_ns"`
		RoundTrips                uint64 `json:"round_trips"`
		Between                   uint64 `json:"bytes_between_elements"`
	}
}

// runDemo runs the demo as a process of its own, with its nodes as others.
func runDemo(t *testing.T, args ...string) *demoReport {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out := must(t, self(ctx, "", append([]string{"demo", "--json"}, args...)...))
	r := &demoReport{}
	if err := json.Unmarshal([]byte(out), r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for _, m := range r.Measurements {
		if m.Question == "chase" && m.Method == "get-batched" {
			continue // it says that it cannot
		}
		if !m.Checked || m.Failure != "" || m.TimeNs <= 0 || m.RoundTrips == 0 {
			t.Errorf("%+v", m)
		}
	}
	return r
}

func edgeList(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "edges.txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const fewEdges = "app lib\nlib base\ntool lib\napp tool\n"

func TestDemoOnASmallGraph(t *testing.T) {
	page := filepath.Join(t.TempDir(), "demo.html")
	r := runDemo(t, "--graph", edgeList(t, fewEdges), "--repeats", "1", "--hops", "5000", "--rtt", "10us", "--elements", "2", "--html", page, "app", "base")
	if r.Format != 1 || r.Environment.Vertices != 4 || r.Environment.Elements != 2 || len(r.Answers) != 7 || len(r.Measurements) != 28 {
		t.Errorf("%+v", r)
	}
	html, err := os.ReadFile(page)
	if err != nil || !bytes.Contains(html, []byte("What does app end up needing?")) {
		t.Errorf("the page has %d bytes (%v)", len(html), err)
	}
}

// crossBuild builds a command for another processor.
func crossBuild(t *testing.T, command, arch, to string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-pgo=off", "-ldflags=-w", "-o", to, command)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
}

// TestDemoMixed: nodes for three processors answer as one does, the same image on each of them; machine code runs on those that are emulated, and bitcode is
// compiled on an arm64, and both answer as wasm does there.
func TestDemoMixed(t *testing.T) {
	dir := t.TempDir()
	var others []string
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		if arch == runtime.GOARCH {
			continue
		}
		others = append(others, arch)
		crossBuild(t, ".", arch, filepath.Join(dir, "wherry-"+arch))
	}
	compiles := runtime.GOARCH != "arm64"
	if compiles {
		folder, err := exec.CommandContext(t.Context(), "../../scripts/folder-tools.sh", "arm64").Output()
		if err != nil && os.Getenv("CI") == "true" {
			t.Fatalf("scripts/folder-tools.sh: %v", err)
		}
		if compiles = err == nil; compiles {
			crossBuild(t, "../wherry-llvm", "arm64", filepath.Join(dir, "wherry-llvm-arm64"))
			if err := os.Symlink(strings.TrimSpace(string(folder)), filepath.Join(dir, "libraries-arm64")); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := runDemo(t, "--mixed", "--programs", dir, "--graph", edgeList(t, fewEdges), "--repeats", "1", "--hops", "300", "app", "base")
	if len(r.Answers) != 7 || len(r.Measurements) != 28 || r.Environment.Elements != 3 {
		t.Errorf("%+v", r)
	}
	for _, arch := range others {
		if !slices.Contains(r.Environment.Processors, arch+" (emulated)") {
			t.Errorf("there is no node for %s: %q", arch, r.Environment.Processors)
		}
		if said := strings.Join(r.Environment.Objects, "\n"); !strings.Contains(said, "("+arch+"), whose answer is that of wasm") {
			t.Errorf("no machine code ran on %s: %q", arch, said)
		}
	}
	if said := strings.Join(r.Environment.Bitcode, "\n"); compiles && !strings.Contains(said, "(arm64), whose answer is that of wasm") {
		t.Errorf("no bitcode was compiled on arm64: %q", said)
	}
}

// leastChecked is how many of the 20 ways to answer the demo's questions come to an end at least, within a budget
// that does not suffice for getting all edges one by one.
const leastChecked = 15

// boundedDemo runs the demo with the built-in graph. Getting edge by edge is bounded, so that slow machines do not spend
// minutes on it; one that is so slow that the bound ends more than that tries again with more time.
func boundedDemo(t *testing.T, args ...string) *demoReport {
	t.Helper()
	for _, budget := range []string{"2s", "10s", "50s"} {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		out := must(t, self(ctx, "", append([]string{"demo", "--json", "--repeats", "1", "--budget", budget}, args...)...))
		cancel()
		r := &demoReport{}
		if err := json.Unmarshal([]byte(out), r); err != nil {
			t.Fatal(err)
		}
		if budget == "50s" || !r.ranOut() && r.checked() >= leastChecked {
			return r
		}
	}
	return nil
}

// ranOut reports whether a function did not end within the budget.
func (r *demoReport) ranOut() bool {
	for _, m := range r.Measurements {
		if m.Method == "injected" && strings.Contains(m.Failure, "stopped after") {
			return true
		}
	}
	return false
}

// checked is how many methods gave an answer, all of which are compared.
func (r *demoReport) checked() (n int) {
	for _, m := range r.Measurements {
		if m.Checked {
			n++
		}
	}
	return n
}

func TestDemoOnDebian(t *testing.T) {
	r := boundedDemo(t)
	if r.Environment.Vertices != 63666 || r.Environment.LentBytes >= r.Environment.DataBytes || strings.Join(r.Environment.Transports, "") != "tcp" {
		t.Errorf("%+v", r.Environment)
	}
	for _, m := range r.Measurements {
		if !m.Checked && (m.Method == "injected" || m.Failure == "" || strings.Contains(m.Failure, "wrong")) {
			t.Errorf("%+v", m)
		}
		if m.Method == "injected" && m.Between == 0 {
			t.Errorf("%s: nothing went between the elements", m.Question)
		}
	}
	if n := r.checked(); n < leastChecked {
		t.Errorf("only %d of %d methods gave an answer", n, len(r.Measurements))
	}
}

// runningNodes starts two nodes, and says how to reach the first, which knows the other.
func runningNodes(t *testing.T, memory string) (access []string) {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens")
	must(t, self(t.Context(), "", "token", "new", "cluster", "--node", "--file", tokens))
	list, err := ports.Free(2)
	if err != nil {
		t.Fatal(err)
	}
	var peers []string
	for i, port := range list {
		peers = append(peers, fmt.Sprintf("n%d=tcp://127.0.0.1:%d", i, port))
	}
	for _, p := range peers {
		name, addr, _ := strings.Cut(p, "=")
		startNode(t, "", "--name", name, "--listen", addr, "--peers", strings.Join(peers, ","), "--token-file", tokens, "--memory", memory, "--log-level", "error")
	}
	_, first, _ := strings.Cut(peers[0], "=")
	return []string{"--peers", first, "--token-file", tokens}
}

// leftBehind checks that a demo took its data away again.
func leftBehind(t *testing.T, access []string) {
	t.Helper()
	if left := must(t, self(t.Context(), "", append([]string{"mem", "ls", "--json"}, access...)...)); strings.TrimSpace(left) != "[]" {
		t.Errorf("it left datasets behind: %s", left)
	}
}

// Nodes that run already are used and left as they were.
func TestDemoOnRunningNodes(t *testing.T) {
	access := runningNodes(t, "16MiB")
	r := runDemo(t, append(access, "--graph", edgeList(t, fewEdges), "--repeats", "1", "--hops", "100")...)
	if r.Environment.Elements != 2 || r.Environment.LentBytes != 0 {
		t.Errorf("%+v", r.Environment)
	}
	leftBehind(t, access)
}

// The built-in graph on nodes that run already, with nothing but --peers to say what is wanted.
func TestDemoWithPeersOnly(t *testing.T) {
	access := runningNodes(t, "256MiB")
	r := boundedDemo(t, access...)
	if r.Environment.Vertices != 63666 || r.Environment.Elements != 2 || r.Environment.LentBytes != 0 {
		t.Errorf("%+v", r.Environment)
	}
	injected := 0
	for _, m := range r.Measurements {
		if m.Method != "injected" {
			continue
		}
		if injected++; !m.Checked || m.Failure != "" || m.Between == 0 {
			t.Errorf("%+v", m)
		}
	}
	if injected == 0 || injected != len(r.Answers) {
		t.Errorf("functions answered %d of %d questions", injected, len(r.Answers))
	}
	leftBehind(t, access)
	// Too little memory is said before anything stays there.
	small := runningNodes(t, "64KiB")
	said, err := self(t.Context(), "", append([]string{"demo"}, small...)...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitFull || !strings.Contains(string(said), "not enough memory to lend") {
		t.Errorf("on nodes that lend too little: %v\n%s", err, said)
	}
	leftBehind(t, small)
}

// An interrupt ends the demo and its nodes, and says so.
func TestDemoInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := self(ctx, "", "demo", "--repeats", "1000", "--hops", "100000000")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for len(nodes) < 4 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
		nodes = children(t, cmd.Process.Pid)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("it ended with %v\n%s", err, errs.String())
	}
	for _, pid := range nodes {
		if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("node process %s still runs", pid)
		}
	}
}

// children are the processes that a process has started.
func children(t *testing.T, pid int) []string {
	t.Helper()
	var list []string
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		if b, err := os.ReadFile(task); err == nil {
			list = append(list, strings.Fields(string(b))...)
		}
	}
	return list
}

// emptyGraph is a file in the built-in graph's format that has no vertex.
func emptyGraph(t *testing.T) string {
	t.Helper()
	g, err := debgraph.ReadEdgeList("empty", strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	b, err := debgraph.Encode(g)
	if err != nil {
		t.Fatal(err)
	}
	return edgeList(t, string(b))
}

func TestDemoRefuses(t *testing.T) {
	if out, err := self(t.Context(), "", "demo", "--graph", emptyGraph(t)).CombinedOutput(); err == nil || !strings.Contains(string(out), "has no edges; a line is 'from to'") {
		t.Errorf("a graph of no vertices: %v\n%s", err, out)
	}
	for _, args := range [][]string{
		{"no-such-package"}, {"--graph", edgeList(t, "a b c\n")}, {"--rtt", "1h"}, {"--rtt", "-1us"}, {"--elements", "0"}, {"--repeats", "0"},
		{"--graph", emptyGraph(t)}, {"--graph", edgeList(t, "")}, {"--graph", edgeList(t, "# none\n")}, {"--hops", "0"},
		{"--first", "0"}, {"--hops", "100000001"}, {"--policy", "lazy"}, {"--elements", "3", "--peers", "tcp://127.0.0.1:1"},
	} {
		cmd := self(t.Context(), "", append([]string{"demo"}, args...)...)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitUsage {
			t.Errorf("demo %v: %v\n%s", args, err, out)
		}
	}
}

// A benchmark that a terminal interrupts, with all its processes at once, says so too, as JSON if that was asked for.
func TestBenchInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := self(ctx, "", "bench", "ring", "--json", "--rounds", "10000000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for len(children(t, cmd.Process.Pid)) < 4 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if said := strings.TrimSpace(errs.String()); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted || said != `{"error":"interrupted","exit":130}` {
		t.Errorf("it ended with %v\n%s", err, said)
	}
}
