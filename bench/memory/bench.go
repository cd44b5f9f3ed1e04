package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/memcg"
)

const (
	// turnTime is the most that one turn may take.
	turnTime = 5 * time.Minute
	// stillTime is how long a turn may do nothing at all before swap is taken away from it.
	stillTime = 60 * time.Second
	nodeName  = "m"
)

// errKilled: the kernel found no page of the group that it could swap out, and ended the program. It gives up early where all pages are in
// use all the time.
var errKilled = errors.New("out of memory: killed by the kernel")

// errSide: this machine cannot make that kind of swap, or not safely; the text says why.
var errSide = errors.New("cannot be had here")

// bench is what turns are run with.
type bench struct {
	wherry  string
	program string
	dir     string
	root    memcg.Root
	node    *node
	turns   int
	bytes   int64 // of each swap
}

// turn runs a workload on one side, in a group of its own: what it answered, and the most that it took of memory, daemon included. limit
// is for swap's sides.
func (b *bench) turn(ctx context.Context, side string, w workload, limit int64) (a answer, peak int64, err error) {
	b.turns++
	g, err := b.root.New(fmt.Sprintf("wherry-bench-%d-%d", os.Getpid(), b.turns))
	if err != nil {
		return a, 0, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	args := w.args(b.program)
	takeAway := func() error { return nil }
	switch side {
	case "local":
	case "shm", "tcp":
		args = append([]string{b.wherry, "run", "--token-file", b.node.tokens, "--peers", b.node.at[side], "--on", nodeName, "--local", fmt.Sprintf("%dMiB", w.local), "--"}, args...)
	default:
		s, err := swapOn(ctx, b, side)
		if err != nil {
			return a, 0, fmt.Errorf("%w: %w", errSide, err)
		}
		defer func() {
			stays := s.close()
			b.node.stays = b.node.stays || stays != nil
			err = errors.Join(err, stays)
		}()
		takeAway = s.off
		if err := g.SetLimit(limit); err != nil {
			return a, 0, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := g.Command(ctx, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errs, 5*time.Second
	if err := cmd.Start(); err != nil {
		return a, 0, err
	}
	still := make(chan error, 1)
	go func() {
		err := watch(ctx, func() uint64 { return used(g.Processes()) }, time.Second, stillTime)
		if err != nil {
			err = errors.Join(err, takeAway())
			cancel()
		}
		still <- err
	}()
	err = cmd.Wait()
	cancel()
	if e := <-still; e != nil {
		return a, 0, e
	}
	if err != nil {
		if n, e := g.Kills(); e == nil && n > 0 {
			return a, 0, errKilled
		}
		return a, 0, fmt.Errorf("%w\n%s", err, errs.Bytes())
	}
	if peak, err = g.Peak(); err != nil {
		return a, 0, err
	}
	a, err = parse(out.String())
	return a, peak, err
}

// node is the component that lends.
type node struct {
	cmd    *exec.Cmd
	tokens string
	at     map[string]string // by transport
	stays  bool              // swap may be over it
}

// startNode starts one that lends so many bytes. It ends with this program, but for one that is swapped to: that goes on if this program is
// killed.
func startNode(ctx context.Context, wherry, dir string, bytes int64, swapped bool) (*node, error) {
	n := &node{tokens: filepath.Join(dir, "tokens"), at: map[string]string{}}
	if out, err := exec.CommandContext(ctx, wherry, "token", "new", "bench", "--node", "--file", n.tokens).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s (make build): %w\n%s", wherry, err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n.at["tcp"], n.at["shm"] = "tcp://"+l.Addr().String(), "shm://"+filepath.Join(dir, "n")
	l.Close()
	lent := fmt.Sprintf("%dMiB", bytes>>20)
	n.cmd = exec.Command(wherry, "node", "--name", nodeName, "--listen", n.at["shm"], "--listen", n.at["tcp"], "--tls=off", "--token-file", n.tokens,
		"--memory", lent, "--pool-memory", lent, "--limit", "principal_bytes="+lent)
	var errs strings.Builder
	n.cmd.Stderr = &errs
	if n.cmd.SysProcAttr = alone(); !swapped { // else any program's pages may be there
		n.cmd.SysProcAttr.Pdeathsig = unix.SIGTERM
	}
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", n.at["tcp"][len("tcp://"):]); err == nil {
			conn.Close()
			return n, nil
		}
	}
	n.stop()
	return nil, fmt.Errorf("the node does not listen: %s", errs.String())
}

func (n *node) stop() {
	if n.stays {
		fmt.Fprintf(os.Stderr, "bench-memory: the node, process %d, goes on, as there is swap over it\n", n.cmd.Process.Pid)
		return
	}
	n.cmd.Process.Signal(unix.SIGTERM)
	n.cmd.Wait() // how it ended is of no interest
}
