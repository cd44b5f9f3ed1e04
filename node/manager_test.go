package node

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool/manager"
)

// storeWithout is a store in this process, with a clock, that takes no entries of some nodes while it is told so.
type storeWithout struct {
	*cluster.Memory
	without atomic.Pointer[string]
}

func (s *storeWithout) Commit(ctx context.Context, t cluster.Txn) (cluster.Revision, error) {
	if name := s.without.Load(); name != nil {
		for _, p := range t.Put {
			if strings.HasSuffix(p.Key, "/component/"+*name) {
				return 0, fmt.Errorf("%w: for this test", cluster.ErrConflict)
			}
		}
	}
	return s.Memory.Commit(ctx, t)
}

// ends ends all leases, whoever holds them is alive, as an etcd leader does that stood still and comes back.
func (s *storeWithout) ends(t *testing.T) {
	list, _, err := s.Get(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.Lease != 0 {
			s.End(t.Context(), p.Lease)
		}
	}
}

func (s *storeWithout) clock(t *testing.T) {
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-tick.C:
				s.Tick(time.Since(began))
			case <-end:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(end)
		<-ended
		tick.Stop()
	})
}

// TestManagerKept: a node goes on with the manager that answers it, also while that one's own entry is missing in what it answers: a node that then
// gave up its connection to it would be taken for lost.
func TestManagerKept(t *testing.T) {
	ts := tokens(t, cluster.CapMember, "node")
	store := &storeWithout{Memory: cluster.NewMemory()}
	store.clock(t)
	var log logText
	manages := func(name string, peers ...cluster.Member) *Node {
		cfg := nameConflictConfig(ts, name, &log, peers...)
		cfg.Etcd = []string{"http://127.0.0.1:1"} // OpenStore opens another one
		cfg.OpenStore = func(*Config) (*Store, error) { return &Store{Store: store, Where: "memory"}, nil }
		return aged(t, cfg, time.Hour)
	}
	first := manages("m0")
	second := manages("m1", memberOf(first))
	cfg := nameConflictConfig(ts, "c0", &log, memberOf(first))
	cfg.Managers = []string{"m0"}
	c := aged(t, cfg, time.Hour)
	waitFor(t, "c0 knows both managers", func() bool { return len(c.managers()) == 2 && c.links.Endpoint("m1") != nil })
	first.Close() // now it is registered with the second
	waitFor(t, "c0 turns to m1", func() bool {
		c.managing.mu.Lock()
		defer c.managing.mu.Unlock()
		return len(c.managing.others) > 0 && c.managing.others[len(c.managing.others)-1] == "m1"
	})
	name := second.Name()
	store.without.Store(&name)
	store.ends(t)
	there := func(key string) bool {
		list, _, err := store.Get(t.Context(), key)
		return err == nil && len(list) > 0
	}
	waitFor(t, "c0 is registered again", func() bool { return there("/wherry/1/component/c0") })
	if there("/wherry/1/component/m1") {
		t.Fatal("m1 has an entry")
	}
	for end := time.Now().Add(2 * manager.LeaseTime); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if !there("/wherry/1/component/c0") {
			t.Fatalf("c0 is lost, and m1 answered it: it knows %v", c.managers())
		}
	}
	if c.links.Endpoint("m1") == nil {
		t.Error("c0 gave up its connection to the manager that answers it")
	}
	store.without.Store(nil)
	waitFor(t, "m1 is back", func() bool { return there("/wherry/1/component/m1") })
}
