package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

const (
	// DefaultSlots holds a burst of a thousand small frames in 64 KiB, which
	// stays in a core's second-level cache.
	DefaultSlots = 1024
	// DefaultDataBytes holds seven frames of the largest size.
	DefaultDataBytes = 512 << 10
	// DefaultMaxLinks is as many links as a board has bits.
	DefaultMaxLinks = boardWords * 64

	minSlots     = 16
	maxSlots     = 1 << 16
	minDataBytes = 256 << 10 // three quarters hold the largest frame twice, so it fits wherever the ring stands
	maxDataBytes = 64 << 20

	// maxPending bounds connections on which HELLO is under way: each further one takes the place of the oldest, of those of the process that has
	// most, which has had pendingGrace for it.
	maxPending   = 256
	pendingGrace = 250 * time.Millisecond
	// maxBoards bounds the users whose processes may be linked at one time.
	maxBoards = 64
	// startTimeout bounds Start where the caller has set no deadline.
	startTimeout = 5 * time.Second
)

var (
	// ErrPeerGone says that the peer's process ended without closing the link.
	ErrPeerGone = errors.New("shm: peer is gone")
	// ErrPeerClosed says that the peer closed the link.
	ErrPeerClosed = errors.New("shm: peer closed the link")
	// ErrProtocol says that the peer broke the rules of the shared memory or of
	// the socket.
	ErrProtocol = errors.New("shm: peer broke the protocol")
	// ErrClosed says that the transport is closed.
	ErrClosed = errors.New("shm: transport closed")
)

// Config sizes a transport. The zero value is good for most programs.
type Config struct {
	// Slots is how many frames each direction of a link that this side dials
	// can hold: a power of two; 0 means DefaultSlots.
	Slots int
	// DataBytes is how many bytes of bodies above 56 bytes each direction can
	// hold: a power of two; 0 means DefaultDataBytes.
	DataBytes int
	// SocketMode is the mode of socket files; 0 means 0600. Whoever may connect
	// can hold up senders to itself (see the package's Trust).
	SocketMode fs.FileMode
	// MaxLinks bounds the links of the transport; 0 means DefaultMaxLinks.
	MaxLinks int
}

// Validate says what is wrong with c.
func (c Config) Validate() error {
	c = c.filled()
	if err := (geometry{c.Slots, c.DataBytes}).validate(); err != nil {
		return err
	}
	if c.SocketMode&^fs.ModePerm != 0 {
		return fmt.Errorf("shm: SocketMode %v has bits beyond permissions; use for example 0600 or 0660", c.SocketMode)
	}
	if c.MaxLinks < 1 || c.MaxLinks > DefaultMaxLinks {
		return fmt.Errorf("shm: MaxLinks is %d, it can be 1 to %d", c.MaxLinks, DefaultMaxLinks)
	}
	return nil
}

func (c Config) filled() Config {
	if c.Slots == 0 {
		c.Slots = DefaultSlots
	}
	if c.DataBytes == 0 {
		c.DataBytes = DefaultDataBytes
	}
	if c.SocketMode == 0 {
		c.SocketMode = 0o600
	}
	if c.MaxLinks == 0 {
		c.MaxLinks = DefaultMaxLinks
	}
	return c
}

// geometry is the size of both rings of a link.
type geometry struct {
	slots, dataBytes int // per direction
}

func (g geometry) validate() error {
	if g.slots < minSlots || g.slots > maxSlots || bits.OnesCount(uint(g.slots)) != 1 {
		return fmt.Errorf("shm: %d slots per ring; it must be a power of two from %d to %d", g.slots, minSlots, maxSlots)
	}
	if g.dataBytes < minDataBytes || g.dataBytes > maxDataBytes || bits.OnesCount(uint(g.dataBytes)) != 1 {
		return fmt.Errorf("shm: %d data bytes per ring; it must be a power of two from %d to %d", g.dataBytes, minDataBytes, maxDataBytes)
	}
	return nil
}

// The smallest data ring lets a Normal frame of the largest size through
// wherever the ring stands.
const _ = uint(minDataBytes/4*3 - 2*(fabric.MaxFrameBytes+slotBytes))
