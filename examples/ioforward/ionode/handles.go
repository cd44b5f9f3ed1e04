package ionode

import (
	"crypto/rand"
	"encoding/binary"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// client is what the node keeps of one connection.
type client struct {
	handles map[uint64]*handle
	last    time.Time     // its last call began
	share   chan struct{} // a place for each buffer that it may have
}

// handle is an open file or directory.
type handle struct {
	file  *os.File
	dir   bool
	share chan struct{} // its client's
	mu    sync.Mutex    // over a directory's position
}

// arrived and lost follow the element's endpoints; they must not block, so files are
// closed by the sweeper.
func (n *Node) arrived(ep *fabric.Endpoint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clients[ep] = &client{handles: map[uint64]*handle{}, last: time.Now(), share: make(chan struct{}, n.cfg.Limits.BuffersPerClient)}
}

func (n *Node) lost(ep *fabric.Endpoint, _ error) {
	n.mu.Lock()
	n.forget(ep)
	n.mu.Unlock()
	select {
	case n.kick <- struct{}{}:
	default:
	}
}

// forget drops a client; n.mu is held.
func (n *Node) forget(ep *fabric.Endpoint) {
	if c := n.clients[ep]; c != nil {
		n.drop(c)
		delete(n.clients, ep)
	}
}

// drop takes a client's handles away; n.mu is held.
func (n *Node) drop(c *client) {
	for _, h := range c.handles {
		n.doomed = append(n.doomed, h.file)
	}
	n.open -= len(c.handles)
	clear(c.handles)
}

// renew notes that a client is there.
func (n *Node) renew(ep *fabric.Endpoint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.clients[ep]; c != nil {
		c.last = time.Now()
	}
}

// keep gives an open file a handle.
func (n *Node) keep(ep *fabric.Endpoint, file *os.File, dir bool) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.clients[ep]
	switch {
	case c == nil: // it left while the file was opened
		return 0, syscall.ESTALE
	case len(c.handles) >= n.cfg.Limits.HandlesPerClient:
		return 0, syscall.EMFILE
	case n.open >= n.cfg.Limits.Handles:
		return 0, syscall.ENFILE
	}
	for {
		var b [8]byte
		rand.Read(b[:]) // it never fails
		number := binary.LittleEndian.Uint64(b[:])
		if number != 0 && c.handles[number] == nil {
			c.handles[number] = &handle{file: file, dir: dir, share: c.share}
			n.open++
			return number, nil
		}
	}
}

// find is a client's handle.
func (n *Node) find(ep *fabric.Endpoint, number uint64) (*handle, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.clients[ep]; c != nil {
		if h := c.handles[number]; h != nil {
			return h, nil
		}
	}
	return nil, syscall.ESTALE
}

// release ends a handle.
func (n *Node) release(ep *fabric.Endpoint, number uint64) (*handle, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.clients[ep]
	if c == nil || c.handles[number] == nil {
		return nil, syscall.ESTALE
	}
	h := c.handles[number]
	delete(c.handles, number)
	n.open--
	return h, nil
}

// sweep closes what lost clients had open, and ends leases. A node that stood still
// itself could not hear anybody: then every lease begins anew.
func (n *Node) sweep() {
	defer n.swept.Done()
	lease := n.cfg.Limits.Lease
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	heard := time.Now()
	for stopping := false; ; {
		n.mu.Lock()
		doomed := n.doomed
		n.doomed = nil
		n.mu.Unlock()
		for _, f := range doomed {
			f.Close() // the client that could hear of an error is gone
		}
		if stopping {
			return
		}
		select {
		case <-n.kick:
		case <-tick.C:
			now := time.Now()
			n.expire(now, now.Sub(heard) > lease*2/3)
			heard = now
		case <-n.stop:
			stopping = true
		}
	}
}

func (n *Node) expire(now time.Time, anew bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for ep, c := range n.clients {
		if anew {
			c.last = now
		}
		if len(c.handles) > 0 && now.Sub(c.last) > n.cfg.Limits.Lease {
			n.cfg.Log.Warn("a client's lease ran out", "client", ep.String(), "handles", len(c.handles))
			n.expired.Add(1)
			n.drop(c)
		}
	}
}
