package echo

import (
	"context"
	"errors"
	"net"
	"net/rpc"
	"sync"
)

// Echo is the service as net/rpc wants it: exported methods of an exported
// type. Its codec is the default, gob.
type Echo struct{ s *service }

// Echo answers with its request.
func (e *Echo) Echo(req *[]byte, out *[]byte) error { return e.call(callEcho, *req, out) }

// Get answers with the bulk data.
func (e *Echo) Get(req *[]byte, out *[]byte) error { return e.call(callGet, *req, out) }

// Put takes the bulk data.
func (e *Echo) Put(req *[]byte, out *[]byte) error { return e.call(callPut, *req, out) }

func (e *Echo) call(name string, req []byte, out *[]byte) (err error) {
	*out, err = e.s.answer(name, req)
	return err
}

// netRPCServer ends its connections with itself, which net/rpc leaves to its user.
type netRPCServer struct {
	l       net.Listener
	mu      sync.Mutex
	conns   []net.Conn
	closed  bool
	running sync.WaitGroup
}

func serveNetRPC(_ context.Context, o Options) (Server, error) {
	l, err := listen(o)
	if err != nil {
		return nil, err
	}
	r := rpc.NewServer()
	if err := r.RegisterName("Echo", &Echo{newService()}); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s := &netRPCServer{l: l}
	s.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if !s.keep(c) {
				c.Close()
				return
			}
			s.running.Go(func() { r.ServeConn(c) })
		}
	})
	return s, nil
}

// keep remembers a connection; false once the server is closed.
func (s *netRPCServer) keep(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	return !s.closed
}

func (s *netRPCServer) Addr() string { return s.l.Addr().String() }

func (s *netRPCServer) Close() error {
	err := s.l.Close()
	s.mu.Lock()
	s.closed = true
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
	return err
}

type netRPCClient struct{ c *rpc.Client }

func dialNetRPC(ctx context.Context, o Options, addr string) (Client, error) {
	conn, err := dial(ctx, o, addr)
	if err != nil {
		return nil, err
	}
	return &netRPCClient{rpc.NewClient(conn)}, nil
}

func (c *netRPCClient) Echo(req, buf []byte) ([]byte, error) {
	out := buf[:0]
	err := c.c.Call("Echo.Echo", &req, &out)
	return out, err
}

func (c *netRPCClient) Get(dst []byte) ([]byte, error) {
	out, req := dst[:0], []byte(nil)
	err := c.c.Call("Echo.Get", &req, &out)
	return out, err
}

func (c *netRPCClient) Put(src []byte) error {
	var out []byte
	if err := c.c.Call("Echo.Put", &src, &out); err != nil {
		return err
	}
	return checkTail(src, out)
}

func (c *netRPCClient) Close() error { return c.c.Close() }
