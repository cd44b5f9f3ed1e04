package nativetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/llvm"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/invoke"
)

const (
	entry = "#include \"wherry.h\"\nWHERRY_ENTRY(payload, size) "
	echo  = entry + "{ return wherry_reply(payload, size); }\n"
	spin  = entry + "{ for (volatile int i = 0; ; i = 1 - i) ; }\n"
	trap  = entry + "{ *(volatile int *)8 = 1; return 0; }\n"
	opens = "extern int open(const char *, int);\n" + entry + "{ return open(\"/etc/passwd\", 0); }\n"
	// kernel is how machine code asks the kernel itself.
	kernel = `#if defined(__x86_64__)
static int64_t sys(int64_t n, int64_t a, const void *b, int64_t c) {
	__asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory"); return n; }
enum { OPENAT = 257, SOCKET = 41 };
#elif defined(__aarch64__)
static int64_t sys(int64_t n, int64_t a, const void *b, int64_t c) {
	register int64_t x8 __asm__("x8") = n, x0 __asm__("x0") = a, x2 __asm__("x2") = c; register const void *x1 __asm__("x1") = b;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory"); return x0; }
enum { OPENAT = 56, SOCKET = 198 };
#else
static int64_t sys(int64_t n, int64_t a, const void *b, int64_t c) {
	register int64_t a7 __asm__("a7") = n, a0 __asm__("a0") = a, a2 __asm__("a2") = c; register const void *a1 __asm__("a1") = b;
	__asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2) : "memory"); return a0; }
enum { OPENAT = 56, SOCKET = 198 };
#endif
`
	openat = "#include \"wherry.h\"\n" + kernel + "WHERRY_ENTRY(payload, size) { return (int)sys(OPENAT, -100, \"/etc/passwd\", 0); }\n"
	socket = "#include \"wherry.h\"\n" + kernel + "WHERRY_ENTRY(payload, size) { return (int)sys(SOCKET, 2, (void *)1, 0); }\n"
	// deep calls itself without end.
	deep = "#include \"wherry.h\"\n__attribute__((noinline)) static int down(volatile int *p) { volatile int frame[64]; frame[*p & 63] = 1; return down(frame) + frame[1]; }\n" +
		"WHERRY_ENTRY(payload, size) { int v = 0; return down(&v); }\n"
	// broad has a frame of 4 MiB, and begins at its far end.
	broad = entry + "{ volatile uint8_t frame[4 << 20]; for (uint64_t i = 0; i < sizeof frame; i += 512) frame[i] = 1; return frame[size & 63]; }\n"
	// far takes an address in a way that position-independent code does not.
	far = "#include \"wherry.h\"\nstatic volatile int v[64];\nWHERRY_ENTRY(payload, size) { v[size & 63] = 1; return v[(size + 1) & 63]; }\n"
	// stray writes to its window, which it has for reading.
	stray = entry + "{ wherry_window_t w; WHERRY_TRY(wherry_window(0, &w)); *(volatile uint64_t *)(uintptr_t)w.addr = 7; return wherry_reply(payload, size); }\n"
)

// transplant puts the signatures of one image behind another.
func transplant(t *testing.T, onto, from *image.Image) *image.Image {
	t.Helper()
	file := append(onto.Encode(), from.Encode()[len(from.Unsigned().Encode()):]...)
	for i := range 8 { // the header has the length of the whole
		file[16+i] = byte(uint64(len(file)) >> (8 * i))
	}
	img, err := image.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// bomb is a function of which each part calls two copies of the one before: inlined, they are 2^40 additions.
func bomb() string {
	text := "#include \"wherry.h\"\n#define I static inline __attribute__((always_inline)) uint64_t\nI f0(uint64_t x) { return x * x + 1; }\n"
	for i := range 40 {
		text += fmt.Sprintf("I f%d(uint64_t x) { return f%d(x) ^ f%d(x + 3); }\n", i+1, i, i)
	}
	return text + "WHERRY_ENTRY(payload, size) { uint64_t v = f40(size); return wherry_reply(&v, 8); }\n"
}

// newer is an image as if a newer LLVM had written its bitcode: of the next epoch, which stands at the end of the first block.
func newer(t *testing.T, img *image.Image) *image.Image {
	t.Helper()
	e := img.Entries()[0]
	code := slices.Clone(e.Code)
	end := 12 + 4*int(binary.LittleEndian.Uint32(code[8:]))
	last := 8*end - 1
	for code[last/8]>>(last%8)&1 == 0 {
		last--
	}
	epoch := last + 3 // after the record's five bits, 00101, come six of the epoch, which is 0, and five of the block's end
	code[epoch/8] |= 1 << (epoch % 8)
	out, err := image.Build(img.Manifest(), image.Entry{Form: e.Form, Triple: e.Triple, Code: code})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRefused: code that must not run is refused with the reason, before anything is done with it, and the node serves on.
func TestRefused(t *testing.T) {
	s := start(t, "a")
	good := s.sign(s.build(function{name: "good", source: echo}), s.key)
	plain := s.build(function{name: "plain", source: echo})
	models := map[string]string{"amd64": "kernel", "arm64": "large", "riscv64": "medlow"} // of code
	foreign := "aarch64-unknown-linux-gnu"
	if strings.HasPrefix(triple(), "aarch64") {
		foreign = "x86_64-unknown-linux-gnu"
	}
	damaged, err := image.Build(image.Manifest{Name: "damaged", ABI: abi.Version, Imports: calls()},
		image.Entry{Form: image.LLVMBitcode, Triple: triple(), Code: append([]byte{'B', 'C', 0xC0, 0xDE}, make([]byte, 400)...)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		img  *image.Image
		says []string
	}{
		{"nobody signed it", plain, []string{"plain cannot run on a", "it is not signed"}},
		{"a stranger signed it", s.sign(plain, signer(2)), []string{"none of those keys is trusted"}},
		{"its signature is another's", transplant(t, plain, good), []string{"key release does not hold"}},
		{"another processor's", s.sign(s.build(function{name: "foreign", source: echo, triple: foreign}), s.key), []string{"it is for", "and this element is"}},
		{"no module", s.sign(damaged, s.key), []string{"damaged", "bitcode"}},
		{"it calls open", s.sign(s.build(function{name: "opens", source: opens}), s.key), []string{"open"}},
		{"an object that calls open", s.sign(s.build(function{name: "opens", source: opens, object: true}), s.key), []string{`"open"`, "is defined nowhere"}},
		{"an object with other relocations", s.sign(s.build(function{name: "far", source: far, object: true, flags: []string{"-fno-pic", "-mcmodel=" + models[runtime.GOARCH]}}), s.key), []string{"relocation"}},
		{"a newer LLVM's", s.sign(newer(t, s.build(function{name: "newer", source: echo})), s.key), []string{"newer", "epoch"}},
		{"a bomb, where the compiler is quick enough for the run", s.sign(s.build(function{name: "bomb", source: bomb(), flags: []string{"-Xclang", "-disable-llvm-passes"}}), s.key), []string{"bomb", "limit"}},
	} {
		_, err := s.at(c.img, forms.Auto, "hello")
		if err == nil {
			t.Errorf("%s: it ran", c.name)
			continue
		}
		if ran := slices.Contains(c.says, "limit"); errors.Is(err, travel.ErrRefused) == ran || errors.Is(err, travel.ErrLimit) != ran {
			t.Errorf("%s: it did not run, and the error is %v", c.name, err)
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", c.name, err, part)
			}
		}
		if got, err := s.at(good, forms.Bitcode, "hello"); err != nil || got != "hello" {
			t.Fatalf("%s; and after that the node answers %q, %v", c.name, got, err)
		}
	}
	file := good.Encode()
	file[len(good.Unsigned().Encode())/2] ^= 1
	if _, err := image.Parse(file); !errors.Is(err, image.ErrChecksum) {
		t.Errorf("an altered file: %v", err)
	}
}

// TestContained: code that misbehaves while it runs costs its worker and its call, with the reason, and the node serves on.
func TestContained(t *testing.T) {
	s := start(t, "a")
	table, _ := s.ring(1024)
	good := s.sign(s.build(function{name: "good", source: echo}), s.key)
	short := image.Manifest{Name: "spin", ABI: abi.Version, Imports: calls(), Limits: abi.Limits{RunTime: 200 * time.Millisecond}}
	for _, c := range []struct {
		name string
		f    function
		want error
		says []string
	}{
		{"it never ends", function{source: spin, manifest: short}, travel.ErrLimit, []string{"run_time"}},
		{"it writes to nowhere", function{name: "trap", source: trap}, travel.ErrRemote, []string{"SIGSEGV"}},
		{"it opens a file", function{name: "openat", source: openat, object: true}, travel.ErrRemote, []string{"a function makes host calls only"}},
		{"it opens a socket", function{name: "socket", source: socket, object: true}, travel.ErrRemote, []string{"a function makes host calls only"}},
		{"it calls itself without end", function{name: "deep", source: deep}, travel.ErrRemote, []string{"the stack of 1024 KiB is used up"}},
		{"its frame is larger than its stack", function{name: "broad", source: broad}, travel.ErrRemote, []string{"the stack of 1024 KiB is used up"}},
		{"the same as an object, which probes no pages", function{name: "broad-object", source: broad, object: true}, travel.ErrRemote, []string{"the stack of 1024 KiB is used up"}},
		{"it writes to a window that it may read", function{name: "stray", source: stray}, travel.ErrRemote, []string{"SIGSEGV"}},
	} {
		first := uint32(0)
		_, err := s.call(invoke.Request{Image: s.sign(s.build(c.f), s.key), Table: table, Element: &first})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, part := range c.says {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", c.name, err, part)
			}
		}
		if got, err := s.at(good, forms.Bitcode, "hello"); err != nil || got != "hello" {
			t.Fatalf("%s; and after that the node answers %q, %v", c.name, got, err)
		}
	}
}

// children are a process's, by what the kernel calls them.
func children(t *testing.T, pid int) map[int]string {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]string{}
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may be gone
		for _, word := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
			all[child] = string(name)
		}
	}
	return all
}

// workers are a process's children that have become workers: a blank one has its nursery's name yet.
func workers(t *testing.T, pid int) map[int]bool {
	t.Helper()
	all := map[int]bool{}
	for child := range children(t, pid) {
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child)); err == nil && string(name) == "wherry-worker\n" { // else it has ended
			all[child] = true
		}
	}
	return all
}

// TestKilled: somebody kills the compiler, and then a worker in the middle of a run. The first costs nothing, the second that run.
func TestKilled(t *testing.T) {
	s := start(t, "a")
	pid := s.procs["a"].Process.Pid
	answers := func(name string) {
		t.Helper()
		img := s.sign(s.build(function{name: name, source: echo}), s.key)
		if got, err := s.at(img, forms.Bitcode, "hello"); err != nil || got != "hello" {
			t.Fatalf("%s: the node answers %q, %v", name, got, err)
		}
	}
	answers("first")
	killed := 0
	for child, command := range children(t, pid) {
		if filepath.Base(strings.SplitN(command, "\x00", 2)[0]) == llvm.Program {
			if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			killed++
		}
	}
	if killed == 0 {
		t.Error("the node has no compiler")
	}
	answers("second")

	before := workers(t, pid)
	ended := make(chan error)
	go func() {
		m := image.Manifest{Name: "spin", ABI: abi.Version, Imports: calls(), Limits: abi.Limits{RunTime: time.Minute}}
		_, err := s.at(s.sign(s.build(function{source: spin, manifest: m}), s.key), forms.Bitcode, "")
		ended <- err
	}()
	worker := 0
	for until := time.Now().Add(patience); worker == 0; time.Sleep(5 * time.Millisecond) {
		st, err := s.c.Status(t.Context(), "a")
		if err != nil || time.Now().After(until) {
			t.Fatalf("no worker runs (%v)", err)
		}
		for child := range workers(t, pid) {
			if !before[child] && st.Queues.Running == 1 {
				worker = child
			}
		}
	}
	if err := syscall.Kill(worker, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !slices.ContainsFunc([]string{"killed", "SIGKILL"}, func(w string) bool { return strings.Contains(err.Error(), w) }) {
		t.Errorf("a run whose worker was killed: %v", err)
	}
	answers("third")
}

// TestDamagedCache: machine code on disk that is not what it was is compiled again.
func TestDamagedCache(t *testing.T) {
	s := start(t, "a")
	img := s.sign(s.build(function{name: "kept", source: echo}), s.key)
	answers := func() {
		t.Helper()
		if got, err := s.at(img, forms.Bitcode, "hello"); err != nil || got != "hello" {
			t.Fatalf("the node answers %q, %v", got, err)
		}
	}
	objects := func() []string {
		files, err := filepath.Glob(filepath.Join(s.cache("a"), "objects", "*.wlo"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	answers()
	for until := time.Now().Add(patience); len(objects()) != 1; time.Sleep(5 * time.Millisecond) { // the best is made once a run has ended
		if time.Now().After(until) {
			t.Fatalf("on disk there are %q", objects())
		}
	}
	s.stop("a")
	before := objects()
	code, err := os.ReadFile(before[0])
	if err != nil {
		t.Fatal(err)
	}
	damaged := slices.Clone(code)
	for i := len(damaged) / 2; i < len(damaged); i += 7 {
		damaged[i] ^= 0x55
	}
	if err := os.WriteFile(before[0], damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	s.run("a")
	answers()
	for until := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		again, err := os.ReadFile(before[0])
		if err == nil && slices.Equal(again, code) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("after that %d bytes are on disk, %d before (%v)", len(again), len(code), err)
		}
	}
	s.stop("a")
}
