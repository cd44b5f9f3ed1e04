package excache

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/sockdir"
	"github.com/wherry-fabric/wherry/internal/uffd"
	"github.com/wherry-fabric/wherry/pool/excache/shim"
)

const (
	// socketVariable tells the shim where the daemon listens, as window.c has it.
	socketVariable = "WHERRY_RUN"
	// shimDescriptor is where a program has the shim: high, for shells use the low ones; below every limit of open files.
	shimDescriptor = 199
	// acceptPause is between attempts to accept a connection where the system lacks something.
	acceptPause = 20 * time.Millisecond
	// crowdedTime is between two lines that say that there are no descriptors.
	crowdedTime = 10 * time.Second
	// endTime is what processes get that the program left behind, until the kernel has ended them.
	endTime = 5 * time.Second
)

// Program is what Run starts.
type Program struct {
	Args    []string // Args[0] is looked up in PATH
	Env     []string
	Preload []string // libraries besides the shim, by path
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Signals <-chan os.Signal // passed on to the program
}

// Outcome is how a program ended.
type Outcome struct {
	// Code is its exit code, 128 and the signal's number if one killed it.
	Code int
	// Left is how many processes the program left behind; they ended with the cache.
	Left  int
	Stats Stats
}

// Run starts a program whose memory config's store keeps, and waits until it ends. An error means that it was not started.
func Run(config Config, p Program) (Outcome, error) {
	path, err := exec.LookPath(p.Args[0])
	if err != nil {
		return Outcome{}, err
	}
	if err := Check(path); err != nil {
		return Outcome{}, err
	}
	if err := Limits(); err != nil {
		return Outcome{}, err
	}
	library, err := libraryFile()
	if err != nil {
		return Outcome{}, err
	}
	defer library.Close()
	cache, err := New(config)
	if err != nil {
		return Outcome{}, err
	}
	l, err := listen(cache)
	if err != nil {
		return Outcome{}, errors.Join(err, cache.Close())
	}
	defer l.close()
	cmd := exec.Command(path, p.Args[1:]...)
	cmd.Args[0] = p.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.In, p.Out, p.Err
	cmd.Env = environment(p.Env, l.path, p.Preload)
	cmd.ExtraFiles = make([]*os.File, shimDescriptor-2)
	cmd.ExtraFiles[shimDescriptor-3] = library
	if err := cmd.Start(); err != nil {
		return Outcome{}, errors.Join(err, cache.Close())
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-p.Signals:
				cmd.Process.Signal(s)
			case <-ended:
				return
			}
		}
	}()
	cmd.Wait() // its state says all
	close(ended)
	out := Outcome{Code: code(cmd.ProcessState)}
	out.Left = l.settle()
	out.Stats = cache.Stats()
	return out, cache.Close()
}

// Limits reports which limit of this process, and so of the program, is below what the shim and the window take.
func Limits() error {
	for _, l := range []struct {
		limit       int
		least, unit uint64
		what, raise string
	}{
		{unix.RLIMIT_NOFILE, shimDescriptor + 1, 1, "open files", "ulimit -n 1024"},
		{unix.RLIMIT_AS, windowBytes, 1 << 20, "MiB of addresses", "ulimit -v unlimited"},
		{unix.RLIMIT_FSIZE, windowBytes, 1 << 20, "MiB for a file, as its window is one, in memory, of which little is ever there", "ulimit -f unlimited"},
	} {
		var has unix.Rlimit
		if err := unix.Getrlimit(l.limit, &has); err == nil && has.Cur < l.least {
			return fmt.Errorf("%w: it takes at least %d %s, and this shell's limit is %d: start wherry run with more (%s)", ErrProgram, l.least/l.unit, l.what, has.Cur/l.unit, l.raise)
		}
	}
	return nil
}

func code(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// environment adds what the loader and the shim look for.
func environment(env []string, socket string, more []string) []string {
	const preload = "LD_PRELOAD="
	library := strings.Join(append([]string{fmt.Sprintf("/proc/self/fd/%d", shimDescriptor)}, more...), ":")
	var out []string
	for _, e := range env {
		switch {
		case strings.HasPrefix(e, preload) && len(e) > len(preload):
			library += ":" + e[len(preload):]
		case !strings.HasPrefix(e, socketVariable+"="):
			out = append(out, e)
		}
	}
	return append(out, preload+library, socketVariable+"="+socket)
}

// libraryFile is the shim as a file that nobody can change.
func libraryFile() (*os.File, error) {
	code := shim.Library()
	if code == nil {
		return nil, fmt.Errorf("%w: wherry has no shim for this processor; amd64 and arm64 have one", ErrProgram)
	}
	fd, err := unix.MemfdCreate("wherry-shim", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("excache: shim: %w", err)
	}
	f := os.NewFile(uintptr(fd), "wherry-shim")
	if _, err := f.Write(code); err != nil {
		f.Close()
		return nil, fmt.Errorf("excache: shim: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		f.Close()
		return nil, fmt.Errorf("excache: shim: %w", err)
	}
	return f, nil
}

// listener takes processes' connections, of this user only.
type listener struct {
	cache   *Cache
	l       *net.UnixListener
	dir     *sockdir.Held
	path    string
	served  sync.WaitGroup
	crowded atomic.Int64 // when it was told last that there are no descriptors, in ns
	spare   int          // a descriptor that is given up to turn a process away where there is no other; -1: it could not be had
}

func listen(c *Cache) (*listener, error) {
	dir, err := sockdir.Hold("wherry-run-")
	if err != nil {
		return nil, err
	}
	l := &listener{cache: c, dir: dir, path: dir.Socket(), spare: -1}
	if l.l, err = net.ListenUnix("unix", &net.UnixAddr{Name: l.path, Net: "unix"}); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	l.reserve() // before there can be a crowd
	l.served.Go(l.accept)
	return l, nil
}

func (l *listener) accept() {
	defer func() { unix.Close(l.spare) }()
	for {
		conn, err := l.l.AcceptUnix()
		switch {
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
			if l.turnAway() {
				l.tell(notServed(err))
			} else {
				time.Sleep(acceptPause)
			}
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			l.tell(notServed(err))
			time.Sleep(acceptPause)
		default:
			l.served.Go(func() {
				if err := l.cache.Serve(conn); err != nil {
					l.tell(err)
				}
			})
		}
	}
}

// tell tells why a process is not served. Those that fork in a loop while there are no descriptors would all be told of.
func (l *listener) tell(err error) {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		if now, last := time.Now().UnixNano(), l.crowded.Load(); last != 0 && now-last < int64(crowdedTime) || !l.crowded.CompareAndSwap(last, now) {
			return
		}
	}
	l.cache.tell(err)
}

// turnAway ends the connection of the process that waits longest to be accepted, if one does: it would wait for ever, within a fork. The kernel has an accept
// fail for want of a descriptor also where no process waits.
func (l *listener) turnAway() (turned bool) {
	if l.spare >= 0 {
		unix.Close(l.spare)
		l.spare = -1
	}
	if raw, err := l.l.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			if conn, _, err := unix.Accept4(int(fd), unix.SOCK_CLOEXEC); err == nil {
				turned = true
				unix.Close(conn)
			}
		})
	}
	l.reserve()
	return turned
}

func (l *listener) reserve() {
	if fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC); err == nil {
		l.spare = fd
	}
}

func (l *listener) close() {
	l.l.Close()
	l.cache.Close()
	l.served.Wait()
	l.dir.Remove()
}

// settle waits until the sessions of processes that have ended are over, and counts what else the program left.
func (l *listener) settle() int {
	for until := time.Now().Add(endTime); time.Now().Before(until) && l.cache.mourns(); {
		time.Sleep(time.Millisecond)
	}
	return l.cache.live()
}

// mourns reports whether there is a session whose process has ended.
func (c *Cache) mourns() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.sessions {
		if s.follow && s.pid > 0 && unix.Kill(s.pid, 0) == unix.ESRCH || s.base != 0 && s.gone() {
			return true
		}
	}
	return false
}

// gone reports whether the process that said hello has ended, wherever it is: its memory is gone.
func (s *session) gone() bool {
	const lowest = 64 << 10 // nothing of ours is there
	_, err := s.faults.Continue(lowest, PageBytes, false)
	return err == unix.ESRCH
}

// Check reports why a program cannot be given remote memory: nothing can be preloaded into it.
func Check(path string) error {
	if err := uffd.Probe(); err != nil {
		return fmt.Errorf("%w: %w", ErrProgram, err)
	}
	for range 4 { // scripts of scripts end soon: the kernel follows so many
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 || capable(path) {
			return fmt.Errorf("%w: %s runs with more rights than you (set-user-id, set-group-id or file capabilities), so its loader ignores preloaded libraries; run a copy without them, as a user that has the rights", ErrProgram, path)
		}
		interpreter, err := script(path)
		if err != nil {
			return err
		}
		if interpreter == "" {
			return dynamic(path)
		}
		path = interpreter
	}
	return fmt.Errorf("%w: %s is a script of scripts without end", ErrProgram, path)
}

func capable(path string) bool {
	n, err := unix.Getxattr(path, "security.capability", nil)
	return err == nil && n > 0
}

// script is the interpreter that a script's first line names; "": it is no script.
func script(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 256)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return "", err
	}
	line, _, _ := strings.Cut(string(b[:n]), "\n")
	rest, ok := strings.CutPrefix(line, "#!")
	if fields := strings.Fields(rest); ok && len(fields) > 0 {
		return fields[0], nil
	}
	return "", nil
}

func dynamic(path string) error {
	if err := foreign(path); err != nil {
		return err
	}
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return nil
		}
	}
	return fmt.Errorf("%w: %s is linked statically, so no library can be preloaded into it; link it dynamically (Go: with cgo; Rust: not for musl), or run it where there is memory enough", ErrProgram, path)
}
