package rpc

import (
	"container/list"
	"context"
	"errors"
	"sync"

	"github.com/wherry-fabric/wherry/fabric"
)

// remoteCache keeps what was imported from one endpoint, so that a key that
// comes again costs no round trip. What was not used for longest goes first.
type remoteCache struct {
	mu    sync.Mutex
	known map[fabric.Key]*list.Element // in order
	order list.List                    // of *fabric.Remote; what was used last is in front
}

// maxRemotes bounds the imports kept for one endpoint: the parts of the largest Bulk there can
// be, its list, and the segments that payloads come in. Each takes some 400 bytes.
const maxRemotes = MaxParts + 1024

// find is what was imported already, or nil.
func (rc *remoteCache) find(k fabric.Key) *fabric.Remote {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	e := rc.known[k]
	if e == nil {
		return nil
	}
	rc.order.MoveToFront(e)
	return e.Value.(*fabric.Remote)
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
	if e := rc.known[r.Key()]; e != nil { // somebody else imported it meanwhile
		e.Value = r
		rc.order.MoveToFront(e)
		return
	}
	if rc.known == nil {
		rc.known = map[fabric.Key]*list.Element{}
	}
	if len(rc.known) >= maxRemotes {
		rc.drop(rc.order.Back())
	}
	rc.known[r.Key()] = rc.order.PushFront(r)
}

func (rc *remoteCache) drop(e *list.Element) {
	delete(rc.known, rc.order.Remove(e).(*fabric.Remote).Key())
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
