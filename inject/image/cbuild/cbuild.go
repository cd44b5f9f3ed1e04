// Package cbuild makes function images from C: it drives clang and its linkers. A function becomes a wasm module, and where that is asked for also LLVM
// bitcode and relocatable objects, for each processor.
//
// The compiler runs in a temporary folder that holds nothing but the source, its
// includes and wherry.h, with relative paths and an empty environment: the same
// source, flags and compiler version give the same bytes on every machine.
package cbuild

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/internal/llvmrt"
	"github.com/wherry-fabric/wherry/sdk"
)

const (
	// MaxSourceBytes bounds a source with all its includes: far above any
	// function written by hand, and below what would keep clang busy for minutes.
	MaxSourceBytes = 4 << 20
	// DefaultTimeout bounds one build where Options and the context do not.
	DefaultTimeout = 2 * time.Minute
	// stackBytes is the stack of a wasm function.
	stackBytes = 64 << 10
	// nativeStackBytes is the stack of native code (worker.StackBytes, which a test compares), and nativeFrameBytes what one frame may take of it: the host calls that an element
	// has in C, and what called the function, lie there too.
	nativeStackBytes = 1 << 20
	nativeFrameBytes = nativeStackBytes - 16<<10
	// maxMessageBytes bounds what is kept of the compiler's messages.
	maxMessageBytes = 64 << 10
)

// Source is a function's C code.
type Source struct {
	Name     string            // of the file, as in messages: "chase.c"
	Code     []byte            // of the file
	Includes map[string][]byte // other files, by the name they are included under, without a folder
}

// Options say how to compile. The zero value is right for most.
type Options struct {
	Tools    Tools             // the zero value: FindTools
	Defines  map[string]string // -D name=value
	Lines    bool              // native code has tables of the source's lines, which traps then name
	Optimize string            // "2" (the default), "s", "3", …: what follows -O
	Timeout  time.Duration     // of all that is run, together; 0: DefaultTimeout
	Warnings io.Writer         // gets what clang and its linkers say though they succeed; nil: it is dropped
	Forms    []image.Form      // to make, each once; nil: wasm
	Targets  []string          // processors or triples that bitcode and objects are made for; nil: Processors
	// Bare leaves out the functions' names, a hundred bytes or two: traps then show numbers.
	Bare bool
}

// CompileError is the compiler's or linker's refusal.
type CompileError struct {
	Tool    string // "clang", "wasm-ld", "ld.lld"
	Message string // what it printed
	Err     error
}

func (e *CompileError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("cbuild: %s: %v", e.Tool, e.Err)
	}
	text := fmt.Sprintf("cbuild: %s: %v\n%s", e.Tool, e.Err, strings.TrimRight(e.Message, "\n"))
	if strings.Contains(e.Message, "--export not found: wherry_main") {
		text += "\nthe source has no WHERRY_ENTRY(payload, size) { … }: that is where a function begins"
	}
	if strings.Contains(e.Message, "[-Werror,-Wframe-larger-than") {
		text += fmt.Sprintf("\na wasm function's stack has %d KiB, and native code's %d MiB: keep large arrays static or in scratch", stackBytes>>10, nativeStackBytes>>20)
	}
	return text
}

func (e *CompileError) Unwrap() error { return e.Err }

// ErrSource says that a Source is not one that can be compiled.
var ErrSource = errors.New("cbuild: bad source")

// check keeps file names inside the temporary folder.
func (s *Source) check() error {
	total := len(s.Code)
	for _, name := range append(slices.Collect(maps.Keys(s.Includes)), s.Name) {
		if !fs.ValidPath(name) || strings.ContainsAny(name, `/\`) || name == "." || strings.HasPrefix(name, "-") {
			return fmt.Errorf("%w: %q is not a plain file name", ErrSource, name)
		}
		total += len(s.Includes[name])
	}
	if !strings.HasSuffix(s.Name, ".c") {
		return fmt.Errorf("%w: %q does not end in .c; only C is compiled here", ErrSource, s.Name)
	}
	if _, twice := s.Includes[s.Name]; twice {
		return fmt.Errorf("%w: %q includes itself", ErrSource, s.Name)
	}
	if total > MaxSourceBytes {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrSource, total, MaxSourceBytes)
	}
	return nil
}

// files is everything the compiler sees; an include may replace wherry.h, or one of the SDK's other headers, which are there for those that name them.
func (s *Source) files() map[string][]byte {
	all := map[string][]byte{sdk.HeaderName: []byte(sdk.Header())}
	maps.Copy(all, s.Includes)
	all[s.Name] = s.Code
	for name, text := range sdk.Parts() {
		if _, own := all[name]; !own && s.names(name) { // others keep their hash when it changes
			all[name] = []byte(text)
		}
	}
	return all
}

// names reports whether the source has a file's name somewhere in it.
func (s *Source) names(file string) bool {
	for _, code := range s.Includes {
		if bytes.Contains(code, []byte(file)) {
			return true
		}
	}
	return bytes.Contains(s.Code, []byte(file))
}

// Hash is the SHA-256 that a manifest's source field holds, in hex: of each
// file's name and content, each preceded by its length in 8 bytes
// little-endian, in the order of the names; wherry.h is one of the files.
func (s *Source) Hash() string {
	h := sha256.New()
	all := s.files()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, part := range [][]byte{[]byte(name), all[name]} {
			var n [8]byte
			binary.LittleEndian.PutUint64(n[:], uint64(len(part)))
			h.Write(n[:])
			h.Write(part)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Compile makes a wasm module of a function's source.
func Compile(ctx context.Context, src Source, opts Options) (wasm []byte, err error) {
	err = inFolder(ctx, src, opts, func(ctx context.Context, dir string, tools Tools) error {
		wasm, err = compileWasm(ctx, dir, tools, src, opts)
		return err
	})
	return wasm, err
}

// inFolder has something done in a temporary folder that holds the source, within the time that it may take.
func inFolder(ctx context.Context, src Source, opts Options, do func(ctx context.Context, dir string, tools Tools) error) error {
	err := src.check()
	if err != nil {
		return err
	}
	tools := opts.Tools
	if tools == (Tools{}) {
		if tools, err = FindTools(); err != nil {
			return err
		}
	}
	timeout := opts.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "wherry-build-")
	if err != nil {
		return fmt.Errorf("cbuild: %w", err)
	}
	defer os.RemoveAll(dir)
	for name, data := range src.files() {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("cbuild: %w", err)
		}
	}
	return do(ctx, dir, tools)
}

func compileWasm(ctx context.Context, dir string, tools Tools, src Source, opts Options) ([]byte, error) {
	const object, module = "function.o", "function.wasm"
	if err := run(ctx, dir, "clang", tools.Clang, compileFlags(opts, src.Name, object), opts.Warnings); err != nil {
		return nil, err
	}
	err := run(ctx, dir, "wasm-ld", tools.Linker, linkFlags(opts, module, object), opts.Warnings)
	if lacksRuntime(err) {
		err = linkWasmRuntime(ctx, dir, tools, opts, module, object)
	}
	if err != nil {
		return nil, err
	}
	return readMade(dir, module, "wasm-ld")
}

var undefinedSymbol = regexp.MustCompile(`undefined symbol: (\w+)`)

// lacksRuntime reports whether a module cannot be linked for want of a function that compilers call by themselves.
func lacksRuntime(err error) bool {
	var refused *CompileError
	return errors.As(err, &refused) && slices.ContainsFunc(undefinedSymbol.FindAllStringSubmatch(refused.Message, -1), func(m []string) bool { return llvmrt.Has(m[1]) })
}

// linkWasmRuntime links a module with what it needs of the runtime. Few functions need any, so the others do not wait for it to be compiled.
func linkWasmRuntime(ctx context.Context, dir string, tools Tools, opts Options, module, object string) error {
	const source, helpers = "wherry-runtime.c", "wherry-runtime.o"
	if err := os.WriteFile(filepath.Join(dir, source), []byte(llvmrt.Source), 0o600); err != nil {
		return fmt.Errorf("cbuild: %w", err)
	}
	opts.Defines = nil
	if err := run(ctx, dir, "clang", tools.Clang, append(compileFlags(opts, source, helpers), "-fno-builtin"), opts.Warnings); err != nil {
		return err
	}
	return run(ctx, dir, "wasm-ld", tools.Linker, linkFlags(opts, module, object, helpers), opts.Warnings)
}

// readMade reads what a tool wrote, unless that is too large for an image.
func readMade(dir, name, tool string) ([]byte, error) {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cbuild: %s reported success but wrote nothing: %w", tool, err)
	}
	if info.Size() > image.MaxBytes {
		return nil, fmt.Errorf("cbuild: the function has %d bytes, an image at most %d", info.Size(), image.MaxBytes)
	}
	code, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cbuild: %w", err)
	}
	return code, nil
}

// Build compiles src and packs it with a manifest, whose source and imports it fills in.
func Build(ctx context.Context, src Source, m image.Manifest, opts Options) (*image.Image, error) {
	if _, own := src.Includes[sdk.HeaderName]; !own && m.ABI != 0 && m.ABI != abi.Version {
		return nil, fmt.Errorf("%w: the manifest says \"abi\": %d, and wherry.h is of version %d; leave abi out (docs/abi.md says how to bring a source up to date)", ErrSource, m.ABI, abi.Version)
	}
	if m.HearsWorkers() { // and shares rows itself: wherry_chunk_next is to show all
		opts.Defines = maps.Clone(opts.Defines)
		if opts.Defines == nil {
			opts.Defines = map[string]string{}
		}
		opts.Defines["WHERRY_WORKERS"] = "1"
	}
	forms := opts.Forms
	if len(forms) == 0 {
		forms = []image.Form{image.Wasm}
	}
	var entries []image.Entry
	var calls []string // that native code uses
	err := inFolder(ctx, src, opts, func(ctx context.Context, dir string, tools Tools) (err error) {
		if slices.Contains(forms, image.Wasm) {
			wasm, err := compileWasm(ctx, dir, tools, src, opts)
			if err != nil {
				return err
			}
			entries = append(entries, image.Entry{Form: image.Wasm, Code: wasm})
		}
		if slices.Contains(forms, image.LLVMBitcode) || slices.Contains(forms, image.ELF) {
			native, used, err := buildNative(ctx, dir, tools, src, opts)
			entries, calls = append(entries, native...), used
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.Source = src.Hash()
	m.Imports = nil
	if !slices.Contains(forms, image.Wasm) {
		m.Imports = calls
	}
	img, err := image.Build(m, entries...)
	if err != nil {
		return nil, err
	}
	for _, name := range calls {
		if !slices.Contains(img.Manifest().Imports, name) {
			return nil, fmt.Errorf("cbuild: native code calls wherry_%s, the wasm module does not: all forms of a function make the same calls", name)
		}
	}
	return img, nil
}

// saturate gives a float that an integer cannot hold one answer in every form, where C leaves it open and each processor has another one: the nearest end of the range, and 0 for a
// NaN. wasm's own conversions do the same, but not those to 8 and 16 bits.
const saturate = "-fno-strict-float-cast-overflow"

func compileFlags(opts Options, source, object string) []string {
	optimize := opts.Optimize
	if optimize == "" {
		optimize = "2"
	}
	flags := []string{
		"--target=wasm32", "-std=c11", "-O" + optimize, "-ffreestanding", "-nostdlib", "-fno-ident",
		// Copies and fills become one instruction, and loops over columns go by
		// vectors. Nothing newer is switched on, whatever this clang's defaults are.
		"-mcpu=mvp", "-mbulk-memory", "-mmutable-globals", "-mnontrapping-fptoint", "-msign-ext", "-msimd128",
		saturate,
		"-Wall", "-Wextra", "-I.",
		fmt.Sprintf("-Wframe-larger-than=%d", stackBytes), "-Werror=frame-larger-than",
	}
	for _, name := range slices.Sorted(maps.Keys(opts.Defines)) {
		flags = append(flags, "-D"+name+"="+opts.Defines[name])
	}
	return append(flags, "-c", source, "-o", object)
}

func linkFlags(opts Options, module string, objects ...string) []string {
	strip := "--strip-debug" // and keep the names, which a trap's stack shows
	if opts.Bare {
		strip = "--strip-all"
	}
	return append([]string{
		"--no-entry", "--export=" + abi.Entry, "--export=__global_base", "--export=__data_end", // where statics lie, which are put back before each run
		strip, "--gc-sections",
		// A stack that grows too far then leaves the memory, and traps, instead
		// of running into the function's data.
		"--stack-first", "-z", fmt.Sprintf("stack-size=%d", stackBytes),
		"-o", module,
	}, objects...)
}

// run runs one tool in dir. Both tools do all their work themselves, so they
// need no PATH, and nothing in the environment can change what they write. What a tool that succeeds
// says goes to warnings; of one that fails it is in the error.
func run(ctx context.Context, dir, tool, path string, args []string, warnings io.Writer) error {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	cmd.Env = []string{"LC_ALL=C", "TMPDIR=" + dir, "CLANG_NO_DEFAULT_CONFIG=1"}
	cmd.WaitDelay = time.Second
	messages := &limitedBuffer{}
	cmd.Stdout, cmd.Stderr = messages, messages
	err := cmd.Run()
	if err == nil {
		if warnings != nil {
			_, err = warnings.Write(messages.b.Bytes())
		}
		return err
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
	return &CompileError{Tool: tool, Message: messages.b.String(), Err: err}
}

// limitedBuffer keeps the first maxMessageBytes written to it.
type limitedBuffer struct{ b bytes.Buffer }

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if room := maxMessageBytes - l.b.Len(); room > 0 {
		l.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
