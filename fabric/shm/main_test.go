package shm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/sockdir"
)

// helperEnv names the helper that a re-executed test binary is to be.
const helperEnv = "WHERRY_SHM_TEST_HELPER"

// patience bounds every wait in the tests.
const patience = time.Minute

func TestMain(m *testing.M) {
	if name := os.Getenv(helperEnv); name != "" {
		h, ok := helpers()[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "no helper %q\n", name)
			os.Exit(2)
		}
		if err := h(os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "helper %s: %v\n", name, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := sockdir.Shorten(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// child is the test binary run again as a helper.
type child struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func spawn(tb testing.TB, helper string, args ...string) *child {
	tb.Helper()
	c := exec.Command("/proc/self/exe", args...)
	c.Env = append(os.Environ(), helperEnv+"="+helper)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	must(tb, err)
	out, err := c.StdoutPipe()
	must(tb, err)
	must(tb, c.Start())
	tb.Cleanup(func() {
		in.Close()
		c.Process.Kill()
		c.Wait()
	})
	return &child{c, in, bufio.NewScanner(out)}
}

// line is the next line that the helper prints.
func (c *child) line(tb testing.TB) string {
	tb.Helper()
	if !c.out.Scan() {
		tb.Fatalf("helper ended without a line: %v", c.out.Err())
	}
	return c.out.Text()
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func pin(cpu int) {
	runtime.LockOSThread()
	var s unix.CPUSet
	s.Set(cpu)
	if err := unix.SchedSetaffinity(0, &s); err != nil {
		fmt.Fprintln(os.Stderr, "pin:", err)
	}
}

// recorder is a Receiver made of functions; the zero value counts.
type recorder struct {
	frames, writable int
	frame            func(id fabric.FrameID, body []byte) error
	onWritable       func()
	fd               func(tag uint64, fd int)
	lost             error
	link             fabric.Link
}

func (r *recorder) Frame(id fabric.FrameID, body []byte) error {
	r.frames++
	if r.frame != nil {
		return r.frame(id, body)
	}
	return nil
}

func (r *recorder) Place(fabric.FrameID, []byte, int) ([]byte, error) {
	panic("shm never asks for a place")
}

func (r *recorder) Placed(fabric.FrameID, []byte, int) error { panic("shm never places") }

func (r *recorder) Writable() {
	r.writable++
	if r.onWritable != nil {
		r.onWritable()
	}
}

func (r *recorder) Lost(err error) {
	if r.lost != nil {
		panic("Lost twice")
	}
	r.lost = err
}

func (r *recorder) FD(tag uint64, fd int) {
	if r.fd == nil {
		unix.Close(fd)
		return
	}
	r.fd(tag, fd)
}

// never is a Turn that does not end.
var never fabric.Turn

var names atomic.Int64

// uniqueName is an abstract address.
func uniqueName() string { return fmt.Sprintf("@wherry-shm-%d-%d", os.Getpid(), names.Add(1)) }

func newTransport(tb testing.TB, cfg Config) *Transport {
	tb.Helper()
	t, err := New(cfg)
	must(tb, err)
	tb.Cleanup(func() { t.Close() })
	return t
}

type started struct {
	l   *link
	err error
}

// listen starts every connection with the receiver that next returns.
func listen(t *Transport, addr string, next func() fabric.Receiver) (<-chan started, error) {
	ch := make(chan started, 64)
	_, err := t.Listen(addr, func(p fabric.Pending) {
		l, err := p.Start(next(), false)
		s := started{err: err}
		if err == nil {
			s.l = l.(*link)
		}
		ch <- s
	})
	return ch, err
}

// dial connects t to addr and starts the link.
func dial(t *Transport, addr string, r fabric.Receiver) (*link, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		p, err := t.Dial(ctx, addr)
		if err != nil {
			if ctx.Err() == nil && strings.Contains(err.Error(), "nobody listens") {
				time.Sleep(time.Millisecond)
				continue
			}
			return nil, err
		}
		l, err := p.Start(r, true)
		if err != nil {
			return nil, err
		}
		return l.(*link), nil
	}
}

// end is one end of a link within the test's process.
type end struct {
	t *Transport
	r *recorder
	l *link
}

func (e *end) poll() int { return e.t.Poll(64, never) }

// pair links two transports in this process.
func pair(tb testing.TB, cfg Config) (a, b *end) {
	tb.Helper()
	a = &end{t: newTransport(tb, cfg), r: &recorder{}}
	b = &end{t: newTransport(tb, cfg), r: &recorder{}}
	join(tb, a, b)
	return a, b
}

// join links b to a.
func join(tb testing.TB, a, b *end) {
	tb.Helper()
	addr := uniqueName()
	ch, err := listen(a.t, addr, func() fabric.Receiver { return a.r })
	must(tb, err)
	b.l, err = dial(b.t, addr, b.r)
	must(tb, err)
	s := <-ch
	must(tb, s.err)
	a.l, a.r.link, b.r.link = s.l, s.l, b.l
}

// until polls the transports until cond holds.
func until(tb testing.TB, what string, cond func() bool, ts ...*Transport) {
	tb.Helper()
	end := time.Now().Add(patience)
	for !cond() {
		for _, t := range ts {
			if t.Poll(64, never) == 0 {
				runtime.Gosched()
			}
		}
		if time.Now().After(end) {
			tb.Fatalf("waited %v for %s", patience, what)
		}
	}
}

func openFDs(tb testing.TB) int {
	tb.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	must(tb, err)
	return len(d)
}
