package wasmcode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"pgregory.net/rapid"
)

const features = api.CoreFeaturesV2 | experimental.CoreFeaturesThreads | experimental.CoreFeaturesTailCall

// outcome is what a run leaves behind.
type outcome struct {
	result  uint64
	trapped bool
	memory  []byte
	ticks   int
}

// runner runs modules that import nothing but what Instrument adds.
type runner struct {
	rt    wazero.Runtime
	ticks int
	fuel  uint64
	trap  uint64
}

var errStoreTrap = errors.New("store trap")

func newRunner(t testing.TB, config wazero.RuntimeConfig) *runner {
	ctx := context.Background()
	r := &runner{rt: wazero.NewRuntimeWithConfig(ctx, config.WithCoreFeatures(features)), fuel: 1000}
	t.Cleanup(func() { r.rt.Close(ctx) })
	_, err := r.rt.NewHostModuleBuilder("host").
		NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, st []uint64) {
		r.ticks++
		st[0] = r.fuel
	}), nil, []api.ValueType{api.ValueTypeI64}).Export(ImportTick).
		NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, st []uint64) {
		r.trap = st[0]
		panic(errStoreTrap)
	}), []api.ValueType{api.ValueTypeI64}, nil).Export(ImportStoreTrap).Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// testPages is the heap limit of test modules, the same for the original (its
// maximum) and the instrumented one (its limit).
const testPages = 4

// run calls main. The memory is compared up to what memory.size says.
func (r *runner) run(wasm []byte, instrumented bool, storeLimit uint64, args ...uint64) (o outcome, err error) {
	ctx := context.Background()
	m, err := r.rt.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return o, err
	}
	defer m.Close(ctx)
	size := m.Memory().Size()
	if instrumented {
		if _, ok := m.Memory().Grow(testPages - size>>16); !ok {
			return o, errors.New("cannot grow the real memory")
		}
		m.ExportedGlobal(ExportHeapLimit).(api.MutableGlobal).Set(testPages)
		m.ExportedGlobal(ExportStoreLimit).(api.MutableGlobal).Set(storeLimit)
	}
	r.ticks = 0
	res, err := m.ExportedFunction("main").Call(ctx, args...)
	if err != nil {
		o.trapped = true
	} else {
		o.result = res[0]
	}
	size = m.Memory().Size()
	if instrumented {
		size = uint32(m.ExportedGlobal(ExportHeapPages).Get()) << 16
	}
	b, _ := m.Memory().Read(0, size)
	o.memory, o.ticks = bytes.Clone(b), r.ticks
	return o, nil
}

// variants are the ways to run a module that must agree.
func variants(t *rapid.T, wasm []byte, first, second *runner, args ...uint64) {
	want, err := first.run(wasm, false, 0, args...)
	if err != nil {
		t.Fatalf("the generator wrote a bad module: %v\n%x", err, wasm)
	}
	m, err := Decode(wasm, testRules())
	if err != nil {
		t.Fatalf("%v\n%x", err, wasm)
	}
	for _, check := range []bool{false, true} {
		code, err := m.Instrument(Options{CheckStores: check})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range []*runner{first, second} {
			got, err := r.run(code, true, 1<<32, args...)
			if err != nil {
				t.Fatalf("check %t: %v\n%x\n%x", check, err, wasm, code)
			}
			if got.trapped != want.trapped || got.result != want.result || !bytes.Equal(got.memory, want.memory) {
				t.Fatalf("check %t, engine %d: result %d, trapped %t, memory differs at %s; want %d, %t\n%x\n%x",
					check, i, got.result, got.trapped, difference(got.memory, want.memory), want.result, want.trapped, wasm, code)
			}
		}
	}
}

func difference(a, b []byte) string {
	if len(a) != len(b) {
		return fmt.Sprintf("length %d, %d", len(a), len(b))
	}
	for i := range a {
		if a[i] != b[i] {
			return fmt.Sprint(i)
		}
	}
	return "nowhere"
}

// Generated programs do the same instrumented, with and without store checks,
// compiled and interpreted, as they do by themselves.
func TestGeneratedPrograms(t *testing.T) {
	first := newRunner(t, wazero.NewRuntimeConfigCompiler())
	second := newRunner(t, wazero.NewRuntimeConfigInterpreter())
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{t: t}
		variants(t, g.module(), first, second, uint64(rapid.Uint32().Draw(t, "a")), uint64(rapid.Uint32Range(0, 9).Draw(t, "b")))
	})
}

// A bulk instruction of many chunks does what one of a single piece does, for all ways to overlap.
func TestBulkChunks(t *testing.T) {
	const pages = 20
	big := section(secMemory, vec(raw(0, pages)))
	local := func(i byte) []byte { return raw(byte(opLocalGet), i) }
	three := section(secType, vec(raw(0x60, 3, byte(I32), byte(I32), byte(I32), 1, byte(I32))))
	build := func(op ...byte) []byte {
		return module(three, functions, big, exports, section(secDataCount, raw(1)),
			section(secCode, vec(fn(noLocals, cat(local(0), local(1), local(2), op, zero)...))),
			section(secData, vec(cat(raw(1), uleb(nil, 700_000), bytes.Repeat([]byte("0123456789"), 70_000)))))
	}
	rules := testRules()
	rules.Type.Params = []ValType{I32, I32, I32}
	r := newRunner(t, wazero.NewRuntimeConfigCompiler())
	for _, c := range []struct {
		name    string
		op      []byte
		d, s, n uint64
		ticks   int // at least
	}{
		{"copy down", raw(0xfc, 10, 0, 0), 100, 5000, 1 << 20, 4},
		{"copy up", raw(0xfc, 10, 0, 0), 5000, 100, 1 << 20, 4},
		{"copy apart", raw(0xfc, 10, 0, 0), 700_000, 100, 500_000, 2},
		{"copy to itself", raw(0xfc, 10, 0, 0), 700, 700, 600_000, 2},
		{"copy of one chunk", raw(0xfc, 10, 0, 0), 700, 70, chunkBytes, 1},
		{"copy of a chunk and a byte", raw(0xfc, 10, 0, 0), 70, 700, chunkBytes + 1, 1},
		{"copy out", raw(0xfc, 10, 0, 0), 70, pages<<16 - 300_000, 300_001, 0},
		{"copy to out", raw(0xfc, 10, 0, 0), pages<<16 - 300_000, 70, 300_001, 0},
		{"fill", raw(0xfc, 11, 0), 33, 7, 1_000_000, 3},
		{"fill out", raw(0xfc, 11, 0), 1_000_000, 7, 1_000_000, 0},
		{"fill everything", raw(0xfc, 11, 0), 0, 7, pages << 16, 4},
		{"fill nothing at the end", raw(0xfc, 11, 0), pages << 16, 7, 0, 0},
		{"init", raw(0xfc, 8, 0, 0), 33, 77, 690_000, 2},
		{"init beyond the segment", raw(0xfc, 8, 0, 0), 33, 77, 700_000, 0},
		{"init out", raw(0xfc, 8, 0, 0), 1_000_000, 77, 690_000, 0},
	} {
		wasm := build(c.op...)
		m, err := Decode(wasm, rules)
		if err != nil {
			t.Fatal(err)
		}
		code, err := m.Instrument(Options{CheckStores: true})
		if err != nil {
			t.Fatal(err)
		}
		want, got := r.bulk(t, wasm, pages<<16, c.d, c.s, c.n), r.bulk(t, code, pages<<16, c.d, c.s, c.n)
		if want.trapped != got.trapped || !bytes.Equal(want.memory, got.memory) {
			t.Errorf("%s: differs at %s; trapped %t, want %t", c.name, difference(got.memory, want.memory), got.trapped, want.trapped)
		}
		if r.ticks < c.ticks {
			t.Errorf("%s: %d ticks, want %d or more", c.name, r.ticks, c.ticks)
		}
	}
}

// bulk runs main on a memory with a pattern.
func (r *runner) bulk(t *testing.T, wasm []byte, size uint32, args ...uint64) outcome {
	ctx := context.Background()
	m, err := r.rt.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName(""))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(ctx)
	mem, _ := m.Memory().Read(0, size)
	for i := range mem {
		mem[i] = byte(i * 7 >> 3)
	}
	r.ticks = 0
	_, err = m.ExportedFunction("main").Call(ctx, args...)
	return outcome{trapped: err != nil, memory: bytes.Clone(mem), ticks: r.ticks}
}
