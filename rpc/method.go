package rpc

import (
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/fabric"
)

// Method is what both sides of a call agree on: its name, and how request and
// answer are written. Define it once, in a package that caller and callee import.
type Method[Req, Resp any] struct {
	to   target
	req  Codec[Req]
	resp Codec[Resp]
}

// Define makes a method. Its name is good for as long as there are programs that
// use it; begin it with the service's.
func Define[Req, Resp any](name string, req Codec[Req], resp Codec[Resp]) Method[Req, Resp] {
	return Method[Req, Resp]{named(name), req, resp}
}

// check refuses a method that was not defined.
func (m Method[Req, Resp]) check() error {
	if m.req == nil || m.resp == nil {
		return fmt.Errorf("%w: the Method %q has no codecs; make it with Define", ErrName, m.to.name)
	}
	return nil
}

// Name is what the method is registered under.
func (m Method[Req, Resp]) Name() string { return m.to.name }

// Serve registers the method's handler.
func (m Method[Req, Resp]) Serve(p *Peer, fn func(ctx context.Context, c *Call, req Req) (Resp, error), o Options) error {
	if err := m.check(); err != nil {
		return err
	}
	if fn == nil {
		return p.Register(m.to.name, nil, o)
	}
	return p.Register(m.to.name, func(ctx context.Context, c *Call) ([]byte, error) {
		var none Req
		req, err := m.req.Decode(none, c.Req)
		if err != nil {
			return nil, &Error{CodeRequest, fmt.Sprintf("the request (%d bytes) cannot be read: %v", len(c.Req), err)}
		}
		resp, err := fn(ctx, c, req)
		if err != nil || c.isDetached() {
			return nil, err
		}
		return m.encode(c, resp)
	}, o)
}

func (m Method[Req, Resp]) encode(c *Call, resp Resp) ([]byte, error) {
	if p, ok := m.resp.(plain[Resp]); ok {
		c.borrowed = true
		return p.bytesOf(resp), nil
	}
	b, err := m.resp.Append(c.scratch[:0], resp)
	if err != nil {
		return nil, fmt.Errorf("the answer cannot be written: %w", err)
	}
	c.scratch = b
	return b, nil
}

// Reply answers a call of this method that was detached. Of several the first counts.
func (m Method[Req, Resp]) Reply(c *Call, resp Resp, err error) {
	var b []byte
	if err == nil { // not into the call's own memory, where the first answer may still be on its way
		if b, err = m.resp.Append(nil, resp); err != nil {
			err = fmt.Errorf("the answer cannot be written: %w", err)
		}
	}
	c.Reply(b, err)
}

// Call calls the method at the peer; see Peer.Call.
func (m Method[Req, Resp]) Call(ctx context.Context, p *Peer, ep *fabric.Endpoint, req Req) (Resp, error) {
	var none Resp
	return m.CallInto(ctx, p, ep, req, none)
}

// CallInto is Call that may use the memory of old for the answer, as the codec can.
func (m Method[Req, Resp]) CallInto(ctx context.Context, p *Peer, ep *fabric.Endpoint, req Req, old Resp) (Resp, error) {
	f, err := m.begin(ctx, p, ep, req, sendWaits)
	if err != nil {
		return old, err
	}
	return m.wait(ctx, f, old)
}

// Start starts a call; see Peer.Start.
func (m Method[Req, Resp]) Start(ctx context.Context, p *Peer, ep *fabric.Endpoint, req Req) (Started[Req, Resp], error) {
	f, err := m.begin(ctx, p, ep, req, sendStarts)
	return Started[Req, Resp]{f, m}, err
}

// Send sends a one-way call; see Peer.Send.
func (m Method[Req, Resp]) Send(ctx context.Context, p *Peer, ep *fabric.Endpoint, req Req) error {
	_, err := m.begin(ctx, p, ep, req, sendOneWay)
	return err
}

func (m Method[Req, Resp]) begin(ctx context.Context, p *Peer, ep *fabric.Endpoint, req Req, mode sendMode) (Future, error) {
	if err := m.check(); err != nil {
		return p.failed(ep, m.to, err)
	}
	if as, ok := m.req.(plain[Req]); ok {
		return p.begin(ctx, ep, m.to, as.bytesOf(req), mode)
	}
	buf := p.bufs.Get().(*[]byte)
	defer p.bufs.Put(buf)
	b, err := m.req.Append((*buf)[:0], req)
	if err != nil {
		return p.failed(ep, m.to, fmt.Errorf("the request cannot be written: %w", err))
	}
	if *buf = b; cap(b) > keptBytes {
		*buf = nil
	}
	return p.begin(ctx, ep, m.to, b, mode)
}

func (m Method[Req, Resp]) wait(ctx context.Context, f Future, old Resp) (Resp, error) {
	if f.r == nil {
		return old, ErrEnded
	}
	if as, ok := m.resp.(plain[Resp]); ok {
		b, err := f.wait(ctx, as.bytesOf(old)[:0], nil)
		if err != nil {
			return old, err
		}
		return as.valueOf(b), nil
	}
	p, ep := f.r.c.p, f.r.c.ep
	buf := p.bufs.Get().(*[]byte)
	defer p.bufs.Put(buf)
	b, err := f.wait(ctx, (*buf)[:0], nil)
	if cap(b) <= keptBytes {
		*buf = b
	}
	if err != nil {
		return old, err
	}
	resp, err := m.resp.Decode(old, b)
	if err != nil {
		return old, callError(ep, m.to.name, fmt.Errorf("%w: its answer of %d bytes: %w", ErrRequest, len(b), err))
	}
	return resp, nil
}

// Started is a Future whose answer is decoded.
type Started[Req, Resp any] struct {
	Future
	m Method[Req, Resp]
}

// Wait waits for the answer; see Future.Wait.
func (s Started[Req, Resp]) Wait(ctx context.Context) (Resp, error) {
	var none Resp
	return s.m.wait(ctx, s.Future, none)
}

// WaitInto is Wait that may use the memory of old for the answer.
func (s Started[Req, Resp]) WaitInto(ctx context.Context, old Resp) (Resp, error) {
	return s.m.wait(ctx, s.Future, old)
}
