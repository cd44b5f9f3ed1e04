package remote

import (
	"context"
	"fmt"
	"syscall"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// slot is memory that the node moves data to or from: a segment of its own, so that on
// one machine it is mapped. It holds one transfer at a time.
type slot struct {
	seg  *fabric.Segment
	bulk *rpc.Bulk
}

func (s *slot) bytes() []byte { return s.seg.Bytes() }

// retire gives the memory up. A transfer whose call failed may still be under way:
// it shall find the old memory, or none, but never somebody else's data.
func (s *slot) retire() {
	if s.bulk != nil {
		s.bulk.Close()
	}
	if s.seg != nil {
		s.seg.Close()
	}
	s.seg, s.bulk = nil, nil
}

// ready gives the slot memory if it has none.
func (s *slot) ready(c *Client) (err error) {
	if s.seg != nil {
		return nil
	}
	if s.seg, err = c.el.NewSegment(uint64(c.cfg.IOBytes), fabric.Writable); err == nil {
		s.bulk, err = c.peer.Expose(fabric.RightsAll, rpc.BulkOptions{}, rpc.Span{Segment: s.seg, Size: uint64(c.cfg.IOBytes)})
	}
	if err != nil {
		s.retire()
		return fmt.Errorf("%w: memory for transfers: %w", syscall.ENOMEM, err)
	}
	return nil
}

// slot waits for a free slot. What other files keep to fill it up is sent meanwhile.
func (c *Client) slot(ctx context.Context) (*slot, error) {
	var s *slot
	select {
	case s = <-c.slots:
	default:
		c.sendParts()
		ctx, cancel := context.WithTimeout(ctx, c.cfg.OpTime)
		defer cancel()
		select {
		case s = <-c.slots:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: no room for a transfer: %w", syscall.EIO, context.Cause(ctx))
		}
	}
	if err := s.ready(c); err != nil {
		c.slots <- s
		return nil, err
	}
	return s, nil
}

// spareSlot is a slot for reading ahead, or nil: half of them are kept for those who wait.
func (c *Client) spareSlot() *slot {
	if c.ahead.Add(1) > int64(c.cfg.Slots/2) {
		c.ahead.Add(-1)
		return nil
	}
	select {
	case s := <-c.slots:
		if s.ready(c) == nil {
			return s
		}
		c.slots <- s
	default:
	}
	c.ahead.Add(-1)
	return nil
}

// free gives a slot back after a call that ended with err.
func (c *Client) free(s *slot, err error) {
	if !answered(err) {
		s.retire()
	}
	c.slots <- s
}
