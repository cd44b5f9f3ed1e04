package excache

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/wherry-fabric/wherry/pool/excache/shim"
)

// heapLibrary is the malloc that has small allocations in what it maps, where the C library's has them in a heap that brk makes.
const heapLibrary = "libjemalloc.so.2"

// Heap finds the system's jemalloc. Preloaded into a program (Program.Preload), it maps all that the program allocates, and the shim
// puts what it maps in the window. It is looked for in the folders first, then where systems have libraries.
func Heap(first ...string) (string, error) {
	path, err := findLibrary(heapLibrary, first)
	if err != nil {
		return "", fmt.Errorf("%w: %w; apt-get install libjemalloc2 (Fedora: jemalloc)", ErrProgram, err)
	}
	return path, nil
}

// systemLibraries are where distributions put libraries; the first has one folder for each processor.
var systemLibraries = [...]string{"/usr/lib/*-linux-gnu", "/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64", "/lib", "/usr/local/lib"}

// findLibrary finds a library that this processor's programs can load.
func findLibrary(name string, first []string) (string, error) {
	for _, dir := range append(first, systemLibraries[:]...) {
		found, _ := filepath.Glob(filepath.Join(dir, name)) // the pattern is right
		for _, path := range found {
			if foreign(path) == nil && !strings.ContainsAny(path, ": ") {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s is not installed", name)
}

// foreign reports why a program or library is not for the processor that the shim is for.
func foreign(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %s is no program that the kernel loads; a script without a first line like #!/bin/sh is run through its interpreter, as in -- sh %s: %w", ErrProgram, path, path, err)
	}
	defer f.Close()
	library, err := elf.NewFile(strings.NewReader(string(shim.Library())))
	if err == nil && (f.Machine != library.Machine || f.Class != library.Class) {
		return fmt.Errorf("%w: %s is for %v (%v), wherry for %v; run it under a wherry of its own kind", ErrProgram, path, f.Machine, f.Class, library.Machine)
	}
	return nil
}
