package libllvm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/wasm"
)

// way runs a function in one form, for one processor, in one tier: what it replies, or how it was stopped.
type way struct {
	name string
	run  func(payload []byte) ([]byte, error)
}

// everyWay is a C source of testdata as wasm, as the ELF objects of fn build, and as what both tiers make of its bitcode, for the three processors. Those of other processors than
// this one QEMU runs. plain is bitcode of a compiler that casts floats as LLVM does by default.
func everyWay(t *testing.T, name string) (ways []way) {
	t.Helper()
	l := library(t, "")
	code, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	img, err := cbuild.Build(t.Context(), cbuild.Source{Name: name, Code: code}, image.Manifest{Name: "numbers"}, cbuild.Options{Forms: []image.Form{image.Wasm, image.LLVMBitcode, image.ELF}})
	if err != nil {
		t.Fatal(err)
	}
	module, _ := img.Entry(image.Wasm, "")
	ways = append(ways, way{"wasm", wasmWay(t, module.Code)})
	calls := []string{"wherry_reply", "wherry_reply_part"}
	for _, target := range targets {
		arch := Arch(target.Triple)
		if triple, cpu, features, err := l.Host(); err == nil && Arch(triple) == arch { // with the vectors of this processor
			target.CPU, target.Features = cpu, features
		}
		object, _ := img.Entry(image.ELF, target.Triple)
		ways = append(ways, way{"elf " + arch, program(t, target.Triple, object.Code)})
		sent, _ := img.Entry(image.LLVMBitcode, target.Triple)
		for from, code := range map[string][]byte{"bitcode ": sent.Code, "plain bitcode ": bitcode(t, noMemoryFunctions+string(code), target.Triple)} {
			for _, target.Fast = range []bool{false, true} {
				object, err := l.Compile(code, target, calls)
				if err != nil {
					t.Fatal(err)
				}
				ways = append(ways, way{fmt.Sprint(from, arch, " fast ", target.Fast), program(t, target.Triple, object)})
			}
		}
	}
	return ways
}

// noMemoryFunctions leaves these to the runtime.
const noMemoryFunctions = "#define WHERRY_NO_MEMORY_FUNCTIONS\nvoid *memcpy(void *, const void *, __SIZE_TYPE__), *memmove(void *, const void *, __SIZE_TYPE__), *memset(void *, int, __SIZE_TYPE__);\n"

// hearing is a host that keeps what it is told.
type hearing struct {
	abi.Host
	said []byte
}

func (h *hearing) Tick() error { return nil }
func (h *hearing) Reply(data []byte) abi.Status {
	h.said = append(h.said, data...)
	return abi.OK
}
func (h *hearing) ReplyPart(data []byte) abi.Status { return h.Reply(data) }

func wasmWay(t *testing.T, module []byte) func([]byte) ([]byte, error) {
	t.Helper()
	e, err := wasm.New(wasm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	p, err := wasm.Runner{Engine: e}.Load(t.Context(), abi.Code{Form: "wasm32", ABI: abi.Version, Bytes: module})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	b, err := p.Bind(t.Context(), "somebody", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return func(payload []byte) ([]byte, error) {
		place, err := b.Reserve(0)
		if err != nil {
			return nil, err
		}
		in, err := place.Acquire(t.Context())
		if err != nil {
			return nil, err
		}
		defer in.Release()
		h := &hearing{}
		st, err := in.Run(payload, nil, h)
		if err == nil && st != abi.OK {
			err = fmt.Errorf("status %d", st)
		}
		return h.said, err
	}
}

// program links an object with testdata/run.c.
func program(t *testing.T, triple string, object []byte) func([]byte) ([]byte, error) {
	t.Helper()
	dir := t.TempDir()
	made, whole := filepath.Join(dir, "f.o"), filepath.Join(dir, "f")
	if err := os.WriteFile(made, object, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--target=" + triple, "-O1", "-ffreestanding", "-nostdlib", "-static", "-fuse-ld=lld", "testdata/run.c", made, "-o", whole}
	if Arch(triple) == "riscv64" {
		args = append(args, "-march=rv64gc", "-mabi=lp64d", "-mno-relax")
	}
	if out, err := exec.Command("clang", args...).CombinedOutput(); err != nil {
		t.Fatalf("linking: %v\n%s", err, out)
	}
	command := []string{whole}
	if Arch(triple) != map[string]string{"amd64": "x86_64", "arm64": "aarch64", "riscv64": "riscv64"}[runtime.GOARCH] {
		emulator, err := exec.LookPath("qemu-" + Arch(triple))
		if err != nil {
			t.Fatalf("%v; on Debian: apt-get install qemu-user", err)
		}
		command = []string{emulator, whole}
	}
	return func(payload []byte) ([]byte, error) {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir, cmd.Stdin = dir, bytes.NewReader(payload) // a core would lie there
		return cmd.Output()
	}
}

// doubles are NaNs, infinities, and the numbers about the ends of every integer type.
func doubles() []float64 {
	list := []float64{math.NaN(), math.Copysign(math.NaN(), -1), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 0.5, -0.5, 1.9, -1.9, 3e9, -3e9, 5e-324, math.MaxFloat64, -math.MaxFloat64}
	for _, bits := range []int{7, 8, 15, 16, 31, 32, 63, 64, 127, 128} {
		for _, edge := range []float64{math.Ldexp(1, bits), -math.Ldexp(1, bits)} {
			list = append(list, edge, edge-1, edge+1, math.Nextafter(edge, 0), math.Nextafter(edge, 2*edge))
		}
	}
	return list
}

// nearest is the integer of so many bits that is nearest to x, its fraction cut off; 0 for a NaN.
func nearest(x float64, bits uint, signed bool) *big.Int {
	one := big.NewInt(1)
	least, most := new(big.Int), new(big.Int).Sub(new(big.Int).Lsh(one, bits), one)
	if signed {
		most.Rsh(most, 1)
		least.Not(most)
	}
	switch {
	case x != x:
		return new(big.Int)
	case math.IsInf(x, 1):
		return most
	case math.IsInf(x, -1):
		return least
	}
	v, _ := big.NewFloat(x).Int(nil)
	if v.Cmp(least) < 0 {
		return least
	}
	if v.Cmp(most) > 0 {
		return most
	}
	return v
}

// TestCasts: a float becomes the same integer in every form, on every processor and in either tier, also one that the integer's type does not hold.
func TestCasts(t *testing.T) {
	const most, low, high = 128, 0, 64
	values := doubles()
	var payload []byte
	for _, x := range values {
		payload = binary.LittleEndian.AppendUint64(payload, math.Float64bits(x))
	}
	type cast struct {
		name   string
		bits   uint
		signed bool
		float  bool
		shift  uint
	}
	var casts []cast
	for _, float := range []bool{false, true} {
		casts = append(casts, cast{"int32_t", 32, true, float, 0}, cast{"uint32_t", 32, false, float, 0}, cast{"int64_t", 64, true, float, 0}, cast{"uint64_t", 64, false, float, 0},
			cast{"int16_t", 16, true, float, 0}, cast{"uint8_t", 8, false, float, 0})
	}
	inLoops := casts
	casts = append(casts[:len(casts):len(casts)], cast{"__int128", 128, true, false, low}, cast{"__int128 >> 64", 128, true, false, high},
		cast{"unsigned __int128", 128, false, true, low}, cast{"unsigned __int128 >> 64", 128, false, true, high})
	casts = append(casts, inLoops...)
	mask := new(big.Int).SetUint64(math.MaxUint64)
	for _, w := range everyWay(t, "casts.c") {
		got, err := w.run(payload)
		if err != nil || len(got) != len(casts)*most*8 {
			t.Errorf("%s: %d bytes, %v", w.name, len(got), err)
			continue
		}
		for c, cast := range casts {
			for i, x := range values {
				if cast.float {
					x = float64(float32(x))
				}
				v := nearest(x, cast.bits, cast.signed)
				want := v.And(v.Rsh(v, cast.shift), mask).Uint64()
				if is := binary.LittleEndian.Uint64(got[8*(c*most+i):]); is != want {
					t.Errorf("%s: cast %d: (%s)%v is %#x, want %#x", w.name, c, cast.name, x, is, want)
				}
			}
		}
	}
}

// TestDivideByZero: it stops the run in every form and on every processor, also on those whose own division answers 0. In bitcode of other compilers it is left to the processor.
func TestDivideByZero(t *testing.T) {
	order := func(way, n, by uint64) (b []byte) {
		for _, v := range []uint64{way, n, by} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		return b
	}
	for _, w := range everyWay(t, "divide.c") {
		if w.name[0] == 'p' {
			continue
		}
		for op := range uint64(10) {
			if got, err := w.run(order(op, 7, 7)); err != nil || binary.LittleEndian.Uint64(got) > 1 {
				t.Errorf("%s: division %d: %x, %v", w.name, op, got, err)
			}
			got, err := w.run(order(op, 7, 0))
			var end *exec.ExitError
			if stopped := w.name == "wasm" || errors.As(err, &end) && end.Sys().(syscall.WaitStatus).Signaled(); err == nil || !stopped {
				t.Errorf("%s: division %d by zero: %x, %v; want it stopped", w.name, op, got, err)
			}
		}
	}
}
