package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/internal/ports"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/manager"
)

// managed is a cluster of real processes: nodes m0, m1, m2 manage, c0, c1, … lend memory.
type managed struct {
	*testing.T
	dir       string
	tokens    string
	peers     string // all that may ever be
	etcd      string
	outside   string // the address of an etcd server that the managers use instead; "": they have members of their own
	managers  string
	only      string // the manager that components are started with, and no other node; "": all nodes
	begins    string // the manager that begins their cluster at its first start
	addr      map[string]string
	netns     map[string]string // "": this one
	processes map[string]*exec.Cmd
	said      map[string]*bytes.Buffer
}

// patience bounds every wait: no test comes near it unless something hangs, also on a busy machine.
const patience = 90 * time.Second

func newManaged(t *testing.T, hosts []string, names ...string) *managed {
	t.Helper()
	g := &managed{T: t, dir: t.TempDir(), begins: "m0", addr: map[string]string{}, netns: map[string]string{}, processes: map[string]*exec.Cmd{}, said: map[string]*bytes.Buffer{}}
	g.tokens = filepath.Join(g.dir, "tokens")
	must(t, self(t.Context(), "", "token", "new", "node", "--node", "--file", g.tokens))
	must(t, self(t.Context(), "", "token", "new", "me", "--caps", "read,write", "--file", g.tokens))
	free, err := ports.Free(len(names) + 3)
	if err != nil {
		t.Fatal(err)
	}
	var peers, members, managers []string
	for i, name := range names {
		host := "127.0.0.1"
		if hosts != nil {
			host = fmt.Sprintf("10.77.0.%d", i+1)
			g.netns[name] = hosts[i]
		}
		g.addr[name] = fmt.Sprintf("tcp://%s:%d", host, free[i])
		peers = append(peers, name+"="+g.addr[name])
		if name[0] == 'm' {
			members = append(members, fmt.Sprintf("%s=%s:%d", name, host, free[len(names)+len(members)]))
			managers = append(managers, name)
		}
	}
	g.peers, g.etcd, g.managers = strings.Join(peers, ","), strings.Join(members, ","), strings.Join(managers, ",")
	t.Cleanup(func() {
		for name := range g.processes {
			g.kill(name, syscall.SIGTERM)
		}
	})
	return g
}

// start starts a node.
func (g *managed) start(name string) {
	g.Helper()
	peers, managers := g.peers, g.managers
	if g.only != "" && name[0] == 'c' {
		peers, managers = g.only+"="+g.addr[g.only], g.only
	}
	args := []string{"node", "--name", name, "--listen", g.addr[name], "--peers", peers, "--managers", managers, "--token-file", g.tokens, "--token", "node", "--insecure"}
	if name[0] == 'm' && g.outside != "" {
		args = append(args, "--etcd", g.outside)
	} else if name[0] == 'm' {
		args = append(args, "--manager", filepath.Join(g.dir, name))
		if g.etcd != "" {
			args = append(args, "--manager-peers", g.etcd)
			if name == g.begins {
				args = append(args, "--manager-new")
				g.begins = ""
			}
		}
	} else {
		args = append(args, "--pool-memory", "512MiB")
	}
	cmd := self(context.Background(), g.netns[name], args...)
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		g.Fatal(err)
	}
	g.processes[name], g.said[name] = cmd, out
}

// kill ends a node and waits for its end.
func (g *managed) kill(name string, how syscall.Signal) {
	g.Helper()
	cmd := g.processes[name]
	delete(g.processes, name)
	cmd.Process.Signal(how)
	err := cmd.Wait()
	if how == syscall.SIGTERM && err != nil {
		g.Errorf("%s: %v", name, err)
	}
	if g.Failed() {
		g.Logf("%s said\n%s", name, g.said[name])
	}
}

// until tries something again and again until it is so.
func (g *managed) until(what string, is func() error) {
	g.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := is()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			g.Fatalf("%s: %v", what, err)
		}
	}
}

// connect makes a client that knows one node.
func (g *managed) connect(name string) (c *client.Client) {
	g.Helper()
	g.until("connect", func() (err error) {
		c, err = client.Connect(g.Context(), client.Config{Nodes: []cluster.Member{{Name: name, Addrs: []string{g.addr[name]}}}, TokenFile: g.tokens, Token: "me"})
		return err
	})
	g.Cleanup(func() { c.Close() })
	return c
}

// has waits until managers know these components, and no others that lend.
func (g *managed) has(c *client.Client, names ...string) *manager.Top {
	g.Helper()
	var top *manager.Top
	g.until(fmt.Sprint("components ", names), func() (err error) {
		ctx, cancel := context.WithTimeout(g.Context(), 5*time.Second)
		defer cancel()
		if top, err = c.Top(ctx); err != nil {
			return err
		}
		var lend []string
		for _, t := range top.Components {
			if t.Capacity > 0 {
				lend = append(lend, t.Name)
			}
		}
		if !slices.Equal(lend, names) {
			return fmt.Errorf("there are %v", lend)
		}
		return nil
	})
	return top
}

// check puts and gets at each MiB of a region, and returns the first error of each component.
func check(ctx context.Context, r *pool.Region) map[string]error {
	failed := map[string]error{}
	for off := uint64(0); off < uint64(r.Size()); off += 16 << 20 {
		want, got := []byte(fmt.Sprint("bytes at ", off)), make([]byte, 9+len(fmt.Sprint(off)))
		err := r.Put(ctx, want, off)
		if err == nil {
			err = r.Get(ctx, got, off)
		}
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("%q instead of %q", got, want)
		}
		var at *pool.Error
		if name := ""; err != nil {
			if errors.As(err, &at) {
				name = at.Component
			}
			failed[name] = err
		}
	}
	return failed
}

// create makes a region by managers, as soon as they can.
func (g *managed) create(c *client.Client, name string, size uint64) (r *pool.Region) {
	g.Helper()
	g.until("create "+name, func() (err error) {
		r, err = c.Pool().CreateRegion(g.Context(), pool.Manager, pool.Spec{Name: name, Size: size})
		if errors.Is(err, pool.ErrExists) { // an answer was lost
			r, err = c.Pool().LookupRegion(g.Context(), pool.Manager, name)
		}
		return err
	})
	return r
}

// destroys destroys regions that managers placed.
func (g *managed) destroys(c *client.Client, names ...string) {
	g.Helper()
	for _, name := range names {
		if err := c.Pool().DestroyRegion(g.Context(), pool.Manager, name); err != nil {
			g.Error(err)
		}
	}
}

// goesOn says that a region can be read and written everywhere.
func (g *managed) goesOn(when string, r *pool.Region) {
	g.Helper()
	if failed := check(g.Context(), r); len(failed) > 0 {
		g.Fatalf("%s: %v", when, failed)
	}
}

// says runs a command, and looks for a text in what it says.
func (g *managed) says(want string, args ...string) {
	g.Helper()
	args = append(args, "--peers", "c0="+g.addr["c0"], "--token-file", g.tokens, "--token", "me", "--timeout", "60s")
	if out, err := self(g.Context(), "", args...).CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
		g.Errorf("%v says (%v), without %q:\n%s", args[:2], err, want, out)
	}
}

// grows adds component c2 while a region is read and written. New extents go there, also those of a region that becomes larger.
func (g *managed) grows(c *client.Client, work *pool.Region) {
	g.Helper()
	ended := g.busy(work)
	g.start("c2")
	g.has(c, "c0", "c1", "c2")
	fresh := g.create(c, "new", 128<<20)
	if i := fresh.Info(); !slices.Contains(i.Placed, "c2") {
		g.Errorf("the empty component was passed over: %+v", i)
	}
	more := g.busy(fresh)
	back, err := c.Pool().LookupRegion(g.Context(), pool.Manager, "back")
	if err == nil {
		err = back.Resize(g.Context(), 256<<20)
	}
	if err != nil || !slices.Contains(back.Info().Placed, "c2") {
		g.Errorf("a region that became larger has nothing at the empty component: %+v, %v", back.Info(), err)
	}
	g.goesOn("became larger", back)
	more()
	ended()
}

// busy reads and writes all of a region at once, by several goroutines, and checks each answer. The function that it returns waits until more answers
// have come, ends it, and has all that was written read once more.
func (g *managed) busy(r *pool.Region) (ended func()) {
	const workers, size = 4, 4096
	ctx, cancel := context.WithCancel(g.Context())
	var work sync.WaitGroup
	var answers atomic.Uint64
	slots := uint64(r.Size()) / (1 << 20) / workers // of each worker, 1 MiB apart
	for w := range uint64(workers) {
		work.Go(func() {
			last := make([]uint64, slots)
			at := func(slot uint64) uint64 { return (w*slots+slot)<<20 + 8192 }
			text := func(slot uint64) []byte {
				return bytes.Repeat(fmt.Appendf(nil, "%08d%08d", at(slot)>>10, last[slot]), size/16)
			}
			got := make([]byte, size)
			same := func(slot uint64) bool {
				if last[slot] == 0 {
					return true
				}
				if err := r.Get(g.Context(), got, at(slot)); err != nil || !bytes.Equal(got, text(slot)) {
					g.Errorf("%.32q (%v) at %d, want %.32q", got, err, at(slot), text(slot))
					return false
				}
				return true
			}
			for n := uint64(1); ctx.Err() == nil; n++ {
				slot := n * 7 % slots
				last[slot] = n
				if err := r.Put(g.Context(), text(slot), at(slot)); err != nil {
					g.Errorf("put at %d: %v", at(slot), err)
					return
				}
				if !same(slot) || !same(n*5%slots) {
					return
				}
				answers.Add(1)
			}
			for slot := range slots {
				if !same(slot) {
					return
				}
			}
		})
	}
	return func() {
		g.Helper()
		before := answers.Load()
		g.until("more answers", func() error {
			if n := answers.Load(); n < before+100 && !g.Failed() {
				return fmt.Errorf("%d answers", n)
			}
			return nil
		})
		cancel()
		work.Wait()
	}
}

// TestManagers: three managers as real processes, their etcd inside them. One is killed, then etcd has no majority, then it is back; a component
// comes, a component is killed. Who has a region open goes on through all of it, but for what the killed component held, and so does a program of wherry run,
// which takes more memory meanwhile.
func TestManagers(t *testing.T) {
	g := newManaged(t, nil, "m0", "m1", "m2", "c0", "c1", "c2")
	for _, name := range []string{"m0", "m1", "m2", "c0", "c1"} {
		g.start(name)
	}
	c := g.connect("c0")
	g.has(c, "c0", "c1")
	p, ctx := c.Pool(), t.Context()
	create, goesOn := func(name string, size uint64) *pool.Region { return g.create(c, name, size) }, g.goesOn
	work := create("work", 256<<20)
	if i := work.Info(); !slices.Equal(slices.Sorted(slices.Values(i.Placed)), []string{"c0", "c1"}) {
		t.Fatalf("placed at %v, and both components are empty", i.Placed)
	}
	goesOn("at first", work)

	g.kill("m0", syscall.SIGKILL)
	goesOn("a manager was killed", work)
	goesOn("made by two managers", create("two", 64<<20))

	program := g.steady("two")
	program.goesOn("two managers are up")
	ended := g.busy(work)
	g.kill("m1", syscall.SIGKILL)
	goesOn("etcd has no majority", work)
	program.goesOn("etcd has no majority")
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	if _, err := p.CreateRegion(short, pool.Manager, pool.Spec{Name: "none", Size: 1 << 20}); err == nil {
		t.Error("a region was made without a majority")
	}
	cancel()
	time.Sleep(manager.LeaseTime) // the components' leases would have ended
	program.goesOn("etcd has been away for longer than leases last")
	g.start("m0")
	g.start("m1")
	goesOn("made when etcd was back", create("back", 64<<20))
	if i, err := p.StatRegion(ctx, pool.Manager, "work"); err != nil || len(i.Lost) > 0 {
		t.Errorf("etcd was away, no component: %+v, %v", i, err)
	}
	goesOn("etcd is back", work)
	ended() // while etcd was away and back
	program.goesOn("etcd is back")
	program.ends()

	g.grows(c, work)

	g.kill("c1", syscall.SIGKILL)
	g.until("the loss is named", func() error {
		i, err := p.StatRegion(ctx, pool.Manager, "work")
		if err == nil && (!slices.Equal(i.Lost, []string{"c1"}) || i.Epoch <= work.Info().Epoch) {
			err = fmt.Errorf("%+v", i)
		}
		return err
	})
	again, err := p.LookupRegion(ctx, pool.Manager, "work")
	if err != nil {
		t.Fatal(err)
	}
	failed := check(ctx, again)
	if err := failed["c1"]; len(failed) != 1 || !errors.Is(err, pool.ErrLost) {
		t.Errorf("c1 is killed: %v", failed)
	}
	g.says("lost with what they held: c1", "pool", "stat", "work")
	g.says("lost: c1", "top", "--once")
	g.destroys(c, "work", "two", "back", "new")
	for _, comp := range g.has(c, "c0", "c2").Components {
		if comp.Placed != 0 {
			t.Errorf("%s has %d bytes of regions that were destroyed", comp.Name, comp.Placed)
		}
	}
}

// TestManagerCutOff: a manager whose host is cut off decides nothing; the others go on, and it does when it is back.
func TestManagerCutOff(t *testing.T) {
	names := []string{"m0", "m1", "m2", "c0"}
	hosts := namespaces(t, len(names))
	g := newManaged(t, hosts, names...)
	for _, name := range names {
		g.start(name)
	}
	ask := func(at string, timeout string, args ...string) (string, error) {
		cmd := self(t.Context(), g.netns[at], append(args, "--peers", at+"="+g.addr[at], "--token-file", g.tokens, "--token", "me", "--insecure", "--timeout", timeout)...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	made := func(at, name string) {
		t.Helper()
		g.until("made at "+at, func() error {
			out, err := ask(at, "20s", "pool", "create", name, "64MiB")
			if err != nil && !strings.Contains(out, "exists already") {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	made("m0", "a")
	must(t, exec.Command("ip", "-n", hosts[0], "link", "set", "eth0", "down"))
	made("m1", "b")
	if out, err := ask("m0", "4s", "pool", "create", "c", "64MiB"); err == nil {
		t.Errorf("a manager that is cut off made a region: %s", out)
	}
	must(t, exec.Command("ip", "-n", hosts[0], "link", "set", "eth0", "up"))
	made("m0", "d")
	out, err := ask("m2", "20s", "pool", "ls", "--json")
	var list []pool.Info
	if err == nil {
		err = json.Unmarshal([]byte(out[strings.IndexByte(out, '['):]), &list)
	}
	var there []string
	for _, r := range list {
		there = append(there, r.Name)
	}
	if want := []string{"a", "b", "d"}; err != nil || !slices.Equal(there, want) {
		t.Errorf("regions %v, want %v (%v)\n%s", there, want, err, out)
	}
	g.until("top has all that there is", func() error {
		out, err := ask("c0", "20s", "top", "--once", "-q")
		for _, want := range []string{"managers m0, m1, m2", "c0  512.0 MiB  192.0 MiB    0 B  320.0 MiB        3", "ready  c0"} {
			if err != nil || !strings.Contains(out, want) {
				return fmt.Errorf("top says (%v), without %q:\n%s", err, want, out)
			}
		}
		return nil
	})
}

// votes waits until these managers decide, and no others.
func (g *managed) votes(c *client.Client, names ...string) {
	g.Helper()
	g.until(fmt.Sprint("managers ", names), func() error {
		ctx, cancel := context.WithTimeout(g.Context(), 5*time.Second)
		defer cancel()
		list, err := c.ManagerMembers(ctx)
		var have []string
		for _, m := range list {
			if m.Voting {
				have = append(have, m.Name)
			}
		}
		if err == nil && (!slices.Equal(have, names) || len(list) != len(names)) {
			err = fmt.Errorf("there are %+v", list)
		}
		return err
	})
}

// TestManagersGrow: one manager becomes three; one whose directory is lost comes back; one is removed. Regions are kept through all of it, and each
// manager counts: the state outlives the loss of any other.
func TestManagersGrow(t *testing.T) {
	g := newManaged(t, nil, "m0", "m1", "m2", "c0")
	three := g.etcd
	g.etcd = ""
	g.start("m0")
	g.start("c0")
	c := g.connect("c0")
	g.has(c, "c0")
	work := g.create(c, "work", 64<<20)
	g.goesOn("one manager", work)
	g.votes(c, "m0")

	g.kill("m0", syscall.SIGTERM)
	g.etcd, g.begins = three, "" // it has its data
	for _, name := range []string{"m0", "m1", "m2"} {
		g.start(name)
	}
	g.votes(c, "m0", "m1", "m2")
	g.kill("m0", syscall.SIGKILL)
	g.goesOn("made by the two that came", g.create(c, "two", 64<<20))

	must(t, exec.Command("rm", "-r", filepath.Join(g.dir, "m0")))
	g.start("m0")
	g.connect("m0") // it was taken in
	g.votes(c, "m0", "m1", "m2")
	g.kill("m1", syscall.SIGKILL)
	g.goesOn("made with the one that was replaced", g.create(c, "three", 64<<20))

	run := func(token string, args ...string) (string, error) {
		args = append([]string{"manager"}, append(args, "--peers", "c0="+g.addr["c0"], "--token-file", g.tokens, "--token", token)...)
		out, err := self(t.Context(), "", args...).CombinedOutput()
		return string(out), err
	}
	rm := func(name string) (string, error) { return run("node", "rm", name) }
	if out, err := run("me", "rm", "m1"); err == nil || !strings.Contains(out, "me lacks capability admin or member") {
		t.Errorf("removed by whoever asks: %s (%v)", out, err)
	}
	if out, err := run("me", "ls"); err != nil || strings.Count(out, "votes\n") != 2 || strings.Count(out, "votes, but does not answer\n") != 1 {
		t.Errorf("%s (%v)", out, err)
	}
	if out, err := rm("m7"); err == nil || !strings.Contains(out, "there are m0, m1, m2") {
		t.Errorf("%s (%v)", out, err)
	}
	g.until("m1 is removed", func() error {
		out, err := rm("m1")
		if err != nil && !strings.Contains(out, "there are m0, m2") { // the answer was lost
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	g.votes(c, "m0", "m2")
	g.start("m1") // with what it knew before
	err := g.processes["m1"].Wait()
	delete(g.processes, "m1")
	if said := g.said["m1"].String(); err == nil || !strings.Contains(said, "it is no member any more") {
		t.Errorf("a manager that was removed: %v\n%s", err, said)
	}

	for _, name := range []string{"work", "two", "three"} {
		i, err := c.Pool().StatRegion(t.Context(), pool.Manager, name)
		if err != nil || len(i.Lost) > 0 {
			t.Errorf("%s: %+v, %v", name, i, err)
		}
	}
	g.goesOn("at the end", work)
}

// TestManagerEndsWaiting: a manager without data waits for the others that may have a cluster; a signal ends it meanwhile.
func TestManagerEndsWaiting(t *testing.T) {
	g := newManaged(t, nil, "m0", "m1", "c0")
	_, other, _ := strings.Cut(g.etcd, ",m1=")
	l, err := net.Listen("tcp", other)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	g.start("m0") // even if it is told to begin
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cmd := g.processes["m0"]
	delete(g.processes, "m0")
	cmd.Process.Signal(syscall.SIGTERM)
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Errorf("a manager that waited and was ended: %v\n%s", err, g.said["m0"])
	}
}
