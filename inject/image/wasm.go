package image

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// hostCallType is the wasm type of a host call: parameters, a colon, results; i is i32 and I is i64. It is "" for a
// name that is none.
func hostCallType(name string) string {
	c, ok := abi.CallNamed(name)
	if !ok {
		return ""
	}
	params, results := c.Types()
	return params + ":" + results
}

// entryType is the wasm type of the entry point.
const entryType = "ii:i"

// maxWasmTypes bounds the types, imports, functions and exports that are
// looked at; compilers make a few dozen for a function of this kind.
const maxWasmItems = 1 << 16

// wasmModule is what inspectWasm finds.
type wasmModule struct {
	types   []string // as in hostCallType; "?" for one with other value types
	funcs   []uint32 // type of each function, imported ones first
	imports []string // host calls, sorted
}

// inspectWasm checks what a receiver can check before a compiler sees the
// module: its sections, that it imports nothing but host calls, exports the
// entry point with its type and its own single memory as "memory". It returns
// the host calls it imports.
func inspectWasm(code []byte) (imports []string, err error) {
	if !bytes.HasPrefix(code, []byte("\x00asm\x01\x00\x00\x00")) {
		return nil, fmt.Errorf("%w: %d bytes are not a WebAssembly 1.0 module", ErrEntry, len(code))
	}
	var m wasmModule
	r := &wasmReader{b: code, at: 8}
	memories, entry, memory := false, false, false
	last := -1
	for r.err == nil && r.at < len(r.b) {
		id, body := r.section()
		if r.err != nil {
			break
		}
		if rank := sectionRank(id); rank < 0 {
			r.fail("unknown section %d", id)
		} else if id != 0 {
			if rank <= last {
				r.fail("section %d is out of order", id)
			}
			last = rank
		}
		switch id {
		case 1:
			m.readTypes(body)
		case 2:
			m.readImports(body)
		case 3:
			m.readFunctions(body)
		case 5:
			if n := body.count(); body.err == nil && n != 1 {
				body.fail("%d memories; a function has exactly one", n)
			}
			memories = true
		case 7:
			entry, memory = m.readExports(body)
		}
		if body.err != nil {
			r.err = body.err
		}
	}
	switch {
	case r.err != nil:
		return nil, r.err
	case !entry:
		return nil, fmt.Errorf("%w: the module does not export %s; link with --export=%s", ErrEntry, abi.Entry, abi.Entry)
	case !memories || !memory:
		return nil, fmt.Errorf("%w: the module does not define and export its memory under the name memory", ErrEntry)
	}
	slices.Sort(m.imports)
	return slices.Compact(m.imports), nil
}

// sectionRank is a section's place in the order that the wasm specification
// demands; the data count (12) stands before code (10).
func sectionRank(id byte) int {
	return slices.Index([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 10, 11}, id)
}

func (m *wasmModule) readTypes(r *wasmReader) {
	for n := r.count(); n > 0 && r.err == nil; n-- {
		if form := r.byte(); form != 0x60 {
			r.fail("type of form %#x; only functions (0x60) are known", form)
			return
		}
		t := r.valueTypes() + ":" + r.valueTypes()
		if bytes.ContainsRune([]byte(t), '?') {
			t = "?"
		}
		m.types = append(m.types, t)
	}
}

func (m *wasmModule) readImports(r *wasmReader) {
	for n := r.count(); n > 0 && r.err == nil; n-- {
		module, name, kind := r.name(), r.name(), r.byte()
		if r.err != nil {
			return
		}
		if kind != 0 {
			r.fail("imports %q from %q, which is no function; only host calls may be imported", clip(name), clip(module))
			return
		}
		t := r.u32()
		want := hostCallType(name)
		if module != abi.Module || want == "" {
			r.fail("imports function %q from %q; host calls of ABI version %d come from %q", clip(name), clip(module), abi.Version, abi.Module)
			return
		}
		if got := m.typeOf(t); r.err == nil && got != want {
			r.fail("imports host call %s with type %q, its type is %q (i: i32, I: i64)", name, got, want)
			return
		}
		m.funcs = append(m.funcs, t)
		m.imports = append(m.imports, name)
	}
}

func (m *wasmModule) readFunctions(r *wasmReader) {
	for n := r.count(); n > 0 && r.err == nil; n-- {
		m.funcs = append(m.funcs, r.u32())
	}
}

func (m *wasmModule) readExports(r *wasmReader) (entry, memory bool) {
	for n := r.count(); n > 0 && r.err == nil; n-- {
		name, kind, index := r.name(), r.byte(), r.u32()
		if r.err != nil {
			return
		}
		switch name {
		case abi.Entry:
			if kind != 0 || uint64(index) >= uint64(len(m.funcs)) || m.typeOf(m.funcs[index]) != entryType {
				r.fail("export %s is not a function of type (i32, i32) -> i32", abi.Entry)
				return
			}
			entry = true
		case "memory":
			if kind != 2 || index != 0 {
				r.fail("export memory is not the module's memory")
				return
			}
			memory = true
		}
	}
	return entry, memory
}

func (m *wasmModule) typeOf(index uint32) string {
	if uint64(index) >= uint64(len(m.types)) {
		return "?"
	}
	return m.types[index]
}

// wasmReader reads a module; the first error stops it and is kept.
type wasmReader struct {
	b   []byte
	at  int
	off int // of b in the module, for messages
	err error
}

func (r *wasmReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: byte %d of the wasm module: %s", ErrEntry, r.off+r.at, fmt.Sprintf(format, args...))
	}
}

func (r *wasmReader) section() (id byte, body *wasmReader) {
	id = r.byte()
	n := r.u32()
	b := r.take(n)
	return id, &wasmReader{b: b, off: r.off + r.at - len(b)}
}

func (r *wasmReader) take(n uint32) []byte {
	if r.err != nil {
		return nil
	}
	if uint64(n) > uint64(len(r.b)-r.at) {
		r.fail("%d bytes announced, %d are there", n, len(r.b)-r.at)
		return nil
	}
	r.at += int(n)
	return r.b[r.at-int(n) : r.at]
}

func (r *wasmReader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// u32 reads an unsigned LEB128 number of at most 5 bytes.
func (r *wasmReader) u32() uint32 {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		c := r.byte()
		if r.err != nil {
			return 0
		}
		v |= uint64(c&0x7f) << shift
		if c&0x80 == 0 {
			if v > 1<<32-1 {
				break
			}
			return uint32(v)
		}
	}
	r.fail("a number exceeds 32 bits")
	return 0
}

func (r *wasmReader) count() uint32 {
	n := r.u32()
	if n > maxWasmItems {
		r.fail("%d items, at most %d are allowed", n, maxWasmItems)
		return 0
	}
	return n
}

func (r *wasmReader) name() string { return string(r.take(r.u32())) }

func (r *wasmReader) valueTypes() string {
	var t []byte
	for n := r.count(); n > 0 && r.err == nil; n-- {
		switch r.byte() {
		case 0x7f:
			t = append(t, 'i')
		case 0x7e:
			t = append(t, 'I')
		default:
			t = append(t, '?')
		}
	}
	return string(t)
}
