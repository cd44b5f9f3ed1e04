package live

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/llvm"
	"github.com/wherry-fabric/wherry/inject/trust"
	"github.com/wherry-fabric/wherry/internal/child"
	"github.com/wherry-fabric/wherry/node"
)

const (
	// startTime bounds the start of all processes, and until all are connected. Loading libLLVM under QEMU takes some seconds of it.
	startTime = time.Minute
	// compileTime is what a compiler may take that QEMU runs: some thirty times what one takes without.
	compileTime = 20 * time.Second
	// nodeStopTime is how long a node waits for what is under way.
	nodeStopTime = 500 * time.Millisecond
	// meshPause lies between two looks whether all nodes are connected.
	meshPause = 2 * time.Millisecond
	// MaxProcesses bounds the nodes that the demo starts.
	MaxProcesses = 64

	// listen is where every node listens: a free port on loopback.
	listen = "tcp://127.0.0.1:0"
	// memberToken and clientToken are the names of the tokens that are made for each run.
	memberToken = "node"
	clientToken = "demo"
)

// ClusterConfig says what node processes to start.
type ClusterConfig struct {
	Programs []Program // the nodes take them in turn
	Nodes    int
	Memory   uint64 // that each lends at most
	Policy   fabric.Policy
	Trust    ed25519.PublicKey                // whose native code runs at emulated nodes
	Progress func(text string, done, all int) // nil: nobody hears
}

// role is what a process is told on its standard input; it runs until that ends.
type role struct {
	Name   string           `json:"name"`
	Memory uint64           `json:"memory"`
	Policy string           `json:"policy"`
	Tokens []string         `json:"tokens"` // lines
	Peers  []cluster.Member `json:"peers"`
	// Trust is whose native code runs in the node's own process; empty: none does. Compiler starts a wherry-llvm that cannot be locked down; empty: no bitcode runs.
	Compiler []string `json:"compiler,omitempty"`
	Trust    string   `json:"trust,omitempty"`
}

// up is what it answers.
type up struct {
	Addrs []string `json:"addrs"`
	Error string   `json:"error,omitempty"`
}

// Cluster is node processes on this machine, and a client of them. They end with it: they see
// their standard input end, however this process ends.
type Cluster struct {
	Client *client.Client
	Names  []string // of the nodes, in order
	procs  []*process
}

// process is one child.
type process struct {
	*child.Process
	name string
}

// StartCluster starts nodes and connects to them; every node is connected to every other one.
func StartCluster(ctx context.Context, cfg ClusterConfig) (*Cluster, error) {
	if cfg.Nodes < 1 || cfg.Nodes > MaxProcesses {
		return nil, fmt.Errorf("live: %d node processes: 1 to %d are possible", cfg.Nodes, MaxProcesses)
	}
	if len(cfg.Programs) == 0 {
		return nil, errors.New("live: no program to start nodes with")
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string, int, int) {}
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	c := &Cluster{}
	if err := c.start(ctx, &cfg); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, cfg *ClusterConfig) error {
	member, err := cluster.NewToken(memberToken, cluster.CapMember|cluster.CapInject|cluster.CapRead)
	if err != nil {
		return err
	}
	own, err := cluster.NewToken(clientToken, cluster.CapInject|cluster.CapRead|cluster.CapWrite)
	if err != nil {
		return err
	}
	spec := role{Memory: cfg.Memory, Policy: cfg.Policy.String(), Tokens: []string{member.Line(), own.Line()}}
	members := make([]cluster.Member, cfg.Nodes)
	// The last first: of two nodes the one whose name comes first dials at once, so each is
	// told of those that are up and come later.
	for i := cfg.Nodes - 1; i >= 0; i-- {
		cfg.Progress("starting nodes", cfg.Nodes-1-i, cfg.Nodes)
		spec.Name, spec.Peers = fmt.Sprintf("node-%02d", i+1), members[i+1:]
		program := cfg.Programs[i%len(cfg.Programs)]
		if spec.Compiler, spec.Trust = program.Compiler, ""; program.Emulated {
			spec.Trust = trust.Format(cfg.Trust)
		}
		p, err := startProcess(program.Command, &spec)
		if err != nil {
			return err
		}
		c.procs = append(c.procs, p)
		answer, err := p.hear(ctx)
		if err != nil {
			return err
		}
		members[i] = cluster.Member{Name: spec.Name, Addrs: answer.Addrs}
	}
	for _, m := range members {
		c.Names = append(c.Names, m.Name)
	}
	tokens, err := cluster.NewTokens([]cluster.Token{own})
	if err != nil {
		return err
	}
	c.Client, err = client.Connect(ctx, client.Config{Name: "demo", Nodes: members, Only: true, Tokens: tokens, Policy: cfg.Policy})
	if err != nil {
		return err
	}
	cfg.Progress("connecting nodes", cfg.Nodes, cfg.Nodes)
	return Meshed(ctx, c.Client, c.Names)
}

func startProcess(command []string, spec *role) (*process, error) {
	cmd := exec.Command(command[0], command[1:]...)
	// A group of its own: Ctrl-C is for the demo, which then ends its nodes in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p, err := child.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("live: %s: %w", spec.Name, err)
	}
	_ = p.Tell(spec) // if it fails the process has ended, and hear says why
	return &process{p, spec.Name}, nil
}

// hear waits until a process says that it is up.
func (p *process) hear(ctx context.Context) (*up, error) {
	stop := context.AfterFunc(ctx, func() { p.Signal(os.Kill) })
	defer stop()
	answer := &up{}
	err := p.Hear(answer)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("live: %s did not start: %w", p.name, err)
	case answer.Error != "":
		return nil, fmt.Errorf("live: %s did not start: %s", p.name, answer.Error)
	}
	return answer, nil
}

// Close ends the client and the nodes.
func (c *Cluster) Close() error {
	var err error
	if c.Client != nil {
		err = c.Client.Close()
	}
	for _, p := range c.procs { // all at once, then one after the other
		p.EndInput()
	}
	for _, p := range c.procs {
		p.End()
	}
	c.procs = nil
	return err
}

// Meshed waits until each of the nodes is connected to all others: functions move between them.
func Meshed(ctx context.Context, c *client.Client, nodes []string) error {
	var eps []*fabric.Endpoint
	for _, name := range nodes {
		ep, err := c.Endpoint(ctx, name)
		if err != nil {
			return err
		}
		eps = append(eps, ep)
	}
	for {
		lacking, err := unconnected(ctx, c, eps)
		if err != nil || lacking == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("live: %s: %w", lacking, context.Cause(ctx))
		case <-time.After(meshPause):
		}
	}
}

// unconnected names two nodes that are not connected; "" if there are none.
func unconnected(ctx context.Context, c *client.Client, eps []*fabric.Endpoint) (string, error) {
	for _, ep := range eps {
		t, err := control.Do[control.Traffic](ctx, c.RPC(), ep, control.CallTraffic, control.Nothing{})
		if err != nil {
			return "", err
		}
		has := map[fabric.Incarnation]bool{ep.Incarnation(): true}
		for _, s := range t.Sent {
			has[fabric.Incarnation(s.To)] = true
		}
		for _, other := range eps {
			if !has[other.Incarnation()] {
				return fmt.Sprintf("node %s is not connected to node %s", ep.Name(), other.Name()), nil
			}
		}
	}
	return "", nil
}

// Role runs this process as a node: as r says, until r ends.
func Role(ctx context.Context, r io.Reader, w io.Writer) error {
	in := json.NewDecoder(r)
	var spec role
	if err := in.Decode(&spec); err != nil {
		return fmt.Errorf("live: no role on standard input (the demo starts this command by itself): %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n, err := spec.node()
	if err != nil {
		return errors.Join(err, json.NewEncoder(w).Encode(up{Error: err.Error()}))
	}
	if err := json.NewEncoder(w).Encode(up{Addrs: n.Addrs()}); err != nil {
		return errors.Join(err, n.Close())
	}
	go func() { // ends with the process at the latest
		var rest json.RawMessage
		for in.Decode(&rest) == nil { // nothing more is said: this waits for the end
		}
		cancel()
	}()
	return n.Run(ctx)
}

func (spec *role) node() (*node.Node, error) {
	var list []cluster.Token
	for _, line := range spec.Tokens {
		t, err := cluster.ParseToken(line)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	tokens, err := cluster.NewTokens(list)
	if err != nil {
		return nil, err
	}
	cfg := node.Config{Name: spec.Name, Listen: []string{listen}, Peers: spec.Peers, Memory: node.Bytes(spec.Memory),
		Policy: spec.Policy, Tokens: tokens, Token: memberToken, StopTime: nodeStopTime}
	if spec.Trust != "" {
		cfg.Native, cfg.Compiler, cfg.UnconfinedCompiler = "in-process", spec.Compiler, true
		if len(cfg.Compiler) == 0 { // the one that would be found is the emulating machine's
			cfg.Compiler = []string{llvm.Program + "-" + runtime.GOARCH}
		}
		cfg.CompileTime = compileTime
		cfg.Trust = []node.TrustedKey{{Name: "demo", Key: spec.Trust}}
	}
	return node.New(cfg)
}
