package cbuild

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/native/worker"
	"github.com/wherry-fabric/wherry/sdk"
)

func needTools(t *testing.T) Tools {
	t.Helper()
	tools, err := FindTools()
	if errors.Is(err, ErrNoCompiler) {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

const sumSource = `#include "wherry.h"
#include "start.h"
WHERRY_ENTRY(payload, size)
{
    wherry_window_t w;
    WHERRY_TRY(wherry_window(0, &w));
    const uint64_t *row = w.addr;
    uint64_t sum = START + EXTRA;
    for (uint64_t i = 0; i < w.size / sizeof *row; i++)
        sum += row[i];
    return wherry_reply(&sum, sizeof sum);
}
`

func sum() Source {
	return Source{Name: "sum.c", Code: []byte(sumSource), Includes: map[string][]byte{"start.h": []byte("#define START 1\n")}}
}

func TestBuild(t *testing.T) {
	needTools(t)
	opts := Options{Defines: map[string]string{"EXTRA": "2"}}
	img, err := Build(t.Context(), sum(), image.Manifest{Name: "sum", Imports: []string{"log"}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	m := img.Manifest()
	source := sum()
	if got := strings.Join(m.Imports, " "); got != "reply window" || m.Source != source.Hash() {
		t.Errorf("imports %q, source %s", got, m.Source)
	}
	again, err := Build(t.Context(), sum(), image.Manifest{Name: "sum"}, opts)
	if err != nil || again.ID() != img.ID() {
		t.Errorf("the same source gives %v (%v), then %v", img.ID(), err, again)
	}
	e, _ := img.Entry(image.Wasm, "")
	if bytes.Contains(e.Code, []byte("wherry-build")) || bytes.Contains(e.Code, []byte("clang")) {
		t.Error("the module names the folder or the compiler that made it")
	}
	if _, err := Build(t.Context(), sum(), image.Manifest{Name: "sum", ABI: 1}, opts); !errors.Is(err, ErrSource) || !strings.Contains(err.Error(), "wherry.h is of version") {
		t.Errorf("a manifest of ABI 1: %v", err)
	}
}

// The examples that people read first must compile: in the header, and in README.md.
// TestNames: a trap's stack shows the functions by the names they have in the source.
func TestNames(t *testing.T) {
	needTools(t)
	src := Source{Name: "f.c", Code: []byte(`#include "wherry.h"
static __attribute__((noinline)) int stray(const char *at) { return *(volatile const char *)at; }
WHERRY_ENTRY(payload, size) { return stray((const char *)payload + size); }
`)}
	for _, bare := range []bool{false, true} {
		code, err := Compile(t.Context(), src, Options{Bare: bare})
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(code, []byte("stray")) == bare || bytes.Contains(code, []byte("f.c")) {
			t.Errorf("bare %v: %q", bare, code)
		}
	}
}

// TestLargeFrame: a function whose frame is larger than wasm's stack is refused as wasm, and is native code all the same unless it is larger than that stack.
func TestLargeFrame(t *testing.T) {
	needTools(t)
	large := func(bytes string) Source {
		return Source{Name: "f.c", Code: []byte(`#include "wherry.h"
WHERRY_ENTRY(payload, size)
{
    volatile uint8_t large[` + bytes + `];
    for (uint64_t i = 0; i < sizeof large; i++)
        large[i] = (uint8_t)(i + size);
    return large[size % sizeof large];
}
`)}
	}
	for _, optimize := range []string{"", "0", "s"} {
		if _, err := Compile(t.Context(), large("65000"), Options{Optimize: optimize}); err != nil {
			t.Errorf("65,000 bytes with %q: %v", optimize, err)
		}
		_, err := Compile(t.Context(), large("100000"), Options{Optimize: optimize})
		if err == nil || !strings.Contains(err.Error(), "exceeds limit (65536) in 'wherry_main'") || !strings.Contains(err.Error(), "stack has 64 KiB, and native code's 1 MiB: keep large arrays static or in scratch") {
			t.Errorf("100,000 bytes with %q: %v", optimize, err)
		}
	}
	if _, err := Build(t.Context(), large("100000"), image.Manifest{Name: "f"}, Options{Forms: []image.Form{image.ELF}}); err != nil {
		t.Errorf("as native code: %v", err)
	}
	for _, form := range []image.Form{image.ELF, image.LLVMBitcode} {
		for _, target := range Processors() {
			for _, o := range []Options{{}, {Optimize: "0"}, {Lines: true}} {
				o.Forms, o.Targets = []image.Form{form}, []string{target}
				if _, err := Build(t.Context(), large("1000000"), image.Manifest{Name: "f"}, o); err != nil {
					t.Errorf("1,000,000 bytes as %v for %s: %v", form, target, err)
				}
				_, err := Build(t.Context(), large("1<<20"), image.Manifest{Name: "f"}, o)
				if err == nil || !strings.Contains(err.Error(), target+"-unknown-linux-gnu: wherry_main has 1048") || !strings.Contains(err.Error(), "native code's stack has 1 MiB: keep large arrays static or in scratch") {
					t.Errorf("1 MiB as %v for %s: %v", form, target, err)
				}
			}
		}
	}
}

func TestExamplesCompile(t *testing.T) {
	tools := needTools(t)
	header := sdk.Header()
	from := strings.Index(header, " *     #include \"wherry.h\"")
	to := strings.Index(header, " *     wherry fn build sum.c")
	if from < 0 || to < from {
		t.Fatal("wherry.h does not begin with an example")
	}
	example := strings.ReplaceAll(header[from:to], "\n *     ", "\n")
	example = strings.TrimPrefix(strings.ReplaceAll(example, "\n *\n", "\n\n"), " *     ")
	readme, err := os.ReadFile("../../../sdk/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```c\n")
	code, _, ok := strings.Cut(rest, "```")
	_, rest, _ = strings.Cut(rest, "```json\n")
	manifest, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("README.md has no C and JSON blocks")
	}
	m, err := image.ParseManifest([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"wherry.h": example, "README.md": code} {
		if _, err := Build(t.Context(), Source{Name: "sum.c", Code: []byte(text)}, m, Options{Tools: tools}); err != nil {
			t.Errorf("example in %s: %v\n%s", name, err, text)
		}
	}
}

// A header that is included in C++, or compiled without a warning switched off, stays usable.
func TestHeaderHelpers(t *testing.T) {
	needTools(t)
	const code = `#include "wherry.h"
typedef struct { wherry_str_t name; uint64_t n; } row_t;
static uint8_t buffer[4096];
WHERRY_ENTRY(payload, size)
{
    wherry_bump_t b;
    if (!wherry_bump_init(&b, 1 << 16))
        return WHERRY_ERR_LIMIT;
    wherry_set_t set = {(uint64_t *)wherry_bump(&b, 1024 * 8), 1024, 0};
    wherry_rows_t out;
    wherry_rows_init(&out, buffer, sizeof buffer, sizeof(row_t));
    wherry_rows_string(&out, offsetof(row_t, name));
    const uint8_t *p = (const uint8_t *)payload;
    for (uint32_t i = 0; i < size; i++) {
        if (wherry_set_add(&set, p[i]) != 1 || !wherry_set_has(&set, p[i]))
            continue;
        row_t *r = (row_t *)wherry_rows_add(&out, 1);
        if (!r)
            return out.status;
        wherry_rows_put(&out, &r->name, p + i, 1);
        r->n = i;
    }
    return wherry_rows_reply(&out);
}
`
	if _, err := Build(t.Context(), Source{Name: "f.c", Code: []byte(code)}, image.Manifest{Name: "f"}, Options{}); err != nil {
		t.Error(err)
	}
}

func TestCompileErrors(t *testing.T) {
	tools := needTools(t)
	var ce *CompileError
	for name, tc := range map[string]struct {
		code, tool, says string
	}{
		"syntax":      {"int x = ;", "clang", "function.c:1:9: error"},
		"no entry":    {"int x;", "wasm-ld", "the source has no WHERRY_ENTRY("},
		"no header":   {"#include <stdio.h>\nint x;", "clang", "stdio.h"},
		"absolute":    {"#include \"/etc/passwd\"\n", "clang", "error"},
		"outside":     {"#include \"../secret.h\"\n", "clang", "secret.h"},
		"no function": {"#include \"wherry.h\"\nextern int puts(const char *);\nWHERRY_ENTRY(p, n) { return puts(\"x\"); }", "wasm-ld", "undefined symbol: puts"},
	} {
		_, err := Compile(t.Context(), Source{Name: "function.c", Code: []byte(tc.code)}, Options{Tools: tools})
		if !errors.As(err, &ce) || ce.Tool != tc.tool || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want one of %s with %q", name, err, tc.tool, tc.says)
		}
	}
}

func TestSourceErrors(t *testing.T) {
	good := Tools{Clang: "/nonexistent/clang", Linker: "/nonexistent/wasm-ld"}
	for name, src := range map[string]Source{
		"folder":        {Name: "a/b.c"},
		"parent":        {Name: "../b.c"},
		"flag":          {Name: "-b.c"},
		"empty":         {},
		"rust":          {Name: "f.rs"},
		"include":       {Name: "f.c", Includes: map[string][]byte{"/etc/x.h": nil}},
		"itself":        {Name: "f.c", Includes: map[string][]byte{"f.c": nil}},
		"large":         {Name: "f.c", Code: make([]byte, MaxSourceBytes+1)},
		"large include": {Name: "f.c", Includes: map[string][]byte{"x.h": make([]byte, MaxSourceBytes+1)}},
	} {
		if _, err := Compile(t.Context(), src, Options{Tools: good}); !errors.Is(err, ErrSource) {
			t.Errorf("%s: %v, want ErrSource", name, err)
		}
	}
	var ce *CompileError
	if _, err := Compile(t.Context(), Source{Name: "f.c"}, Options{Tools: good}); !errors.As(err, &ce) {
		t.Errorf("a compiler that is not there: %v", err)
	}
}

func script(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestFindTools(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := FindTools(); !errors.Is(err, ErrNoCompiler) || !strings.Contains(err.Error(), Install) {
		t.Errorf("nothing installed: %v", err)
	}
	script(t, dir, "clang-14", "echo Debian clang version 14.0.6")
	script(t, dir, "wasm-ld-14", "")
	tools, err := FindTools()
	if err != nil || tools.Clang != filepath.Join(dir, "clang-14") || tools.Linker != filepath.Join(dir, "wasm-ld-14") {
		t.Errorf("versioned names: %+v, %v", tools, err)
	}
	script(t, dir, "clang", "echo 'Ubuntu clang version 18.1.3 (1ubuntu1)'")
	if tools, err = FindTools(); err != nil || filepath.Base(tools.Clang) != "clang-14" {
		t.Errorf("clang without a linker of its own: %+v, %v", tools, err)
	}
	script(t, dir, "wasm-ld", "")
	if tools, err = FindTools(); err != nil || filepath.Base(tools.Clang) != "clang" {
		t.Errorf("plain names: %+v, %v", tools, err)
	}
	if v, err := tools.Version(t.Context()); err != nil || v != "18.1.3" {
		t.Errorf("version %q, %v", v, err)
	}
	if tools, err = FindToolsVersion(t.Context(), 18); err != nil || filepath.Base(tools.Clang) != "clang" {
		t.Errorf("version 18: %+v, %v", tools, err)
	}
	if tools, err = FindToolsVersion(t.Context(), 14); err != nil || filepath.Base(tools.Clang) != "clang-14" {
		t.Errorf("version 14: %+v, %v", tools, err)
	}
	if _, err = FindToolsVersion(t.Context(), 16); !errors.Is(err, ErrNoCompiler) || !strings.Contains(err.Error(), "clang-16 lld-16") {
		t.Errorf("version 16: %v", err)
	}
	script(t, dir, "clang", "echo gcc")
	if _, err := (Tools{Clang: filepath.Join(dir, "clang")}).Version(t.Context()); err == nil {
		t.Error("a compiler that names no version is accepted")
	}
}

// A compiler that hangs is stopped, and one that talks without end is cut short.
func TestCompilerMisbehaves(t *testing.T) {
	dir := t.TempDir()
	script(t, dir, "hangs", "exec /bin/sleep 100")
	script(t, dir, "talks", "i=0; while [ $i -lt 3000 ]; do echo 'an error message of some length, and then some more'; i=$((i+1)); done; exit 1")
	script(t, dir, "idle", "")
	start := time.Now()
	_, err := Compile(t.Context(), Source{Name: "f.c"}, Options{Tools: Tools{Clang: filepath.Join(dir, "hangs"), Linker: "x"}, Timeout: 50 * time.Millisecond})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	var ce *CompileError
	_, err = Compile(t.Context(), Source{Name: "f.c"}, Options{Tools: Tools{Clang: filepath.Join(dir, "talks"), Linker: "x"}})
	if !errors.As(err, &ce) || len(ce.Message) != maxMessageBytes {
		t.Errorf("%d bytes of messages kept, want %d", len(ce.Message), maxMessageBytes)
	}
	idle := filepath.Join(dir, "idle")
	if _, err = Compile(t.Context(), Source{Name: "f.c"}, Options{Tools: Tools{Clang: idle, Linker: idle}}); err == nil || !strings.Contains(err.Error(), "wrote nothing") {
		t.Errorf("a linker that writes nothing: %v", err)
	}
}

// What is refused at build is what would not run.
func TestNativeStack(t *testing.T) {
	if nativeStackBytes != worker.StackBytes {
		t.Errorf("frames are held against a stack of %d bytes, a worker's has %d", nativeStackBytes, worker.StackBytes)
	}
}
