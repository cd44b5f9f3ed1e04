package libllvm

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unsafe"

	"github.com/wherry-fabric/wherry/internal/llvmrt"
)

// Refused says what is wrong with a module, to its author.
type Refused struct{ Reason string }

func (e *Refused) Error() string { return e.Reason }

func refuse(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }

// Entry is the one function that stays visible.
const Entry = "wherry_main"

// Numbers of LLVM's C API (llvm-c/Core.h); they never change.
const (
	opInvoke, opUnreachable     = 5, 7
	opCleanupRet, opCatchSwitch = 61, 65
	opCall, opCallBr            = 45, 67
	opLandingPad, opResume      = 60, 59
	opVAArg                     = 47
	opFPToUI, opFPToSI          = 33, 34
	typeInteger, typePointer    = 8, 12
	linkExternal, linkInternal  = 0, 8
	functionIndex               = 1<<32 - 1 // of a function's attributes, among those of its parameters and result
)

// inexact are the fast-math flags that change how results are rounded: reassociation, reciprocals, contraction, approximate functions. The others
// (no NaNs, no infinities, no signed zeros) compilers also add by themselves, where they are sure.
const inexact = 1 | 16 | 32 | 64

// each walks one of LLVM's lists.
func each(first uintptr, next uintptr) func(yield func(uintptr) bool) {
	return func(yield func(uintptr) bool) {
		for v := first; v != 0; v = call(next, v) {
			if !yield(v) {
				return
			}
		}
	}
}

func (l *Library) globals(m uintptr) func(func(uintptr) bool) {
	return each(call(l.GetFirstGlobal, m), l.GetNextGlobal)
}
func (l *Library) functions(m uintptr) func(func(uintptr) bool) {
	return each(call(l.GetFirstFunction, m), l.GetNextFunction)
}
func (l *Library) aliases(m uintptr) func(func(uintptr) bool) {
	return each(call(l.GetFirstGlobalAlias, m), l.GetNextGlobalAlias)
}
func (l *Library) name(v uintptr) string { return l.named(l.GetValueName2, v) }

// check refuses a module that has more than a function may have. imports are the host calls that it may declare, as it
// names them.
func (l *Library) check(m uintptr, t Target, imports []string) error {
	if arch := Arch(cString(call(l.GetTarget, m))); arch != Arch(t.Triple) {
		return refuse("the module is for %q, this is %s; compile it with --target=%s", arch, t.Triple, t.Triple)
	}
	if l.named(l.GetModuleInlineAsm, m) != "" {
		return refuse("it has assembly at file level, which nobody can check; write it in C")
	}
	if v := call(l.GetFirstGlobalIFunc, m); v != 0 {
		return refuse("%s is an ifunc: it would choose its code while it is loaded; compile without function multi-versioning", l.name(v))
	}
	for v := range l.globals(m) {
		if err := l.checkGlobal(v); err != nil {
			return err
		}
	}
	found := false
	for f := range l.functions(m) {
		name := l.name(f)
		var err error
		switch {
		case call(l.GetIntrinsicID, f) != 0:
			err = checkIntrinsic(name)
		case isTrue(call(l.IsDeclaration, f)):
			err = checkDeclaration(name, imports)
		default:
			err = l.checkFunction(f, name)
		}
		if err != nil {
			return err
		}
		found = found || name == Entry && !isTrue(call(l.IsDeclaration, f))
	}
	if !found {
		return refuse("it does not define %s; in C, WHERRY_ENTRY(payload, size) { … } does", Entry)
	}
	return nil
}

func (l *Library) checkGlobal(v uintptr) error {
	name := l.name(v)
	switch {
	case name == "llvm.global_ctors" || name == "llvm.global_dtors":
		return refuse("it has constructors or destructors (%s); a function has only %s", name, Entry)
	case isTrue(call(l.IsThreadLocal, v)):
		return refuse("the variable %s is thread-local; a function runs on one thread: make it static", name)
	case isTrue(call(l.IsDeclaration, v)) || isTrue(call(l.IsExternallyInitialized, v)):
		return refuse("the variable %s is declared but not defined; an element has no variables that a function could reach", name)
	}
	return l.checkSection(v, name)
}

// metadata is the section of LLVM's own lists (llvm.used), which no object has.
const metadata = "llvm.metadata"

// checkSection refuses sections of the author's: a loader runs what is in some of them.
func (l *Library) checkSection(v uintptr, name string) error {
	section := cString(call(l.GetSection, v))
	if section != "" && section != metadata {
		return refuse("%s is put into section %q; a function has only the compiler's own sections", name, section)
	}
	return nil
}

// checkDeclaration lets a module declare host calls that its manifest lists, and what the runtime defines.
func checkDeclaration(name string, imports []string) error {
	if slices.Contains(imports, name) || llvmrt.Has(name) {
		return nil
	}
	if strings.HasPrefix(name, "llvm.") {
		return refuse("it uses %s, which this LLVM does not know; compile it with an older compiler", name)
	}
	allowed := strings.Join(imports, ", ")
	if allowed == "" {
		allowed = "none"
	}
	return refuse("it calls %s, which is no host call that its manifest lists in imports (%s), and a function is linked to nothing else", name, allowed)
}

func (l *Library) checkFunction(f uintptr, name string) error {
	if err := l.checkSection(f, name); err != nil {
		return err
	}
	if isTrue(call(l.HasPersonalityFn, f)) || call(l.GetGC, f) != 0 {
		return refuse("the function %s needs exceptions or a garbage collector; compile with -fno-exceptions", name)
	}
	if name == Entry {
		if err := l.checkEntry(f); err != nil {
			return err
		}
	}
	for block := range each(call(l.GetFirstBasicBlock, f), l.GetNextBasicBlock) {
		for i := range each(call(l.GetFirstInstruction, block), l.GetNextInstruction) {
			switch uint32(call(l.GetInstructionOpcode, i)) {
			case opCall:
				if call(l.IsAInlineAsm, call(l.GetCalledValue, i)) != 0 {
					return refuse("the function %s has inline assembly, which nobody can check; write it in C", name)
				}
			case opInvoke, opCallBr, opLandingPad, opResume, opCleanupRet, opCatchSwitch:
				return refuse("the function %s has exceptions or asm goto; compile with -fno-exceptions", name)
			case opFPToUI, opFPToSI:
				l.casts = append(l.casts, i)
			case opVAArg:
				return refuse("the function %s takes a variable number of arguments", name)
			}
			if isTrue(call(l.CanValueUseFastMathFlags, i)) && call(l.GetFastMathFlags, i)&inexact != 0 {
				return refuse("the function %s lets sums be reordered, so answers would depend on the processor; compile without -ffast-math and with -ffp-contract=off", name)
			}
		}
	}
	return nil
}

// checkEntry wants int32_t wherry_main(const void *, uint32_t).
func (l *Library) checkEntry(f uintptr) error {
	t := call(l.GlobalGetValueType, f)
	const conventionC = 0
	ok := uint32(call(l.GetFunctionCallConv, f)) == conventionC && l.isInt32(call(l.GetReturnType, t)) && uint32(call(l.CountParamTypes, t)) == 2 && !isTrue(call(l.IsFunctionVarArg, t))
	if ok {
		var params [2]uintptr
		call(l.GetParamTypes, t, uintptr(unsafe.Pointer(&params[0])))
		ok = uint32(call(l.GetTypeKind, params[0])) == typePointer && l.isInt32(params[1])
	}
	if !ok {
		return refuse("%s is not int32_t %s(const void *payload, uint32_t size)", Entry, Entry)
	}
	return nil
}

func (l *Library) isInt32(t uintptr) bool {
	return uint32(call(l.GetTypeKind, t)) == typeInteger && uint32(call(l.GetIntTypeWidth, t)) == 32
}

// intrinsics are those that a module may use. They compute, or move the function's own memory, and mean the same on
// every processor.
var intrinsics = strings.Fields(`
abs smax smin umax umin scmp ucmp ctpop ctlz cttz bswap bitreverse fshl fshr
sadd.with.overflow uadd.with.overflow ssub.with.overflow usub.with.overflow smul.with.overflow umul.with.overflow
sadd.sat uadd.sat ssub.sat usub.sat sshl.sat ushl.sat fptosi.sat fptoui.sat
sqrt fabs copysign floor ceil trunc rint nearbyint roundeven is.fpclass
memcpy memmove memset memcpy.inline memset.inline
vector.reduce.add vector.reduce.mul vector.reduce.and vector.reduce.or vector.reduce.xor
vector.reduce.smax vector.reduce.smin vector.reduce.umax vector.reduce.umin
masked.load masked.store masked.gather masked.scatter
lifetime.start lifetime.end invariant.start invariant.end launder.invariant.group strip.invariant.group
assume expect expect.with.probability objectsize is.constant prefetch sideeffect donothing
experimental.noalias.scope.decl stacksave stackrestore trap ubsantrap ptrmask
dbg.declare dbg.value dbg.label dbg.assign
`)

// typePart is a part of an intrinsic's name that stands for the type that it works on: i64, p0, v4f32.
var typePart = regexp.MustCompile(`^(v[0-9]+)?(p[0-9]*|i[0-9]+|f[0-9]+)$`)

func checkIntrinsic(name string) error {
	parts := strings.Split(strings.TrimPrefix(name, "llvm."), ".")
	for len(parts) > 1 && typePart.MatchString(parts[len(parts)-1]) {
		parts = parts[:len(parts)-1]
	}
	switch short := strings.Join(parts, "."); {
	case slices.Contains(intrinsics, short):
		return nil
	case short == "fmuladd" || short == "fma":
		return refuse("it uses %s, which rounds once where another processor rounds twice; compile with -ffp-contract=off", name)
	default:
		return refuse("it uses %s, which is not among the intrinsics that mean the same on every processor", name)
	}
}
