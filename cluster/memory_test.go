package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Rig {
		m, now := cluster.NewMemory(), time.Duration(0)
		return storetest.Rig{Store: m, Lease: time.Second, Pass: func(d time.Duration) { now += d; m.Tick(now) }}
	})
}

// TestMemoryForgets: what a Memory remembers for those who watch is bounded, and who comes too late is told so.
func TestMemoryForgets(t *testing.T) {
	m := cluster.NewMemory()
	var last cluster.Revision
	for i := range 3000 {
		var err error
		if last, err = m.Commit(t.Context(), cluster.Txn{Put: []cluster.Pair{{Key: fmt.Sprint("a/", i)}, {Key: "b"}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := m.Watch(t.Context(), "a/", 1); !errors.Is(err, cluster.ErrCompacted) {
		t.Error(err)
	}
	list, at, err := m.Watch(t.Context(), "a/", last-500)
	if err != nil || at != last || len(list) != 500 || list[0].Changed != last-499 {
		t.Errorf("%d changes up to %d, %v", len(list), at, err)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := m.Watch(late, "c", last); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
