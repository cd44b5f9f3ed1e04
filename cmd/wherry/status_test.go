package main

import (
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/control"
)

// TestStatusSaysWhyNoBetter: below the functions stands of which no better code could be made, and why.
func TestStatusSaysWhyNoBetter(t *testing.T) {
	f := control.FunctionStatus{Name: "bomb", ID: strings.Repeat("0123456789abcdef", 4), Forms: []string{"llvm-bitcode"},
		Ran: []control.RanStatus{{Form: "wasm32", Runs: 1}, {Form: "llvm-bitcode", Tier: "first tier", Why: "compiling takes too long", Runs: 3}}}
	var b strings.Builder
	writeFunctions(&b, &control.Status{Functions: []control.FunctionStatus{f, {Name: "echo"}}})
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 4 || lines[3] != "  bomb 0123456789abcdef as llvm-bitcode: compiling takes too long" {
		t.Errorf("%q", lines)
	}
}
