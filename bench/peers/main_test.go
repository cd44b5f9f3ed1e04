package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/bench/peers/figures"
	"github.com/wherry-fabric/wherry/bench/peers/ucx"
)

// TestMain doubles as the command.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == roleWord {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// call runs the command here; its turns are processes.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	code = run(ctx, args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// row is what the tests look at of a row's JSON.
type row struct {
	Peer, Work, Transport, Status, Reason, Install, Policy, Pinning string

	Operations int
	P50        float64 `json:"rtt_ns_p50"`
	Calls      float64 `json:"calls_per_s"`
	GBytes     float64 `json:"gbytes_per_s"`
	WallS      float64 `json:"wall_s"`
	Times      float64 `json:"times_wherry_rpc"`
	Over       float64 `json:"over_net_rpc"`
	Least      float64 `json:"least_over_most"`
	Loops      int     `json:"busy_loops"`
}

func rows(t *testing.T, out string) []row {
	t.Helper()
	var all []row
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var r row
		if err := d.Decode(&r); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		all = append(all, r)
	}
}

// TestSmoke lets everybody take one very short turn at everything. How large the
// figures are is no test's business, only that they are there.
func TestSmoke(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "peers.svg")
	code, out, errs := call(t, "--rounds", "1", "--time", "2ms", "--json", "--svg", svg)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	_, missing := ucx.Find(t.Context(), ucx.Debian())
	seen := map[string]bool{}
	for _, r := range rows(t, out) {
		seen[r.Peer] = true
		name := r.Peer + " " + r.Transport + " " + r.Work
		isUCX, isPyPI := strings.HasPrefix(r.Peer, "ucx"), strings.HasPrefix(r.Peer, "ucx pypi")
		switch {
		case isUCX && r.Work == string(figures.Echo64):
			if r.Status != "not offered" || r.Reason == "" {
				t.Errorf("%s: %+v", name, r)
			}
		case isPyPI: // beside a test's program there is none
			if r.Status != "not installed" || !strings.Contains(r.Install, "install-ucx.sh") {
				t.Errorf("%s: %+v", name, r)
			}
		case isUCX && missing != nil:
			if r.Status != "not installed" || !strings.Contains(r.Install, "apt-get install") {
				t.Errorf("%s: %+v", name, r)
			}
		case r.Status != "measured":
			t.Errorf("%s is %s: %s", name, r.Status, r.Reason)
		case r.Operations < 1 || r.Calls <= 0 || r.WallS <= 0 || r.Times <= 0 || r.Policy == "" || r.Pinning == "":
			t.Errorf("%s: %+v", name, r)
		case r.Over <= 0 || r.Peer == figures.NetRPCPeer && r.Over != 1:
			t.Errorf("%s is %v times as fast as net/rpc", name, r.Over)
		case r.Work == string(figures.Echo) && r.P50 <= 0, strings.HasSuffix(r.Work, "1m") && r.GBytes <= 0:
			t.Errorf("%s has no figure: %+v", name, r)
		}
	}
	for _, peer := range []string{"wherry verbs", "wherry rpc", "wherry rpc inline", "grpc", "connect", "connect http/1", "net/rpc", "nats", "ucx", "ucx am", "ucx pypi", "ucx pypi am"} {
		if !seen[peer] {
			t.Errorf("no row for %s", peer)
		}
	}
	picture, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(picture, new(struct{})); err != nil {
		t.Errorf("the picture: %v", err)
	}
}

// TestOrdinary lets calls and net/rpc take turns at large payloads, from many processes, with each policy, beside a load.
func TestOrdinary(t *testing.T) {
	code, out, errs := call(t, "--rounds", "1", "--time", "2ms", "--json", "--beside-load", "--policy", "latency,balanced,efficient",
		"--peers", "^(wherry rpc|net/rpc|wherry verbs)$", "--transports", "tcp", "--works", "^(size8193|size65536x64|processes16)$")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	seen := map[string]int{}
	for _, r := range rows(t, out) {
		seen[r.Peer+" "+r.Work]++
		if r.Status != "measured" || r.Calls <= 0 || r.Over <= 0 || r.Times <= 0 || r.Loops != 2 || (r.Work == "processes16") != (r.Least > 0) {
			t.Errorf("%+v", r)
		}
	}
	for _, work := range []string{"size8193", "size65536x64", "processes16"} {
		if seen["wherry rpc "+work] != 3 || seen["net/rpc "+work] != 1 {
			t.Errorf("rows: %v; want calls with three policies, net/rpc, and no messages without calls", seen)
		}
	}
	if len(seen) != 6 {
		t.Errorf("rows: %v", seen)
	}
}

// TestWithoutUCX: what is not installed is shown, and how to install it.
func TestWithoutUCX(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	code, out, errs := call(t, "--rounds", "1", "--time", "1ms", "--works", "^echo$", "--peers", "ucx|verbs", "--transports", "posix|shm")
	if code != 0 || !strings.Contains(out, "not installed") || !strings.Contains(out, "apt-get install -y --no-install-recommends ucx-utils") || !strings.Contains(out, "wherry verbs shm") {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--help", 0, "-rounds"},
		{"--nonsense", exitUsage, "nonsense"},
		{"more", exitUsage, `unexpected argument "more"`},
		{"--rounds 0", exitUsage, "between 1 and"},
		{"--time 2h", exitUsage, "between 1 ms and"},
		{"--policy fast", exitUsage, "latency"},
		{"--policy latency,latency", exitUsage, "twice"},
		{"--peers (", exitFailed, "--peers"},
		{"--peers nobody", exitFailed, "leave nobody"},
	} {
		code, out, errs := call(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(errs, c.says) || out != "" {
			t.Errorf("%s: exit %d, %q, %q; want exit %d and %q", c.args, code, out, errs, c.code, c.says)
		}
	}
}

// TestFailingPeer: a peer that fails says why, and the others go on.
func TestFailingPeer(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ucx_perftest"), []byte("#!/bin/sh\necho broken today >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	code, out, errs := call(t, "--rounds", "3", "--time", "1ms", "--works", "^echo$", "--peers", "^ucx$|net", "--transports", "posix|unix", "--json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	got := rows(t, out)
	if len(got) != 2 || got[0].Status != "measured" || got[1].Status != "failed" || !strings.Contains(got[1].Reason, "broken today") {
		t.Errorf("%+v", got)
	}
	if n := strings.Count(errs, "broken today"); n != maxFailures {
		t.Errorf("it was tried %d times, not %d:\n%s", n, maxFailures, errs)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"--peers", "verbs", "--works", "^echo$"}, strings.NewReader(""), &out, &errs); code != exitFailed || !strings.Contains(errs.String(), "interrupted") || out.Len() > 0 {
		t.Errorf("exit %d, %q, %q", code, out.String(), errs.String())
	}
}
