package etcd_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/etcd"
	"github.com/wherry-fabric/wherry/cluster/storetest"
	"github.com/wherry-fabric/wherry/internal/ports"
)

// outside runs an etcd server as an operator would, with a port for clients.
func outside(t *testing.T, dir, client string) *embed.Etcd {
	t.Helper()
	e := embed.NewConfig()
	e.Dir, e.LogLevel, e.ListenPeerUrls = dir, "panic", nil
	u, err := url.Parse(client)
	if err != nil {
		t.Fatal(err)
	}
	e.ListenClientUrls, e.AdvertiseClientUrls = []url.URL{*u}, []url.URL{*u}
	s, err := embed.StartEtcd(e)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDial: the contract over connections to an etcd server, and what a store does while that server is away and when it is back.
func TestDial(t *testing.T) {
	t.Parallel()
	free, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	dir, addr := t.TempDir(), fmt.Sprintf("http://127.0.0.1:%d", free[0])
	server := outside(t, dir, addr)
	defer func() { server.Close() }()
	s, err := etcd.Dial(etcd.Config{Endpoints: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	answers(t, s)
	storetest.Run(t, rigs(s))
	const long = 12 * time.Second // a server that stops waits some 7 s for streams, and lets leases end meanwhile
	for try := 1; ; try++ {
		l, err := s.Lease(t.Context(), long)
		if err == nil {
			_, err = s.Commit(t.Context(), cluster.Txn{Put: []cluster.Pair{{Key: "leased", Lease: l}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		server.Close()
		stopped := time.Since(start)
		if err := s.Ping(t.Context()); err == nil {
			t.Error("a server that is away answers")
		}
		time.Sleep(long - time.Since(start))
		again := time.Now()
		server = outside(t, dir, addr)
		answers(t, s)
		if err = s.Renew(t.Context(), l); err == nil {
			return
		}
		// On a busy machine it takes longer than the lease to stop the server, or to start it, and the lease has ended as it should.
		if started := time.Since(again); stopped < long && started < long || try == 3 {
			t.Fatalf("leases last their whole time again once the server is back (it stopped in %v and was back in %v): %v", stopped, started, err)
		}
	}
}
