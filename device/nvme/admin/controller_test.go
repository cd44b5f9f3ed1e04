package admin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/device/nvme"
)

// driver is a guest's driver with memory of its own, and the queues that it is given.
type driver struct {
	t      *testing.T
	c      *Controller
	mem    []byte
	did    []string // to queues
	refuse error    // of Create
	irqs   []uint16
	tail   uint32
	head   uint32
	phase  bool
}

const (
	memBytes = 1 << 20
	asqAt    = 0x1000
	acqAt    = 0x2000
	answerAt = 0x10000
	depth    = 8
)

func (d *driver) Read(addr uint64, p []byte) bool {
	return addr < memBytes && copy(p, d.mem[addr:]) == len(p)
}

func (d *driver) Write(addr uint64, p []byte) bool {
	return addr < memBytes && copy(d.mem[addr:], p) == len(p)
}

func (d *driver) say(format string, args ...any) { d.did = append(d.did, fmt.Sprintf(format, args...)) }

func (d *driver) Create(_ context.Context, q Queue) error { d.say("create %+v", q); return d.refuse }
func (d *driver) Delete(_ context.Context, id uint16) error {
	if d.reg(0x1c)&stReady == 0 {
		d.t.Error("the controller says that it is not ready while it deletes queues")
	}
	d.say("delete %d", id)
	return nil
}
func (d *driver) Shadow(_ context.Context, a, b uint64) error {
	d.say("shadow %#x %#x", a, b)
	return nil
}
func (d *driver) Ring(off uint64, v uint32) error { d.say("ring %d %d", off, v); return nil }

func (d *driver) reg(off uint64) uint32 {
	var b [4]byte
	d.c.ReadRegister(off, b[:])
	return binary.LittleEndian.Uint32(b[:])
}

func (d *driver) set(off uint64, v uint32) {
	d.c.WriteRegister(off, binary.LittleEndian.AppendUint32(nil, v))
	for d.c.Step(d.t.Context()) {
	}
}

func (d *driver) set64(off, v uint64) {
	d.c.WriteRegister(off, binary.LittleEndian.AppendUint64(nil, v))
}

// newDriver makes a controller that is not enabled.
func newDriver(t *testing.T) *driver {
	d := &driver{t: t, mem: make([]byte, memBytes)}
	d.c = New(Config{Memory: d, Queues: d, Vectors: 4, Drive: Drive{Blocks: 1000, Model: "a model", Serial: "s", UUID: [16]byte{1, 2}},
		Interrupt: func(v uint16) { d.irqs = append(d.irqs, v) }})
	return d
}

// enable does what Linux's driver does.
func (d *driver) enable() {
	d.set(0x14, 0)
	d.set(0x24, (depth-1)<<16|(depth-1))
	d.set64(0x28, asqAt)
	d.set64(0x30, acqAt)
	clear(d.mem[asqAt : acqAt+0x1000])
	d.tail, d.head, d.phase = 0, 0, true
	d.set(0x14, 6<<16|4<<20|1)
	if d.reg(0x1c) != stReady {
		d.t.Fatalf("CSTS %#x", d.reg(0x1c))
	}
}

// put puts a command into the admin queue; e has its dwords from 10 on.
func (d *driver) put(op uint8, ns uint32, prp1, prp2 uint64, dws ...uint32) {
	e := d.mem[asqAt+d.tail*nvme.CommandBytes:][:nvme.CommandBytes]
	clear(e)
	e[0] = op
	binary.LittleEndian.PutUint16(e[2:], uint16(d.tail))
	binary.LittleEndian.PutUint32(e[4:], ns)
	binary.LittleEndian.PutUint64(e[24:], prp1)
	binary.LittleEndian.PutUint64(e[32:], prp2)
	for i, w := range dws {
		binary.LittleEndian.PutUint32(e[40+4*i:], w)
	}
	d.tail = (d.tail + 1) % depth
}

// reap takes a completion, if there is one.
func (d *driver) reap() (c nvme.Completion, dw0 uint32, ok bool) {
	e := d.mem[acqAt+d.head*nvme.CompletionBytes:]
	if c = nvme.ParseCompletion(binary.LittleEndian.Uint64(e[8:])); c.Phase != d.phase {
		return c, 0, false
	}
	if d.head++; d.head == depth {
		d.head, d.phase = 0, !d.phase
	}
	d.set(0x1004, d.head)
	return c, binary.LittleEndian.Uint32(e), true
}

// do has one command carried out.
func (d *driver) do(op uint8, ns uint32, prp1, prp2 uint64, dws ...uint32) (nvme.Status, uint32) {
	d.t.Helper()
	d.put(op, ns, prp1, prp2, dws...)
	d.set(0x1000, d.tail)
	c, dw0, ok := d.reap()
	if !ok {
		d.t.Fatalf("command %#x has no completion", op)
	}
	return c.Status, dw0
}

func (d *driver) took() string {
	s := strings.Join(d.did, "; ")
	d.did = nil
	return s
}

// TestDriver: what Linux's driver does from probe to removal.
func TestDriver(t *testing.T) {
	d := newDriver(t)
	d.enable()
	if st, _ := d.do(opIdentify, 0, answerAt, 0, askController); st != 0 || string(d.mem[answerAt+24:answerAt+31]) != "a model" || d.mem[answerAt+512] != 0x66 || d.mem[answerAt+77] != 6 {
		t.Errorf("identify controller: %#x, %q", st, d.mem[answerAt+24:answerAt+64])
	}
	if st, _ := d.do(opIdentify, 1, answerAt+0x800, answerAt+0x1000, askNamespace); st != 0 || binary.LittleEndian.Uint64(d.mem[answerAt+0x800:]) != 1000 {
		t.Errorf("identify namespace: %#x", st)
	}
	if st, dw0 := d.do(opSet, 0, 0, 0, featureQueues, 0xffff0003); st != 0 || dw0 != 15|15<<16 {
		t.Errorf("number of queues: %#x, %#x", st, dw0)
	}
	d.do(opCreateCQ, 0, 0x20000, 0, 1|1022<<16, 3|2<<16)
	d.do(opCreateSQ, 0, 0x30000, 0, 1|1022<<16, 1|1<<16)
	d.do(opDoorbells, 0, 0x40000, 0x41000)
	d.set(0x1008, 5)
	d.set(0x100c, 4)
	const made = "create {ID:1 Entries:1023 CompletionEntries:1023 Commands:196608 Completions:131072}; shadow 0x40000 0x41000; ring 8 5; ring 12 4"
	if got := d.took(); got != made {
		t.Errorf("it did %s\nwant %s", got, made)
	}
	d.irqs = nil
	d.c.Completed(1)
	d.set(0x0c, 1<<2) // masked
	d.c.Completed(1)
	d.c.Completed(1)
	if fmt.Sprint(d.irqs) != "[2]" {
		t.Errorf("interrupts %v", d.irqs)
	}
	if d.set(0x10, 1<<2); fmt.Sprint(d.irqs) != "[2 2]" {
		t.Errorf("interrupts %v, after what was masked is not", d.irqs)
	}
	if st, _ := d.do(opDeleteCQ, 0, 0, 0, 1); st != statusInUse {
		t.Errorf("a completion queue in use is deleted: %#x", st)
	}
	for _, op := range []uint8{opDeleteSQ, opDeleteCQ} {
		if st, _ := d.do(op, 0, 0, 0, 1); st != 0 {
			t.Errorf("delete: %#x", st)
		}
	}
	d.set(0x14, d.reg(0x14)|1<<14)
	if d.reg(0x1c)&stShutMask != stShutDone {
		t.Errorf("CSTS %#x after a shutdown", d.reg(0x1c))
	}
	d.set(0x14, 0)
	if got := d.took(); d.reg(0x1c) != 0 || got != "delete 1; shadow 0x0 0x0" {
		t.Errorf("CSTS %#x, it did %s", d.reg(0x1c), got)
	}
}

// TestReset: a driver that resets again and again has its queues deleted each time, before it hears that the controller is not ready.
func TestReset(t *testing.T) {
	d := newDriver(t)
	for range 50 {
		d.enable()
		d.do(opCreateCQ, 0, 0x20000, 0, 3|7<<16, 1)
		d.do(opCreateSQ, 0, 0x30000, 0, 3|7<<16, 1|3<<16)
		d.put(opEvent, 0, 0, 0)
		d.set(0x1000, d.tail)
		d.took()
		d.c.Reset()
		for d.c.Step(t.Context()) {
		}
		if got := d.took(); got != "delete 3; shadow 0x0 0x0" || d.reg(0x1c) != 0 || d.c.Enabled() {
			t.Fatalf("CSTS %#x, it did %s", d.reg(0x1c), got)
		}
	}
}

// TestBadCommands: each ends in its own status, and nothing is made.
func TestBadCommands(t *testing.T) {
	d := newDriver(t)
	d.enable()
	d.do(opCreateCQ, 0, 0x20000, 0, 2|7<<16, 1)
	for _, c := range []struct {
		what string
		op   uint8
		ns   uint32
		prp  [2]uint64
		dws  []uint32
		want nvme.Status
	}{
		{"no such command", 0x55, 0, [2]uint64{}, nil, nvme.StatusOpcode},
		{"identify what there is not", opIdentify, 0, [2]uint64{answerAt}, []uint32{0x77}, nvme.StatusField},
		{"another namespace", opIdentify, 2, [2]uint64{answerAt}, []uint32{askNamespace}, nvme.StatusNamespace},
		{"an answer to no memory", opIdentify, 0, [2]uint64{memBytes}, []uint32{askController}, nvme.StatusTransfer},
		{"an answer half to no memory", opIdentify, 0, [2]uint64{answerAt + 0x800, 1 << 60}, []uint32{askController}, nvme.StatusTransfer},
		{"an answer to no word", opIdentify, 0, [2]uint64{answerAt + 1}, []uint32{askController}, nvme.StatusPRPOffset},
		{"a second page inside a page", opIdentify, 0, [2]uint64{answerAt + 0x800, answerAt + 0x1100}, []uint32{askController}, nvme.StatusPRPOffset},
		{"a log that there is not", opLog, 0, [2]uint64{answerAt}, []uint32{0x70 | 15<<16}, statusLog},
		{"a log too long", opLog, 0, [2]uint64{answerAt}, []uint32{2 | 0xffff<<16, 0xffff}, nvme.StatusField},
		{"a feature that there is not", opGet, 0, [2]uint64{}, []uint32{0xc0}, nvme.StatusField},
		{"no write cache", opSet, 0, [2]uint64{}, []uint32{featureCache, 0}, statusFixed},
		{"completion queue 0", opCreateCQ, 0, [2]uint64{0x30000}, []uint32{7 << 16, 1}, statusQueueID},
		{"completion queue 17", opCreateCQ, 0, [2]uint64{0x30000}, []uint32{17 | 7<<16, 1}, statusQueueID},
		{"a completion queue twice", opCreateCQ, 0, [2]uint64{0x30000}, []uint32{2 | 7<<16, 1}, statusQueueID},
		{"a completion queue of one", opCreateCQ, 0, [2]uint64{0x30000}, []uint32{1, 1}, statusQueueSize},
		{"a completion queue too long", opCreateCQ, 0, [2]uint64{0x30000}, []uint32{1 | 1024<<16, 1}, statusQueueSize},
		{"a completion queue in pieces", opCreateCQ, 0, [2]uint64{0x30000}, []uint32{1 | 7<<16, 0}, nvme.StatusField},
		{"a completion queue inside a page", opCreateCQ, 0, [2]uint64{0x30010}, []uint32{1 | 7<<16, 1}, nvme.StatusPRPOffset},
		{"an interrupt that there is not", opCreateCQ, 0, [2]uint64{0x30000}, []uint32{1 | 7<<16, 3 | 4<<16}, statusVector},
		{"a submission queue without the other", opCreateSQ, 0, [2]uint64{0x30000}, []uint32{1 | 7<<16, 1 | 1<<16}, statusNoCQ},
		{"two of one completion queue", opCreateSQ, 0, [2]uint64{0x30000}, []uint32{1 | 7<<16, 1 | 2<<16}, statusNoCQ},
		{"a submission queue at 0", opCreateSQ, 0, [2]uint64{}, []uint32{2 | 7<<16, 1 | 2<<16}, nvme.StatusPRPOffset},
		{"delete what there is not", opDeleteSQ, 0, [2]uint64{}, []uint32{9}, statusQueueID},
		{"delete 0", opDeleteCQ, 0, [2]uint64{}, []uint32{0}, statusQueueID},
		{"shadow doorbells inside a page", opDoorbells, 0, [2]uint64{0x40000, 0x41008}, nil, nvme.StatusField},
	} {
		if st, _ := d.do(c.op, c.ns, c.prp[0], c.prp[1], c.dws...); st != c.want {
			t.Errorf("%s: status %#x, want %#x", c.what, st, c.want)
		}
	}
	if got := d.took(); got != "" {
		t.Errorf("it did %s", got)
	}
	d.refuse = errors.New("no such memory")
	if st, _ := d.do(opCreateSQ, 0, 0x30000, 0, 2|7<<16, 1|2<<16); st != nvme.StatusField {
		t.Errorf("a queue in no memory: %#x", st)
	}
	if d.set(0x1010, 1); d.c.Err() != nil || strings.Contains(d.took(), "ring") {
		t.Error("a queue that was not made is rung")
	}
}

// TestBadDoorbells: what is out of range moves nothing, and is told of as an event once, until the log is read.
func TestBadDoorbells(t *testing.T) {
	d := newDriver(t)
	d.enable()
	d.do(opCreateCQ, 0, 0x20000, 0, 1|7<<16, 1)
	d.do(opCreateSQ, 0, 0x30000, 0, 1|3<<16, 1|1<<16)
	for range maxEvents + 1 {
		d.put(opEvent, 0, 0, 0)
	}
	d.set(0x1000, d.tail)
	if c, _, ok := d.reap(); !ok || c.Status != statusEvents {
		t.Fatalf("one event request too many: %#x, %v", c.Status, ok)
	}
	d.took()
	for i, at := range []uint64{0x1008, 0x100c, 0x1000, 0x1004, 0x1010, 0x1ff8} {
		d.set(at, 8)
		d.set(at, 0xffffffff)
		c, dw0, ok := d.reap()
		if kind := uint32(min(i/4, 1) ^ 1); i%4 == 0 != ok || ok && dw0 != kind<<8|logErrors<<16 {
			t.Errorf("doorbell at %#x: %+v, %#x, %v", at, c, dw0, ok)
		}
	}
	d.did = nil
	if st, _ := d.do(opLog, 0, answerAt, 0, logErrors|15<<16); st != 0 {
		t.Errorf("the error log: %#x", st)
	}
	d.set(0x1010, 1)
	if _, _, ok := d.reap(); !ok {
		t.Error("no event after the log was read")
	}
	if got := d.took(); got != "" {
		t.Errorf("it did %s", got)
	}
}

// TestBadEnable: a driver that asks for what there is not sees CFS, and can try again; so can one whose admin queue lies in no memory.
func TestBadEnable(t *testing.T) {
	for what, spoil := range map[string]func(d *driver) uint32{
		"pages of 8 KiB":      func(*driver) uint32 { return 1<<7 | 1 },
		"another command set": func(*driver) uint32 { return 1<<4 | 1 },
		"entries of 32 bytes": func(*driver) uint32 { return 5<<16 | 4<<20 | 1 },
		"queues of one":       func(d *driver) uint32 { d.set(0x24, 0); return 1 },
		"no admin queue":      func(d *driver) uint32 { d.set64(0x28, 0); return 1 },
	} {
		d := newDriver(t)
		d.set(0x24, 7<<16|7)
		d.set64(0x28, asqAt)
		d.set64(0x30, acqAt)
		if d.set(0x14, spoil(d)); d.reg(0x1c) != stFatal {
			t.Errorf("%s: CSTS %#x", what, d.reg(0x1c))
		}
		d.enable()
	}
	d := newDriver(t)
	d.set(0x24, 7<<16|7)
	d.set64(0x28, memBytes)
	d.set64(0x30, acqAt)
	d.set(0x14, 1)
	if d.set(0x1000, 3); d.reg(0x1c) != stReady|stFatal {
		t.Errorf("CSTS %#x", d.reg(0x1c))
	}
	d.enable()
	d.c.Fail(errors.New("the lender is lost"))
	d.set(0x14, 0)
	if d.set(0x14, 6<<16|4<<20|1); d.reg(0x1c) != 0xffffffff || d.c.Enabled() {
		t.Errorf("CSTS %#x of a controller that has failed", d.reg(0x1c))
	}
}

// FuzzRegisters: whatever a driver stores, and has in its queue, the controller goes on or says that it does not.
func FuzzRegisters(f *testing.F) {
	f.Add([]byte{0x14, 0, 1, 0, 0, 0}, []byte{6})
	f.Fuzz(func(t *testing.T, stores, queue []byte) {
		d := newDriver(t)
		d.enable()
		copy(d.mem[asqAt:], queue)
		for ; len(stores) >= 6; stores = stores[6:] {
			d.c.WriteRegister(uint64(binary.LittleEndian.Uint16(stores)), stores[2:6])
			for range 100 {
				if !d.c.Step(t.Context()) {
					break
				}
			}
		}
	})
}
