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
	"time"

	"github.com/wherry-fabric/wherry/internal/lograte"
)

const (
	// MaxConnections bounds a server's clients. Those that copy open four to eight.
	MaxConnections = 32
	// maxRequests bounds the requests of one connection that are under way, and their memory: that many times MaxRequestBytes.
	maxRequests = 16
	// handshakeTime is how long a client may take to say what it wants.
	handshakeTime = 10 * time.Second
	// writeTime is how long a client may leave an answer unread.
	writeTime = 30 * time.Second
)

// Drive is what is served: a host.Drive, say. Its methods may be called from any goroutine; offsets and lengths are multiples of BlockBytes.
type Drive interface {
	Size() uint64
	BlockBytes() int
	ReadOnly() bool
	ReadAt(ctx context.Context, p []byte, off uint64) error
	WriteAt(ctx context.Context, p []byte, off uint64) error
	Flush(ctx context.Context) error
	Trim(ctx context.Context, off, n uint64) error
	WriteZeroes(ctx context.Context, off, n uint64) error
	// Err says why the drive is over; nil: it is not.
	Err() error
}

// Server serves one drive.
type Server struct {
	drive Drive
	name  string
	log   *slog.Logger
	// Errno is the protocol's number for an error of the drive; nil: EIO.
	Errno func(error) uint32

	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	over  bool
}

// New makes a Server of a drive, which clients can ask for by its name or by none.
func New(drive Drive, name string, log *slog.Logger) *Server {
	log = slog.New(lograte.New(log.Handler())) // what clients do, they can do thousands of times
	s := &Server{drive: drive, name: name, log: log, conns: map[net.Conn]struct{}{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Serve accepts clients until Close, or until the drive is lost; its error is returned then.
func (s *Server) Serve(l net.Listener) error {
	lost := make(chan struct{})
	s.work.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-s.ctx.Done():
				l.Close()
				return
			case <-tick.C:
				if s.drive.Err() != nil {
					close(lost)
					s.shut()
					l.Close()
					return
				}
			}
		}
	})
	for {
		c, err := l.Accept()
		if err != nil {
			select {
			case <-lost:
				return s.drive.Err()
			case <-s.ctx.Done():
				return nil
			default:
			}
			return fmt.Errorf("nbd: %w", err)
		}
		if !s.add(c) {
			s.log.Warn("nbd: too many connections, or the server stops: one refused", "from", c.RemoteAddr(), "most", MaxConnections)
			c.Close()
		}
	}
}

// add serves a connection.
func (s *Server) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || len(s.conns) >= MaxConnections {
		return false
	}
	s.conns[c] = struct{}{}
	s.work.Go(func() {
		defer func() {
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		}()
		if err := s.serve(c); err != nil && !errors.Is(err, errDone) && !errors.Is(err, io.EOF) {
			s.log.Info("nbd: connection ended", "from", c.RemoteAddr(), "err", err)
		}
	})
	return true
}

// shut ends all connections.
func (s *Server) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for c := range s.conns {
		c.Close()
	}
}

// Close ends all connections, and waits for requests under way.
func (s *Server) Close() {
	s.shut()
	s.stop()
	s.work.Wait()
}

// serve talks to one client.
func (s *Server) serve(c net.Conn) error {
	c.SetDeadline(time.Now().Add(handshakeTime))
	r := bufio.NewReaderSize(c, 64<<10)
	if err := s.handshake(r, c); err != nil {
		return err
	}
	c.SetDeadline(time.Time{})
	x := &exchange{s: s, c: c, free: make(chan *buffer, maxRequests)}
	for range maxRequests {
		x.free <- &buffer{}
	}
	defer x.work.Wait()
	var head [requestBytes]byte
	for {
		q, err := readRequest(r, &head)
		if err != nil {
			return err
		}
		if q.kind == cmdDisconnect {
			return errDone
		}
		if err := x.begin(q, r); err != nil {
			return err
		}
	}
}

// handshake settles what the client gets.
func (s *Server) handshake(r io.Reader, w io.Writer) error {
	hello := be.AppendUint16(be.AppendUint64(be.AppendUint64(nil, magicInit), magicOption), flagFixed|flagNoZeroes)
	if _, err := w.Write(hello); err != nil {
		return err
	}
	var b [4]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	flags := be.Uint32(b[:])
	if flags&flagFixed == 0 || flags&^(flagFixed|flagNoZeroes) != 0 {
		return fmt.Errorf("%w: handshake flags %#x: only the fixed newstyle is spoken", errBroken, flags)
	}
	for range maxOptions {
		o, err := readOption(r)
		if err != nil {
			return err
		}
		answer, done, err := s.answer(o, flags)
		if len(answer) > 0 {
			if _, err := w.Write(answer); err != nil {
				return err
			}
		}
		if err != nil || done {
			return err
		}
	}
	return fmt.Errorf("%w: more than %d options", errBroken, maxOptions)
}

// answer answers an option; done: requests follow.
func (s *Server) answer(o option, flags uint32) (b []byte, done bool, err error) {
	if o.big {
		return appendAnswer(nil, o.kind, repTooBig, nil), false, nil
	}
	switch o.kind {
	case optExportName: // there is no answer that says no
		if name := string(o.data); name != "" && name != s.name {
			return nil, false, fmt.Errorf("%w: there is no export %.64q", errBroken, name)
		}
		b = be.AppendUint16(be.AppendUint64(nil, s.drive.Size()), s.flags())
		if flags&flagNoZeroes == 0 {
			b = append(b, make([]byte, 124)...)
		}
		return b, true, nil
	case optAbort:
		return appendAnswer(nil, o.kind, repAck, nil), false, errDone
	case optList:
		if len(o.data) > 0 {
			return appendAnswer(nil, o.kind, repInvalid, nil), false, nil
		}
		b = appendAnswer(nil, o.kind, repServer, append(be.AppendUint32(nil, uint32(len(s.name))), s.name...))
		return appendAnswer(b, o.kind, repAck, nil), false, nil
	case optInfo, optGo:
		name, _, err := o.wishes()
		if err != nil {
			return appendAnswer(nil, o.kind, repInvalid, nil), false, nil
		}
		if name != "" && name != s.name {
			return appendAnswer(nil, o.kind, repUnknown, []byte("there is one export, "+s.name)), false, nil
		}
		export := be.AppendUint16(be.AppendUint64(be.AppendUint16(nil, infoExport), s.drive.Size()), s.flags())
		b = appendAnswer(nil, o.kind, repInfo, export)
		sizes := be.AppendUint32(be.AppendUint16(nil, infoBlockSize), uint32(s.drive.BlockBytes()))
		sizes = be.AppendUint32(be.AppendUint32(sizes, 4096), MaxRequestBytes)
		b = appendAnswer(b, o.kind, repInfo, sizes)
		return appendAnswer(b, o.kind, repAck, nil), o.kind == optGo, nil
	}
	return appendAnswer(nil, o.kind, repUnsupported, nil), false, nil
}

// flags are what the export can.
func (s *Server) flags() uint16 {
	f := uint16(transHasFlags | transFlush | transFUA | transTrim | transZeroes | transMultiConn)
	if s.drive.ReadOnly() {
		f |= transReadOnly
	}
	return f
}

// exchange is a connection's requests and answers.
type exchange struct {
	s    *Server
	c    net.Conn
	free chan *buffer // one for each request that may begin
	work sync.WaitGroup
	mu   sync.Mutex // of writing
}

// buffer is a reply's head and its data, which are one write.
type buffer struct{ mem []byte }

const replyBytes = 16

// data is room for n bytes behind a reply's head.
func (b *buffer) data(n int) []byte {
	if cap(b.mem) < replyBytes+n {
		b.mem = make([]byte, replyBytes+n)
	}
	b.mem = b.mem[:replyBytes+n]
	return b.mem[replyBytes:]
}

// begin takes a request and has it carried out. While as many as can be are under way, it waits, and so does the client.
func (x *exchange) begin(q request, r io.Reader) error {
	b := <-x.free
	carries := 0
	if q.kind == cmdWrite {
		carries = int(q.size)
	}
	if carries > MaxRequestBytes {
		x.free <- b
		return fmt.Errorf("%w: a write of %d bytes, at most %d", errBroken, q.size, MaxRequestBytes)
	}
	data := b.data(carries)
	if _, err := io.ReadFull(r, data); err != nil {
		x.free <- b
		return err
	}
	x.work.Go(func() {
		defer func() { x.free <- b }()
		errno := x.s.check(q)
		if errno == 0 {
			errno = x.s.do(q, b)
		}
		if x.reply(q, b, errno) != nil {
			x.c.Close() // the reader finds out
		}
	})
	return nil
}

// reply sends an answer.
func (x *exchange) reply(q request, b *buffer, errno uint32) error {
	n := replyBytes
	if q.kind == cmdRead && errno == 0 {
		n += int(q.size)
	}
	if len(b.mem) < n {
		b.data(n - replyBytes)
	}
	be.PutUint32(b.mem, magicReply)
	be.PutUint32(b.mem[4:], errno)
	be.PutUint64(b.mem[8:], q.handle)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.c.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := x.c.Write(b.mem[:n])
	return err
}

// check refuses what makes no sense.
func (s *Server) check(q request) uint32 {
	known := uint16(cmdFlagFUA)
	switch q.kind {
	case cmdRead, cmdWrite, cmdTrim:
	case cmdZeroes:
		known |= cmdFlagNoHole
		if q.flags&cmdFlagFastZero != 0 {
			return errnoNotSup
		}
	case cmdFlush:
		if q.off != 0 || q.size != 0 {
			return ErrnoInvalid
		}
	default:
		return ErrnoInvalid
	}
	block := uint64(s.drive.BlockBytes())
	switch {
	case q.flags&^known != 0:
		return ErrnoInvalid
	case s.drive.ReadOnly() && q.kind != cmdRead && q.kind != cmdFlush:
		return ErrnoPermission
	case q.kind == cmdRead && q.size > MaxRequestBytes:
		return ErrnoInvalid
	case q.off%block != 0 || uint64(q.size)%block != 0:
		return ErrnoInvalid
	case q.off > s.drive.Size() || uint64(q.size) > s.drive.Size()-q.off:
		if q.kind == cmdWrite || q.kind == cmdZeroes {
			return ErrnoNoSpace
		}
		return ErrnoInvalid
	}
	return 0
}

// do carries a request out.
func (s *Server) do(q request, b *buffer) uint32 {
	var err error
	switch q.kind {
	case cmdRead:
		err = s.drive.ReadAt(s.ctx, b.data(int(q.size)), q.off)
	case cmdWrite:
		err = s.drive.WriteAt(s.ctx, b.mem[replyBytes:], q.off)
	case cmdTrim:
		err = s.drive.Trim(s.ctx, q.off, uint64(q.size))
	case cmdZeroes:
		err = s.drive.WriteZeroes(s.ctx, q.off, uint64(q.size))
	case cmdFlush:
		err = s.drive.Flush(s.ctx)
	}
	if err == nil && q.flags&cmdFlagFUA != 0 && q.kind != cmdRead && q.kind != cmdFlush {
		err = s.drive.Flush(s.ctx)
	}
	switch {
	case err == nil:
		return 0
	case s.drive.Err() != nil:
		return errnoShutdown
	case s.Errno != nil:
		return s.Errno(err)
	}
	return ErrnoIO
}
