package echo

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Settings that make gRPC's bulk transfers faster than its defaults do: flow
// control never waits within one payload, and fewer system calls move it.
const (
	grpcWindowBytes = 8 << 20
	grpcBufferBytes = 256 << 10
)

const grpcService = "wherry.bench.Echo"

// grpcServer has what the generated server interface would have.
type grpcServer interface {
	call(name string, dec func(any) error) (any, error)
}

// grpcEcho serves over gRPC.
type grpcEcho struct {
	*service
	pool bulkPool
}

func (e *grpcEcho) call(name string, dec func(any) error) (any, error) {
	in := &raw{}
	if name == callPut {
		in.b = e.pool.get()
		defer func() { e.pool.put(in.b) }()
	}
	if err := dec(in); err != nil {
		return nil, err
	}
	out, err := e.answer(name, in.b)
	if err != nil {
		return nil, err
	}
	if name == callPut { // the buffer goes back before the answer is written
		out = append([]byte(nil), out...)
	}
	return &raw{out}, nil
}

// grpcDesc is the service's description, written by hand.
func grpcDesc() *grpc.ServiceDesc {
	d := &grpc.ServiceDesc{ServiceName: grpcService, HandlerType: (*grpcServer)(nil)}
	for _, name := range []string{callEcho, callGet, callPut} {
		d.Methods = append(d.Methods, grpc.MethodDesc{MethodName: name,
			Handler: func(srv any, _ context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				return srv.(grpcServer).call(name, dec)
			}})
	}
	return d
}

func serveGRPC(_ context.Context, o Options) (Server, error) {
	l, err := listen(o)
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(grpcCodec{}), grpc.InitialWindowSize(grpcWindowBytes), grpc.InitialConnWindowSize(grpcWindowBytes),
		grpc.ReadBufferSize(grpcBufferBytes), grpc.WriteBufferSize(grpcBufferBytes))
	s.RegisterService(grpcDesc(), &grpcEcho{service: newService()})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	return &socketServer{l.Addr().String(), func() error {
		s.Stop()
		return <-done
	}}, nil
}

type grpcClient struct {
	ctx context.Context
	cc  *grpc.ClientConn
}

func dialGRPC(ctx context.Context, o Options, addr string) (Client, error) {
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, o, addr) }),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(grpcCodec{})),
		grpc.WithInitialWindowSize(grpcWindowBytes), grpc.WithInitialConnWindowSize(grpcWindowBytes),
		grpc.WithReadBufferSize(grpcBufferBytes), grpc.WithWriteBufferSize(grpcBufferBytes))
	if err != nil {
		return nil, err
	}
	return &grpcClient{ctx, cc}, nil
}

func (c *grpcClient) call(name string, req, buf []byte) ([]byte, error) {
	out := raw{buf[:0]}
	err := c.cc.Invoke(c.ctx, "/"+grpcService+"/"+name, &raw{req}, &out)
	return out.b, err
}

func (c *grpcClient) Echo(req, buf []byte) ([]byte, error) { return c.call(callEcho, req, buf) }

func (c *grpcClient) Get(dst []byte) ([]byte, error) { return c.call(callGet, nil, dst) }

func (c *grpcClient) Put(src []byte) error {
	got, err := c.call(callPut, src, nil)
	if err != nil {
		return err
	}
	return checkTail(src, got)
}

func (c *grpcClient) Close() error { return c.cc.Close() }
