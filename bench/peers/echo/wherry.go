package echo

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/bench/peers/figures"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/schemes"
)

// Message ids: an active message, and its answer, which needs no credit.
const (
	idPing fabric.FrameID = 200
	idPong fabric.FrameID = 3000
)

// putsChecked is how many puts are read back: the first, while warming up. A
// one-sided put has no answer that could be compared.
const putsChecked = 2

// known are wherry's transports.
func known() fabric.Schemes { return schemes.All() }

// newElement makes an element with the transport and policy that the options name.
func newElement(o Options, name string) (*fabric.Element, error) {
	picked, err := known().Pick(o.Transport)
	if err != nil {
		return nil, err
	}
	made, err := picked.Open(nil)
	if err != nil {
		return nil, err
	}
	return fabric.New(fabric.Config{Name: name, Transports: made, Policy: o.Policy})
}

// listenElement listens where the options say.
func listenElement(el *fabric.Element, o Options) (string, error) {
	picked, err := known().Pick(o.Transport)
	if err != nil {
		return "", err
	}
	return el.Listen(picked[0].Here(o.Dir, "peer"))
}

// elementServer is an element that serves.
type elementServer struct {
	el   *fabric.Element
	addr string
	stop func() error // before the element
}

func (s *elementServer) Addr() string { return s.addr }

func (s *elementServer) Close() error {
	var err error
	if s.stop != nil {
		err = s.stop()
	}
	return errors.Join(err, s.el.Close())
}

// serveVerbs serves an active message and lends two segments: one with the bulk data to be
// fetched, one to be written. Its address has the segments' keys after the element's own.
func serveVerbs(_ context.Context, o Options) (Server, error) {
	el, err := newElement(o, "server")
	if err != nil {
		return nil, err
	}
	s := &elementServer{el: el}
	if err := s.verbs(o); err != nil {
		return nil, errors.Join(err, el.Close())
	}
	return s, nil
}

func (s *elementServer) verbs(o Options) error {
	if err := s.el.Handle(idPing, func(m fabric.Message) { _ = m.From.Post(idPong, nil, m.Body) }); err != nil {
		return err
	}
	parts := make([]string, 1)
	for _, fill := range [][]byte{Bulk(), make([]byte, figures.BulkBytes)} {
		seg, err := s.el.NewSegment(figures.BulkBytes, fabric.Writable)
		if err != nil {
			return err
		}
		copy(seg.Bytes(), fill)
		key, err := seg.Key(fabric.RightsAll)
		if err != nil {
			return err
		}
		parts = append(parts, hex.EncodeToString(key.Append(nil)))
	}
	addr, err := listenElement(s.el, o)
	parts[0] = addr
	s.addr = strings.Join(parts, " ")
	return err
}

// verbsClient echoes by active messages and moves bulk data one-sided.
type verbsClient struct {
	ctx      context.Context
	el       *fabric.Element
	ep       *fabric.Endpoint
	get, put *fabric.Remote
	puts     int

	pongs, want uint64 // pongs is written by the handler, atomically
	answered    func() bool
	last        atomic.Uint64 // the newest answer
	wrong       atomic.Bool
	sent        [figures.EchoBytes]byte
}

func dialVerbs(ctx context.Context, o Options, addr string) (Client, error) {
	el, err := newElement(o, "client")
	if err != nil {
		return nil, err
	}
	c := &verbsClient{ctx: ctx, el: el}
	if err := c.connect(addr); err != nil {
		return nil, errors.Join(err, el.Close())
	}
	return c, nil
}

func (c *verbsClient) connect(addr string) error {
	parts := strings.Fields(addr)
	if len(parts) != 3 {
		return fmt.Errorf("wherry verbs: address %q: an address and two keys", addr)
	}
	c.answered = func() bool { return atomic.LoadUint64(&c.pongs) >= c.want }
	err := c.el.Handle(idPong, func(m fabric.Message) {
		if len(m.Body) != figures.EchoBytes {
			c.wrong.Store(true)
		} else {
			c.last.Store(binary.LittleEndian.Uint64(m.Body))
		}
		atomic.AddUint64(&c.pongs, 1)
	})
	if err != nil {
		return err
	}
	if c.ep, err = c.el.Dial(c.ctx, parts[0]); err != nil {
		return err
	}
	for i, to := range []**fabric.Remote{&c.get, &c.put} {
		b, err := hex.DecodeString(parts[1+i])
		if err != nil {
			return err
		}
		key, err := fabric.DecodeKey(b)
		if err != nil {
			return err
		}
		if *to, err = c.ep.Import(c.ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func (c *verbsClient) Echo(req, buf []byte) ([]byte, error) {
	c.want = atomic.LoadUint64(&c.pongs) + 1
	if err := c.ep.Send(c.ctx, idPing, nil, req); err != nil {
		return nil, err
	}
	if err := c.el.WaitFor(c.ctx, c.answered); err != nil {
		return nil, err
	}
	if c.wrong.Load() {
		return nil, fmt.Errorf("%w: an echo of another length", ErrWrongAnswer)
	}
	return binary.LittleEndian.AppendUint64(buf[:0], c.last.Load()), nil
}

// Pipeline is Pipeliner's. Messages keep their order, so the newest answer says how many are wrong: none.
func (c *verbsClient) Pipeline(depth int, more func() bool) (int, error) {
	first := atomic.LoadUint64(&c.pongs)
	sent := uint64(0)
	for more() {
		for sent < atomic.LoadUint64(&c.pongs)-first+uint64(depth) {
			sent++
			binary.LittleEndian.PutUint64(c.sent[:], sent)
			if err := c.ep.Send(c.ctx, idPing, nil, c.sent[:]); err != nil {
				return 0, err
			}
		}
		c.want = atomic.LoadUint64(&c.pongs) + 1
		if err := c.el.WaitFor(c.ctx, c.answered); err != nil {
			return 0, err
		}
	}
	c.want = first + sent
	if err := c.el.WaitFor(c.ctx, c.answered); err != nil {
		return 0, err
	}
	if got := c.last.Load(); c.wrong.Load() || got != sent {
		return 0, fmt.Errorf("%w: after %d echoes the newest is %d", ErrWrongAnswer, sent, got)
	}
	return int(sent), nil
}

func (c *verbsClient) Get(dst []byte) ([]byte, error) {
	dst = dst[:figures.BulkBytes]
	return dst, c.get.Get(c.ctx, dst, 0)
}

func (c *verbsClient) Put(src []byte) error {
	if err := c.put.Put(c.ctx, src, 0); err != nil || c.puts >= putsChecked {
		return err
	}
	c.puts++
	var got [tailBytes]byte
	if err := c.put.Get(c.ctx, got[:], uint64(len(src)-tailBytes)); err != nil {
		return err
	}
	return checkTail(src, got[:])
}

func (c *verbsClient) Close() error { return c.el.Close() }
