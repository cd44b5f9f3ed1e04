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

// TestMemoryForgetsLarge: values that were replaced are remembered only as far as they take little memory.
func TestMemoryForgetsLarge(t *testing.T) {
	m := cluster.NewMemory()
	const large, times = 1 << 20, 100
	var last cluster.Revision
	for range times {
		var err error
		if last, err = m.Commit(t.Context(), cluster.Txn{Put: []cluster.Pair{{Key: "a", Value: make([]byte, large)}}}); err != nil {
			t.Fatal(err)
		}
	}
	kept := 0
	for after := last - 1; ; after-- {
		list, _, err := m.Watch(t.Context(), "a", after)
		if errors.Is(err, cluster.ErrCompacted) {
			break
		}
		if kept = len(list); err != nil || after == 0 {
			t.Fatalf("%d replaced values of %d bytes are kept: %v", kept, large, err)
		}
	}
	if kept == 0 || kept > 16 {
		t.Errorf("%d values of %d bytes are kept for those who watch", kept, large)
	}
	if _, err := m.Commit(t.Context(), cluster.Txn{Put: []cluster.Pair{{Key: "b", Value: make([]byte, 100*large)}}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Watch(t.Context(), "a", last); !errors.Is(err, cluster.ErrCompacted) {
		t.Errorf("after a value that is too large to be kept: %v", err)
	}
	if pairs, at, err := m.Get(t.Context(), ""); err != nil || len(pairs) != 2 || at != last+1 {
		t.Errorf("%d pairs at %d: %v", len(pairs), at, err)
	}
}
