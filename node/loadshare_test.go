package node

import (
	"errors"
	"fmt"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
)

// TestLoadsShared: loads that one principal begins and leaves alone do not keep others from loading.
func TestLoadsShared(t *testing.T) {
	s := newStore(nil, nil)
	begin := func(who string, n int) (*load, error) {
		l := &load{name: fmt.Sprint(who, n), by: cluster.Principal{Name: who}}
		l.id = control.LoadID(l.name)
		return l, s.begin(l, func() uint64 { return 1 })
	}
	var first *load
	for n := range maxLoads {
		l, err := begin("eve", n)
		if first == nil {
			first = l
		}
		if refused := n >= maxLoads-maxLoads/4; (err != nil) != refused || refused && !errors.Is(err, control.ErrMemory) {
			t.Fatalf("load %d: %v", n, err)
		}
	}
	if _, err := begin("ann", 0); err != nil {
		t.Fatal(err)
	}
	s.end(first, false)
	if _, err := begin("eve", maxLoads); err != nil {
		t.Error(err)
	}
}
