package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/inject/native/worker"
	"github.com/wherry-fabric/wherry/internal/child"
)

// maxAnswer is more than a nursery says at once.
const maxAnswer = 4096

// nursery is the process that makes workers. It is started again after it has failed.
type nursery struct {
	command []string
	timeout time.Duration
	starts  chan *exec.Cmd // to the goroutine that starts it
	started chan error
	stopped chan struct{}
	warn    func(note string)

	turn   chan struct{} // has room for whoever makes the one request at a time, and what follows is theirs
	socket int           // -1: there is no process
	cmd    *exec.Cmd
	stderr *child.Text
	closed bool

	made sync.Map // process ids of the workers that the node has heard of and not ended
}

func newNursery(c Config) *nursery {
	n := &nursery{command: c.Worker, timeout: c.StartTime, starts: make(chan *exec.Cmd), started: make(chan error), stopped: make(chan struct{}), turn: make(chan struct{}, 1), socket: -1,
		warn: func(note string) { c.Log.Info("native: workers are confined as far as this kernel can", "lacks", note) }}
	go n.start()
	return n
}

// start starts processes. Workers die with the thread that started their nursery (PR_SET_PDEATHSIG), so that is one which
// nobody else uses, and which lives as long as the engine.
func (n *nursery) start() {
	defer close(n.stopped)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // the thread goes on, if the engine is closed while workers run
	for cmd := range n.starts {
		n.started <- cmd.Start()
	}
}

// probe starts the process, if there is none, and says why there can be no workers.
func (n *nursery) probe() error {
	n.turn <- struct{}{}
	defer n.leave()
	return n.ready()
}

// ready makes sure that there is a process that listens. It is the caller's turn.
func (n *nursery) ready() error {
	if n.closed {
		return ErrClosed
	}
	if n.socket >= 0 {
		return nil
	}
	if os.Args[len(os.Args)-1] == worker.Argument { // or each would start the next
		return &WorkerError{errors.New("this process was to become a nursery itself, but its main did not call native.Main first of all")}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return &WorkerError{err}
	}
	theirs := os.NewFile(uintptr(pair[1]), "nursery")
	if err := patient(pair[0], n.timeout); err != nil {
		theirs.Close()
		unix.Close(pair[0])
		return &WorkerError{err}
	}
	n.socket, n.stderr = pair[0], &child.Text{}
	args := append(append([]string(nil), n.command[1:]...), worker.Argument)
	n.cmd = exec.Command(n.command[0], args...)
	n.cmd.ExtraFiles = []*os.File{theirs}
	n.cmd.Env = []string{"GOMAXPROCS=2"} // nothing of this process's, which may hold secrets
	n.cmd.Stderr = n.stderr
	n.cmd.WaitDelay = time.Second
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	n.starts <- n.cmd
	err = <-n.started
	theirs.Close() // so that the process's end is heard
	if err != nil {
		n.cmd = nil
		n.lose()
		return &WorkerError{fmt.Errorf("start %v: %w", n.command, err)}
	}
	var hello worker.Started
	if err := n.hear(func(b []byte) error { return json.Unmarshal(b, &hello) }); err != nil {
		return err
	}
	if hello.Error != "" {
		n.lose()
		return &WorkerError{errors.New(hello.Error)}
	}
	if hello.Note != "" {
		n.warn(hello.Note)
	}
	return n.ping()
}

// ping makes sure that the process has become what answers requests: it said so before it tried. It is the caller's turn.
func (n *nursery) ping() error {
	_ = unix.Sendmsg(n.socket, worker.Ping(), nil, nil, unix.MSG_NOSIGNAL) // if it has ended, what it said is heard all the same
	var refused error
	if err := n.hear(func(b []byte) error { _, refused = worker.Answer(b); return nil }); err != nil {
		return err
	}
	if !errors.Is(refused, unix.EINVAL) {
		n.lose()
		return &WorkerError{fmt.Errorf("the nursery does not run: %w", refused)}
	}
	return nil
}

// patient has a socket's calls end after a time. They block a thread meanwhile: an answer takes less time than it takes the runtime's poller
// to have the goroutine go on.
func patient(socket int, limit time.Duration) error {
	tv := unix.NsecToTimeval(int64(limit))
	err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	if err == nil {
		err = unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
	}
	return err
}

// hear waits for the process's answer; if none comes that read understands, it gives the process up. It is the caller's turn.
func (n *nursery) hear(read func([]byte) error) error {
	var buf [maxAnswer]byte
	size, err := unix.Read(n.socket, buf[:])
	for errors.Is(err, unix.EINTR) {
		size, err = unix.Read(n.socket, buf[:])
	}
	switch {
	case errors.Is(err, unix.EAGAIN):
		err = fmt.Errorf("%w after %v", os.ErrDeadlineExceeded, n.timeout)
	case err == nil && size == 0:
		err = io.EOF
	case err == nil:
		err = read(buf[:size])
	}
	if err == nil {
		return nil
	}
	n.lose()
	if said := n.stderr.String(); said != "" {
		err = errors.New(said)
	}
	return &WorkerError{fmt.Errorf("%v answered nothing: %w; does it call native.Main first of all?", n.command, err)}
}

// lose ends the process. It is the caller's turn.
func (n *nursery) lose() {
	unix.Close(n.socket)
	n.socket = -1
	if n.cmd != nil {
		_ = n.cmd.Process.Kill() // it may have ended already
		_ = n.cmd.Wait()         // by that signal, or as it said
		n.cmd = nil
	}
}

// leave ends a turn.
func (n *nursery) leave() { <-n.turn }

// request has the process make a worker of what start says, and returns its process id. While others' requests are
// before it, it waits as long as ctx says.
func (n *nursery) request(ctx context.Context, start *worker.Start, fds []int) (pid int, err error) {
	select {
	case n.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, &WorkerError{fmt.Errorf("it waited for others' to start: %w", ctx.Err())}
	}
	defer n.leave()
	message, err := start.Encode()
	if err != nil {
		return 0, &WorkerError{err}
	}
	for try := 0; ; try++ { // it may have been killed since it was last asked
		if err := n.ready(); err != nil {
			return 0, err
		}
		if err = unix.Sendmsg(n.socket, message, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL); err == nil {
			break
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		n.lose()
		if try > 0 {
			return 0, &WorkerError{err}
		}
	}
	var refused error
	group := n.cmd.Process.Pid
	if err := n.hear(func(b []byte) error { pid, refused = worker.Answer(b); return nil }); err != nil {
		return 0, errors.Join(err, n.endLost(group))
	}
	if refused != nil {
		return 0, &WorkerError{refused}
	}
	n.made.Store(pid, nil)
	return pid, nil
}

func (n *nursery) close() error {
	n.turn <- struct{}{}
	defer n.leave()
	if n.closed {
		return nil
	}
	n.closed = true
	if n.socket >= 0 {
		n.lose()
	}
	close(n.starts)
	<-n.stopped
	return nil
}
