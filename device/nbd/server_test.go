package nbd

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	memorySlots  = 4
	memoryBuffer = 16 << 10
)

// memory is a Drive whose commands end as soon as they are sent, or when they are let.
type memory struct {
	el       *fabric.Element
	mu       sync.Mutex
	mem      []byte
	readOnly bool
	err      error
	full     bool // there is no room for commands
	held     bool // commands do not end
	flushes  int
	sent     int
	buffers  [memorySlots][memoryBuffer]byte
	free     []host.Slot
	done     []host.Done
}

// element is one whose leader polls.
func element(t testing.TB) *fabric.Element {
	t.Helper()
	tr, err := shm.New(shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: "nbd", Transports: []fabric.Transport{tr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { el.Close() })
	return el
}

func newMemory(t testing.TB, size int) *memory {
	return &memory{el: element(t), mem: make([]byte, size), free: []host.Slot{0, 1, 2, 3}}
}

func (d *memory) Element() *fabric.Element { return d.el }
func (d *memory) Size() uint64             { return uint64(len(d.mem)) }
func (d *memory) BlockBytes() int          { return 512 }

func (d *memory) ReadOnly() (is bool) {
	d.do(func() { is = d.readOnly })
	return is
}
func (d *memory) MaxZeroBytes() int { return 32 << 10 }
func (d *memory) MaxTrimBytes() int { return 64 << 10 }

func (d *memory) TryAcquire() (s host.Slot, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.free); n > 0 {
		s, ok, d.free = d.free[n-1], true, d.free[:n-1]
	}
	return s, ok
}

func (d *memory) Release(s host.Slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = append(d.free, s)
}
func (d *memory) Buffer(s host.Slot) []byte { return d.buffers[s][:] }

func (d *memory) TrySubmit(s host.Slot, t host.Transfer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return fabric.ErrBackpressure
	}
	if d.err != nil {
		return d.err
	}
	switch part := d.mem[t.Off : t.Off+uint64(t.Size)]; t.Op {
	case nvme.OpRead:
		copy(d.buffers[s][:], part)
	case nvme.OpWrite:
		copy(part, d.buffers[s][:])
	case nvme.OpWriteZeroes, nvme.OpDataset:
		clear(part)
	}
	if t.FUA || t.Op == nvme.OpFlush {
		d.flushes++
	}
	d.sent++
	d.done = append(d.done, host.Done{Slot: s, Tag: t.Tag})
	return nil
}

func (d *memory) TryReap(done []host.Done) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.held {
		n = copy(done, d.done)
		d.done = d.done[n:]
	}
	return n
}

func (d *memory) do(fn func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		fn()
	}
	return d.err
}

func (d *memory) flushed() (n int) {
	d.do(func() { n = d.flushes })
	return n
}
func (d *memory) Err() error { return d.do(func() {}) }

// client is a connection to a server, past or before its handshake.
type client struct {
	net.Conn
	t *testing.T
}

// serve starts a server of a drive.
func serve(t *testing.T, d *memory) (dial func() *client, s *Server, ended chan error) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	if s, err = New(d, "disk0", slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(s.Close)
	return func() *client {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(time.Minute))
		return &client{c, t}
	}, s, ended
}

func (c *client) send(b []byte) {
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) recv(n int) []byte {
	c.t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		c.t.Fatal(err)
	}
	return b
}

func optionOf(kind uint32, data []byte) []byte {
	b := be.AppendUint64(nil, magicOption)
	b = be.AppendUint32(b, kind)
	return append(be.AppendUint32(b, uint32(len(data))), data...)
}

// hello is the handshake up to the options.
func (c *client) hello() *client {
	c.t.Helper()
	if b := c.recv(18); be.Uint64(b) != magicInit || be.Uint64(b[8:]) != magicOption || be.Uint16(b[16:]) != 3 {
		c.t.Fatalf("hello: %x", b)
	}
	c.send(be.AppendUint32(nil, flagFixed|flagNoZeroes))
	return c
}

// answer is the next answer to an option.
func (c *client) answer(option uint32) (kind uint32, data []byte) {
	c.t.Helper()
	b := c.recv(20)
	if be.Uint64(b) != magicAnswer || be.Uint32(b[8:]) != option {
		c.t.Fatalf("an answer to option %d: %x", option, b)
	}
	return be.Uint32(b[12:]), c.recv(int(be.Uint32(b[16:])))
}

func wishesOf(name string) []byte {
	return append(append(be.AppendUint32(nil, uint32(len(name))), name...), 0, 0)
}

// start goes to requests.
func (c *client) start() *client {
	c.t.Helper()
	c.hello().send(optionOf(optExportName, []byte("disk0")))
	c.recv(10)
	return c
}

func requestOf(q request) []byte {
	b := be.AppendUint16(be.AppendUint16(be.AppendUint32(nil, magicRequest), q.flags), q.kind)
	return be.AppendUint32(be.AppendUint64(be.AppendUint64(b, q.handle), q.off), q.size)
}

func (c *client) ask(q request, data []byte) (errno uint32, answer []byte) {
	c.t.Helper()
	c.send(append(requestOf(q), data...))
	b := c.recv(16)
	if be.Uint32(b) != magicReply || be.Uint64(b[8:]) != q.handle {
		c.t.Fatalf("a reply to %+v: %x", q, b)
	}
	if errno = be.Uint32(b[4:]); errno == 0 && q.kind == cmdRead {
		answer = c.recv(int(q.size))
	}
	return errno, answer
}

// TestOptions: what a client may ask before it begins.
func TestOptions(t *testing.T) {
	dial, _, _ := serve(t, newMemory(t, 1<<20))
	c := dial().hello()
	c.send(optionOf(99, []byte("x")))
	if kind, _ := c.answer(99); kind != repUnsupported {
		t.Errorf("an option that there is not: %#x", kind)
	}
	c.send(optionOf(optList, nil))
	if kind, data := c.answer(optList); kind != repServer || string(data) != "\x00\x00\x00\x05disk0" {
		t.Errorf("list: %#x %q", kind, data)
	}
	if kind, _ := c.answer(optList); kind != repAck {
		t.Errorf("the list's end: %#x", kind)
	}
	for _, bad := range [][]byte{nil, {0, 0, 0, 9, 'x', 0, 0}, wishesOf("x")[:6], append(wishesOf(""), 1)} {
		c.send(optionOf(optGo, bad))
		if kind, _ := c.answer(optGo); kind != repInvalid {
			t.Errorf("go with %x: %#x", bad, kind)
		}
	}
	c.send(optionOf(optGo, wishesOf("other")))
	if kind, _ := c.answer(optGo); kind != repUnknown {
		t.Errorf("another export: %#x", kind)
	}
	c.send(optionOf(optGo, make([]byte, maxOptionBytes+1)))
	if kind, _ := c.answer(optGo); kind != repTooBig {
		t.Errorf("a large option: %#x", kind)
	}
	c.send(optionOf(optGo, wishesOf("")))
	kind, data := c.answer(optGo)
	if kind != repInfo || be.Uint64(data[2:]) != 1<<20 || be.Uint16(data[10:]) != transHasFlags|transFlush|transFUA|transTrim|transZeroes|transMultiConn {
		t.Errorf("export: %#x %x", kind, data)
	}
	if kind, data = c.answer(optGo); kind != repInfo || be.Uint32(data[2:]) != 512 || be.Uint32(data[10:]) != MaxRequestBytes {
		t.Errorf("block sizes: %#x %x", kind, data)
	}
	if kind, _ = c.answer(optGo); kind != repAck {
		t.Errorf("go: %#x", kind)
	}
	if errno, _ := c.ask(request{kind: cmdFlush, handle: 3}, nil); errno != 0 {
		t.Errorf("a flush: %d", errno)
	}
}

// TestRequests: what is written is read, and what makes no sense is refused by the protocol's numbers.
func TestRequests(t *testing.T) {
	d := newMemory(t, 1<<20)
	dial, _, _ := serve(t, d)
	c := dial().start()
	data := bytes.Repeat([]byte("wherry.."), 512)
	if errno, _ := c.ask(request{kind: cmdWrite, flags: cmdFlagFUA, handle: 1, off: 8192, size: 4096}, data); errno != 0 || d.flushed() != 1 {
		t.Errorf("a durable write: %d, %d flushes", errno, d.flushed())
	}
	if errno, got := c.ask(request{kind: cmdRead, handle: 2, off: 8192, size: 4096}, nil); errno != 0 || !bytes.Equal(got, data) {
		t.Errorf("a read: %d", errno)
	}
	for i, want := range []struct {
		q     request
		errno uint32
	}{
		{request{kind: 77}, ErrnoInvalid}, {request{kind: cmdRead, off: 1, size: 512}, ErrnoInvalid}, {request{kind: cmdRead, size: 100}, ErrnoInvalid},
		{request{kind: cmdRead, off: 1 << 20, size: 512}, ErrnoInvalid}, {request{kind: cmdRead, off: 1<<20 - 512, size: 1024}, ErrnoInvalid},
		{request{kind: cmdRead, off: ^uint64(511), size: 1024}, ErrnoInvalid}, {request{kind: cmdRead, size: 2 << 20}, ErrnoInvalid},
		{request{kind: cmdZeroes, off: 1 << 20, size: 512}, ErrnoNoSpace}, {request{kind: cmdZeroes, flags: cmdFlagFastZero, size: 512}, errnoNotSup},
		{request{kind: cmdTrim, flags: 0x80, size: 512}, ErrnoInvalid}, {request{kind: cmdFlush, size: 512}, ErrnoInvalid},
		{request{kind: cmdTrim, off: 8192, size: 512}, 0}, {request{kind: cmdZeroes, flags: cmdFlagNoHole, off: 8704, size: 512}, 0},
	} {
		want.q.handle = uint64(100 + i)
		if errno, _ := c.ask(want.q, nil); errno != want.errno {
			t.Errorf("%+v: %d, want %d", want.q, errno, want.errno)
		}
	}
	d.do(func() {
		if !bytes.Equal(d.mem[8192:9216], make([]byte, 1024)) || !bytes.Equal(d.mem[9216:12288], data[1024:]) {
			t.Error("trimming and zeroing left others than these")
		}
	})
	d.do(func() { d.readOnly = true })
	if errno, _ := dial().start().ask(request{kind: cmdTrim, size: 512}, nil); errno != ErrnoPermission {
		t.Errorf("a trim of what is read-only: %d", errno)
	}
}

// TestLost: clients of a drive that is lost see the end, and so does whoever serves.
func TestLost(t *testing.T) {
	d := newMemory(t, 4096)
	dial, _, ended := serve(t, d)
	c := dial().start()
	lost := errors.New("lost")
	d.do(func() { d.err = lost })
	if err := <-ended; err != lost {
		t.Errorf("%v", err)
	}
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a client of a lost drive: %v", err)
	}
}

// FuzzServer: whatever a client sends, the server answers or ends the connection, and goes on.
func FuzzServer(f *testing.F) {
	hello := be.AppendUint32(nil, flagFixed|flagNoZeroes)
	for _, b := range [][]byte{hello, append(hello, optionOf(optGo, wishesOf("disk0"))...),
		append(append(append([]byte(nil), hello...), optionOf(optExportName, nil)...), requestOf(request{kind: cmdRead, size: 512})...),
		append(append(append(append([]byte(nil), hello...), optionOf(optExportName, nil)...), requestOf(request{kind: cmdWrite, size: 512})...), make([]byte, 512)...)} {
		f.Add(b)
	}
	d := newMemory(f, 8192)
	s, err := New(d, "disk0", slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(f.TempDir(), "s"))
	if err != nil {
		f.Fatal(err)
	}
	go s.Serve(l)
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		said := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, c)
			said <- err
		}()
		if _, err := c.Write(in); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the server does not read on")
		}
		c.(*net.UnixConn).CloseWrite()
		if err := <-said; errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the server does not end a connection whose client has left")
		}
	})
}

// TestOldClient: a client that does not speak the fixed newstyle, as BusyBox's, names its export and begins. It asks for nothing else, as there would be no answer.
func TestOldClient(t *testing.T) {
	dial, _, _ := serve(t, newMemory(t, 1<<20))
	c := dial()
	c.recv(18)
	c.send(be.AppendUint32(nil, 0))
	c.send(optionOf(optExportName, []byte("disk0")))
	if b := c.recv(10 + 124); be.Uint64(b) != 1<<20 {
		t.Errorf("its export: %x", b)
	}
	if errno, _ := c.ask(request{kind: cmdRead, handle: 1, size: 512}, nil); errno != 0 {
		t.Errorf("a read: %d", errno)
	}
	c = dial()
	c.recv(18)
	c.send(be.AppendUint32(nil, 0))
	c.send(optionOf(optList, nil))
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("it asks for a list: %x, %v", b, err)
	}
}

// counter counts what is written to it.
type counter struct{ atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.Add(1)
	return len(p), nil
}

// TestLogIsBounded: clients that come and break the protocol, again and again, do not fill the log.
func TestLogIsBounded(t *testing.T) {
	var lines counter
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(newMemory(t, 512), "disk0", slog.New(slog.NewTextHandler(&lines, nil)))
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	defer s.Close()
	const clients = 2000
	for range clients {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(time.Minute))
		c.Write([]byte{255, 255, 255, 255})
		io.Copy(io.Discard, c)
		c.Close()
	}
	if n := lines.Load(); n > clients/2 {
		t.Errorf("%d clients made %d lines", clients, n)
	}
}
