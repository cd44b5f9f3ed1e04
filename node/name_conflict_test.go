package node

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// patience is what a test waits for what should take a moment.
const patience = time.Minute

func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for tries, end := 0, time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if tries++; tries > 1000 && time.Now().After(end) { // a machine that stood still has not looked
			t.Fatalf("in vain: %s", what)
		}
	}
}

// aged runs a node that has been up for some time, until the test ends.
func aged(t testing.TB, cfg Config, up time.Duration) *Node {
	t.Helper()
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.started = n.started.Add(-up)
	done := make(chan error, 1)
	go func() { done <- n.Run(context.Background()) }()
	t.Cleanup(func() {
		n.Close()
		if err := <-done; err != nil {
			t.Errorf("node %s: %v", n.Name(), err)
		}
	})
	return n
}

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

// says reports whether a line has all of these words.
func (x *logText) says(words ...string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for line := range strings.Lines(x.b.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

func (x *logText) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(x, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// nameConflictConfig is a node that listens anywhere and knows others.
func nameConflictConfig(ts *cluster.Tokens, name string, log *logText, peers ...cluster.Member) Config {
	return Config{Name: name, Listen: []string{"tcp://127.0.0.1:0"}, Tokens: ts, Peers: peers, Log: log.logger(), StopTime: time.Second}
}

func memberOf(n *Node) cluster.Member { return cluster.Member{Name: n.Name(), Addrs: n.Addrs()} }

// refused runs a node that must not start, and returns why.
func refused(t *testing.T, cfg Config) (n *Node, why error) {
	t.Helper()
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return n, n.Run(ctx)
}

// TestNameConflict: a node whose name another has already does not start, whether a third
// node or its own list of peers leads it to the other; and the other hears of it.
func TestNameConflict(t *testing.T) {
	ts := tokens(t, cluster.CapMember, "node")
	for name, direct := range map[string]bool{"by a third node": false, "by its own entry": true} {
		t.Run(name, func(t *testing.T) {
			var thirdLog, firstLog, secondLog logText
			third := aged(t, nameConflictConfig(ts, "n0", &thirdLog), time.Hour)
			first := aged(t, nameConflictConfig(ts, "n1", &firstLog, memberOf(third)), giveWayTime/2) // it would give way to an older one
			waitFor(t, "the first is connected", func() bool { return len(third.el.Endpoints()) == 1 })
			knows := memberOf(third)
			if direct {
				knows = memberOf(first)
			}
			second, err := refused(t, nameConflictConfig(ts, "n1", &secondLog, knows))
			if !errors.Is(err, control.ErrNameTaken) || !strings.Contains(err.Error(), first.Addrs()[0]) || !strings.Contains(err.Error(), second.Addrs()[0]) || !strings.Contains(err.Error(), "--name") {
				t.Fatalf("the second: %v\n%s", err, thirdLog.b.String())
			}
			addrs := []string{"level=ERROR", first.Addrs()[0], second.Addrs()[0]}
			waitFor(t, "the first says so", func() bool { return firstLog.says(append(addrs, "another node has this node's name")...) })
			if !direct && !thirdLog.says(append(addrs, "two nodes have one name")...) {
				t.Error("the third does not say so")
			}
			waitFor(t, "the first is the only one", func() bool {
				eps := third.el.Endpoints()
				return len(eps) == 1 && eps[0].Incarnation() == first.el.Incarnation()
			})
		})
	}
}

// TestSameNameStartsTogether: of two nodes of one name that start in the same millisecond, one stays.
func TestSameNameStartsTogether(t *testing.T) {
	ts := tokens(t, cluster.CapMember, "node")
	third := aged(t, nameConflictConfig(ts, "n0", &logText{}), time.Hour)
	started := time.Now()
	var ends [2]chan error
	var nodes [2]*Node
	for i := range nodes {
		n, err := New(nameConflictConfig(ts, "n1", &logText{}, memberOf(third)))
		if err != nil {
			t.Fatal(err)
		}
		n.started = started
		nodes[i], ends[i] = n, make(chan error, 1)
		t.Cleanup(func() { n.Close() })
	}
	last := 0 // by incarnation
	if nodes[1].el.Incarnation() > nodes[0].el.Incarnation() {
		last = 1
	}
	for i, n := range nodes {
		go func() { ends[i] <- n.Run(t.Context()) }()
	}
	select {
	case err := <-ends[last]:
		if !errors.Is(err, control.ErrNameTaken) {
			t.Errorf("the one that gives way: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("both stay")
	}
	waitFor(t, "the other is the only one", func() bool {
		eps := third.el.Endpoints()
		return len(eps) == 1 && eps[0].Incarnation() == nodes[1-last].el.Incarnation()
	})
	if n := nodes[1-last]; len(n.failed) > 0 || n.stopping.Load() {
		t.Error("both give way")
	}
}

// TestGivesWay: of each two that are both young, one gives way and one stays, and who has been up for long stays always.
func TestGivesWay(t *testing.T) {
	type life struct {
		up      time.Duration
		started int64
		inc     cluster.Incarnation
	}
	told := func(l life) *control.NameConflict {
		return &control.NameConflict{Incarnation: l.inc, UptimeMs: l.up.Milliseconds(), StartedUnixMs: l.started}
	}
	for name, tc := range map[string]struct {
		a, b         life
		aEnds, bEnds bool
	}{
		"one after the other":        {a: life{4 * time.Second, 1000, 2}, b: life{time.Second, 4000, 1}, bEnds: true},
		"at once":                    {a: life{time.Second, 1000, 1}, b: life{time.Second, 1000, 2}, bEnds: true},
		"a slow answer":              {a: life{time.Second, 1001, 1}, b: life{900 * time.Millisecond, 1000, 2}, aEnds: true},
		"long there, clocks agree":   {a: life{time.Hour, 1000, 2}, b: life{time.Second, 3601000, 1}, bEnds: true},
		"long there, its clock fast": {a: life{time.Hour, 9000000, 2}, b: life{time.Second, 3601000, 1}, bEnds: true},
		"both long there":            {a: life{time.Hour, 1000, 2}, b: life{giveWayTime, 2000, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := givesWay(tc.a.up, tc.a.started, tc.a.inc, told(tc.b)), givesWay(tc.b.up, tc.b.started, tc.b.inc, told(tc.a))
			if a != tc.aEnds || b != tc.bEnds {
				t.Errorf("one gives way: %v, the other: %v", a, b)
			}
		})
	}
}

// TestNameConflictIsTold: a node that meets one of its name tells it, for its own end may be what ends the connection.
func TestNameConflictIsTold(t *testing.T) {
	ts := tokens(t, cluster.CapMember, "node")
	el, p := guest(t, ts, "node") // n2
	told := make(chan *control.NameConflict, 1)
	if err := errors.Join(
		control.Serve(p, control.CallInfo, func(context.Context, *rpc.Call, *control.InfoRequest) (*control.Info, error) {
			return &control.Info{Version: control.Version, Name: el.Name(), Incarnation: cluster.Incarnation(el.Incarnation()), UptimeMs: time.Hour.Milliseconds()}, nil
		}),
		control.Serve(p, control.CallNameConflict, func(_ context.Context, _ *rpc.Call, req *control.NameConflict) (*control.Nothing, error) {
			told <- req
			return &control.Nothing{}, nil
		})); err != nil {
		t.Fatal(err)
	}
	n := aged(t, nameConflictConfig(ts, el.Name(), &logText{}), time.Hour)
	if _, err := el.Dial(t.Context(), n.Addrs()[0]); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-told:
		if r.Name != n.Name() || r.Incarnation != cluster.Incarnation(n.el.Incarnation()) || len(r.Addrs) != 1 || r.Addrs[0] != n.Addrs()[0] ||
			r.UptimeMs < time.Hour.Milliseconds() || r.StartedUnixMs != n.started.UnixMilli() {
			t.Errorf("it is told of %+v", r)
		}
	case <-time.After(patience):
		t.Fatal("it is not told")
	}
}

// TestSameNameThatRuns: two that have been up for long and meet only now say so, and go on.
func TestSameNameThatRuns(t *testing.T) {
	ts := tokens(t, cluster.CapMember, "node")
	var logs [3]logText
	third := aged(t, nameConflictConfig(ts, "n0", &logs[2]), 0)
	one := aged(t, nameConflictConfig(ts, "n1", &logs[0], memberOf(third)), 2*time.Hour)
	other := aged(t, nameConflictConfig(ts, "n1", &logs[1], memberOf(third)), time.Hour)
	for i := range 2 {
		waitFor(t, "both say so", func() bool {
			return logs[i].says("level=ERROR", "another node has this node's name", one.Addrs()[0], other.Addrs()[0])
		})
	}
	for _, n := range []*Node{one, other} {
		if len(n.failed) > 0 || n.stopping.Load() {
			t.Errorf("%v ends", n.Addrs())
		}
	}
}

// TestRestartIsNoConflict: a node may come back under its name while a third one still
// has a connection to its former life, which does not answer, is about to stop, or was no node.
func TestRestartIsNoConflict(t *testing.T) {
	ts := tokens(t, cluster.CapMember, "node")
	for _, former := range []string{"no node", "stopping"} {
		t.Run(former, func(t *testing.T) {
			var thirdLog, log logText
			third := aged(t, nameConflictConfig(ts, "n0", &thirdLog), time.Hour)
			var old fabric.Incarnation
			if former == "stopping" {
				n := aged(t, nameConflictConfig(ts, "n2", &logText{}, memberOf(third)), time.Hour)
				n.stopping.Store(true)
				old = n.el.Incarnation()
			} else {
				el, _ := guest(t, ts, "node")
				if _, err := el.Dial(t.Context(), third.Addrs()[0]); err != nil {
					t.Fatal(err)
				}
				old = el.Incarnation()
			}
			waitFor(t, "the former life is connected", func() bool {
				eps := third.el.Endpoints()
				return len(eps) == 1 && eps[0].Incarnation() == old
			})
			back := aged(t, nameConflictConfig(ts, "n2", &log, memberOf(third)), 0) // fails the test if it ends with an error
			waitFor(t, "the third has looked", func() bool { return thirdLog.says("one does not answer") })
			if thirdLog.says("level=ERROR") || log.says("level=ERROR") || len(back.failed) > 0 {
				t.Error("a restart is taken for a second node")
			}
		})
	}
}

// TestNameConflictRequests: only members are listened to, and only to what can be.
func TestNameConflictRequests(t *testing.T) {
	member, _ := cluster.NewToken("node", cluster.CapMember)
	user, _ := cluster.NewToken("user", cluster.CapsAll&^cluster.CapMember)
	ts, err := cluster.NewTokens([]cluster.Token{member, user})
	if err != nil {
		t.Fatal(err)
	}
	var log logText
	n := aged(t, nameConflictConfig(ts, "n1", &log), 0) // it would give way
	good := control.NameConflict{Name: "n1", Incarnation: 1, Addrs: []string{"tcp://192.0.2.1:7000"}, UptimeMs: 1 << 40}
	for name, tc := range map[string]struct {
		who  string
		edit func(r *control.NameConflict)
		err  error
	}{
		"not a member":  {"user", func(*control.NameConflict) {}, cluster.ErrForbidden},
		"another name":  {"node", func(r *control.NameConflict) { r.Name = "n3" }, control.ErrRequest},
		"itself":        {"node", func(r *control.NameConflict) { r.Incarnation = cluster.Incarnation(n.el.Incarnation()) }, control.ErrRequest},
		"too many":      {"node", func(r *control.NameConflict) { r.Addrs = make([]string, cluster.MaxAddrs+1) }, control.ErrRequest},
		"a bad address": {"node", func(r *control.NameConflict) { r.Addrs = []string{"\n"} }, control.ErrRequest},
	} {
		t.Run(name, func(t *testing.T) {
			el, p := guest(t, ts, tc.who)
			ep, err := el.Dial(t.Context(), n.Addrs()[0])
			if err != nil {
				t.Fatal(err)
			}
			r := good
			tc.edit(&r)
			if _, err := control.Do[control.Nothing](t.Context(), p, ep, control.CallNameConflict, r); !errors.Is(err, tc.err) {
				t.Errorf("%v, want %v", err, tc.err)
			}
		})
	}
	if log.says("level=ERROR") || len(n.failed) > 0 {
		t.Error("it listens to what is not so")
	}
}
