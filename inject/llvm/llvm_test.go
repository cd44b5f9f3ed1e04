package llvm

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/compiler"
	"github.com/wherry-fabric/wherry/internal/libllvm"
)

// The test program stands in for wherry-llvm: it is the same code, started under a name that says so.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == Program {
		library, unconfined := "", false
		for i, arg := range os.Args[1:] {
			switch arg {
			case "--library":
				library = os.Args[i+2]
			case "--unconfined":
				unconfined = true
			}
		}
		if err := libllvm.Serve(library, unconfined); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// program makes a wherry-llvm in a folder of its own.
func program(t *testing.T) string {
	t.Helper()
	if _, err := libllvm.Open(""); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), Program)
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	return link
}

func newCompiler(t *testing.T, c Config) *Compiler {
	t.Helper()
	if len(c.Command) == 0 {
		c.Command = []string{program(t)}
	}
	l := New(c)
	t.Cleanup(func() { l.Close() })
	if _, _, _, err := l.Target(); err != nil {
		t.Fatal(err)
	}
	return l
}

// bitcode compiles C for this machine.
func bitcode(t *testing.T, l *Compiler, source string, flags ...string) []byte {
	t.Helper()
	triple, _, _, err := l.Target()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("clang", append(flags, "--target="+triple, "-O1", "-ffreestanding", "-nostdlib", "-ffp-contract=off", "-fPIC", "-emit-llvm",
		"-I", "../../sdk/c", "-I", "../xrdma/src", "-c", "-x", "c", "-", "-o", "-")...)
	cmd.Stdin = strings.NewReader(source)
	var said bytes.Buffer
	cmd.Stderr = &said
	code, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("clang: %v\n%s", err, &said)
	}
	return code
}

const echo = "#include \"wherry.h\"\nWHERRY_ENTRY(payload, size) { return wherry_reply(payload, size); }\n"

func request(t *testing.T, l *Compiler, source string, imports ...string) Request {
	t.Helper()
	triple, _, _, err := l.Target()
	if err != nil {
		t.Fatal(err)
	}
	return Request{Bitcode: bitcode(t, l, source), Triple: triple, Imports: imports, Signer: []byte("key"), Principal: "ada"}
}

func object(t *testing.T, l *Compiler, r Request) []byte {
	t.Helper()
	o, _, err := l.Object(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestChase compiles the papers' pointer chase.
func TestChase(t *testing.T) {
	l := newCompiler(t, Config{})
	r := request(t, l, "#include \"chase.c\"\n", "elements", "forward", "get_near", "log", "owner", "reply", "self", "shard_rows", "window")
	f, err := elf.NewFile(bytes.NewReader(object(t, l, r)))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF {
			open = append(open, s.Name)
		}
	}
	if len(open) != 9 || f.Type != elf.ET_REL {
		t.Errorf("%v leaves %q open", f.Type, open)
	}
}

// TestCache: an object is made once, for all who want it at the same time, and is there for the next program; until its
// file is damaged.
func TestCache(t *testing.T) {
	c := Config{CacheDir: t.TempDir(), Command: []string{program(t)}}
	l := newCompiler(t, c)
	r := request(t, l, echo, "reply")
	r.Best = true
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, _, err := l.Object(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	clear(object(t, l, r)) // what a caller does to its object is no matter of the next one's
	first := object(t, l, r)
	if s := l.Stats(); s.Compiled != 1 || s.FromRAM == 0 {
		t.Errorf("%+v", s)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	next := newCompiler(t, c)
	if again := object(t, next, r); !bytes.Equal(first, again) {
		t.Error("the object on disk is another")
	}
	if s := next.Stats(); s.Compiled != 0 || s.FromDisk != 1 {
		t.Errorf("%+v", s)
	}
	next.Close()
	files, err := filepath.Glob(filepath.Join(c.CacheDir, "*.wlo"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	last := newCompiler(t, c)
	if again := object(t, last, r); !bytes.Equal(first, again) {
		t.Error("the object is another")
	}
	if s := last.Stats(); s.Compiled != 1 || s.Rejected != 1 {
		t.Errorf("after damage: %+v", s)
	}
}

// TestTiers: what is made soon is another object than the best and is kept in memory; once the best is there it is given for either. Only the best
// is written to disk.
func TestTiers(t *testing.T) {
	c := Config{CacheDir: t.TempDir(), Command: []string{program(t)}}
	l := newCompiler(t, c)
	r := request(t, l, echo, "reply")
	ask := func(l *Compiler, best, want bool) []byte {
		t.Helper()
		r.Best = best
		o, got, err := l.Object(t.Context(), r)
		if err != nil || got != want {
			t.Fatalf("best %v asked for, %v given (%v)", best, got, err)
		}
		return o
	}
	soon, again := ask(l, false, false), ask(l, false, false)
	l.Close()
	if files, err := filepath.Glob(filepath.Join(c.CacheDir, "*.wlo")); err != nil || len(files) > 0 {
		t.Errorf("of what is made soon %q is on disk (%v)", files, err)
	}
	l = newCompiler(t, c)
	best := ask(l, true, true)
	if bytes.Equal(soon, best) || !bytes.Equal(soon, again) {
		t.Errorf("%d bytes soon, then %d, %d at best", len(soon), len(again), len(best))
	}
	if s := l.Stats(); s.Compiled != 1 {
		t.Errorf("%+v", s)
	}
	l.Close()
	next := newCompiler(t, c)
	if !bytes.Equal(ask(next, false, true), best) {
		t.Error("from the disk comes another")
	}
	if s := next.Stats(); s.Compiled != 0 || s.FromDisk != 1 {
		t.Errorf("%+v", s)
	}
}

// TestKey: what an object depends on is in its key, and nothing else.
func TestKey(t *testing.T) {
	h := compiler.Hello{Compiler: "LLVM 22", Triple: "t", CPU: "c", Features: "+a"}
	r := Request{Bitcode: []byte("code"), Imports: []string{"reply", "log"}}
	base := keyOf(h, r, r.Best)
	seen := map[string]string{base: "nothing changed"}
	differs := func(what string, h compiler.Hello, r Request) {
		key := keyOf(h, r, r.Best)
		if old, twice := seen[key]; twice {
			t.Errorf("%s: the key is that of %s", what, old)
		}
		seen[key] = what
	}
	changed := h
	changed.Compiler = "LLVM 19"
	differs("another LLVM", changed, r)
	changed = h
	changed.CPU = "d"
	differs("another processor", changed, r)
	changed = h
	changed.Triple = "u"
	differs("another triple", changed, r)
	changed = h
	changed.Features = "-a"
	differs("another feature", changed, r)
	changed = h
	changed.CPU, changed.Features = "c+", "a"
	differs("another border", changed, r)
	other := r
	other.Bitcode = []byte("node")
	differs("other code", h, other)
	other = r
	other.Signer = []byte("somebody else")
	differs("another signer", h, other)
	other = r
	other.Constants = []byte{7}
	differs("a derived function", h, other)
	other.Constants = []byte{8}
	differs("other constants", h, other)
	other = r
	other.Best = true
	differs("another tier", h, other)
	other = r
	other.Imports = []string{"reply"}
	differs("fewer imports", h, other)
	other = r
	other.Imports, other.Principal = []string{"log", "reply"}, "p"
	if keyOf(h, other, other.Best) != base {
		t.Error("the order of imports, or who asks, changes the key")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	m := memory{limit: 100}
	for _, key := range []string{"a", "b", "c"} {
		m.put(key, make([]byte, 40))
		m.get("a")
	}
	m.put("huge", make([]byte, 101))
	_, a := m.get("a")
	_, b := m.get("b")
	_, c := m.get("c")
	_, huge := m.get("huge")
	if !a || b || !c || huge || m.held != 80 || m.order.Len() != 2 || len(m.entries) != 2 {
		t.Errorf("a %v, b %v, c %v, huge %v; %d bytes", a, b, c, huge, m.held)
	}
}

// TestBadInput: each is refused or contained, with the reason, and the next request is served.
func TestBadInput(t *testing.T) {
	l := newCompiler(t, Config{Deadline: 500 * time.Millisecond})
	good := request(t, l, echo, "reply")
	with := func(change func(*Request)) Request {
		r := good
		r.Bitcode = bytes.Clone(good.Bitcode)
		change(&r)
		return r
	}
	// Every function calls two copies of the one before: inlined, 2^40 additions.
	bomb := "#include \"wherry.h\"\n#define I static inline __attribute__((always_inline)) uint64_t\nI f0(uint64_t x) { return x * x + 1; }\n"
	for i := range 40 {
		bomb += fmt.Sprintf("I f%d(uint64_t x) { return f%d(x) ^ f%d(x + 3); }\n", i+1, i, i)
	}
	bomb += "WHERRY_ENTRY(payload, size) { uint64_t v = f40(size); return wherry_reply(&v, 8); }\n"
	raw := good
	raw.Bitcode = bitcode(t, l, bomb, "-Xclang", "-disable-llvm-passes") // the work is left to the compiler under test
	huge := "#include \"wherry.h\"\nWHERRY_ENTRY(payload, size) { const uint64_t *p = payload; uint64_t v = size;\n"
	for i := range 4_000 {
		huge += fmt.Sprintf("if (p[v %% %d] > v) v = v * %d + p[%d]; else v ^= p[v & %d];\n", i+1, 2*i+1, i, i)
	}
	long := good
	long.Bitcode = bitcode(t, l, huge+"return wherry_reply(&v, 8); }\n", "-Xclang", "-disable-llvm-passes")
	raw.Best, long.Best = true, true // the first tier inlines nothing
	cases := []struct {
		name, says string
		final      bool
		r          Request
	}{
		{"cut", "cannot read it", true, with(func(r *Request) { r.Bitcode = r.Bitcode[:len(r.Bitcode)/2&^3] })},
		{"wrong triple", "it is for sparc-linux, this element is", true, with(func(r *Request) { r.Triple = "sparc-linux" })},
		{"not listed", "calls wherry_reply, which is no host call that its manifest lists in imports (none)", true, with(func(r *Request) { r.Imports = nil })},
		{"bomb", "more than 500ms of processor time", false, raw},
		{"a huge function", "more than 500ms of processor time", false, long},
	}
	for _, c := range cases {
		_, _, err := l.Object(t.Context(), c.r)
		var refused *Error
		if err == nil || !strings.Contains(err.Error(), c.says) || errors.As(err, &refused) != c.final {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for i := 0; i < len(good.Bitcode); i += len(good.Bitcode) / 24 { // altered: refused, or another function, or a crash of the compiler
		_, _, err := l.Object(t.Context(), with(func(r *Request) { r.Bitcode[i] ^= 0x55 }))
		var refused *Error
		if err != nil && !errors.As(err, &refused) && !errors.Is(err, compiler.ErrCrashed) && !errors.Is(err, compiler.ErrDeadline) {
			t.Errorf("byte %d altered: %v", i, err)
		}
	}
	object(t, l, good)
}

// TestKilled kills every compiler while requests are under way: they say so, and the next is served.
func TestKilled(t *testing.T) {
	l := newCompiler(t, Config{})
	r := request(t, l, echo, "reply")
	object(t, l, r)
	for _, pid := range processes(t) {
		unix.Kill(pid, unix.SIGKILL)
	}
	r.Bitcode = bitcode(t, l, "// another\nint unused;\n"+echo)
	for range 3 { // the kill may be seen only in the middle of a request
		_, _, err := l.Object(t.Context(), r)
		if err == nil {
			return
		}
		if !errors.Is(err, compiler.ErrCrashed) {
			t.Fatal(err)
		}
	}
	t.Error("no request is served after the compilers were killed")
}

// TestLockedDown: a compiler has no way to files, programs or rights, on any of its threads.
func TestLockedDown(t *testing.T) {
	l := newCompiler(t, Config{})
	for _, pid := range processes(t) { // one, which has said hello; a spare comes with the first request
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil || len(threads) < 2 {
			t.Fatalf("process %d: %d threads, %v", pid, len(threads), err)
		}
		for _, file := range threads {
			b, err := os.ReadFile(file)
			if err != nil {
				continue // the thread has just ended
			}
			for _, want := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
				if !strings.Contains(string(b), want) {
					t.Errorf("%s has no %q", file, want)
				}
			}
		}
	}
	object(t, l, request(t, l, echo, "reply"))
}

// TestUnconfined: compilers compile without being locked down, only where that is asked for.
func TestUnconfined(t *testing.T) {
	l := newCompiler(t, Config{Unconfined: true})
	object(t, l, request(t, l, echo, "reply"))
	filters := func(process string) string {
		b, err := os.ReadFile("/proc/" + process + "/status")
		if err != nil {
			return ""
		}
		_, after, _ := strings.Cut(string(b), "\nSeccomp:")
		line, _, _ := strings.Cut(after, "\n")
		return line
	}
	own := filters("self") // a container may have one for all its processes
	for _, pid := range processes(t) {
		if got := filters(fmt.Sprint(pid)); got != own && got != "" { // "": it was replaced meanwhile
			t.Errorf("process %d has filters %q, this one %q", pid, got, own)
		}
	}
}

// processes are the compilers that this program runs.
func processes(t *testing.T) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		b, err := os.ReadFile(d)
		if err != nil {
			continue // it has ended
		}
		var pid, parent int
		var state string
		_, rest, _ := strings.Cut(string(b), ") ")
		if _, err := fmt.Sscan(rest, &state, &parent); err == nil && parent == os.Getpid() && strings.Contains(string(b), "("+Program[:11]) {
			if _, err := fmt.Sscan(string(b), &pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	if len(pids) == 0 {
		t.Fatal("no compiler runs")
	}
	return pids
}

// TestGivingUp: who gives up does not take the object from another who wants it.
func TestGivingUp(t *testing.T) {
	l := newCompiler(t, Config{})
	r := request(t, l, echo, "reply")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.Object(ctx, r); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	object(t, l, r)
}

func TestNothingToCompileWith(t *testing.T) {
	l := New(Config{Command: []string{filepath.Join(t.TempDir(), "missing")}})
	defer l.Close()
	if _, _, _, err := l.Target(); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Error(err)
	}
	if _, _, err := l.Object(t.Context(), Request{}); err == nil {
		t.Error("an object of nothing")
	}
	t.Setenv("PATH", t.TempDir())
	n := New(Config{})
	defer n.Close()
	if _, _, _, err := n.Target(); !errors.Is(err, ErrNoProgram) {
		t.Error(err)
	}
	none := New(Config{Command: []string{program(t)}, Library: "libLLVM.so.none"})
	defer none.Close()
	if _, err := none.Version(); err == nil || !strings.Contains(err.Error(), "apt-get install libllvm22") {
		t.Error(err)
	}
}
