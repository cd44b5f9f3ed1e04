package echo

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/wherry-fabric/wherry/bench/peers/figures"
)

// Settings that make Connect's bulk transfers faster than net/http's defaults do.
const (
	connectWindowBytes = 4<<20 - 1 // net/http takes less than 4 MiB
	connectFrameBytes  = 1 << 20
	connectBufferBytes = 64 << 10
)

const connectPath = "/wherry.bench.Echo/"

// headerTime bounds a request's header, as every server should.
const headerTime = 10 * time.Second

func http2Config() *http.HTTP2Config {
	return &http.HTTP2Config{MaxConcurrentStreams: 2 * figures.Depth, MaxReadFrameSize: connectFrameBytes,
		MaxReceiveBufferPerConnection: connectWindowBytes, MaxReceiveBufferPerStream: connectWindowBytes}
}

// protocols are those without TLS: HTTP/1.1, HTTP/2 (h2c) or both.
func protocols(http1, http2 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(http1)
	p.SetUnencryptedHTTP2(http2)
	return p
}

func serveConnect(_ context.Context, o Options) (Server, error) {
	l, err := listen(o)
	if err != nil {
		return nil, err
	}
	e, pool, mux := newService(), &bulkPool{}, http.NewServeMux()
	for _, name := range []string{callEcho, callGet, callPut} {
		options := []connect.HandlerOption{connect.WithCodec(connectCodec{}), connect.WithCompression("gzip", nil, nil)}
		if name == callPut {
			options = append(options, connect.WithRequestInitializer(func(_ connect.Spec, message any) error {
				r, err := rawOf(message)
				if err == nil {
					r.b = pool.get()
				}
				return err
			}))
		}
		mux.Handle(connectPath+name, connect.NewUnaryHandler(connectPath+name, func(_ context.Context, req *connect.Request[raw]) (*connect.Response[raw], error) {
			out, err := e.answer(name, req.Msg.b)
			if err != nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, err)
			}
			if name == callPut {
				out = append([]byte(nil), out...)
				pool.put(req.Msg.b)
			}
			return connect.NewResponse(&raw{out}), nil
		}, options...))
	}
	s := &http.Server{Handler: mux, Protocols: protocols(true, true), HTTP2: http2Config(), ReadHeaderTimeout: headerTime}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	return &socketServer{l.Addr().String(), func() error {
		err := s.Close()
		if end := <-done; !errors.Is(end, http.ErrServerClosed) {
			err = end
		}
		return err
	}}, nil
}

type connectClient struct {
	ctx            context.Context
	http           *http.Transport
	echo, get, put *connect.Client[raw, raw]
	dst            []byte // of the Get under way
}

// dialConnect speaks HTTP/2: all calls under way share one connection.
func dialConnect(ctx context.Context, o Options, addr string) (Client, error) {
	return newConnectClient(ctx, o, addr, protocols(false, true)), nil
}

// dialConnect1 speaks HTTP/1.1: each call under way has a connection, which is kept for the next.
func dialConnect1(ctx context.Context, o Options, addr string) (Client, error) {
	return newConnectClient(ctx, o, addr, protocols(true, false)), nil
}

func newConnectClient(ctx context.Context, o Options, addr string, speaks *http.Protocols) *connectClient {
	c := &connectClient{ctx: ctx}
	c.http = &http.Transport{Protocols: speaks, HTTP2: http2Config(), DisableCompression: true,
		MaxIdleConns: figures.Depth, MaxIdleConnsPerHost: figures.Depth, ReadBufferSize: connectBufferBytes, WriteBufferSize: connectBufferBytes,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, o, addr) }}
	h := &http.Client{Transport: c.http}
	options := []connect.ClientOption{connect.WithCodec(connectCodec{}), connect.WithAcceptCompression("gzip", nil, nil)}
	into := connect.WithResponseInitializer(func(_ connect.Spec, message any) error {
		r, err := rawOf(message)
		if err == nil {
			r.b = c.dst[:0]
		}
		return err
	})
	const base = "http://peer" + connectPath
	c.echo = connect.NewClient[raw, raw](h, base+callEcho, options...)
	c.put = connect.NewClient[raw, raw](h, base+callPut, options...)
	c.get = connect.NewClient[raw, raw](h, base+callGet, append(options, into)...)
	return c
}

func (c *connectClient) call(to *connect.Client[raw, raw], req []byte) ([]byte, error) {
	r, err := to.CallUnary(c.ctx, connect.NewRequest(&raw{req}))
	if err != nil {
		return nil, err
	}
	return r.Msg.b, nil
}

func (c *connectClient) Echo(req, _ []byte) ([]byte, error) { return c.call(c.echo, req) }

func (c *connectClient) Get(dst []byte) ([]byte, error) {
	c.dst = dst
	return c.call(c.get, nil)
}

func (c *connectClient) Put(src []byte) error {
	got, err := c.call(c.put, src)
	if err != nil {
		return err
	}
	return checkTail(src, got)
}

func (c *connectClient) Close() error {
	c.http.CloseIdleConnections()
	return nil
}
