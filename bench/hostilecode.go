package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/native/worker"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/schema"
	"github.com/wherry-fabric/wherry/sdk"
)

// hostile functions, by name.
var hostile = []struct{ name, body string }{
	{"spin", "for (volatile int i = 0;; i = 1 - i) ;"},
	{"stray", "*(volatile int *)(uintptr_t)0xFFFFFFF0u = 1; return 0;"},
	{"deep", "return deep(payload, size);"},
}

const hostileHead = `#include "wherry.h"
static __attribute__((noinline, unused)) int32_t deep(const void *p, uint32_t n)
{
    volatile char frame[4096];
    frame[n & 4095] = 1;
    return deep(p, n + 1) + frame[n & 4095];
}
WHERRY_ENTRY(payload, size) { (void)payload, (void)size; `

// Functions that fill their heaps, each in code of its own, and do not end.
const (
	fillers   = 8
	fillEach  = 4 // runs
	fillBytes = 24 << 20
	fillTime  = 2 * time.Second
	fillCode  = `#include "wherry.h"
WHERRY_ENTRY(payload, size)
{
    (void)payload, (void)size;
    if (__builtin_wasm_memory_grow(0, (24u << 20) >> 16) == (unsigned long)-1) return 1;
    unsigned char *end = (unsigned char *)(__builtin_wasm_memory_size(0) << 16);
    for (unsigned char *p = end - (24u << 20); p < end; p += 4096) *(volatile unsigned char *)p = %d + 1;
    for (volatile int i = 0;; i = 1 - i) ;
}
`
)

// hostile builds them, and what is meant for compilers: a large function, and as bitcode also a small one that grows.
func (b *builder) hostile() error {
	limits := abi.Limits{RunTime: hostileTime}
	for _, h := range hostile {
		src := cbuild.Source{Name: h.name + ".c", Code: []byte(hostileHead + h.body + " }\n")}
		if err := b.build(src, image.Manifest{Name: h.name, Limits: limits}, nil); err != nil {
			return err
		}
	}
	if err := b.hostileWasm(); err != nil {
		return err
	}
	if err := b.ready(xrdma.Echo(), "echo"); err != nil {
		return err
	}
	large := "#include \"wherry.h\"\nWHERRY_ENTRY(payload, size) { const uint64_t *p = payload; uint64_t v = size;\n"
	for i := range 300 {
		large += fmt.Sprintf("if (p[v %% %d] > v) v = v * %d + p[%d]; else v ^= p[v & %d];\n", i+1, 2*i+1, i, i)
	}
	src := cbuild.Source{Name: "large.c", Code: []byte(large + "return wherry_reply(&v, 8); }\n")}
	if err := b.build(src, image.Manifest{Name: "large"}, nil); err != nil {
		return err
	}
	if b.forms[0] != image.LLVMBitcode {
		return nil
	}
	return b.bomb()
}

// gets is a function that copies a window of its own element over and over, getBytes at a time.
const (
	getBytes = 128 << 20
	getsCode = `#include "wherry.h"
WHERRY_ENTRY(payload, size)
{
    (void)payload, (void)size;
    if (__builtin_wasm_memory_grow(0, (128u << 20) >> 16) == (unsigned long)-1) return 1;
    unsigned char *to = (unsigned char *)((__builtin_wasm_memory_size(0) << 16) - (128u << 20));
    for (;;) if (wherry_get(wherry_self(), 0, 0, to, 128u << 20) != 0) return 2;
}
`
)

// derives is a function that forks as many derived from it as it can, which do not end.
const derivesCode = `#include "wherry.h"
WHERRY_ENTRY(payload, size)
{
    uint64_t k;
    if (wherry_constants(&k, sizeof k) == 0) for (volatile int i = 0;; i = 1 - i) ;
    for (k = 0; k < 60; k++) {
        uint64_t mine = k | (uint64_t)size << 32;
        int32_t f = wherry_derive(&mine, sizeof mine);
        if (f < 0 || wherry_fork(f, wherry_self(), payload, size) != 0) break;
    }
    return 0;
}
`

// hostileWasm builds what anybody may send, whatever form is measured: functions that never end, that fill their heaps, copy, and derive others.
func (b *builder) hostileWasm() error {
	w := *b
	w.forms = []image.Form{image.Wasm}
	type source struct {
		code string
		m    image.Manifest
	}
	all := []source{
		{hostileHead + hostile[0].body + " }\n", image.Manifest{Name: "endless", Limits: abi.Limits{RunTime: endlessTime}}},
		{hostileHead + "return deep(payload, size); }\n", image.Manifest{Name: "recursive", Limits: abi.Limits{RunTime: hostileTime}}},
		{getsCode, image.Manifest{Name: "gets", Windows: []image.Window{{Name: "wide"}}, Limits: abi.Limits{RunTime: hostileTime, HeapBytes: getBytes + 1<<20}}},
		{derivesCode, image.Manifest{Name: "derives", Limits: abi.Limits{RunTime: hostileTime}, Constants: &schema.Schema{Fields: []schema.Field{{Name: "k", Type: schema.U64}}}}},
	}
	for i := range fillers {
		all = append(all, source{fmt.Sprintf(fillCode, i), image.Manifest{Name: fmt.Sprint("fill", i), Limits: abi.Limits{RunTime: fillTime, HeapBytes: fillBytes + 1<<20}}})
	}
	for _, s := range all {
		if err := w.build(cbuild.Source{Name: s.m.Name + ".c", Code: []byte(s.code)}, s.m, nil); err != nil {
			return err
		}
	}
	return nil
}

// bomb is bitcode whose functions each call two copies of the one before: the compiler that inlines them has 2^40 additions to make. The sender has simplified
// nothing, so it is made without cbuild.
func (b *builder) bomb() error {
	bomb := "#include \"wherry.h\"\n#define I static inline __attribute__((always_inline)) uint64_t\nI f0(uint64_t x) { return x * x + 1; }\n"
	for i := range 40 {
		bomb += fmt.Sprintf("I f%d(uint64_t x) { return f%d(x) ^ f%d(x + 3); }\n", i+1, i, i)
	}
	bomb += "WHERRY_ENTRY(payload, size) { uint64_t v = size ? f40(size) : 7; return wherry_reply(&v, 8); }\n"
	if err := os.WriteFile(filepath.Join(b.dir, sdk.HeaderName), []byte(sdk.Header()), 0o600); err != nil {
		return err
	}
	triple, err := cbuild.Triple(worker.Arch)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(b.ctx, "clang", "--target="+triple, "-O2", "-ffreestanding", "-nostdlib", "-ffp-contract=off", "-fsigned-char", "-fPIC", "-emit-llvm",
		"-Xclang", "-disable-llvm-passes", "-I", b.dir, "-c", "-x", "c", "-", "-o", "-")
	cmd.Stdin = strings.NewReader(bomb)
	code, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("clang: %w", err)
	}
	img, err := image.Build(image.Manifest{Name: "bomb", ABI: abi.Version, Imports: []string{"reply"}}, image.Entry{Form: image.LLVMBitcode, Triple: triple, Code: code})
	if err == nil {
		img, err = img.Sign(b.key)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, "bomb.wfn"), img.Encode(), 0o600)
}
