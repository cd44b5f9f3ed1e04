// Command wherry-llvm compiles functions that arrive as LLVM bitcode. Nodes start it, one process for a few requests;
// it is the only program of wherry that loads libLLVM, and optional: without it functions run as wasm or ELF.
//
//	wherry-llvm [--library PATH] [--unconfined]   compiles what is asked for on descriptor 3, until that ends
//	wherry-llvm --version                         says which LLVM it found, and what this machine is
//
// See docs/native.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/wherry-fabric/wherry/internal/libllvm"
)

func main() {
	library := flag.String("library", "", "libLLVM to load (default: libLLVM.so.22.1, or an older one down to 19)")
	version := flag.Bool("version", false, "say which LLVM is there and what this machine is, and end")
	unconfined := flag.Bool("unconfined", false, "do not lock this process down before it compiles: for machines without seccomp, such as those that QEMU emulates")
	flag.Parse()
	run := func(path string) error { return libllvm.Serve(path, *unconfined) }
	if *version {
		run = describe
	}
	if err := run(*library); err != nil {
		fmt.Fprintln(os.Stderr, "wherry-llvm:", err)
		os.Exit(1)
	}
}

func describe(path string) error {
	_, h := libllvm.Describe(path)
	if h.Why != "" {
		return errors.New(h.Why)
	}
	fmt.Printf("%s\n%s, %s\n%s\n", h.Compiler, h.Triple, h.CPU, h.Features)
	return nil
}
