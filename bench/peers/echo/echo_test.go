package echo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/bench/peers/figures"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/sockdir"
)

func TestMain(m *testing.M) {
	if err := sockdir.Shorten(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m,
		// A package of the broker's keeps a clock from its import on.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}

// pair is a server and a client of a peer, both in this process.
func pair(t *testing.T, p Peer, transport string) Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	o := Options{Transport: transport, Dir: t.TempDir(), Policy: fabric.Balanced}
	s, err := p.Serve(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Dial(ctx, o, s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer cancel()
		if err := errors.Join(c.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// everywhere runs a test for each peer over each of its transports.
func everywhere(t *testing.T, f func(t *testing.T, c Client)) {
	for _, p := range All() {
		for _, transport := range p.Transports {
			t.Run(p.Name+"-"+transport, func(t *testing.T) { f(t, pair(t, p, transport)) })
		}
	}
}

// TestService: every peer answers as the service should.
func TestService(t *testing.T) {
	everywhere(t, func(t *testing.T, c Client) {
		buf := make([]byte, figures.EchoBytes)
		for i := range uint64(5) {
			req := binary.LittleEndian.AppendUint64(nil, i*0x0123456789)
			if got, err := c.Echo(req, buf); err != nil || string(got) != string(req) {
				t.Fatalf("echo of %x: %x, %v", req, got, err)
			}
		}
		dst := make([]byte, figures.BulkBytes)
		for range 3 {
			if got, err := c.Get(dst); err != nil || string(got) != string(Bulk()) {
				t.Fatalf("get: %d bytes, %v", len(got), err)
			}
		}
		src := Bulk()
		for i := range 4 {
			src[len(src)-1] = byte(i)
			if err := c.Put(src); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestAtOnce: as many echoes at once as the benchmark has.
func TestAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, c Client) {
		if p, ok := c.(Pipeliner); ok {
			asked := 0
			calls, err := p.Pipeline(figures.Depth, func() bool { asked++; return asked < 100 })
			if err != nil || calls < figures.Depth {
				t.Fatalf("%d calls, %v", calls, err)
			}
			return
		}
		var wg sync.WaitGroup
		errs := make([]error, figures.Depth)
		for lane := range errs {
			wg.Go(func() {
				buf := make([]byte, figures.EchoBytes)
				for i := range uint64(20) {
					req := binary.LittleEndian.AppendUint64(nil, uint64(lane)<<32|i)
					got, err := c.Echo(req, buf)
					if err == nil && string(got) != string(req) {
						err = fmt.Errorf("echo of %x: %x", req, got)
					}
					errs[lane] = errors.Join(errs[lane], err)
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAnswer(t *testing.T) {
	s := newService()
	if _, err := s.answer(callPut, make([]byte, 9)); err == nil {
		t.Error("a short put is taken")
	}
	if _, err := s.answer("other", nil); err == nil {
		t.Error("a call that does not exist is answered")
	}
	if err := checkTail([]byte("12345678"), []byte("12345679")); !errors.Is(err, ErrWrongAnswer) {
		t.Errorf("a wrong tail: %v", err)
	}
	if err := checkTail(Bulk(), nil); !errors.Is(err, ErrWrongAnswer) {
		t.Errorf("no tail: %v", err)
	}
}

func TestCodecs(t *testing.T) {
	for _, v := range []any{nil, "text", raw{}, &struct{}{}} {
		if _, err := (grpcCodec{}).Marshal(v); err == nil {
			t.Errorf("gRPC's codec encodes %T", v)
		}
		if err := (grpcCodec{}).Unmarshal(nil, v); err == nil {
			t.Errorf("gRPC's codec decodes into %T", v)
		}
		if _, err := (connectCodec{}).Marshal(v); err == nil {
			t.Errorf("Connect's codec encodes %T", v)
		}
		if err := (connectCodec{}).Unmarshal(nil, v); err == nil {
			t.Errorf("Connect's codec decodes into %T", v)
		}
	}
	b, err := connectCodec{}.MarshalAppend([]byte("a"), &raw{[]byte("b")})
	if err != nil || string(b) != "ab" {
		t.Errorf("appended: %q, %v", b, err)
	}
}

func TestFind(t *testing.T) {
	for _, p := range All() {
		if got, err := Find(p.Name); err != nil || got.Name != p.Name {
			t.Errorf("Find(%q) = %q, %v", p.Name, got.Name, err)
		}
	}
	if _, err := Find("nobody"); err == nil {
		t.Error("a peer that does not exist is found")
	}
	if Class("tcp") != "tcp" || Class("unix") != "shm" || Class("posix") != "shm" {
		t.Error("unix sockets and shared memory are compared with shm, tcp with tcp")
	}
}

func TestVerbsAddress(t *testing.T) {
	for _, addr := range []string{"", "tcp://127.0.0.1:1", "tcp://127.0.0.1:1 zz zz"} {
		if _, err := dialVerbs(t.Context(), Options{Transport: "tcp"}, addr); err == nil {
			t.Errorf("%q is dialled", addr)
		}
	}
}
