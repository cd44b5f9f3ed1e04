package elf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

//go:generate sh -c "cd testdata && sh build.sh"

const (
	testBase   = 0x10_0100_0000
	testSelf   = 0x10_0000_0100
	testReply  = 0x10_0000_0204
	testImport = "wherry_self"
)

func archNames() []string {
	var names []string
	for _, a := range arches() {
		names = append(names, a.name)
	}
	return names
}

func parts(t testing.TB, arch string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "parts."+arch+".o"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func rulesOf(arch string) Rules {
	return Rules{Arch: arch, Entry: "wherry_main", Imports: []string{"wherry_self", "wherry_reply"}}
}

func resolveTest(name string) (uint64, bool) {
	switch name {
	case "wherry_self":
		return testSelf, true
	case "wherry_reply":
		return testReply, true
	}
	return 0, false
}

func placed(t *testing.T, arch string) (*Object, *Image) {
	t.Helper()
	o, err := Parse(parts(t, arch), rulesOf(arch))
	if err != nil {
		t.Fatal(err)
	}
	img, err := o.Place(testBase, resolveTest)
	if err != nil {
		t.Fatal(err)
	}
	return o, img
}

// TestAsTheLinker: each object, put where this package puts it, has the bytes that LLVM's linker gives it there.
func TestAsTheLinker(t *testing.T) {
	for _, arch := range archNames() {
		t.Run(arch, func(t *testing.T) {
			o, img := placed(t, arch)
			linked := link(t, arch, o)
			compared := 0
			for _, s := range o.sections {
				if s.data == nil {
					continue
				}
				want := linked[s.name]
				if got := img.Bytes[s.at : s.at+s.size]; !bytes.Equal(got, want) {
					t.Errorf("section %s, at %#x, differs:\n%x\nlinked:\n%x", s.name, testBase+s.at, got, want)
				}
				compared++
			}
			first := o.got[o.gotOrder[0]]
			if want := linked[".got"][gotHead(arch):]; len(o.gotOrder) != 1 || !bytes.Equal(img.Bytes[first:first+gotEntry], want) {
				t.Errorf("the GOT is %x, linked %x", img.Bytes[first:first+gotEntry], want)
			}
			if compared < 4 {
				t.Errorf("only %d sections were compared", compared)
			}
		})
	}
}

// checkParts: the parts of an image lie in order, some way apart, within its bytes, and outside of them there is nothing but zeros.
func checkParts(t *testing.T, img *Image) {
	t.Helper()
	var end uint64
	for i, p := range img.Parts {
		if p.From >= p.To || p.To > uint64(len(img.Bytes)) || i > 0 && p.From < end+partGap {
			t.Fatalf("parts %v of %d bytes", img.Parts, len(img.Bytes))
		}
		if !zero(img.Bytes[end:p.From]) {
			t.Errorf("before part %d of %v there is something", i, img.Parts)
		}
		end = p.To
	}
	if !zero(img.Bytes[end:]) {
		t.Errorf("after the last of %v there is something", img.Parts)
	}
}

func zero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// TestParts: code, constants with the GOT, and data are a part each, whatever they consist of.
func TestParts(t *testing.T) {
	for _, arch := range archNames() {
		_, img := placed(t, arch)
		if checkParts(t, img); len(img.Parts) != 3 || img.Parts[0].From != 0 || img.Parts[1].From != img.Const || img.Parts[2].From != img.Data {
			t.Errorf("%s: parts %v, segments at %#x and %#x", arch, img.Parts, img.Const, img.Data)
		}
	}
}

// gotHead is what the linker puts before the first entry.
func gotHead(arch string) uint64 {
	if arch == "riscv64" {
		return gotEntry
	}
	return 0
}

// link has ld.lld link an object with its sections where o has them, and gives their content.
func link(t *testing.T, arch string, o *Object) map[string][]byte {
	t.Helper()
	var script strings.Builder
	script.WriteString("SECTIONS {\n")
	for _, s := range o.sections {
		fmt.Fprintf(&script, "%s %#x : { *(%s) }\n", s.name, testBase+s.at, s.name)
	}
	fmt.Fprintf(&script, ".got %#x : { *(.got) }\n/DISCARD/ : { *(.comment) *(.note*) *(.riscv.attributes) }\n}\n", testBase+o.got[o.gotOrder[0]]-gotHead(arch))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	cmd := exec.Command("ld.lld", "-static", "--no-relax", "--no-check-sections", "-z", "norelro", "-e", "wherry_main", "-T", filepath.Join(dir, "script"),
		fmt.Sprintf("--defsym=wherry_self=%#x", testSelf), fmt.Sprintf("--defsym=wherry_reply=%#x", testReply),
		"-o", out, filepath.Join("testdata", "parts."+arch+".o"))
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s\n%s", cmd.Args, err, text, script.String())
	}
	f, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := map[string][]byte{}
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && s.Type == elf.SHT_PROGBITS {
			if got[s.Name], err = s.Data(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return got
}

// TestImage: segments are apart, and functions are found by their addresses.
func TestImage(t *testing.T) {
	for _, arch := range archNames() {
		o, img := placed(t, arch)
		if img.Const%SegmentBytes != 0 || img.Data%SegmentBytes != 0 || img.Const == 0 || img.Data <= img.Const || img.Size < uint64(len(img.Bytes))+70000 {
			t.Errorf("%s: read-only data at %#x, data at %#x, %d bytes of %d", arch, img.Const, img.Data, len(img.Bytes), img.Size)
		}
		if got := o.DataBytes(); got != img.Size-img.Data {
			t.Errorf("%s: %d bytes of data", arch, got)
		}
		name, off, ok := img.Function(img.Entry + 4)
		if !ok || name != "wherry_main" || off != 4 {
			t.Errorf("%s: 4 bytes after the entry is %s+%d, %v", arch, name, off, ok)
		}
		if addr, ok := img.Address("wherry_main"); !ok || addr != img.Entry {
			t.Errorf("%s: wherry_main is at %#x, %v", arch, addr, ok)
		}
		for _, addr := range []uint64{0, testBase - 1, testBase + img.Const} {
			if name, _, ok := img.Function(addr); ok {
				t.Errorf("%s: %#x is in %s", arch, addr, name)
			}
		}
	}
}

// TestReach: what a relocation cannot reach is refused, and names the relocation.
func TestReach(t *testing.T) {
	for _, arch := range archNames() {
		o, err := Parse(parts(t, arch), rulesOf(arch))
		if err != nil {
			t.Fatal(err)
		}
		far := func(string) (uint64, bool) { return testBase + 1<<40, true }
		if _, err := o.Place(testBase, far); err == nil || !strings.Contains(err.Error(), outOfReach) || !strings.Contains(err.Error(), "R_") {
			t.Errorf("%s: imports far away: %v", arch, err)
		}
		none := func(string) (uint64, bool) { return 0, false }
		if _, err := o.Place(testBase, none); err == nil || !strings.Contains(err.Error(), "wherry_") {
			t.Errorf("%s: no imports: %v", arch, err)
		}
		if _, err := o.Place(testBase+4096, resolveTest); err == nil {
			t.Errorf("%s: placed at no multiple of a segment", arch)
		}
	}
}

// TestRefused: what an object must not have, compiled by clang.
func TestRefused(t *testing.T) {
	const main = "int wherry_main(const void *p, unsigned n) {"
	for _, c := range []struct{ name, source, flags, want string }{
		{"constructor", "int x; __attribute__((constructor)) void c(void) { *(volatile int *)&x = 1; } " + main + "return 0; }", "", "constructors"},
		{"destructor by name", "__attribute__((section(\".fini_array\"))) int x = 1; " + main + "return x; }", "", "constructors"},
		{"thread-local", "__thread int x; " + main + "return x; }", "-ftls-model=local-exec", "thread-local"},
		{"indirect function", "static int f(void) { return 0; } static void *r(void) { return f; } int g(void) __attribute__((ifunc(\"r\"))); " + main + "return g(); }", "", "indirect function"},
		{"unlisted import", "int wherry_put(void); " + main + "return wherry_put(); }", "", `"wherry_put" is defined nowhere`},
		{"library", "int system(const char *); " + main + "return system(p); }", "", `"system" is defined nowhere`},
		{"weak import", "int wherry_self(void) __attribute__((weak)); " + main + "return wherry_self ? 1 : 0; }", "", "weak"},
		{"common", "int x; " + main + "return x; }", "-fcommon", "common"},
		{"no entry", "int other(void) { return 0; }", "", "no global function wherry_main"},
		{"static entry", "static " + main + "return 0; } void *keep = wherry_main;", "", "no global function wherry_main"},
		{"entry is data", "int wherry_main = 3;", "", "no function"},
		{"writable code", "__asm__(\".section .wx,\\\"awx\\\",@progbits\\nnop\"); " + main + "return 0; }", "", "writable and executable"},
		{"alignment", "__attribute__((aligned(1048576))) int x = 1; " + main + "return x; }", "", "aligned to 1048576"},
		{"large", "char x[1u << 31]; " + main + "return x[n]; }", "", "at most 1073741824"},
		{"32-bit addresses", "int x; int *y = &x; " + main + "__asm__(\"movl $x, %eax\"); return *y; }", "", "R_X86_64_32 to x"},
		{"another processor", main + "return 0; }", "--target=aarch64-linux-gnu", "code for EM_AARCH64"},
		{"32 bits", main + "return 0; }", "--target=i386-linux-gnu", "ELFCLASS32"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(compile(t, c.source, c.flags), Rules{Arch: "x86_64", Entry: "wherry_main", Imports: []string{"wherry_self"}})
			var refused *Error
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want one that says %q", err, c.want)
			}
		})
	}
	if _, err := load(compile(t, main+"return 0; }", ""), rulesOf("x86_64")); err != nil {
		t.Errorf("an object with nothing wrong: %v", err)
	}
	if _, err := Parse(make([]byte, MaxBytes+1), rulesOf("x86_64")); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("too long an object: %v", err)
	}
	if _, err := Parse(nil, Rules{Arch: "m68k"}); err == nil || !strings.Contains(err.Error(), "m68k") {
		t.Errorf("an unknown processor: %v", err)
	}
}

// TestUnknownRelocation: one that has no name is named by its number, not as far from another.
func TestUnknownRelocation(t *testing.T) {
	b := compile(t, "int wherry_self(void); int wherry_main(const void *p, unsigned n) { return wherry_self() + 1; }", "")
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(b[f.Section(".rela.text").Offset+8:], 200) // the low half of r_info
	if _, err := load(b, rulesOf("x86_64")); err == nil || !strings.Contains(err.Error(), "the relocation 200 to wherry_self at ") {
		t.Error(err)
	}
}

func load(b []byte, rules Rules) (*Image, error) {
	o, err := Parse(b, rules)
	if err != nil {
		return nil, err
	}
	return o.Place(testBase, func(string) (uint64, bool) { return testSelf, true })
}

func compile(t *testing.T, source, flags string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "x.o")
	args := append([]string{"--target=x86_64-unknown-linux-gnu", "-c", "-O1", "-fPIC", "-ffreestanding", "-w", "-x", "c", "-", "-o", out}, strings.Fields(flags)...)
	cmd := exec.Command("clang", args...)
	cmd.Stdin = strings.NewReader(source)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("clang: %v\n%s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzLoad: whatever an object's bytes are, it is refused with a reason, or its image is what its sizes say.
func FuzzLoad(f *testing.F) {
	for i, arch := range archNames() {
		f.Add(uint8(i), parts(f, arch))
	}
	for _, h := range hostiles(f) {
		f.Add(uint8(0), h.object) // x86_64
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		arch := archNames()[int(which)%len(archNames())]
		o, err := Parse(b, rulesOf(arch))
		var refused *Error
		if err != nil {
			if !errors.As(err, &refused) {
				t.Fatalf("refused by %T: %v", err, err)
			}
			return
		}
		img, err := o.Place(testBase, resolveTest)
		if err != nil {
			if !errors.As(err, &refused) {
				t.Fatalf("refused by %T: %v", err, err)
			}
			return
		}
		if img.Size < uint64(len(img.Bytes)) || img.Data > uint64(len(img.Bytes)) || img.Const > img.Data || img.Entry < img.Base || img.Entry > img.Base+img.Const {
			t.Errorf("an image of %d bytes, %d filled, with segments at %#x and %#x, entered at %#x", img.Size, len(img.Bytes), img.Const, img.Data, img.Entry)
		}
		checkParts(t, img)
	})
}
