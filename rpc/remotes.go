package rpc

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/layer"
)

// remoteCache keeps what was imported from one endpoint, so that a key that
// comes again costs no round trip. What was not used for longest goes first.
type remoteCache struct {
	mu    sync.Mutex
	known map[fabric.Key]*list.Element // in order
	order list.List                    // of *keptRemote; what was used last is in front
}

// keptRemote is one import.
type keptRemote struct {
	*fabric.Remote
	used int64 // on the element's clock
}

const (
	// maxRemotes bounds the imports kept for one endpoint: the parts of the largest Bulk there can
	// be, its list, and the segments that payloads come in. Each takes some 400 bytes.
	maxRemotes = MaxParts + 1024
	// remoteTime is how long an unused one is kept. Most of these are segments that
	// the peer has closed since; of others, a round trip in so much time is no loss.
	remoteTime = time.Minute
)

// find is what was imported already, or nil.
func (rc *remoteCache) find(k fabric.Key) *fabric.Remote {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	e := rc.known[k]
	if e == nil {
		return nil
	}
	rc.order.MoveToFront(e)
	r := e.Value.(*keptRemote)
	r.used = coarseOf(r.Remote)
	return r.Remote
}

func coarseOf(r *fabric.Remote) int64 {
	return r.Endpoint().Element().Layer(layer.Pass{}).CoarseNow()
}

func (rc *remoteCache) get(ctx context.Context, ep *fabric.Endpoint, k fabric.Key) (*fabric.Remote, error) {
	if r := rc.find(k); r != nil {
		return r, nil
	}
	r, err := ep.Import(ctx, k)
	if err != nil {
		return nil, err
	}
	rc.keep(r)
	return r, nil
}

// keep takes in what was imported.
func (rc *remoteCache) keep(r *fabric.Remote) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if e := rc.known[r.Key()]; e != nil { // another goroutine imported it meanwhile
		*e.Value.(*keptRemote) = keptRemote{r, coarseOf(r)}
		rc.order.MoveToFront(e)
		return
	}
	if rc.known == nil {
		rc.known = map[fabric.Key]*list.Element{}
	}
	if len(rc.known) >= maxRemotes {
		rc.drop(rc.order.Back())
	}
	rc.known[r.Key()] = rc.order.PushFront(&keptRemote{r, coarseOf(r)})
}

func (rc *remoteCache) drop(e *list.Element) {
	delete(rc.known, rc.order.Remove(e).(*keptRemote).Key())
}

// trim forgets what was not used for a while.
func (rc *remoteCache) trim(now int64) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	for e := rc.order.Back(); e != nil && now-e.Value.(*keptRemote).used > int64(remoteTime); e = rc.order.Back() {
		rc.drop(e)
	}
	if len(rc.known) == 0 {
		rc.known = nil // a map does not shrink
	}
}

// failed forgets a key that does not hold any more.
func (rc *remoteCache) failed(k fabric.Key, err error) {
	if !errors.Is(err, fabric.ErrRevoked) && !errors.Is(err, fabric.ErrKey) {
		return
	}
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if e := rc.known[k]; e != nil {
		rc.drop(e)
	}
}
