package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/cluster/etcd"
	"github.com/wherry-fabric/wherry/internal/ports"
)

// members are three that one cluster may have. Each has a certificate.
type members struct {
	*testing.T
	dir   string
	list  []etcd.Member
	files map[string]ca.Files

	mu sync.Mutex
	up map[string]*etcd.Server
}

func newMembers(t *testing.T, names ...string) *members {
	t.Helper()
	g := &members{T: t, dir: t.TempDir(), files: map[string]ca.Files{}, up: map[string]*etcd.Server{}}
	a, err := ca.Init(filepath.Join(g.dir, "ca"), "test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	free, err := ports.Free(len(names))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		g.list = append(g.list, etcd.Member{Name: name, Addr: fmt.Sprintf("127.0.0.1:%d", free[i])})
		g.files[name] = issued(t, a, g.dir, ca.Request{Principal: cluster.Principal{Name: name, Caps: cluster.CapMember}, Node: true, Hosts: []string{"127.0.0.1"}})
	}
	t.Cleanup(func() {
		for _, s := range g.up {
			s.Close()
		}
	})
	return g
}

// begin starts a member, which joins by asking the others that are up.
func (g *members) begin(name string, list []etcd.Member) (*etcd.Server, error) {
	return g.beginIn(g.Context(), name, list, false)
}

func (g *members) beginIn(ctx context.Context, name string, list []etcd.Member, anew bool) (*etcd.Server, error) {
	s, err := etcd.Start(ctx, etcd.ServerConfig{Name: name, Dir: filepath.Join(g.dir, name), Members: list, TLS: g.files[name], New: anew,
		Join: func(ctx context.Context, m etcd.Member) ([]cluster.StoreMember, error) {
			err := fmt.Errorf("%w: nobody is up", cluster.ErrAway)
			g.mu.Lock()
			up := maps.Clone(g.up)
			g.mu.Unlock()
			for other, s := range up {
				if other != name {
					var list []cluster.StoreMember
					if list, err = s.Join(ctx, m.Name, m.Addr); err == nil {
						return list, nil
					}
				}
			}
			return nil, err
		}})
	if err == nil {
		g.mu.Lock()
		g.up[name] = s
		g.mu.Unlock()
	}
	return s, err
}

func (g *members) start(name string, list []etcd.Member) *etcd.Server {
	g.Helper()
	s, err := g.begin(name, list)
	if err != nil {
		g.Fatal(err)
	}
	return s
}

func (g *members) stop(name string) {
	g.up[name].Close()
	delete(g.up, name)
}

// voting waits until these decide, and no others.
func (g *members) voting(s *etcd.Server, names ...string) {
	g.Helper()
	for until := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		list, err := s.Members(g.Context())
		var have []string
		for _, m := range list {
			if m.Voting {
				have = append(have, m.Name)
			}
		}
		slices.Sort(have)
		if err == nil && len(list) == len(names) && slices.Equal(have, names) {
			return
		}
		if time.Now().After(until) {
			g.Fatalf("%+v (%v), want %v", list, err, names)
		}
	}
}

// answer is what a change ends with, once the members have been connected for long enough to make any.
func (g *members) answer(change func() error) error {
	for until := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if err := change(); !errors.Is(err, cluster.ErrAway) || time.Now().After(until) {
			return err
		}
	}
}

// keeps checks that a member knows what was put at the beginning.
func (g *members) keeps(when string, s *etcd.Server) {
	g.Helper()
	answers(g.T, s.Store())
	list, _, err := s.Store().Get(g.Context(), "kept")
	if err != nil || len(list) != 1 || string(list[0].Value) != "yes" {
		g.Fatalf("%s: %+v, %v", when, list, err)
	}
}

// silent waits until these, and no others, do not answer a member.
func (g *members) silent(s *etcd.Server, names ...string) {
	g.Helper()
	for until := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		list, err := s.Members(g.Context())
		var mute []string
		for _, m := range list {
			if m.Silent {
				mute = append(mute, m.Name)
			}
		}
		switch {
		case err == nil && slices.Equal(mute, names):
			return
		case time.Now().After(until):
			g.Fatalf("%v do not answer, and should be %v: %v", mute, names, err)
		}
	}
}

// TestMembers: a member that was alone takes in others; one whose directory is lost comes back; one leaves. What was kept stays.
func TestMembers(t *testing.T) {
	t.Parallel()
	g := newMembers(t, "a", "b", "c")
	a := g.start("a", nil)
	answers(t, a.Store())
	if _, err := a.Store().Commit(t.Context(), cluster.Txn{Put: []cluster.Pair{{Key: "kept", Value: []byte("yes")}}}); err != nil {
		t.Fatal(err)
	}
	g.stop("a")
	var work sync.WaitGroup
	for _, name := range []string{"b", "c"} { // they wait for a, and begin nothing without it
		work.Go(func() {
			if _, err := g.begin(name, g.list); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	a = g.start("a", g.list)
	if work.Wait(); t.Failed() {
		return
	}
	c := g.up["c"]
	g.voting(c, "a", "b", "c")
	g.keeps("grown", c)

	if err := g.answer(func() error { _, err := c.Join(t.Context(), "b", g.list[1].Addr); return err }); !errors.Is(err, cluster.ErrRunning) || !strings.Contains(err.Error(), "b is running at https://") {
		t.Errorf("a second b, while the first runs: %v", err)
	}
	g.stop("b")
	if err := os.RemoveAll(filepath.Join(g.dir, "b")); err != nil {
		t.Fatal(err)
	}
	b := g.start("b", g.list)
	g.voting(a, "a", "b", "c")
	g.silent(b)
	g.stop("c")
	g.keeps("a majority with the one that was replaced", b)
	g.silent(b, "c")
	if _, err := b.Store().Commit(t.Context(), cluster.Txn{Put: []cluster.Pair{{Key: "more"}}}); err != nil {
		t.Errorf("a commit by the member that was replaced: %v", err)
	}

	if err := g.answer(func() error { return b.Leave(t.Context(), "d") }); !errors.Is(err, cluster.ErrNoMember) || !strings.Contains(err.Error(), "a, b, c") {
		t.Errorf("one that is not there leaves: %v", err)
	}
	if err := g.answer(func() error { return b.Leave(t.Context(), "c") }); err != nil {
		t.Fatal(err)
	}
	g.voting(b, "a", "b")
	if c, err := g.begin("c", g.list); err == nil { // with the directory of the member that left
		select {
		case err := <-c.Failed():
			if !strings.Contains(err.Error(), "is no member any more") || !strings.Contains(err.Error(), filepath.Join(g.dir, "c")) {
				t.Errorf("a member that left begins: %v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Error("a member that left goes on")
		}
	} else {
		t.Errorf("a member that left begins: %v", err)
	}
}

// TestJoinRefused: a member that cannot join says what to do.
func TestJoinRefused(t *testing.T) {
	t.Parallel()
	g := newMembers(t, "a", "b")
	a, err := g.beginIn(t.Context(), "a", g.list[:1], true)
	if err != nil {
		t.Fatal(err)
	}
	answers(t, a.Store())
	_, err = etcd.Start(t.Context(), etcd.ServerConfig{Name: "b", Dir: filepath.Join(g.dir, "b"), Members: g.list, TLS: g.files["b"]})
	if err == nil || !strings.Contains(err.Error(), "a cluster without this member") {
		t.Errorf("nobody to ask: %v", err)
	}
	_, err = etcd.Start(t.Context(), etcd.ServerConfig{Name: "b", Dir: filepath.Join(g.dir, "b"), Members: g.list, TLS: g.files["b"],
		Join: func(context.Context, etcd.Member) ([]cluster.StoreMember, error) { return nil, cluster.ErrForbidden }})
	if !errors.Is(err, cluster.ErrForbidden) {
		t.Errorf("forbidden: %v", err)
	}
}

// TestNewWaits: a member that is told to begin a cluster does not while another one takes connections, though it does not answer: that one may have a
// cluster.
func TestNewWaits(t *testing.T) {
	t.Parallel()
	g := newMembers(t, "a", "b")
	l, err := net.Listen("tcp", g.list[1].Addr)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
			select {
			case asked <- struct{}{}:
			default:
			}
		}
	}()
	began := make(chan error, 1)
	go func() {
		_, err := g.beginIn(t.Context(), "a", g.list, true)
		began <- err
	}()
	for range 3 {
		select {
		case <-asked:
		case err := <-began:
			t.Fatalf("a begins while b is there: %v", err)
		}
	}
	l.Close()
	if err := <-began; err != nil {
		t.Error(err)
	}
}

// TestLostDirectory: a member whose directory is lost begins no cluster by itself while the others, which may have one, are down: it waits, until its
// context ends.
func TestLostDirectory(t *testing.T) {
	t.Parallel()
	g := newMembers(t, "a", "b")
	a, err := g.beginIn(t.Context(), "a", g.list, true)
	if err != nil {
		t.Fatal(err)
	}
	b := g.start("b", g.list)
	answers(t, b.Store())
	g.stop("b")
	a.Close()
	delete(g.up, "a")
	if err := os.RemoveAll(filepath.Join(g.dir, "a")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := g.beginIn(ctx, "a", g.list, false); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "--manager-new") {
		t.Errorf("a, with nothing: %v", err)
	}
	if _, err := g.beginIn(ctx, "a", g.list, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a was not told whether anybody is there: %v", err)
	}
	b = g.start("b", g.list) // its cluster is there still, and is without a majority
	if _, err := g.beginIn(t.Context(), "a", g.list, true); !errors.Is(err, cluster.ErrRunning) || !strings.Contains(err.Error(), "a, b") {
		t.Errorf("a, with nothing, is told to begin anew while b is up: %v", err)
	}
	if _, err := g.beginIn(t.Context(), "b", g.list, true); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second b: %v", err)
	}
	g.stop("b")
	if _, err := g.beginIn(t.Context(), "b", g.list, true); err == nil || !strings.Contains(err.Error(), "leave --manager-new out") {
		t.Errorf("b, with its data, is told to begin anew: %v", err)
	}
}
