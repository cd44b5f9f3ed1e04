package admin

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/wherry-fabric/wherry/device/nvme"
)

// Admin commands.
const (
	opDeleteSQ  = 0x00
	opCreateSQ  = 0x01
	opLog       = 0x02
	opDeleteCQ  = 0x04
	opCreateCQ  = 0x05
	opIdentify  = 0x06
	opAbort     = 0x08
	opSet       = 0x09
	opGet       = 0x0a
	opEvent     = 0x0c
	opDoorbells = 0x7c
)

// Statuses of admin commands.
const (
	statusNoCQ      nvme.Status = 0x100 // Completion Queue Invalid
	statusQueueID   nvme.Status = 0x101 // Invalid Queue Identifier
	statusQueueSize nvme.Status = 0x102 // Invalid Queue Size
	statusEvents    nvme.Status = 0x105 // Asynchronous Event Request Limit Exceeded
	statusVector    nvme.Status = 0x108 // Invalid Interrupt Vector
	statusLog       nvme.Status = 0x109 // Invalid Log Page
	statusInUse     nvme.Status = 0x10c // Invalid Queue Deletion
	statusFixed     nvme.Status = 0x10e // Feature Not Changeable
)

const (
	pageBytes = 4096
	maxEvents = 4 // requests that wait: Identify says so

	// What an asynchronous event of type error says.
	eventRegister = 0 // Write to Invalid Doorbell Register
	eventValue    = 1 // Invalid Doorbell Write Value
	logErrors     = 1
)

// command is an admin queue's entry.
type command struct {
	op   uint8
	id   uint16
	ns   uint32
	prp  [2]uint64
	dw10 uint32
	dw11 uint32
	bad  bool // fused, or with an SGL
}

func decode(e *[nvme.CommandBytes]byte) command {
	le := binary.LittleEndian
	return command{op: e[0], bad: e[1] != 0, id: le.Uint16(e[2:]), ns: le.Uint32(e[4:]), prp: [2]uint64{le.Uint64(e[24:]), le.Uint64(e[32:])},
		dw10: le.Uint32(e[40:]), dw11: le.Uint32(e[44:])}
}

// serve carries out one command of the admin queue, or tells of an event.
func (c *Controller) serve(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.csts&stReady == 0 || !c.room() {
		return false
	}
	if c.tellEvent() {
		return true
	}
	if c.head == c.tail {
		return false
	}
	var e [nvme.CommandBytes]byte
	if !c.cfg.Memory.Read(c.asq+uint64(c.head)*nvme.CommandBytes, e[:]) { // once: what is checked is what is done
		c.csts |= stFatal
		c.tail = c.head
		return false
	}
	if c.head++; c.head == c.adminEntries(false) {
		c.head = 0
	}
	cmd := decode(&e)
	if cmd.op == opEvent && !cmd.bad {
		if len(c.events) < maxEvents {
			c.events = append(c.events, cmd.id)
		} else {
			c.complete(cmd.id, statusEvents, 0)
		}
		return true
	}
	c.mu.Unlock()
	status, dw0 := nvme.StatusField, uint32(0)
	if !cmd.bad {
		status, dw0 = c.execute(ctx, &cmd)
	}
	c.mu.Lock()
	c.complete(cmd.id, status, dw0)
	return true
}

// room reports whether a completion fits; mu is held.
func (c *Controller) room() bool {
	return (c.cqTail+1)%c.adminEntries(true) != c.cqHead
}

// complete writes a completion; mu is held.
func (c *Controller) complete(id uint16, st nvme.Status, dw0 uint32) {
	at := c.acq + uint64(c.cqTail)*nvme.CompletionBytes
	var half [8]byte
	binary.LittleEndian.PutUint32(half[:], dw0)
	ok := c.cfg.Memory.Write(at, half[:])
	binary.LittleEndian.PutUint64(half[:], nvme.Completion{Head: uint16(c.head), ID: id, Status: st, Phase: c.phase}.Word())
	if !ok || !c.cfg.Memory.Write(at+8, half[:]) {
		c.csts |= stFatal
		return
	}
	if c.cqTail++; c.cqTail == c.adminEntries(true) {
		c.cqTail, c.phase = 0, !c.phase
	}
	c.interrupt(0)
}

// event notes an error that the driver is to be told of; mu is held.
func (c *Controller) event(kind int) bool {
	if !c.quieted[kind] {
		c.due[kind] = true
	}
	return c.due[kind]
}

// tellEvent completes a request with an event; mu is held.
func (c *Controller) tellEvent() bool {
	for kind, due := range c.due {
		if !due || len(c.events) == 0 {
			continue
		}
		id := c.events[0]
		c.events = append(c.events[:0], c.events[1:]...)
		c.due[kind], c.quieted[kind] = false, true
		c.complete(id, nvme.StatusOK, uint32(kind)<<8|logErrors<<16)
		return true
	}
	return false
}

func (c *Controller) execute(ctx context.Context, cmd *command) (nvme.Status, uint32) {
	switch cmd.op {
	case opCreateCQ:
		return c.createCQ(cmd), 0
	case opCreateSQ:
		return c.createSQ(ctx, cmd), 0
	case opDeleteSQ:
		return c.deleteSQ(ctx, cmd), 0
	case opDeleteCQ:
		return c.deleteCQ(cmd), 0
	case opIdentify:
		return c.identify(cmd), 0
	case opLog:
		return c.log(cmd), 0
	case opSet, opGet:
		return c.feature(cmd)
	case opAbort:
		return nvme.StatusOK, 1 // it was not aborted: a write cannot be called back
	case opDoorbells:
		return c.doorbellBuffers(ctx, cmd), 0
	}
	return nvme.StatusOpcode, 0
}

func (c *Controller) createCQ(cmd *command) nvme.Status {
	id, entries, vector := cmd.dw10&0xffff, cmd.dw10>>16+1, uint16(cmd.dw11>>16)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case id == 0 || id > MaxQueues || c.cqs[id] != nil:
		return statusQueueID
	case entries < nvme.MinEntries || entries > nvme.MaxEntries:
		return statusQueueSize
	case cmd.dw11&1 == 0: // contiguous
		return nvme.StatusField
	case cmd.prp[0]%pageBytes != 0 || cmd.prp[0] == 0:
		return nvme.StatusPRPOffset
	case cmd.dw11&2 != 0 && vector >= c.cfg.Vectors:
		return statusVector
	}
	c.cqs[id] = &completion{base: cmd.prp[0], entries: entries, vector: vector, told: cmd.dw11&2 != 0}
	return nvme.StatusOK
}

func (c *Controller) createSQ(ctx context.Context, cmd *command) nvme.Status {
	id, entries, cq := cmd.dw10&0xffff, cmd.dw10>>16+1, cmd.dw11>>16
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case id == 0 || id > MaxQueues || c.cqs[id] != nil && c.cqs[id].entered > 0:
		return statusQueueID
	case cq != id || c.cqs[id] == nil:
		return statusNoCQ
	case entries < nvme.MinEntries || entries > nvme.MaxEntries:
		return statusQueueSize
	case cmd.dw11&1 == 0:
		return nvme.StatusField
	case cmd.prp[0]%pageBytes != 0 || cmd.prp[0] == 0:
		return nvme.StatusPRPOffset
	}
	q := c.cqs[id]
	spec := Queue{ID: uint16(id), Entries: entries, CompletionEntries: q.entries, Commands: cmd.prp[0], Completions: q.base}
	c.mu.Unlock()
	err := c.cfg.Queues.Create(ctx, spec)
	c.mu.Lock()
	if err != nil { // an address in no memory, or the lender has no room
		return nvme.StatusField
	}
	q.entered = entries
	return nvme.StatusOK
}

func (c *Controller) deleteSQ(ctx context.Context, cmd *command) nvme.Status {
	id := cmd.dw10 & 0xffff
	c.mu.Lock()
	if id == 0 || id > MaxQueues || c.cqs[id] == nil || c.cqs[id].entered == 0 {
		c.mu.Unlock()
		return statusQueueID
	}
	c.mu.Unlock()
	if err := c.cfg.Queues.Delete(ctx, uint16(id)); err != nil {
		c.Fail(fmt.Errorf("delete queue %d: %w", id, err))
		return nvme.StatusInternal
	}
	c.mu.Lock()
	c.cqs[id].entered = 0
	c.mu.Unlock()
	return nvme.StatusOK
}

func (c *Controller) deleteCQ(cmd *command) nvme.Status {
	id := cmd.dw10 & 0xffff
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case id == 0 || id > MaxQueues || c.cqs[id] == nil:
		return statusQueueID
	case c.cqs[id].entered > 0:
		return statusInUse
	}
	c.cqs[id] = nil
	return nvme.StatusOK
}

func (c *Controller) doorbellBuffers(ctx context.Context, cmd *command) nvme.Status {
	if cmd.prp[0]%pageBytes != 0 || cmd.prp[1]%pageBytes != 0 || cmd.prp[0] == 0 || cmd.prp[1] == 0 {
		return nvme.StatusField
	}
	if c.cfg.Queues.Shadow(ctx, cmd.prp[0], cmd.prp[1]) != nil {
		return nvme.StatusField
	}
	return nvme.StatusOK
}

// give writes a command's answer to where its PRPs say.
func (c *Controller) give(cmd *command, data []byte) nvme.Status {
	if cmd.prp[0]&3 != 0 {
		return nvme.StatusPRPOffset
	}
	n := min(len(data), int(pageBytes-cmd.prp[0]%pageBytes))
	if !c.cfg.Memory.Write(cmd.prp[0], data[:n]) {
		return nvme.StatusTransfer
	}
	if data = data[n:]; len(data) == 0 {
		return nvme.StatusOK
	}
	if len(data) > pageBytes { // maxAnswer needs no list
		return nvme.StatusField
	}
	if cmd.prp[1]%pageBytes != 0 {
		return nvme.StatusPRPOffset
	}
	if !c.cfg.Memory.Write(cmd.prp[1], data) {
		return nvme.StatusTransfer
	}
	return nvme.StatusOK
}
