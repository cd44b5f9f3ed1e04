package sdk

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/llvmrt"
)

//go:generate go test -run TestPythonIsWrittenFromTheTable -update .
var update = flag.Bool("update", false, "write "+pythonABI)

const (
	pythonABI = "python/src/wherry/abi.py"
	// pythonVersion is the ABI of functions in Python.
	pythonVersion = 2
)

// helpers are what compilers call by themselves, and the element's runtime has.
var helpers = []string{"memcpy", "memmove", "memset", "memcmp", "bcmp", "__udivti3", "__umodti3", "__divti3", "__modti3", "__multi3"}

// intrinsics are the lines of those that elements run, as the compiler's check has them.
func intrinsics(t *testing.T) []string {
	const path = "../internal/libllvm/check.go" // which only wherry-llvm imports
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile("(?s)\nvar intrinsics = strings\\.Fields\\(`\n(.*?)\n`\\)").FindSubmatch(source)
	if list == nil {
		t.Fatalf("%s lists no intrinsics", path)
	}
	return strings.Split(string(list[1]), "\n")
}

// TestPythonIsWrittenFromTheTable: Python's names of the host calls and statuses are those of inject/abi, and its list of intrinsics is the compiler's.
func TestPythonIsWrittenFromTheTable(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "\"\"\"What functions and elements agree on. Generated from inject/abi and internal/libllvm: run go generate ./sdk.\"\"\"\n\nVERSION = %d\nENTRY = %q\nPREFIX = \"wherry_\"\n", pythonVersion, abi.Entry)
	b.WriteString("\n# Host calls: the C types of the result and of the parameters.\nCALLS = {\n")
	for _, c := range abi.CallsOf(pythonVersion) {
		fmt.Fprintf(&b, "    %q: (%q, (", c.Name, c.Result)
		for _, p := range c.Params {
			fmt.Fprintf(&b, "%q, ", p.C)
		}
		b.WriteString(")),\n")
	}
	b.WriteString("}\n\n# What host calls answer.\nSTATUSES = {\n")
	for _, m := range regexp.MustCompile(`(?m)^#define WHERRY_(OK|ERR_\w+) \(?(-?\d+)\)?`).FindAllStringSubmatch(Header(), -1) {
		fmt.Fprintf(&b, "    %q: %s,\n", m[1], m[2])
	}
	b.WriteString("}\n\n# What compilers call by themselves, and every element has.\nHELPERS = frozenset((\n")
	for _, name := range helpers {
		if !llvmrt.Has(name) {
			t.Errorf("%s: no element has it", name)
		}
		fmt.Fprintf(&b, "    %q,\n", name)
	}
	b.WriteString("))\n\n# Intrinsics of LLVM that elements run.\nINTRINSICS = frozenset((\n")
	for _, line := range intrinsics(t) {
		fmt.Fprintf(&b, "    \"%s\",\n", strings.Join(strings.Fields(line), `", "`))
	}
	b.WriteString("))\n")
	if *update {
		if err := os.WriteFile(pythonABI, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(pythonABI)
	if err != nil || string(got) != b.String() {
		t.Errorf("%s is not what inject/abi says: run go generate ./sdk (%v)", pythonABI, err)
	}
}
