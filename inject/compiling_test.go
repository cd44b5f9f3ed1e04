package inject_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// compilerMark makes this test program a process that compiles wasm, as soon as somebody opens the FIFO that follows for writing.
const compilerMark = "be-a-wasm-compiler"

// beCompiler is what such a process does.
func beCompiler(fifo string) int {
	f, err := os.Open(fifo)
	if err == nil {
		f.Close()
		err = wasm.ServeCompiler()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// branching is an image of a function that answers nothing and that no element compiles itself: so many blocks, each with a branch.
func branching(t *testing.T, name string, blocks int) *image.Image {
	t.Helper()
	section := func(id byte, parts ...[]byte) []byte {
		body := bytes.Join(parts, nil)
		return append(binary.AppendUvarint([]byte{id}, uint64(len(body))), body...)
	}
	body := append([]byte{0}, bytes.Repeat([]byte{0x02, 0x40, 0x41, 0, 0x0d, 0, 0x0b}, blocks)...)
	body = append(body, 0x41, 0, 0x0b)
	code := bytes.Join([][]byte{[]byte("\x00asm\x01\x00\x00\x00"),
		section(1, []byte{1, 0x60, 2, 0x7f, 0x7f, 1, 0x7f}), section(3, []byte{1, 0}), section(5, []byte{1, 0, 1}),
		section(7, []byte{2, byte(len(abi.Entry))}, []byte(abi.Entry), []byte{0, 0, 6}, []byte("memory"), []byte{2, 0}),
		section(10, []byte{1}, binary.AppendUvarint(nil, uint64(len(body))), body)}, nil)
	img, err := image.Build(image.Manifest{Name: name, ABI: abi.Version}, image.Entry{Form: image.Wasm, Code: code})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestCompilingWasmHoldsNothing: while wasm is compiled, for several runs, the element's only place is free for others: for functions that it has and for new ones.
func TestCompilingWasmHoldsNothing(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "begin")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := wasm.New(wasm.Config{Compiler: []string{"/proc/self/exe", compilerMark, fifo}, CompileTime: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	node := newMember(t, "n0", true, fabric.Balanced, func(c *inject.Config) { c.Engines, c.Running = []abi.Engine{wasm.Runner{Engine: e}}, 1 })
	client := connect(t, []*member{node}, fabric.Balanced)
	ctx := within(t, patience)
	call := func(ctx context.Context, img *image.Image, payload string) (string, error) {
		f, err := client.rt.Prepare(img, nil)
		if err != nil {
			return "", err
		}
		defer f.Close()
		got, err := f.Do(ctx, inject.Root{To: client.eps["n0"], Payload: []byte(payload)}, nil)
		return string(got), err
	}
	slow, answers := branching(t, "slow", 2600), make(chan error, 3)
	for range cap(answers) {
		go func() { _, err := call(ctx, slow, ""); answers <- err }()
	}
	eventually(t, func() string {
		if z := node.rt.Stats().Sizes; z.Unready+z.Running+z.Queued < cap(answers) {
			return fmt.Sprintf("%+v: the runs are not there", z)
		}
		return ""
	})
	soon, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	for i := range 10 {
		img := xrdma.Echo()
		if i%2 == 1 {
			m := img.Manifest()
			m.Name = fmt.Sprint("echo", i)
			if img, err = image.Build(m, img.Entries()...); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := call(soon, img, "still there"); err != nil || got != "still there" {
			t.Fatalf("while wasm is compiled: %q, %v", got, err)
		}
	}
	if s := e.Stats(); s.Elsewhere != 0 {
		t.Fatalf("it was compiled already: %+v", s)
	}
	begin, err := os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0) // fails where nobody reads
	for end := time.Now().Add(patience / 2); err != nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
		begin, err = os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer begin.Close()
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if s := e.Stats(); s.Elsewhere != 1 {
		t.Errorf("after three runs %d functions were compiled in a process", s.Elsewhere)
	}
}

// children are this process's that compile wasm.
func children(t *testing.T) (pids []int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // the thread may have ended
		for _, child := range strings.Fields(string(text)) {
			line, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if pid, err := strconv.Atoi(child); err == nil && bytes.Contains(line, []byte(compilerMark)) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// TestCompilingWasmStops: a compiler that is at something endless ends when its sender leaves, and at the deadline, which is kept to a second; nobody else waits longer
// for a function of their own.
func TestCompilingWasmStops(t *testing.T) {
	for _, c := range []struct {
		how   string
		time  time.Duration // that the sender leaves
		leave bool          // the sender's connections end
	}{{"the sender leaves", patience, true}, {"the deadline", 300 * time.Millisecond, false}} {
		t.Run(c.how, func(t *testing.T) {
			e, err := wasm.New(wasm.Config{Compiler: []string{"/proc/self/exe", compilerMark, "/dev/null"}, CompileTime: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Close() })
			node := newMember(t, "n0", true, fabric.Balanced, func(c *inject.Config) { c.Engines = []abi.Engine{wasm.Runner{Engine: e}} })
			honest := connect(t, []*member{node}, fabric.Balanced)
			hostile := connect(t, []*member{node}, fabric.Balanced)
			start := func(m *member, name string, blocks int, limit time.Duration) *inject.Future {
				f, err := m.rt.Prepare(branching(t, name, blocks), nil)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				t.Cleanup(cancel)
				fut, err := f.Start(ctx, []inject.Root{{To: m.eps["n0"]}}, inject.Options{})
				if err != nil {
					t.Fatal(err)
				}
				return fut
			}
			if _, err := start(honest, "first", 2600, patience).Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			at := children(t)
			if len(at) != 1 {
				t.Fatalf("there are the compilers %v", at)
			}
			if err := unix.Kill(at[0], unix.SIGSTOP); err != nil { // what it is asked for next it never ends
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Kill(at[0], unix.SIGCONT) })
			endless := start(hostile, "endless", 2700, c.time)
			from := time.Now()
			eventually(t, func() string {
				if e.Stats().Compiling == 0 {
					return "the compiler is not asked yet"
				}
				return ""
			})
			waits := start(honest, "waits", 2601, patience)
			if c.leave {
				from = time.Now()
				hostile.el.Close()
			} else if _, err := endless.Wait(t.Context()); err == nil || time.Since(from) > c.time+time.Second {
				t.Errorf("after %v, of %v: %v", time.Since(from), c.time, err)
			}
			if _, err := waits.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			t.Logf("another one's function had run after %v", time.Since(from))
			if now := children(t); len(now) != 1 || now[0] == at[0] {
				t.Errorf("the compilers are %v, and the one that never ends is %v", now, at)
			}
			if s := e.Stats(); s.Elsewhere != 2 {
				t.Errorf("%d functions were compiled", s.Elsewhere)
			}
		})
	}
}
