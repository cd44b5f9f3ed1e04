package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/node"
)

// logText is a log that a test reads while others write it.
type logText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (x *logText) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *logText) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// freeze stops a node's process, and waits until none of its threads runs.
func (f *farm) freeze(t *testing.T, name string) {
	t.Helper()
	p := f.procs[name].Process
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the process stands still", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		for _, stat := range threads {
			if b, err := os.ReadFile(stat); err == nil && !strings.Contains(string(b), ") T ") {
				return false
			}
		}
		return len(threads) > 0
	})
}

// TestStoppedNode: a node whose process stands still takes neither the time of
// the others nor their good name, whether it was named or only heard of.
func TestStoppedNode(t *testing.T) {
	t.Parallel() // it waits for nodes that are silent
	f := newFarm(t, "tcp", "n1", "n2", "n3", "n4")
	first := f.connect(t)
	spec := LoadSpec{Name: "x", Input: dataset.NewText("p.csv", []byte(peopleHeader+people(1000))), Options: csvOptions(t, dataset.Spread{})}
	if _, err := first.Load(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	f.freeze(t, "n3")
	for name, nodes := range map[string][]cluster.Member{"all are named": f.peers, "one is named": f.peers[:1]} {
		t.Run(name, func(t *testing.T) {
			swiftly(t, 4*time.Second, func(ctx context.Context) error {
				log := &logText{}
				c, err := Connect(ctx, Config{Nodes: nodes, TokenFile: f.tokens, Token: tokenOwner, Log: slog.New(slog.NewTextHandler(log, nil))})
				if err != nil {
					return err
				}
				defer c.Close()
				err = onlyN3(c.List(ctx))
				if said := log.String(); err == nil && (!strings.Contains(said, "n3") || strings.Contains(said, "node n1") || strings.Contains(said, "node n2") || strings.Contains(said, "node n4")) {
					err = fmt.Errorf("the log blames others: %s", said)
				}
				return err
			})
		})
	}
	// A client that was connected before waits for an answer, and then says who gave none.
	swiftly(t, time.Second, func(ctx context.Context) error { return onlyN3(first.List(ctx)) })
}

// TestSlowNode: a node that is silent for a while, longer than an attempt to dial it takes, is waited for as long as the deadline
// allows: by a client that asks, by one that connects and by one that only hears of it.
func TestSlowNode(t *testing.T) {
	t.Parallel() // it waits for nodes that are silent
	f := newFarm(t, "tcp", "n1", "n2", "n3")
	first := f.connect(t)
	spec := LoadSpec{Name: "x", Input: dataset.NewText("p.csv", []byte(peopleHeader+people(1000))), Options: csvOptions(t, dataset.Spread{})}
	if _, err := first.Load(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	whole := func(list []Dataset, err error) error {
		if err == nil && (len(list) != 1 || len(list[0].Unreachable) != 0) {
			err = fmt.Errorf("%+v", list)
		}
		return err
	}
	connects := func(peers ...cluster.Member) error {
		var log logText
		c, err := Connect(ctx, Config{Nodes: peers, TokenFile: f.tokens, Token: tokenOwner, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			return err
		}
		defer c.Close()
		err = whole(c.List(ctx))
		if said := log.String(); err == nil && !strings.Contains(said, "waiting for nodes that do not answer") {
			err = fmt.Errorf("it says only %q", said)
		}
		return err
	}
	f.freeze(t, "n3")
	thaws := time.AfterFunc(7*time.Second, func() { f.procs["n3"].Process.Signal(syscall.SIGCONT) })
	defer thaws.Stop()
	var wg sync.WaitGroup
	for what, do := range map[string]func() error{
		"asks":        func() error { return whole(first.List(ctx)) },
		"connects":    func() error { return connects(f.peers...) },
		"hears of it": func() error { return connects(f.peers[0]) },
	} {
		wg.Go(func() {
			if err := do(); err != nil {
				t.Errorf("a client that %s: %v", what, err)
			}
		})
	}
	wg.Wait()
}

// onlyN3 wants one dataset, of which n3 alone does not answer.
func onlyN3(list []Dataset, err error) error {
	if err == nil && (len(list) != 1 || len(list[0].Unreachable) != 1 || len(list[0].Lost) != 0 || !strings.Contains(list[0].Unreachable["n3"], "n3") || strings.Contains(list[0].Unreachable["n3"], "remove the dataset")) {
		err = fmt.Errorf("%+v", list)
	}
	return err
}

// swiftly runs what must have its answer in little time, though a node gives none. A machine that has much else to do
// may be too slow for that, and gets several tries.
func swiftly(t *testing.T, limit time.Duration, fn func(ctx context.Context) error) {
	t.Helper()
	var errs []error
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := fn(ctx)
		cancel()
		if err == nil {
			return
		}
		errs = append(errs, err)
	}
	t.Error(errors.Join(errs...))
}

// soon is far below askTime, and far above what an answer takes.
const soon = askTime / 2

// within runs a question that must end long before askTime.
func within(t *testing.T, what string, fn func() error) error {
	t.Helper()
	start := time.Now()
	err := fn()
	if took := time.Since(start); took > soon {
		t.Errorf("%s took %v: %v", what, took, err)
	}
	return err
}

// TestNodeLostLater: a client that has long been connected hears at once that a node it
// asks is lost, or cannot be connected to, and which.
func TestNodeLostLater(t *testing.T) {
	f := newFarm(t, "tcp", "n1", "n2")
	c := f.connect(t)
	waitFor(t, "the client knows all", func() bool { return len(c.connected()) == 2 })
	f.freeze(t, "n2")
	before := c.rpc.Stats().Calls
	asked := make(chan error, 1)
	go func() { _, err := c.Info(t.Context(), "n2"); asked <- err }()
	waitFor(t, "the question is asked", func() bool { return c.rpc.Stats().Calls > before })
	kill(f.procs["n2"])
	err := within(t, "the question under way", func() error { return <-asked })
	if !errors.Is(err, fabric.ErrPeerLost) || !strings.Contains(err.Error(), "node n2") {
		t.Errorf("the question under way: %v", err)
	}
	for what, fn := range map[string]func() error{
		"info":   func() error { _, err := c.Info(t.Context(), "n2"); return err },
		"status": func() error { _, err := c.Status(t.Context(), "n2"); return err },
		"reach":  func() error { _, err := c.Reach(t.Context(), "n2"); return err },
	} {
		if err := within(t, what, fn); !errors.Is(err, control.ErrNotConnected) || !strings.Contains(err.Error(), "node n2 (tcp://") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestOthersAnswer: what other nodes can answer does not wait for one that stands
// still. What only that one can tell is not guessed at.
func TestOthersAnswer(t *testing.T) {
	t.Parallel() // it waits for nodes that are silent
	f := newFarm(t, "tcp", "n1", "n2", "n3")
	c := f.connect(t)
	waitFor(t, "the client knows all", func() bool { return len(c.connected()) == 3 })
	for name, nodes := range map[string][]string{"here": {"n1", "n2"}, "all": {"n1", "n2", "n3"}} {
		spec := LoadSpec{Name: name, Nodes: nodes, Input: dataset.NewText("p.csv", []byte(peopleHeader+people(1000))), Options: csvOptions(t, dataset.Spread{})}
		if _, err := c.Load(t.Context(), spec, nil); err != nil {
			t.Fatal(err)
		}
	}
	f.freeze(t, "n3")
	thaws := time.AfterFunc(defaultPatience+time.Second, func() { f.procs["n3"].Process.Signal(syscall.SIGCONT) })
	defer thaws.Stop()
	if err := within(t, "a table of which it has a part", func() error { _, err := c.Table(t.Context(), "all", ""); return err }); err != nil {
		t.Errorf("an answer that is needed was not waited for: %v", err)
	}
	f.freeze(t, "n3")
	for what, fn := range map[string]func() error{
		"list": func() error {
			list, err := c.List(t.Context())
			if err == nil && (len(list) != 2 || len(list[0].Unreachable) != 1 || len(list[0].Lost) != 0 || !strings.Contains(list[0].Unreachable["n3"], "n3") || len(list[1].Unreachable) != 0) {
				t.Errorf("list: %+v", list)
			}
			return err
		},
		"stat": func() error {
			d, err := c.Stat(t.Context(), "all")
			if err == nil && (len(d.Unreachable) != 1 || !strings.Contains(d.Unreachable["n3"], "n3") || len(d.Lost) != 0) {
				t.Errorf("stat: %+v", d)
			}
			return err
		},
		"table": func() error { _, err := c.Table(t.Context(), "here", ""); return err },
		"grant": func() error { return c.Grant(t.Context(), "here", cluster.Everyone, "r") },
	} {
		if err := within(t, what, fn); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	err := c.Remove(ctx, "all")
	if err == nil || !strings.Contains(err.Error(), "node n3") || !strings.Contains(err.Error(), "try again") || !strings.Contains(err.Error(), "removed at n1, n2") {
		t.Errorf("remove, without a holder's answer: %v", err)
	}
}

// TestTwoNodesOfOneName: which of them holds what could not be said.
func TestTwoNodesOfOneName(t *testing.T) {
	b := newBench(t, "tcp", "n1")
	twin := cluster.Member{Name: "n1", Addrs: []string{b.addr("n1", freePorts(t, 1)[0])}}
	b.start(t, twin, func(c *node.Config) { c.Peers = nil }) // else it would not start
	_, err := Connect(t.Context(), Config{Nodes: []cluster.Member{{Addrs: b.peers[0].Addrs}, {Addrs: twin.Addrs}}, Tokens: b.tokens, Token: tokenOwner})
	if err == nil || !strings.Contains(err.Error(), "two nodes") || !strings.Contains(err.Error(), `"n1"`) {
		t.Errorf("%v", err)
	}
}

// TestLoadWithoutANode: a load that a dead node, or one that stands still, makes
// impossible fails soon, and says which nodes would do.
func TestLoadWithoutANode(t *testing.T) {
	t.Parallel() // it waits for nodes that are silent
	spec := LoadSpec{Name: "x", Input: dataset.NewText("p.csv", []byte(peopleHeader+people(1000))), Options: csvOptions(t, dataset.Spread{})}
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			f := newFarm(t, "tcp", "n0", "n1", "n2", "n3")
			if err := f.procs["n2"].Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			log := &logText{}
			c, err := Connect(ctx, Config{Nodes: f.peers[:1], TokenFile: f.tokens, Token: tokenOwner, Log: slog.New(slog.NewTextHandler(log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			waitFor(t, "the client knows all", func() bool { return len(c.connected()) == 3 && len(c.Nodes()) == 4 })
			start, before := time.Now(), len(log.String())
			_, err = c.Load(ctx, spec, nil)
			if !errors.Is(err, control.ErrNotConnected) || !strings.Contains(err.Error(), "n2 cannot be reached: start it, or name the others with --nodes n0,n1,n3") {
				t.Errorf("%v", err)
			}
			took := time.Since(start)
			if took > time.Minute { // far from the five that there are
				t.Errorf("it took %v", took)
			}
			if said := log.String()[before:]; took > 2*sayAfter && !strings.Contains(said, "waiting for nodes that do not answer") {
				t.Errorf("in %v it said only %q", took, said)
			}
			bad := spec
			bad.Options.Format = "cvs"
			if _, err := c.Load(ctx, bad, nil); !errors.Is(err, dataset.ErrOptions) {
				t.Errorf("a format that is none: %v", err)
			}
			spec := spec
			spec.Nodes = []string{"n0", "n1", "n3"}
			if _, err := c.Load(ctx, spec, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLoadKeepsItsDeadline: a load ends within a second of its deadline, also where a node that takes part stands still: giving it up there is not waited for.
func TestLoadKeepsItsDeadline(t *testing.T) {
	t.Parallel() // it waits for a node that is silent
	const limit = 2 * time.Second
	f := newFarm(t, "tcp", "n1", "n2")
	c := f.connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	until, _ := ctx.Deadline()
	frozen := false
	spec := LoadSpec{Name: "x", Input: dataset.NewText("p.csv", []byte(peopleHeader+people(1000))), Options: csvOptions(t, dataset.Spread{})}
	_, err := c.Load(ctx, spec, func(p LoadProgress) {
		if p.Phase == PhaseCommit && !frozen {
			frozen = true
			f.freeze(t, "n2")
		}
	})
	late := time.Since(until)
	if !frozen || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "n2") {
		t.Errorf("the load ended with %v", err)
	}
	if late > time.Second {
		t.Errorf("it ended %v after its deadline", late)
	}
	if err := f.procs["n2"].Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	spec.Options = csvOptions(t, dataset.Spread{})
	if _, err := c.Load(t.Context(), spec, nil); err != nil {
		t.Errorf("the next load of that name: %v", err)
	}
}
