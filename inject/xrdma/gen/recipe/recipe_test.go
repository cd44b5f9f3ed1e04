package recipe

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/sdk"
)

const src = "../../src"

// tools finds the compiler of the committed images. Where CI runs it must be there.
func tools(t *testing.T) cbuild.Tools {
	t.Helper()
	tl, err := cbuild.FindToolsVersion(t.Context(), ClangMajor)
	if errors.Is(err, cbuild.ErrNoCompiler) {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

// The committed images are what the sources make.
func TestImagesAreBuiltFromSource(t *testing.T) {
	images, err := Build(t.Context(), src, tools(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range images {
		committed, err := os.ReadFile(filepath.Join("../../wfn", img.Name()+".wfn"))
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Equal(committed, img.Encode()) {
			t.Errorf("wfn/%s.wfn is not what src makes (%s); run go generate ./inject/xrdma", img.Name(), img.ID().Short())
		}
	}
}

// This much holds without a compiler: every source has the hash that its image names.
func TestSourceHashes(t *testing.T) {
	var names []string
	for _, f := range Functions() {
		names = append(names, f.Name)
		img, err := xrdma.Lookup(f.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		source, err := Source(src, f)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := img.Manifest().Source; got != source.Hash() {
			t.Errorf("%s was built from another source than src/%s and the headers it includes; run go generate ./inject/xrdma", f.Name, f.Source)
		}
	}
	if !slices.Equal(names, xrdma.List()) {
		t.Errorf("functions are %v, images %v", names, xrdma.List())
	}
}

// Every file in src belongs to a function.
func TestNoStraySources(t *testing.T) {
	used := map[string]bool{}
	for _, f := range Functions() {
		used[f.Name+".json"], used[f.Source] = true, true
		source, err := Source(src, f)
		if err != nil {
			t.Fatal(err)
		}
		for name := range source.Includes {
			used[name] = true
		}
	}
	entries, err := os.ReadDir(src)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !used[e.Name()] {
			t.Errorf("src/%s is used by no function", e.Name())
		}
	}
}

// The same sources are good for the forms of code that run natively: they
// compile for other targets without a warning, and call nothing but the host.
func TestSourcesArePortable(t *testing.T) {
	tl := tools(t)
	dir := t.TempDir()
	headers := sdk.Parts()
	headers[sdk.HeaderName] = sdk.Header()
	for name, text := range headers {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	done := map[string]bool{}
	for i, f := range Functions() {
		if key := f.Source + f.Defines["LEVELS"]; done[key] {
			continue
		} else {
			done[key] = true
		}
		// One target each keeps this short; nothing in the sources depends on which.
		triple := []string{"x86_64-linux-gnu", "aarch64-linux-gnu"}[i%2]
		flags := []string{"--target=" + triple, "-std=c11", "-ffreestanding", "-fno-pic", "-Wall", "-Wextra", "-Werror", "-I" + dir}
		for k, v := range f.Defines {
			flags = append(flags, "-D"+k+"="+v)
		}
		checkNative(t, f, triple, compile(t, tl, f, append(flags, "-O2")))
		if f.Name == "chase" {
			code := compile(t, tl, f, append(flags, "-O1", "-emit-llvm"))
			pack(t, f, image.Entry{Form: image.LLVMBitcode, Triple: triple, Code: code})
		}
	}
}

func compile(t *testing.T, tl cbuild.Tools, f Function, flags []string) []byte {
	t.Helper()
	object := filepath.Join(t.TempDir(), "function.o")
	flags = append(flags, "-c", filepath.Join(src, f.Source), "-o", object)
	if out, err := exec.CommandContext(t.Context(), tl.Clang, flags...).CombinedOutput(); err != nil {
		t.Fatalf("%s: clang %v: %v\n%s", f.Name, flags, err, out)
	}
	code, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func checkNative(t *testing.T, f Function, triple string, code []byte) {
	t.Helper()
	for _, name := range undefined(t, code) {
		call, ok := strings.CutPrefix(name, "wherry_")
		if !ok || call == "" {
			t.Errorf("%s for %s needs %q, which is no host call", f.Name, triple, name)
		}
	}
	pack(t, f, image.Entry{Form: image.ELF, Triple: triple, Code: code})
}

// pack checks that an image can carry the entry beside the wasm one.
func pack(t *testing.T, f Function, e image.Entry) {
	t.Helper()
	img, err := xrdma.Lookup(f.Name)
	if err != nil {
		t.Fatal(err)
	}
	both, err := image.Build(img.Manifest(), append(img.Entries(), e)...)
	if err != nil {
		t.Errorf("%s with %v for %s: %v", f.Name, e.Form, e.Triple, err)
		return
	}
	again, err := image.Parse(both.Encode())
	if err != nil {
		t.Fatal(err)
	}
	got, ok := again.Entry(e.Form, e.Triple)
	if !ok || !bytes.Equal(got.Code, e.Code) {
		t.Errorf("%s: the %v entry does not come back", f.Name, e.Form)
	}
	if both.ID() == img.ID() {
		t.Errorf("%s: another entry, the same identity", f.Name)
	}
}
