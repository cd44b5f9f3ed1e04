package nbd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/lograte"
)

const (
	// MaxConnections bounds a server's clients. Those that copy open four to eight.
	MaxConnections = 32
	// handshakeTime is how long a client may take to say what it wants.
	handshakeTime = 10 * time.Second
	// writeTime is how long a client may leave answers unread.
	writeTime = 30 * time.Second
	// closeTime is how long Close waits for commands under way: longer than a drive does until it is given up.
	closeTime = 2 * host.DefaultCommandTime
)

// Drive is what is served: a host.Drive. Nobody else uses it meanwhile.
type Drive interface {
	Element() *fabric.Element
	Size() uint64
	BlockBytes() int
	ReadOnly() bool
	// MaxZeroBytes and MaxTrimBytes bound a Transfer that zeroes or trims; the length of a slot's buffer bounds others.
	MaxZeroBytes() int
	MaxTrimBytes() int
	// The element's leader calls these; none waits.
	TryAcquire() (host.Slot, bool)
	Buffer(host.Slot) []byte
	TrySubmit(host.Slot, host.Transfer) error
	TryReap([]host.Done) int
	Release(host.Slot)
	// Err says why the drive is over; nil: it is not.
	Err() error
}

// Server serves one drive. Clients that have said what they want are served by the element's leader: it receives their requests, submits them as commands,
// and sends the answers, without another goroutine between.
type Server struct {
	drive Drive
	name  string
	log   *slog.Logger

	ctx     context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup // handshakes
	once    sync.Once
	lost    chan struct{} // closed when the drive is over
	closing atomic.Bool
	quiet   atomic.Bool // closing, and nothing is under way any more

	mu      sync.Mutex
	clients int                   // all of them
	greeted map[net.Conn]struct{} // in their handshakes
	fresh   []*conn               // past it, and the leader has not seen them
	over    bool

	leading
}

// leading is what only the leader uses.
type leading struct {
	epfd    int
	events  [16]unix.EpollEvent
	conns   map[int]*conn
	wanting []*job   // that wait for slots, in turn
	flights []flight // by slot
	flying  int
	done    [32]host.Done
	idle    []*job // for reuse
	answers []*conn
	hot     *conn // spoke last: it is asked before epoll is
	alone   int   // times that it was since
	passed  int   // polls without a look at sockets
	nextAge int64 // when the leader looks for clients that do not read
}

// New makes a Server of a drive, which clients can ask for by its name or by none.
func New(drive Drive, name string, log *slog.Logger) (*Server, error) {
	log = slog.New(lograte.New(log.Handler())) // what clients do, they can do thousands of times
	s := &Server{drive: drive, name: name, log: log, lost: make(chan struct{}), greeted: map[net.Conn]struct{}{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.conns = map[int]*conn{}
	var err error
	if s.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("nbd: epoll: %w", err)
	}
	if err := drive.Element().AddPoller(s); err != nil {
		unix.Close(s.epfd)
		return nil, fmt.Errorf("nbd: %w", err)
	}
	return s, nil
}

// Serve accepts clients until Close, or until the drive is lost; its error is returned then.
func (s *Server) Serve(l net.Listener) error {
	defer context.AfterFunc(s.ctx, func() { l.Close() })()
	served := make(chan struct{})
	defer close(served)
	go func() {
		select {
		case <-s.lost:
			l.Close()
		case <-served:
		}
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			select {
			case <-s.lost:
				return s.drive.Err()
			case <-s.ctx.Done():
				return nil
			default:
			}
			return fmt.Errorf("nbd: %w", err)
		}
		if !s.greet(c) {
			s.log.Warn("nbd: too many connections, or the server stops: one refused", "from", c.RemoteAddr(), "most", MaxConnections)
			c.Close()
		}
	}
}

// greet begins a connection: its handshake may wait, so it has a goroutine.
func (s *Server) greet(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.clients >= MaxConnections {
		return false
	}
	s.clients++
	s.greeted[c] = struct{}{}
	s.work.Go(func() {
		from := c.RemoteAddr().String()
		x, err := s.shake(c)
		c.Close() // the leader has a descriptor of its own
		s.mu.Lock()
		delete(s.greeted, c)
		if err == nil {
			err = s.enter(x)
		}
		s.mu.Unlock()
		if err != nil {
			s.left(from, err)
		}
	})
	return true
}

// enter gives the leader a client; s.mu is held.
func (s *Server) enter(c *conn) error {
	err := error(net.ErrClosed)
	if !s.over {
		err = c.watch(unix.EPOLLIN | unix.EPOLLOUT) // the second comes at once: the leader hears of it
	}
	if err != nil {
		unix.Close(c.fd)
		return err
	}
	s.fresh = append(s.fresh, c)
	return nil
}

// left counts a client that is gone.
func (s *Server) left(from string, err error) {
	s.mu.Lock()
	s.clients--
	s.mu.Unlock()
	if !errors.Is(err, errDone) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		s.log.Info("nbd: connection ended", "from", from, "err", err)
	}
}

// shake has a client say what it wants.
func (s *Server) shake(c net.Conn) (*conn, error) {
	c.SetDeadline(time.Now().Add(handshakeTime))
	r := bufio.NewReaderSize(c, inBytes)
	if err := s.handshake(r, c); err != nil {
		return nil, err
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	x := &conn{s: s, from: c.RemoteAddr().String(), in: make([]byte, 0, inBytes)}
	var failed error
	if err := raw.Control(func(fd uintptr) { x.fd, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil || failed != nil {
		return nil, errors.Join(err, failed)
	}
	early, _ := r.Peek(r.Buffered()) // requests that came with the last option
	x.in = append(x.in, early...)
	return x, nil
}

// lose notes that the drive is over.
func (s *Server) lose() {
	select {
	case <-s.lost:
	default:
		close(s.lost)
		s.shut()
	}
}

// shut has no client come any more, and ends handshakes.
func (s *Server) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for c := range s.greeted {
		c.Close()
	}
}

// Close ends all connections, and waits for requests under way.
func (s *Server) Close() {
	s.once.Do(func() {
		s.shut()
		s.stop()
		s.work.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		el := s.drive.Element()
		s.closing.Store(true)
		el.WaitFor(ctx, s.quiet.Load)
		if err := el.RemovePoller(ctx, s); err != nil && !errors.Is(err, fabric.ErrClosed) {
			s.log.Error("nbd: the server's sockets stay until the process ends", "err", err)
			return
		}
		s.endAll(net.ErrClosed)
		unix.Close(s.epfd)
	})
}
