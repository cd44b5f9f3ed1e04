package main

import (
	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/inject/wasm"
)

// compileWasm is the command that nodes start to have large functions compiled in a process that can be killed.
const compileWasm = "compile-wasm"

func compileWasmCommand() *cobra.Command {
	return &cobra.Command{Use: compileWasm, Hidden: true, Args: cobra.NoArgs, Short: "Compile wasm for a node that has started this",
		RunE: func(*cobra.Command, []string) error { return wasm.ServeCompiler() }}
}
