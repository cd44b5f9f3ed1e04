package admin

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/wherry-fabric/wherry/device/nvme"
)

// Memory is the driver's, by the addresses that its commands have. A read or write that lies in no memory reports false. Aligned words of 8 bytes
// are read and written whole.
type Memory interface {
	Read(addr uint64, p []byte) bool
	Write(addr uint64, p []byte) bool
}

// Queue is a pair of I/O queues.
type Queue struct {
	ID                uint16
	Entries           uint32
	CompletionEntries uint32
	Commands          uint64
	Completions       uint64
}

// Queues are where I/O is served. Step calls all but Ring; errors of Ring and Delete end the controller.
type Queues interface {
	Create(ctx context.Context, q Queue) error
	// Delete returns once none of the queue's commands is under way.
	Delete(ctx context.Context, id uint16) error
	// Shadow says where doorbells are; 0 and 0: they are rung.
	Shadow(ctx context.Context, doorbells, events uint64) error
	// Ring is a doorbell at an offset from the first (device.SubmissionDoorbell). It does not wait.
	Ring(offset uint64, v uint32) error
}

// Config is what a Controller has.
type Config struct {
	Memory Memory
	Queues Queues
	// Interrupt is called with the controller's lock held; it does not wait, and calls nothing of the controller.
	Interrupt func(vector uint16)
	Vectors   uint16 // interrupts that there are
	Drive     Drive
}

// Drive is what the controller says of itself.
type Drive struct {
	Blocks   uint64
	ReadOnly bool
	Model    string // at most 40 characters
	Serial   string // at most 20
	UUID     [16]byte
}

// MaxQueues is how many I/O queues a driver can have.
const MaxQueues = nvme.MaxQueues

// Controller is one. Its methods may be called from any goroutine; Step by one at a time.
type Controller struct {
	cfg Config

	mu      sync.Mutex
	cc      uint32
	csts    uint32
	aqa     uint32
	asq     uint64
	acq     uint64
	masked  uint32 // INTMS and INTMC
	raised  uint32 // vectors that were masked when they were due
	failed  error
	tail    uint32 // of the admin submission queue: its doorbell
	head    uint32 // … what is fetched next
	cqHead  uint32 // of the admin completion queue: its doorbell
	cqTail  uint32
	phase   bool
	events  []uint16 // Asynchronous Event Requests that wait
	due     [2]bool  // errors that nobody was told of
	quieted [2]bool  // … and that are not told of until the log is read
	cqs     [MaxQueues + 1]*completion

	on bool // CC.EN, as far as Step has come

	// Step's.
	features [256]uint32
}

// completion is an I/O completion queue.
type completion struct {
	base    uint64
	entries uint32
	vector  uint16
	told    bool   // by interrupts
	entered uint32 // entries of its submission queue; 0: it has none
}

// New makes a Controller that is not enabled.
func New(cfg Config) *Controller {
	c := &Controller{cfg: cfg}
	c.features[featureCache] = 1
	return c
}

const (
	ccEnable    = 1
	stReady     = 1
	stFatal     = 2
	stShutDone  = 2 << 2
	stShutMask  = 3 << 2
	offDoorbell = 0x1000

	// capabilities: CAP. Queues of up to nvme.MaxEntries, contiguous; 20 s to become ready or not, for commands of the lender's disk are waited for; the NVM command set.
	capabilities = uint64(nvme.MaxEntries-1) | 1<<16 | 40<<24 | 1<<37
	version      = 0x00010400

	// RegisterBytes is the size of the registers, doorbells and all.
	RegisterBytes = 16 << 10
)

// ReadRegister reads registers; what there is none of reads as zeros. After Fail all of it reads as ones, as where a device is not there any more: a driver that sees
// that waits for nothing.
func (c *Controller) ReadRegister(off uint64, p []byte) {
	var r [64]byte
	le := binary.LittleEndian
	c.mu.Lock()
	le.PutUint64(r[0:], capabilities)
	le.PutUint32(r[0x08:], version)
	le.PutUint32(r[0x0c:], c.masked)
	le.PutUint32(r[0x10:], c.masked)
	le.PutUint32(r[0x14:], c.cc)
	le.PutUint32(r[0x1c:], c.csts)
	le.PutUint32(r[0x24:], c.aqa)
	le.PutUint64(r[0x28:], c.asq)
	le.PutUint64(r[0x30:], c.acq)
	gone := c.failed != nil
	c.mu.Unlock()
	clear(p)
	if gone {
		for i := range p {
			p[i] = 0xff
		}
		return
	}
	if off < uint64(len(r)) {
		copy(p, r[off:])
	}
}

// WriteRegister stores to registers, 4 or 8 aligned bytes. It reports whether there is something for Step. What cannot be stored to stays as it is.
func (c *Controller) WriteRegister(off uint64, p []byte) (work bool) {
	if len(p) == 8 && off%8 == 0 {
		low := c.WriteRegister(off, p[:4])
		return c.WriteRegister(off+4, p[4:]) || low
	}
	if len(p) != 4 || off%4 != 0 {
		return false
	}
	v := binary.LittleEndian.Uint32(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if off >= offDoorbell {
		return c.doorbell(off-offDoorbell, v)
	}
	enabled := c.cc&ccEnable != 0
	switch off {
	case 0x0c:
		c.masked |= v
	case 0x10:
		c.masked &^= v
		for vector := range c.cfg.Vectors {
			if bit := uint32(1) << (vector & 31); c.raised&bit&^c.masked != 0 {
				c.raised &^= bit
				c.cfg.Interrupt(vector)
			}
		}
	case 0x14:
		c.cc = v
		return true
	case 0x24, 0x28, 0x2c, 0x30, 0x34:
		if enabled {
			return false // the queue that is in use stays where it is
		}
		switch off {
		case 0x24:
			c.aqa = v
		case 0x28:
			c.asq = c.asq&^0xffffffff | uint64(v&^0xfff)
		case 0x2c:
			c.asq = c.asq&0xffffffff | uint64(v)<<32
		case 0x30:
			c.acq = c.acq&^0xffffffff | uint64(v&^0xfff)
		case 0x34:
			c.acq = c.acq&0xffffffff | uint64(v)<<32
		}
	}
	return false
}

// doorbell is a store to one; mu is held.
func (c *Controller) doorbell(off uint64, v uint32) (work bool) {
	id, isHead := off/8, off&4 != 0
	if c.csts&stReady == 0 || c.failed != nil {
		return false
	}
	if id == 0 {
		if v >= c.adminEntries(isHead) {
			return c.event(eventValue)
		}
		if isHead {
			c.cqHead = v
		} else {
			c.tail = v
		}
		return true
	}
	if id > MaxQueues || c.cqs[id] == nil || c.cqs[id].entered == 0 {
		return c.event(eventRegister)
	}
	q := c.cqs[id]
	if isHead && v >= q.entries || !isHead && v >= q.entered {
		return c.event(eventValue)
	}
	if err := c.cfg.Queues.Ring(off, v); err != nil {
		c.fail(err)
	}
	return false
}

// adminEntries is the size of one of the admin queues; mu is held.
func (c *Controller) adminEntries(completions bool) uint32 {
	if completions {
		return c.aqa>>16&0xfff + 1
	}
	return c.aqa&0xfff + 1
}

// Completed says that an I/O queue has a new completion.
func (c *Controller) Completed(queue uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.cqs[queue]; q != nil && q.told {
		c.interrupt(q.vector)
	}
}

// interrupt raises one, now or when it is not masked any more; mu is held.
func (c *Controller) interrupt(vector uint16) {
	if bit := uint32(1) << (vector & 31); c.masked&bit != 0 {
		c.raised |= bit
		return
	}
	c.cfg.Interrupt(vector)
}

// Fail ends the controller: it is of no use until a new one is made.
func (c *Controller) Fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(err)
}

func (c *Controller) fail(err error) {
	if c.failed == nil {
		c.failed = err
	}
}

// Err says why the controller has failed; nil: it has not.
func (c *Controller) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// Reset is what a reset of the device does: as if the driver had disabled the controller. Step does it.
func (c *Controller) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cc, c.masked = 0, 0
}

// Enabled reports whether queues are in use, or about to be; a Step that disables the controller has been done where it is false.
func (c *Controller) Enabled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.on
}

// Step does one thing that the driver asked for. It reports whether there may be more.
func (c *Controller) Step(ctx context.Context) bool {
	c.mu.Lock()
	cc, on, failed := c.cc, c.on, c.failed
	c.mu.Unlock()
	switch enable := cc&ccEnable != 0; {
	case on && (!enable || failed != nil):
		c.disable(ctx)
		return true
	case failed != nil:
		return false
	case !on && enable:
		c.enable(cc)
		return true
	case !on:
		c.shutDown(cc)
		return false
	}
	c.shutDown(cc)
	return c.serve(ctx)
}

// shutDown answers a driver that says it is about to leave: there is nothing to be done.
func (c *Controller) shutDown(cc uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.csts &^= stShutMask
	if cc>>14&3 != 0 {
		c.csts |= stShutDone
	}
}

// enable begins with an empty admin queue.
func (c *Controller) enable(cc uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on = true
	c.tail, c.head, c.cqHead, c.cqTail, c.phase = 0, 0, 0, 0, true
	c.csts &^= stShutMask
	// CSS, MPS; entry sizes may be set until the first I/O queue is made, so 0 is right too.
	sq, cq := cc>>16&15, cc>>20&15
	if cc>>4&7 != 0 || cc>>7&15 != 0 || sq != 0 && sq != 6 || cq != 0 && cq != 4 || c.aqa&0xfff == 0 || c.aqa>>16&0xfff == 0 || c.asq == 0 || c.acq == 0 {
		c.csts |= stFatal // until the driver disables it
		return
	}
	c.csts |= stReady
}

// disable deletes all queues, and waits for their commands.
func (c *Controller) disable(ctx context.Context) {
	var err error
	for id := uint16(1); id <= MaxQueues; id++ {
		c.mu.Lock()
		q := c.cqs[id]
		c.cqs[id] = nil // doorbells are an event from here on, and completions interrupt no more
		c.mu.Unlock()
		if q != nil && q.entered > 0 {
			err = errors.Join(err, c.cfg.Queues.Delete(ctx, id))
		}
	}
	err = errors.Join(err, c.cfg.Queues.Shadow(ctx, 0, 0))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on = false
	c.csts &^= stReady | stFatal
	c.events, c.due, c.quieted, c.raised = nil, [2]bool{}, [2]bool{}, 0
	clear(c.features[:])
	c.features[featureCache] = 1
	if err != nil {
		c.fail(err)
	}
}
