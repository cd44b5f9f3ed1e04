package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
)

// names are the nodes': words that no message has by itself.
var names = []string{"alder", "birch", "cedar", "dogwood"}

const (
	port = 7000
	// peerTime is when a silent peer is lost: short, so that some faults are shorter and others longer.
	peerTime = 2 * time.Second
	// patience bounds every wait; nothing comes near it unless something hangs, on a busy machine too.
	patience = 2 * time.Minute
	loadTime = 20 * time.Second
	// startTime bounds how long a node may take until it answers.
	startTime = time.Minute
	keptLog   = 64 << 10
)

// process is a node's.
type process struct {
	cmd    *exec.Cmd
	said   *tail
	ended  chan struct{}
	status error // once it has ended
}

// tail keeps the end of what a process says.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text = append(t.text, p...); len(t.text) > 2*keptLog {
		t.text = bytes.Clone(t.text[len(t.text)-keptLog:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// nodes are the cluster's processes.
type nodes struct {
	command []string // that runs wherry
	dir     string
	peers   []cluster.Member
	running []*process
}

// newNodes makes their tokens and starts them.
func newNodes(ctx context.Context, command []string, dir string) (*nodes, error) {
	n := &nodes{command: command, dir: dir, running: make([]*process, len(names))}
	for i, name := range names {
		n.peers = append(n.peers, cluster.Member{Name: name, Addrs: []string{fmt.Sprintf("tcp://%s:%d", addrOf(i), port)}})
	}
	for _, args := range [][]string{{"token", "new", "node", "--node", "--file", n.tokens()}, {"token", "new", "me", "--caps", "inject,read,write,admin", "--file", n.tokens()}} {
		line := append(append([]string{}, command...), args...)
		if out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	for i := range names {
		if err := n.start(i); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (n *nodes) tokens() string { return filepath.Join(n.dir, "tokens") }

// start starts a node, which does not run.
func (n *nodes) start(i int) error {
	var peers []string
	for _, p := range n.peers {
		peers = append(peers, p.Name+"="+p.Addrs[0])
	}
	args := append(append([]string{"netns", "exec", nameSpace(i)}, n.command...), "node", "--name", names[i], "--listen", n.peers[i].Addrs[0], "--insecure",
		"--peers", strings.Join(peers, ","), "--token-file", n.tokens(), "--token", "node", "--memory", "256MiB", "--load-time", "10s",
		"--limit", fmt.Sprint("peer_time=", peerTime))
	p := &process{cmd: exec.Command("ip", args...), said: &tail{}, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	p.cmd.WaitDelay = time.Second // a compiler of a killed node may keep them open
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("node %s: %w", names[i], err)
	}
	go func() { p.status = p.cmd.Wait(); close(p.ended) }()
	n.running[i] = p
	return nil
}

// end signals a node and waits for its end.
func (n *nodes) end(i int, how syscall.Signal) error {
	p := n.running[i]
	_ = p.cmd.Process.Signal(how)
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("node %s did not end within %v of %v\n%s", names[i], patience, how, p.said)
	}
	if how == syscall.SIGTERM && p.status != nil && !errors.Is(p.status, exec.ErrWaitDelay) { // it ended well, and something of it a second later
		return fmt.Errorf("node %s ended with %w\n%s", names[i], p.status, p.said)
	}
	return nil
}

// alive reports a node that ended by itself.
func (n *nodes) alive() error {
	for i, p := range n.running {
		select {
		case <-p.ended:
			return fmt.Errorf("node %s ended by itself: %w\n%s", names[i], p.status, p.said)
		default:
		}
	}
	return nil
}

// close ends all of them at once.
func (n *nodes) close() {
	for _, p := range n.running {
		if p != nil {
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	}
}

// connect makes a client of all nodes.
func (n *nodes) connect(ctx context.Context) (*client.Client, error) {
	for end := time.Now().Add(startTime); ; {
		c, err := client.Connect(ctx, client.Config{Name: "asker", Nodes: n.peers, TokenFile: n.tokens(), Token: "me", Insecure: true, Limits: fabric.Limits{PeerTime: peerTime}})
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return nil, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// whole waits until the client and all nodes are connected with all nodes.
func (n *nodes) whole(ctx context.Context, c *client.Client) error {
	var why error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err := n.alive(); err != nil {
			return err
		}
		if why = n.parted(ctx, c); why == nil || ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("the cluster is not whole after %v: %w", patience, why)
}

// parted names the nodes that are not connected.
func (n *nodes) parted(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, name := range names {
		s, err := c.Status(ctx, name)
		if err != nil {
			return err
		}
		for _, p := range s.Peers {
			if !p.Connected {
				return fmt.Errorf("%s is not connected to %s: %s", name, p.Name, p.Error)
			}
		}
	}
	return nil
}

// descriptors is how many a node's process has.
func (n *nodes) descriptors(i int) (int, error) {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.running[i].cmd.Process.Pid))
	return len(all), err
}
