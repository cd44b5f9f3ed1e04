package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
)

// asCommand makes the test binary be the command.
const asCommand = "IOFORWARD_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	syscall.Umask(0o022) // the modes that these tests give are those they mean
	os.Exit(m.Run())
}

// patience is what a test waits for what should take a moment.
const patience = 60 * time.Second

// process is a running command.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // what it prints
	errs  *strings.Builder
	ended chan struct{}
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), lines: make(chan string, 16), errs: &strings.Builder{}, ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asCommand+"=1")
	p.cmd.Stderr = p.errs
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		io.Copy(io.Discard, out)
		p.cmd.Wait()
	}()
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	return p
}

// line is the next that the command prints.
func (p *process) line() string {
	p.t.Helper()
	select {
	case l := <-p.lines:
		return l
	case <-p.ended:
		p.t.Fatalf("%v ended: %v\n%s", p.cmd.Args[1:], p.cmd.ProcessState, p.errs)
	case <-time.After(patience):
		p.t.Fatalf("%v prints nothing", p.cmd.Args[1:])
	}
	return ""
}

// end sends a signal and waits for the command's end.
func (p *process) end(sig os.Signal) {
	p.t.Helper()
	p.cmd.Process.Signal(sig)
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Errorf("%v does not end on %v", p.cmd.Args[1:], sig)
	}
}

// fails waits for the command's end, which must be a failure that says want.
func (p *process) fails(want string) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%v does not end", p.cmd.Args[1:])
	}
	if p.cmd.ProcessState.Success() || !strings.Contains(p.errs.String(), want) {
		p.t.Errorf("%v: %v, saying %q; want a failure that says %q", p.cmd.Args[1:], p.cmd.ProcessState, p.errs, want)
	}
}

// serveDir starts a node and says where it is.
func serveDir(t *testing.T, dir, listen string, args ...string) (*process, string) {
	t.Helper()
	p := start(t, append(append([]string{"serve", "--anybody", "--listen", listen}, args...), dir)...)
	l := p.line()
	_, addr, ok := strings.Cut(l, " at ")
	if !ok {
		t.Fatalf("serve prints %q", l)
	}
	return p, addr
}

const (
	anyPort = "tcp://127.0.0.1:0"
	// ownPort is for a node that comes back at its port: an address of loopback that nothing else uses, so that nobody
	// gets the port meanwhile.
	ownPort = "tcp://127.7.7.10:0"
)

// mountAt mounts a node that lets anybody in, and unmounts when the test ends.
func mountAt(t *testing.T, addr string, args ...string) (dir string, p *process) {
	t.Helper()
	needMount(t)
	return mountWith(t, addr, append([]string{"--anybody"}, args...)...)
}

func mountWith(t *testing.T, addr string, args ...string) (dir string, p *process) {
	t.Helper()
	dir = t.TempDir()
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) }) // if it is still there
	p = start(t, append(append([]string{"mount"}, args...), addr, dir)...)
	if l := p.line(); !strings.HasPrefix(l, "mounted ") {
		t.Fatalf("mount prints %q", l)
	}
	return dir, p
}

// within runs what must not hang, and returns its error.
func within(t *testing.T, limit time.Duration, what string, fn func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		t.Fatalf("%s: not done after %v", what, limit)
		return nil
	}
}

// tool runs a program of the system.
func tool(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var out []byte
	err := within(t, 2*patience, name, func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	return string(out), err
}

func mustTool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := tool(t, name, args...)
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return out
}

func isMounted(t *testing.T, dir string) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(table), " "+dir+" ")
}

// unmounts ends a mount as its user does, and checks that it is gone.
func unmounts(t *testing.T, dir string, p *process) {
	t.Helper()
	p.end(os.Interrupt)
	if isMounted(t, dir) {
		t.Errorf("%s is still mounted", dir)
	}
	if s := p.cmd.ProcessState; !s.Success() {
		t.Errorf("mount ended with %v: %s", s, p.errs)
	}
}

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	cases := map[string]struct {
		args []string
		want string
	}{
		"nothing":        {nil, "serve [flags] DIRECTORY"},
		"unknown":        {[]string{"fly"}, `there is no "fly"`},
		"no directory":   {[]string{"serve", "--anybody"}, "one directory"},
		"no tokens":      {[]string{"serve", dir}, "give either --tokens"},
		"both":           {[]string{"serve", "--anybody", "--tokens", "t", dir}, "give either --tokens"},
		"beyond":         {[]string{"serve", "--anybody", "--listen", "tcp://192.0.2.1:7070", dir}, "--insecure"},
		"mount beyond":   {[]string{"mount", "--anybody", "tcp://192.0.2.1:7070", dir}, "--insecure"},
		"not there":      {[]string{"serve", "--anybody", filepath.Join(dir, "nonesuch")}, "no such file"},
		"no node":        {[]string{"mount", "--anybody", "tcp://127.0.0.1:1", dir}, "the node at tcp://127.0.0.1:1"},
		"policy":         {[]string{"serve", "--anybody", "--policy", "lazy", dir}, "lazy"},
		"no token file":  {[]string{"mount", "--tokens", filepath.Join(dir, "none"), "tcp://127.0.0.1:1", dir}, "no such file"},
		"mount nowhere":  {[]string{"mount", "--anybody", "tcp://127.0.0.1:1"}, "an address and a directory"},
		"cache":          {[]string{"mount", "--anybody", "--cache", "-1s", "tcp://127.0.0.1:1", dir}, "cannot be kept for -1s"},
		"no such flag":   {[]string{"serve", "--fast"}, "-fast"},
		"transfer bytes": {[]string{"mount", "--anybody", "--io-bytes", "5", "tcp://127.0.0.1:1", dir}, "power of two"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			start(t, c.args...).fails(c.want)
		})
	}
	for _, help := range [][]string{{"--help"}, {"help"}, {"serve", "-h"}, {"mount", "--help"}} {
		p := start(t, help...)
		select {
		case <-p.ended:
		case <-time.After(patience):
			t.Fatalf("%v does not end", help)
		}
		if !p.cmd.ProcessState.Success() {
			t.Errorf("%v: %v", help, p.cmd.ProcessState)
		}
	}
}

// TestTokens has serve make a token file, and mounts with it, with another, and with none.
func TestTokens(t *testing.T) {
	dir, files := t.TempDir(), t.TempDir()
	tokens := filepath.Join(files, "tokens")
	p := start(t, "serve", "--tokens", tokens, "--listen", anyPort, dir)
	_, addr, _ := strings.Cut(p.line(), " at ")
	info, err := os.Stat(tokens)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the token file: %v, %v", info, err)
	}
	for _, args := range [][]string{{"--anybody"}, {"--tokens", otherTokens(t, files)}} {
		start(t, append(append([]string{"mount"}, args...), addr, t.TempDir())...).fails("")
	}
	letsIn(t, addr, "--tokens", tokens)
}

func otherTokens(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "other")
	if err := newTokens(file); err != nil {
		t.Fatal(err)
	}
	if err := newTokens(file); err != nil { // it is there, and stays as it is
		t.Fatal(err)
	}
	return file
}

// TestTLS mounts with a certificate of the node's authority, and with another authority's.
func TestTLS(t *testing.T) {
	files := t.TempDir()
	flags := func(authority, name string, node bool) []string {
		return certificate(t, filepath.Join(files, authority), name, node)
	}
	p := start(t, append(append([]string{"serve"}, flags("ours", "node", true)...), "--listen", anyPort, t.TempDir())...)
	_, addr, _ := strings.Cut(p.line(), " at ")
	for _, args := range [][]string{{"--anybody"}, flags("theirs", "ann", false)} {
		start(t, append(append([]string{"mount"}, args...), addr, t.TempDir())...).fails("")
	}
	letsIn(t, addr, flags("ours", "ann", false)...)
}

// letsIn mounts a node with the given credentials, where this machine can mount, and writes a file.
func letsIn(t *testing.T, addr string, credentials ...string) {
	t.Helper()
	if !canMount(t) {
		return
	}
	dir, p := mountWith(t, addr, credentials...)
	if err := within(t, patience, "write", func() error { return os.WriteFile(filepath.Join(dir, "f"), make([]byte, 1<<20), 0o644) }); err != nil {
		t.Error(err)
	}
	unmounts(t, dir, p)
}

// certificate has an authority, made if need be, issue one, and says how to use it.
func certificate(t *testing.T, dir, name string, node bool) []string {
	t.Helper()
	a, err := ca.Open(dir)
	if err != nil {
		if a, err = ca.Init(dir, filepath.Base(dir), ca.DefaultLife); err != nil {
			t.Fatal(err)
		}
	}
	r := ca.Request{Principal: cluster.Principal{Name: name, Caps: cluster.CapRead | cluster.CapWrite}, Node: node}
	if node {
		r.Hosts = []string{"127.0.0.1"}
		r.Principal.Caps |= cluster.CapMember
	}
	_, cert, key, err := a.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	files := []string{filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")}
	for i, text := range [][]byte{cert, key} {
		if err := os.WriteFile(files[i], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"--tls-cert", files[0], "--tls-key", files[1], "--tls-ca", a.File(ca.CertFile)}
}

// isErrno compares an error with an error number, as the kernel gave it.
func isErrno(err error, want syscall.Errno) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("%v, want %v", err, want)
	}
	return nil
}
