// Package libllvm makes relocatable objects of LLVM bitcode that strangers wrote, with the libLLVM of this machine. It is
// the only package that loads that library, and runs in a process of its own (cmd/wherry-llvm): whatever LLVM does to
// bad bitcode, it does there.
//
// # Model
//
//	l, err := libllvm.Open("")
//	triple, cpu, features, err := l.Host()
//	object, err := l.Compile(bitcode, libllvm.Target{Triple: triple, CPU: cpu, Features: features}, imports)
//
// Compile reads and verifies the module, refuses what a function may not have (check.go), makes everything but wherry_main
// local, takes away what would let processors give different answers or would need more than the function itself
// (tame.go), runs the standard pipeline for the target, and emits an object: position independent, small code model.
// A function of the runtime (internal/llvmrt) is linked in if the object needs it. What the object still leaves open are host calls,
// and only those that were allowed.
//
// # Errors
//
// A *Refused says what is wrong with the bitcode. Anything else is a fault of this machine. LLVM aborts the process on some
// faults, and may run for long or for ever: the parent process sees to that.
package libllvm
