package elf

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// forged is an object that no compiler makes: sections with the headers that a test gives them.
type forged struct {
	header   elf.Header64
	sections []forgedSection
}

type forgedSection struct {
	elf.Section64
	data []byte
	same int // not 0: it lies in the file where that section does
}

// The sections that every forged object begins with.
const (
	forgedText = iota + 1
	forgedSymtab
	forgedStrtab
)

// forge makes an object for x86_64 of one function, whose names and symbols' names are in one table.
func forge() *forged {
	f := &forged{header: elf.Header64{Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Shentsize: 64,
		Shstrndx: forgedStrtab}}
	copy(f.header.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	entry := elf.Sym64{Name: 1, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: forgedText}
	f.add(elf.SHT_NULL, 0, nil)
	f.add(elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, make([]byte, 16))
	f.add(elf.SHT_SYMTAB, 0, wire(elf.Sym64{}, entry)).Link = forgedStrtab
	f.add(elf.SHT_STRTAB, 0, []byte("\x00wherry_main\x00"))
	return f
}

func wire(parts ...any) []byte {
	var b []byte
	for _, part := range parts {
		b, _ = binary.Append(b, binary.LittleEndian, part)
	}
	return b
}

func (f *forged) add(kind elf.SectionType, flags elf.SectionFlag, data []byte) *forgedSection {
	f.sections = append(f.sections, forgedSection{Section64: elf.Section64{Type: uint32(kind), Flags: uint64(flags), Addralign: 1}, data: data})
	return &f.sections[len(f.sections)-1]
}

// name appends a name of n bytes to the table, and gives its place there.
func (f *forged) name(n int) uint32 {
	table := &f.sections[forgedStrtab].data
	at := len(*table)
	*table = append(append(*table, bytes.Repeat([]byte("n"), n)...), 0)
	return uint32(at)
}

func (f *forged) bytes() []byte {
	b := make([]byte, 64)
	var headers []byte
	for i := range f.sections {
		s := &f.sections[i]
		s.Off, s.Size = uint64(len(b)), uint64(len(s.data))
		if s.same != 0 {
			s.Off, s.Size = f.sections[s.same].Off, f.sections[s.same].Size
		}
		b = append(b, s.data...)
		headers = append(headers, wire(s.Section64)...)
	}
	f.header.Shoff = uint64(len(b))
	if f.header.Shnum == 0 {
		f.header.Shnum = uint16(len(f.sections))
	}
	copy(b, wire(f.header))
	return append(b, headers...)
}

// inflating is a table that takes a thousandth of its size in the file.
func inflating(t testing.TB) []byte {
	t.Helper()
	out := bytes.NewBuffer(wire(elf.Chdr64{Type: uint32(elf.COMPRESS_ZLIB), Size: 1 << 20, Addralign: 1}))
	z := zlib.NewWriter(out)
	plain := make([]byte, 1<<20)
	copy(plain, "\x00wherry_main\x00")
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

type hostile struct {
	name, want string
	object     []byte
}

// hostiles are small objects that would take far more memory than their bytes, or far more time. Each is scaled down:
// taken as it is, it needs some 30 MiB.
func hostiles(t testing.TB) []hostile {
	var all []hostile
	add := func(name, want string, change func(f *forged)) {
		f := forge()
		change(f)
		all = append(all, hostile{name, want, f.bytes()})
	}
	const names = "the names of its sections and symbols"
	add("sections of one long name", names, func(f *forged) {
		long := f.name(8 << 10)
		for range 4000 {
			f.add(elf.SHT_PROGBITS, 0, nil).Name = long
		}
	})
	add("symbols of one long name", names, func(f *forged) {
		sym := elf.Sym64{Name: f.name(8 << 10), Shndx: forgedText}
		table := &f.sections[forgedSymtab].data
		*table = append(*table, bytes.Repeat(wire(sym), 4000)...)
	})
	add("a symbol's name without an end", "ends nowhere", func(f *forged) {
		f.sections[forgedSymtab].data = append(f.sections[forgedSymtab].data, wire(elf.Sym64{Name: f.name(4), Shndx: forgedText})...)
		table := &f.sections[forgedStrtab].data
		*table = (*table)[:len(*table)-1]
	})
	add("compressed names", "compressed", func(f *forged) {
		s := &f.sections[forgedStrtab]
		s.data, s.Flags = inflating(t), uint64(elf.SHF_COMPRESSED)
	})
	add("compressed as formerly", "compressed", func(f *forged) {
		old := []byte("ZLIB\x00\x00\x00\x00\x00\x10\x00\x00")
		f.add(elf.SHT_STRTAB, 0, append(old, inflating(t)[24:]...)).Name = f.name(0)
		table := &f.sections[forgedStrtab].data
		*table = append((*table)[:len(*table)-1], ".zdebug_names\x00"...)
		f.sections[forgedSymtab].Link = forgedStrtab + 1
	})
	add("one table of relocations for many sections", "more bytes than the file", func(f *forged) {
		f.sections[forgedText].data = make([]byte, 64)
		rela := f.add(elf.SHT_RELA, 0, bytes.Repeat(wire(elf.Rela64{Info: elf.R_INFO(1, uint32(elf.R_X86_64_PC32))}), 300))
		rela.Link, rela.Info = forgedSymtab, forgedText
		for range 2000 {
			again := f.add(elf.SHT_RELA, 0, nil)
			again.Link, again.Info, again.same = forgedSymtab, forgedText, forgedStrtab+1
		}
	})
	add("sections aligned to segments", "with their alignment", func(f *forged) {
		for range 400 {
			f.add(elf.SHT_PROGBITS, elf.SHF_ALLOC, []byte{1}).Addralign = maxAlign
		}
	})
	add("a first section that is one", "section 0", func(f *forged) { f.sections[0].Type = uint32(elf.SHT_SYMTAB) })
	add("too many sections", "at most 4096", func(f *forged) {
		for range MaxSections {
			f.add(elf.SHT_PROGBITS, 0, nil)
		}
	})
	add("headers of another size", "headers of 128 bytes", func(f *forged) { f.header.Shentsize = 128 })
	add("headers outside", "leave the file", func(f *forged) { f.header.Shnum = 1000 })
	none := forge().bytes()
	binary.LittleEndian.PutUint16(none[60:], 0) // e_shnum
	return append(all, hostile{"sections counted elsewhere", "counts 0 sections", none})
}

// TestHostile: what an object makes the loader keep is bounded by the object's size, whatever its headers say.
func TestHostile(t *testing.T) {
	if _, err := load(forge().bytes(), rulesOf("x86_64")); err != nil {
		t.Fatalf("a forged object with nothing wrong: %v", err)
	}
	for _, h := range hostiles(t) {
		t.Run(h.name, func(t *testing.T) {
			_, err := load(h.object, rulesOf("x86_64"))
			var refused *Error
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), h.want) {
				t.Errorf("%d bytes: %v, want one that says %q", len(h.object), err, h.want)
			}
		})
	}
}
