package echo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/bench/peers/figures"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// callConfig lets figures.Depth large payloads through at once.
func callConfig() rpc.Config {
	return rpc.Config{Limits: rpc.Limits{Calls: 4 * figures.Depth, CallsPerPeer: 2 * figures.Depth}}
}

// serveCalls serves with handlers that may block, each on a goroutine.
func serveCalls(_ context.Context, o Options) (Server, error) { return serveRPC(o, rpc.Options{}) }

// serveInline serves with handlers that run at once, on the goroutine that drives the fabric.
func serveInline(_ context.Context, o Options) (Server, error) {
	return serveRPC(o, rpc.Options{Inline: true})
}

func serveRPC(o Options, handlers rpc.Options) (Server, error) {
	el, err := newElement(o, "server")
	if err != nil {
		return nil, err
	}
	p, err := rpc.New(el, callConfig())
	if err != nil {
		return nil, errors.Join(err, el.Close())
	}
	s := &elementServer{el: el, stop: p.Close}
	e := newService()
	for _, name := range []string{callEcho, callGet, callPut} {
		if err := p.Register(name, func(_ context.Context, c *rpc.Call) ([]byte, error) { return e.answer(name, c.Req) }, handlers); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if s.addr, err = listenElement(el, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

type callClient struct {
	ctx context.Context
	el  *fabric.Element
	ep  *fabric.Endpoint
	p   *rpc.Peer

	tail []byte // a put's answer
}

func dialCalls(ctx context.Context, o Options, addr string) (Client, error) {
	el, err := newElement(o, "client")
	if err != nil {
		return nil, err
	}
	c := &callClient{ctx: ctx, el: el}
	if c.p, err = rpc.New(el, callConfig()); err != nil {
		return nil, errors.Join(err, el.Close())
	}
	if c.ep, err = el.Dial(ctx, addr); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *callClient) Echo(req, buf []byte) ([]byte, error) {
	return c.p.CallAppend(c.ctx, c.ep, callEcho, req, buf[:0])
}

// Pipeline is Pipeliner's: calls are started, and awaited in the order of their start.
func (c *callClient) Pipeline(depth int, more func() bool) (calls int, err error) {
	var req, buf [figures.EchoBytes]byte
	ring := make([]rpc.Future, depth)
	begun, ended := uint64(0), uint64(0)
	for {
		for begun-ended < uint64(depth) && more() {
			binary.LittleEndian.PutUint64(req[:], begun)
			if ring[begun%uint64(depth)], err = c.p.Start(c.ctx, c.ep, callEcho, req[:]); err != nil {
				forget(ring, begun, ended)
				return 0, err
			}
			begun++
		}
		if begun == ended {
			return int(ended), nil
		}
		f := ring[ended%uint64(depth)]
		ended++
		got, err := f.WaitAppend(c.ctx, buf[:0])
		if err == nil && (len(got) != figures.EchoBytes || binary.LittleEndian.Uint64(got) != ended-1) {
			err = fmt.Errorf("%w: echo %d is %x", ErrWrongAnswer, ended-1, got)
		}
		if err != nil {
			forget(ring, begun, ended)
			return 0, err
		}
	}
}

// forget ends the futures that nobody waits for any more.
func forget(ring []rpc.Future, begun, ended uint64) {
	for ; ended < begun; ended++ {
		ring[ended%uint64(len(ring))].Forget()
	}
}

func (c *callClient) Get(dst []byte) ([]byte, error) {
	return c.p.CallAppend(c.ctx, c.ep, callGet, nil, dst[:0])
}

func (c *callClient) Put(src []byte) (err error) {
	if c.tail, err = c.p.CallAppend(c.ctx, c.ep, callPut, src, c.tail[:0]); err != nil {
		return err
	}
	return checkTail(src, c.tail)
}

func (c *callClient) Close() error { return errors.Join(c.p.Close(), c.el.Close()) }
