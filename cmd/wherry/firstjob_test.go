package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// self is the command that runs this program's command line, in a namespace if one is given.
func self(ctx context.Context, netns string, args ...string) *exec.Cmd {
	if netns == "" {
		return selfUnder(ctx, nil, args...)
	}
	return selfUnder(ctx, []string{"ip", "netns", "exec", netns}, args...)
}

// selfUnder is self behind a command that runs others.
func selfUnder(ctx context.Context, prefix []string, args ...string) *exec.Cmd {
	line := slices.Concat(prefix, []string{os.Args[0]}, args)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "WHERRY_TEST_RUN=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// must runs a command and returns its standard output.
func must(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

// startNode starts a node and waits until it says that it listens.
func startNode(t *testing.T, netns string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	waitForNode(t, cancel, self(ctx, netns, append([]string{"node"}, args...)...))
}

// startNodeWithDisk is startNode on a host that has a disk of its own: a folder
// that it alone sees at a path, by a mount in its own namespace.
func startNodeWithDisk(t *testing.T, netns, disk, at string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	prefix := []string{"ip", "netns", "exec", netns, "sh", "-c", `mount --bind "$0" "$1" && shift && exec "$@"`, disk, at}
	waitForNode(t, cancel, selfUnder(ctx, prefix, append([]string{"node"}, args...)...))
}

// waitForNode starts a node's process; cancel ends it, with the test.
func waitForNode(t *testing.T, cancel context.CancelFunc, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := cmd.Wait(); !cmd.ProcessState.Success() { // it ends in order on SIGTERM
			t.Errorf("%v: %v\n%s", cmd.Args, err, errs.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, "listens at") {
		t.Fatalf("%v says %q (%v)\n%s", cmd.Args, line, err, errs.String())
	}
}

// namespaces makes n network namespaces on one bridge, with addresses
// 10.77.0.1 and up, and returns their names.
func namespaces(t *testing.T, n int) []string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root; the gate runs as root")
	}
	hub := fmt.Sprintf("wherry-hub-%d", os.Getpid())
	ip := func(args ...string) { t.Helper(); must(t, exec.Command("ip", args...)) }
	ip("netns", "add", hub)
	t.Cleanup(func() { exec.Command("ip", "netns", "del", hub).Run() })
	ip("-n", hub, "link", "add", "br0", "type", "bridge")
	ip("-n", hub, "link", "set", "br0", "up")
	var names []string
	for i := range n {
		ns := fmt.Sprintf("wherry-%d-%d", os.Getpid(), i)
		ip("netns", "add", ns)
		t.Cleanup(func() { exec.Command("ip", "netns", "del", ns).Run() })
		port := fmt.Sprintf("p%d", i)
		ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", ns)
		ip("-n", hub, "link", "set", port, "master", "br0", "up")
		ip("-n", ns, "addr", "add", fmt.Sprintf("10.77.0.%d/24", i+1), "dev", "eth0")
		ip("-n", ns, "link", "set", "eth0", "up")
		ip("-n", ns, "link", "set", "lo", "up")
		names = append(names, ns)
	}
	return names
}

const firstJobRows = 1_000_000

// writeLog writes a log of a million requests.
func writeLog(path string, seed uint64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	r := rand.New(rand.NewPCG(seed, 1))
	statuses := []int{200, 200, 200, 200, 200, 200, 304, 404, 500, 503}
	for i := range firstJobRows {
		fmt.Fprintf(w, "%d,host%d,/p/%d,%d,%d\n", 1_700_000_000+i, r.IntN(200), r.IntN(500), statuses[r.IntN(len(statuses))], r.IntN(100_000))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// received is how many bytes have come into a host by its network.
func received(t *testing.T, netns string) int64 {
	t.Helper()
	text := must(t, exec.Command("ip", "netns", "exec", netns, "cat", "/proc/net/dev"))
	for line := range strings.Lines(text) {
		name, figures, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) != "eth0" {
			continue
		}
		n, err := strconv.ParseInt(strings.Fields(figures)[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Fatalf("there is no eth0 in %s", text)
	return 0
}

// firstJobClientBytes is what may come to the client of the first job: replies,
// the shard table and the answer of 500 lines; one log alone has 30 MB.
const firstJobClientBytes = 1 << 20

// TestFirstJob is a user's first job: four nodes, each a host of its own with
// its own disk and a log file of a million lines on it; a function written for the
// occasion; the answer as CSV; and awk's opinion on it. The logs do not pass through the client.
func TestFirstJob(t *testing.T) {
	const nodes = 4
	hosts := namespaces(t, nodes+1)
	dir := t.TempDir()
	var wg sync.WaitGroup
	errs := make([]error, nodes)
	for i := range nodes {
		disk := filepath.Join(dir, fmt.Sprintf("disk%d", i))
		if err := os.Mkdir(disk, 0o755); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { errs[i] = writeLog(filepath.Join(disk, "access.csv"), uint64(i)) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	tokens := filepath.Join(dir, "tokens")
	must(t, self(ctx, "", "token", "new", "cluster", "--node", "--file", tokens))
	disk := filepath.Join(dir, "disk") // the same path on every host; here there is nothing
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	var peers, at []string
	for i := range nodes {
		name := string(rune('a' + i))
		peers = append(peers, fmt.Sprintf("%s=tcp://10.77.0.%d:7000", name, i+1))
		at = append(at, "--at", fmt.Sprintf("%s:%s", name, filepath.Join(disk, "access.csv")))
	}
	for i := range nodes {
		startNodeWithDisk(t, hosts[i], filepath.Join(dir, fmt.Sprintf("disk%d", i)), disk, "--name", string(rune('a'+i)), "--listen", fmt.Sprintf("tcp://10.77.0.%d:7000", i+1), "--insecure",
			"--peers", strings.Join(peers, ","), "--token-file", tokens, "--memory", "256MiB", "--data-root", disk)
	}
	client := func(args ...string) string {
		t.Helper()
		return must(t, self(ctx, hosts[nodes], append(args, "--peers", peers[0], "--token-file", tokens, "--insecure")...))
	}
	before := received(t, hosts[nodes])
	client(append([]string{"mem", "load", "access", "--schema", "time:i64,host:str,path:str,status:u16,bytes:u32"}, at...)...)
	image := filepath.Join(dir, "tally.wfn")
	must(t, self(ctx, "", "fn", "build", filepath.Join("..", "..", "examples", "tally", "tally.c"), "-o", image))
	got := client("fn", "run", image, "--on", "access", "--arg", "min_status=500", "--format", "csv")

	if n := received(t, hosts[nodes]) - before; n < int64(len(got)) || n > firstJobClientBytes {
		t.Errorf("%d bytes came to the client, the answer has %d", n, len(got))
	}
	if left, err := os.ReadDir(disk); err != nil || len(left) > 0 {
		t.Errorf("the nodes' disks can be seen from here: %v, %v", left, err)
	}

	awk := exec.CommandContext(ctx, "sh", "-c", `cat "$0"/disk[0-9]/access.csv | awk -F, '$4 >= 500 {n[$3]++} END {for (p in n) print p "," n[p]}' | LC_ALL=C sort`, dir)
	want := "path,n\n" + must(t, awk)
	if got != want {
		t.Errorf("the function says\n%.400s\nawk says\n%.400s", got, want)
	}
}
