package shim

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestBuiltFromSource: the committed libraries are what the source makes.
func TestBuiltFromSource(t *testing.T) {
	if _, err := exec.LookPath("clang-14"); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	dir := t.TempDir()
	if out, err := exec.Command("sh", "build.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"shim.x86_64.so", "shim.aarch64.so"} {
		made, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if committed, err := os.ReadFile(name); err != nil || !bytes.Equal(made, committed) {
			t.Errorf("%s is not what src makes (%v): run go generate ./pool/excache/shim", name, err)
		}
	}
}

// TestFreestanding: the library needs no other, so that it loads beside every C library, and takes over the same functions on each processor.
func TestFreestanding(t *testing.T) {
	exported := map[string]int{}
	for _, name := range []string{"shim.x86_64.so", "shim.aarch64.so"} {
		f, err := elf.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if needs, err := f.ImportedLibraries(); len(needs) != 0 || err != nil {
			t.Errorf("%s needs %v (%v)", name, needs, err)
		}
		symbols, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range symbols {
			if s.Section != elf.SHN_UNDEF {
				exported[s.Name]++
			}
		}
	}
	for name, n := range exported {
		if n != 2 {
			t.Errorf("%s is exported for one processor only", name)
		}
	}
	for _, name := range []string{"malloc", "calloc", "realloc", "free", "mmap", "munmap", "mremap", "madvise", "mprotect", "pkey_mprotect", "posix_memalign"} {
		if exported[name] == 0 {
			t.Errorf("%s is not taken over", name)
		}
	}
}
