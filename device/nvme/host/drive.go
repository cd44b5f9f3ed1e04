package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/fabric"
)

// Defaults of a Config, and what a Drive goes by.
const (
	DefaultDepth = 32
	MaxDepth     = nvme.MaxEntries / 2
	// DefaultBufferBytes is the data of one command.
	DefaultBufferBytes = 128 << 10
	// DefaultCommandTime is Linux's default for NVMe.
	DefaultCommandTime = 30 * time.Second
	// DefaultLookEvery is how soon it is noticed that the lease was taken away.
	DefaultLookEvery = 250 * time.Millisecond
	// window is the number of the Drive's only window, and queueID of its queue.
	window  = 1
	queueID = 1
)

var (
	// ErrClosed: the Drive was closed.
	ErrClosed = errors.New("the drive was returned")
	// ErrTimeout: the lender did not answer a command in time.
	ErrTimeout = errors.New("the drive does not answer")
)

// StatusError is how the drive refused a command.
type StatusError struct {
	Drive  string
	Op     nvme.Opcode
	Status nvme.Status
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("drive %s: %s (status %#x of command %#x)", e.Drive, e.Status.Text(), uint16(e.Status), uint8(e.Op))
}

// Asker makes calls to lenders: a client and a node each have one (control.NewAsker).
type Asker interface {
	// Ask makes a call to a node and decodes the answer into reply. It returns the connection that the answer came over.
	Ask(ctx context.Context, node, call string, req, reply any) (*fabric.Endpoint, error)
}

// Config says what to borrow. A zero field means its default.
type Config struct {
	Element *fabric.Element
	Asker   Asker
	Node    string
	Drive   string
	Mode    device.Mode
	Offset  uint64 // of the part that is borrowed
	Size    uint64 // 0: all from Offset

	Depth       int           // commands under way: a power of two
	BufferBytes int           // of each: a multiple of 4096, at most nvme.MaxTransferBytes
	CommandTime time.Duration // how long a command may take before the Drive is given up
	LookEvery   time.Duration // how often it is asked whether the lease goes on; the loss of the lender itself is noticed at once
}

func (c *Config) defaults() error {
	if c.Depth == 0 {
		c.Depth = DefaultDepth
	}
	if c.BufferBytes == 0 {
		c.BufferBytes = DefaultBufferBytes
	}
	if c.CommandTime == 0 {
		c.CommandTime = DefaultCommandTime
	}
	if c.LookEvery == 0 {
		c.LookEvery = DefaultLookEvery
	}
	if c.LookEvery < 0 || c.CommandTime < 0 {
		return fmt.Errorf("%w: LookEvery %v, CommandTime %v: neither can be negative", device.ErrSpec, c.LookEvery, c.CommandTime)
	}
	if c.Depth < 1 || c.Depth > MaxDepth || c.Depth&(c.Depth-1) != 0 {
		return fmt.Errorf("%w: depth %d: a power of two up to %d", device.ErrSpec, c.Depth, MaxDepth)
	}
	if c.BufferBytes < 4096 || c.BufferBytes%4096 != 0 || c.BufferBytes > nvme.MaxTransferBytes {
		return fmt.Errorf("%w: buffers of %d bytes: a multiple of 4096 up to %d", device.ErrSpec, c.BufferBytes, nvme.MaxTransferBytes)
	}
	return nil
}

// entries is how many a queue has: twice the depth, so that the completion queue's doorbell need not be rung for each completion.
func (c *Config) entries() int { return 2 * c.Depth }

// Drive is a borrowed drive. Its methods may be called from any goroutine but handlers.
type Drive struct {
	cfg   Config
	ep    *fabric.Endpoint
	lease device.BorrowReply

	regs *fabric.Remote
	seg  *fabric.Segment
	far  *fabric.Remote // the submission queue at the lender; nil: it is in seg
	cq   []byte
	sq   []byte
	data []byte

	dead  atomic.Pointer[error]
	ended chan struct{} // closed when dead is set
	watch watch
	once  sync.Once
	gone  error // of Close

	slots []slot
	room  fabric.Waiter // of those who wait for a slot

	mu     sync.Mutex
	free   []uint16
	tail   uint32                  // of the submission queue
	entry  [nvme.CommandBytes]byte // that is being sent
	reaps  []Done                  // of Submit's commands, not reaped yet
	count  atomic.Int32            // of reaps
	reaper fabric.Waiter

	// The leader's.
	head  uint32 // of the completion queue
	told  uint32 // the lender of it
	phase bool
}

// Open borrows a drive.
func Open(ctx context.Context, cfg Config) (*Drive, error) {
	l, err := Borrow(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return l.Open(ctx)
}

// begin makes memory and queues.
func (d *Drive) begin(ctx context.Context) error {
	entries := d.cfg.entries()
	cqBytes, sqBytes := pages(entries*nvme.CompletionBytes), pages(entries*nvme.CommandBytes)
	seg, err := d.cfg.Element.NewSegment(uint64(cqBytes+sqBytes+d.cfg.Depth*d.cfg.BufferBytes), fabric.Writable)
	if err != nil {
		return err
	}
	d.seg = seg
	mem := d.seg.Bytes()
	d.cq, d.sq, d.data = mem[:cqBytes], mem[cqBytes:cqBytes+sqBytes], mem[cqBytes+sqBytes:]
	key, err := d.seg.Key(fabric.RightsAll)
	if err != nil {
		return err
	}
	var reached device.WindowReply
	if err := d.ask(ctx, device.CallWindow, device.WindowRequest{Lease: d.lease.ID, Window: window, Key: key.Append(nil)}, &reached); err != nil {
		return err
	}
	q := device.QueueRequest{Lease: d.lease.ID, Queue: queueID, Entries: uint32(entries), Completions: device.Address(window, 0)}
	if reached.Mapped {
		q.Commands = device.Address(window, uint64(cqBytes))
	} else {
		q.BufferBytes = uint64(d.cfg.Depth * d.cfg.BufferBytes)
	}
	var made device.QueueReply
	if err := d.ask(ctx, device.CallQueue, q, &made); err != nil {
		return err
	}
	if !reached.Mapped {
		if key, err = fabric.DecodeKey(made.Key); err != nil {
			return err
		}
		if d.far, err = d.ep.Import(ctx, key); err != nil {
			return err
		}
	}
	return d.cfg.Element.AddPoller(d)
}

func pages(n int) int { return (n + 4095) &^ 4095 }

// ask makes a call over the connection of the lease.
func (d *Drive) ask(ctx context.Context, call string, req, reply any) error {
	ep, err := d.cfg.Asker.Ask(ctx, d.cfg.Node, call, req, reply)
	if err == nil && ep != d.ep {
		err = fmt.Errorf("%w: the connection to %s was lost", device.ErrNoLease, d.cfg.Node)
	}
	return err
}

// Element is the borrower's.
func (d *Drive) Element() *fabric.Element { return d.cfg.Element }

// Size is how many bytes were borrowed, a multiple of BlockBytes.
func (d *Drive) Size() uint64 { return d.lease.SizeBytes }

// BlockBytes is what offsets and lengths are multiples of.
func (d *Drive) BlockBytes() int { return int(d.lease.BlockBytes) }

// ReadOnly reports whether writes are refused.
func (d *Drive) ReadOnly() bool { return d.lease.ReadOnly }

// Lease is the number of the lease at its lender.
func (d *Drive) Lease() uint64 { return d.lease.ID }

// Mapped reports whether the lender reaches the Drive's memory by loads and stores.
func (d *Drive) Mapped() bool { return d.far == nil }

// Err says why the Drive is over; nil: it is not.
func (d *Drive) Err() error {
	if err := d.dead.Load(); err != nil {
		return *err
	}
	return nil
}

// Over is closed when the Drive is over; Err says why.
func (d *Drive) Over() <-chan struct{} { return d.ended }

// fail ends all commands.
func (d *Drive) fail(err error) {
	err = fmt.Errorf("drive %s, lease %d at %s: %w", d.cfg.Drive, d.lease.ID, d.cfg.Node, err)
	if !d.dead.CompareAndSwap(nil, &err) {
		return
	}
	close(d.ended)
	for i := range d.slots {
		d.slots[i].waiter.Wake()
	}
	d.room.Wake()
	d.reaper.Wake()
}

// forget gives up what is being sent from the Drive's memory, which goes. The Drive is dead, so nothing is sent any more.
func (d *Drive) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.slots {
		d.slots[i].put.Forget()
	}
}

// Close returns the drive. The lender waits for commands under way; callers that wait for them here get ErrClosed.
func (d *Drive) Close(ctx context.Context) error {
	d.once.Do(func() {
		d.gone = d.watch.end(ctx)
		if d.Err() == nil || d.ep.Err() == nil {
			if err := d.ask(ctx, device.CallReturn, device.LeaseRequest{Lease: d.lease.ID}, &device.Nothing{}); err != nil && !errors.Is(err, device.ErrNoLease) && d.ep.Err() == nil {
				d.gone = errors.Join(d.gone, err)
			}
		}
		d.fail(ErrClosed)
		d.forget()
		if err := d.cfg.Element.RemovePoller(ctx, d); err != nil && !errors.Is(err, fabric.ErrClosed) {
			d.gone = errors.Join(d.gone, err) // it may be polled still, so its memory stays until the element ends
			return
		}
		if d.seg == nil { // there was no queue
			return
		}
		d.seg.Close() // the lender has let go of it, or its mapping keeps the memory
	})
	return d.gone
}
