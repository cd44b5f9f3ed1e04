package host

import (
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/fabric"
)

// Lease is a borrowed drive without a queue: for a borrower whose queues lie in memory that it has already, as a guest's. Its methods may be called from any goroutine but handlers.
type Lease struct{ d *Drive }

// Borrow takes a lease.
func Borrow(ctx context.Context, cfg Config) (*Lease, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	d := &Drive{cfg: cfg, ended: make(chan struct{}), phase: true, slots: make([]slot, cfg.Depth), reaps: make([]Done, 0, cfg.Depth)}
	d.watch.d = d
	d.room.Init(cfg.Element)
	d.reaper.Init(cfg.Element)
	for i := range d.slots {
		d.slots[i].init(cfg.Element)
		d.free = append(d.free, uint16(cfg.Depth-1-i))
	}
	var err error
	req := device.BorrowRequest{Name: cfg.Drive, Mode: cfg.Mode, Offset: cfg.Offset, Size: cfg.Size}
	if d.ep, err = cfg.Asker.Ask(ctx, cfg.Node, device.CallBorrow, req, &d.lease); err != nil {
		return nil, err
	}
	key, err := fabric.DecodeKey(d.lease.RegistersKey)
	if err == nil {
		d.regs, err = d.ep.Import(ctx, key)
	}
	if err == nil {
		err = cfg.Element.AddPoller(&d.watch)
	}
	if err != nil {
		d.giveBack(ctx)
		return nil, fmt.Errorf("drive %s: %w", cfg.Drive, err)
	}
	return &Lease{d}, nil
}

// giveBack returns a lease that came to nothing. Else it goes with the connection.
func (d *Drive) giveBack(ctx context.Context) {
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), DefaultLookEvery)
	defer cancel()
	d.cfg.Asker.Ask(back, d.cfg.Node, device.CallReturn, device.LeaseRequest{Lease: d.lease.ID}, &device.Nothing{})
}

// Open makes a queue, and with it a Drive, whose the lease is from then on. After an error the lease has been returned.
func (l *Lease) Open(ctx context.Context) (*Drive, error) {
	d := l.d
	if err := d.begin(ctx); err != nil {
		d.giveBack(ctx)
		round, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.CommandTime)
		d.watch.end(round) // which waits for the leader's next round; a watch that stays sees that the lease has ended
		cancel()
		if d.seg != nil {
			d.seg.Close()
		}
		return nil, fmt.Errorf("drive %s: %w", d.cfg.Drive, err)
	}
	return d, nil
}

// Element is the borrower's.
func (l *Lease) Element() *fabric.Element { return l.d.cfg.Element }

// Name is the drive's.
func (l *Lease) Name() string { return l.d.cfg.Drive }

// ID is the lease's number at its lender.
func (l *Lease) ID() uint64 { return l.d.lease.ID }

// Size is how many bytes were borrowed.
func (l *Lease) Size() uint64 { return l.d.lease.SizeBytes }

// ReadOnly reports whether writes are refused.
func (l *Lease) ReadOnly() bool { return l.d.lease.ReadOnly }

// Mapped reports whether lender and borrower reach each other's memory by loads and stores.
func (l *Lease) Mapped() bool { return l.d.regs.Mapped() }

// Err says why the lease is over; nil: it is not.
func (l *Lease) Err() error { return l.d.Err() }

// Over is closed when the lease is over.
func (l *Lease) Over() <-chan struct{} { return l.d.ended }

// Close returns the lease, and waits until the lender has let go of everything.
func (l *Lease) Close(ctx context.Context) error { return l.d.Close(ctx) }

// AddWindow opens memory that key leads to.
func (l *Lease) AddWindow(ctx context.Context, id uint32, key fabric.Key, at device.Place) (mapped bool, err error) {
	var reply device.WindowReply
	err = l.d.ask(ctx, device.CallWindow, device.WindowRequest{Lease: l.ID(), Window: id, Key: key.Append(nil), Place: &at}, &reply)
	return reply.Mapped, err
}

// RemoveWindow takes memory back, and waits until nothing uses it.
func (l *Lease) RemoveWindow(ctx context.Context, id uint32) error {
	return l.d.ask(ctx, device.CallUnwindow, device.UnwindowRequest{Lease: l.ID(), Window: id}, &device.Nothing{})
}

// AddQueue makes a queue pair in windows.
func (l *Lease) AddQueue(ctx context.Context, q nvme.QueueSpec) error {
	return l.d.ask(ctx, device.CallQueue, device.QueueRequest{Lease: l.ID(), Queue: q.ID, Entries: q.Entries, CompletionEntries: q.CompletionEntries, Commands: q.Commands,
		Completions: q.Completions, Bell: q.Bell}, &device.QueueReply{})
}

// RemoveQueue deletes a queue pair, and waits until none of its commands is under way.
func (l *Lease) RemoveQueue(ctx context.Context, id uint16) error {
	return l.d.ask(ctx, device.CallUnqueue, device.UnqueueRequest{Lease: l.ID(), Queue: id}, &device.Nothing{})
}

// Shadow says where doorbells are; see device.ShadowRequest.
func (l *Lease) Shadow(ctx context.Context, doorbells, events uint64) error {
	return l.d.ask(ctx, device.CallShadow, device.ShadowRequest{Lease: l.ID(), Doorbells: doorbells, Events: events}, &device.Nothing{})
}

// Ring rings a doorbell. It does not wait.
func (l *Lease) Ring(offset uint64, v uint32) error {
	if err := l.Err(); err != nil {
		return err
	}
	return l.d.regs.Ring(offset, 4, uint64(v))
}
