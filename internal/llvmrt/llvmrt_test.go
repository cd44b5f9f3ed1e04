package llvmrt

import (
	"bytes"
	"debug/elf"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the bitcode")

// clang runs clang 14, which makes the bitcode: the oldest that is supported.
func clang(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("clang-14")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Fatalf("clang %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestBitcodeIsBuiltFromSource: the committed bitcode is what the source makes.
func TestBitcodeIsBuiltFromSource(t *testing.T) {
	for _, arch := range Arches() {
		made := filepath.Join(t.TempDir(), "runtime.bc")
		flags := []string{"--target=" + arch + "-unknown-linux-gnu", "-std=c11", "-O2", "-ffreestanding", "-fno-builtin", "-nostdlib", "-ffp-contract=off",
			"-fsigned-char", "-fPIC", "-fno-ident", "-fno-stack-protector", "-Wall", "-Wextra", "-Werror", "-emit-llvm", "-c", "src/runtime.c", "-o", made}
		if arch == "riscv64" {
			flags = append(flags, "-mno-relax", "-march=rv64gc", "-mabi=lp64d")
		}
		clang(t, flags...)
		code, err := os.ReadFile(made)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(arch+".bc", code, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if committed, err := os.ReadFile(arch + ".bc"); err != nil || !bytes.Equal(code, committed) {
			t.Errorf("%s.bc is not what src/runtime.c makes (%v); run go generate ./internal/llvmrt", arch, err)
		}
	}
	if Bitcode("x86_64-unknown-linux-gnu") == "" || Bitcode("sparc-linux") != "" {
		t.Error("Bitcode goes by something else than the processor")
	}
}

// check compares the runtime's functions, under other names, with the compiler's and the C library's own.
const check = `#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned __int128 U; typedef __int128 I;
#define MEMORY(ret, name, ...) ret rt_##name(__VA_ARGS__);
MEMORY(void *, memcpy, void *, const void *, unsigned long) MEMORY(void *, memmove, void *, const void *, unsigned long)
MEMORY(void *, memset, void *, int, unsigned long) MEMORY(int, memcmp, const void *, const void *, unsigned long)
U rt___udivti3(U, U), rt___umodti3(U, U); I rt___divti3(I, I), rt___modti3(I, I), rt___multi3(I, I), rt___muloti4(I, I, int *), rt___ashlti3(I, int), rt___ashrti3(I, int); U rt___lshrti3(U, int);
double rt___floatuntidf(U), rt___floattidf(I); float rt___floatuntisf(U), rt___floattisf(I); U rt___fixunsdfti(double); I rt___fixdfti(double);
double rt_floor(double), rt_ceil(double), rt_trunc(double), rt_rint(double); float rt_floorf(float), rt_ceilf(float), rt_truncf(float), rt_rintf(float);
static unsigned long seed = 88172645463325252ul;
static unsigned long next(void) { seed ^= seed << 13; seed ^= seed >> 7; return seed ^= seed << 17; }
#define FAIL(what) do { printf("%s differs\n", what); exit(1); } while (0)
#define SAME(what, a, b) do { __typeof__(a) x_ = (a), y_ = (b); if (memcmp(&x_, &y_, sizeof x_)) FAIL(what); } while (0)
static int sign(int v) { return (v > 0) - (v < 0); }
int main(void)
{
    for (int i = 0; i < 200000; i++) {
        U n = ((U)next() << 64 | next()) >> next() % 128, d = (((U)next() << 64 | next()) >> next() % 128) | 1;
        I sn = next() & 1 ? -(I)n : (I)n, sd = next() & 1 ? -(I)d : (I)d;
        SAME("udiv", rt___udivti3(n, d), n / d); SAME("umod", rt___umodti3(n, d), n % d);
        SAME("div", rt___divti3(sn, sd), sn / sd); SAME("mod", rt___modti3(sn, sd), sn % sd);
        SAME("mul", (U)rt___multi3(n, d), n * d);
        int by = (int)(next() % 128), over;
        SAME("shl", (U)rt___ashlti3(sn, by), (U)sn << by); SAME("lshr", rt___lshrti3((U)sn, by), (U)sn >> by); SAME("ashr", rt___ashrti3(sn, by), sn >> by);
        I product = rt___muloti4(sn, sd, &over);
        U x = sn < 0 ? -(U)sn : (U)sn, y = sd < 0 ? -(U)sd : (U)sd, most = ((U)1 << 127) - ((sn < 0) == (sd < 0));
        SAME("mulo", (U)product, (U)sn * (U)sd); SAME("mulo's overflow", !over, x <= most / y);
        SAME("u to double", rt___floatuntidf(n), (double)n); SAME("to double", rt___floattidf(sn), (double)sn);
        SAME("u to float", rt___floatuntisf(n >> 2), (float)(n >> 2)); SAME("to float", rt___floattisf(sn), (float)sn);
        double v = (double)(long)next() / (double)(1ul << next() % 64);
        if (i % 7 == 0) v = (double)(long)(next() % 64) / 2 - 16;
        if (i % 1001 == 0) v = i & 1 ? INFINITY : -0.0;
        float f = (float)v;
        SAME("floor", rt_floor(v), floor(v)); SAME("ceil", rt_ceil(v), ceil(v)); SAME("trunc", rt_trunc(v), trunc(v)); SAME("rint", rt_rint(v), rint(v));
        SAME("floorf", rt_floorf(f), floorf(f)); SAME("ceilf", rt_ceilf(f), ceilf(f)); SAME("truncf", rt_truncf(f), truncf(f)); SAME("rintf", rt_rintf(f), rintf(f));
        double big = ldexp((double)next(), (int)(next() % 63) - 3);
        SAME("double to u", rt___fixunsdfti(big), (U)big); SAME("double to i", rt___fixdfti(-big), (I)-big);
        unsigned char a[96], b[96], c[96];
        for (int k = 0; k < 96; k++) a[k] = b[k] = (unsigned char)next(), c[k] = next() % 9 ? a[k] : 0;
        unsigned from = next() % 48, to = next() % 48, size = next() % 48;
        memmove(a + to, a + from, size); rt_memmove(b + to, b + from, size); if (memcmp(a, b, 96)) FAIL("memmove");
        memset(a + to, (int)size, size); rt_memset(b + to, (int)size, size); if (memcmp(a, b, 96)) FAIL("memset");
        if (sign(rt_memcmp(a + from, c + from, size)) != sign(memcmp(a + from, c + from, size))) FAIL("memcmp");
        rt_memcpy(b, c, size); memcpy(a, c, size); if (memcmp(a, b, 96)) FAIL("memcpy");
    }
    return 0;
}
`

func TestRuntime(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(file("check.c"), []byte(check), 0o600); err != nil {
		t.Fatal(err)
	}
	clang(t, "-O1", "-ffreestanding", "-fno-builtin", "-ffp-contract=off", "-c", "src/runtime.c", "-o", file("runtime.o"))
	if out, err := exec.Command("objcopy", "--prefix-symbols=rt_", file("runtime.o")).CombinedOutput(); err != nil {
		t.Fatalf("objcopy: %v\n%s", err, out)
	}
	clang(t, "-O1", "-fno-builtin", "-ffp-contract=off", "-Wall", file("check.c"), file("runtime.o"), "-o", file("check"), "-lm")
	if out, err := exec.Command(file("check")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestHas: the list of names is that of the functions which the runtime defines.
func TestHas(t *testing.T) {
	object := filepath.Join(t.TempDir(), "runtime.o")
	clang(t, "-ffreestanding", "-c", "src/runtime.c", "-o", object)
	f, err := elf.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	defined := 0
	for _, s := range symbols {
		if elf.ST_BIND(s.Info) == elf.STB_GLOBAL {
			if defined++; !Has(s.Name) {
				t.Errorf("the source has the symbol %s, Has does not know it", s.Name)
			}
		}
	}
	if defined < 25 || Has("system") {
		t.Errorf("%d functions; Has(system) is %v", defined, Has("system"))
	}
}
