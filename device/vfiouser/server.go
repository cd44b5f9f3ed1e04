package vfiouser

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/lograte"
)

// Device is what a guest has plugged in: one for each connection. The server calls its methods one at a time; errors are answered as an errno (EINVAL, if they are
// none) and logged.
type Device interface {
	// Map gives the device memory of the guest: size bytes at addr, which begin at offset of fd. The descriptor is the device's from then on, also
	// after an error. -1: the memory cannot be mapped.
	Map(ctx context.Context, fd int, offset, addr, size uint64, writable bool) error
	// Unmap takes it back, and returns once the device uses none of it.
	Unmap(ctx context.Context, addr, size uint64) error
	// UnmapAll takes all of it back.
	UnmapAll(ctx context.Context) error
	// Read and Write access BAR 0 by up to 8 bytes that lie in it. They do not wait.
	Read(off uint64, p []byte)
	Write(off uint64, p []byte)
	// Reset is a reset of the device. It returns once nothing is under way.
	Reset(ctx context.Context) error
	// Close is the device's end: the guest has unplugged it or is gone. It returns once nothing uses the guest's memory.
	Close()
}

// Signal raises an interrupt. It may be called from any goroutine, and does not wait.
type Signal func(vector uint16)

// Config is what a Server serves.
type Config struct {
	Identity Identity
	// Open makes a device for a guest.
	Open func(Signal) (Device, error)
	Log  *slog.Logger
	// Over is closed when there is nothing to serve any more, and Lost says why then; nil: there always is. A guest that has the device keeps it until it leaves.
	Over <-chan struct{}
	Lost func() error
	// WaitTime bounds each wait for a device's Unmap and Reset; 0: a minute.
	WaitTime time.Duration
}

// Server serves one guest at a time.
type Server struct {
	cfg  Config
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	mu   sync.Mutex
	conn *net.UnixConn
	gone chan struct{} // closed when conn's guest has left, and nothing uses its memory
	over bool
}

// New makes a Server.
func New(cfg Config) *Server {
	if cfg.WaitTime == 0 {
		cfg.WaitTime = time.Minute
	}
	cfg.Log = slog.New(lograte.New(cfg.Log.Handler())) // what a guest does, it can do thousands of times
	s := &Server{cfg: cfg}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Listen makes the socket, which only the user may connect to. A socket that nobody listens at any more is replaced.
func Listen(path string) (*net.UnixListener, error) {
	if fi, err := os.Lstat(path); err == nil && fi.Mode().Type() == os.ModeSocket {
		c, err := net.Dial("unix", path)
		if err == nil {
			c.Close()
			return nil, fmt.Errorf("vfio-user: %s: somebody listens there already", path)
		}
		if errors.Is(err, unix.ECONNREFUSED) {
			os.Remove(path)
		}
	}
	old := unix.Umask(0o177)
	defer unix.Umask(old)
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

// Serve accepts guests, one after the other, until Close, or until there is nothing to serve; its error is returned then.
func (s *Server) Serve(l *net.UnixListener) error {
	var watch sync.WaitGroup
	served := make(chan struct{})
	defer func() {
		close(served)
		l.Close()
		watch.Wait()
	}()
	watch.Go(func() {
		if s.idle(served) {
			l.Close()
		}
	})
	for {
		c, err := l.AcceptUnix()
		switch {
		case err == nil:
			s.begin(c)
		case s.ctx.Err() != nil:
			return nil
		case s.isOver():
			return s.cfg.Lost()
		default:
			return fmt.Errorf("vfio-user: %w", err)
		}
	}
}

// leaveTime is how long a guest waits that comes while another has the device: that one may be about to leave.
const leaveTime = 2 * time.Second

// isOver reports whether there is nothing to serve any more.
func (s *Server) isOver() bool {
	select {
	case <-s.cfg.Over:
		return true
	default:
		return false
	}
}

// idle waits until no guest is to be accepted any more: there is nothing to serve, and the last has left, or Close was called. False: Serve has ended before.
func (s *Server) idle(served <-chan struct{}) bool {
	over := s.cfg.Over
	for {
		select {
		case <-over:
		case <-s.ctx.Done():
			return true
		case <-served:
			return false
		}
		over = nil
		s.mu.Lock()
		gone := s.gone
		if s.conn == nil {
			s.over = true
		}
		left := s.over
		s.mu.Unlock()
		if left {
			return true
		}
		over = gone
	}
}

// begin serves a connection, unless there is one.
func (s *Server) begin(c *net.UnixConn) {
	s.mu.Lock()
	before := s.gone
	s.mu.Unlock()
	if before != nil {
		select {
		case <-before:
		case <-s.ctx.Done():
		case <-time.After(leaveTime):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.conn != nil {
		s.cfg.Log.Warn("vfio-user: a guest has the device, another was refused")
		c.Close()
		return
	}
	gone := make(chan struct{})
	s.conn, s.gone = c, gone
	s.work.Go(func() {
		err := s.serve(c)
		c.Close()
		s.mu.Lock()
		s.conn = nil
		s.mu.Unlock()
		close(gone)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) {
			err = nil
		}
		s.cfg.Log.Info("vfio-user: the guest has left", "err", err)
	})
}

// Close ends the connection, and returns once nothing uses the guest's memory.
func (s *Server) Close() {
	s.mu.Lock()
	s.over = true
	if s.conn != nil {
		s.conn.Close()
	}
	s.mu.Unlock()
	s.stop()
	s.work.Wait()
}

// session is one connection.
type session struct {
	s   *Server
	w   *wire
	cfg *config
	dev Device
	irq signals
}

func (s *Server) serve(c *net.UnixConn) error {
	x := &session{s: s, w: newWire(c), cfg: newConfig(s.cfg.Identity)}
	defer x.irq.close()
	dev, err := s.cfg.Open(x.irq.raise)
	if err != nil {
		return err
	}
	x.dev = dev
	defer dev.Close()
	s.cfg.Log.Info("vfio-user: a guest has come")
	if err := x.greet(); err != nil {
		return err
	}
	for {
		m, err := x.w.read()
		if err != nil {
			return err
		}
		body, err := x.handle(&m)
		m.drop()
		if errors.Is(err, errBroken) {
			return err
		}
		if err = x.w.answer(&m, body, x.errno(&m, err)); err != nil {
			return err
		}
	}
}

// errno is the protocol's number for an error.
func (x *session) errno(m *message, err error) unix.Errno {
	if err == nil {
		return 0
	}
	var n unix.Errno
	if !errors.As(err, &n) {
		n = unix.EINVAL
	}
	x.s.cfg.Log.Warn("vfio-user: a request failed", "command", m.cmd, "err", err)
	return n
}

// greet is the first message: the versions.
func (x *session) greet() error {
	x.w.c.SetReadDeadline(time.Now().Add(messageTime))
	m, err := x.w.read()
	if err != nil {
		return err
	}
	defer m.drop()
	if m.cmd != cmdVersion || len(m.body) < 4 {
		return fmt.Errorf("%w: it begins with command %d and not with its version", errBroken, m.cmd)
	}
	if major := binary.LittleEndian.Uint16(m.body); major != 0 {
		x.w.answer(&m, nil, unix.EOPNOTSUPP)
		return fmt.Errorf("%w: the client speaks version %d, and this is version 0", errBroken, major)
	}
	const can = `{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":4096,"pgsizes":4096,"max_dma_maps":64}}` + "\x00"
	return x.w.answer(&m, append([]byte{0, 0, 0, 0}, can...), 0)
}

// handle carries a request out.
func (x *session) handle(m *message) ([]byte, error) {
	need := map[uint16]int{cmdDMAMap: 32, cmdDMAUnmap: 24, cmdDeviceInfo: 16, cmdRegionInfo: 32, cmdIRQInfo: 16, cmdSetIRQs: 20, cmdRegionRead: 16, cmdRegionWrite: 16}[m.cmd]
	if len(m.body) < need {
		return nil, fmt.Errorf("%w: command %d of %d bytes, at least %d", errBroken, m.cmd, len(m.body), need)
	}
	ctx, cancel := context.WithTimeout(context.Background(), x.s.cfg.WaitTime) // not the server's: what is told to be quiet must be
	defer cancel()
	switch m.cmd {
	case cmdDMAMap:
		return nil, x.dmaMap(ctx, m)
	case cmdDMAUnmap:
		return x.dmaUnmap(ctx, m)
	case cmdDeviceInfo:
		b := make([]byte, 16)
		put32(b, 16, 1|1<<1, regions, irqs) // it can be reset, and it is PCI
		return b, nil
	case cmdRegionInfo:
		return x.regionInfo(m)
	case cmdIRQInfo:
		return irqInfo(m)
	case cmdSetIRQs:
		return nil, x.irq.set(m)
	case cmdRegionRead, cmdRegionWrite:
		return x.access(ctx, m)
	case cmdReset:
		return nil, x.dev.Reset(ctx)
	}
	return nil, fmt.Errorf("command %d: %w", m.cmd, unix.EOPNOTSUPP)
}

func put32(b []byte, words ...uint32) {
	for i, w := range words {
		binary.LittleEndian.PutUint32(b[4*i:], w)
	}
}

// dmaMap has argsz, flags, offset, address, size.
func (x *session) dmaMap(ctx context.Context, m *message) error {
	le := binary.LittleEndian
	flags := le.Uint32(m.body[4:])
	return x.dev.Map(ctx, m.claim(0), le.Uint64(m.body[8:]), le.Uint64(m.body[16:]), le.Uint64(m.body[24:]), flags&2 != 0)
}

// dmaUnmap has argsz, flags, address, size.
func (x *session) dmaUnmap(ctx context.Context, m *message) ([]byte, error) {
	le := binary.LittleEndian
	const all = 1 << 1
	flags := le.Uint32(m.body[4:])
	answer := append([]byte(nil), m.body[:24]...)
	put32(answer, 24)
	switch {
	case flags&all != 0:
		return answer, x.dev.UnmapAll(ctx)
	case flags != 0:
		return nil, fmt.Errorf("unmap with flags %#x: %w", flags, unix.EOPNOTSUPP)
	}
	return answer, x.dev.Unmap(ctx, le.Uint64(m.body[8:]), le.Uint64(m.body[16:]))
}

const (
	regions      = 9 // PCI's: six BARs, ROM, configuration, VGA
	regionBAR    = 0
	regionConfig = 7
	irqs         = 5 // INTx, MSI, MSI-X, error, request
)

// regionInfo answers with argsz, flags, index, offset of capabilities, size, offset.
func (x *session) regionInfo(m *message) ([]byte, error) {
	index := binary.LittleEndian.Uint32(m.body[8:])
	if index >= regions {
		return nil, fmt.Errorf("region %d: %w", index, unix.EINVAL)
	}
	b := make([]byte, 32)
	put32(b, 32, 0, index)
	switch index {
	case regionBAR:
		put32(b, 32, 3) // read and write
		binary.LittleEndian.PutUint64(b[16:], uint64(x.s.cfg.Identity.BarBytes))
	case regionConfig:
		put32(b, 32, 3)
		binary.LittleEndian.PutUint64(b[16:], configBytes)
	}
	return b, nil
}

// access has offset, region, count, and data where it writes.
func (x *session) access(ctx context.Context, m *message) ([]byte, error) {
	le := binary.LittleEndian
	off, region, n := le.Uint64(m.body), le.Uint32(m.body[8:]), uint64(le.Uint32(m.body[12:]))
	size := map[uint32]uint64{regionBAR: uint64(x.s.cfg.Identity.BarBytes), regionConfig: configBytes}[region]
	if n == 0 || n > maxData || off > size || n > size-off {
		return nil, fmt.Errorf("access of %d bytes at %#x of region %d: %w", n, off, region, unix.EINVAL)
	}
	b := make([]byte, 16+n)
	copy(b, m.body[:16])
	data := b[16:]
	if m.cmd == cmdRegionRead {
		if region == regionConfig {
			x.cfg.read(off, data)
			return b, nil
		}
		for at := uint64(0); at < n; at += 8 {
			x.dev.Read(off+at, data[at:min(at+8, n)])
		}
		return b, nil
	}
	if uint64(len(m.body)) != 16+n {
		return nil, fmt.Errorf("%w: a write of %d bytes has %d", errBroken, n, len(m.body)-16)
	}
	copy(data, m.body[16:])
	b = b[:16]
	if region == regionConfig {
		if x.cfg.write(off, data) {
			return b, x.dev.Reset(ctx)
		}
		return b, nil
	}
	for at := uint64(0); at < n; at += 8 {
		x.dev.Write(off+at, data[at:min(at+8, n)])
	}
	return b, nil
}
