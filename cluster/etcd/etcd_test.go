package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/etcd"
	"github.com/wherry-fabric/wherry/cluster/storetest"
	"github.com/wherry-fabric/wherry/internal/ports"
)

// etcd's members keep HTTP connections to each other, and let them end by themselves.
func TestMain(m *testing.M) {
	var own []goleak.Option
	for _, fn := range []string{"(*persistConn).readLoop", "(*persistConn).writeLoop", "(*connReader).backgroundRead", "(*conn).serve"} {
		own = append(own, goleak.IgnoreAnyFunction("net/http."+fn))
	}
	goleak.VerifyTestMain(m, own...)
}

// start runs a member until the test ends.
func start(t *testing.T, cfg etcd.ServerConfig) *etcd.Server {
	t.Helper()
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := etcd.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	elected(t, s)
	return s
}

// elected waits until a member answers: on a busy machine an election takes long.
func elected(t *testing.T, s *etcd.Server) {
	t.Helper()
	answers(t, s.Store())
}

func answers(t *testing.T, s *etcd.Store) {
	t.Helper()
	for until := time.Now().Add(2 * time.Minute); ; {
		err := s.Ping(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

// TestCloseIsNoError: a member that is told to end logs no error, though its listener for the other members ends under etcd.
func TestCloseIsNoError(t *testing.T) {
	t.Parallel()
	free, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer // slog's handler writes one line at a time
	self := etcd.Member{Name: "a", Addr: fmt.Sprintf("127.0.0.1:%d", free[0])}
	s, err := etcd.Start(t.Context(), etcd.ServerConfig{Name: "a", Dir: t.TempDir(), Members: []etcd.Member{self}, New: true,
		Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	elected(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	closed := 0
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=ERROR") {
			t.Error(line)
		}
		if strings.Contains(line, "use of closed network connection") {
			closed++
		}
	}
	if closed == 0 {
		t.Error("nothing is said of the listener")
	}
}

// lease is longer than etcd's shortest, because a busy machine renews late.
const lease = 3 * time.Second

// TestStore: the contract that Memory keeps, kept by etcd. One member serves all tests of the suite.
func TestStore(t *testing.T) {
	t.Parallel()
	s := start(t, etcd.ServerConfig{Name: "a", Dir: t.TempDir()}).Store()
	storetest.Run(t, rigs(s))
}

// rigs empties a store for each test of the suite.
func rigs(s *etcd.Store) func(t *testing.T) storetest.Rig {
	return func(t *testing.T) storetest.Rig {
		list, _, err := s.Get(t.Context(), "")
		for _, p := range list {
			if err == nil {
				_, err = s.Commit(t.Context(), cluster.Txn{Remove: []string{p.Key}})
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return storetest.Rig{Store: s, Lease: lease, Pass: func(d time.Duration) {
			if d >= lease {
				d += 3 * time.Second / 2 // etcd looks for leases that are over twice a second
			}
			time.Sleep(d)
		}}
	}
}

// TestKept: what a member knew it knows after a restart, leases included: they last their whole time again.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	first, err := etcd.Start(t.Context(), etcd.ServerConfig{Name: "a", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	elected(t, first)
	s := first.Store()
	l, err := s.Lease(t.Context(), time.Minute)
	if err == nil {
		_, err = s.Commit(t.Context(), cluster.Txn{Put: []cluster.Pair{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte("2"), Lease: l}}})
	}
	_, twice := etcd.Start(t.Context(), etcd.ServerConfig{Name: "a", Dir: dir})
	if err := errors.Join(err, first.Close()); err != nil {
		t.Fatal(err)
	}
	if twice == nil || !strings.Contains(twice.Error(), "another process uses this directory") {
		t.Errorf("a second member in one directory: %v", twice)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, cluster.ErrAway) {
		t.Errorf("a member that was closed: %v", err)
	}
	s = start(t, etcd.ServerConfig{Name: "a", Dir: dir}).Store()
	list, _, err := s.Get(t.Context(), "")
	if err != nil || len(list) != 2 || string(list[0].Value) != "1" || list[1].Lease != l {
		t.Errorf("%+v, %v", list, err)
	}
	if err := s.Renew(t.Context(), l); err != nil {
		t.Error(err)
	}
}

// TestAway: a store that does not answer says so within the time that there is, and names its addresses.
func TestAway(t *testing.T) {
	s, err := etcd.Dial(etcd.Config{Endpoints: []string{"http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for _, err := range []error{s.Ping(ctx), s.Renew(ctx, 1)} {
		if !errors.Is(err, cluster.ErrAway) || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Error(err)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		cfg  etcd.Config
		want string
	}{
		{etcd.Config{}, "0 addresses"},
		{etcd.Config{Endpoints: []string{"host:2379"}}, "is not http://host:2379"},
		{etcd.Config{Endpoints: []string{"https://host:2379"}}, "--etcd-ca"},
	} {
		if _, err := etcd.Dial(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
	for _, c := range []struct {
		cfg  etcd.ServerConfig
		want string
	}{
		{etcd.ServerConfig{Name: "a"}, "directory"},
		{etcd.ServerConfig{Name: "a", Dir: "/x", Members: []etcd.Member{{"b", "h:1"}}}, "not among the members"},
		{etcd.ServerConfig{Name: "a", Dir: "/x", Members: []etcd.Member{{"a", "h"}}}, "host:port"},
		{etcd.ServerConfig{Name: "a", Dir: "/x", Members: []etcd.Member{{"a", "h:1"}, {"a", "h:2"}}}, "name of its own"},
		{etcd.ServerConfig{Name: "a", Dir: "/x", Members: make([]etcd.Member, 8)}, "8 members"},
	} {
		if _, err := etcd.Start(t.Context(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
}
