package lender

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
	"github.com/wherry-fabric/wherry/fabric/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// disk is a Backing in memory that can be slow, full or broken.
type disk struct {
	mu   sync.Mutex
	mem  []byte
	gate chan struct{} // nil: requests are answered at once; else each takes a value first
	err  error
	at   []int64 // of writes, in order
}

func (d *disk) Size() uint64 { return uint64(len(d.mem)) }
func (d *disk) Close() error { return nil }

func (d *disk) Do(r *nvme.Request, wait bool) error {
	d.mu.Lock()
	gate := d.gate
	d.mu.Unlock()
	if gate != nil {
		if !wait {
			return nvme.ErrWait
		}
		<-gate
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	off := r.Off
	switch r.Op {
	case nvme.OpRead:
		for _, p := range r.Pieces {
			off += int64(copy(p, d.mem[off:]))
		}
	case nvme.OpWrite:
		d.at = append(d.at, r.Off)
		for _, p := range r.Pieces {
			off += int64(copy(d.mem[off:], p))
		}
	case nvme.OpWriteZeroes, nvme.OpDataset:
		clear(d.mem[r.Off : r.Off+r.Size])
	}
	return nil
}

// rig is a lender of one disk, and elements that borrow.
type rig struct {
	t    *testing.T
	dir  string
	el   *fabric.Element
	addr string
	l    *Lender
	disk *disk                                   // disk0
	next *disk                                   // disk1
	from map[fabric.Incarnation]*fabric.Endpoint // the lender's
	mu   sync.Mutex
}

var anyone = cluster.Principal{Name: "ann", Caps: cluster.CapDevice}

func element(t *testing.T, name string, change func(*fabric.Config)) *fabric.Element {
	t.Helper()
	tr, err := shm.New(shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	net, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := fabric.Config{Name: name, Transports: []fabric.Transport{tr, net}}
	if change != nil {
		change(&cfg)
	}
	el, err := fabric.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return el
}

func newRig(t *testing.T, limits Limits) *rig {
	t.Helper()
	return newRigOf(t, limits, fabric.Limits{})
}

func newRigOf(t *testing.T, limits Limits, of fabric.Limits) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), disk: &disk{mem: make([]byte, 1<<20)}, next: &disk{mem: make([]byte, 1<<20)}, from: map[fabric.Incarnation]*fabric.Endpoint{}}
	r.el = element(t, "lender", func(c *fabric.Config) {
		c.Limits = of
		c.OnPeer = func(ep *fabric.Endpoint) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.from[ep.Incarnation()] = ep
		}
		c.OnLost = func(ep *fabric.Endpoint, _ error) { go r.l.Abandoned(ep) }
	})
	var err error
	r.l, err = New(Config{Element: r.el, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Limits: limits,
		Reserve: func(string, int64) (func(), error) { return func() {}, nil }, Open: func(s Spec) (nvme.Backing, error) {
			if s.Name == "disk1" {
				return r.next, nil
			}
			return r.disk, nil
		}})
	for _, name := range []string{"disk0", "disk1"} {
		if err == nil {
			err = r.l.Lend(Spec{Class: "nvme", Name: name})
		}
		if err == nil {
			err = r.l.Grant(cluster.Principal{Name: "root", Caps: cluster.CapAdmin}, &device.GrantRequest{Name: name, To: "*", Rights: "rw"})
		}
	}
	if err == nil {
		r.addr, err = r.el.Listen("shm://" + filepath.Join(r.dir, "l.sock"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.l.Close(); err != nil {
			t.Error(err)
		}
		r.el.Close()
	})
	return r
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// borrower is somebody who writes queues by hand.
type borrower struct {
	*rig
	el    *fabric.Element
	ep    *fabric.Endpoint // the borrower's
	from  *fabric.Endpoint // the lender's, to the same
	lease *device.BorrowReply
	regs  *fabric.Remote
	seg   *fabric.Segment
	tail  uint32
	head  uint32
	phase bool
}

// Where things are in a borrower's window.
const (
	entries = 16
	cqAt    = 0
	sqAt    = 4096
	listAt  = 8192
	dataAt  = 16384
	winSize = 1 << 20
)

func (r *rig) connect() *borrower {
	r.t.Helper()
	b := &borrower{rig: r, el: element(r.t, "borrower", nil), phase: true}
	r.t.Cleanup(func() { b.el.Close() })
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	var err error
	if b.ep, err = b.el.Dial(ctx, r.addr); err != nil {
		r.t.Fatal(err)
	}
	r.eventually("the lender knows the borrower", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		b.from = r.from[b.el.Incarnation()]
		return b.from != nil
	})
	return b
}

// borrow takes a lease, a window and a queue.
func (r *rig) borrow(req device.BorrowRequest) *borrower {
	r.t.Helper()
	b := r.connect()
	if req.Name == "" {
		req.Name = "disk0"
	}
	var err error
	if b.lease, err = r.l.Borrow(anyone, b.from, &req); err != nil {
		r.t.Fatal(err)
	}
	key, err := fabric.DecodeKey(b.lease.RegistersKey)
	if err == nil {
		b.regs, err = b.ep.Import(r.t.Context(), key)
	}
	if err == nil {
		b.seg, err = b.el.NewSegment(winSize, fabric.Writable)
	}
	if err == nil {
		key, err = b.seg.Key(fabric.RightsAll)
	}
	if err == nil {
		_, err = r.l.Window(r.t.Context(), b.from, &device.WindowRequest{Lease: b.lease.ID, Window: 1, Key: key.Append(nil)})
	}
	if err == nil {
		_, err = r.l.Queue(b.from, &device.QueueRequest{Lease: b.lease.ID, Queue: 1, Entries: entries, Commands: device.Address(1, sqAt), Completions: device.Address(1, cqAt)})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// send puts a command into the queue and rings.
func (b *borrower) send(c nvme.Command) {
	b.t.Helper()
	var e [nvme.CommandBytes]byte
	c.Encode(&e)
	b.raw(e[:])
}

func (b *borrower) raw(e []byte) {
	b.t.Helper()
	copy(b.seg.Bytes()[sqAt+b.tail*nvme.CommandBytes:], e)
	b.tail = (b.tail + 1) % entries
	if err := b.regs.Ring(device.SubmissionDoorbell(1), 4, uint64(b.tail)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *borrower) peek() (nvme.Completion, bool) {
	var w [8]byte
	fabric.CopyOut(w[:], b.seg.Bytes()[cqAt+b.head*nvme.CompletionBytes+8:][:8])
	c := nvme.ParseCompletion(binary.LittleEndian.Uint64(w[:]))
	return c, c.Phase == b.phase
}

// reap waits for a completion; told says whether the lender hears of it.
func (b *borrower) reap(told bool) (c nvme.Completion) {
	b.t.Helper()
	b.eventually("a completion", func() (ok bool) { c, ok = b.peek(); return ok })
	if b.head++; b.head == entries {
		b.head, b.phase = 0, !b.phase
	}
	if told {
		if err := b.regs.Ring(device.CompletionDoorbell(1), 4, uint64(b.head)); err != nil {
			b.t.Fatal(err)
		}
	}
	return c
}

func (b *borrower) put(at int, words ...uint64) {
	for i, w := range words {
		binary.LittleEndian.PutUint64(b.seg.Bytes()[at+8*i:], w)
	}
}

func (r *rig) leases() []device.LeaseInfo {
	r.t.Helper()
	info, err := r.l.Stat(cluster.Principal{Name: "root", Caps: cluster.CapAdmin}, "disk0")
	if err != nil {
		r.t.Fatal(err)
	}
	return info.Leases
}

func at(off uint64) uint64 { return device.Address(1, off) }

// TestBadCommands: whatever a command says, it ends in its own status, and touches nothing but what it may.
func TestBadCommands(t *testing.T) {
	r := newRig(t, Limits{})
	r.disk.mem[0] = 7
	b := r.borrow(device.BorrowRequest{Mode: device.Exclusive, Offset: 512 << 10, Size: 256 << 10})
	const blocks = 512 // of the lease
	sgl := func(op nvme.Opcode, block uint64, n uint32, addr uint64, size uint32) nvme.Command {
		return nvme.Command{Op: op, NS: 1, SGL: true, Data: nvme.DataBlock(addr, size), Block: block, Blocks: n}
	}
	prp := func(n uint32, p1, p2 uint64) nvme.Command {
		return nvme.Command{Op: nvme.OpRead, NS: 1, Data: [2]uint64{p1, p2}, Blocks: n}
	}
	circle := at(listAt + 4096 - 8) // one entry, which leads to itself
	b.put(listAt+4096-8, circle)
	b.put(listAt, at(dataAt), at(dataAt+100))
	badType := sgl(nvme.OpRead, 0, 1, at(dataAt), 512)
	badType.Data[1] |= 2 << 60
	for i, c := range []struct {
		what string
		cmd  nvme.Command
		want nvme.Status
	}{
		{"a good one", sgl(nvme.OpRead, 0, 1, at(dataAt), 512), nvme.StatusOK},
		{"an opcode that there is not", nvme.Command{Op: 0x7f, NS: 1, Blocks: 1}, nvme.StatusOpcode},
		{"another namespace", nvme.Command{Op: nvme.OpRead, NS: 2, Blocks: 1}, nvme.StatusNamespace},
		{"a fused command", nvme.Command{Op: nvme.OpCompare, NS: 1, Fused: 1, Blocks: 1}, nvme.StatusFusedMissing},
		{"a fused command's second half", nvme.Command{Op: nvme.OpWrite, NS: 1, Fused: 2, Blocks: 1}, nvme.StatusFusedMissing},
		{"the block behind the last", sgl(nvme.OpRead, blocks, 1, at(dataAt), 512), nvme.StatusLBA},
		{"across the last block", sgl(nvme.OpWrite, blocks-1, 2, at(dataAt), 1024), nvme.StatusLBA},
		{"a block that wraps", sgl(nvme.OpWrite, ^uint64(0), 2, at(dataAt), 1024), nvme.StatusLBA},
		{"zeros across the last block", nvme.Command{Op: nvme.OpWriteZeroes, NS: 1, Block: blocks - 1, Blocks: 2}, nvme.StatusLBA},
		{"a window that there is not", sgl(nvme.OpRead, 0, 1, device.Address(2, 0), 512), nvme.StatusTransfer},
		{"no window", sgl(nvme.OpRead, 0, 1, 4096, 512), nvme.StatusTransfer},
		{"the end of a window", sgl(nvme.OpRead, 0, 2, at(winSize-512), 1024), nvme.StatusTransfer},
		{"an address that wraps", sgl(nvme.OpRead, 0, 2, ^uint64(511), 1024), nvme.StatusTransfer},
		{"another SGL", badType, nvme.StatusSGLType},
		{"an SGL of another length", sgl(nvme.OpRead, 0, 2, at(dataAt), 512), nvme.StatusSGLLength},
		{"a good PRP", prp(16, at(dataAt), at(dataAt+8192)), nvme.StatusOK},
		{"a PRP at no word", prp(1, at(dataAt+1), 0), nvme.StatusPRPOffset},
		{"a second PRP inside a page", prp(16, at(dataAt), at(dataAt+512)), nvme.StatusPRPOffset},
		{"a list at no word", prp(24, at(dataAt), at(listAt+4)), nvme.StatusPRPOffset},
		{"a list with an entry inside a page", prp(24, at(dataAt), at(listAt)), nvme.StatusPRPOffset},
		{"a list that leads to itself", prp(64, at(dataAt), circle), nvme.StatusPRPOffset},
		{"a list outside", prp(24, at(dataAt), at(winSize)), nvme.StatusTransfer},
		{"trimming behind the last block", nvme.Command{Op: nvme.OpDataset, NS: 1, SGL: true, Data: nvme.DataBlock(at(12288), 16), Blocks: 1, Free: true}, nvme.StatusLBA},
	} {
		b.put(12288, uint64(blocks+1)<<32, 0)
		c.cmd.ID = uint16(i) + 100
		b.send(c.cmd)
		if got := b.reap(true); got.Status != c.want || got.ID != c.cmd.ID || got.Queue != 1 {
			t.Errorf("%s: %s (%#x) of command %d", c.what, got.Status.Text(), uint16(got.Status), got.ID)
		}
	}
	if len(r.disk.at) > 0 {
		t.Errorf("the disk was written at %d", r.disk.at)
	}
	if n := len(r.leases()); n != 1 {
		t.Errorf("%d leases", n)
	}
}

// TestNoise: entries of random bytes end with some status, one each, and the disk outside the lease stays as it was.
func TestNoise(t *testing.T) {
	r := newRig(t, Limits{})
	b := r.borrow(device.BorrowRequest{Mode: device.Exclusive, Offset: 512 << 10, Size: 4096})
	for i := range r.disk.mem {
		r.disk.mem[i] = 0x5a
	}
	seed := uint64(1)
	for range 3000 {
		var e [64]byte
		for k := 0; k < 64; k += 8 {
			seed = seed*6364136223846793005 + 1442695040888963407
			binary.LittleEndian.PutUint64(e[k:], seed>>uint(seed%40))
		}
		e[0], e[1] = e[0]%12, e[1]&0x40
		binary.LittleEndian.PutUint32(e[4:], 1)
		b.raw(e[:])
		if c := b.reap(true); c.ID != binary.LittleEndian.Uint16(e[2:]) {
			t.Fatalf("command %d is completed as %d", binary.LittleEndian.Uint16(e[2:]), c.ID)
		}
	}
	for i, v := range r.disk.mem {
		if v != 0x5a && (i < 512<<10 || i >= 512<<10+4096) {
			t.Fatalf("byte %d of the disk was written, which is not lent", i)
		}
	}
}

// TestBadDoorbells: who points outside a queue loses the lease, and nobody else does.
func TestBadDoorbells(t *testing.T) {
	for what, at := range map[string]uint64{"submission": device.SubmissionDoorbell(1), "completion": device.CompletionDoorbell(1)} {
		r := newRig(t, Limits{})
		good := r.borrow(device.BorrowRequest{Mode: device.Exclusive, Size: 512 << 10})
		bad := r.borrow(device.BorrowRequest{Mode: device.Exclusive, Offset: 512 << 10})
		if err := bad.regs.Ring(at, 4, entries); err != nil {
			t.Fatal(err)
		}
		r.eventually("the lease ends", func() bool { return len(r.leases()) == 1 })
		if err := bad.regs.Ring(at, 4, 0); !errors.Is(err, fabric.ErrRevoked) {
			t.Errorf("%s: a doorbell of a lease that is over: %v", what, err)
		}
		good.send(nvme.Command{Op: nvme.OpFlush, NS: 1, ID: 9})
		if c := good.reap(true); c.Status != nvme.StatusOK || c.ID != 9 {
			t.Errorf("%s: the other borrower's flush: %s", what, c.Status.Text())
		}
	}
}

// TestNeverReaps: completions are never written over ones that the borrower has not taken; its commands wait.
func TestNeverReaps(t *testing.T) {
	r := newRig(t, Limits{})
	b := r.borrow(device.BorrowRequest{Mode: device.Exclusive})
	for i := range uint16(entries - 1) {
		b.send(nvme.Command{Op: nvme.OpFlush, NS: 1, ID: i})
	}
	for i := range uint16(entries - 1) {
		if c := b.reap(false); c.ID != i {
			t.Fatalf("completion %d is of command %d", i, c.ID)
		}
	}
	for i := range uint16(5) { // there is room in the submission queue, and none for their completions
		b.send(nvme.Command{Op: nvme.OpFlush, NS: 1, ID: 100 + i})
	}
	time.Sleep(20 * time.Millisecond)
	if c, ok := b.peek(); ok {
		t.Fatalf("a completion of command %d, where the queue is full", c.ID)
	}
	if err := b.regs.Ring(device.CompletionDoorbell(1), 4, uint64(b.head)); err != nil {
		t.Fatal(err)
	}
	for i := range uint16(5) {
		if c := b.reap(true); c.ID != 100+i {
			t.Fatalf("completion of command %d, want %d", c.ID, 100+i)
		}
	}
}

// TestReclaim: blocks of a borrower that is gone are lent again only when its last write has ended, and not before.
func TestReclaim(t *testing.T) {
	r := newRig(t, Limits{})
	r.disk.gate = make(chan struct{})
	b := r.borrow(device.BorrowRequest{Mode: device.Exclusive})
	copy(b.seg.Bytes()[dataAt:], "the first borrower's")
	for i := range uint16(3) {
		b.send(nvme.Command{Op: nvme.OpWrite, NS: 1, ID: i, SGL: true, Data: nvme.DataBlock(at(dataAt), 512), Block: uint64(i), Blocks: 1})
	}
	r.eventually("writes are under way", func() bool { return r.leases()[0].Inflight == 3 })
	b.el.Close() // its memory goes, and so does the connection
	r.eventually("the lease drains", func() bool { return r.leases()[0].State == "draining" })
	next := r.connect()
	for range 3 {
		_, err := r.l.Borrow(anyone, next.from, &device.BorrowRequest{Name: "disk0", Mode: device.Shared})
		if !errors.Is(err, device.ErrBusy) {
			t.Fatalf("blocks are lent while a write is under way: %v", err)
		}
		r.disk.gate <- struct{}{} // one write ends
	}
	r.eventually("the lease is over", func() bool { return len(r.leases()) == 0 })
	if got := len(r.disk.at); got != 3 {
		t.Errorf("%d writes ended", got)
	}
	if _, err := r.l.Borrow(anyone, next.from, &device.BorrowRequest{Name: "disk0", Mode: device.Exclusive}); err != nil {
		t.Error(err)
	}
	close(r.disk.gate)
}

// TestDiskFails: a full or broken disk below ends commands with statuses, and the lease goes on.
func TestDiskFails(t *testing.T) {
	r := newRig(t, Limits{})
	b := r.borrow(device.BorrowRequest{Mode: device.Exclusive})
	for _, c := range []struct {
		err  error
		op   nvme.Opcode
		want nvme.Status
	}{
		{unix.ENOSPC, nvme.OpWrite, nvme.StatusCapacity}, {unix.EDQUOT, nvme.OpWriteZeroes, nvme.StatusCapacity}, {unix.EIO, nvme.OpWrite, nvme.StatusWriteFault},
		{unix.EIO, nvme.OpRead, nvme.StatusReadError}, {unix.EROFS, nvme.OpWrite, nvme.StatusProtected}, {nil, nvme.OpWrite, nvme.StatusOK},
	} {
		r.disk.mu.Lock()
		r.disk.err = c.err
		r.disk.mu.Unlock()
		b.send(nvme.Command{Op: c.op, NS: 1, SGL: true, Data: nvme.DataBlock(at(dataAt), 512), Blocks: 1})
		if got := b.reap(true); got.Status != c.want {
			t.Errorf("%v of command %#x: %s", c.err, c.op, got.Status.Text())
		}
	}
}

// TestBadCalls: windows and queues that make no sense, or are another's, are refused.
func TestBadCalls(t *testing.T) {
	r := newRig(t, Limits{})
	b := r.borrow(device.BorrowRequest{Mode: device.Shared})
	other := r.connect()
	key, err := b.seg.Key(fabric.RightsAll)
	if err != nil {
		t.Fatal(err)
	}
	id := b.lease.ID
	for i, req := range []device.QueueRequest{
		{Lease: id, Queue: 0, Entries: 16, Commands: at(sqAt), Completions: at(cqAt)},
		{Lease: id, Queue: nvme.MaxQueues + 1, Entries: 16, Commands: at(sqAt), Completions: at(cqAt)},
		{Lease: id, Queue: 1, Entries: 16, Commands: at(sqAt), Completions: at(cqAt)},
		{Lease: id, Queue: 2, Entries: 1, Commands: at(sqAt), Completions: at(cqAt)},
		{Lease: id, Queue: 2, Entries: 2048, Commands: at(sqAt), Completions: at(cqAt)},
		{Lease: id, Queue: 2, Entries: 16, Commands: at(winSize - 64), Completions: at(cqAt)},
		{Lease: id, Queue: 2, Entries: 16, Commands: at(sqAt), Completions: at(winSize - 16)},
		{Lease: id, Queue: 2, Entries: 16, Commands: at(sqAt + 4), Completions: at(cqAt)},
		{Lease: id, Queue: 2, Entries: 16, Commands: at(sqAt), Completions: device.Address(7, 0)},
		{Lease: id, Queue: 2, Entries: 16, Completions: at(cqAt), BufferBytes: nvme.MaxBufferBytes + 1},
	} {
		if _, err := r.l.Queue(b.from, &req); !errors.Is(err, device.ErrSpec) && !errors.Is(err, device.ErrLimit) {
			t.Errorf("queue %d, %+v: %v", i, req, err)
		}
	}
	for i, req := range []device.WindowRequest{{Lease: id, Window: 0, Key: key.Append(nil)}, {Lease: id, Window: 1, Key: key.Append(nil)},
		{Lease: id, Window: device.MaxWindows + 1, Key: key.Append(nil)}, {Lease: id, Window: 2, Key: key.Append(nil)[:20]}, {Lease: id, Window: 2}} {
		if _, err := r.l.Window(t.Context(), b.from, &req); !errors.Is(err, device.ErrSpec) {
			t.Errorf("window %d: %v", i, err)
		}
	}
	forged := key
	forged.Secret[0] ^= 1
	if _, err := r.l.Window(t.Context(), b.from, &device.WindowRequest{Lease: id, Window: 2, Key: forged.Append(nil)}); !errors.Is(err, device.ErrSpec) {
		t.Errorf("a window by a made-up key: %v", err)
	}
	good := device.QueueRequest{Lease: id, Queue: 2, Entries: 16, Commands: at(sqAt), Completions: at(cqAt)}
	if _, err := r.l.Queue(other.from, &good); !errors.Is(err, device.ErrNoLease) {
		t.Errorf("another makes a queue of the lease: %v", err)
	}
	if err := r.l.Return(t.Context(), cluster.Principal{Name: "eve", Caps: cluster.CapDevice}, id); !errors.Is(err, device.ErrNoLease) {
		t.Errorf("another returns the lease: %v", err)
	}
}

// TestLimits: one principal does not get all leases, nor all of the node's memory.
func TestLimits(t *testing.T) {
	r := newRig(t, Limits{Leases: 5, PrincipalLeases: 3, PrincipalQueueBytes: 1 << 20})
	b := r.borrow(device.BorrowRequest{Mode: device.Shared})
	if _, err := r.l.Queue(b.from, &device.QueueRequest{Lease: b.lease.ID, Queue: 2, Entries: 16, Completions: at(4096 * 4), BufferBytes: 512 << 10}); err != nil {
		t.Error(err)
	}
	if _, err := r.l.Queue(b.from, &device.QueueRequest{Lease: b.lease.ID, Queue: 3, Entries: 16, Completions: at(4096 * 5), BufferBytes: 512 << 10}); !errors.Is(err, device.ErrLimit) {
		t.Errorf("more memory than a principal may have: %v", err)
	}
	for i := 1; i < 3; i++ {
		if _, err := r.l.Borrow(anyone, b.from, &device.BorrowRequest{Name: "disk0", Mode: device.Read}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.l.Borrow(anyone, b.from, &device.BorrowRequest{Name: "disk0", Mode: device.Read}); !errors.Is(err, device.ErrLimit) {
		t.Errorf("more leases than a principal may have: %v", err)
	}
	for i := range 3 {
		who := cluster.Principal{Name: fmt.Sprint("p", i), Caps: cluster.CapDevice}
		if _, err := r.l.Borrow(who, b.from, &device.BorrowRequest{Name: "disk0", Mode: device.Read}); (err == nil) != (i < 2) || err != nil && !errors.Is(err, device.ErrLimit) {
			t.Errorf("lease %d of others: %v", i, err)
		}
	}
	b.el.Close()
	r.eventually("all are over", func() bool { return len(r.leases()) == 0 })
}

func TestParseSpec(t *testing.T) {
	for text, want := range map[string]Spec{
		"nvme=disk0:/srv/disk.img,readonly": {Class: "nvme", Name: "disk0", Path: "/srv/disk.img", ReadOnly: true},
		"nvme=disk0:/dev/sdb,direct":        {Class: "nvme", Name: "disk0", Path: "/dev/sdb", Direct: true},
	} {
		if s, err := ParseSpec(text); err != nil || s != want {
			t.Errorf("%+v, %v", s, err)
		}
	}
	for _, text := range []string{"", "disk0:/x", "scsi=disk0:/x", "nvme=disk0", "nvme=:/x", "nvme=disk0:x", "nvme=disk0:/x,fast", "nvme=a b:/x"} {
		if _, err := ParseSpec(text); !errors.Is(err, device.ErrSpec) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// farBorrower is a borrower whose commands lie at the lender.
type farBorrower struct {
	*borrower
	queue *fabric.Remote
}

func (b *borrower) imported(encoded []byte) *fabric.Remote {
	b.t.Helper()
	key, err := fabric.DecodeKey(encoded)
	if err != nil {
		b.t.Fatal(err)
	}
	m, err := b.ep.Import(b.t.Context(), key)
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

func (r *rig) borrowFar() *farBorrower {
	r.t.Helper()
	var err error
	if r.addr, err = r.el.Listen("tcp://127.0.0.1:0"); err != nil {
		r.t.Fatal(err)
	}
	b := &farBorrower{borrower: r.connect()}
	if b.lease, err = r.l.Borrow(anyone, b.from, &device.BorrowRequest{Name: "disk0", Mode: device.Exclusive}); err != nil {
		r.t.Fatal(err)
	}
	b.regs = b.imported(b.lease.RegistersKey)
	if b.seg, err = b.el.NewSegment(winSize, fabric.Writable); err != nil {
		r.t.Fatal(err)
	}
	key, err := b.seg.Key(fabric.RightsAll)
	if err != nil {
		r.t.Fatal(err)
	}
	reach, err := r.l.Window(r.t.Context(), b.from, &device.WindowRequest{Lease: b.lease.ID, Window: 1, Key: key.Append(nil)})
	if err != nil || reach.Mapped {
		r.t.Fatalf("%+v, %v", reach, err)
	}
	if _, err := r.l.Queue(b.from, &device.QueueRequest{Lease: b.lease.ID, Queue: 1, Entries: entries, Commands: at(sqAt), Completions: at(cqAt)}); !errors.Is(err, device.ErrSpec) {
		r.t.Errorf("commands where the lender does not reach: %v", err)
	}
	made, err := r.l.Queue(b.from, &device.QueueRequest{Lease: b.lease.ID, Queue: 1, Entries: entries, Completions: at(cqAt), BufferBytes: 64 << 10})
	if err != nil {
		r.t.Fatal(err)
	}
	b.queue = b.imported(made.Key)
	return b
}

// ask sends a command and waits for its end.
func (b *farBorrower) ask(c nvme.Command) nvme.Status {
	b.t.Helper()
	var e [nvme.CommandBytes]byte
	c.NS = 1
	c.Encode(&e)
	if err := b.queue.Put(b.t.Context(), e[:], uint64(b.tail)*nvme.CommandBytes); err != nil {
		b.t.Fatal(err)
	}
	b.tail = (b.tail + 1) % entries
	if err := b.regs.Ring(device.SubmissionDoorbell(1), 4, uint64(b.tail)); err != nil {
		b.t.Fatal(err)
	}
	return b.reap(true).Status
}

// has is what the disk has.
func (d *disk) has(off, n int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.mem[off : off+n])
}

// TestFar: over tcp commands lie at the lender, and what is read comes by Puts, also in pieces; what is written, and lists, must lie where the lender reads.
func TestFar(t *testing.T) {
	r := newRig(t, Limits{})
	for i := range r.disk.mem {
		r.disk.mem[i] = byte(i>>9) ^ byte(i)
	}
	b := r.borrowFar()
	own := func(off uint64) uint64 { return device.Address(device.BufferWindow+1, entries*nvme.CommandBytes+off) }
	// In two pieces, the second before the first.
	st := b.ask(nvme.Command{Op: nvme.OpRead, Data: [2]uint64{at(dataAt + 8192), at(dataAt)}, Block: 3, Blocks: 16})
	mem := b.seg.Bytes()
	if st != nvme.StatusOK || string(mem[dataAt+8192:dataAt+12288]) != r.disk.has(3*512, 4096) || string(mem[dataAt:dataAt+4096]) != r.disk.has(3*512+4096, 4096) {
		t.Errorf("a read in two pieces: %s", st.Text())
	}
	if st := b.ask(nvme.Command{Op: nvme.OpWrite, SGL: true, Data: nvme.DataBlock(at(dataAt), 512), Blocks: 1}); st != nvme.StatusTransfer {
		t.Errorf("a write of what the lender does not reach: %s", st.Text())
	}
	if st := b.ask(nvme.Command{Op: nvme.OpRead, Data: [2]uint64{at(dataAt), at(listAt)}, Blocks: 64}); st != nvme.StatusTransfer {
		t.Errorf("a list that the lender does not reach: %s", st.Text())
	}
	if err := b.queue.Put(t.Context(), []byte(r.disk.has(4096, 4096)), entries*nvme.CommandBytes+512); err != nil {
		t.Fatal(err)
	}
	if st := b.ask(nvme.Command{Op: nvme.OpCompare, SGL: true, Data: nvme.DataBlock(own(512), 4096), Block: 8, Blocks: 8}); st != nvme.StatusOK {
		t.Errorf("a comparison: %s", st.Text())
	}
	if st := b.ask(nvme.Command{Op: nvme.OpWrite, SGL: true, Data: nvme.DataBlock(own(512), 4096), Block: 100, Blocks: 8}); st != nvme.StatusOK || r.disk.has(51200, 4096) != r.disk.has(4096, 4096) {
		t.Errorf("a write: %s", st.Text())
	}
}
