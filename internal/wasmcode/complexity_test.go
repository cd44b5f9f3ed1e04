package wasmcode

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/wherry-fabric/wherry/internal/cputime"
)

// nest is a function in which so many loops, one inside the other, all assign so many locals.
func nest(locals, loops int) []byte {
	code := bytes.Repeat([]byte{byte(opLoop), 0x40}, loops)
	for i := range locals {
		code = append(code, zero...)
		code = uleb(append(code, byte(opLocalSet)), uint32(2+i))
	}
	code = append(code, bytes.Repeat([]byte{byte(opEnd)}, loops)...)
	return bodyOf(locals, code)
}

// branches is a function with so many locals and conditional branches.
func branches(locals, n int) []byte {
	return bodyOf(locals, branchCode(n))
}

func branchCode(n int) []byte {
	return bytes.Repeat([]byte{byte(opBlock), 0x40, byte(opLocalGet), 0, byte(opBrIf), 0, byte(opEnd)}, n)
}

// exits is a function that may return at so many places.
func exits(n int) []byte {
	return bodyOf(1, bytes.Repeat([]byte{byte(opLocalGet), 0, byte(opIf), 0x40, 0x41, 0, byte(opReturn), byte(opEnd)}, n))
}

// storing is a function with so many locals and stores.
func storing(locals, n int) []byte { return bodyOf(locals, storeCode(n)) }

func storeCode(n int) []byte {
	return bytes.Repeat([]byte{byte(opLocalGet), 0, byte(opLocalGet), 0, 0x36, 0, 0}, n)
}

// repeated is a module of so many functions of the same code.
func repeated(n int, code []byte) []byte {
	all, index := make([][]byte, n), uleb(nil, uint32(n))
	for i := range all {
		all[i] = fn(noLocals, append(code[:len(code):len(code)], zero...)...)
		index = append(index, 0)
	}
	return module(types, section(secFunction, index), memory, exports, section(secCode, vec(all...)))
}

func bodyOf(locals int, code []byte) []byte {
	groups := append(uleb([]byte{1}, uint32(locals)), byte(I32))
	return module(types, functions, memory, exports, section(secCode, vec(fn(groups, append(code, zero...)...))))
}

// valued is a function of so many blocks, each of which takes so many values and leaves as many; branching ones also have a branch that takes them along.
func valued(values, n int, branching bool) []byte {
	typ := cat(raw(0x60), uleb(nil, uint32(values)), bytes.Repeat(raw(byte(I32)), values), uleb(nil, uint32(values)), bytes.Repeat(raw(byte(I32)), values))
	block := []byte{byte(opBlock), 2, byte(opEnd)}
	if branching {
		block = []byte{byte(opBlock), 2, byte(opLocalGet), 0, byte(opBrIf), 0, byte(opEnd)}
	}
	code := cat(bytes.Repeat([]byte{byte(opLocalGet), 0}, values), bytes.Repeat(block, n), bytes.Repeat(raw(byte(opDrop)), values), zero)
	return module(section(secType, vec(entryType, voidType, typ)), functions, memory, exports, section(secCode, vec(fn(noLocals, code...))))
}

// emptyLoops is a function with so many locals and loops that do nothing.
func emptyLoops(locals, n int) []byte {
	return bodyOf(locals, bytes.Repeat([]byte{byte(opLoop), 0x40, byte(opEnd)}, n))
}

// setting is a function of so many loops that each assign one of the locals.
func setting(locals, n int) []byte {
	var code []byte
	for i := range n {
		code = append(code, byte(opLoop), 0x40, byte(opI32Const), 0)
		code = append(uleb(append(code, byte(opLocalSet)), uint32(2+i%locals)), byte(opLocalGet), 0, byte(opBrIf), 0, byte(opEnd))
	}
	return bodyOf(locals, code)
}

// branchTable is a function with one branch to so many places.
func branchTable(n int) []byte {
	code := uleb([]byte{byte(opBlock), 0x40, byte(opLocalGet), 0, 0x0e}, uint32(n))
	return bodyOf(1, append(append(code, make([]byte, n+1)...), byte(opEnd)))
}

// What would take a compiler minutes is refused, with advice; what is large but harmless is not.
func TestComplexity(t *testing.T) {
	for _, c := range []struct {
		name string
		wasm []byte
		want string // of Decode
		then string // of Instrument with checked stores
	}{
		{"loops and locals", nest(100, 160), "", ""},
		{"too many loops and locals", nest(100, 170), "its loops assign 17000 locals", ""},
		{"one loop of many locals", nest(4000, 1), "", ""},
		{"blocks and locals", branches(250, 2000), "", ""},
		{"too many blocks and locals", branches(300, 2000), "302 locals and globals times 4000", ""},
		{"many blocks", branches(1, 2700), "", ""},
		{"too many blocks", branches(1, 2800), "8406 blocks, branches and calls", ""},
		{"too many exits", exits(1700), "8506 blocks, branches and calls", ""},
		{"several of them", repeated(4, branchCode(2700)), "", ""},
		{"too many of them", repeated(5, branchCode(2700)), "squared, are 328536180 in sum", ""},
		{"block parameters", valued(16, 512, false), "", ""},
		{"too many block parameters", valued(16, 513, false), "and values of blocks and branches in sum", ""},
		{"branch values", valued(16, 341, true), "", ""},
		{"too many branch values", valued(16, 342, true), "and values of blocks and branches in sum", ""},
		{"empty loops", emptyLoops(1, 1638), "", ""},
		{"too many empty loops", emptyLoops(1, 1639), "blocks, branches and calls; the limit", ""},
		{"too many empty loops and locals", emptyLoops(300, 1638), "locals and globals times", ""},
		{"places to branch to", branchTable(8000), "", ""},
		{"too many places to branch to", branchTable(8200), "blocks, branches and calls; the limit", ""},
		{"stores", storing(100, 2700), "", ""},
		{"more stores than blocks", storing(1, 2800), "", "2800 stores"},
		{"several with stores", repeated(5, storeCode(2500)), "", "the functions up to here"},
		{"too many stores to check", storing(200, 3000), "", "3000 stores"},
	} {
		m, err := Decode(c.wasm, testRules())
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if _, err := m.Instrument(Options{}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		_, err = m.Instrument(Options{CheckStores: true})
		if (err != nil) != (c.then != "") || err != nil && !strings.Contains(err.Error(), c.then) {
			t.Errorf("%s: %v, want %q", c.name, err, c.then)
		}
	}
}

// shapes are functions that take a compiler long for their size, by a size and a number of locals.
var shapes = map[string]func(n, locals int) []byte{
	"branches":         func(n, locals int) []byte { return branches(locals, n) },
	"exits":            func(n, _ int) []byte { return exits(n) },
	"stores":           func(n, locals int) []byte { return storing(locals, n) },
	"nested loops":     func(n, locals int) []byte { return nest(locals, min(n, 500)) },
	"block parameters": func(n, locals int) []byte { return valued(min(locals, 16), n, false) },
	"branch values":    func(n, locals int) []byte { return valued(min(locals, 16), n, true) },
	"empty loops":      func(n, locals int) []byte { return emptyLoops(locals, n) },
	"loops that set":   func(n, locals int) []byte { return setting(locals, n) },
	"branch table":     func(n, _ int) []byte { return branchTable(n) },
	"many functions":   func(n, locals int) []byte { return repeated(n, branchCode(locals)) },
	"kept vectors":     func(n, _ int) []byte { return keeping(n) },
	"conversions":      func(n, _ int) []byte { return converting(n) },
	"loads":            func(n, _ int) []byte { return inARow(n, zero, 0x2c, 0, 0) },
	"divisions":        func(n, _ int) []byte { return inARow(n, zero, byte(opLocalGet), 0, 0x6d) },
	"live values": func(n, _ int) []byte {
		return bodyOf(1, cat(bytes.Repeat(cat(zero, []byte{0x28, 2, 0}), n), bytes.Repeat([]byte{byte(opDrop)}, n)))
	},
}

// inARow is a function that does so often with a number what code does.
func inARow(n int, first []byte, code ...byte) []byte {
	return bodyOf(1, cat(first, bytes.Repeat(code, n), []byte{byte(opDrop)}))
}

// converting is a function that makes an integer a float and an integer again, so often.
func converting(n int) []byte { return inARow(n, []byte{byte(opI32Const), 1, 0xad}, 0xba, 0xb1) }

// keeping is a function that keeps so many vectors, loads them all and then stores them all.
func keeping(n int) []byte {
	var code []byte
	for i := range n {
		code = uleb(append(append(code, zero...), 0xfd, 0, 4, 0, byte(opLocalSet)), uint32(2+i))
	}
	for i := range n {
		code = append(uleb(append(append(code, zero...), byte(opLocalGet)), uint32(2+i)), 0xfd, 11, 4, 0)
	}
	groups := append(uleb([]byte{1}, uint32(n)), byte(V128))
	return module(types, functions, memory, exports, section(secCode, vec(fn(groups, append(code, zero...)...))))
}

// most is the largest module of a shape that is still Quick, instrumented; nil: none is.
func most(shape func(n, locals int) []byte, locals int, checkStores bool) (worst []byte) {
	for low, high := 1, 1<<13; low <= high; {
		n := (low + high) / 2
		m, err := Decode(shape(n, locals), testRules())
		var code []byte
		if err == nil {
			code, err = m.Instrument(Options{CheckStores: checkStores})
		}
		if err == nil && m.Quick(len(code)) {
			worst, low = code, n+1
		} else {
			high = n - 1
		}
	}
	return worst
}

// TestQuick: of every shape that takes a compiler long for its size there is one that is not Quick though it is small, and no Quick one is as large as may be.
func TestQuick(t *testing.T) {
	for name, shape := range shapes {
		for _, locals := range []int{1, 100} {
			if code := most(shape, locals, true); len(code) > quickBytes {
				t.Errorf("%s, %d locals: %d bytes are quick", name, locals, len(code))
			}
		}
	}
	for name, wasm := range map[string][]byte{"branches": branches(100, 400), "exits": exits(400), "block parameters": valued(1, 2000, false), "empty loops": emptyLoops(1, 400),
		"branch table": branchTable(3740), "stores": storing(100, 2000), "kept vectors": keeping(900), "conversions": converting(600)} {
		m, err := Decode(wasm, testRules())
		if err != nil {
			t.Fatal(name, err)
		}
		code, err := m.Instrument(Options{})
		if err != nil {
			t.Fatal(name, err)
		}
		if m.Quick(len(code)) {
			t.Errorf("%s: %d bytes are quick", name, len(code))
		}
	}
}

// BenchmarkQuick times the compiler with the worst that is Quick, of each shape, in processor time: for so long a compilation may go on past its sender's deadline.
func BenchmarkQuick(b *testing.B) {
	ctx := b.Context()
	config := wazero.NewRuntimeConfigCompiler().WithDebugInfoEnabled(false).WithCoreFeatures(api.CoreFeaturesV2 | experimental.CoreFeaturesThreads | experimental.CoreFeaturesTailCall)
	for name, shape := range shapes {
		for _, locals := range []int{1, 16, 100} {
			for _, checkStores := range []bool{false, true} {
				code := most(shape, locals, checkStores)
				if code == nil {
					continue
				}
				b.Run(fmt.Sprintf("%s/locals=%d/checked=%t", name, locals, checkStores), func(b *testing.B) {
					runtime.LockOSThread() // whose time it is
					defer runtime.UnlockOSThread()
					before := cputime.Thread()
					for b.Loop() {
						r := wazero.NewRuntimeWithConfig(ctx, config)
						if _, err := r.CompileModule(ctx, code); err != nil {
							b.Fatal(err)
						}
						r.Close(ctx)
					}
					b.ReportMetric(float64(cputime.Thread()-before)/1e6/float64(b.N), "cpu-ms/op")
				})
			}
		}
	}
}
