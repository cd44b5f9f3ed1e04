package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/internal/ports"
	"github.com/wherry-fabric/wherry/pool"
)

// etcdEnv has this program be an etcd server at that address, with its data in the folder that is its argument: as an operator's, apart from wherry.
const etcdEnv = "WHERRY_TEST_ETCD"

// serveEtcd is an etcd server until it is killed.
func serveEtcd(client, dir string) error {
	e := embed.NewConfig()
	e.Dir, e.LogLevel, e.ListenPeerUrls = dir, "error", nil
	u, err := url.Parse(client)
	if err != nil {
		return err
	}
	e.ListenClientUrls, e.AdvertiseClientUrls = []url.URL{*u}, []url.URL{*u}
	s, err := embed.StartEtcd(e)
	if err != nil {
		return err
	}
	return <-s.Err()
}

// outsideEtcd runs one, and returns its process and address.
func (g *managed) outsideEtcd() (cmd *exec.Cmd, addr string) {
	g.Helper()
	free, err := ports.Free(1)
	if err != nil {
		g.Fatal(err)
	}
	addr = fmt.Sprintf("http://127.0.0.1:%d", free[0])
	cmd = exec.Command(os.Args[0], filepath.Join(g.dir, "etcd"))
	cmd.Env = append(os.Environ(), etcdEnv+"="+addr)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, addr
}

func (g *managed) signal(how syscall.Signal, processes []*exec.Cmd) {
	g.Helper()
	for _, cmd := range processes {
		if err := cmd.Process.Signal(how); err != nil {
			g.Fatal(err)
		}
	}
}

// stalls stops processes for a while, and says whether a region lost anything by it once all components are known again.
func (g *managed) stalls(r *pool.Region, what string, d time.Duration, processes ...*exec.Cmd) {
	g.Helper()
	g.signal(syscall.SIGSTOP, processes)
	time.Sleep(d)
	g.signal(syscall.SIGCONT, processes)
	c := g.connect("c0")
	g.destroys(c, g.create(c, "after", 64<<20).Info().Name) // managers decide again
	time.Sleep(2 * time.Second)                             // and those leases that ran out have ended
	g.has(c, "c0", "c1")
	i, err := c.Pool().StatRegion(g.Context(), pool.Manager, r.Info().Name)
	if err != nil || len(i.Lost) > 0 || i.Epoch != r.Info().Epoch {
		g.Fatalf("%s stood still for %v, no component did: %+v, %v", what, d, i, err)
	}
	g.goesOn(what+" stood still for "+d.String(), r)
}

// loses kills c1 while processes are stopped. A loss is a loss then, too.
func (g *managed) loses(r *pool.Region, processes ...*exec.Cmd) {
	g.Helper()
	g.signal(syscall.SIGSTOP, processes)
	g.kill("c1", syscall.SIGKILL)
	time.Sleep(3 * time.Second)
	g.signal(syscall.SIGCONT, processes)
	c := g.connect("c0")
	g.until("the loss is named", func() error {
		i, err := c.Pool().StatRegion(g.Context(), pool.Manager, r.Info().Name)
		if err == nil && !slices.Equal(i.Lost, []string{"c1"}) {
			err = fmt.Errorf("%+v", i)
		}
		return err
	})
}

// TestEtcdStall: an etcd cluster that stands still for a while and goes on, as on a host without memory, is no reason to give anything up.
func TestEtcdStall(t *testing.T) {
	g := newManaged(t, nil, "m0", "c0", "c1")
	cmd, addr := g.outsideEtcd()
	g.outside = addr
	for _, name := range []string{"m0", "c0", "c1"} {
		g.start(name)
	}
	c := g.connect("c0")
	g.has(c, "c0", "c1")
	r := g.create(c, "work", 256<<20)
	for _, d := range []time.Duration{2500 * time.Millisecond, 4 * time.Second, 8 * time.Second} {
		g.stalls(r, "etcd", d, cmd)
	}
	g.loses(r, cmd)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"stat", "work"}, {"rm", "work"}, {"ls", "--json"}} {
		args = append([]string{"pool"}, append(args, "--peers", "c0="+g.addr["c0"], "--token-file", g.tokens, "--token", "me", "--timeout", "60s")...)
		out, err := self(t.Context(), "", args...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitLost || !strings.Contains(string(out), addr) {
			t.Errorf("%v without etcd (%v), not naming %s:\n%s", args[:2], err, addr, out)
		}
	}
}

// TestManagerStall: and neither is a manager, with the etcd member in it, that does.
func TestManagerStall(t *testing.T) {
	g := newManaged(t, nil, "m0", "c0", "c1")
	g.etcd = ""
	for _, name := range []string{"m0", "c0", "c1"} {
		g.start(name)
	}
	c := g.connect("c0")
	g.has(c, "c0", "c1")
	r := g.create(c, "work", 256<<20)
	for _, d := range []time.Duration{3 * time.Second, 6 * time.Second} {
		g.stalls(r, "the manager", d, g.processes["m0"])
	}
	g.loses(r, g.processes["m0"])
}

// TestMemberStall: one of three, whichever leads them. The components were started with the first alone, and turn to the others.
func TestMemberStall(t *testing.T) {
	g := newManaged(t, nil, "m0", "m1", "m2", "c0", "c1")
	g.only = "m0"
	for _, name := range []string{"m0", "m1", "m2", "c0", "c1"} {
		g.start(name)
	}
	c := g.connect("c0")
	g.has(c, "c0", "c1")
	g.votes(c, "m0", "m1", "m2")
	r := g.create(c, "work", 256<<20)
	for _, name := range []string{"c0", "c1"} {
		g.until(name+" knows all managers", func() error {
			i, err := c.Info(t.Context(), name)
			if err != nil {
				return err
			}
			for _, m := range []string{"m0", "m1", "m2"} {
				if !slices.Contains(i.Managers, m) || !slices.ContainsFunc(i.Peers, func(p control.Peer) bool { return p.Name == m }) {
					return fmt.Errorf("it knows managers %v and peers %+v", i.Managers, i.Peers)
				}
			}
			return nil
		})
	}
	for _, name := range []string{"m0", "m0", "m1", "m2"} { // the second time m0 leads no more, and no stall of etcd keeps the others from calling a component lost
		g.stalls(r, name, 8*time.Second, g.processes[name])
	}
}
