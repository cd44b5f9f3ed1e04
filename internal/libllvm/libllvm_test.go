package libllvm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
)

// library opens libLLVM; the newest that is there, or the one asked for.
func library(t testing.TB, path string) *Library {
	t.Helper()
	l, err := Open(path)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return l
}

const host = "x86_64-unknown-linux-gnu"

// targets are the three processors.
var targets = []Target{
	{Triple: host, CPU: "x86-64-v3"},
	{Triple: "aarch64-unknown-linux-gnu", CPU: "generic"},
	{Triple: "riscv64-unknown-linux-gnu", CPU: "generic-rv64", Features: "+m,+a,+f,+d,+c,-relax"},
}

// bitcode compiles C with clang, as fn build does but for what flags change.
func bitcode(t testing.TB, source, triple string, flags ...string) []byte {
	t.Helper()
	clang, err := exec.LookPath("clang")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	made := filepath.Join(t.TempDir(), "function.bc")
	args := []string{"--target=" + triple, "-O1", "-ffreestanding", "-nostdlib", "-ffp-contract=off", "-fPIC", "-I../../sdk/c", "-emit-llvm"}
	if Arch(triple) == "riscv64" {
		args = append(args, "-mno-relax", "-march=rv64gc", "-mabi=lp64d")
	}
	cmd := exec.Command(clang, append(append(args, flags...), "-c", "-x", "c", "-", "-o", made)...)
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("clang: %v\n%s", err, out)
	}
	code, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// entry is a function with a body.
func entry(body string) string {
	return "#include \"wherry.h\"\nWHERRY_ENTRY(payload, size)\n{\n" + body + "\n}\n"
}

// relocations that a loader knows; others mean the wrong code model.
var relocations = map[elf.Machine][]uint32{
	elf.EM_X86_64:  {uint32(elf.R_X86_64_PC32), uint32(elf.R_X86_64_PLT32), uint32(elf.R_X86_64_64), uint32(elf.R_X86_64_GOTPCREL), uint32(elf.R_X86_64_GOTPCRELX), uint32(elf.R_X86_64_REX_GOTPCRELX)},
	elf.EM_AARCH64: {uint32(elf.R_AARCH64_CALL26), uint32(elf.R_AARCH64_JUMP26), uint32(elf.R_AARCH64_ADR_PREL_PG_HI21), uint32(elf.R_AARCH64_ADD_ABS_LO12_NC), uint32(elf.R_AARCH64_LDST8_ABS_LO12_NC), uint32(elf.R_AARCH64_LDST32_ABS_LO12_NC), uint32(elf.R_AARCH64_LDST64_ABS_LO12_NC), uint32(elf.R_AARCH64_LDST128_ABS_LO12_NC), uint32(elf.R_AARCH64_ABS64), uint32(elf.R_AARCH64_PREL32)},
	elf.EM_RISCV:   {uint32(elf.R_RISCV_CALL_PLT), uint32(elf.R_RISCV_PCREL_HI20), uint32(elf.R_RISCV_PCREL_LO12_I), uint32(elf.R_RISCV_PCREL_LO12_S), uint32(elf.R_RISCV_64), uint32(elf.R_RISCV_BRANCH), uint32(elf.R_RISCV_JAL), uint32(elf.R_RISCV_RVC_JUMP), uint32(elf.R_RISCV_RVC_BRANCH), uint32(elf.R_RISCV_ADD32), uint32(elf.R_RISCV_SUB32)},
}

// names are the symbols of an object: those that it leaves open, and the global ones that it defines.
func names(t *testing.T, object []byte) (open, defined []string) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		switch {
		case s.Section == elf.SHN_UNDEF:
			open = append(open, s.Name)
		case elf.ST_BIND(s.Info) != elf.STB_LOCAL:
			defined = append(defined, s.Name)
		}
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_RELA {
			if slices.Contains([]string{".eh_frame", ".init_array", ".ltext"}, s.Name) {
				t.Errorf("the object has a section %s", s.Name)
			}
			continue
		}
		data, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		for ; len(data) >= 24; data = data[24:] {
			if kind := elf.R_TYPE64(binary.LittleEndian.Uint64(data[8:])); !slices.Contains(relocations[f.Machine], kind) {
				t.Errorf("%v: a relocation of kind %d", f.Machine, kind)
			}
		}
	}
	return open, defined
}

// TestRest: objects are the same whether a context was made ahead or not, and what compiles leave behind is bounded by one, and gone after a rest.
func TestRest(t *testing.T) {
	l := library(t, "")
	target := Target{Triple: targets[0].Triple, CPU: targets[0].CPU, Features: targets[0].Features, Fast: true}
	code := bitcode(t, entry("return wherry_reply(payload, size);"), target.Triple)
	var first []byte
	for i := range 6 {
		object, err := l.Compile(code, target, []string{"wherry_reply"})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = object
		}
		if !bytes.Equal(object, first) || len(l.used) != 1 || l.next != 0 {
			t.Errorf("compile %d: %d bytes, %d before; %d contexts left, the next is %#x", i, len(object), len(first), len(l.used), l.next)
		}
		if i%2 == 1 {
			if l.Rest(); len(l.used) != 0 || l.next == 0 {
				t.Errorf("after a rest %d contexts are left, the next is %#x", len(l.used), l.next)
			}
		}
	}
}

// TestCompile makes objects for three processors: of what each may leave open, with data of all kinds, a table of
// functions, and calls of the runtime that only the code generator makes.
func TestCompile(t *testing.T) {
	const source = `#include "wherry.h"
static uint64_t counter = 7, zeroed[300];
static const uint32_t table[] = {3, 1, 4, 1, 5, 9, 2, 6};
static int one(int x) { return x + 1; }
static int two(int x) { return x * 3; }
static int (*const steps[])(int) = {one, two};
__attribute__((noinline)) unsigned __int128 quotient(unsigned __int128 a, unsigned __int128 b) { return a / b; }
WHERRY_ENTRY(payload, size)
{
    const uint64_t *p = payload;
    uint64_t big[64] = {0};
    counter += table[size & 7];
    zeroed[size % 300] += counter;
    big[size & 63] = (uint64_t)steps[size & 1]((int)size);
    uint64_t q = (uint64_t)quotient((unsigned __int128)p[0] << 64 | p[1], p[2] | 1);
    uint64_t answer[3] = {zeroed[p[0] % 300] + big[p[1] & 63], q, (uint64_t)__builtin_floor((double)p[2] / 3)};
    return wherry_reply(answer, sizeof answer);
}
`
	for _, version := range []string{"", "libLLVM.so.19.1"} {
		l := library(t, version)
		for _, target := range slices.Concat(targets, fast(targets)) {
			code := bitcode(t, source, target.Triple)
			object, err := l.Compile(code, target, []string{"wherry_reply"})
			if err != nil {
				t.Fatalf("LLVM %s: %s: %v", l.Version(), target.Triple, err)
			}
			open, defined := names(t, object)
			if !slices.Equal(open, []string{"wherry_reply"}) || !slices.Contains(defined, Entry) {
				t.Errorf("LLVM %s: %s: open %q, defined %q", l.Version(), target.Triple, open, defined)
			}
			again, err := l.Compile(code, target, []string{"wherry_reply"})
			if err != nil || !bytes.Equal(object, again) {
				t.Errorf("LLVM %s: %s: the same bitcode gives another object, %v", l.Version(), target.Triple, err)
			}
			lined, err := l.Compile(bitcode(t, source, target.Triple, "-gline-tables-only"), target, []string{"wherry_reply"})
			if err != nil || !bytes.Contains(lined, []byte(".debug_line")) {
				t.Errorf("LLVM %s: %s: no table of lines is left, %v", l.Version(), target.Triple, err)
			}
		}
	}
}

// fast are targets of the first tier.
func fast(targets []Target) (all []Target) {
	for _, t := range targets {
		t.Fast = true
		all = append(all, t)
	}
	return all
}

// TestObjectRuns links an object with a program that has its host calls, and runs it.
func TestObjectRuns(t *testing.T) {
	l := library(t, "")
	triple, cpu, features, err := l.Host()
	if err != nil {
		t.Skip(err)
	}
	const function = `#define WHERRY_NO_MEMORY_FUNCTIONS
void *memcpy(void *, const void *, __SIZE_TYPE__), *memmove(void *, const void *, __SIZE_TYPE__), *memset(void *, int, __SIZE_TYPE__);
#include "wherry.h"
static uint8_t copy[256];
WHERRY_ENTRY(payload, size)
{
    __builtin_memcpy(copy, payload, size);
    memmove(copy + 64, copy, 64);
    const uint64_t *v = (const uint64_t *)(copy + 64);
    unsigned __int128 n = (unsigned __int128)v[0] << 64 | v[1];
    double d = (double)v[3] * 1.5 + __builtin_trunc((double)v[2] / 7);
    uint64_t answer[3] = {(uint64_t)(n / v[2]), (uint64_t)(n % v[2]), (uint64_t)d};
    return wherry_reply(answer, sizeof answer);
}
`
	const program = `#include <stdint.h>
#include <stdio.h>
int32_t wherry_main(const void *, uint32_t);
int32_t wherry_reply(const void *p, uint32_t n) { const uint64_t *v = p; printf("%u: %lu %lu %lu", n, v[0], v[1], v[2]); return 0; }
int main(void) { uint64_t v[4] = {12345, 678901234567890, 1000003, 11}; return wherry_main(v, sizeof v); }
`
	code := bitcode(t, function, triple)
	for _, target := range []Target{{Triple: triple, CPU: cpu, Features: features}, {Triple: triple, CPU: cpu, Features: features, Fast: true}} {
		object, err := l.Compile(code, target, []string{"wherry_reply"})
		if err != nil {
			t.Fatal(err)
		}
		// (12345·2^64 + 678901234567890) / 1000003 and its rest: low 64 bits, as arbitrary precision has them.
		if out, want := linked(t, object, program), "24: 227724373095726362 88324 142873"; out != want {
			t.Errorf("fast %v: it says %q; want %q", target.Fast, out, want)
		}
	}
}

// linked is what a program says that has an object.
func linked(t *testing.T, object []byte, program string) string {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(file("f.o"), object, 0o600), os.WriteFile(file("main.c"), []byte(program), 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("clang", file("main.c"), file("f.o"), "-o", file("main")).CombinedOutput(); err != nil {
		t.Fatalf("linking: %v\n%s", err, out)
	}
	out, err := exec.Command(file("main")).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestRefused: what a function may not have, and what it is told.
func TestRefused(t *testing.T) {
	l := library(t, "")
	plain := entry("return wherry_reply(payload, size);")
	good := bitcode(t, plain, host)
	cases := []struct {
		name, want string
		code       []byte
	}{
		{"nothing", "it is empty", nil},
		{"no bitcode", "cannot read it", []byte("BC\xc0\xde nothing of the kind")},
		{"cut off", "cannot read it", good[:len(good)/2&^3]},
		{"other processor", `the module is for "aarch64"`, bitcode(t, plain, "aarch64-unknown-linux-gnu")},
		{"no entry", "does not define wherry_main", bitcode(t, "int f(void) { return 1; }", host)},
		{"entry's type", "is not int32_t wherry_main(", bitcode(t, "long wherry_main(long a) { return a; }", host)},
		{"assembly", "assembly at file level", bitcode(t, `__asm__(".globl x\nx: ret");`+"\n"+plain, host)},
		{"inline assembly", "has inline assembly", bitcode(t, entry(`__asm__ volatile("syscall"); return 0;`), host)},
		{"thread-local", "x is thread-local", bitcode(t, "static __thread int x;\n"+entry("return x += size;"), host)},
		{"ifunc", "is an ifunc", bitcode(t, "static int a(void) { return 1; } static void *pick(void) { return a; } int f(void) __attribute__((ifunc(\"pick\")));\n"+entry("return f();"), host)},
		{"constructor", "has constructors", bitcode(t, "__attribute__((constructor)) static void f(void) {}\n"+plain, host)},
		{"system", "calls system, which is no host call that its manifest lists in imports (wherry_reply)", bitcode(t, "int system(const char *);\n"+entry(`return system("true");`), host)},
		{"host call", "calls wherry_put", bitcode(t, entry("return wherry_put(0, 0, 0, payload, size);"), host)},
		{"variable", "environ is declared but not defined", bitcode(t, "extern char **environ;\n"+entry("return !environ;"), host)},
		{"section of a name like LLVM's", `into section ".init_array"`, bitcode(t, "__attribute__((section(\".init_array\"), used)) int x __asm__(\"llvm.x\") = 1;\n"+plain, host)},
		{"section", `into section ".init_array"`, bitcode(t, "__attribute__((section(\".init_array\"))) int x = 1;\n"+plain, host)},
		{"contraction", "compile with -ffp-contract=off", bitcode(t, entry("const double *d = payload; double r = d[0] * d[1] + d[2]; return wherry_reply(&r, 8);"), host, "-ffp-contract=on")},
		{"fast floats", "compile without -ffast-math", bitcode(t, entry("const double *d = payload; double r = d[0] + d[1]; return wherry_reply(&r, 8);"), host, "-ffast-math")},
		{"processor's intrinsic", "not among the intrinsics", bitcode(t, entry("return (int)__builtin_ia32_rdtsc();"), host)},
		{"variable arguments", "it uses llvm.va_start", bitcode(t, "int f(int n, ...) { __builtin_va_list v; __builtin_va_start(v, n); return __builtin_va_arg(v, int); }\n"+entry("return f(1, 2);"), host)},
		{"no such libcall", "code that LLVM makes of it calls fmod", bitcode(t, entry("const double *d = payload; double r = __builtin_fmod(d[0], d[1]); return wherry_reply(&r, 8);"), host, "-fbuiltin", "-fno-math-errno")},
	}
	for _, c := range cases {
		object, err := l.Compile(c.code, targets[0], []string{"wherry_reply"})
		var refused *Refused
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d bytes, %v; want %q", c.name, len(object), err, c.want)
		}
	}
	if object, err := l.Compile(good, targets[0], []string{"wherry_reply"}); err != nil || len(object) == 0 {
		t.Errorf("after all that: %v", err)
	}
}

// TestNewer: an LLVM says that it cannot read what a newer one wrote.
func TestNewer(t *testing.T) {
	newer, older := library(t, "libLLVM.so.22.1"), library(t, "libLLVM.so.19.1")
	write, err := purego.Dlsym(newer.handle, "LLVMWriteBitcodeToMemoryBuffer")
	if err != nil {
		t.Fatal(err)
	}
	ctx := call(newer.ContextCreate)
	defer call(newer.ContextDispose, ctx)
	m, err := newer.parse(ctx, bitcode(t, entry("uint64_t v = *(const uint64_t *)payload; return wherry_reply(&v, size);"), host))
	if err != nil {
		t.Fatal(err)
	}
	defer call(newer.DisposeModule, m)
	tm, err := newer.targetMachine(targets[0])
	if err != nil {
		t.Fatal(err)
	}
	newer.retarget(m, tm, host)
	if err := newer.optimise(m, tm, targets[0]); err != nil { // which writes down what it found out, in words of its own
		t.Fatal(err)
	}
	buffer := call(write, m)
	defer call(newer.DisposeMemoryBuffer, buffer)
	code := bytes.Clone(memory(call(newer.GetBufferStart, buffer), call(newer.GetBufferSize, buffer)))
	if _, err := newer.Compile(code, targets[0], []string{"wherry_reply"}); err != nil {
		t.Errorf("LLVM %s, which wrote it: %v", newer.Version(), err)
	}
	_, err = older.Compile(code, targets[0], []string{"wherry_reply"})
	var refused *Refused
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "LLVM "+older.Version()+" cannot read it, because it is damaged or a newer compiler made it: ") {
		t.Errorf("LLVM %s: %v", older.Version(), err)
	}
}

// TestTame: what the module says about processors, stacks and tables is taken away.
func TestTame(t *testing.T) {
	l := library(t, "")
	source := entry(`const double *d = payload; double sum = 0;
    for (uint32_t i = 0; i < size / 8; i++) sum += d[i] * d[i];
    return wherry_reply(&sum, 8);`)
	object := func(flags ...string) string {
		target := Target{Triple: host, CPU: "x86-64-v3"}
		o, err := l.Compile(bitcode(t, source, host, append(flags, "-Xclang", "-disable-llvm-passes")...), target, []string{"wherry_reply"})
		if err != nil {
			t.Fatal(err)
		}
		f, err := elf.NewFile(bytes.NewReader(o))
		if err != nil {
			t.Fatal(err)
		}
		text, err := f.Section(".text").Data()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x", text)
	}
	if object() != object("-fstack-protector-all", "-funwind-tables", "-march=znver3") {
		t.Error("a stack protector, unwind tables or another processor in the module change its code")
	}
}

// TestLeftToTheTarget: bitcode that fn build makes leaves vectors and unrolling to the processor that runs it. Once they are
// chosen for the least of its kind, no optimiser makes anything else of them.
func TestLeftToTheTarget(t *testing.T) {
	l := library(t, "")
	source := entry("const uint64_t *p = payload; uint64_t s = 0; for (uint32_t i = 0; i < size / 8; i++) s += p[i]; return wherry_reply(&s, 8);")
	img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "sum.c", Code: []byte(source)}, image.Manifest{Name: "sum"},
		cbuild.Options{Forms: []image.Form{image.LLVMBitcode}})
	if errors.Is(err, cbuild.ErrNoCompiler) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	show, err := purego.Dlsym(l.handle, "LLVMPrintModuleToString")
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		e, _ := img.Entry(image.LLVMBitcode, target.Triple)
		if text := moduleText(t, l, show, e.Code); strings.Contains(text, " x i64>") || strings.Count(text, "load i64") != 1 || strings.Contains(text, "alloca i32") {
			t.Errorf("%s: the sender has chosen vectors, has unrolled, or has not simplified:\n%s", target.Triple, text)
		}
		if _, err := l.Compile(e.Code, target, []string{"wherry_reply"}); err != nil {
			t.Error(err)
		}
	}
}

// moduleText is a module as text.
func moduleText(t *testing.T, l *Library, show uintptr, code []byte) string {
	t.Helper()
	ctx := call(l.ContextCreate)
	defer call(l.ContextDispose, ctx)
	m, err := l.parse(ctx, code)
	if err != nil {
		t.Fatal(err)
	}
	defer call(l.DisposeModule, m)
	return l.message(call(show, m))
}

// TestStackProbes: no frame, however large, steps over the guard page below a stack.
func TestStackProbes(t *testing.T) {
	l := library(t, "")
	probe := []byte{0x48, 0xc7, 0x04, 0x24, 0, 0, 0, 0} // movq $0, (%rsp)
	for size, want := range map[string]bool{"64": false, "(1 << 20)": true} {
		code := bitcode(t, entry("uint8_t room["+size+"]; return wherry_reply(room, size);"), host)
		object, err := l.Compile(code, targets[0], []string{"wherry_reply"})
		if err != nil || bytes.Contains(object, probe) != want {
			t.Errorf("a frame of %s bytes: probes %v, %v", size, bytes.Contains(object, probe), err)
		}
	}
}

func TestIntrinsics(t *testing.T) {
	for name, ok := range map[string]bool{
		"llvm.memcpy.p0.p0.i64": true, "llvm.memcpy.p0i8.p0i8.i64": false, "llvm.ctpop.v4i64": true, "llvm.vector.reduce.add.v8i32": true,
		"llvm.uadd.with.overflow.i64": true, "llvm.trap": true, "llvm.experimental.noalias.scope.decl": true, "llvm.floor.v2f64": true,
		"llvm.memcpy.element.unordered.atomic.p0.p0.i64": false, "llvm.x86.rdtsc": false, "llvm.fma.f64": false, "llvm.returnaddress": false,
		"llvm.sin.f64": false, "llvm.eh.sjlj.setjmp": false, "llvm.": false, "llvm.vector.reduce.fadd.v4f32": false, "llvm.read_register.i64": false,
	} {
		if err := checkIntrinsic(name); (err == nil) != ok {
			t.Errorf("%s: %v, want it allowed: %v", name, err, ok)
		}
	}
}

func TestNoLibrary(t *testing.T) {
	_, h := Describe("libLLVM.so.none")
	if !strings.Contains(h.Why, "apt-get install libllvm22") || h.Triple != "" {
		t.Errorf("%+v", h)
	}
}
