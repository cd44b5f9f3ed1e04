package vfiouser

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// toy is a device of 16 KiB of registers that remembers what it was told.
type toy struct {
	mu     sync.Mutex
	regs   [16 << 10]byte
	maps   [][4]uint64
	resets int
	closed chan struct{}
	busy   chan struct{} // nil: Unmap returns at once; else when it is closed
	raise  Signal
}

func (d *toy) Map(_ context.Context, fd int, offset, addr, size uint64, _ bool) error {
	if fd >= 0 {
		defer unix.Close(fd)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var st unix.Stat_t
	if fd >= 0 {
		unix.Fstat(fd, &st)
	}
	if addr == 1<<40 {
		return errors.New("not there")
	}
	d.maps = append(d.maps, [4]uint64{uint64(st.Size), offset, addr, size})
	return nil
}

func (d *toy) Unmap(ctx context.Context, addr, size uint64) error {
	d.mu.Lock()
	busy := d.busy
	d.mu.Unlock()
	if busy != nil {
		select {
		case <-busy:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.maps = append(d.maps, [4]uint64{0, 0, addr, size})
	return nil
}

func (d *toy) UnmapAll(ctx context.Context) error { return d.Unmap(ctx, 0, 0) }
func (d *toy) Read(off uint64, p []byte)          { d.mu.Lock(); defer d.mu.Unlock(); copy(p, d.regs[off:]) }
func (d *toy) Write(off uint64, p []byte)         { d.mu.Lock(); defer d.mu.Unlock(); copy(d.regs[off:], p) }
func (d *toy) Close()                             { close(d.closed) }

func (d *toy) Reset(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resets++
	return nil
}

// rig is a server of toys, and the last that a client got.
type rig struct {
	t    testing.TB
	path string
	devs chan *toy
}

var identity = Identity{Vendor: 0x1b36, Device: 0x10, Class: [3]byte{2, 8, 1}, BarBytes: 16 << 10}

func newRig(t testing.TB) *rig { return newRigTo(t, io.Discard) }

// newRigTo logs to w.
func newRigTo(t testing.TB, w io.Writer) *rig {
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "s"), devs: make(chan *toy, 64)}
	l, err := Listen(r.path)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Identity: identity, Log: slog.New(slog.NewTextHandler(w, nil)), Open: func(raise Signal) (Device, error) {
		d := &toy{closed: make(chan struct{}), raise: raise}
		r.devs <- d
		return d, nil
	}})
	ended := make(chan error)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

// client is a monitor.
type client struct {
	*rig
	c   *net.UnixConn
	dev *toy
}

// connect connects, and greets.
func (r *rig) connect() *client {
	r.t.Helper()
	k := &client{rig: r, c: r.dial()}
	body, errno, err := k.ask(cmdVersion, append([]byte{0, 0, 1, 0}, "{}\x00"...))
	if err != nil || errno != 0 || !bytes.Contains(body, []byte("max_msg_fds")) {
		r.t.Fatalf("greeting: %q, %v, %v", body, errno, err)
	}
	k.dev = <-r.devs
	return k
}

func (r *rig) dial() *net.UnixConn {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.path, Net: "unix"})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

func frame(cmd uint16, flags uint32, body []byte) []byte {
	b := make([]byte, headerBytes, headerBytes+len(body))
	binary.LittleEndian.PutUint16(b, 7)
	binary.LittleEndian.PutUint16(b[2:], cmd)
	binary.LittleEndian.PutUint32(b[4:], uint32(headerBytes+len(body)))
	binary.LittleEndian.PutUint32(b[8:], flags)
	return append(b, body...)
}

// ask sends a request and reads its answer.
func (k *client) ask(cmd uint16, body []byte, fds ...int) ([]byte, unix.Errno, error) {
	if _, _, err := k.c.WriteMsgUnix(frame(cmd, 0, body), unix.UnixRights(fds...), nil); err != nil {
		return nil, 0, err
	}
	var head [headerBytes]byte
	if _, err := io.ReadFull(k.c, head[:]); err != nil {
		return nil, 0, err
	}
	le := binary.LittleEndian
	answer := make([]byte, le.Uint32(head[4:])-headerBytes)
	_, err := io.ReadFull(k.c, answer)
	if le.Uint16(head[:]) != 7 || le.Uint16(head[2:]) != cmd || le.Uint32(head[8:])&flagReply == 0 {
		k.t.Errorf("answer to %d: % x", cmd, head)
	}
	return answer, unix.Errno(le.Uint32(head[12:])), err
}

// must is ask that succeeds.
func (k *client) must(cmd uint16, body []byte, fds ...int) []byte {
	k.t.Helper()
	b, errno, err := k.ask(cmd, body, fds...)
	if err != nil || errno != 0 {
		k.t.Fatalf("command %d: %v, %v", cmd, errno, err)
	}
	return b
}

func words(list ...uint32) (b []byte) {
	for _, w := range list {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func region(off uint64, index, n uint32, data ...byte) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, off), words(index, n)...), data...)
}

func place(offset, addr, size uint64) []byte {
	b := words(32, 3)
	for _, v := range []uint64{offset, addr, size} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// TestDevice: what QEMU's client asks of a device.
func TestDevice(t *testing.T) {
	k := newRig(t).connect()
	if b := k.must(cmdDeviceInfo, words(16, 0, 0, 0)); !bytes.Equal(b, words(16, 3, regions, irqs)) {
		t.Errorf("device: % x", b)
	}
	if b := k.must(cmdRegionInfo, append(words(32, 0, 0, 0), make([]byte, 16)...)); binary.LittleEndian.Uint64(b[16:]) != 16<<10 || b[4] != 3 {
		t.Errorf("region 0, which is not to be mapped: % x", b)
	}
	if b := k.must(cmdIRQInfo, words(16, 0, irqMSI, 0)); !bytes.Equal(b, words(16, 9, irqMSI, Vectors)) {
		t.Errorf("MSI: % x", b)
	}
	if b := k.must(cmdIRQInfo, words(16, 0, 2, 0)); binary.LittleEndian.Uint32(b[12:]) != 0 {
		t.Errorf("MSI-X, which QEMU's client cannot unplug: % x", b)
	}
	// The BAR's size is read by writing ones; other bits stay.
	k.must(cmdRegionWrite, region(0x10, regionConfig, 4, 255, 255, 255, 255))
	if b := k.must(cmdRegionRead, region(0, regionConfig, 64))[16:]; binary.LittleEndian.Uint32(b[0x10:]) != ^uint32(16<<10-1)|4 || binary.LittleEndian.Uint32(b) != 0x00101b36 {
		t.Errorf("configuration: % x", b)
	}
	k.must(cmdRegionWrite, region(0, regionConfig, 4, 1, 2, 3, 4))
	if b := k.must(cmdRegionRead, region(0, regionConfig, 4))[16:]; binary.LittleEndian.Uint32(b) != 0x00101b36 {
		t.Errorf("a vendor was written: % x", b)
	}
	k.must(cmdRegionWrite, region(0x79, regionConfig, 1, 0x80)) // a function-level reset
	k.must(cmdReset, nil)
	k.must(cmdRegionWrite, region(0x1008, regionBAR, 4, 9, 8, 7, 6))
	k.c.Write(frame(cmdRegionWrite, flagNoReply, region(0x100c, regionBAR, 4, 5, 4, 3, 2)))
	if b := k.must(cmdRegionRead, region(0x1008, regionBAR, 8))[16:]; !bytes.Equal(b, []byte{9, 8, 7, 6, 5, 4, 3, 2}) {
		t.Errorf("registers: % x", b)
	}
	if k.dev.resets != 2 {
		t.Errorf("%d resets", k.dev.resets)
	}
}

// TestMemory: descriptors arrive with their areas, and an area is not said to be unmapped before the device says so.
func TestMemory(t *testing.T) {
	k := newRig(t).connect()
	fd, err := unix.MemfdCreate("guest", 0)
	if err == nil {
		err = unix.Ftruncate(fd, 1<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	k.must(cmdDMAMap, place(4096, 1<<30, 8192), fd)
	k.must(cmdDMAMap, place(0, 2<<30, 8192)) // a ROM, say
	if _, errno, err := k.ask(cmdDMAMap, place(0, 1<<40, 4096), fd); errno != unix.EINVAL || err != nil {
		t.Errorf("an area that the device refuses: %v, %v", errno, err)
	}
	busy := make(chan struct{})
	k.dev.mu.Lock()
	k.dev.busy = busy
	k.dev.mu.Unlock()
	k.c.Write(frame(cmdDMAUnmap, 0, append(words(24, 0), place(1<<30, 8192, 0)[8:24]...)))
	k.c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	var b [headerBytes + 24]byte
	if n, err := k.c.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("an area was said to be unmapped that is in use: %d bytes, %v", n, err)
	}
	close(busy)
	k.c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(k.c, b[:]); err != nil || b[12] != 0 {
		t.Fatalf("unmap: % x, %v", b, err)
	}
	k.must(cmdDMAUnmap, append(words(24, 2), make([]byte, 16)...)) // all
	want := [][4]uint64{{1 << 20, 4096, 1 << 30, 8192}, {0, 0, 2 << 30, 8192}, {0, 0, 1 << 30, 8192}, {}}
	if k.dev.mu.Lock(); len(k.dev.maps) != len(want) {
		t.Fatalf("the device has seen %v", k.dev.maps)
	}
	for i := range want {
		if k.dev.maps[i] != want[i] {
			t.Errorf("%d: %v, want %v", i, k.dev.maps[i], want[i])
		}
	}
	k.dev.mu.Unlock()
}

// TestInterrupts: a vector's event is signalled until it is taken away.
func TestInterrupts(t *testing.T) {
	k := newRig(t).connect()
	event := func() int {
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	count := func(fd int) uint64 {
		var b [8]byte
		unix.Read(fd, b[:])
		return binary.NativeEndian.Uint64(b[:])
	}
	a, b := event(), event()
	k.must(cmdSetIRQs, words(20, setFDs|setTrigger, irqMSI, 0, 2), a, b)
	for _, v := range []uint16{0, 1, 1, 2, 31, 32, 65535} {
		k.dev.raise(v)
	}
	if x, y := count(a), count(b); x != 1 || y != 2 {
		t.Errorf("events %d and %d", x, y)
	}
	k.must(cmdSetIRQs, words(20, setFDs|setTrigger, irqMSI, 1, 1)) // vector 1 has none any more
	k.dev.raise(0)
	k.dev.raise(1)
	if x, y := count(a), count(b); x != 1 || y != 0 {
		t.Errorf("events %d and %d, after one was taken away", x, y)
	}
	k.must(cmdSetIRQs, words(20, setNone|setTrigger, irqMSI, 0, 0))
	if k.dev.raise(0); count(a) != 0 {
		t.Error("an event after all were taken away")
	}
	for _, bad := range [][]uint32{{20, setFDs | setTrigger, irqMSI, Vectors, 1}, {20, setFDs | setTrigger, irqMSI, 1, 0xffffffff}, {20, setFDs | setTrigger, 2, 0, 1}, {20, setMask | setNone, irqMSI, 0, 1}} {
		if _, errno, err := k.ask(cmdSetIRQs, words(bad...), a); errno == 0 || err != nil {
			t.Errorf("%v: %v, %v", bad, errno, err)
		}
	}
}

// TestInterruptsAreEvents: what is raised by anything but an eventfd might wait, and with it the leader.
func TestInterruptsAreEvents(t *testing.T) {
	k := newRig(t).connect()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	if _, errno, err := k.ask(cmdSetIRQs, words(20, setFDs|setTrigger, irqMSI, 0, 1), pipe[1]); errno != unix.EINVAL || err != nil {
		t.Errorf("a pipe: %v, %v", errno, err)
	}
	k.dev.raise(0)
	var b [8]byte
	if n, err := unix.Read(pipe[0], b[:]); err != unix.EAGAIN {
		t.Errorf("%d bytes were written to a pipe: %v", n, err)
	}
}

// TestBadMessages: one that makes no sense ends the connection, one that asks for what there is not has an errno; the next client is served.
func TestBadMessages(t *testing.T) {
	r := newRig(t)
	k := r.connect()
	for what, bad := range map[string]func() (unix.Errno, error){
		"no such command": func() (unix.Errno, error) { _, e, err := k.ask(99, nil); return e, err },
		"no such region": func() (unix.Errno, error) {
			_, e, err := k.ask(cmdRegionInfo, append(words(32, 0, 9, 0), make([]byte, 16)...))
			return e, err
		},
		"a read behind the end": func() (unix.Errno, error) {
			_, e, err := k.ask(cmdRegionRead, region(16<<10-2, regionBAR, 4))
			return e, err
		},
		"a read that wraps": func() (unix.Errno, error) {
			_, e, err := k.ask(cmdRegionRead, region(^uint64(3), regionBAR, 4))
			return e, err
		},
		"a read of nothing": func() (unix.Errno, error) { _, e, err := k.ask(cmdRegionRead, region(0, regionBAR, 0)); return e, err },
		"a read of too much": func() (unix.Errno, error) {
			_, e, err := k.ask(cmdRegionRead, region(0, regionBAR, maxData+1))
			return e, err
		},
		"a read of an empty BAR": func() (unix.Errno, error) { _, e, err := k.ask(cmdRegionRead, region(0, 4, 4)); return e, err },
	} {
		if errno, err := bad(); errno == 0 || err != nil {
			t.Errorf("%s: %v, %v", what, errno, err)
		}
	}
	k.c.Close()
	<-k.dev.closed
	for what, bad := range map[string][]byte{
		"a message shorter than its head": {0, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"a message of 4 GiB":              {0, 0, 1, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0},
		"an answer":                       frame(cmdReset, flagReply, nil),
		"a request cut short":             frame(cmdDMAMap, 0, make([]byte, 8)),
		"a write of other length":         frame(cmdRegionWrite, 0, region(0, regionBAR, 4, 1, 2)),
	} {
		k := r.connect()
		k.c.Write(bad)
		if b, err := io.ReadAll(k.c); len(b) > 0 || err != nil && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: % x, %v", what, b, err)
		}
		<-k.dev.closed
	}
	c := r.dial()
	c.Write(frame(cmdVersion, 0, []byte{1, 0, 0, 0}))
	if b, _ := io.ReadAll(c); len(b) != headerBytes || b[8]&flagError == 0 {
		t.Errorf("another version: % x", b)
	}
	<-(<-r.devs).closed
	r.connect()
}

// counter counts what is written to it.
type counter struct{ atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.Add(1)
	return len(p), nil
}

// TestLogIsBounded: a client that asks for what there is not, again and again, does not fill the log.
func TestLogIsBounded(t *testing.T) {
	var lines counter
	k := newRigTo(t, &lines).connect()
	const requests = 5000
	for range requests {
		if _, errno, err := k.ask(99, nil); errno == 0 || err != nil {
			t.Fatalf("%v, %v", errno, err)
		}
	}
	if n := lines.Load(); n > requests/2 {
		t.Errorf("%d requests made %d lines", requests, n)
	}
}

// TestOneGuest: a second client is refused while the first has the device, and waits for one that is about to leave.
func TestOneGuest(t *testing.T) {
	r := newRig(t)
	first := r.connect()
	if b, err := io.ReadAll(r.dial()); len(b) > 0 || err != nil {
		t.Errorf("a second client: % x, %v", b, err)
	}
	first.c.Close()
	r.connect()
}

// TestOver: a server with nothing to serve any more ends with the reason, at once where there is no guest, and else when that has left; meanwhile no other comes.
func TestOver(t *testing.T) {
	for _, guests := range []int{0, 1} {
		t.Run(fmt.Sprint(guests), func(t *testing.T) {
			r := &rig{t: t, path: filepath.Join(t.TempDir(), "s"), devs: make(chan *toy, 64)}
			l, err := Listen(r.path)
			if err != nil {
				t.Fatal(err)
			}
			over, lost := make(chan struct{}), errors.New("the lender is lost")
			s := New(Config{Identity: identity, Log: slog.New(slog.DiscardHandler), Over: over, Lost: func() error { return lost }, Open: func(raise Signal) (Device, error) {
				d := &toy{closed: make(chan struct{}), raise: raise}
				r.devs <- d
				return d, nil
			}})
			ended := make(chan error, 1)
			go func() { ended <- s.Serve(l) }()
			t.Cleanup(s.Close)
			if guests > 0 {
				k := r.connect()
				close(over)
				k.must(cmdDeviceInfo, make([]byte, 16)) // it has the device still
				select {
				case err := <-ended:
					t.Errorf("it ends while a guest has the device: %v", err)
				default:
				}
				k.c.Close()
			} else {
				close(over)
			}
			select {
			case err := <-ended:
				if err != lost {
					t.Errorf("it ends with %v", err)
				}
			case <-time.After(patience):
				t.Error("it goes on")
			}
		})
	}
}

// FuzzMessages: whatever a client sends, the server goes on serving others.
func FuzzMessages(f *testing.F) {
	f.Add(frame(cmdDMAMap, 0, place(0, 0, 4096)))
	f.Add(frame(cmdSetIRQs, 0, words(20, 36, 1, 0, 2)))
	f.Add(append(frame(cmdRegionWrite, 0, region(0x78, regionConfig, 2, 0, 0x80)), frame(cmdRegionRead, 0, region(0, regionConfig, 4096))...))
	f.Fuzz(func(t *testing.T, data []byte) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		ends := [2]*net.UnixConn{}
		for i, fd := range pair {
			file := os.NewFile(uintptr(fd), "pair")
			c, err := net.FileConn(file)
			file.Close()
			if err != nil {
				t.Fatal(err)
			}
			ends[i] = c.(*net.UnixConn)
			defer c.Close()
		}
		s := New(Config{Identity: identity, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Open: func(raise Signal) (Device, error) {
			return &toy{closed: make(chan struct{}), raise: raise}, nil
		}})
		go func() {
			ends[0].Write(append(frame(cmdVersion, 0, []byte{0, 0, 0, 0}), data...))
			ends[0].CloseWrite()
			io.Copy(io.Discard, ends[0])
		}()
		s.serve(ends[1])
	})
}
