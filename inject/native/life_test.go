package native

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/native/worker"
	"github.com/wherry-fabric/wherry/internal/share"
)

// TestWorkerKilled: a worker that somebody kills, idle or at work, costs one run, and the next has another.
func TestWorkerKilled(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, load(t, e, abi.Limits{}), "alice")
	in := acquire(t, b)
	h := &fakeHost{stop: func() error { return unix.Kill(in.process.pid, unix.SIGKILL) }}
	_, err := in.Run(order{op: 12}.payload(), nil, h)
	if err == nil || !strings.Contains(err.Error(), "SIGKILL") {
		t.Errorf("killed at work: %v", err)
	}
	in.Release()
	in = acquire(t, b)
	in.Release()
	if err := unix.Kill(in.process.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, b, order{op: 1}); err == nil || !strings.Contains(err.Error(), "SIGKILL") {
		t.Errorf("killed when idle: %v", err)
	}
	in = acquire(t, b)
	h = &fakeHost{stop: func() error { return unix.Kill(in.process.pid, unix.SIGSEGV) }}
	if _, err := in.Run(order{op: 12}.payload(), nil, h); err == nil || !strings.Contains(err.Error(), "SIGSEGV") || !strings.Contains(err.Error(), "another process sent the signal") {
		t.Errorf("sent what a fault sends: %v", err)
	}
	in.Release()
	if _, st, err := run(t, b, order{op: 1}); err != nil || st != abi.OK {
		t.Errorf("the next run: %v, %v", st, err)
	}
}

// TestNurseryKilled: workers live on without their nursery, and so does the blank; the next one has another.
func TestNurseryKilled(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, load(t, e, abi.Limits{}), "alice")
	old := acquire(t, b)
	if err := e.nursery.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = e.nursery.cmd.Process.Wait() // the engine may have waited for it already: either way it is gone
	another, third := acquire(t, b), acquire(t, b)
	for _, in := range []*instance{old, another, third} {
		if st, err := in.Run(order{op: 1}.payload(), nil, &fakeHost{}); err != nil || st != abi.OK {
			t.Errorf("%v, %v", st, err)
		}
		in.Release()
	}
}

// TestNobodyWaitsInVain: while another's request to the nursery hangs, one whose time is over is not waited for.
func TestNobodyWaitsInVain(t *testing.T) {
	e := newEngine(t, Config{})
	place, err := bind(t, load(t, e, abi.Limits{}), "alice").Reserve(0)
	if err != nil {
		t.Fatal(err)
	}
	e.nursery.turn <- struct{}{}
	defer e.nursery.leave()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := place.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestNodeKilled: the workers of a process that is killed die with it, the busy one too.
func TestNodeKilled(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestNodeToBeKilled$", "-test.v")
	cmd.Env = append(os.Environ(), toBeKilled+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(out); len(pids) == 0 && lines.Scan(); {
		if _, rest, ok := strings.Cut(lines.Text(), "workers: "); ok {
			pids = make([]int, 2)
			if _, err := fmt.Sscan(rest, &pids[0], &pids[1]); err != nil {
				t.Error(err)
			}
		}
	}
	var fds []int
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || len(fds) != 2 {
		t.Errorf("killed: %v, with %d workers", err, len(fds))
	}
	for i, fd := range fds {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 20000); n != 1 {
			t.Errorf("worker %d lives on: %v", pids[i], err)
		}
	}
}

const toBeKilled = "WHERRY_TEST_TO_BE_KILLED"

// TestNodeToBeKilled is what TestNodeKilled kills: an idle worker and a busy one.
func TestNodeToBeKilled(t *testing.T) {
	if os.Getenv(toBeKilled) == "" {
		t.Skip("a part of TestNodeKilled, in a process of its own")
	}
	b := bind(t, load(t, newEngine(t, Config{}), abi.Limits{RunTime: time.Minute}), "alice")
	idle, busy := acquire(t, b), acquire(t, b)
	first := true
	_, _ = busy.Run(order{op: 12}.payload(), nil, &fakeHost{stop: func() error {
		if first {
			fmt.Println("workers:", idle.process.pid, busy.process.pid)
			first = false
		}
		return nil
	}})
}

// TestNoNursery: where a command does not become a nursery, the offer says so.
func TestNoNursery(t *testing.T) {
	for _, c := range []struct {
		command []string
		want    string
	}{
		{[]string{"/bin/true"}, "native.Main"},
		{[]string{"/nowhere/wherry"}, "no such file"},
		{[]string{"/bin/sh", "-c", "echo out of order >&2; exit 1"}, "out of order"},
	} {
		e, err := New(Config{Worker: c.command})
		if err != nil {
			t.Fatal(err)
		}
		if why := e.Offers()[0].Why; !strings.Contains(why, c.want) {
			t.Errorf("%v: the offer says %q", c.command, why)
		}
		if _, err := e.Load(t.Context(), abi.Code{Form: "elf", Triple: triple()}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: loaded: %v", c.command, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNotItsOwnNursery: a program that forgets to call Main does not start itself without end.
func TestNotItsOwnNursery(t *testing.T) {
	args := os.Args
	defer func() { os.Args = args }()
	os.Args = []string{"embedding", worker.Argument}
	e, err := New(Config{Worker: []string{"/proc/self/exe", "-test.run=^TestStatics$"}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if why := e.Offers()[0].Why; !strings.Contains(why, "did not call native.Main") {
		t.Errorf("%q", why)
	}
}

// fakeCompiler makes the same object of everything.
type fakeCompiler struct {
	object []byte
	err    error
	got    Request
}

func (c *fakeCompiler) Target() (triple, cpu string, features []string, err error) {
	return worker.Arch + "-unknown-linux-gnu", "cpu", []string{"one"}, c.err
}

func (c *fakeCompiler) Object(_ context.Context, r Request) ([]byte, bool, error) {
	c.got = r
	return c.object, r.Best, nil
}

// TestBitcode: bitcode goes to the compiler, and its object is checked as one that arrives is.
func TestBitcode(t *testing.T) {
	object, err := lab()
	if err != nil {
		t.Fatal(err)
	}
	c := &fakeCompiler{object: object}
	e := newEngine(t, Config{Compiler: c})
	if got := fmt.Sprint(e.Offers()); got != fmt.Sprintf("[llvm-bitcode for %[1]s elf for %[1]s]", triple()) {
		t.Errorf("offers %s", got)
	}
	code := abi.Code{Form: "llvm-bitcode", Triple: triple(), ABI: abi.Version, Bytes: []byte("BC"), Imports: allCalls(), Principal: "alice", Signers: [][]byte{{7}}}
	p, err := e.Load(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if h, _, err := run(t, bind(t, p, "alice"), order{op: 1}); err != nil || !h.replied {
		t.Errorf("%v", err)
	}
	if _, better := p.(abi.Tiered).Tier(); !better || c.got.Best {
		t.Error("the first program is as good as can be")
	}
	code.Best = true
	best, err := e.Load(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	defer best.Close()
	if _, better := best.(abi.Tiered).Tier(); better || !c.got.Best {
		t.Error("the best program can be made better")
	}
	if string(c.got.Bitcode) != "BC" || c.got.Principal != "alice" || c.got.Signer[0] != 7 || len(c.got.Imports) != len(allCalls()) {
		t.Errorf("the compiler got %+v", c.got)
	}
	code.Imports = code.Imports[:3]
	var refused *CodeError
	if _, err := e.Load(t.Context(), code); !errors.As(err, &refused) || !strings.Contains(err.Error(), "wherry_") {
		t.Errorf("an object that calls more than the manifest lists: %v", err)
	}
	for _, c := range []struct {
		code abi.Code
		want string
	}{
		{abi.Code{Form: "wasm32"}, "no form of native code"},
		{abi.Code{Form: "elf", Triple: "m68k-linux-gnu"}, "this machine is"},
		{abi.Code{Form: "elf", Triple: triple(), Imports: []string{"exec"}}, `no host call "exec"`},
		{abi.Code{Form: "elf", Triple: triple(), Bytes: []byte("\x7fELF")}, "no ELF file"},
	} {
		if _, err := e.Load(t.Context(), c.code); !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.code, err, c.want)
		}
	}
	c.err = errors.New("no library")
	if e := newOffers(t, c); e[0].Why != "no library" || e[1].Why != "" {
		t.Errorf("without a compiler's library: %v", e)
	}
}

func newOffers(t *testing.T, c Compiler) []abi.Offer {
	e, err := New(Config{Compiler: c})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return e.Offers()
}

// TestLargeWindow: a window may be larger than all that wasm can address, and lies where it is.
func TestLargeWindow(t *testing.T) {
	const size = 6 << 30
	w := segment(t, size)
	copy(w.Bytes()[size-8:], "the end.")
	b := bind(t, load(t, newEngine(t, Config{}), abi.Limits{}), "alice", abi.Window{FD: w.FD(), Size: size})
	h, _, err := run(t, b, order{op: 20, a: size - 8})
	if err != nil || string(h.reply[16:]) != "the end." {
		t.Errorf("%q, %v", h.reply, err)
	}
}

// TestWindowsRefused: what cannot be mapped for good is no window.
func TestWindowsRefused(t *testing.T) {
	p := load(t, newEngine(t, Config{}), abi.Limits{})
	fd, err := unix.MemfdCreate("loose", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	w := segment(t, 1<<16)
	for _, c := range []struct {
		w    abi.Window
		want string
	}{
		{abi.Window{FD: fd, Size: 4096}, "shrinking"},
		{abi.Window{FD: 0, Size: 4096}, "no memfd"},
		{abi.Window{FD: w.FD(), Size: 1 << 17}, "65536 bytes"},
		{abi.Window{FD: w.FD(), Offset: 100, Size: 100}, "multiple"},
		{abi.Window{FD: w.FD(), Size: 1 << 40}, "at most"},
	} {
		var refused *WindowError
		if _, err := p.Bind(t.Context(), "alice", []abi.Window{c.w}); !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.w, err, c.want)
		}
	}
	if _, err := p.Bind(t.Context(), "alice", make([]abi.Window, worker.MaxWindows+1)); !errors.Is(err, abi.ErrOverLimit) {
		t.Errorf("too many windows: %v", err)
	}
}

// TestClosed: a closed bound's and engine's workers end as they are released, and nothing new begins.
func TestClosed(t *testing.T) {
	e := newEngine(t, Config{})
	p := load(t, e, abi.Limits{})
	b, err := p.Bind(t.Context(), "alice", nil)
	if err != nil {
		t.Fatal(err)
	}
	in := acquire(t, b)
	b.Close()
	if _, err := b.Reserve(0); !errors.Is(err, ErrClosed) {
		t.Errorf("reserved in a closed bound: %v", err)
	}
	if st, err := in.Run(order{op: 1}.payload(), nil, &fakeHost{}); err != nil || st != abi.OK {
		t.Errorf("a run that was under way: %v, %v", st, err)
	}
	in.Release()
	p.Close()
	if _, err := p.Bind(t.Context(), "alice", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("bound to a closed program: %v", err)
	}
	if s := e.Stats(); s.Live != 0 {
		t.Errorf("%+v", s)
	}
}

// TestReservedOutlivesBound: room that is reserved keeps a closed bound's windows and program until it is given back, however it is.
func TestReservedOutlivesBound(t *testing.T) {
	e := newEngine(t, Config{})
	p := load(t, e, abi.Limits{}).(*program)
	for _, use := range []func(abi.Place){
		func(place abi.Place) { place.Release() },
		func(place abi.Place) {
			if in, err := place.Acquire(t.Context()); err == nil {
				in.Release()
			}
		},
		func(place abi.Place) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := place.Acquire(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("acquired: %v", err)
			}
		},
	} {
		uses := p.uses
		w := segment(t, 1<<16)
		made, err := p.Bind(t.Context(), "alice", []abi.Window{{FD: w.FD(), Size: 1 << 16}})
		if err != nil {
			t.Fatal(err)
		}
		b := made.(*bound)
		place, err := b.Reserve(0)
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
		if b.windows[0].mem == nil || p.uses != uses+1 {
			t.Errorf("the bound is gone while room is reserved: %d uses, want %d", p.uses, uses+1)
		}
		use(place)
		if b.windows[0].mem != nil || p.uses != uses {
			t.Errorf("the bound stays: %d uses, want %d", p.uses, uses)
		}
	}
	if s := e.Stats(); s.Live != 0 {
		t.Errorf("%+v", s)
	}
}

// TestLoadedBounded: programs are charged while they are loaded, and one beyond a bound is refused by its name.
func TestLoadedBounded(t *testing.T) {
	e := newEngine(t, Config{})
	object, err := lab()
	if err != nil {
		t.Fatal(err)
	}
	code := abi.Code{Form: "elf", Triple: triple(), ABI: abi.Version, Bytes: object, Imports: allCalls(), Principal: "ada"}
	first, err := e.Load(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	programs, bytes := e.loaded.Usage()
	if programs != 1 || bytes < uint64(len(first.(*program).image.Bytes)) {
		t.Errorf("one is charged as %d with %d bytes", programs, bytes)
	}
	hers := share.Of(uint64(DefaultCodeBytes)) - 2*bytes + 1
	if err := e.loaded.Admit("ada", hers); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Load(t.Context(), code); !errors.Is(err, abi.ErrShareBusy) || !strings.Contains(err.Error(), `for "ada"`) {
		t.Errorf("beyond her share: %v", err)
	}
	bobs := code
	bobs.Principal = "bob"
	other, err := e.Load(t.Context(), bobs)
	if err != nil {
		t.Fatalf("another principal beside one with its share: %v", err)
	}
	other.Close()
	e.loaded.Drop("ada", hers)
	b, err := first.Bind(t.Context(), "alice", nil)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	if n, _ := e.loaded.Usage(); n != 1 {
		t.Errorf("closed, but bound: %d programs are charged", n)
	}
	b.Close()
	if n, left := e.loaded.Usage(); n != 0 || left != 0 {
		t.Errorf("all are closed, and %d programs with %d bytes are charged", n, left)
	}
}

// TestCodeFile: the file that workers map holds an image's bytes, and no memory for the gaps between its segments.
func TestCodeFile(t *testing.T) {
	p := load(t, newEngine(t, Config{}), abi.Limits{}).(*program)
	held := make([]byte, len(p.image.Bytes))
	if n, err := unix.Pread(p.code.fd, held, 0); err != nil || n != len(held) || !bytes.Equal(held, p.image.Bytes) {
		t.Errorf("%d of %d bytes, %v; the same: %v", n, len(held), err, bytes.Equal(held, p.image.Bytes))
	}
	var most int64
	for _, part := range p.image.Parts {
		most += int64(part.To-part.From) + 2*int64(unix.Getpagesize())
	}
	var st unix.Stat_t
	if err := unix.Fstat(p.code.fd, &st); err != nil || st.Blocks*512 > most || most >= int64(len(held)) {
		t.Errorf("it takes %d bytes of memory, its parts %d at most, the image %d (%v)", st.Blocks*512, most, len(held), err)
	}
}
