package cbuild

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/wherry-fabric/wherry/inject/abi"
	objects "github.com/wherry-fabric/wherry/inject/elf"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/internal/llvmrt"
)

// callPrefix is before a host call's name in native code, as wherry.h has it.
const callPrefix = "wherry_"

// Processors are those that native code can be made for.
func Processors() []string { return llvmrt.Arches() }

// Triple is the target for a processor ("aarch64", "arm64") or a triple of one, as LLVM writes it.
func Triple(target string) (string, error) {
	arch, rest, _ := strings.Cut(target, "-")
	switch arch {
	case "amd64":
		arch = "x86_64"
	case "arm64":
		arch = "aarch64"
	}
	if !slices.Contains(Processors(), arch) || rest != "" && !strings.Contains(rest, "linux") {
		return "", fmt.Errorf("cbuild: native code cannot be made for %q; for %s it can, on Linux", target, strings.Join(Processors(), ", "))
	}
	return arch + "-unknown-linux-gnu", nil
}

// buildNative makes the entries of native forms, and says which host calls they use.
func buildNative(ctx context.Context, dir string, tools Tools, src Source, opts Options) (entries []image.Entry, calls []string, err error) {
	targets := opts.Targets
	if len(targets) == 0 {
		targets = Processors()
	}
	for _, target := range targets {
		triple, err := Triple(target)
		if err != nil {
			return nil, nil, err
		}
		if slices.ContainsFunc(entries, func(e image.Entry) bool { return e.Triple == triple }) {
			return nil, nil, fmt.Errorf("cbuild: %s is among the targets twice", triple)
		}
		bitcode, object, used, err := compileNative(ctx, dir, tools, src, opts, triple)
		if err != nil {
			return nil, nil, err
		}
		if slices.Contains(opts.Forms, image.LLVMBitcode) {
			entries = append(entries, image.Entry{Form: image.LLVMBitcode, Triple: triple, Code: bitcode})
		}
		if slices.Contains(opts.Forms, image.ELF) {
			entries = append(entries, image.Entry{Form: image.ELF, Triple: triple, Code: object})
		}
		calls = append(calls, used...)
	}
	slices.Sort(calls)
	return entries, slices.Compact(calls), nil
}

// memoryFunctions stands before a source in place of wherry.h's own: native code gets the runtime's, if it needs them at all.
const memoryFunctions = `#define WHERRY_NO_MEMORY_FUNCTIONS
void *memcpy(void *, const void *, __SIZE_TYPE__);
void *memmove(void *, const void *, __SIZE_TYPE__);
void *memset(void *, int, __SIZE_TYPE__);
int memcmp(const void *, const void *, __SIZE_TYPE__);
`

// compileNative makes bitcode for a target, and of that an object, which also shows what the function calls.
func compileNative(ctx context.Context, dir string, tools Tools, src Source, opts Options, triple string) (bitcode, object []byte, calls []string, err error) {
	const module, made, usage, prelude = "function.bc", "function.o", "function.su", "wherry-native.h"
	if err := os.WriteFile(filepath.Join(dir, prelude), []byte(memoryFunctions), 0o600); err != nil {
		return nil, nil, nil, fmt.Errorf("cbuild: %w", err)
	}
	flags := append(nativeFlags(opts, triple), "-include", prelude)
	for _, name := range slices.Sorted(maps.Keys(opts.Defines)) {
		flags = append(flags, "-D"+name+"="+opts.Defines[name])
	}
	// The pipeline that comes before link-time optimisation simplifies and inlines, and leaves vectors and unrolling to the processor that will run it.
	front := append(slices.Clone(flags), "-flto=thin", "-std=c11", "-Wall", "-Wextra", "-I.", "-emit-llvm", "-c", src.Name, "-o", module)
	if err := run(ctx, dir, "clang", tools.Clang, front, opts.Warnings); err != nil {
		return nil, nil, nil, err
	}
	if bitcode, err = readMade(dir, module, "clang"); err != nil {
		return nil, nil, nil, err
	}
	if err := run(ctx, dir, "clang", tools.Clang, append(nativeFlags(opts, triple), "-fstack-usage", "-c", module, "-o", made), opts.Warnings); err != nil {
		return nil, nil, nil, err
	}
	if object, err = readMade(dir, made, "clang"); err != nil {
		return nil, nil, nil, err
	}
	calls, helpers, err := leavesOpen(object)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("cbuild: for %s: %w", triple, err)
	}
	frames, err := readMade(dir, usage, "clang")
	if err == nil {
		err = fit(string(frames), triple)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if helpers {
		if object, err = linkRuntime(ctx, dir, tools, opts, triple, made); err != nil {
			return nil, nil, nil, err
		}
	}
	if err := loads(object, triple, calls); err != nil {
		return nil, nil, nil, err
	}
	return bitcode, object, calls, nil
}

// fit refuses a function whose own frame the stack cannot hold. It reads what clang says of each (-fstack-usage): "f.c:3:main	2048	static". A warning would be
// asked for where bitcode is made (-Wframe-larger-than), and would stay in it.
func fit(frames, triple string) error {
	for line := range strings.Lines(frames) {
		f := strings.Split(line, "\t")
		if len(f) != 3 {
			return fmt.Errorf("cbuild: clang says %q of a frame, not its size", line)
		}
		size, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return fmt.Errorf("cbuild: clang says %q of a frame: %w", line, err)
		}
		if size > nativeFrameBytes {
			return fmt.Errorf("cbuild: for %s: %s has %d bytes on the stack, a frame at most %d, as native code's stack has %d MiB: keep large arrays static or in scratch",
				triple, f[0][strings.LastIndexByte(f[0], ':')+1:], size, nativeFrameBytes, nativeStackBytes>>20)
		}
	}
	return nil
}

// loads says why an element would not load an object; what it becomes of the same source's bitcode is read by the same rules.
func loads(object []byte, triple string, calls []string) error {
	arch, _, _ := strings.Cut(triple, "-")
	rules := objects.Rules{Arch: arch, Entry: abi.Entry}
	for _, call := range calls {
		rules.Imports = append(rules.Imports, callPrefix+call)
	}
	if _, err := objects.Check(object, rules); err != nil {
		return fmt.Errorf("cbuild: no element would load the code for %s: %w", triple, err)
	}
	return nil
}

// divideTraps have a division by zero end the run where the processor's own gives a number, as x86 and wasm end it. It is a branch that is never taken, beside an instruction of ten or twenty cycles.
var divideTraps = [...]string{"-fsanitize=integer-divide-by-zero", "-fsanitize-trap=integer-divide-by-zero"}

// nativeFlags are what bitcode and objects are made with. The same source gives the same answer on every processor: floats are not
// contracted, casts of them have an answer for every value, char is signed. Large frames probe their pages, where this clang can make them. Loaders want no tables of unwinding, no calls of libraries, and on riscv64 no code that a linker
// would have to shorten.
func nativeFlags(opts Options, triple string) []string {
	optimize := opts.Optimize
	if optimize == "" {
		optimize = "2"
	}
	flags := []string{
		"--target=" + triple, "-O" + optimize, "-ffreestanding", "-nostdlib", "-fno-ident", "-ffp-contract=off", "-fsigned-char", saturate,
		"-fPIC", "-fvisibility=hidden", "-fno-stack-protector", "-fstack-clash-protection", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables", "-Wno-unused-command-line-argument",
	}
	if opts.Lines {
		// Version 4: older tools read no version 5, and none of it that names no compiler (-fno-ident). Not the folder that it was compiled in, or no image would come out twice.
		flags = append(flags, "-gline-tables-only", "-gdwarf-4", "-fdebug-compilation-dir=.")
	}
	switch arch, _, _ := strings.Cut(triple, "-"); arch {
	case "x86_64":
		flags = append(flags, "-fcf-protection=none")
	case "aarch64":
		flags = append(flags, divideTraps[0], divideTraps[1], "-mno-outline-atomics")
	case "riscv64":
		flags = append(flags, divideTraps[0], divideTraps[1], "-march=rv64gc", "-mabi=lp64d", "-mno-relax")
	}
	return flags
}

// leavesOpen says which host calls an object uses, and whether it needs the runtime.
func leavesOpen(object []byte) (calls []string, helpers bool, err error) {
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		return nil, false, fmt.Errorf("clang made no ELF object: %w", err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, false, fmt.Errorf("clang made an object without symbols: %w", err)
	}
	entry := false
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			entry = entry || s.Name == abi.Entry
			continue
		}
		call, isCall := strings.CutPrefix(s.Name, callPrefix)
		switch {
		case s.Name == "":
		case isCall && known(call):
			calls = append(calls, call)
		case llvmrt.Has(s.Name):
			helpers = true
		default:
			return nil, false, fmt.Errorf("the function calls %s, which no element has: it is linked to the host calls in wherry.h and nothing else", s.Name)
		}
	}
	if !entry {
		return nil, false, fmt.Errorf("the source has no WHERRY_ENTRY(payload, size) { … }: that is where a function begins")
	}
	return calls, helpers, nil
}

func known(call string) bool {
	_, err := abi.CallNamed(call, abi.Version)
	return err == nil
}

// linkRuntime links an object with the runtime. Bitcode has that done where it is compiled.
func linkRuntime(ctx context.Context, dir string, tools Tools, opts Options, triple, object string) ([]byte, error) {
	const source, helpers, linked = "wherry-runtime.c", "wherry-runtime.o", "function.linked.o"
	linker, err := tools.objectLinker()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, source), []byte(llvmrt.Source), 0o600); err != nil {
		return nil, fmt.Errorf("cbuild: %w", err)
	}
	flags := append(nativeFlags(opts, triple), "-std=c11", "-fno-builtin", "-c", source, "-o", helpers)
	if err := run(ctx, dir, "clang", tools.Clang, flags, opts.Warnings); err != nil {
		return nil, err
	}
	if err := run(ctx, dir, "ld.lld", linker, []string{"-r", object, helpers, "-o", linked}, opts.Warnings); err != nil {
		return nil, err
	}
	return readMade(dir, linked, "ld.lld")
}
