package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/device/nvme/admin"
	"github.com/wherry-fabric/wherry/device/vfiouser"
	"github.com/wherry-fabric/wherry/fabric"
)

// Config is what a Device is made of.
type Config struct {
	Element *fabric.Element
	Log     *slog.Logger
	Drive   admin.Drive
	// Serve makes what serves the queues of one guest. failed is called where it cannot go on.
	Serve func(failed func(error)) (Server, error)
}

// Server is where a guest's I/O queues are served: at the lender or, where that cannot map the guest's memory, at this element.
type Server struct{ server }

// Identity is what guests see on their bus: an NVMe controller. The vendor is the one that QEMU's own has, which the PCI SIG assigned for virtual devices.
var Identity = vfiouser.Identity{Vendor: 0x1b36, Device: 0x0010, Class: [3]byte{2, 8, 1}, BarBytes: admin.RegisterBytes}

// commandTime bounds what an admin command or a reset waits for: commands at the lender's disk.
const commandTime = 30 * time.Second

// Device is a drive that one guest has plugged in. It implements vfiouser.Device.
type Device struct {
	*memory
	cfg   Config
	ctl   *admin.Controller
	bells *fabric.Segment
	seen  [admin.MaxQueues + 1]uint64 // the leader's
	work  chan struct{}               // of the loop
	stop  context.CancelFunc
	group sync.WaitGroup
}

// Open makes a Device for a guest that raises interrupts by signal.
func Open(cfg Config, signal vfiouser.Signal) (*Device, error) {
	d := &Device{cfg: cfg, work: make(chan struct{}, 1)}
	served := &Server{} // its place: the controller can fail as soon as there is one
	d.memory = &memory{el: cfg.Element, to: served}
	d.ctl = admin.New(admin.Config{Memory: d.memory, Queues: served, Interrupt: signal, Vectors: vfiouser.Vectors, Drive: cfg.Drive})
	var err error
	if *served, err = cfg.Serve(d.ctl.Fail); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	if err := d.begin(ctx); err != nil {
		served.Close()
		if d.bells != nil {
			d.bells.Close()
		}
		return nil, err
	}
	d.group.Go(func() { d.loop(ctx) })
	return d, nil
}

// begin makes the bells and has the leader look at them.
func (d *Device) begin(ctx context.Context) (err error) {
	const size = 8 * (admin.MaxQueues + 1)
	if d.bells, err = d.cfg.Element.NewSegment(size, fabric.Writable); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	if err := d.to.AddWindow(ctx, bellWindow, d.bells, bellBase, 0, size); err != nil {
		return err
	}
	return d.cfg.Element.AddPoller(d)
}

// bell is where a queue's completions are rung.
func bell(queue uint16) uint64 { return bellBase + 8*uint64(queue) }

// Poll implements fabric.Poller: it raises the interrupts of queues that have new completions.
func (d *Device) Poll(int, fabric.Turn) (n int) {
	for q := uint16(1); q <= admin.MaxQueues; q++ {
		if now := d.rung(q); now != d.seen[q] {
			d.seen[q] = now
			d.ctl.Completed(q)
			n++
		}
	}
	return n
}

func (d *Device) rung(q uint16) uint64 {
	var b [8]byte
	fabric.CopyOut(b[:], d.bells.Bytes()[8*q:8*q+8])
	return binary.NativeEndian.Uint64(b[:])
}

// Arm implements fabric.Poller: an engine wakes the leader when it rings.
func (d *Device) Arm() bool {
	for q := uint16(1); q <= admin.MaxQueues; q++ {
		if d.rung(q) != d.seen[q] {
			return true
		}
	}
	return false
}

// Disarm implements fabric.Poller.
func (d *Device) Disarm() {}

// WaitFD implements fabric.Poller.
func (d *Device) WaitFD() int { return -1 }

// loop does what registers ask for.
func (d *Device) loop(ctx context.Context) {
	for {
		for {
			step, cancel := context.WithTimeout(ctx, commandTime)
			more := d.ctl.Step(step)
			cancel()
			if !more {
				break
			}
		}
		select {
		case <-d.work:
		case <-ctx.Done():
			return
		}
	}
}

func (d *Device) kick() {
	select {
	case d.work <- struct{}{}:
	default:
	}
}

// Read implements vfiouser.Device.
func (d *Device) Read(off uint64, p []byte) { d.ctl.ReadRegister(off, p) }

// Write implements vfiouser.Device.
func (d *Device) Write(off uint64, p []byte) {
	if d.ctl.WriteRegister(off, p) {
		d.kick()
	}
}

// Reset implements vfiouser.Device.
func (d *Device) Reset(ctx context.Context) error {
	d.ctl.Reset()
	for d.ctl.Enabled() { // the loop is at it
		d.kick()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// Close implements vfiouser.Device.
func (d *Device) Close() {
	d.stop()
	d.group.Wait()
	d.to.Close() // nothing is under way any more
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	if err := d.cfg.Element.RemovePoller(ctx, d); err != nil && !errors.Is(err, fabric.ErrClosed) {
		d.cfg.Log.Warn("a guest's bells stay until the end", "err", err)
	} else {
		d.bells.Close()
	}
	d.drop()
}

// queueSpec is a guest's queue as engines have it.
func queueSpec(q admin.Queue) nvme.QueueSpec {
	return nvme.QueueSpec{ID: q.ID, Entries: q.Entries, CompletionEntries: q.CompletionEntries, Commands: q.Commands, Completions: q.Completions, Bell: bell(q.ID)}
}

// known reports whether an error says that there is no such thing: it went with the memory that it lay in.
func known(err error) error {
	if errors.Is(err, device.ErrSpec) {
		return nil
	}
	return err
}
