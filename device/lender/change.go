package lender

import (
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/fabric"
)

// What a borrower changes about a lease that goes on, as a guest does that is reset or loses memory.

// Unwindow takes memory back from a lease, and waits until nothing uses it any more.
func (l *Lender) Unwindow(ctx context.Context, from *fabric.Endpoint, req *device.UnwindowRequest) error {
	return l.remove(ctx, from, req.Lease, "window", func(c *nvme.Controller) (<-chan struct{}, error) { return c.RemoveWindow(req.Window) })
}

// Unqueue deletes a queue pair, and waits until none of its commands is under way.
func (l *Lender) Unqueue(ctx context.Context, from *fabric.Endpoint, req *device.UnqueueRequest) error {
	return l.remove(ctx, from, req.Lease, "queue", func(c *nvme.Controller) (<-chan struct{}, error) { return c.RemoveQueue(req.Queue) })
}

func (l *Lender) remove(ctx context.Context, from *fabric.Endpoint, id uint64, what string, start func(*nvme.Controller) (<-chan struct{}, error)) error {
	ctl, err := l.controller(from, id)
	if err != nil {
		return err
	}
	gone, err := start(ctl)
	if err != nil {
		return err
	}
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("lease %d: a command that uses the %s is under way still: %w", id, what, context.Cause(ctx))
	}
}

// Shadow sets where a lease's doorbells are.
func (l *Lender) Shadow(from *fabric.Endpoint, req *device.ShadowRequest) error {
	ctl, err := l.controller(from, req.Lease)
	if err != nil {
		return err
	}
	return ctl.SetShadow(req.Doorbells, req.Events)
}

func (l *Lender) controller(from *fabric.Endpoint, id uint64) (*nvme.Controller, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ls, err := l.borrowed(from, id)
	if err != nil {
		return nil, err
	}
	return ls.ctl, nil
}
