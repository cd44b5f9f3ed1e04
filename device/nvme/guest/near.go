package guest

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/device/nvme/admin"
	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/fabric"
)

// local is an engine of this element that serves guests' queues from a drive that was borrowed: for a lender that cannot map the guest's memory.
type local struct {
	engine *nvme.Engine
	drive  *host.Drive
}

func newNear(log *slog.Logger, drive *host.Drive) (*local, error) {
	e, err := nvme.NewEngine(drive.Element(), log)
	if err != nil {
		return nil, err
	}
	return &local{e, drive}, nil
}

// Close ends it; no guest is served any more.
func (n *local) Close() error { return n.engine.Close() }

// serve makes what serves one guest.
func (n *local) serve(failed func(error)) (Server, error) {
	c, err := n.engine.NewController(nvme.Spec{Lease: n.drive.Lease(), Who: "guest", Backing: backing{n.drive}, Range: device.Range{Size: n.drive.Size()},
		ReadOnly: n.drive.ReadOnly(), Faulted: failed})
	if err != nil {
		return Server{}, err
	}
	return Server{near{c}}, nil
}

type near struct{ c *nvme.Controller }

func (n near) AddWindow(_ context.Context, id uint32, seg *fabric.Segment, base, offset, size uint64) error {
	return n.c.AddWindow(nvme.Window{ID: id, Segment: seg, Base: base, Offset: offset, Size: size})
}

func (n near) RemoveWindow(ctx context.Context, id uint32) error {
	gone, err := n.c.RemoveWindow(id)
	return await(ctx, gone, err)
}

func (n near) Create(_ context.Context, q admin.Queue) error {
	_, err := n.c.AddQueue(queueSpec(q))
	return err
}

func (n near) Delete(ctx context.Context, id uint16) error {
	gone, err := n.c.RemoveQueue(id)
	return await(ctx, gone, err)
}

func (n near) Shadow(_ context.Context, doorbells, events uint64) error {
	return n.c.SetShadow(doorbells, events)
}

func (n near) Ring(offset uint64, v uint32) error { return n.c.Ring(offset, v) }

// Close waits for as long as the drive gives its commands: host.Config.CommandTime.
func (n near) Close() {
	<-n.c.Stop()
	n.c.Free()
}

func await(ctx context.Context, gone <-chan struct{}, err error) error {
	if err != nil {
		return known(err)
	}
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// backing is a borrowed drive under an engine of the borrower's.
type backing struct{ d *host.Drive }

func (b backing) Size() uint64 { return b.d.Size() }
func (b backing) Close() error { return nil }

// bounces are buffers: what a command is about lies in pieces, and goes as one.
var bounces = sync.Pool{New: func() any { return new([nvme.MaxTransferBytes]byte) }}

// Do implements nvme.Backing.
func (b backing) Do(r *nvme.Request, wait bool) error {
	if !wait {
		return nvme.ErrWait
	}
	ctx := context.Background() // the drive has a deadline for each command
	off, size := uint64(r.Off), uint64(r.Size)
	switch r.Op {
	case nvme.OpRead, nvme.OpWrite:
		buf := bounces.Get().(*[nvme.MaxTransferBytes]byte)
		defer bounces.Put(buf)
		return errnoOf(b.move(ctx, r, buf[:size]))
	case nvme.OpFlush:
		return errnoOf(b.d.Flush(ctx))
	case nvme.OpWriteZeroes:
		err := b.d.WriteZeroes(ctx, off, size)
		if err == nil && r.Durable {
			err = b.d.Flush(ctx)
		}
		return errnoOf(err)
	case nvme.OpDataset:
		return errnoOf(b.d.Trim(ctx, off, size))
	}
	return unix.EOPNOTSUPP
}

func (b backing) move(ctx context.Context, r *nvme.Request, buf []byte) error {
	at := 0
	if r.Op == nvme.OpRead {
		if err := b.d.ReadAt(ctx, buf, uint64(r.Off)); err != nil {
			return err
		}
		for _, p := range r.Pieces {
			at += copy(p, buf[at:])
		}
		return nil
	}
	for _, p := range r.Pieces {
		at += copy(buf[at:], p)
	}
	if r.Durable {
		return b.d.WriteDurably(ctx, buf, uint64(r.Off))
	}
	return b.d.WriteAt(ctx, buf, uint64(r.Off))
}

// errnoOf is a drive's refusal as a file would say it, which the engine makes a status of again.
func errnoOf(err error) error {
	var refused *host.StatusError
	if !errors.As(err, &refused) {
		return err
	}
	switch refused.Status {
	case nvme.StatusCapacity:
		return errors.Join(err, unix.ENOSPC)
	case nvme.StatusProtected:
		return errors.Join(err, unix.EROFS)
	}
	return err
}
