package bench

import (
	"bytes"
	"encoding/binary"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
)

// Modules that no compiler writes: each is small, and much work for whoever has to run it or compile it.

func uleb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// module is a wasm module of functions whose bodies are locals and code. The first is the entry point and of type 0, and the others of type 1, which
// takes and gives nothing; type 2 takes and gives so many numbers.
func module(values int, bodies ...[]byte) []byte {
	const i32 = 0x7f
	section := func(id byte, parts ...[]byte) []byte {
		body := bytes.Join(parts, nil)
		return append(append([]byte{id}, uleb(len(body))...), body...)
	}
	numbers := append(uleb(values), bytes.Repeat([]byte{i32}, values)...)
	types, code := make([]byte, len(bodies)), uleb(len(bodies))
	for i, b := range bodies {
		types[i] = byte(min(i, 1))
		code = append(append(code, uleb(len(b))...), b...)
	}
	return bytes.Join([][]byte{[]byte("\x00asm\x01\x00\x00\x00"),
		section(1, []byte{3, 0x60, 2, i32, i32, 1, i32, 0x60, 0, 0, 0x60}, numbers, numbers),
		section(3, uleb(len(bodies)), types),
		section(5, []byte{1, 0, 1}),
		section(7, []byte{2, byte(len(abi.Entry))}, []byte(abi.Entry), []byte{0, 0, 6}, []byte("memory"), []byte{2, 0}),
		section(10, code)}, nil)
}

// body is a function's code without locals of its own; the entry point answers 0.
func body(entry bool, parts ...[]byte) []byte {
	b := append([]byte{0}, bytes.Join(parts, nil)...)
	if entry {
		b = append(b, 0x41, 0)
	}
	return append(b, 0x0b)
}

// leaf is an endless loop of 1,500 calls, one after the other, of a function with 16,000 loads: 51 KB.
func leaf() []byte {
	loads := body(false, []byte{0x41, 0}, bytes.Repeat([]byte{0x28, 2, 0}, 16_000), []byte{0x1a})
	return module(0, body(true, []byte{0x03, 0x40}, bytes.Repeat([]byte{0x10, 1}, 1500), []byte{0x0c, 0, 0x0b}), loads)
}

// valued is a function of so many of these blocks, which take 16 numbers and leave as many.
func valued(n int, block ...byte) []byte {
	const values = 16
	return module(values, body(true, bytes.Repeat([]byte{0x20, 0}, values), bytes.Repeat(block, n), bytes.Repeat([]byte{0x1a}, values)))
}

// branching is code of so many blocks, each with a branch.
func branching(n int) []byte {
	return bytes.Repeat([]byte{0x02, 0x40, 0x41, 0, 0x0d, 0, 0x0b}, n)
}

// compileBombs are modules that kept a compiler busy for half a minute, and the largest of the kind that is taken.
func compileBombs() map[string][]byte {
	many := body(false, branching(2600))
	return map[string][]byte{
		"block parameters": valued(11_000, 0x02, 2, 0x0b),                                         // 33 KB
		"branch values":    valued(8000, 0x02, 2, 0x41, 0, 0x0d, 0, 0x0b),                         // 56 KB
		"empty loops":      module(0, body(true, bytes.Repeat([]byte{0x03, 0x40, 0x0b}, 20_000))), // 60 KB
		"branches":         module(0, body(true, branching(2600)), many, many, many),
	}
}

// sixty is a module of 60 KB that takes a compiler long; each number gives another one.
func sixty(i int) []byte {
	part := body(false, branching(2100))
	return module(0, body(true, branching(2100), []byte{0x41}, []byte{byte(i) & 0x3f, 0x1a}), part, part, part)
}

// machineCode is a module each byte of which becomes a hundred of machine code, 12 MiB in all; each number gives another one.
func machineCode(i int) []byte {
	conversions := func(more ...byte) []byte {
		return body(len(more) > 0, []byte{0x41, 1, 0xad}, bytes.Repeat([]byte{0xba, 0xb1}, 1000), []byte{0x1a}, more)
	}
	bodies := [][]byte{conversions(0x41, byte(i)&0x3f, 0x1a)}
	for range 59 {
		bodies = append(bodies, conversions())
	}
	return module(0, bodies...)
}

// madeImage is an image of a module.
func madeImage(name string, code []byte) (*image.Image, error) {
	return image.Build(image.Manifest{Name: name, ABI: abi.Version, Limits: abi.Limits{RunTime: hostileTime}}, image.Entry{Form: image.Wasm, Code: code})
}
