package remote_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/examples/ioforward/ionode"
	"github.com/wherry-fabric/wherry/examples/ioforward/remote"
	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/rpc"
)

// stopsAt makes the test binary a client of the node at that address, which stands still in the midst of its writes.
const stopsAt = "IOFORWARD_TEST_STOPS_AT"

func TestMain(m *testing.M) {
	if addr := os.Getenv(stopsAt); addr != "" {
		if err := standStill(addr); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	stoppedWrites = 64 // as many calls as the node runs for one client
	stoppedFile   = "of the one that stands still"
)

// standStill asks the node to take as much as it can from here, and stops this process.
func standStill(addr string) error {
	transport, err := tcp.New(tcp.Config{})
	if err != nil {
		return err
	}
	// Nothing is answered but while a call is waited for: not one of the node's Gets.
	el, err := fabric.New(fabric.Config{Name: "stops", Transports: []fabric.Transport{transport}, Manual: true})
	if err != nil {
		return err
	}
	p, err := rpc.New(el, rpc.Config{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ep, err := el.Dial(ctx, addr)
	if err != nil {
		return err
	}
	calls := wire.NewCalls()
	opened, err := calls.Open.Call(ctx, p, ep, wire.OpenRequest{Path: stoppedFile, Flags: wire.Write | wire.Create, Perm: 0o644})
	if err != nil {
		return err
	}
	seg, err := el.NewSegment(wire.MaxIOBytes, fabric.Writable)
	if err != nil {
		return err
	}
	bulk, err := p.Expose(fabric.RightRead, rpc.BulkOptions{}, rpc.Span{Segment: seg, Size: wire.MaxIOBytes})
	if err != nil {
		return err
	}
	for i := range stoppedWrites {
		req := wire.IORequest{Handle: opened.Handle, Offset: uint64(i) * wire.MaxIOBytes, Size: wire.MaxIOBytes, Bulk: bulk}
		if _, err := calls.Write.Start(ctx, p, ep, req); err != nil {
			return err
		}
	}
	if err := unix.Kill(unix.Getpid(), unix.SIGSTOP); err != nil { // another thread may be the one that hears of it first
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestStoppedClient has a process stop while the node wants to take 64 writes from it. Others read and write meanwhile.
func TestStoppedClient(t *testing.T) {
	s := newStation(t, overTCP, ionode.Config{Dir: t.TempDir()}, nil)
	share := 8 // a quarter of the node's 32
	for i := range 2 {
		if i == 1 { // by its own figures
			s.stop()
			share, s.cfg.Limits = 2, ionode.Limits{Buffers: 3, BuffersPerClient: 2}
			s.start(overTCP)
		}
		stopped := exec.Command(os.Args[0])
		stopped.Env = append(os.Environ(), stopsAt+"="+s.addr)
		stopped.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		stopped.Stderr = os.Stderr
		if err := stopped.Start(); err != nil {
			t.Fatal(err)
		}
		defer stopped.Wait()
		defer stopped.Process.Kill()
		if err := unix.Waitid(unix.P_PID, stopped.Process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the node waits for the stopped client's data", func() bool { return s.node.Stats().Moving >= int64(share) })
		c := newClient(t, s.addr, remote.Config{OpTime: 5 * time.Second}, nil)
		data := randomBytes(uint64(i), 4<<20)
		if err := fillFile(c, "f", data); err != nil {
			t.Fatalf("a write meanwhile: %v", err)
		}
		if got, err := fs.ReadFile(c.FS(), "f"); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("a read meanwhile: %d bytes, %v", len(got), err)
		}
		eventually(t, "the stopped client has no more than its share", func() bool { return s.node.Stats().Moving <= int64(share) })
		stopped.Process.Kill()
		eventually(t, "what the stopped client had is free", func() bool { return s.node.Stats().Moving == 0 })
	}
}
