package nativetest

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/invoke"
)

// python is a Python that has Numba: where scripts/test-tools.sh puts it.
func python(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("the race detector sees nothing of Python")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cache, "wherry-test", "python-numba-0.68.1", "bin", "python")
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") != "true" {
			t.Skip("no Python with Numba: run scripts/test-tools.sh: ", err)
		}
		t.Fatal(err)
	}
	return path
}

// runPython runs it with the SDK on its path.
func runPython(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python(t), args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH=../../sdk/python/src", "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("python %v: %v\n%s", args, err, out)
	}
}

// TestPythonSDK runs the SDK's own tests.
func TestPythonSDK(t *testing.T) {
	runPython(t, "-m", "unittest", "discover", "-s", "../../sdk/python/tests")
}

// packed is the image of the only function in a Python file, as the package makes it.
func packed(t *testing.T, file string) *image.Image {
	t.Helper()
	dir := t.TempDir()
	python(t)
	wherry := filepath.Join(dir, "wherry")
	build := exec.CommandContext(t.Context(), "go", "build", "-pgo=off", "-ldflags=-w", "-tags", "invariants", "-o", wherry, "../../cmd/wherry") // as the tests are built
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	path := filepath.Join(dir, "packed.wfn")
	runPython(t, "-m", "wherry", file, "-o", path, "--program", wherry)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// roots is a function that computes with what is the same on every processor.
const roots = `import math
import numpy as np
import wherry

@wherry.function(params={"x": "f64"})
def roots(at):
    return wherry.reply(math.sqrt(at.x) + np.sqrt(at.x / 3) * 2 + np.sqrt(np.float32(at.x)) + np.ceil(at.x) + math.copysign(np.floor(at.x), -1.0))
`

// TestPythonMath: square roots and roundings in Python give at a node what they give in Go, to the last bit.
func TestPythonMath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "roots.py")
	if err := os.WriteFile(file, []byte(roots), 0o600); err != nil {
		t.Fatal(err)
	}
	img := packed(t, file)
	if runtime.GOARCH == "riscv64" {
		return // no workers there
	}
	s := start(t, "a")
	img = s.sign(img, s.key)
	for _, x := range []float64{0, 2.7, 1e30, 0x1p-1070} {
		got, err := s.at(img, forms.Bitcode, string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x))))
		if err != nil {
			t.Fatal(err)
		}
		want := math.Sqrt(x) + float64(math.Sqrt(x/3)*2) + float64(float32(math.Sqrt(float64(float32(x))))) + math.Ceil(x) + math.Copysign(math.Floor(x), -1)
		if got != string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(want))) {
			t.Errorf("of %v it gives %x, want %v", x, got, want)
		}
	}
}

// TestPythonChase: the example in Python goes as bitcode, which Numba and wherry fn pack made, to four nodes that never saw it, and moves
// between them.
func TestPythonChase(t *testing.T) {
	img := packed(t, "../../examples/python/chase.py")
	var triples []string
	for _, e := range img.Entries() {
		triples = append(triples, e.Triple)
	}
	if want := []string{"aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"}; !slices.Equal(slices.Sorted(slices.Values(triples)), want) {
		t.Errorf("it has bitcode for %v", triples)
	}
	if runtime.GOARCH == "riscv64" {
		return // no workers there
	}
	s := start(t, "a", "b", "c", "d")
	table, next := s.ring(4096)
	img = s.sign(img, s.key)
	for i := range 20 {
		from := uint64(i * 97)
		want := from
		for range 64 {
			want = next[want]
		}
		a, err := s.call(invoke.Request{Image: img, Table: table, Form: forms.Bitcode, Args: map[string]string{"start": fmt.Sprint(from), "depth": "64"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Parts[0].Strings(0); len(a.Parts) != 1 || !slices.Equal(got, []string{fmt.Sprint(want)}) {
			t.Errorf("from %d it ends on %v, want %d", from, got, want)
		}
	}
	for _, n := range s.names {
		if e, err := s.c.Explain(t.Context(), n, img.ID(), forms.Bitcode); err != nil || e.Form != "llvm-bitcode" {
			t.Errorf("%s ran it as %+v (%v)", n, e, err)
		}
	}
}
