package image

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestEntrySelection(t *testing.T) {
	img := mustBuild(t)
	const triple = "x86_64-linux-gnu"
	for _, tc := range []struct {
		form   Form
		triple string
		want   string // features, or "none"
	}{
		{Wasm, "", ""},
		{Wasm, "anything", ""},
		{ELF, triple, ""}, // of two the one that needs fewest
		{ELF, "riscv64-linux-gnu", "none"},
		{LLVMBitcode, triple, ""},
		{LLVMBitcode, "aarch64-linux-gnu", "none"},
	} {
		e, ok := img.Entry(tc.form, tc.triple)
		got := strings.Join(e.Features, ",")
		if !ok {
			got = "none"
		}
		if got != tc.want || (ok && e.Form != tc.form) {
			t.Errorf("%v for %s: %q, want %q", tc.form, tc.triple, got, tc.want)
		}
	}
}

func TestForms(t *testing.T) {
	for _, f := range []Form{Wasm, LLVMBitcode, ELF} {
		if got, err := ParseForm(f.String()); err != nil || got != f {
			t.Errorf("%v: %v, %v", f, got, err)
		}
	}
	if _, err := ParseForm("jar"); err == nil {
		t.Error("jar is a form")
	}
}

func TestEntryErrors(t *testing.T) {
	elf := func(change func(b []byte)) []byte {
		b := object(62)
		change(b)
		return b
	}
	wrapper := func(offset, size uint32) []byte {
		b := make([]byte, 40)
		binary.LittleEndian.PutUint32(b, 0x0B17C0DE)
		binary.LittleEndian.PutUint32(b[8:], offset)
		binary.LittleEndian.PutUint32(b[12:], size)
		copy(b[20:], "BC\xc0\xde")
		return b
	}
	const triple = "x86_64-linux-gnu"
	good := wrapper(20, 20)
	if err := checkBitcode(good); err != nil {
		t.Error(err)
	}
	for name, tc := range map[string]struct {
		e    Entry
		says string
	}{
		"form":             {Entry{Form: 4}, "unknown form 4"},
		"wasm triple":      {Entry{Form: Wasm, Triple: triple, Code: module("")}, "no triple"},
		"wasm features":    {Entry{Form: Wasm, Features: []string{"simd128"}, Code: module("")}, "no triple"},
		"not wasm":         {Entry{Form: Wasm, Code: []byte("(module)")}, "not a WebAssembly"},
		"no triple":        {Entry{Form: ELF, Code: object(62)}, "target triple"},
		"triple of one":    {Entry{Form: ELF, Triple: "x86_64", Code: object(62)}, "target triple"},
		"triple text":      {Entry{Form: ELF, Triple: "x86_64 linux-gnu", Code: object(62)}, "target triple"},
		"feature text":     {Entry{Form: ELF, Triple: triple, Features: []string{"a,b"}, Code: object(62)}, "CPU feature"},
		"features order":   {Entry{Form: ELF, Triple: triple, Features: []string{"b", "a"}, Code: object(62)}, "not sorted"},
		"features length":  {Entry{Form: ELF, Triple: triple, Features: []string{strings.Repeat("x", MaxFeaturesBytes)}, Code: object(62)}, "CPU features have"},
		"short ELF":        {Entry{Form: ELF, Triple: triple, Code: []byte("\x7fELF")}, "not an ELF object"},
		"32-bit":           {Entry{Form: ELF, Triple: triple, Code: elf(func(b []byte) { b[4] = 1 })}, "not a 64-bit"},
		"executable":       {Entry{Form: ELF, Triple: triple, Code: elf(func(b []byte) { b[16] = 2 })}, "relocatable object"},
		"other machine":    {Entry{Form: ELF, Triple: triple, Code: object(183)}, "machine 183"},
		"unknown machine":  {Entry{Form: ELF, Triple: "mips-linux", Code: object(62)}, "no ELF function"},
		"no sections":      {Entry{Form: ELF, Triple: triple, Code: elf(func(b []byte) { b[60] = 0 })}, "no section table"},
		"sections outside": {Entry{Form: ELF, Triple: triple, Code: elf(func(b []byte) { b[60] = 2 })}, "section table lies"},
		"sections far":     {Entry{Form: ELF, Triple: triple, Code: elf(func(b []byte) { b[47] = 0xff })}, "section table lies"},
		"not bitcode":      {Entry{Form: LLVMBitcode, Triple: triple, Code: []byte("; ModuleID")}, "not LLVM bitcode"},
		"bitcode length":   {Entry{Form: LLVMBitcode, Triple: triple, Code: []byte("BC\xc0\xde12345")}, "not LLVM bitcode"},
		"wrapper":          {Entry{Form: LLVMBitcode, Triple: triple, Code: wrapper(20, 21)}, "wrapper promises"},
		"wrapper offset":   {Entry{Form: LLVMBitcode, Triple: triple, Code: wrapper(4, 16)}, "wrapper promises"},
	} {
		m := fullManifest()
		m.Imports = nil
		_, err := Build(m, tc.e)
		if !errors.Is(err, ErrEntry) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want ErrEntry with %q", name, err, tc.says)
		}
	}
	if _, err := Build(fullManifest(), fullEntries()[0], fullEntries()[0]); !errors.Is(err, ErrEntry) {
		t.Errorf("the same entry twice: %v", err)
	}
}

// wasmOf makes a module of sections: id, body, id, body …
func wasmOf(sections ...string) []byte {
	b := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range sections {
		b = append(append(append(b, s[0]), leb(len(s)-1)...), s[1:]...)
	}
	return b
}

func TestWasmErrors(t *testing.T) {
	const (
		types   = "\x01\x02\x60\x02\x7f\x7f\x01\x7f\x60\x00\x00" // 0: the entry's; 1: nothing
		funcs   = "\x03\x01\x00"
		memory  = "\x05\x01\x00\x01"
		exports = "\x07\x02\x06memory\x02\x00\x0bwherry_main\x00\x00"
		code    = "\x0a\x01\x04\x00\x41\x00\x0b"
	)
	if imports, err := inspectWasm(wasmOf(types, funcs, memory, exports, code), 1); err != nil || len(imports) != 0 {
		t.Fatalf("a good module: %v, %v", imports, err)
	}
	for name, tc := range map[string]struct {
		b    []byte
		says string
	}{
		"version":          {[]byte("\x00asm\x02\x00\x00\x00"), "not a WebAssembly binary, version 1"},
		"empty":            {wasmOf(), "defines no memory"},
		"no entry":         {wasmOf(types, funcs, memory, "\x07\x01\x06memory\x02\x00", code), "exports no function \"wherry_main\""},
		"no memory":        {wasmOf(types, funcs, "\x07\x01\x0bwherry_main\x00\x00", code), "defines no memory"},
		"hidden memory":    {wasmOf(types, funcs, memory, "\x07\x01\x0bwherry_main\x00\x00", code), "does not export its memory under the name memory"},
		"two memories":     {wasmOf(types, funcs, "\x05\x02\x00\x01\x00\x01", exports), "2 memories"},
		"entry's type":     {wasmOf(types, "\x03\x01\x01", memory, exports, code), "has type () -> (), want (i32, i32) -> (i32)"},
		"entry missing":    {wasmOf(types, memory, exports), "function 0, but there are 0"},
		"entry a memory":   {wasmOf(types, funcs, memory, "\x07\x01\x0bwherry_main\x02\x00"), "exports no function \"wherry_main\""},
		"memory a func":    {wasmOf(types, funcs, memory, "\x07\x02\x06memory\x00\x00\x0bwherry_main\x00\x00"), "does not export its memory"},
		"import module":    {wasmOf(types, "\x02\x01\x03env\x05abort\x00\x01"), "the import env.abort is from an unknown module"},
		"import name":      {wasmOf(types, "\x02\x01\x06wherry\x06system\x00\x01"), `the import wherry.system: there is no host call "system"`},
		"import type":      {wasmOf(types, "\x02\x01\x06wherry\x05reply\x00\x01"), "the import wherry.reply has type () -> (), but the host"},
		"import no type":   {wasmOf(types, "\x02\x01\x06wherry\x05reply\x00\x09"), "type 9, but there are 2"},
		"import memory":    {wasmOf(types, "\x02\x01\x06wherry\x06memory\x02\x00\x01"), "the import wherry.memory is a memory"},
		"type form":        {wasmOf("\x01\x01\x5f\x00"), "only function types"},
		"section order":    {wasmOf(memory, funcs), "out of order"},
		"section twice":    {wasmOf(types, types), "out of order"},
		"unknown section":  {wasmOf("\x0d"), "unknown section 13"},
		"section past end": {append(wasmOf(types), 3, 9, 1), "leaves its section"},
		"number too long":  {wasmOf("\x01\xff\xff\xff\xff\xff\x01"), "takes more than 5 bytes"},
		"number too large": {wasmOf("\x01\xff\xff\xff\xff\x7f"), "does not fit in 32 bits"},
		"too many":         {wasmOf("\x01\xff\xff\xff\x01"), "the limit is 4096"},
		"cut":              {wasmOf("\x01\x02\x60\x02\x7f"), "2 parameters in 1 bytes"},
	} {
		_, err := inspectWasm(tc.b, 1)
		if !errors.Is(err, ErrEntry) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want ErrEntry with %q", name, err, tc.says)
		}
	}
}

func TestSignatures(t *testing.T) {
	plain, signed := mustBuild(t), signedImage(t)
	one, two, three := testKey(1).Public().(ed25519.PublicKey), testKey(2).Public().(ed25519.PublicKey), testKey(3).Public().(ed25519.PublicKey)
	if plain.ID() != signed.ID() {
		t.Error("signing changed the identity")
	}
	if got, err := signed.Verify([]ed25519.PublicKey{three, two, one}); err != nil || !got.Equal(two) {
		t.Errorf("signed by %x, %v, want the second trusted key", got, err)
	}
	for name, trusted := range map[string][]ed25519.PublicKey{"nobody": nil, "a stranger": {three}} {
		if _, err := signed.Verify(trusted); !errors.Is(err, ErrUntrusted) {
			t.Errorf("trusting %s: %v, want ErrUntrusted", name, err)
		}
	}
	if _, err := plain.Verify([]ed25519.PublicKey{one}); !errors.Is(err, ErrUntrusted) {
		t.Errorf("unsigned: %v, want ErrUntrusted", err)
	}
	if _, err := signed.Verify([]ed25519.PublicKey{one[:5]}); err == nil {
		t.Error("a short key is accepted")
	}
	again, err := signed.Sign(testKey(1))
	if err != nil || len(again.Signatures()) != 2 {
		t.Errorf("signing again: %v", err)
	}
	if len(signed.Unsigned().Signatures()) != 0 || len(signed.Signatures()) != 2 {
		t.Error("Unsigned keeps signatures, or changes its image")
	}
	if _, err := plain.Sign(testKey(1)[:5]); err == nil {
		t.Error("a short private key is accepted")
	}
	forged := *signed
	forged.signatures = signed.Signatures()
	forged.signatures[0].Value[0] ^= 1
	key := forged.signatures[0].Key
	if _, err := forged.Verify([]ed25519.PublicKey{key}); !errors.Is(err, ErrSignature) {
		t.Errorf("forged: %v, want ErrSignature", err)
	}
	many := plain
	for i := range byte(MaxSignatures) {
		if many, err = many.Sign(testKey(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := many.Sign(testKey(200)); err == nil {
		t.Error("one signature too many is accepted")
	}
}

func TestSignatureSectionErrors(t *testing.T) {
	section := appendSignatures(nil, signedImage(t).Signatures())
	le := binary.LittleEndian
	edit := func(resum bool, f func(b []byte) []byte) []byte {
		b := f(slices.Clone(section))
		if resum {
			le.PutUint32(b[12:], signaturesSum(b))
		}
		return b
	}
	for name, tc := range map[string]struct {
		b    []byte
		want error
	}{
		"short":     {section[:10], ErrFormat},
		"magic":     {edit(false, func(b []byte) []byte { b[0] = 'X'; return b }), ErrFormat},
		"none":      {edit(true, func(b []byte) []byte { b[8] = 0; return b[:16] }), ErrFormat},
		"many":      {edit(false, func(b []byte) []byte { b[8] = 17; return b }), ErrFormat},
		"length":    {edit(true, func(b []byte) []byte { return append(b, 0) }), ErrFormat},
		"sum":       {edit(false, func(b []byte) []byte { b[40] ^= 1; return b }), ErrChecksum},
		"algorithm": {edit(true, func(b []byte) []byte { b[16] = 2; return b }), ErrFormat},
		"reserved":  {edit(true, func(b []byte) []byte { b[20] = 1; return b }), ErrFormat},
		"order": {edit(true, func(b []byte) []byte {
			one := slices.Clone(b[16 : 16+signatureBytes])
			copy(b[16:], b[16+signatureBytes:])
			copy(b[16+signatureBytes:], one)
			return b
		}), ErrFormat},
		"twice": {edit(true, func(b []byte) []byte { copy(b[16:], b[16+signatureBytes:]); return b }), ErrFormat},
	} {
		if _, err := parseSignatures(tc.b); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}
