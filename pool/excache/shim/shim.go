// Package shim has the library that is preloaded into programs whose memory pool/excache keeps: freestanding C in src, which
// `go generate` compiles with clang 14 for each processor (build.sh), so that building wherry needs no C compiler.
package shim

//go:generate sh build.sh .

// Library is the shim for this processor, nil where there is none.
func Library() []byte { return library }
