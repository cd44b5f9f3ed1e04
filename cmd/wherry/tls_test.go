package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/control"
)

// TestTLSBetweenHosts: two nodes and a client on hosts of their own, beyond
// loopback and without insisting; a node's certificate does not serve on another host.
func TestTLSBetweenHosts(t *testing.T) {
	hosts := namespaces(t, 3)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	authority := filepath.Join(dir, "ca")
	must(t, self(ctx, "", "ca", "init", "--dir", authority))
	issue := func(name string, args ...string) (flags []string) {
		t.Helper()
		must(t, self(ctx, "", append([]string{"ca", "issue", name, "--dir", authority, "--out", dir}, args...)...))
		return []string{"--tls-cert", filepath.Join(dir, name+".crt"), "--tls-key", filepath.Join(dir, name+".key"),
			"--tls-ca", filepath.Join(authority, "ca.crt"), "--tls-crl", filepath.Join(authority, "ca.crl")}
	}
	var peers []string
	for i := range 2 {
		peers = append(peers, fmt.Sprintf("n%d=tcp://10.77.0.%d:7000", i, i+1))
	}
	for i := range 2 {
		name, host := fmt.Sprint("n", i), fmt.Sprintf("10.77.0.%d", i+1)
		startNode(t, hosts[i], append(issue(name, "--node", "--host", host), "--name", name, "--listen", "tcp://"+host+":7000",
			"--peers", strings.Join(peers, ","), "--memory", "64MiB")...)
	}
	ann := issue("ann")
	edges := filepath.Join(dir, "edges.txt")
	if err := os.WriteFile(edges, []byte("0 1\n1 2\n2 3\n3 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	client := func(args ...string) string {
		t.Helper()
		return must(t, self(ctx, hosts[2], append(append(args, "--peers", peers[0]), ann...)...))
	}
	for both := regexp.MustCompile(`(?s)  n1 +n1.*  n0 +n0`); !both.MatchString(client("node", "status")); time.Sleep(20 * time.Millisecond) {
	}
	client("mem", "load", "ring", edges, "--format", "edges")
	if got := client("fn", "run", "closure", "--on", "ring", "--arg", "vertices=0"); strings.Count(got, "\n") != 4 && strings.Count(got, "\n") != 5 {
		t.Errorf("the function says %q", got)
	}
	// A certificate for the first host, shown on the second.
	startNode(t, hosts[1], append(issue("stray", "--node", "--host", "10.77.0.1"), "--name", "stray", "--listen", "tcp://10.77.0.2:7001", "--memory", "64MiB")...)
	out, err := self(ctx, hosts[2], append([]string{"mem", "ls", "--peers", "tcp://10.77.0.2:7001", "--timeout", "20s"}, ann...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "10.77.0.2") || !strings.Contains(string(out), "not good here") {
		t.Errorf("a node that shows another host's certificate: %v, %s", err, out)
	}
}

// TestCertText: status says when a node's certificate ends, and that it is time to renew it.
func TestCertText(t *testing.T) {
	until := time.Date(2027, 3, 1, 12, 30, 0, 0, time.UTC)
	for left, want := range map[time.Duration]string{
		31 * day:     "until 2027-03-01 12:30 UTC",
		30 * day:     "until 2027-03-01 12:30 UTC: renew it",
		-time.Second: "until 2027-03-01 12:30 UTC: EXPIRED, renew it",
	} {
		if got := certText(until, until.Add(-left)); got != want {
			t.Errorf("%v before: %q, want %q", left, got, want)
		}
	}
	var out strings.Builder
	writeStatus(&out, &control.Status{CertUntil: until})
	if !strings.Contains(out.String(), "certificate: until 2027-03-01") {
		t.Error(out.String())
	}
}
