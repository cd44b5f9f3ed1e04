package native

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/native/worker"
)

// cut has a nursery's next answer lost: who waits for it hears that the nursery has ended. It gives the blank worker of that answer.
func cut(t *testing.T, n *nursery) <-chan int {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	n.turn <- struct{}{}
	if n.spare != nil {
		n.drop(n.spare)
		n.spare = nil
	}
	real := n.socket
	n.socket = pair[0]
	n.leave()
	made := make(chan int, 1)
	go func() {
		defer close(made)
		defer unix.Close(real)
		defer unix.Close(pair[1])
		buf, oob := make([]byte, 64), make([]byte, 64)
		if _, err := unix.Read(pair[1], buf); err != nil {
			t.Error(err)
			return
		}
		if err := unix.Sendmsg(real, buf[:1], nil, nil, 0); err != nil {
			t.Error(err)
		}
		size, rights, _, _, err := unix.Recvmsg(real, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err != nil {
			t.Error(err)
			return
		}
		b, err := readBlank(buf[:size], oob[:rights])
		if err != nil {
			t.Error(err)
			return
		}
		unix.Close(b.pidfd)
		t.Cleanup(func() { unix.Close(b.socket) }) // it must be ended all the same
		made <- b.pid
	}()
	return made
}

// TestAnswerLost: a blank worker that was made, but of which the node never heard, is ended with its nursery. Others live on.
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

// TestCannotMap: a worker that cannot have its memory says why, and the next one is made as ever.
func TestCannotMap(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, load(t, e, abi.Limits{}), "alice")
	fd := e.code.fd
	whole := worker.Map{Addr: worker.ContextAt, Size: worker.PageBytes}
	for _, c := range []struct {
		what, why string
		m         worker.Map
	}{
		{"an offset within a page", "invalid argument", worker.Map{Addr: worker.PayloadAt, Size: worker.PageBytes, Offset: 1}},
		{"memory that is there", "file exists", worker.Map{Addr: worker.ContextAt, Size: 2 * worker.PageBytes}},
		{"writable code", "invalid argument", worker.Map{Addr: worker.PayloadAt, Size: worker.PageBytes, Write: true, Exec: true}},
		{"no such file", "invalid argument", worker.Map{Addr: worker.PayloadAt, Size: worker.PageBytes, FD: 1}},
	} {
		lost := &process{pidfd: -1, scratchFD: -1, nursery: e.nursery, page: worker.PageOf(make([]byte, worker.PageBytes))}
		start := worker.Start{Maps: []worker.Map{whole, c.m}}
		var err error
		if lost.pid, lost.pidfd, err = e.nursery.request(t.Context(), &start, []int{fd}); err != nil {
			t.Fatal(err)
		}
		lost.page.HandOver() // as a worker that is not ready yet
		var failed *WorkerError
		if err := lost.settle(t.Context(), DefaultStartTime); !errors.As(err, &failed) || !strings.Contains(err.Error(), "could not be mapped: "+c.why) {
			t.Errorf("%s: %v", c.what, err)
		}
		lost.end()
	}
	if _, st, err := run(t, b, order{op: 1}); err != nil || st != abi.OK {
		t.Errorf("the next worker: %v, %v", st, err)
	}
}

// TestWorkerSeesItsOwn: of this machine's files and memory a worker has nothing mapped but what it was made of, and next to nothing of its nursery's.
func TestWorkerSeesItsOwn(t *testing.T) {
	e := newEngine(t, Config{})
	in := acquire(t, bind(t, load(t, e, abi.Limits{}), "alice"))
	defer in.Release()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", in.process.pid))
	if err != nil {
		t.Skip(err) // it is not dumpable: root only
	}
	private := uint64(0)
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var rights string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.Contains(line, "memfd:wherry-") || strings.Contains(line, "[v"):
		default:
			private += to - from
		}
	}
	if private > 256<<10 {
		t.Errorf("%d bytes of it are neither its own nor the kernel's:\n%s", private, maps)
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

// TestCannotExecute: a nursery that is confined, and then cannot execute its program, is none, and says why.
func TestCannotExecute(t *testing.T) {
	e := newEngine(t, Config{})
	n := newNursery(Config{Worker: []string{"/bin/sh", "-c", `printf "{}" >&3; printf '{"Error":"permission denied"}' >&3; read ping <&3`, "sh"}, StartTime: DefaultStartTime, Log: e.config.Log})
	defer n.close()
	var none *WorkerError
	if err := n.probe(); !errors.As(err, &none) || !strings.Contains(err.Error(), "no worker can be forked: permission denied") || n.socket >= 0 {
		t.Errorf("probed: %v", err)
	}
}

// TestBlankIsReady: after a worker was made the next one's process is there before anybody asks for it; one that was killed meanwhile costs nobody a worker.
func TestBlankIsReady(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, load(t, e, abi.Limits{}), "alice")
	for range 3 {
		pid := blankOf(t, e.nursery)
		in := acquire(t, b)
		defer in.Release()
		if in.process.pid != pid {
			t.Errorf("worker %d is not the blank %d", in.process.pid, pid)
		}
	}
	killed := blankOf(t, e.nursery)
	if err := unix.Kill(killed, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = unix.Waitid(unix.P_PID, killed, nil, unix.WEXITED|unix.WNOWAIT, nil)
	if _, st, err := run(t, b, order{op: 1}); err != nil || st != abi.OK {
		t.Errorf("after the blank was killed: %v, %v", st, err)
	}
	if err := unix.Kill(killed, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the killed blank %d is still there: %v", killed, err)
	}
	last := blankOf(t, e.nursery)
	if err := e.Close(); err == nil { // the workers above are running
		t.Error("closed with workers")
	}
	if err := unix.Kill(last, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the blank %d outlives its engine: %v", last, err)
	}
}

// blankOf waits for a nursery's blank.
func blankOf(t *testing.T, n *nursery) (pid int) {
	t.Helper()
	for end := time.Now().Add(DefaultStartTime); pid == 0; time.Sleep(time.Millisecond) {
		n.turn <- struct{}{}
		if n.spare != nil {
			pid = n.spare.pid
		}
		n.leave()
		if time.Now().After(end) {
			t.Fatal("no blank is made")
		}
	}
	return pid
}
