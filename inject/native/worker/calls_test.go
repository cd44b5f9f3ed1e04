package worker

import (
	"bytes"
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
)

//go:generate go test -run TestCallsAreTheTables -update .
//go:generate sh -c "cd runtime && sh build.sh ."
var update = flag.Bool("update", false, "write calls.h from inject/abi")

// TestCallsAreTheTables: the native side of the host calls is made from the table that every form has.
func TestCallsAreTheTables(t *testing.T) {
	want := callsHeader()
	if *update {
		if err := os.WriteFile("runtime/calls.h", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("runtime/calls.h")
	if err != nil || string(got) != want {
		t.Errorf("calls.h is not what inject/abi says (%v): run go generate ./inject/native/worker", err)
	}
}

// TestRuntimeIsBuiltFromSource: the committed objects are what the source makes, and fit at their address on every processor.
func TestRuntimeIsBuiltFromSource(t *testing.T) {
	for _, arch := range []string{"x86_64", "aarch64", "riscv64"} {
		committed, err := os.ReadFile("runtime/runtime." + arch + ".o")
		if err != nil {
			t.Fatal(err)
		}
		run, err := runtimeOf(committed, arch, Base)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := run.Image.Address(Prefix + "reply"); !ok || run.Page%8 != 0 {
			t.Errorf("%s: the page is at %#x, and there is reply: %v", arch, run.Page, ok)
		}
		if committed, err = os.ReadFile("runtime/nursery." + arch + ".o"); err != nil {
			t.Fatal(err)
		}
		program, err := nurseryOf(committed, arch)
		if err != nil {
			t.Fatal(err)
		}
		f, err := elf.NewFile(bytes.NewReader(program.file()))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range f.Progs {
			if part.Flags&elf.PF_W != 0 && part.Flags&elf.PF_X != 0 || part.Vaddr+part.Memsz > Base {
				t.Errorf("%s: the nursery has %+v", arch, part.ProgHeader)
			}
		}
	}
	if _, err := exec.LookPath("clang-14"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir := t.TempDir()
	cmd := exec.Command("sh", "build.sh", dir)
	cmd.Dir = "runtime"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made, err := filepath.Glob(filepath.Join(dir, "*.o"))
	if err != nil || len(made) != 6 {
		t.Fatalf("%v, %v", made, err)
	}
	for _, path := range made {
		want, err := os.ReadFile(path)
		got, err2 := os.ReadFile(filepath.Join("runtime", filepath.Base(path)))
		if err != nil || err2 != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what its source makes (%v, %v): run go generate ./inject/native/worker", filepath.Base(path), err, err2)
		}
	}
}

// answeredHere are the calls that runtime.c answers by itself; those in wrapped it makes only if it cannot answer.
var (
	answeredHere = map[string]bool{"self": true, "elements": true, "window": true, "window_at": true, "payload": true, "now": true}
	wrapped      = map[string]bool{"reply": true, "get_near": true, "owner_2": true, "row_2": true, "shard_rows_2": true, "forward_2": true}
)

func callsHeader() string {
	var b strings.Builder
	b.WriteString("/* Generated from inject/abi by go generate: the host calls that the node answers. */\n")
	for number, c := range abi.Calls() {
		symbol := c.Symbol()
		if answeredHere[symbol] || c.Until != 0 { // an older form: runtime.c makes the newer one of it
			continue
		}
		name := "wherry_" + symbol
		if wrapped[symbol] {
			name = "static call_" + symbol
		}
		var params, body []string
		outs := ""
		for i, p := range c.Params {
			params = append(params, p.C+" "+p.Name)
			cast := "(u64)"
			if p.C == "int32_t" {
				cast = "(u32)"
			}
			body = append(body, fmt.Sprintf("    page.arg[%d] = %s%s;\n", i, cast, p.Name))
			if strings.HasSuffix(p.C, "*") && p.C != "void *" && !strings.HasPrefix(p.C, "const") {
				outs = outOf(p)
			}
		}
		if len(params) == 0 {
			params = []string{"void"}
		}
		result := strings.TrimPrefix(c.Result+" ", "")
		if wrapped[symbol] {
			result, name = "static "+result, strings.TrimPrefix(name, "static ")
		}
		fmt.Fprintf(&b, "\n%s%s(%s)\n{\n%s", result, name, strings.Join(params, ", "), strings.Join(body, ""))
		switch c.Result {
		case "void":
			fmt.Fprintf(&b, "    ask(%d);\n}\n", number)
		case "int32_t":
			fmt.Fprintf(&b, "    i32 st = ask(%d);\n%s    return st;\n}\n", number, outs)
		default:
			fmt.Fprintf(&b, "    ask(%d);\n    return (%s)page.result[0];\n}\n", number, c.Result)
		}
	}
	return b.String()
}

// outOf stores what the node answered where the function wants it.
func outOf(p abi.Param) string {
	switch p.C {
	case "uint64_t *":
		return fmt.Sprintf("    if (st >= 0)\n        *%s = page.result[0];\n", p.Name)
	case "wherry_rows_range_t *":
		return fmt.Sprintf("    if (st >= 0)\n        *%s = (wherry_rows_range_t){page.result[0], page.result[1]};\n", p.Name)
	}
	return "#error no such out parameter: " + p.C + "\n"
}
