package client

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/pool/manager"
)

// busyNodes are what nodes said of their processor time when Top asked last.
type busyNodes struct {
	mu   sync.Mutex
	last map[string]control.ProcessorStatus
}

// percents is how busy each node was since it was asked last; at first, since it began.
func (b *busyNodes) percents(nodes []*control.Status) []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	next, out := map[string]control.ProcessorStatus{}, make([]int, len(nodes))
	for i, s := range nodes {
		was, now := b.last[s.Name], s.Processor
		if was.SinceMs > now.SinceMs { // it was started again
			was = control.ProcessorStatus{}
		}
		if all := (now.SinceMs - was.SinceMs) * int64(now.Processors); all > 0 {
			out[i] = int(max(100*(now.UsedMs-was.UsedMs)/all, 0))
		}
		next[s.Name] = now
	}
	b.last = next
	return out
}

// topOfNodes is Top where there is no manager.
func (c *Client) topOfNodes(ctx context.Context) (*manager.Top, error) {
	replies, err := gather[control.Status](ctx, c, control.CallStatus, control.StatusRequest{Version: control.Version})
	if err != nil {
		return nil, err
	}
	t := &manager.Top{Managers: []string{}, Components: []manager.TopComponent{}, Regions: []manager.TopRegion{}}
	busy := c.busy.percents(replies)
	addrs := map[string][]string{}
	for _, s := range c.links.States() {
		addrs[s.Member.Name] = s.Member.Addrs
	}
	for i, s := range replies {
		m := &s.Memory
		t.Components = append(t.Components, manager.TopComponent{Extents: m.PoolExtents, Free: uint64(max(min(m.PoolLimitBytes-m.PoolBytes, m.LimitBytes-m.LentBytes), 0)),
			Component: manager.Component{Member: cluster.Member{Name: s.Name, Addrs: addrs[s.Name]}, Incarnation: s.Incarnation, Capacity: uint64(m.PoolLimitBytes), Local: uint64(m.PoolBytes), Load: busy[i]}})
	}
	for _, s := range c.links.States() {
		if !slices.ContainsFunc(t.Components, func(n manager.TopComponent) bool { return n.Name == s.Member.Name }) {
			t.Away = append(t.Away, s.Member.Name)
		}
	}
	list, err := c.Regions(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		t.Regions = append(t.Regions, manager.TopRegion{Region: r.Region, Name: r.Name, Owner: r.Owner, Size: r.Size, Epoch: r.Epoch, State: "ready", Extents: r.Extents, Components: []string{r.Component}})
	}
	slices.Sort(t.Away)
	slices.SortFunc(t.Components, func(a, b manager.TopComponent) int { return cmp.Compare(a.Name, b.Name) })
	return t, nil
}
