package node

import (
	"sync"

	"github.com/wherry-fabric/wherry/fabric"
)

// traffic sums what went over all endpoints, those that are gone included, so
// that the sums never fall.
type traffic struct {
	mu   sync.Mutex
	live map[*fabric.Endpoint]struct{}
	past fabric.EndpointStats
}

func (t *traffic) add(ep *fabric.Endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = map[*fabric.Endpoint]struct{}{}
	}
	t.live[ep] = struct{}{}
}

func (t *traffic) remove(ep *fabric.Endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.live[ep]; ok {
		delete(t.live, ep)
		sum(&t.past, ep.Stats())
	}
}

// total is the sum; what waits is that of live endpoints only.
func (t *traffic) total() fabric.EndpointStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.past
	all.Outbox, all.Reserved = 0, 0
	for ep := range t.live {
		sum(&all, ep.Stats())
	}
	return all
}

func sum(to *fabric.EndpointStats, s fabric.EndpointStats) {
	to.NormalFrames += s.NormalFrames
	to.NormalBytes += s.NormalBytes
	to.SentFrames += s.SentFrames
	to.SentBytes += s.SentBytes
	to.Outbox += s.Outbox
	to.Reserved += s.Reserved
}
