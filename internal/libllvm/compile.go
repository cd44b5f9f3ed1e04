package libllvm

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/wherry-fabric/wherry/internal/llvmrt"
)

// Target is what an object is made for.
type Target struct {
	// Constants are those of a derived function: the call that asks for them is answered in the code itself. None: it stays a host call.
	Constants             []byte
	Triple, CPU, Features string // as LLVM writes them
	// Level is of optimisation, 1 to 3; 0: 3. Fast: none of it, code as soon as can be, by FastISel: what the sender has not
	// simplified stays as it is.
	Level int
	Fast  bool
}

// level is what Target asks for, as LLVM counts.
func (t Target) level() int {
	switch {
	case t.Fast:
		return 0
	case t.Level == 0:
		return 3
	}
	return min(t.Level, 3)
}

// Arch is the processor of a triple, under LLVM's name.
func Arch(triple string) string {
	arch, _, _ := strings.Cut(triple, "-")
	switch arch {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return arch
}

// maxLinks bounds how often an object is made anew because the code generator wants one more function of the runtime. Those
// call each other two deep at most.
const maxLinks = 4

// Compile makes an object of bitcode. imports are the names that it may leave undefined.
func (l *Library) Compile(bitcode []byte, t Target, imports []string) ([]byte, error) {
	l.dispose()
	keep := []string{Entry}
	for range maxLinks {
		object, err := l.build(bitcode, t, imports, keep)
		if err != nil {
			return nil, err
		}
		missing, err := undefined(object)
		if err != nil {
			return nil, err
		}
		known := len(keep)
		for _, name := range missing {
			switch {
			case slices.Contains(imports, name):
			case llvmrt.Has(name) && !slices.Contains(keep, name):
				keep = append(keep, name)
			default:
				return nil, refuse("code that LLVM makes of it calls %s, which no element has", name)
			}
		}
		if len(keep) == known {
			return object, nil
		}
	}
	return nil, fmt.Errorf("the runtime's functions call each other more than %d deep", maxLinks)
}

// undefined are the names that an object leaves open.
func undefined(object []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("LLVM made no ELF object: %w", err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, fmt.Errorf("LLVM made an object without symbols: %w", err)
	}
	var names []string
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF && s.Name != "" {
			names = append(names, s.Name)
		}
	}
	return names, nil
}

// build makes an object in which the functions that keep names are visible; the runtime is linked in if it has any of them.
func (l *Library) build(bitcode []byte, t Target, imports, keep []string) ([]byte, error) {
	l.said, l.casts = "", l.casts[:0]
	ctx := l.context()
	m, err := l.parse(ctx, bitcode)
	if err != nil {
		return nil, err
	}
	if err := l.check(m, t, imports); err != nil {
		return nil, err
	}
	tm, err := l.targetMachine(t)
	if err != nil {
		return nil, err
	}
	l.retarget(m, tm, t.Triple)
	l.saturate(ctx, m)
	if len(t.Constants) > 0 && l.declares(m, constantsCall) {
		if err := l.linkConstants(ctx, m, tm, t); err != nil {
			return nil, err
		}
	}
	keep = append(slices.Clone(keep), l.wants(m)...)
	l.tame(ctx, m, []string{Entry}) // its own functions, so that none stands in for one of the runtime's
	if len(keep) > 1 {
		if err := l.linkRuntime(ctx, m, tm, t.Triple); err != nil {
			return nil, err
		}
		l.tame(ctx, m, keep)
	}
	if err := l.verify(m); err != nil {
		return nil, err
	}
	if !t.Fast || len(keep) > 1 { // otherwise there is nothing to take out
		if err := l.optimise(m, tm, t); err != nil {
			return nil, err
		}
	}
	return l.emit(m, tm)
}

// context is one for a build. It is disposed of later, with its modules (Rest).
func (l *Library) context() uintptr {
	ctx := l.next
	if l.next = 0; ctx == 0 {
		ctx = l.newContext()
	}
	l.used = append(l.used, ctx)
	return ctx
}

func (l *Library) newContext() uintptr {
	ctx := call(l.ContextCreate)
	call(l.ContextSetDiagnosticHandler, ctx, l.report, 0)
	return ctx
}

// Rest does what a compile need not wait for: it disposes of what the last one has left, and makes a context for the next. A small function's first tier takes
// a twentieth less so.
func (l *Library) Rest() {
	l.dispose()
	if l.next == 0 {
		l.next = l.newContext()
	}
}

func (l *Library) dispose() {
	for _, ctx := range l.used {
		call(l.ContextDispose, ctx)
	}
	l.used = l.used[:0]
}

// wants are the functions of the runtime that a module calls by name. What else it needs shows in its object.
func (l *Library) wants(m uintptr) (names []string) {
	for f := range l.functions(m) {
		if name := l.name(f); llvmrt.Has(name) && isTrue(call(l.IsDeclaration, f)) {
			names = append(names, name)
		}
	}
	return names
}

// parse reads and verifies a module.
func (l *Library) parse(ctx uintptr, bitcode []byte) (uintptr, error) {
	if len(bitcode) == 0 {
		return 0, refuse("it is empty")
	}
	name := zero("function")
	buffer := call(l.CreateMemoryBufferWithMemoryRangeCopy, uintptr(unsafe.Pointer(&bitcode[0])), uintptr(len(bitcode)), uintptr(unsafe.Pointer(name)))
	defer call(l.DisposeMemoryBuffer, buffer)
	var m uintptr
	if isTrue(call(l.ParseBitcodeInContext2, ctx, buffer, uintptr(unsafe.Pointer(&m)))) {
		why := l.said
		if why == "" {
			why = "no reason is given"
		}
		return 0, refuse("LLVM %s cannot read it, because it is damaged or a newer compiler made it: %s", l.version, why)
	}
	if err := l.verify(m); err != nil {
		call(l.DisposeModule, m)
		return 0, err
	}
	return m, nil
}

func (l *Library) verify(m uintptr) error {
	const returnStatus = 2
	var text uintptr
	broken := isTrue(call(l.VerifyModule, m, returnStatus, uintptr(unsafe.Pointer(&text))))
	if why := strings.TrimSpace(l.message(text)); broken {
		return refuse("LLVM's verifier refuses it: %s", why)
	}
	if l.said != "" {
		return refuse("LLVM refuses it: %s", l.said)
	}
	return nil
}

// initialise makes an architecture known to the library.
func (l *Library) initialise(triple string) error {
	family, ok := map[string]string{"x86_64": "X86", "aarch64": "AArch64", "riscv64": "RISCV"}[Arch(triple)]
	if !ok {
		return fmt.Errorf("native code is made for x86_64, aarch64 and riscv64, not for %q", triple)
	}
	if l.ready[family] {
		return nil
	}
	for _, part := range []string{"TargetInfo", "Target", "TargetMC", "AsmPrinter"} {
		fn, err := purego.Dlsym(l.handle, "LLVMInitialize"+family+part)
		if err != nil {
			return fmt.Errorf("LLVM %s is built without %s", l.version, family)
		}
		call(fn)
	}
	l.ready[family] = true
	return nil
}

// targetMachine gives the machine for a target; the library keeps a few.
func (l *Library) targetMachine(t Target) (uintptr, error) {
	key := machineKey{t.Triple, t.CPU, t.Features, t.level()}
	if tm := l.machines[key]; tm != 0 {
		return tm, nil
	}
	if err := l.initialise(t.Triple); err != nil {
		return 0, err
	}
	var target, why uintptr
	triple, cpu, features := zero(t.Triple), zero(t.CPU), zero(t.Features)
	if isTrue(call(l.GetTargetFromTriple, uintptr(unsafe.Pointer(triple)), uintptr(unsafe.Pointer(&target)), uintptr(unsafe.Pointer(&why)))) {
		return 0, errors.New(l.message(why))
	}
	// LLVM's JIT-default model is the large one, whose relocations no loader of ours takes.
	const relocPIC, modelSmall = 2, 3
	tm := call(l.CreateTargetMachine, target, uintptr(unsafe.Pointer(triple)), uintptr(unsafe.Pointer(cpu)), uintptr(unsafe.Pointer(features)),
		uintptr(t.level()), relocPIC, modelSmall)
	if tm == 0 {
		return 0, fmt.Errorf("LLVM %s has no machine for %s", l.version, t.Triple)
	}
	if len(l.machines) == maxMachines {
		for key, old := range l.machines {
			call(l.DisposeTargetMachine, old)
			delete(l.machines, key)
		}
	}
	l.machines[key] = tm
	return tm, nil
}

// retarget gives a module the target's triple and layout: compilers write them in more than one way.
func (l *Library) retarget(m, tm uintptr, triple string) {
	text := zero(triple)
	call(l.SetTarget, m, uintptr(unsafe.Pointer(text)))
	layout := call(l.CreateTargetDataLayout, tm)
	call(l.SetModuleDataLayout, m, layout)
	call(l.DisposeTargetData, layout)
}

// constantsCall is the host call that asks for a derived function's constants.
const constantsCall = "wherry_constants"

// declares reports whether a module calls what it does not define.
func (l *Library) declares(m uintptr, name string) bool {
	for f := range l.functions(m) {
		if l.name(f) == name {
			return isTrue(call(l.IsDeclaration, f))
		}
	}
	return false
}

// linkConstants links the answer to constantsCall in: where that is inlined, what the function does with its constants can be worked out now.
func (l *Library) linkConstants(ctx, m, tm uintptr, t Target) error {
	var quoted strings.Builder
	for _, b := range t.Constants {
		fmt.Fprintf(&quoted, "\\%02x", b)
	}
	source := fmt.Sprintf(`
@constants = private unnamed_addr constant [%[1]d x i8] c"%[2]s"
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i32 @%[3]s(ptr %%to, i32 %%size) alwaysinline {
  %%fits = icmp eq i32 %%size, %[1]d
  br i1 %%fits, label %%copy, label %%refuse
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %%to, ptr @constants, i64 %[1]d, i1 false)
  ret i32 0
refuse:
  ret i32 -1
}
`, len(t.Constants), quoted.String(), constantsCall)
	text, name := zero(source), zero("constants")
	buffer := call(l.CreateMemoryBufferWithMemoryRangeCopy, uintptr(unsafe.Pointer(text)), uintptr(len(source)), uintptr(unsafe.Pointer(name)))
	var made, why uintptr
	if isTrue(call(l.ParseIRInContext, ctx, buffer, uintptr(unsafe.Pointer(&made)), uintptr(unsafe.Pointer(&why)))) { // it owns the buffer
		return fmt.Errorf("the constants: %s", l.message(why))
	}
	l.retarget(made, tm, t.Triple)
	if isTrue(call(l.LinkModules2, m, made)) {
		return fmt.Errorf("linking the constants: %s", l.said)
	}
	return nil
}

func (l *Library) linkRuntime(ctx, m, tm uintptr, triple string) error {
	code := llvmrt.Bitcode(triple)
	rt, err := l.parse(ctx, []byte(code))
	if err != nil {
		return fmt.Errorf("the runtime: %w", err)
	}
	l.retarget(rt, tm, triple)
	if isTrue(call(l.LinkModules2, m, rt)) {
		return fmt.Errorf("linking the runtime: %s", l.said)
	}
	return nil
}

func (l *Library) optimise(m, tm uintptr, t Target) error {
	options := call(l.CreatePassBuilderOptions)
	defer call(l.DisposePassBuilderOptions, options)
	call(l.PassBuilderOptionsSetSLPVectorization, options, 1)
	pipeline := fmt.Sprintf("default<O%d>", t.level())
	if t.Fast {
		pipeline = "always-inline,globaldce" // of the runtime what is called, nothing else
	}
	passes := zero(pipeline)
	if e := call(l.RunPasses, m, uintptr(unsafe.Pointer(passes)), tm, options); e != 0 {
		text := call(l.GetErrorMessage, e)
		defer call(l.DisposeErrorMessage, text)
		return fmt.Errorf("LLVM's optimiser: %s", cString(text))
	}
	return nil
}

// emit makes an object of a module.
func (l *Library) emit(m, tm uintptr) ([]byte, error) {
	const objectFile = 1
	var why, buffer uintptr
	failed := isTrue(call(l.TargetMachineEmitToMemoryBuffer, tm, m, objectFile, uintptr(unsafe.Pointer(&why)), uintptr(unsafe.Pointer(&buffer))))
	if failed {
		return nil, fmt.Errorf("LLVM's code generator: %s", l.message(why))
	}
	defer call(l.DisposeMemoryBuffer, buffer)
	if l.said != "" {
		return nil, refuse("LLVM's code generator: %s", l.said)
	}
	return bytes.Clone(memory(call(l.GetBufferStart, buffer), call(l.GetBufferSize, buffer))), nil
}
