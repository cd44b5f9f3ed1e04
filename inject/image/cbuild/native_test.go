package cbuild

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/image"
)

// chase is the papers' pointer chase.
func chase(t *testing.T) Source {
	t.Helper()
	code, err := os.ReadFile("../../xrdma/src/chase.c")
	if err != nil {
		t.Fatal(err)
	}
	return Source{Name: "chase.c", Code: code}
}

// TestForms builds one source in every form for three processors.
func TestForms(t *testing.T) {
	needTools(t)
	opts := Options{Forms: []image.Form{image.Wasm, image.LLVMBitcode, image.ELF}}
	img, err := Build(t.Context(), chase(t), image.Manifest{Name: "chase"}, opts)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range img.Entries() {
		got = append(got, e.Form.String()+" "+strings.TrimSuffix(e.Triple, "-unknown-linux-gnu"))
		if e.Form != image.Wasm && len(e.Code) > 8<<10 {
			t.Errorf("%v for %s has %d bytes", e.Form, e.Triple, len(e.Code))
		}
	}
	want := []string{"wasm32 ", "llvm-bitcode aarch64", "llvm-bitcode riscv64", "llvm-bitcode x86_64", "elf aarch64", "elf riscv64", "elf x86_64"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	opts.Forms, opts.Targets = []image.Form{image.LLVMBitcode}, []string{"arm64"}
	alone, err := Build(t.Context(), chase(t), image.Manifest{Name: "chase"}, opts)
	if err != nil {
		t.Fatal(err)
	}
	if e := alone.Entries(); len(e) != 1 || e[0].Triple != "aarch64-unknown-linux-gnu" {
		t.Errorf("%d entries", len(e))
	}
	if !slices.Equal(alone.Manifest().Imports, img.Manifest().Imports) {
		t.Errorf("bitcode alone imports %q, wasm %q", alone.Manifest().Imports, img.Manifest().Imports)
	}
}

// TestObjectIsWhole: an object needs host calls and nothing else; what compilers call by themselves is in it.
func TestObjectIsWhole(t *testing.T) {
	needTools(t)
	src := Source{Name: "f.c", Code: []byte(`#include "wherry.h"
WHERRY_ENTRY(payload, size)
{
    const uint64_t *p = payload;
    unsigned __int128 q = ((unsigned __int128)p[0] << 64 | p[1]) / ((unsigned __int128)p[2] << 64 | p[3]);
    uint64_t answer = (uint64_t)q;
    return wherry_reply(&answer, sizeof answer);
}
`)}
	img, err := Build(t.Context(), src, image.Manifest{Name: "f"}, Options{Forms: []image.Form{image.ELF}})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range img.Entries() {
		f, err := elf.NewFile(bytes.NewReader(e.Code))
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := f.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range symbols {
			if s.Section == elf.SHN_UNDEF && s.Name != "" && s.Name != "wherry_reply" {
				t.Errorf("%s: %s is left open", e.Triple, s.Name)
			}
		}
		for _, s := range f.Sections {
			if strings.HasPrefix(s.Name, ".eh_frame") || strings.HasPrefix(s.Name, ".init") {
				t.Errorf("%s: there is a section %s", e.Triple, s.Name)
			}
		}
	}
}

func TestNativeErrors(t *testing.T) {
	tools := needTools(t)
	entry := "#include \"wherry.h\"\n%\nWHERRY_ENTRY(payload, size) { return "
	source := func(before, value string) Source {
		return Source{Name: "f.c", Code: []byte(strings.Replace(entry, "%", before, 1) + value + "; }\n")}
	}
	good := source("", "wherry_reply(payload, size)")
	const constructor = "static int x; __attribute__((constructor)) static void c(void) { x = 5 + (int)wherry_self(); }"
	bitcode := Options{Forms: []image.Form{image.LLVMBitcode}, Targets: []string{"x86_64"}}
	with := func(change func(*Options)) Options { o := bitcode; change(&o); return o }
	for _, c := range []struct {
		name, want string
		src        Source
		opts       Options
	}{
		{"another processor", `cannot be made for "sparc"; for x86_64, aarch64, riscv64 it can`, good, with(func(o *Options) { o.Targets = []string{"sparc"} })},
		{"another system", `cannot be made for "x86_64-apple-darwin"`, good, with(func(o *Options) { o.Targets = []string{"x86_64-apple-darwin"} })},
		{"twice", "x86_64-unknown-linux-gnu is among the targets twice", good, with(func(o *Options) { o.Targets = []string{"x86_64", "amd64"} })},
		{"a library's function", "calls system, which no element has", source("int system(const char *);", `system("")`), bitcode},
		{"no entry", "no WHERRY_ENTRY", Source{Name: "f.c", Code: []byte("int x;\n")}, bitcode},
		{"a constructor, as bitcode", `holds constructors or destructors; set in the function, in wherry_main, what they set`, source(constructor, "x"), bitcode},
		{"a constructor, as an object", "no element would load the code for aarch64-unknown-linux-gnu: elf: section \".init_array\" holds constructors", source(constructor, "x"),
			with(func(o *Options) { o.Forms, o.Targets = []image.Form{image.ELF}, []string{"aarch64"} })},
		{"a constructor, in each form", "holds constructors or destructors", source(constructor, "x"), with(func(o *Options) { o.Forms = []image.Form{image.Wasm, image.LLVMBitcode} })},
		{"no C", "error: ", source("", "{"), bitcode},
		{"other calls", "calls wherry_now, the wasm module does not", source("", "\n#ifdef __wasm__\n(int)wherry_remaining()\n#else\n(int)wherry_now()\n#endif\n"),
			with(func(o *Options) { o.Forms = []image.Form{image.Wasm, image.LLVMBitcode} })},
	} {
		_, err := Build(t.Context(), c.src, image.Manifest{Name: "f"}, c.opts)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// A linker is missed only where it is needed.
	bare := Tools{Clang: tools.Clang, Linker: filepath.Join(t.TempDir(), "wasm-ld-14")}
	if _, err := Build(t.Context(), good, image.Manifest{Name: "f"}, with(func(o *Options) { o.Tools = bare })); err != nil {
		t.Errorf("without a linker: %v", err)
	}
	long := source("__attribute__((noinline)) unsigned __int128 f(unsigned __int128 a) { return a / (a >> 9); }", "(int)f(size)")
	_, err := Build(t.Context(), long, image.Manifest{Name: "f"}, with(func(o *Options) { o.Tools = bare }))
	if err == nil || !strings.Contains(err.Error(), "ld.lld-14 is missing") || !strings.Contains(err.Error(), Install) {
		t.Errorf("no linker for objects: %v", err)
	}
}

// TestStd: what uses wherry_std.h is built in every form, and only what names it depends on it.
func TestStd(t *testing.T) {
	needTools(t)
	code, err := os.ReadFile("../../native/testdata/std.c")
	if err != nil {
		t.Fatal(err)
	}
	src := Source{Name: "std.c", Code: code}
	img, err := Build(t.Context(), src, image.Manifest{Name: "std"}, Options{Forms: []image.Form{image.Wasm, image.LLVMBitcode, image.ELF}})
	if err != nil {
		t.Fatal(err)
	}
	if got := img.Manifest().Imports; !slices.Equal(got, []string{"reply"}) {
		t.Errorf("it imports %q", got)
	}
	own := src
	own.Includes = map[string][]byte{"wherry_std.h": []byte("/* another */")}
	plain := sum()
	if _, there := plain.files()["wherry_std.h"]; there || own.Hash() == src.Hash() {
		t.Error("its header is no part of it, or one of what does not name it")
	}
}
