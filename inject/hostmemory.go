package inject

import (
	"context"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
)

// The host calls that read and write windows of any element.

// window is n bytes of a window from offset on, as local memory, or the whole of its remote; both nil with a
// status, which call is told. A remote one's rights and range its owner checks.
func (h *host) window(call string, element, window uint32, offset uint64, n int, need fabric.Rights) (local []byte, remote *fabric.Remote, st abi.Status) {
	b := h.bound
	if element = h.element(element); b.table == nil || element >= uint32(len(b.table.Shards)) {
		return nil, nil, h.told(call, abi.ErrArgument)
	}
	shard := &b.table.Shards[element]
	if window >= uint32(len(shard.Windows)) || shard.Windows[window].Size == 0 {
		return nil, nil, h.told(call, abi.ErrNoWindow)
	}
	if int(element) != b.self {
		remote, err := h.remote(element, window, shard)
		return nil, remote, h.status(call, err)
	}
	w := &b.windows[window]
	switch {
	case w.rights&need != need:
		return nil, nil, h.told(call, abi.ErrRights)
	case !h.rt.el.Holds(shard.Windows[window].Key):
		return nil, nil, h.told(call, abi.ErrRevoked)
	case offset > uint64(len(w.mem)) || uint64(n) > uint64(len(w.mem))-offset:
		return nil, nil, h.told(call, abi.ErrArgument)
	}
	return w.mem[offset:], nil, abi.OK
}

func (h *host) remote(element, window uint32, shard *cluster.Shard) (*fabric.Remote, error) {
	b, rt := h.bound, h.rt
	at := remoteWindow{element, window}
	rt.mu.Lock()
	r := b.remotes[at]
	n, ok := rt.element(shard.Incarnation)
	ep := rt.endpoint(n)
	rt.mu.Unlock()
	if r != nil && r.Endpoint() == ep && ep.Err() == nil { // else the endpoint is another one now
		return r, nil
	}
	if !ok || ep == nil {
		return nil, fabric.ErrPeerLost
	}
	h.release()
	r, err := b.table.Import(h.waitContext(), ep, int(element), int(window))
	if err != nil {
		return nil, err
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if b.remotes == nil {
		b.remotes = map[remoteWindow]*fabric.Remote{}
	}
	b.remotes[at] = r
	return r, nil
}

// reach is the context of an operation on a remote; what is not mapped takes a while, in which others go on.
func (h *host) reach(remote *fabric.Remote) context.Context {
	if !remote.Mapped() {
		h.release()
	}
	return h.waitContext()
}

// Get copies from a window of any element.
func (h *host) Get(element, window uint32, offset uint64, dst []byte) abi.Status {
	local, remote, st := h.window("get", element, window, offset, len(dst), fabric.RightRead)
	switch {
	case st != abi.OK:
		return st
	case remote != nil && remote.Mapped():
		return h.status("get", remote.Get(context.Background(), dst, offset)) // a copy, which waits for nobody
	case remote != nil:
		return h.status("get", remote.Get(h.reach(remote), dst, offset))
	}
	fabric.CopyOut(dst, local)
	return abi.OK
}

// GetNear is Get of memory that is mapped here. Where an element is lost it says ErrFar too, as a worker does which asks nobody: whoever goes there
// then hears that it is lost.
func (h *host) GetNear(element, window uint32, offset uint64, dst []byte) abi.Status {
	if h.far(element) {
		return abi.ErrFar
	}
	local, remote, st := h.window("get_near", element, window, offset, len(dst), fabric.RightRead)
	switch {
	case st != abi.OK:
		return st
	case remote == nil:
		fabric.CopyOut(dst, local)
		return abi.OK
	case !remote.Mapped():
		return abi.ErrFar
	}
	return h.status("get_near", remote.Get(context.Background(), dst, offset)) // a copy, which waits for nobody
}

// far reports whether an element's memory cannot be mapped here, as there is no endpoint to it or that hands none over. It says no of this element, and of those that get has an
// error for.
func (h *host) far(element uint32) bool {
	b := h.bound
	if element = h.element(element); b.table == nil || element >= uint32(len(b.table.Shards)) || int(element) == b.self {
		return false
	}
	ep := h.endpointTo(element)
	return ep == nil || !ep.Shared()
}

// endpointTo is the endpoint to an element of the table; nil: there is none.
func (h *host) endpointTo(element uint32) *fabric.Endpoint {
	h.rt.mu.Lock()
	defer h.rt.mu.Unlock()
	if n, ok := h.rt.element(h.bound.table.Shards[element].Incarnation); ok {
		return h.rt.endpoint(n)
	}
	return nil
}

// Near reports whether there may be another element whose memory is mapped here.
func (h *host) Near() bool {
	if h.bound.table == nil || h.bound.code.img.Call().Start == image.StartChunk { // whose elements differ from call to call
		return true
	}
	// Asked before every run until it says yes, so that is found out again only after an endpoint came.
	came := h.rt.came.Load()
	if h.bound.alone.Load() == came+1 {
		return false
	}
	for i := range h.bound.table.Shards {
		if ep := h.endpointTo(uint32(i)); i != h.bound.self && ep != nil && ep.Shared() {
			return true
		}
	}
	h.bound.alone.Store(came + 1)
	return false
}

// Put copies to a window of any element.
func (h *host) Put(element, window uint32, offset uint64, src []byte) abi.Status {
	h.acted = true
	local, remote, st := h.window("put", element, window, offset, len(src), fabric.RightWrite)
	switch {
	case st != abi.OK:
		return st
	case remote != nil:
		return h.status("put", remote.Put(h.reach(remote), src, offset))
	}
	fabric.CopyIn(local, src)
	return abi.OK
}

// Atomic operates on a window of any element.
func (h *host) Atomic(element, window uint32, offset uint64, op abi.AtomicOp, width uint32, operand, compare uint64) (old uint64, st abi.Status) {
	if width != 4 && width != 8 || op < abi.AtomicAdd || op > abi.AtomicXor {
		return 0, h.told("atomic", abi.ErrArgument)
	}
	h.acted = true
	local, remote, st := h.window("atomic", element, window, offset, int(width), fabric.RightAtomic)
	if st != abi.OK {
		return 0, st
	}
	does := fabric.AtomicOp{Kind: fabric.AtomicKind(op), Operand: operand, Compare: compare}
	var err error
	if remote != nil {
		old, err = remote.Atomic(h.reach(remote), does, int(width), offset)
	} else {
		old, err = fabric.LocalAtomic(local, does, int(width))
	}
	return old, h.status("atomic", err)
}
