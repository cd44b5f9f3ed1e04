package echo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/wherry-fabric/wherry/bench/peers/figures"
	"github.com/wherry-fabric/wherry/fabric"
)

// Options are what both sides of a peer are told.
type Options struct {
	Transport string        // one of the Peer's
	Dir       string        // for sockets, private to the turn
	Policy    fabric.Policy // of peers that have a choice
}

// Server is one running service.
type Server interface {
	// Addr is what a Client of the same peer connects to.
	Addr() string
	Close() error
}

// Client calls the service. The context given to Dial bounds all its calls.
type Client interface {
	// Echo sends req and returns the answer, in buf if the library can.
	Echo(req, buf []byte) ([]byte, error)
	// Get fetches the server's bulk data, into dst if the library can.
	Get(dst []byte) ([]byte, error)
	// Put hands src to the server, and returns once it has it.
	Put(src []byte) error
	Close() error
}

// Pipeliner is a Client that keeps many calls under way by itself, from one goroutine.
type Pipeliner interface {
	// Pipeline keeps depth echoes under way until more, which is asked now and
	// then, says no. It returns how many were answered.
	Pipeline(depth int, more func() bool) (calls int, err error)
}

// Peer is one library over its transports.
type Peer struct {
	Name       string
	Transports []string
	Module     string // whose version is shown; "": the standard library, or this tree
	Polls      bool   // whether it obeys Options.Policy; the others sleep in Go's netpoller
	Single     bool   // it has no calls, and its Echo is for one goroutine
	Serve      func(ctx context.Context, o Options) (Server, error)
	Dial       func(ctx context.Context, o Options, addr string) (Client, error)
}

// All are the peers of this package; wherry comes first.
func All() []Peer {
	own := known().Names()
	return []Peer{
		{Name: figures.VerbsPeer, Transports: own, Polls: true, Single: true, Serve: serveVerbs, Dial: dialVerbs},
		{Name: figures.RPCPeer, Transports: own, Polls: true, Serve: serveCalls, Dial: dialCalls},
		{Name: figures.InlinePeer, Transports: own, Polls: true, Serve: serveInline, Dial: dialCalls},
		{Name: "grpc", Transports: []string{"unix", "tcp"}, Module: "google.golang.org/grpc", Serve: serveGRPC, Dial: dialGRPC},
		{Name: "connect", Transports: []string{"unix", "tcp"}, Module: "connectrpc.com/connect", Serve: serveConnect, Dial: dialConnect},
		{Name: "connect http/1", Transports: []string{"unix", "tcp"}, Module: "connectrpc.com/connect", Serve: serveConnect, Dial: dialConnect1},
		{Name: figures.NetRPCPeer, Transports: []string{"unix", "tcp"}, Serve: serveNetRPC, Dial: dialNetRPC},
		{Name: "nats", Transports: []string{"tcp"}, Module: "github.com/nats-io/nats-server/v2", Serve: serveNATS, Dial: dialNATS},
	}
}

// Offers reports whether the peer can do a work.
func (p Peer) Offers(w figures.Work) bool { return !p.Single || !w.Ordinary() }

// Find is the peer of that name.
func Find(name string) (Peer, error) {
	for _, p := range All() {
		if p.Name == name {
			return p, nil
		}
	}
	return Peer{}, fmt.Errorf("echo: no peer %q", name)
}

// Version is the peer's version as built into this program.
func (p Peer) Version() string {
	info, ok := debug.ReadBuildInfo()
	switch {
	case strings.HasPrefix(p.Name, "wherry"):
		return "this tree"
	case !ok:
		return ""
	case p.Module == "":
		return info.GoVersion
	}
	for _, m := range info.Deps {
		if m.Path == p.Module {
			return m.Version
		}
	}
	return ""
}

// Class is which of wherry's transports one is compared with: the one of its name, or else the first that stays on the machine.
func Class(transport string) string {
	all := known()
	if all.Index(transport) < 0 {
		all = all.Filter((*fabric.Scheme).Local)
		transport = all[0].Name
	}
	return transport
}

// Names of the service's calls.
const (
	callEcho = "echo"
	callGet  = "get"
	callPut  = "put"
)

// tailBytes is how much of a put's payload comes back, to be compared.
const tailBytes = 8

// ErrWrongAnswer says that a peer returned something else than it should.
var ErrWrongAnswer = errors.New("wrong answer")

// service answers calls, whichever way they came.
type service struct{ bulk []byte }

func newService() *service { return &service{bulk: Bulk()} }

// Bulk is the data that get answers with: every page touched, no two alike.
func Bulk() []byte {
	b := make([]byte, figures.BulkBytes)
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], uint64(i)*0x9e3779b97f4a7c15)
	}
	return b
}

// answer is the result of a call. It may be part of req.
func (s *service) answer(call string, req []byte) ([]byte, error) {
	switch call {
	case callEcho:
		return req, nil
	case callGet:
		return s.bulk, nil
	case callPut:
		if len(req) != figures.BulkBytes {
			return nil, fmt.Errorf("put: %d bytes, not %d", len(req), figures.BulkBytes)
		}
		return tail(req), nil
	}
	return nil, fmt.Errorf("no call %q", call)
}

func tail(b []byte) []byte { return b[max(len(b)-tailBytes, 0):] }

// checkTail compares a put's answer with what was put.
func checkTail(src, got []byte) error {
	if string(got) != string(tail(src)) {
		return fmt.Errorf("%w: put %x at the end, the server has %x", ErrWrongAnswer, tail(src), got)
	}
	return nil
}

// listen opens the socket of a peer that is served over one.
func listen(o Options) (net.Listener, error) {
	if o.Transport == "unix" {
		return net.Listen("unix", filepath.Join(o.Dir, "peer.sock"))
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// dial connects to a socket that listen opened. The connection ends with the context's deadline.
func dial(ctx context.Context, o Options, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, o.Transport, addr)
	if err != nil {
		return nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		err = c.SetDeadline(end)
	}
	return c, err
}

// socketServer is a server on a listener of its own.
type socketServer struct {
	addr string
	stop func() error
}

func (s *socketServer) Addr() string { return s.addr }
func (s *socketServer) Close() error { return s.stop() }
