// Package nativetest holds no code, only a test: native functions from end to end, on nodes that are processes of their own. A function
// in C becomes bitcode, is signed, travels to four nodes that never saw it, is compiled at each by LLVM in a process of its own, runs in a worker, and
// hops on. And whatever can be wrong with such a function is refused or contained, and the nodes serve on.
package nativetest
