package echo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const (
	natsMaxPayload = 8 << 20 // the default takes 1 MiB and no header
	natsReady      = 10 * time.Second
)

// natsServer is a broker and, in the same process, the service that answers
// through it: without a socket between the two, which is as near as they get.
type natsServer struct {
	broker *server.Server
	nc     *nats.Conn
}

func serveNATS(context.Context, Options) (Server, error) {
	b, err := server.NewServer(&server.Options{ServerName: "bench", Host: "127.0.0.1", Port: server.RANDOM_PORT,
		NoLog: true, NoSigs: true, MaxPayload: natsMaxPayload})
	if err != nil {
		return nil, err
	}
	s := &natsServer{broker: b}
	b.Start()
	if !b.ReadyForConnections(natsReady) {
		return nil, errors.Join(fmt.Errorf("nats: the broker was not ready within %v", natsReady), s.Close())
	}
	if s.nc, err = nats.Connect("", nats.InProcessServer(b)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	e := newService()
	for _, name := range []string{callEcho, callGet, callPut} {
		if _, err := s.nc.Subscribe(name, func(m *nats.Msg) {
			if out, err := e.answer(name, m.Data); err == nil { // else the caller's deadline tells it
				_ = m.Respond(out)
			}
		}); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if err := s.nc.Flush(); err != nil { // the broker knows the subscriptions
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *natsServer) Addr() string { return s.broker.ClientURL() }

func (s *natsServer) Close() error {
	if s.nc != nil {
		s.nc.Close()
	}
	s.broker.Shutdown()
	s.broker.WaitForShutdown()
	return nil
}

type natsClient struct {
	nc   *nats.Conn
	wait time.Duration
}

func dialNATS(ctx context.Context, _ Options, addr string) (Client, error) {
	nc, err := nats.Connect(addr)
	if err != nil {
		return nil, err
	}
	c := &natsClient{nc, natsReady}
	if end, ok := ctx.Deadline(); ok {
		c.wait = time.Until(end)
	}
	return c, nil
}

func (c *natsClient) call(name string, req []byte) ([]byte, error) {
	m, err := c.nc.Request(name, req, c.wait)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

func (c *natsClient) Echo(req, _ []byte) ([]byte, error) { return c.call(callEcho, req) }

func (c *natsClient) Get([]byte) ([]byte, error) { return c.call(callGet, nil) }

func (c *natsClient) Put(src []byte) error {
	got, err := c.call(callPut, src)
	if err != nil {
		return err
	}
	return checkTail(src, got)
}

func (c *natsClient) Close() error {
	c.nc.Close()
	return nil
}
