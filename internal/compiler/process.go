package compiler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/cputime"
)

const (
	// startTime is how long a compiler may take to say what it is: loading libLLVM takes 20 ms, from a cold disk 2 s.
	startTime = 30 * time.Second
	// patience is how many times its deadline a request may take on the clock, where others have the processors.
	patience = 10
	// maxLastWords bounds what is kept of a compiler's standard error: its end says why it died.
	maxLastWords = 4 << 10
)

// process is a compiler that runs. One goroutine at a time uses it.
type process struct {
	cmd    *exec.Cmd
	socket net.Conn
	words  lastWords
	hello  Hello
	memory *os.File // what the kernel says of it (/proc/PID/statm): read after each request, while the caller waits
	served int
	signer string // of the code that it has seen; with served 0 it has seen none
	ended  sync.Once

	// While it is idle, under Pool.mu.
	principal string        // whom it compiled for last
	charged   time.Duration // of its processor time, the part that was charged to principals
	next      *time.Timer   // of the looks at it
}

// start starts a compiler and hears what it is. The context's end ends the wait.
func start(ctx context.Context, command []string, memoryBytes uint64) (*process, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("compiler: socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "compiler"), os.NewFile(uintptr(pair[1]), "compiler")
	defer ours.Close()
	defer theirs.Close()
	p := &process{cmd: exec.Command(command[0], command[1:]...)}
	p.cmd.Env = []string{} // nothing of the environment changes what it makes
	p.cmd.Dir = "/"
	p.cmd.Stderr = &p.words
	p.cmd.ExtraFiles = []*os.File{theirs} // as Descriptor
	if p.socket, err = net.FileConn(ours); err != nil {
		return nil, fmt.Errorf("compiler: socket pair: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		p.socket.Close()
		return nil, fmt.Errorf("compiler: %w", err)
	}
	theirs.Close()
	if p.memory, err = os.Open("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/statm"); err != nil {
		return nil, fmt.Errorf("compiler: its memory cannot be watched: %w%s", err, p.end())
	}
	stop := context.AfterFunc(ctx, p.kill)
	err = p.begin(memoryBytes)
	if !stop() {
		p.end()
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s did not start: %w%s", ErrCrashed, command[0], err, p.end())
	}
	return p, nil
}

// begin bounds the process and hears its first message.
func (p *process) begin(memoryBytes uint64) error {
	// What it may write to, twice over: at once the bound would end compiles that the check after each one allows.
	limit := &unix.Rlimit{Cur: 2 * memoryBytes, Max: 2 * memoryBytes}
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_DATA, limit, nil); err != nil {
		return fmt.Errorf("bounding its memory: %w", err)
	}
	if err := p.socket.SetDeadline(time.Now().Add(startTime)); err != nil {
		return err
	}
	if _, err := readMessage(p.socket, &p.hello); err != nil {
		return err
	}
	if p.hello.Version != Version {
		return fmt.Errorf("it speaks version %d of the protocol, this program %d: install both from one build", p.hello.Version, Version)
	}
	return nil
}

// kill ends the process, and whatever waits for it.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.socket.SetDeadline(time.Unix(1, 0))
}

// end ends the process and says how it ended, with what it said last.
func (p *process) end() string {
	var how string
	p.ended.Do(func() {
		p.socket.Close()
		p.memory.Close() // nil, if it could not be opened, has nothing to close
		// One that has crashed is still writing why. A healthy one ends with its socket.
		kill := time.AfterFunc(endTime, func() { p.cmd.Process.Kill() })
		defer kill.Stop()
		_ = p.cmd.Wait()
		how = fmt.Sprintf(" (%v%s)", p.cmd.ProcessState, p.words.reason())
	})
	return how
}

// endTime is how long a process may take to end by itself.
const endTime = time.Second

// alive reports whether the process still runs.
func (p *process) alive() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo == 0
}

// processorTime is what the process has used so far.
func (p *process) processorTime() time.Duration {
	used, _ := cputime.Process(p.cmd.Process.Pid) // 0: it has just ended
	return used
}

// residentBytes is how much memory it holds.
func (p *process) residentBytes() uint64 {
	var b [128]byte
	n, _ := p.memory.ReadAt(b[:], 0) // less than all of b is its end; nothing: the process is gone
	fields := strings.Fields(string(b[:n]))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[1], 10, 64)
	return pages * uint64(os.Getpagesize())
}

// ask has one request answered. After an error the process is of no use.
func (p *process) ask(ctx context.Context, r Request, deadline time.Duration) (Answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer p.watch(cancel, deadline)()
	stop := context.AfterFunc(ctx, p.kill)
	defer stop()
	var a Answer
	err := p.socket.SetDeadline(time.Time{})
	if err == nil {
		err = writeMessage(p.socket, r, r.Code)
	}
	if err == nil {
		a.Object, err = readMessage(p.socket, &a)
	}
	p.served++
	if ctx.Err() != nil {
		return Answer{}, context.Cause(ctx)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w%s", ErrCrashed, err, p.end())
	}
	return a, nil
}

// watch ends a request that takes longer than its deadline in processor time, or patience times that on the clock. What it
// returns ends the watch.
func (p *process) watch(cancel context.CancelCauseFunc, deadline time.Duration) (end func()) {
	done := make(chan struct{})
	var over sync.WaitGroup
	begin, before := time.Now(), p.processorTime()
	over.Go(func() {
		t := time.NewTimer(deadline)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
			}
			used, passed := p.processorTime()-before, time.Since(begin)
			if used >= deadline || passed >= patience*deadline {
				cancel(fmt.Errorf("%w: more than %v of processor time, or %v on the clock", ErrDeadline, deadline, patience*deadline))
				return
			}
			t.Reset(max(min(deadline-used, patience*deadline-passed), time.Millisecond))
		}
	})
	return func() { close(done); over.Wait() }
}

// lastWords keeps the beginning of what is written to it: the reason comes first, then stacks of megabytes.
type lastWords struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if room := maxLastWords - w.b.Len(); room > 0 {
		w.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// reason is the first line.
func (w *lastWords) reason() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	line, _, _ := strings.Cut(strings.TrimSpace(w.b.String()), "\n")
	if line == "" {
		return ""
	}
	return ": " + line
}

// What a Pool's errors are, besides ErrQueueFull and *RefusedError.
var (
	ErrDeadline = errors.New("compiling takes too long")
	ErrCrashed  = errors.New("the compiler crashed")
	ErrClosed   = errors.New("the compilers are being shut down")
)

// RefusedError says what is wrong with code.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }
