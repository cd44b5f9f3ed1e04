package wasmcode

import (
	"bytes"
	"strings"
	"testing"
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
