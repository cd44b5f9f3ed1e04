package ucx

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/bench/peers/figures"
	"github.com/wherry-fabric/wherry/bench/peers/turn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestParse reads what ucx_perftest 1.13.1 printed, and what it might.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		file string
		want Report
	}{
		{"am_lat_posix.txt", Report{200000, 0.384, 0.816, 1224803}},
		{"get_posix.txt", Report{3000, 34.658, 41.189, 24278}},
		{"put_bw_tcp.txt", Report{200, 1219.568, 1573.308, 636}}, // its iterations are padded
		{"am_lat_stages.txt", Report{200000, 0.459, 44.567, 22438}},
		{"warnings.txt", Report{1000, 0.245, 0.227, 4405782}},
	} {
		out, err := os.ReadFile(filepath.Join("testdata", c.file))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Parse(string(out)); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.file, got, err, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const header = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
	for name, out := range map[string]string{
		"nothing":            "",
		"only a header":      header,
		"an error":           "[1795228100.8] [vm:9724 :0] perftest.c:405 UCX ERROR client failed. connect() failed: Connection refused\n",
		"no numbers":         header + "a,b,c,d,e,f,g,h\n",
		"no such column":     "iterations,99.9_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n1,2,3,4,5,6,7,8\n",
		"zero iterations":    header + "0,1,1,1,1,1,1,1\n",
		"negative latency":   header + "9,-1,1,1,1,1,1,1\n",
		"no time":            header + "9,1,1,0,1,1,1,1\n",
		"not a number":       header + "9,NaN,1,1,1,1,1,1\n",
		"infinite":           header + "9,1,1,Inf,1,1,1,1\n",
		"a short last line":  "Final: 200 0.291 5697\n",
		"words in the table": "Final: 200 0.291 x y z 1 2 3\n",
	} {
		if r, err := Parse(out); !errors.Is(err, ErrOutput) {
			t.Errorf("%s: %+v, %v; want ErrOutput", name, r, err)
		}
	}
}

// FuzzParse: whatever is printed, a report has possible figures or there is an error.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatalf("no examples: %v", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, out string) {
		r, err := Parse(out)
		if err != nil {
			if !errors.Is(err, ErrOutput) {
				t.Errorf("%v is not ErrOutput", err)
			}
			return
		}
		if s := (test{halves: true}).sample(r); math.IsNaN(s.P50Ns) || !(s.MeanNs > 0) || !(s.CallsPerS > 0) || math.IsInf(s.CallsPerS, 0) || s.Calls < 1 {
			t.Errorf("impossible sample %+v of %+v", s, r)
		}
		if n := (test{name: "ucp_am_lat"}).fits(r, time.Second); n < leastCalls {
			t.Errorf("%d iterations are to fit", n)
		}
	})
}

func TestSample(t *testing.T) {
	r := Report{Iterations: 1000, P50Us: 0.2, OverallUs: 0.25, RatePerS: 4e6}
	lat, err := testOf(Peer, figures.Echo)
	if err != nil {
		t.Fatal(err)
	}
	if s := lat.sample(r); s.P50Ns != 400 || s.MeanNs != 500 || s.CallsPerS != 2e6 || s.GBytesPerS != 0 || s.Calls != 1000 {
		t.Errorf("a ping-pong is the round trip: %+v", s)
	}
	r = Report{Iterations: 100, P50Us: 1, OverallUs: 100, RatePerS: 1e4}
	for _, c := range []struct {
		peer string
		work figures.Work
	}{{Peer, figures.Get}, {Peer, figures.Put}, {PeerAM, figures.Put}} {
		what, err := testOf(c.peer, c.work)
		if err != nil {
			t.Fatal(err)
		}
		if s := what.sample(r); math.Abs(s.GBytesPerS-figures.BulkBytes*1e4/1e9) > 1e-9 || s.P50Ns != 0 || s.MeanNs != 1e5 {
			t.Errorf("%s %s: bulk is bytes over all the time: %+v", c.peer, c.work, s)
		}
	}
	for _, c := range []struct {
		peer string
		work figures.Work
	}{{Peer, figures.Echo64}, {Peer, "callers16"}, {Peer, "size8193x64"}, {Peer, "processes16"}, {PeerAM, figures.Echo}, {PeerAM, figures.Get}} {
		if err := Offers(c.peer, c.work); !errors.Is(err, ErrNoTest) {
			t.Errorf("%s offers %s: %v", c.peer, c.work, err)
		}
	}
}

func TestFits(t *testing.T) {
	if n := (test{name: "ucp_am_lat"}).fits(Report{OverallUs: 0.5}, 100*time.Millisecond); n != 100_000 {
		t.Errorf("%d round trips of 1 µs fit into 100 ms", n)
	}
	if n := (test{name: "ucp_get"}).fits(Report{OverallUs: 50}, 100*time.Millisecond); n != 2000 {
		t.Errorf("%d gets of 50 µs fit into 100 ms", n)
	}
}

func TestVersion(t *testing.T) {
	for out, want := range map[string]string{
		"# Version 1.13.1\n# Git branch '<unknown>', revision 0000000\n": "1.13.1",
		"# Library version: 1.17.0\n# Library path: /usr/lib\n":          "1.17.0",
		"": "", "version": "",
	} {
		if got := parseVersion(out); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}

func TestListens(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if !listens(string(b), port) {
		t.Errorf("port %d is listened on, but not found in\n%s", port, b)
	}
	const table = "  sl  local_address rem_address   st\n   0: 0100007F:3415 00000000:0000 01 00000000\n   1: 0100007F:3416 00000000:0000 0A 00000000\n"
	if listens(table, 0x3415) || !listens(table, 0x3416) || listens(table, 1) || listens("", 1) {
		t.Error("only a port in state 0A is listened on")
	}
}

func TestNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Find(t.Context(), Debian()); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("in an empty PATH: %v", err)
	}
}

// fake writes a program that is found as ucx_perftest.
func fake(t *testing.T, script string) *Tool {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	tool, err := Find(t.Context(), Debian())
	if err != nil {
		t.Fatal(err)
	}
	tool.Time = 10 * time.Millisecond
	return tool
}

func TestServerThatFails(t *testing.T) {
	tool := fake(t, "echo no usable transports >&2; exit 1\n")
	if _, err := tool.Take(t.Context(), Peer, "posix", figures.Echo); err == nil || !strings.Contains(err.Error(), "no usable transports") {
		t.Errorf("the error does not say what the program said: %v", err)
	}
}

func TestServerThatHangs(t *testing.T) {
	tool := fake(t, "exec sleep 60\n")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := tool.Take(ctx, Peer, "posix", figures.Echo); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's end", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v to give up", took)
	}
}

// TestReal runs the programs that are installed.
func TestReal(t *testing.T) {
	for name, in := range map[string]Install{"path": Debian(), "pypi": PyPI("../../../bin/ucx-pypi/libucx")} {
		t.Run(name, func(t *testing.T) {
			tool, err := Find(t.Context(), in)
			if err != nil {
				t.Skipf("%v; %s", err, in.How)
			}
			tool.Time = 2 * time.Millisecond
			if tool.CPUs, err = turn.Pinned(true); err != nil {
				t.Fatal(err)
			}
			for _, sleep := range []bool{false, true} {
				real(t, tool.Sleeping(sleep))
			}
			if _, err := tool.Take(t.Context(), Peer, "no-such-transport", figures.Echo); err == nil || !strings.Contains(err.Error(), "no-such-transport") && !strings.Contains(err.Error(), "unreachable") && !strings.Contains(err.Error(), "no usable") {
				t.Errorf("a transport that does not exist: %v", err)
			}
		})
	}
}

// real takes a turn of every sort.
func real(t *testing.T, tool *Tool) {
	for _, c := range []struct {
		peer, transport string
		work            figures.Work
	}{{Peer, "posix", figures.Echo}, {Peer, "tcp", figures.Echo}, {Peer, "tcp", "size8193"}, {Peer, "sysv", figures.Get}, {PeerAM, "tcp", figures.Put}} {
		s, err := tool.Take(t.Context(), c.peer, c.transport, c.work)
		if want := tool.Sleep && c.work != figures.Get; want != strings.HasPrefix(tool.Policy(c.peer, c.transport, c.work), "sleep") {
			t.Errorf("%s %s %s: %s", c.peer, c.transport, c.work, tool.Policy(c.peer, c.transport, c.work))
		}
		if err != nil || s.Calls < leastCalls || s.MeanNs <= 0 || s.WallS <= 0 {
			t.Errorf("%s %s %s (%s): %+v, %v", c.peer, c.transport, c.work, tool.Policy(c.peer, c.transport, c.work), s, err)
		}
	}
}

// TestInstalls: an installation in a folder is found there, with its own libraries, and its rows have a name of their own.
func TestInstalls(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{program: "exit 1\n", "ucx_info": "echo \"# Library version: 1.99.9 $LD_LIBRARY_PATH\"\n"} {
		if err := os.WriteFile(filepath.Join(dir, "bin", name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in := PyPI(dir)
	tool, err := Find(t.Context(), in)
	if err != nil || tool.Version != "1.99.9" || !strings.HasPrefix(tool.path, dir) {
		t.Errorf("%+v, %v", tool, err)
	}
	if env := in.env(); !slices.Contains(env, "LD_LIBRARY_PATH="+filepath.Join(dir, "lib")) {
		t.Errorf("it runs with %q", env)
	}
	for got, want := range map[string]string{in.Name(Peer): "ucx pypi", in.Name(PeerAM): "ucx pypi am", Debian().Name(PeerAM): "ucx am"} {
		if got != want {
			t.Errorf("a row is called %q, want %q", got, want)
		}
	}
	if _, err := Find(t.Context(), PyPI(t.TempDir())); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("in an empty folder: %v", err)
	}
}
