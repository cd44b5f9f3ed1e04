package native

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/native/worker"
)

// cut has a nursery's next answer lost: who waits for it hears that the nursery has ended. It gives the worker of that answer.
func cut(t *testing.T, n *nursery) <-chan int {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "relay")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	n.turn <- struct{}{}
	real := n.conn
	n.conn = ends[0]
	n.leave()
	made := make(chan int, 1)
	go func() {
		defer close(made)
		defer real.Close()
		defer ends[1].Close()
		buf, oob := make([]byte, worker.MaxMessage), make([]byte, 4096)
		size, oobSize, _, _, err := ends[1].ReadMsgUnix(buf, oob)
		if err != nil {
			t.Error(err)
			return
		}
		fds, err := unix.ParseSocketControlMessage(oob[:oobSize])
		if err != nil {
			t.Error(err)
			return
		}
		if _, _, err := real.WriteMsgUnix(buf[:size], oob[:oobSize], nil); err != nil {
			t.Error(err)
		}
		for i := range fds {
			rights, _ := unix.ParseUnixRights(&fds[i])
			for _, fd := range rights {
				unix.Close(fd)
			}
		}
		var answer worker.Started
		if size, err = real.Read(buf); err == nil {
			err = json.Unmarshal(buf[:size], &answer)
		}
		if err != nil {
			t.Error(err)
		}
		made <- answer.Pid
	}()
	return made
}

// TestAnswerLost: a worker that was made, but of which the node never heard, is ended with its nursery. Others live on.
func TestAnswerLost(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, load(t, e, abi.Limits{}), "alice")
	other := acquire(t, b)
	defer other.Release()
	made := cut(t, e.nursery)
	place, err := b.Reserve(0)
	if err != nil {
		t.Fatal(err)
	}
	var lost *WorkerError
	if _, err := place.Acquire(t.Context()); !errors.As(err, &lost) {
		t.Errorf("acquired: %v", err)
	}
	if pid := <-made; pid <= 0 || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		t.Errorf("worker %d is still there", pid)
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if st, err := other.Run(order{op: 1}.payload(), nil, &fakeHost{}); err != nil || st != abi.OK {
		t.Errorf("the other worker: %v, %v", st, err)
	}
	if _, st, err := run(t, b, order{op: 1}); err != nil || st != abi.OK {
		t.Errorf("the next worker: %v, %v", st, err)
	}
}

// TestEndWithoutPidfd: a worker for which no descriptor could be had leaves no zombie.
func TestEndWithoutPidfd(t *testing.T) {
	pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{pid: pid, pidfd: -1, scratchFD: -1}
	p.end()
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d is still there: %v", pid, err)
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
}
