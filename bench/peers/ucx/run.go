package ucx

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/bench/peers/figures"
	"github.com/wherry-fabric/wherry/bench/peers/turn"
	"github.com/wherry-fabric/wherry/internal/child"
)

const program = "ucx_perftest"

// Install is a place where a UCX may be installed.
type Install struct {
	How  string // to get it
	name string // of its rows, after "ucx"
	dir  string // with bin and lib; "": the PATH
}

// Debian is the system's own, or whatever is in the PATH.
func Debian() Install {
	return Install{How: "install it: apt-get install -y --no-install-recommends ucx-utils"}
}

// PyPI is the newer one of the wheel libucx-cu12, unpacked: the folder with bin and lib.
func PyPI(dir string) Install {
	return Install{How: "fetch it: bench/peers/install-ucx.sh, which needs python3 with pip", name: " pypi", dir: dir}
}

// Name is what rows of a kind (Peer, PeerAM) are called for this installation.
func (in Install) Name(kind string) string { return Peer + in.name + strings.TrimPrefix(kind, Peer) }

// path is where a program of the installation's lies.
func (in Install) path(program string) (string, error) {
	if in.dir == "" {
		return exec.LookPath(program)
	}
	return exec.LookPath(filepath.Join(in.dir, "bin", program))
}

// env is what its programs run with.
func (in Install) env(more ...string) []string {
	env := append(os.Environ(), more...)
	if in.dir != "" {
		env = append(env, "LD_LIBRARY_PATH="+filepath.Join(in.dir, "lib"))
	}
	return env
}

// ErrNotInstalled says that the program is not there.
var ErrNotInstalled = errors.New(program + " is not installed")

// ErrNoTest says that ucx_perftest has no test of the work.
var ErrNoTest = errors.New(program + " has no request-reply test with several under way (ucp_am_bw has no replies)")

const (
	startTime   = 10 * time.Second // a server has to listen by then
	pollTime    = 2 * time.Millisecond
	graceTime   = 2 * time.Minute // what a run may take besides its iterations, on a machine with other work
	probeCalls  = 200             // of the run that finds out how many fit into a turn; of bulk data leastCalls
	leastCalls  = 20
	versionTime = 5 * time.Second
)

// Names of the rows.
const (
	Peer   = "ucx"
	PeerAM = "ucx am" // bulk data by active message
)

// Transports are what UCX calls the transports that are compared, by the name rows show.
func Transports() []string { return []string{"posix", "sysv", "tcp"} }

// Tool is an installed ucx_perftest.
type Tool struct {
	in      Install
	path    string
	Version string
	CPUs    turn.CPUs
	Sleep   bool // wait asleep rather than polling
	Time    time.Duration
	// fit is how many iterations of a test last for Time.
	fit map[string]int
}

// Find looks for an installation's program and asks its ucx_info for the version.
func Find(ctx context.Context, in Install) (*Tool, error) {
	path, err := in.path(program)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotInstalled, err)
	}
	t := &Tool{in: in, path: path, fit: map[string]int{}}
	info, err := in.path("ucx_info")
	if err != nil {
		return t, nil // it runs without a version
	}
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, info, "-v")
	cmd.Env = in.env()
	if out, err := cmd.Output(); err == nil {
		t.Version = parseVersion(string(out))
	}
	return t, nil
}

// Sleeping is the same tool that waits asleep, or not.
func (t *Tool) Sleeping(sleep bool) *Tool {
	other := *t
	other.Sleep, other.fit = sleep, map[string]int{}
	return &other
}

// parseVersion reads what ucx_info -v prints: "# Version 1.13.1", or "# Library version: 1.17.0" in later ones.
func parseVersion(out string) string {
	for line := range strings.Lines(out) {
		fields := strings.Fields(strings.ToLower(line))
		for i, f := range fields {
			if strings.TrimSuffix(f, ":") == "version" && i+1 < len(fields) {
				return fields[i+1]
			}
		}
	}
	return ""
}

// test is one of ucx_perftest's, as the work of a row.
type test struct {
	name   string
	size   int
	single bool // -O 1: one outstanding, for tests that would have several
	halves bool // prints half of the time that an operation takes here
}

// testOf is what a row runs.
func testOf(peer string, work figures.Work) (test, error) {
	switch {
	case work == figures.Echo && peer == Peer:
		return test{name: "ucp_am_lat", size: figures.EchoBytes, halves: true}, nil
	case work.Ordinary() && peer == Peer && work.Clients() == 1 && work.Callers() == 1 && work.Bytes() > figures.EchoBytes:
		return test{name: "ucp_am_lat", size: work.Bytes(), halves: true}, nil
	case work == figures.Get && peer == Peer:
		return test{name: "ucp_get", size: figures.BulkBytes, single: true}, nil
	case work == figures.Put && peer == Peer:
		return test{name: "ucp_put_bw", size: figures.BulkBytes, single: true}, nil
	case work == figures.Put && peer == PeerAM:
		return test{name: "ucp_am_lat", size: figures.BulkBytes}, nil
	}
	return test{}, ErrNoTest
}

// Offers is nil if ucx_perftest has a test for a row, and otherwise says that it has none.
func Offers(peer string, work figures.Work) error {
	_, err := testOf(peer, work)
	return err
}

// sleeps reports whether a test waits asleep. One-sided tests within shared
// memory do not: the copy is done when the call returns, nothing will wake the process, and
// ucx_perftest 1.13.1 sleeps for ever.
func (t *Tool) sleeps(w test, transport string) bool {
	return t.Sleep && (transport == "tcp" || !w.single)
}

// Policy is how a row waits, as it is shown.
func (t *Tool) Policy(peer, transport string, work figures.Work) string {
	switch w, err := testOf(peer, work); {
	case err != nil:
		return ""
	case t.sleeps(w, transport):
		return "sleep (ucx -E sleep)"
	case t.Sleep:
		return "poll (ucx cannot sleep here)"
	}
	return "poll (ucx)"
}

// Take takes one turn.
func (t *Tool) Take(ctx context.Context, peer, transport string, work figures.Work) (s figures.Sample, err error) {
	began := time.Now()
	what, err := testOf(peer, work)
	if err != nil {
		return s, err
	}
	r, err := t.run(ctx, what, transport)
	if err != nil {
		return s, err
	}
	s = what.sample(r)
	s.WallS = time.Since(began).Seconds()
	return s, nil
}

// sample is a report in the terms of the other peers.
func (w test) sample(r Report) figures.Sample {
	us := r.OverallUs
	if w.halves {
		us *= 2
	}
	s := figures.Sample{MeanNs: us * 1e3, CallsPerS: 1e6 / us, Calls: r.Iterations, AllocsPerOp: -1}
	if w.halves {
		s.P50Ns = 2 * r.P50Us * 1e3
	}
	if w.size == figures.BulkBytes {
		s.GBytesPerS = s.CallsPerS * figures.BulkBytes / 1e9
	}
	return s
}

// run runs a test for about t.Time. The first run of each is preceded by a short one, which tells how many
// iterations that is: ucx_perftest takes a number, not a time.
func (t *Tool) run(ctx context.Context, w test, transport string) (Report, error) {
	key := transport + " " + w.name + " " + strconv.Itoa(w.size)
	if t.fit[key] == 0 {
		n := probeCalls
		if w.size == figures.BulkBytes { // beside other work each of them takes a tenth of a second
			n = leastCalls
		}
		r, err := t.runOnce(ctx, w, transport, n, n/10)
		if err != nil {
			return r, err
		}
		t.fit[key] = w.fits(r, t.Time)
	}
	n := t.fit[key]
	r, err := t.runOnce(ctx, w, transport, n, max(n/4, 1))
	if err == nil {
		t.fit[key] = w.fits(r, t.Time)
	}
	return r, err
}

// fits is how many iterations last for length, by a report.
func (w test) fits(r Report, length time.Duration) int {
	us := r.OverallUs
	if strings.HasSuffix(w.name, "_lat") { // an iteration is there and back
		us *= 2
	}
	return int(max(float64(length.Microseconds())/us, leastCalls))
}

// runOnce runs server and client for n iterations.
func (t *Tool) runOnce(ctx context.Context, w test, transport string, n, warm int) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*t.Time+graceTime)
	defer cancel()
	port, err := freePort()
	if err != nil {
		return Report{}, err
	}
	args := []string{"-p", strconv.Itoa(port), "-t", w.name, "-s", strconv.Itoa(w.size), "-n", strconv.Itoa(n), "-w", strconv.Itoa(warm), "-f", "-v"}
	if w.single {
		args = append(args, "-O", "1")
	}
	if t.sleeps(w, transport) {
		args = append(args, "-I", "-E", "sleep")
	}
	server, err := t.start(ctx, transport, true, args)
	if err != nil {
		return Report{}, err
	}
	defer server.end()
	if err := listening(ctx, port, server); err != nil {
		return Report{}, err
	}
	client, err := t.start(ctx, transport, false, append([]string{"127.0.0.1"}, args...))
	if err != nil {
		return Report{}, err
	}
	defer client.end()
	if err := client.wait(); err != nil {
		if ctx.Err() != nil {
			return Report{}, fmt.Errorf("%s %s: not done within %v", program, w.name, 4*t.Time+graceTime)
		}
		return Report{}, fmt.Errorf("%s %s: %w: %s", program, w.name, err, complaint(client))
	}
	return Parse(client.out.String())
}

// process is one side of a test. One goroutine waits for it.
type process struct {
	cmd         *exec.Cmd
	out, stderr child.Text
	done        chan error
	ended       bool
}

func (t *Tool) start(ctx context.Context, transport string, server bool, args []string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, t.path, args...), done: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.stderr
	p.cmd.WaitDelay = time.Second
	p.cmd.Env = t.in.env("UCX_TLS="+transport+",self", "UCX_NET_DEVICES=lo", "UCX_WARN_UNUSED_ENV_VARS=n")
	if err := t.CPUs.On(server, p.cmd.Start); err != nil {
		return nil, err
	}
	go func() { p.done <- p.cmd.Wait() }()
	return p, nil
}

// complaint is what a process that failed said: its errors, or all of it.
func complaint(p *process) string {
	said := p.stderr.String() + "\n" + p.out.String()
	var errs []string
	for line := range strings.Lines(said) {
		if _, text, ok := strings.Cut(line, "ERROR "); ok {
			errs = append(errs, strings.TrimSpace(text))
		}
	}
	if len(errs) > 0 {
		said = strings.Join(errs, "; ")
	}
	return clip(said)
}

func (p *process) wait() error {
	err := <-p.done
	p.ended = true
	return err
}

// end ends the process, if it has not ended by itself a moment after its peer.
func (p *process) end() {
	if p.ended {
		return
	}
	kill := time.AfterFunc(time.Second, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	_ = p.wait() // the client's result is what counts
}

// freePort is a port that nobody listens at now. It lies below those that the kernel hands out by itself, so that nobody
// is given it before the server listens.
func freePort() (port int, err error) {
	for range 100 {
		port = 10000 + rand.IntN(20000)
		var l net.Listener
		if l, err = net.Listen("tcp4", ":"+strconv.Itoa(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// listening waits until the server listens. Connecting to see would be taken for the client, so
// the kernel's table is read instead.
func listening(ctx context.Context, port int, server *process) error {
	deadline := time.NewTimer(startTime)
	defer deadline.Stop()
	for {
		for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			if b, err := os.ReadFile(table); err == nil && listens(string(b), port) {
				return nil
			}
		}
		select {
		case err := <-server.done:
			server.ended = true
			if ctx.Err() != nil { // which ended it
				return context.Cause(ctx)
			}
			return fmt.Errorf("the server of %s ended (%v): %s", program, err, complaint(server))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return fmt.Errorf("the server of %s does not listen after %v", program, startTime)
		case <-time.After(pollTime):
		}
	}
}

// listenState is TCP_LISTEN in the kernel's table.
const listenState = "0A"

// listens reports whether a table of the kernel's form has a listener on the port.
func listens(table string, port int) bool {
	want := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > 3 && strings.HasSuffix(f[1], want) && f[3] == listenState {
			return true
		}
	}
	return false
}
