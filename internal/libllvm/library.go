package libllvm

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// symbols are the functions of LLVM's C API that we call, by their names without "LLVM".
type symbols struct {
	GetVersion, DisposeMessage                                                  uintptr
	GetHostCPUName, GetHostCPUFeatures                                          uintptr
	ContextCreate, ContextDispose, ContextSetDiagnosticHandler                  uintptr
	GetDiagInfoDescription, GetDiagInfoSeverity                                 uintptr
	CreateMemoryBufferWithMemoryRangeCopy, DisposeMemoryBuffer                  uintptr
	GetBufferStart, GetBufferSize                                               uintptr
	ParseIRInContext                                                            uintptr
	ParseBitcodeInContext2, DisposeModule, VerifyModule, LinkModules2           uintptr
	GetModuleInlineAsm, GetTarget, SetTarget                                    uintptr
	GetFirstGlobal, GetNextGlobal, GetFirstFunction, GetNextFunction            uintptr
	GetFirstGlobalAlias, GetNextGlobalAlias, GetFirstGlobalIFunc                uintptr
	GetValueName2, IsDeclaration, SetLinkage, SetVisibility, SetDLLStorageClass uintptr
	GetSection, SetComdat, IsThreadLocal, IsExternallyInitialized               uintptr
	GlobalGetValueType, GetReturnType, CountParamTypes, GetParamTypes           uintptr
	IsFunctionVarArg, GetTypeKind, GetIntTypeWidth                              uintptr
	GetIntrinsicID, HasPersonalityFn, GetGC, GetFunctionCallConv                uintptr
	GetAttributeCountAtIndex, GetAttributesAtIndex                              uintptr
	IsStringAttribute, GetStringAttributeKind, GetEnumAttributeKind             uintptr
	RemoveStringAttributeAtIndex, RemoveEnumAttributeAtIndex                    uintptr
	AddAttributeAtIndex, CreateEnumAttribute, CreateStringAttribute             uintptr
	GetEnumAttributeKindForName                                                 uintptr
	GetFirstBasicBlock, GetNextBasicBlock                                       uintptr
	GetFirstInstruction, GetNextInstruction, GetInstructionOpcode               uintptr
	GetCalledValue, IsAInlineAsm                                                uintptr
	CanValueUseFastMathFlags, GetFastMathFlags                                  uintptr
	GetTargetFromTriple, CreateTargetMachine, DisposeTargetMachine              uintptr
	CreateTargetDataLayout, DisposeTargetData, SetModuleDataLayout              uintptr
	CreatePassBuilderOptions, DisposePassBuilderOptions                         uintptr
	PassBuilderOptionsSetSLPVectorization, RunPasses                            uintptr
	GetErrorMessage, DisposeErrorMessage                                        uintptr
	TargetMachineEmitToMemoryBuffer                                             uintptr
	CreateBuilderInContext, DisposeBuilder, PositionBuilderBefore, BuildCall2   uintptr
	TypeOf, GetElementType, GetOperand, ReplaceAllUsesWith                      uintptr
	InstructionEraseFromParent, LookupIntrinsicID, GetIntrinsicDeclaration      uintptr
}

// Library is a loaded libLLVM. One goroutine at a time uses it.
type Library struct {
	symbols
	handle  uintptr
	version string
	said    string // the first error that LLVM reported since it was cleared
	report  uintptr
	ready   map[string]bool // the architectures that are initialised
	// machines are kept: making one takes as long as compiling a small function, and a process is asked for two, this
	// processor's of either tier.
	machines map[machineKey]uintptr
	unwanted []uintptr // the attributes of that name, as this LLVM numbers them

	next  uintptr   // a context for the next build; 0: there is none yet
	used  []uintptr // contexts of the last compile, with all that is in them
	casts []uintptr // the instructions of the module under way that make integers of floats, as check saw them
}

// maxMachines bounds those that are kept.
const maxMachines = 4

// machineKey is what a target machine depends on.
type machineKey struct {
	triple, cpu, features string
	level                 int
}

// Names are the shared objects that Open tries, newest first: Debian's and those of other distributions. An older one
// than 19 lacks parts of the interface.
func Names() []string {
	var names []string
	for v := 22; v >= 19; v-- {
		names = append(names, fmt.Sprintf("libLLVM.so.%d.1", v))
	}
	return names
}

// ErrNoLibrary says that no usable libLLVM is on this machine, and what to install.
var ErrNoLibrary = errors.New("no usable libLLVM (19 to 22) on this machine; on Debian: apt-get install libllvm22, or libllvm19")

// Open loads one of Names, or the shared object at path. All of its symbols are bound at once, so that nothing
// more is loaded once the process is locked down.
func Open(path string) (*Library, error) {
	names := Names()
	if path != "" {
		names = []string{path}
	}
	var tried []string
	for _, name := range names {
		handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err != nil {
			tried = append(tried, err.Error())
			continue
		}
		return load(handle, name)
	}
	return nil, fmt.Errorf("%w (%s)", ErrNoLibrary, strings.Join(tried, "; "))
}

func load(handle uintptr, name string) (*Library, error) {
	l := &Library{handle: handle, ready: map[string]bool{}, machines: map[machineKey]uintptr{}}
	fields := reflect.ValueOf(&l.symbols).Elem()
	for i := range fields.NumField() {
		symbol := "LLVM" + fields.Type().Field(i).Name
		at, err := purego.Dlsym(handle, symbol)
		if err != nil {
			return nil, fmt.Errorf("%w: %s has no %s", ErrNoLibrary, name, symbol)
		}
		fields.Field(i).SetUint(uint64(at))
	}
	var v [3]uint32
	call(l.GetVersion, uintptr(unsafe.Pointer(&v[0])), uintptr(unsafe.Pointer(&v[1])), uintptr(unsafe.Pointer(&v[2])))
	l.version = fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2])
	for _, name := range unwanted {
		if kind := l.kind(name); kind != 0 { // else it has none
			l.unwanted = append(l.unwanted, kind)
		}
	}
	l.report = purego.NewCallback(func(info, _ uintptr) uintptr {
		const severityError = 0
		if l.said == "" && call(l.GetDiagInfoSeverity, info) == severityError {
			l.said = l.message(call(l.GetDiagInfoDescription, info))
		}
		return 0
	})
	return l, nil
}

// Version is LLVM's, as in "22.1.8".
func (l *Library) Version() string { return l.version }

// leastRISCV are the features of rv64gc.
const leastRISCV = "+m,+a,+f,+d,+c,-relax"

// Host is this machine as LLVM names it: the target triple, the processor and its features ("+avx2,-sse4a,…").
func (l *Library) Host() (triple, cpu, features string, err error) {
	arch, ok := map[string]string{"amd64": "x86_64", "arm64": "aarch64", "riscv64": "riscv64"}[runtime.GOARCH]
	if !ok {
		return "", "", "", fmt.Errorf("native code is made for x86_64, aarch64 and riscv64, not for %s", runtime.GOARCH)
	}
	features = l.message(call(l.GetHostCPUFeatures))
	if arch == "riscv64" { // which older LLVMs cannot find out; rv64gc is what Linux distributions demand
		features = strings.TrimPrefix(features+","+leastRISCV, ",")
	}
	return arch + "-unknown-linux-gnu", l.message(call(l.GetHostCPUName)), features, nil
}

// call calls a function of the library. Go pointers are converted to uintptr among its arguments, nowhere else: only then do they
// stay valid until it returns.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// isTrue reads a C int that is a truth value: the upper half of the register means nothing.
func isTrue(r uintptr) bool { return uint32(r) != 0 }

// memory is n bytes of the library's memory, as they are until the library frees them. It is not Go's, so the
// collector does not move or free it.
func memory(p, n uintptr) []byte {
	if p == 0 || n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n)
}

// maxMessageBytes bounds what is taken of a text of LLVM's.
const maxMessageBytes = 64 << 10

// cString copies a text that ends in a zero byte.
func cString(p uintptr) string {
	if p == 0 {
		return ""
	}
	for n := uintptr(0); ; n++ {
		if n == maxMessageBytes || memory(p+n, 1)[0] == 0 {
			return string(memory(p, n))
		}
	}
}

// message copies a text and frees it.
func (l *Library) message(p uintptr) string {
	text := cString(p)
	if p != 0 {
		call(l.DisposeMessage, p)
	}
	return text
}

// named copies a text whose length the getter writes.
func (l *Library) named(getter, value uintptr) string {
	var n uintptr
	p := call(getter, value, uintptr(unsafe.Pointer(&n)))
	return string(memory(p, n))
}

// zero is s with a zero byte behind it.
func zero(s string) *byte { return unsafe.SliceData(append([]byte(s), 0)) }
