package manager_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/manager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hosts are components that two managers reach, one at a time.
type hosts struct {
	mu   sync.Mutex
	all  map[string]*simComponent
	deaf bool
}

func (h *hosts) Ask(_ context.Context, name, _ string, req, reply any) (*fabric.Endpoint, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all[name] == nil || h.deaf {
		return nil, fabric.ErrPeerLost
	}
	answer, err := h.all[name].serve(req)
	if held, ok := answer.(*pool.HeldReply); ok {
		*reply.(*pool.HeldReply) = *held
	}
	return nil, err
}

func (*hosts) Call(context.Context, *fabric.Endpoint, string, []byte) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// TestTogether: two managers with goroutines and a clock, on one store, asked by many at once.
func TestTogether(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	store, h := cluster.NewMemory(), &hosts{all: map[string]*simComponent{}}
	var managers []*manager.Manager
	for i := range 2 {
		m := manager.Start(manager.Config{Member: cluster.Member{Name: fmt.Sprint("m", i), Addrs: []string{"sim://m"}}, Incarnation: 1, Store: "memory"},
			store, h, slog.New(slog.DiscardHandler))
		defer m.Close()
		managers = append(managers, m)
	}
	for i := range 4 {
		name := fmt.Sprint("c", i)
		h.all[name] = &simComponent{name: name, capacity: 512 * mib, held: map[uint16]*simHeld{}}
		req := &manager.RegisterRequest{Member: cluster.Member{Name: name, Addrs: []string{"sim://" + name}}, Incarnation: 1, Capacity: 512 * mib}
		for {
			if _, err := managers[i%2].Register(ctx, req); err == nil {
				break
			} else if !errors.Is(err, cluster.ErrAway) {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 8 {
				n := pool.NameRequest{Name: fmt.Sprintf("r-%d-%d", i, j)}
				answer, err := managers[(i+j)%2].Do(ctx, owner, 0, pool.CreateRequest{Name: n.Name, Size: 100 * mib})
				if table, ok := answer.(*pool.Table); err != nil || !ok || table.Size != 100*mib {
					t.Errorf("%s: %+v, %v", n.Name, answer, err)
					return
				}
				if _, err := managers[i%2].Do(ctx, owner, 0, pool.LookupRequest{NameRequest: n}); err != nil {
					t.Error(err)
				}
				if _, err := managers[j%2].Do(ctx, owner, 0, manager.DestroyRequest{NameRequest: n}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for name, c := range h.all {
		if len(c.held) > 0 {
			t.Errorf("%s still has %v", name, c.held)
		}
	}
	h.mu.Lock()
	h.deaf = true
	h.mu.Unlock()
	short, end := context.WithTimeout(ctx, time.Second)
	defer end()
	_, err := managers[0].Do(short, owner, 0, pool.CreateRequest{Name: "deaf", Size: mib})
	if !errors.Is(err, manager.ErrTime) || !errors.Is(err, fabric.ErrPeerLost) {
		t.Errorf("components that do not answer: %v", err)
	}
}
