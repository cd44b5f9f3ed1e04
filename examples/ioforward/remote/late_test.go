package remote_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/examples/ioforward/remote"
	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
	"github.com/wherry-fabric/wherry/rpc"
)

// moves is a read or write as a scripted node does it.
type moves func(context.Context, *rpc.Call, wire.IORequest) (uint32, error)

// scriptedNode is a node of one file, of a given size, that reads and writes as a test says.
func scriptedNode(t *testing.T, size int64, read, write moves) (p *rpc.Peer, addr string) {
	t.Helper()
	el := newElement(t, "scripted", nil)
	t.Cleanup(func() { el.Close() })
	p, err := rpc.New(el, rpc.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	calls, o := wire.NewCalls(), rpc.Options{}
	attr := wire.Attr{Ino: 1, Size: size, Mode: 0o644, Nlink: 1}
	nothing := func(context.Context, *rpc.Call, uint64) (none struct{}, err error) { return }
	err = errors.Join(
		calls.Hello.Serve(p, func(context.Context, *rpc.Call, struct{}) (wire.Welcome, error) {
			return wire.Welcome{IOBytes: wire.MaxIOBytes, Calls: 64, LeaseMs: 30_000}, nil
		}, o),
		calls.Open.Serve(p, func(context.Context, *rpc.Call, wire.OpenRequest) (wire.OpenReply, error) {
			return wire.OpenReply{Handle: 1, Attr: attr}, nil
		}, o),
		calls.Close.Serve(p, nothing, o), calls.Sync.Serve(p, nothing, o),
		calls.Read.Serve(p, read, o), calls.Write.Serve(p, write, o))
	if err == nil {
		addr, err = el.Listen(overTCP)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, addr
}

// TestLateTransfers has a node come back to memory that it was told of in calls whose time has run out. The client uses its
// slots for other data by then: what is late must not read that, and not write over it.
func TestLateTransfers(t *testing.T) {
	const chunk, slots = 4096, 4
	lateRead, lateWrite := make(chan *rpc.Bulk, 1), make(chan *rpc.Bulk, 1)
	var reads, writes atomic.Int32
	once := func(count *atomic.Int32, late chan<- *rpc.Bulk) moves {
		return func(ctx context.Context, _ *rpc.Call, req wire.IORequest) (uint32, error) {
			if count.Add(1) == 1 {
				late <- req.Bulk
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return req.Size, nil
		}
	}
	p, addr := scriptedNode(t, 1<<20, once(&reads, lateRead), once(&writes, lateWrite))
	c := newClient(t, addr, remote.Config{IOBytes: chunk, Window: 1, Slots: slots, OpTime: 2 * time.Second}, nil)
	first := mustOpen(t, c, "first", os.O_RDWR)
	first.Write(bytes.Repeat([]byte("1"), chunk)) // it is on its way, and waits beside the read
	if _, err := first.ReadAt(make([]byte, 8), 77*chunk+1); !errors.Is(err, syscall.EIO) {
		t.Errorf("a read that nobody answers: %v", err)
	}
	if err := first.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("a write that nobody answers: %v", err)
	}
	// Each slot has another's data now.
	second := mustOpen(t, c, "second", os.O_WRONLY)
	for range 2 * slots {
		if _, err := second.Write(bytes.Repeat([]byte("2"), chunk)); err != nil {
			t.Fatal(err)
		}
	}
	if err := second.Sync(); err != nil {
		t.Fatal(err)
	}
	if n := int(writes.Load()); n <= slots {
		t.Fatalf("%d writes do not come to each of %d slots", n, slots)
	}
	got := make([]byte, chunk)
	if _, err := p.Pull(t.Context(), <-lateWrite, 0, rpc.Memory{got}); err == nil || bytes.Contains(got, []byte("2")) {
		t.Errorf("a late write finds %q (%v)", got[:8], err)
	}
	if _, err := p.Push(t.Context(), <-lateRead, 0, rpc.Memory{got}); err == nil {
		t.Error("a late read writes into memory that is another's")
	}
}

// TestReadAheadIsOvertaken has a write come while a reader waits for what is being read ahead.
func TestReadAheadIsOvertaken(t *testing.T) {
	const chunk = 4096
	before, after := bytes.Repeat([]byte("1"), chunk), bytes.Repeat([]byte("2"), chunk)
	asked, release := make(chan struct{}), make(chan struct{})
	var reads atomic.Int32
	push := func(ctx context.Context, c *rpc.Call, req wire.IORequest) (uint32, error) {
		data := after
		if reads.Add(1) == 1 {
			data = before
			close(asked)
			<-release
		}
		n, err := c.Push(ctx, req.Bulk, 0, rpc.Memory{data[:req.Size]})
		return uint32(n), err
	}
	write := func(_ context.Context, _ *rpc.Call, req wire.IORequest) (uint32, error) { return req.Size, nil }
	_, addr := scriptedNode(t, chunk, push, write)
	c := newClient(t, addr, remote.Config{IOBytes: chunk, Window: 1, OpTime: 30 * time.Second}, nil)
	reader, writer := mustOpen(t, c, "f", os.O_RDONLY), mustOpen(t, c, "f", os.O_WRONLY)
	got, done := make([]byte, chunk), make(chan error, 1)
	go func() {
		_, err := reader.ReadAt(got, 0)
		done <- err
	}()
	<-asked
	_, err := writer.WriteAt(after, 0)
	if err == nil {
		err = writer.Flush(t.Context())
	}
	close(release)
	if err := errors.Join(err, <-done); err != nil || !bytes.Equal(got, after) {
		t.Errorf("the reader has %q of what was %q when it was done: %v", got[:8], after[:8], err)
	}
}
