package image

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits of an entry. LLVM's longest triples have about 40 bytes; a full x86
// feature list about 1.5 KiB.
const (
	MaxEntries       = 16
	MaxTripleBytes   = 64
	MaxFeaturesBytes = 4 << 10
)

// Form is what kind of code an entry is. The numbers are the format's.
type Form uint32

const (
	Wasm        Form = 1 // a WebAssembly module, 32-bit memory
	LLVMBitcode Form = 2 // LLVM bitcode for one target triple
	ELF         Form = 3 // a relocatable ELF64 object for one target triple
)

func (f Form) String() string {
	switch f {
	case Wasm:
		return "wasm32"
	case LLVMBitcode:
		return "llvm-bitcode"
	case ELF:
		return "elf"
	}
	return fmt.Sprintf("form %d", uint32(f))
}

// ParseForm reads what String wrote.
func ParseForm(s string) (Form, error) {
	for _, f := range []Form{Wasm, LLVMBitcode, ELF} {
		if s == f.String() {
			return f, nil
		}
	}
	return 0, fmt.Errorf("image: form %q is none of wasm32, llvm-bitcode, elf", clip(s))
}

// Entry is a function's code in one form.
type Entry struct {
	Form   Form
	Triple string // as LLVM writes it: "x86_64-linux-gnu"; empty for wasm
	// Features are the CPU features that the code needs, sorted, each once, as
	// LLVM names them: "avx2", "bmi2". Empty for wasm.
	Features []string
	Code     []byte
}

// ErrEntry says that an entry is not what its form demands.
var ErrEntry = errors.New("image: bad entry")

// compareEntries is the order of entries in a file.
func compareEntries(a, b Entry) int {
	return cmp.Or(
		cmp.Compare(a.Form, b.Form),
		cmp.Compare(a.Triple, b.Triple),
		cmp.Compare(strings.Join(a.Features, ","), strings.Join(b.Features, ",")),
	)
}

// validate checks what can be checked without running a compiler or linker.
func (e *Entry) validate() error {
	if err := e.checkTarget(); err != nil {
		return err
	}
	switch e.Form {
	case Wasm: // the image does, for its manifest names the imports
		return nil
	case LLVMBitcode:
		return checkBitcode(e.Code)
	default:
		return checkELF(e.Code, e.Triple)
	}
}

func (e *Entry) checkTarget() error {
	if e.Form != Wasm && e.Form != LLVMBitcode && e.Form != ELF {
		return fmt.Errorf("%w: unknown %v", ErrEntry, e.Form)
	}
	if e.Form == Wasm {
		if e.Triple != "" || len(e.Features) != 0 {
			return fmt.Errorf("%w: wasm32 runs anywhere, it has no triple or CPU features", ErrEntry)
		}
		return nil
	}
	if len(e.Triple) > MaxTripleBytes || strings.Count(e.Triple, "-") < 1 || !targetText(e.Triple) {
		return fmt.Errorf("%w: %q is not a target triple such as x86_64-linux-gnu", ErrEntry, clip(e.Triple))
	}
	total := 0
	for _, f := range e.Features {
		if f == "" || !targetText(f) {
			return fmt.Errorf("%w: %q is not a CPU feature such as avx2", ErrEntry, clip(f))
		}
		total += len(f) + 1
	}
	if total > MaxFeaturesBytes {
		return fmt.Errorf("%w: CPU features have %d bytes, at most %d are allowed", ErrEntry, total, MaxFeaturesBytes)
	}
	if !ascending(e.Features) {
		return fmt.Errorf("%w: CPU features are not sorted, each once", ErrEntry)
	}
	return nil
}

func targetText(s string) bool {
	for _, c := range []byte(s) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == '+'
		if !ok {
			return false
		}
	}
	return true
}

// checkBitcode accepts raw bitcode and bitcode in its wrapper; both are a
// multiple of 4 bytes.
func checkBitcode(code []byte) error {
	raw, wrapped := []byte{'B', 'C', 0xC0, 0xDE}, []byte{0xDE, 0xC0, 0x17, 0x0B}
	const wrapperBytes = 20
	if bytes.HasPrefix(code, wrapped) && len(code) >= wrapperBytes {
		offset, size := uint64(binary.LittleEndian.Uint32(code[8:])), uint64(binary.LittleEndian.Uint32(code[12:]))
		if offset < wrapperBytes || offset+size > uint64(len(code)) {
			return fmt.Errorf("%w: the bitcode wrapper promises bytes %d to %d of %d", ErrEntry, offset, offset+size, len(code))
		}
		code = code[offset : offset+size]
	}
	if len(code) < 8 || !bytes.HasPrefix(code, raw) || len(code)%4 != 0 {
		return fmt.Errorf("%w: %d bytes are not LLVM bitcode", ErrEntry, len(code))
	}
	return nil
}

// Numbers of the ELF64 header (System V ABI, chapter 4).
const (
	elfHeaderBytes  = 64
	elfSectionBytes = 64
	elfRelocatable  = 1
)

// elfMachine is e_machine for the architectures that a triple can start with.
func elfMachine(triple string) (machine uint16, ok bool) {
	arch, _, _ := strings.Cut(triple, "-")
	switch arch {
	case "x86_64", "amd64":
		return 62, true
	case "aarch64", "arm64":
		return 183, true
	case "riscv64":
		return 243, true
	case "powerpc64le", "ppc64le":
		return 21, true
	case "loongarch64":
		return 258, true
	}
	return 0, false
}

// checkELF accepts a little-endian relocatable ELF64 object for the triple's
// machine whose section table lies inside it. The loader checks the rest.
func checkELF(code []byte, triple string) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrEntry, fmt.Sprintf(format, args...))
	}
	if len(code) < elfHeaderBytes || !bytes.HasPrefix(code, []byte("\x7fELF")) {
		return bad("%d bytes are not an ELF object", len(code))
	}
	if code[4] != 2 || code[5] != 1 || code[6] != 1 {
		return bad("not a 64-bit little-endian ELF object of version 1")
	}
	le := binary.LittleEndian
	if kind := le.Uint16(code[16:]); kind != elfRelocatable {
		return bad("ELF type %d; a function is a relocatable object (clang -c), type %d", kind, elfRelocatable)
	}
	want, ok := elfMachine(triple)
	if !ok {
		return bad("no ELF function can be built for %q; x86_64, aarch64, riscv64, powerpc64le and loongarch64 are known", triple)
	}
	if machine := le.Uint16(code[18:]); machine != want {
		return bad("the object is for ELF machine %d, its triple %q means %d", machine, triple, want)
	}
	offset, size, count := le.Uint64(code[40:]), le.Uint16(code[58:]), le.Uint16(code[60:])
	if size != elfSectionBytes || count == 0 {
		return bad("the object has no section table")
	}
	if table := uint64(size) * uint64(count); offset < elfHeaderBytes || offset > uint64(len(code)) || uint64(len(code))-offset < table {
		return bad("the section table lies at bytes %d to %d of %d", offset, offset+table, len(code))
	}
	return nil
}

// Entry returns the entry for form and triple (ignored for wasm). Where several
// differ in CPU features it returns the one that needs fewest: package forms knows which an element's processor has.
func (m *Image) Entry(form Form, triple string) (Entry, bool) {
	best := -1
	for i, e := range m.entries {
		if e.Form == form && (form == Wasm || e.Triple == triple) && (best < 0 || len(e.Features) < len(m.entries[best].Features)) {
			best = i
		}
	}
	if best < 0 {
		return Entry{}, false
	}
	e := m.entries[best]
	e.Features = slices.Clone(e.Features)
	return e, true
}
