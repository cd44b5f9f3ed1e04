// Package llvmrt is the runtime under native functions: what compilers call by themselves (memcpy, division of 128
// bits, rounding), as C and as LLVM bitcode for each processor. There is no C library under a function; what it needs of
// these is linked into its object. A wasm module is linked with the same functions of 128 bits, of the C.
//
// The bitcode is made by clang 14, the oldest that is supported, so that every LLVM reads it:
//
//	go generate ./internal/llvmrt
package llvmrt

import (
	_ "embed"
	"strings"
)

//go:generate go test -run TestBitcodeIsBuiltFromSource -update .

// Source is the runtime in C.
//
//go:embed src/runtime.c
var Source string

//go:embed x86_64.bc
var x86 string

//go:embed aarch64.bc
var arm string

//go:embed riscv64.bc
var riscv string

// Arches are the processors with a runtime, as triples begin.
func Arches() []string { return []string{"x86_64", "aarch64", "riscv64"} }

// Bitcode is the runtime for the processor of a triple; "" if there is none.
func Bitcode(triple string) string {
	arch, _, _ := strings.Cut(triple, "-")
	switch arch {
	case "x86_64":
		return x86
	case "aarch64":
		return arm
	case "riscv64":
		return riscv
	}
	return ""
}

// Has reports whether the runtime defines a function of that name.
func Has(name string) bool {
	switch name {
	case "memcpy", "memmove", "memset", "memcmp", "bcmp",
		"__udivti3", "__umodti3", "__divti3", "__modti3", "__multi3", "__muloti4", "__ashlti3", "__lshrti3", "__ashrti3",
		"__floatuntidf", "__floatuntisf", "__floattidf", "__floattisf", "__fixunsdfti", "__fixdfti", "__fixunssfti", "__fixsfti",
		"trunc", "floor", "ceil", "rint", "nearbyint", "roundeven", "truncf", "floorf", "ceilf", "rintf", "nearbyintf", "roundevenf":
		return true
	}
	return false
}
