package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/sockdir"
	"github.com/wherry-fabric/wherry/node"
)

// TestMain runs the tests, or what a test runs this binary again for.
func TestMain(m *testing.M) {
	roles := map[string]func(args []string) error{"run-node": runNode, "hang-in-load": hangInLoad}
	if len(os.Args) > 1 {
		if role := roles[os.Args[1]]; role != nil {
			if err := role(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	if err := sockdir.Shorten(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// runNode is a node process with a configuration file; it says "ready" and
// serves until SIGTERM.
func runNode(args []string) error {
	file, err := os.Open(args[0])
	if err != nil {
		return err
	}
	cfg, err := node.ReadConfig(file)
	file.Close()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	n, err := node.New(cfg)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return n.Run(ctx)
}

// hangInLoad is a client that begins a load, takes memory for it, says so, and
// does nothing more.
func hangInLoad(args []string) error {
	c, err := Connect(context.Background(), Config{Nodes: []cluster.Member{{Addrs: args[:1]}}, TokenFile: args[1], Token: tokenOwner})
	if err != nil {
		return err
	}
	l := &loading{c: c, spec: LoadSpec{Name: "x", Blank: &Blank{Sizes: []uint64{10 << 20}}}, id: control.LoadID(strings.Repeat("d", 32)),
		progress: func(LoadProgress) {}, report: &LoadReport{}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.check(); err != nil {
		return err
	}
	for _, t := range l.nodes {
		if t.ep, err = c.Endpoint(ctx, t.name); err != nil {
			return err
		}
	}
	if err := l.begin(ctx); err != nil {
		return err
	}
	if _, err := l.blank(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	return ctx.Err()
}

// farm is a set of node processes.
type farm struct {
	dir    string
	scheme string
	tokens string
	peers  []cluster.Member
	procs  map[string]*exec.Cmd
}

func newFarm(t *testing.T, scheme string, names ...string) *farm {
	t.Helper()
	dir, err := os.MkdirTemp("", "wherry")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := &farm{dir: dir, scheme: scheme, tokens: filepath.Join(dir, "tokens"), procs: map[string]*exec.Cmd{}}
	writeTokens(t, f.tokens, newTokens(t))
	f.peers = newPeers(t, &bench{dir: dir, scheme: scheme}, names...)
	for _, m := range f.peers {
		f.start(t, m)
	}
	return f
}

func writeTokens(t *testing.T, path string, tokens *cluster.Tokens) {
	t.Helper()
	var text strings.Builder
	for _, name := range tokens.Names() {
		tok, _ := tokens.Lookup(name)
		fmt.Fprintln(&text, tok.Line())
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start runs a node process and waits until it listens.
func (f *farm) start(t *testing.T, m cluster.Member) {
	t.Helper()
	var cfg strings.Builder
	fmt.Fprintf(&cfg, "name: %s\nlisten: [%q]\nmemory: 64MiB\ntoken_file: %s\nstop_time: 1s\ndata_roots: [%s]\npeers:\n", m.Name, m.Addrs[0], f.tokens, f.dir)
	for _, p := range f.peers {
		fmt.Fprintf(&cfg, "  - name: %s\n    addrs: [%q]\n", p.Name, p.Addrs[0])
	}
	path := filepath.Join(f.dir, m.Name+".yaml")
	if err := os.WriteFile(path, []byte(cfg.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	f.procs[m.Name] = spawn(t, "run-node", path)
}

// spawn runs this binary in a role and waits until it says "ready".
func spawn(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return await(t, exec.Command(os.Args[0], args...))
}

// await starts a process and waits until it says "ready".
func await(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("%v: %q, %v", cmd.Args, line, err)
	}
	return cmd
}

func kill(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

func (f *farm) connect(t *testing.T) *Client {
	t.Helper()
	c, err := Connect(t.Context(), Config{Nodes: f.peers, TokenFile: f.tokens, Token: tokenOwner})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// meshed waits until each node is connected to all others, as functions need that move between them: a client
// is connected before that.
func (f *farm) meshed(t *testing.T, c *Client) {
	t.Helper()
	eps := map[string]*fabric.Endpoint{}
	for _, m := range f.peers {
		ep, err := c.Endpoint(t.Context(), m.Name)
		if err != nil {
			t.Fatal(err)
		}
		eps[m.Name] = ep
	}
	waitFor(t, "the nodes are connected to each other", func() bool {
		for name, ep := range eps {
			traffic, err := ask[control.Traffic](t.Context(), c, ep, control.CallTraffic, control.Nothing{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			has := map[fabric.Incarnation]bool{ep.Incarnation(): true}
			for _, s := range traffic.Sent {
				has[fabric.Incarnation(s.To)] = true
			}
			for _, other := range eps {
				if !has[other.Incarnation()] {
					return false
				}
			}
		}
		return true
	})
}

func (f *farm) lent(t *testing.T, c *Client, node string) int64 {
	t.Helper()
	info, err := c.Info(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	return info.LentBytes
}

func TestNodeKilledInALoad(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		f := newFarm(t, scheme, "n1", "n2")
		c := f.connect(t)
		spec := LoadSpec{Name: "x", Input: dataset.NewText("p.csv", []byte(peopleHeader+people(100000))), Options: csvOptions(t, dataset.Spread{Kind: cluster.Cyclic})}
		spec.Options.Schema, spec.Options.Packed = parseSchema(t, "id:u32,score:f64"), true
		var once sync.Once
		_, err := c.Load(t.Context(), spec, func(p LoadProgress) {
			if p.Phase == string(dataset.PhaseFill) && p.Done >= 1<<20 {
				once.Do(func() { kill(f.procs["n2"]) })
			}
		})
		if !errors.Is(err, fabric.ErrPeerLost) || !strings.Contains(err.Error(), "n2") {
			t.Fatalf("%v", err)
		}
		waitFor(t, "n1 has freed its part", func() bool { return f.lent(t, c, "n1") == 0 })
		if _, err := c.Stat(t.Context(), "x"); !errors.Is(err, cluster.ErrNotFound) {
			t.Errorf("%v", err)
		}
		f.start(t, f.peers[1])
		if _, err := c.Load(t.Context(), spec, nil); err != nil {
			t.Fatalf("after n2 came back: %v", err)
		}
		if got := readCSV(t, c, "x", ReadOptions{}); got != nameless.ReplaceAllString(peopleHeader+people(100000), ",") {
			t.Errorf("%d bytes came back", len(got))
		}
	})
}

func TestNodeRestarted(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		f := newFarm(t, scheme, "n1", "n2")
		c := f.connect(t)
		spec := LoadSpec{Name: "x", Input: dataset.NewText("p.csv", []byte(peopleHeader+people(1000))), Options: csvOptions(t, dataset.Spread{})}
		if _, err := c.Load(t.Context(), spec, nil); err != nil {
			t.Fatal(err)
		}
		old, err := c.Endpoint(t.Context(), "n2")
		if err != nil {
			t.Fatal(err)
		}
		// SIGTERM is an end in order.
		n2 := f.procs["n2"]
		n2.Process.Signal(syscall.SIGTERM)
		if err := n2.Wait(); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
		waitFor(t, "the client notices", func() bool { return c.links.Endpoint("n2") == nil })
		d, err := c.Stat(t.Context(), "x")
		if err != nil || !strings.Contains(d.Unreachable["n2"], "not connected") || len(d.Lost) != 0 {
			t.Errorf("while n2 is down: %+v, %v", d, err)
		}
		if err := c.Read(t.Context(), "x", ReadOptions{Format: "csv"}, io.Discard); !errors.Is(err, control.ErrNotConnected) || !strings.Contains(err.Error(), "n2") {
			t.Errorf("while n2 is down: %v", err)
		}
		f.start(t, f.peers[1])
		fresh, err := c.Endpoint(t.Context(), "n2")
		if err != nil || fresh.Incarnation() == old.Incarnation() {
			t.Fatalf("after n2 came back: %v, %v", fresh, err)
		}
		if _, err := c.Table(t.Context(), "x", ""); !errors.Is(err, control.ErrRestarted) || !strings.Contains(err.Error(), "load it again") {
			t.Errorf("after n2 came back: %v", err)
		}
		if d, err := c.Stat(t.Context(), "x"); err != nil || !strings.Contains(d.Lost["n2"], "restarted") || len(d.Unreachable) != 0 {
			t.Errorf("after n2 came back: %+v, %v", d, err)
		}
		if err := c.Remove(t.Context(), "x"); err != nil {
			t.Errorf("remove what is left: %v", err)
		}
		if _, err := c.Load(t.Context(), spec, nil); err != nil {
			t.Errorf("load it again: %v", err)
		}
	})
}

func TestClientKilledInALoad(t *testing.T) {
	f := newFarm(t, "tcp", "n1", "n2")
	c := f.connect(t)
	loader := spawn(t, "hang-in-load", f.peers[0].Addrs[0], f.tokens)
	if f.lent(t, c, "n1") == 0 || f.lent(t, c, "n2") == 0 {
		t.Fatal("the loader has taken no memory")
	}
	kill(loader)
	waitFor(t, "its memory is free", func() bool { return f.lent(t, c, "n1") == 0 && f.lent(t, c, "n2") == 0 })
	if _, err := c.Load(t.Context(), LoadSpec{Name: "x", Blank: &Blank{Sizes: []uint64{100}}}, nil); err != nil {
		t.Errorf("the name: %v", err)
	}
}

func TestWrongTokens(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b := newBench(t, scheme, "n1")
		wrong := newTokens(t) // the same names, other secrets
		stranger, _ := cluster.NewToken("stranger", cluster.CapAdmin)
		unknown, _ := cluster.NewTokens([]cluster.Token{stranger})
		open := filepath.Join(b.dir, "open")
		writeTokens(t, open, b.tokens)
		os.Chmod(open, 0o644)
		for name, tc := range map[string]struct {
			cfg  Config
			want error
			says string
		}{
			"a wrong secret":    {Config{Tokens: wrong, Token: tokenOwner}, fabric.ErrRefused, `"ann"`},
			"an unknown token":  {Config{Tokens: unknown}, fabric.ErrRefused, "not known"},
			"no token":          {Config{}, nil, "no token file"},
			"which token?":      {Config{Tokens: b.tokens}, cluster.ErrToken, "name the one"},
			"no such token":     {Config{Tokens: b.tokens, Token: "zoe"}, cluster.ErrToken, "zoe"},
			"a file all read":   {Config{TokenFile: open, Token: tokenOwner}, cluster.ErrToken, "chmod 600"},
			"no such file":      {Config{TokenFile: open + "x", Token: tokenOwner}, cluster.ErrToken, "no such file"},
			"a far address":     {Config{Tokens: b.tokens, Token: tokenOwner, Nodes: []cluster.Member{{Addrs: []string{"tcp://192.0.2.1:7000"}}}}, nil, "--insecure"},
			"nobody is there":   {Config{Tokens: b.tokens, Token: tokenOwner, Nodes: []cluster.Member{{Addrs: []string{"tcp://127.0.0.1:1"}}}}, nil, "connection refused"},
			"somebody else":     {Config{Tokens: b.tokens, Token: tokenOwner, Nodes: []cluster.Member{{Name: "n7", Addrs: b.peers[0].Addrs}}}, nil, "is the address of n1, not of n7"},
			"a transport":       {Config{Tokens: b.tokens, Token: tokenOwner, Transports: []string{"udp"}}, nil, "udp"},
			"not that of nodes": {Config{Tokens: b.tokens, Token: tokenOwner, Transports: []string{map[string]string{"tcp": "shm", "shm": "tcp"}[scheme]}}, nil, "not in use here"},
		} {
			if tc.cfg.Nodes == nil {
				tc.cfg.Nodes = b.peers
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			c, err := Connect(ctx, tc.cfg)
			cancel()
			if err == nil {
				c.Close()
			}
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
