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

const (
	// maxAnswer is more than a nursery says at once.
	maxAnswer = 4096
	// spareAfter is when the next blank is made after one was taken: once the run that took it has had the processor. Of a first use a fork is a fifth.
	spareAfter = 2 * time.Millisecond
)

// nursery is the process that makes workers. It is started again after it has failed. One blank worker is kept ready; several that are wanted
// at once are made as they are asked for.
type nursery struct {
	command []string
	timeout time.Duration
	starts  chan *exec.Cmd // to the goroutine that starts it
	started chan error
	stopped chan struct{}
	warn    func(note string)

	turn   chan struct{} // has room for one: its sender makes the one request at a time, and owns the fields below meanwhile
	socket int           // -1: there is no process
	cmd    *exec.Cmd
	stderr *child.Text
	spare  *blank // nil: there is none
	next   *time.Timer
	closed bool

	made sync.Map // process ids of the workers that the node has heard of and not ended
}

// blank is a worker that has not heard yet what it is to have in its memory. Its pidfd is opened now, while nobody waits for it.
type blank struct{ pid, pidfd, socket int }

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
	if err := n.hear(func(b, _ []byte) error { return json.Unmarshal(b, &hello) }); err != nil {
		return err
	}
	if hello.Error != "" {
		n.lose()
		return &WorkerError{errors.New(hello.Error)}
	}
	if hello.Note != "" {
		n.warn(hello.Note)
	}
	// That it makes a blank shows that it has become what it said it would, before it tried.
	if n.spare == nil {
		n.spare, err = n.fork()
	}
	return err
}

// fork has the process make a blank. It is the caller's turn.
func (n *nursery) fork() (*blank, error) {
	gone := unix.Sendmsg(n.socket, []byte{0}, nil, nil, unix.MSG_NOSIGNAL) // what it said before it ended is heard all the same
	group := n.cmd.Process.Pid
	var made *blank
	var refused error
	err := n.hear(func(b, oob []byte) error {
		made, refused = readBlank(b, oob)
		return nil
	})
	switch {
	case err != nil:
		return nil, errors.Join(err, gone, n.endLost(group))
	case refused != nil:
		n.lose()
		return nil, &WorkerError{fmt.Errorf("no worker can be forked: %w", refused)}
	}
	n.made.Store(made.pid, nil)
	return made, nil
}

// readBlank reads a nursery's answer.
func readBlank(b, oob []byte) (*blank, error) {
	var fds []int
	if messages, err := unix.ParseSocketControlMessage(oob); err == nil && len(messages) == 1 {
		fds, _ = unix.ParseUnixRights(&messages[0]) // else there are none
	}
	pid, err := worker.Answer(b)
	if err == nil && len(fds) != 1 {
		err = fmt.Errorf("%d descriptors came with it, want one", len(fds))
	}
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, err
	}
	pidfd, err := unix.PidfdOpen(pid, 0) // it is not waited for yet, so no other process has its number
	if err != nil {
		unix.Close(fds[0])
		endChild(pid)
		return nil, fmt.Errorf("pidfd_open: %w", err)
	}
	return &blank{pid, pidfd, fds[0]}, nil
}

// drop ends a blank that is of no use.
func (n *nursery) drop(b *blank) {
	unix.Close(b.socket)
	unix.Close(b.pidfd)
	n.made.Delete(b.pid)
	endChild(b.pid)
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
func (n *nursery) hear(read func(b, oob []byte) error) error {
	var buf [maxAnswer]byte
	var oob [64]byte // one descriptor
	size, rights, _, _, err := unix.Recvmsg(n.socket, buf[:], oob[:], unix.MSG_CMSG_CLOEXEC)
	for errors.Is(err, unix.EINTR) {
		size, rights, _, _, err = unix.Recvmsg(n.socket, buf[:], oob[:], unix.MSG_CMSG_CLOEXEC)
	}
	switch {
	case errors.Is(err, unix.EAGAIN):
		err = fmt.Errorf("%w after %v", os.ErrDeadlineExceeded, n.timeout)
	case err == nil && size == 0:
		err = io.EOF
	case err == nil:
		err = read(buf[:size], oob[:rights])
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

// request makes a worker of a blank, of what start says, and returns its process. While others' requests are
// before it, it waits as long as ctx says.
func (n *nursery) request(ctx context.Context, start *worker.Start, fds []int) (pid, pidfd int, err error) {
	message, err := start.Encode()
	if err != nil {
		return -1, -1, &WorkerError{err}
	}
	select {
	case n.turn <- struct{}{}:
	case <-ctx.Done():
		return -1, -1, &WorkerError{fmt.Errorf("it waited for others' to start: %w", ctx.Err())}
	}
	defer n.leave()
	for try := 0; ; try++ { // the blank may have been killed since it was made
		if err := n.fill(); err != nil {
			return -1, -1, err
		}
		b := n.spare
		n.spare = nil
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Sendmsg(b.socket, message, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
		}
		if err == nil {
			unix.Close(b.socket)
			n.fillSoon()
			return b.pid, b.pidfd, nil
		}
		n.drop(b)
		if try > 0 {
			return -1, -1, &WorkerError{err}
		}
	}
}

// fill makes sure that there is a blank. It is the caller's turn.
func (n *nursery) fill() error {
	for try := 0; n.spare == nil; try++ { // the nursery may have been killed since it was last asked
		err := n.ready()
		if err == nil && n.spare == nil {
			n.spare, err = n.fork()
		}
		if err != nil && (try > 0 || !errors.Is(err, unix.EPIPE)) {
			return err
		}
	}
	return nil
}

// fillSoon has the next blank made. It is the caller's turn.
func (n *nursery) fillSoon() {
	if n.next != nil {
		n.next.Reset(spareAfter)
		return
	}
	n.next = time.AfterFunc(spareAfter, func() {
		n.turn <- struct{}{}
		defer n.leave()
		if !n.closed {
			_ = n.fill() // who needs a worker next hears why there is none
		}
	})
}

func (n *nursery) close() error {
	n.turn <- struct{}{}
	defer n.leave()
	if n.closed {
		return nil
	}
	n.closed = true
	if n.next != nil {
		n.next.Stop() // where it is too late for that, it finds the nursery closed
	}
	if n.spare != nil {
		n.drop(n.spare)
		n.spare = nil
	}
	if n.socket >= 0 {
		n.lose()
	}
	close(n.starts)
	<-n.stopped
	return nil
}
