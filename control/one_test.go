package control

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
)

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for tries, end := 0, time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if tries++; tries > 3000 && time.Now().After(end) { // a machine that stood still has not looked
			t.Fatalf("never: %s", what)
		}
	}
}

// TestOneOfTwo: nodes that dial each other, at once or one after the other, have one connection and use it, and so again when that has ended.
func TestOneOfTwo(t *testing.T) {
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			nodes, addrs := [2]*element{newElement(t, "a", true), newElement(t, "b", true)}, [2]string{}
			for i, n := range nodes {
				var err error
				if addrs[i], err = n.el.Listen("tcp://127.0.0.1:0"); err != nil {
					t.Fatal(err)
				}
			}
			var both sync.WaitGroup
			for i, n := range nodes {
				both.Go(func() {
					n.links.Add(cluster.Member{Name: nodes[1-i].el.Name(), Addrs: []string{addrs[1-i]}})
				})
			}
			both.Wait()
			var used [2]*fabric.Endpoint
			one := func() bool {
				for i, n := range nodes {
					if used[i] = n.links.Endpoint(nodes[1-i].el.Name()); used[i] == nil || !slices.Equal(n.el.Endpoints(), []*fabric.Endpoint{used[i]}) {
						return false
					}
				}
				return true
			}
			until(t, "one connection", one)
			first := used
			first[0].Close()
			until(t, "its end", func() bool { return first[1].Err() != nil })
			until(t, "one connection again", func() bool { return one() && used[0] != first[0] && used[1] != first[1] })
		})
	}
}
