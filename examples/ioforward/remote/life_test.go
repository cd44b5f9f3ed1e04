package remote_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/examples/ioforward/ionode"
	"github.com/wherry-fabric/wherry/examples/ioforward/remote"
	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

func mustOpen(t *testing.T, c *remote.Client, name string, flags int) *remote.File {
	t.Helper()
	f, err := c.OpenFile(t.Context(), name, flags, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestNodeRestart checks what a client sees of a node that goes and comes back: EIO
// while it is away, ESTALE for what was open, all else as before.
func TestNodeRestart(t *testing.T) {
	dir := t.TempDir()
	s := newStation(t, apart, ionode.Config{Dir: dir}, nil)
	c := newClient(t, s.addr, remote.Config{OpTime: 5 * time.Second}, nil)
	f := mustOpen(t, c, "f", os.O_RDWR|os.O_CREATE)
	if _, err := f.Write([]byte("before")); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	idle := mustOpen(t, c, "f", os.O_RDONLY)
	s.stop()
	eventually(t, "reads fail with EIO while the node is away", func() bool {
		_, err := idle.ReadAt(make([]byte, 1), 0)
		return errors.Is(err, syscall.EIO)
	})
	if _, err := c.Stat(t.Context(), "f"); !errors.Is(err, syscall.EIO) {
		t.Errorf("stat while the node is away: %v", err)
	}
	s.start(s.addr)
	eventually(t, "the node is found again", func() bool { _, err := c.Stat(t.Context(), "f"); return err == nil })
	if _, err := idle.ReadAt(make([]byte, 1), 0); !errors.Is(err, syscall.ESTALE) {
		t.Errorf("read by an old handle: %v", err)
	}
	f.WriteAt([]byte("after"), 0) // on its way
	if err := f.Sync(); !errors.Is(err, syscall.ESTALE) {
		t.Errorf("a write by an old handle: %v", err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.ESTALE) {
		t.Errorf("the write after one that failed: %v", err)
	}
	if err := f.Close(); !errors.Is(err, syscall.ESTALE) {
		t.Errorf("close after a write that failed: %v", err)
	}
	if err := idle.Close(); !errors.Is(err, syscall.ESTALE) {
		t.Errorf("close of an old handle: %v", err)
	}
	if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	if got, err := fs.ReadFile(c.FS(), "f"); err != nil || string(got) != "before" {
		t.Errorf("the file has %q, %v", got, err)
	}
}

// TestSilentNode: somebody who takes connections at the node's address and says nothing
// costs an open no more than the time of one call.
func TestSilentNode(t *testing.T) {
	s := newStation(t, apart, ionode.Config{Dir: t.TempDir()}, nil)
	c := newClient(t, s.addr, remote.Config{OpTime: 300 * time.Millisecond}, nil)
	s.stop()
	eventually(t, "the node is gone", func() bool { _, err := c.Stat(t.Context(), "."); return err != nil })
	silent, err := net.Listen("tcp", strings.TrimPrefix(s.addr, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for range 3 { // at first the last attempt's error counts
		var took time.Duration
		for try := 0; try < 3 && (try == 0 || took > 3*time.Second); try++ { // a machine with much else to do may be slow for once
			begun := time.Now()
			if _, err := c.OpenFile(t.Context(), "f", os.O_RDONLY, 0); !errors.Is(err, syscall.EIO) {
				t.Errorf("open: %v", err)
			}
			took = time.Since(begun)
		}
		if took > 3*time.Second {
			t.Fatalf("it took %v", took)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

func TestLostClientsHandlesAreFreed(t *testing.T) {
	s := newStation(t, overTCP, ionode.Config{Dir: t.TempDir()}, nil)
	stays := newClient(t, s.addr, remote.Config{}, nil)
	mustOpen(t, stays, "a", os.O_RDWR|os.O_CREATE)
	el := newElement(t, "goes", nil)
	goes, err := remote.New(t.Context(), el, remote.Config{Addr: s.addr})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		mustOpen(t, goes, fmt.Sprint(i), os.O_RDWR|os.O_CREATE)
	}
	if n := s.node.Stats().Handles; n != 11 {
		t.Errorf("%d handles, want 11", n)
	}
	el.Close() // as a process that is killed: nothing is closed before
	goes.Close()
	eventually(t, "its handles are freed, and no others", func() bool { st := s.node.Stats(); return st.Handles == 1 && st.Clients == 1 })
}

// TestLease opens a file as a client that then keeps its connection and says nothing.
func TestLease(t *testing.T) {
	s := newStation(t, overTCP, ionode.Config{Dir: t.TempDir(), Limits: ionode.Limits{Lease: 3 * wire.MinLease}}, nil)
	busy := newClient(t, s.addr, remote.Config{}, nil)
	f := mustOpen(t, busy, "f", os.O_RDWR|os.O_CREATE)
	p, ep := rawPeer(t, s.addr)
	calls := wire.NewCalls()
	reply, err := calls.Open.Call(t.Context(), p, ep, wire.OpenRequest{Path: "f", Flags: wire.Read})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the silent client's lease ends", func() bool { return s.node.Stats().Expired == 1 })
	if _, err := calls.StatOpen.Call(t.Context(), p, ep, reply.Handle); wire.Local(err) != syscall.ESTALE {
		t.Errorf("a handle whose lease ran out: %v", err)
	}
	if _, err := f.Stat(); err != nil {
		t.Errorf("a client that renews its lease: %v", err)
	}
}

// rawPeer calls the node without package remote.
func rawPeer(t *testing.T, addr string) (*rpc.Peer, *fabric.Endpoint) {
	t.Helper()
	el := newElement(t, "raw", nil)
	t.Cleanup(func() { el.Close() })
	p, err := rpc.New(el, rpc.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	ep, err := el.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	return p, ep
}

// TestHostileRequests sends what package remote never would.
func TestHostileRequests(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newStation(t, overTCP, ionode.Config{Dir: dir}, nil)
	p, ep := rawPeer(t, s.addr)
	other, otherEP := rawPeer(t, s.addr)
	calls := wire.NewCalls()
	opened, err := calls.Open.Call(t.Context(), p, ep, wire.OpenRequest{Path: "f", Flags: wire.Read | wire.Write})
	if err != nil {
		t.Fatal(err)
	}
	listed, err := calls.Open.Call(t.Context(), p, ep, wire.OpenRequest{Path: ".", Flags: wire.Read | wire.Directory})
	if err != nil {
		t.Fatal(err)
	}
	bulk := func(p *rpc.Peer, rights fabric.Rights, size uint64) *rpc.Bulk {
		seg, err := p.Element().NewSegment(size, fabric.Writable)
		if err != nil {
			t.Fatal(err)
		}
		b, err := p.Expose(rights, rpc.BulkOptions{Live: true}, rpc.Span{Segment: seg, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	own, readable, theirs := bulk(p, fabric.RightsAll, 4096), bulk(p, fabric.RightRead, 4096), bulk(other, fabric.RightsAll, 4096)
	closed := bulk(p, fabric.RightsAll, 4096)
	closed.Close()
	large := bulk(p, fabric.RightsAll, wire.MaxIOBytes+1)
	cases := map[string]struct {
		req  wire.IORequest
		want syscall.Errno
	}{
		"fine":                 {wire.IORequest{Handle: opened.Handle, Size: 4, Bulk: own}, 0},
		"unknown handle":       {wire.IORequest{Handle: opened.Handle + 1, Size: 4, Bulk: own}, syscall.ESTALE},
		"no handle":            {wire.IORequest{Size: 4, Bulk: own}, syscall.ESTALE},
		"a directory":          {wire.IORequest{Handle: listed.Handle, Size: 4, Bulk: own}, syscall.EISDIR},
		"somebody's memory":    {wire.IORequest{Handle: opened.Handle, Size: 4, Bulk: theirs}, syscall.EINVAL},
		"no memory":            {wire.IORequest{Handle: opened.Handle, Size: 4, Bulk: &rpc.Bulk{}}, syscall.EINVAL},
		"memory taken back":    {wire.IORequest{Handle: opened.Handle, Size: 4, Bulk: closed}, syscall.EIO},
		"read-only memory":     {wire.IORequest{Handle: opened.Handle, Size: 4, Bulk: readable}, syscall.EINVAL},
		"more than the memory": {wire.IORequest{Handle: opened.Handle, Size: 4097, Bulk: own}, syscall.EINVAL},
		"more than the node's": {wire.IORequest{Handle: opened.Handle, Size: wire.MaxIOBytes + 1, Bulk: large}, syscall.EINVAL},
		"far too much":         {wire.IORequest{Handle: opened.Handle, Size: 1 << 31, Bulk: own}, syscall.EINVAL},
		"beyond any file":      {wire.IORequest{Handle: opened.Handle, Size: 4, Offset: 1<<64 - 2, Bulk: own}, syscall.EINVAL},
	}
	for name, c := range cases {
		if _, err := calls.Read.Call(t.Context(), p, ep, c.req); wire.Errno(wire.Local(err)) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := calls.Write.Call(t.Context(), p, ep, cases["more than the node's"].req); wire.Local(err) != syscall.EINVAL {
		t.Errorf("a write of more than the node takes at once: %v", err)
	}
	if _, err := calls.Read.Call(t.Context(), other, otherEP, wire.IORequest{Handle: opened.Handle, Size: 4, Bulk: theirs}); wire.Local(err) != syscall.ESTALE {
		t.Errorf("somebody else's handle: %v", err)
	}
	if _, err := calls.List.Call(t.Context(), p, ep, wire.ListRequest{Handle: opened.Handle}); wire.Local(err) != syscall.ENOTDIR {
		t.Errorf("a file, listed: %v", err)
	}
	if _, err := p.Call(t.Context(), ep, calls.Read.Name(), []byte("garbage")); !errors.Is(err, rpc.ErrRequest) {
		t.Errorf("garbage: %v", err)
	}
	for _, flags := range []wire.Flags{0, wire.Create, wire.Read | wire.Truncate, wire.Read | wire.Exclusive, wire.Directory | wire.Read | wire.Write} {
		if _, err := calls.Open.Call(t.Context(), p, ep, wire.OpenRequest{Path: "f", Flags: flags}); wire.Local(err) != syscall.EINVAL {
			t.Errorf("flags %#x: %v", flags, err)
		}
	}
	if _, err := calls.Set.Call(t.Context(), p, ep, wire.SetRequest{Path: "f", What: wire.SetMode, Mode: fs.ModeSetuid | 0o755}); wire.Local(err) != syscall.EPERM {
		t.Errorf("setuid: %v", err)
	}
	if _, err := calls.Set.Call(t.Context(), p, ep, wire.SetRequest{Path: "f", What: wire.SetSize, Size: 1 << 63}); wire.Local(err) != syscall.EFBIG {
		t.Errorf("a huge size: %v", err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "f")); string(got) != "data" {
		t.Errorf("the file has %q now", got)
	}
}

func TestHandleLimits(t *testing.T) {
	s := newStation(t, overTCP, ionode.Config{Dir: t.TempDir(), Limits: ionode.Limits{Handles: 5, HandlesPerClient: 3}}, nil)
	a, b := newClient(t, s.addr, remote.Config{}, nil), newClient(t, s.addr, remote.Config{}, nil)
	open := func(c *remote.Client, want error) *remote.File {
		t.Helper()
		f, err := c.OpenFile(t.Context(), "f", os.O_RDWR|os.O_CREATE, 0o644)
		if !errors.Is(err, want) {
			t.Errorf("opened with %v, want %v", err, want)
		}
		return f
	}
	var first *remote.File
	for range 3 {
		first = open(a, nil)
	}
	open(a, syscall.EMFILE)
	open(b, nil)
	open(b, nil)
	open(b, syscall.ENFILE)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	open(b, nil)
}

func TestCapabilities(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	auth := func(self string) fabric.Auth {
		return who{self, map[string]cluster.Caps{"reader": cluster.CapRead, "writer": cluster.CapRead | cluster.CapWrite, "runner": cluster.CapInject}}
	}
	s := newStation(t, overTCP, ionode.Config{Dir: dir}, auth("node"))
	reader, writer := newClient(t, s.addr, remote.Config{}, auth("reader")), newClient(t, s.addr, remote.Config{}, auth("writer"))
	if got, err := fs.ReadFile(reader.FS(), "f"); err != nil || string(got) != "data" {
		t.Errorf("the reader read %q, %v", got, err)
	}
	ctx := t.Context()
	_, mkdir := reader.Mkdir(ctx, "d", 0o755)
	_, open := reader.OpenFile(ctx, "f", os.O_RDWR, 0)
	_, create := reader.OpenFile(ctx, "g", os.O_RDONLY|os.O_CREATE, 0o644)
	for what, err := range map[string]error{"mkdir": mkdir, "open": open, "create": create, "remove": reader.Remove(ctx, "f", 0),
		"rename": reader.Rename(ctx, "f", "g"), "truncate": reader.Truncate(ctx, "f", 0)} {
		if !errors.Is(err, syscall.EACCES) {
			t.Errorf("the reader's %s: %v", what, err)
		}
	}
	if _, err := writer.Mkdir(ctx, "d", 0o755); err != nil {
		t.Errorf("the writer's mkdir: %v", err)
	}
	el := newElement(t, "client", auth("runner"))
	defer el.Close()
	if _, err := remote.New(ctx, el, remote.Config{Addr: s.addr}); !errors.Is(err, rpc.ErrDenied) {
		t.Errorf("somebody without read: %v", err)
	}
}

func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newStation(t, overTCP, ionode.Config{Dir: dir, ReadOnly: true}, nil)
	c := newClient(t, s.addr, remote.Config{}, nil)
	if !c.Welcome().ReadOnly {
		t.Error("the node does not say that it is read-only")
	}
	if _, err := c.OpenFile(t.Context(), "f", os.O_WRONLY, 0); !errors.Is(err, syscall.EROFS) {
		t.Errorf("open to write: %v", err)
	}
	if err := c.Remove(t.Context(), "f", 0); !errors.Is(err, syscall.EROFS) {
		t.Errorf("remove: %v", err)
	}
	if got, err := fs.ReadFile(c.FS(), "f"); err != nil || string(got) != "data" {
		t.Errorf("read %q, %v", got, err)
	}
}

// TestTwoClients has one client see what another has flushed.
func TestTwoClients(t *testing.T) {
	s := newStation(t, overTCP, ionode.Config{Dir: t.TempDir()}, nil)
	a, b := newClient(t, s.addr, remote.Config{}, nil), newClient(t, s.addr, remote.Config{Fresh: time.Nanosecond}, nil)
	w := mustOpen(t, a, "f", os.O_RDWR|os.O_CREATE)
	r := mustOpen(t, b, "f", os.O_RDONLY)
	var want []byte
	for i := range 20 {
		data := randomBytes(uint64(i), 100_000)
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		want = append(want, data...)
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if n, err := r.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("after %d writes the other client read %d bytes, %v", i+1, n, err)
		}
	}
	done := make(chan error, 2)
	for i, c := range []*remote.Client{a, b} {
		go func() { done <- fillFile(c, fmt.Sprintf("own-%d", i), randomBytes(uint64(i), 2<<20)) }()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for i, c := range []*remote.Client{b, a} { // each reads the other's
		if got, err := fs.ReadFile(c.FS(), fmt.Sprintf("own-%d", i)); err != nil || !bytes.Equal(got, randomBytes(uint64(i), 2<<20)) {
			t.Errorf("own-%d: %d bytes, %v", i, len(got), err)
		}
	}
}

func fillFile(c *remote.Client, name string, data []byte) error {
	f, err := c.OpenFile(bg, name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
