package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

const (
	// crowdTurns is how often a crowd, as many calls one after the other, and small crowds take turns.
	crowdTurns = 10
	// crowdVertices is the size of the graph, all of which each closure reaches: about a millisecond's work.
	crowdVertices = 20_000
	// smallCrowd is how many call at once in the small crowds.
	smallCrowd = 8
	// MaxCalls bounds a crowd.
	MaxCalls = 4096
)

// crowdGraph is the server's graph as a closure wants it: offsets and targets of edges forward. Those against them are absent.
// Vertex v has the edges to 2v+1 and 2v+2, so the first reaches all.
func crowdGraph() (windows [][]byte) {
	offsets, targets := make([]byte, 8, 8*(crowdVertices+1)), make([]byte, 0, 4*crowdVertices)
	for v := range uint32(crowdVertices) {
		for to := 2*v + 1; to <= 2*v+2 && to < crowdVertices; to++ {
			targets = binary.LittleEndian.AppendUint32(targets, to)
		}
		offsets = binary.LittleEndian.AppendUint64(offsets, uint64(len(targets)/4))
	}
	return [][]byte{offsets, targets}
}

// lendGraph gives the keys of the graph's windows.
func (s *station) lendGraph() (keys [][]byte, err error) {
	for _, w := range crowdGraph() {
		seg, err := s.el.NewSegment(uint64(len(w)), 0)
		if err != nil {
			return nil, err
		}
		copy(seg.Bytes(), w)
		key, err := seg.Key(fabric.RightRead)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key.Append(nil))
	}
	return keys, nil
}

// graph is the table of the server's graph.
func (c *client) graph() (*cluster.Table, error) {
	s := c.spec.Servers[0]
	t := &cluster.Table{Name: "crowd", Version: 1, Kind: cluster.Raw, Sharding: cluster.Sharding{Kind: cluster.Block, Elements: 1, Rows: crowdVertices}}
	shard := cluster.Shard{Element: s.Name, Incarnation: s.Incarnation, Addrs: []string{s.Addr}}
	for i, w := range crowdGraph() {
		key, err := fabric.DecodeKey(s.Keys[i])
		if err != nil {
			return nil, err
		}
		shard.Windows = append(shard.Windows, cluster.Window{Key: key, Size: uint64(len(w))})
	}
	shard.Windows = append(shard.Windows, cluster.Window{}, cluster.Window{}) // against the edges
	t.Shards = []cluster.Shard{shard}
	t.FillRows()
	return t, nil
}

// crowd measures many closures at once on one element, a goroutine each, beside as many one after the other.
func (c *client) crowd() error {
	table, err := c.graph()
	if err != nil {
		return err
	}
	f, err := c.rt.Prepare(xrdma.Closure(), table)
	if err != nil {
		return err
	}
	defer f.Close()
	turns := c.spec.Rounds
	if turns == 0 {
		turns = crowdTurns
	}
	k := &crowd{f: f, ctx: c.ctx, payload: xrdma.ClosureArgs{Vertices: []uint32{0}}.Encode()}
	if err := k.call(); err != nil {
		return err
	}
	n := c.spec.Calls
	k.together(n, n) // instances are made once
	k.failed.Store(0)
	var over, all, small, serial samples
	for turn := range turns {
		c.say("closures at once, one after the other, and eight at once", float64(turn)/float64(turns))
		crowd := k.together(n, n)
		one := k.together(n, 1)
		all, serial = append(all, float64(n)/crowd.Seconds()), append(serial, float64(n)/one.Seconds())
		over = append(over, crowd.Seconds()/one.Seconds())
		small = append(small, float64(n)/k.together(n, smallCrowd).Seconds())
	}
	if err := k.wrong.Load(); err != nil {
		return *err
	}
	c.r.Set("calls", n)
	c.r.Set("failed", k.failed.Load())
	if why := k.why.Load(); why != nil {
		c.r.Set("failed_with", *why)
	}
	c.r.Set("over_serial", over.p(0.5))
	c.r.Set("calls_per_s", all.p(0.5))
	c.r.Set("calls_per_s_of_8", small.p(0.5))
	c.r.Set("calls_per_s_serial", serial.p(0.5))
	c.r.Set("vertices", crowdVertices)
	c.r.Set("crowds", turns)
	return nil
}

// crowd calls closures.
type crowd struct {
	f       *inject.Function
	ctx     context.Context
	payload []byte
	failed  atomic.Int64
	why     atomic.Pointer[string] // the first one failed
	wrong   atomic.Pointer[error]  // an answer that is
}

// call makes one call and looks at what it reached.
func (k *crowd) call() error {
	fut, err := k.f.Start(k.ctx, []inject.Root{{Element: 0, Payload: k.payload}}, inject.Options{})
	if err != nil {
		return err
	}
	r, err := fut.Wait(k.ctx)
	if err != nil {
		return err
	}
	reached := 0
	for _, p := range r.Pieces {
		reached += len(p.Data) / 4
	}
	if reached != crowdVertices {
		err := fmt.Errorf("bench: a closure reached %d vertices of %d", reached, crowdVertices)
		k.wrong.CompareAndSwap(nil, &err)
		return err
	}
	return nil
}

// together makes n calls from so many goroutines and says how long that took.
func (k *crowd) together(n, callers int) time.Duration {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	start := time.Now()
	for range callers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for left.Add(-1) >= 0 {
				if err := k.call(); err != nil {
					k.failed.Add(1)
					text := err.Error()
					k.why.CompareAndSwap(nil, &text)
				}
			}
		}()
	}
	wg.Wait()
	return time.Since(start)
}
