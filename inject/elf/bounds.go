package elf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
)

// debug/elf copies a name for every section and symbol that refers to it, and inflates compressed tables. An object of
// 8 MiB could make it allocate hundreds of gigabytes, so this file checks the headers before debug/elf reads them.

const (
	// MaxNameBytes bounds all names of sections and symbols, each counted as often as it is referred to: twice the largest object.
	MaxNameBytes = 2 * MaxBytes

	headerBytes  = 64 // of an Elf64_Ehdr
	sectionBytes = 64 // of an Elf64_Shdr
)

// head checks the file's header.
func (p *parser) head() error {
	var h elf.Header64
	if len(p.b) < headerBytes || !bytes.HasPrefix(p.b, []byte(elf.ELFMAG)) {
		return refuse("", "it is no ELF file")
	}
	if _, err := binary.Decode(p.b, binary.LittleEndian, &h); err != nil {
		return refuse("", "it is no ELF file: %v", err)
	}
	class, data := elf.Class(h.Ident[elf.EI_CLASS]), elf.Data(h.Ident[elf.EI_DATA])
	switch arch := p.o.arch; {
	case class != elf.ELFCLASS64 || data != elf.ELFDATA2LSB:
		return refuse("", "it is %v, %v; a 64-bit little-endian object is wanted", class, data)
	case elf.Type(h.Type) != elf.ET_REL:
		return refuse("compile with -c", "it is %v, not a relocatable object", elf.Type(h.Type))
	case elf.Machine(h.Machine) != arch.machine:
		return refuse("", "it is code for %v, not for %s", elf.Machine(h.Machine), arch.name)
	case h.Flags&^arch.flags != 0:
		return refuse("", "its processor flags are %#x, of which %#x can be had", h.Flags, arch.flags)
	case h.Phnum > 0:
		return refuse("", "it has program headers, which no relocatable object needs")
	case h.Shnum == 0 || h.Shnum > MaxSections: // ELF writes 0 for more than 65,279
		return refuse("", "its header counts %d sections, at least 1 and at most %d are taken", h.Shnum, MaxSections)
	case h.Shentsize != sectionBytes:
		return refuse("", "it has section headers of %d bytes, not %d", h.Shentsize, sectionBytes)
	}
	size := uint64(len(p.b))
	if n := uint64(h.Shnum) * sectionBytes; h.Shoff > size || n > size-h.Shoff {
		return refuse("", "its section headers leave the file")
	}
	headers := make([]elf.Section64, h.Shnum)
	if _, err := binary.Decode(p.b[h.Shoff:], binary.LittleEndian, headers); err != nil {
		return refuse("", "its section headers cannot be read: %v", err)
	}
	if err := p.contents(headers); err != nil {
		return err
	}
	return p.names(headers, uint32(h.Shstrndx))
}

// contents checks where sections lie, and finds the symbol table.
func (p *parser) contents(headers []elf.Section64) error {
	size := uint64(len(p.b))
	left := size
	for i := range headers {
		s := &headers[i]
		kind := elf.SectionType(s.Type)
		if i == 0 && kind != elf.SHT_NULL {
			return refuse("", "section 0 is of the type %v, not %v", kind, elf.SHT_NULL)
		}
		if elf.SectionFlag(s.Flags)&elf.SHF_COMPRESSED != 0 {
			return refuse("compile with -gz=none", "section %d is compressed", i)
		}
		if kind == elf.SHT_NULL || kind == elf.SHT_NOBITS {
			continue
		}
		if s.Off > size || s.Size > size-s.Off {
			return refuse("", "section %d leaves the file", i)
		}
		if s.Size > left { // some overlap: one table of relocations could be read for each of 4096 sections
			return refuse("", "its sections up to number %d have more bytes than the file, which has %d", i, size)
		}
		left -= s.Size
		if kind != elf.SHT_SYMTAB {
			continue
		}
		if p.symtab != 0 {
			return refuse("", "it has two symbol tables")
		}
		p.symtab = i
	}
	return nil
}

// names bounds the names that debug/elf will copy.
func (p *parser) names(headers []elf.Section64, sectionNames uint32) error {
	left := MaxNameBytes
	name := func(table []byte, at uint32) ([]byte, error) {
		n := -1
		if uint64(at) < uint64(len(table)) {
			n = bytes.IndexByte(table[at:], 0)
		}
		if n < 0 {
			return nil, refuse("", "the name at %d of a table of %d bytes ends nowhere", at, len(table))
		}
		if left -= n; left < 0 {
			return nil, refuse("use shorter or fewer names", "the names of its sections and symbols take more than %d bytes", MaxNameBytes)
		}
		return table[at:][:n], nil
	}
	table, err := p.strings(headers, sectionNames)
	if err != nil {
		return err
	}
	for i := range headers {
		s, err := name(table, headers[i].Name)
		if err != nil {
			return err
		}
		if strings.HasPrefix(string(s), ".zdebug") { // debug/elf inflates these by their name
			return refuse("compile with -gz=none", "section %d is compressed, by its name", i)
		}
	}
	if p.symtab == 0 {
		return nil
	}
	symtab := headers[p.symtab]
	if table, err = p.strings(headers, symtab.Link); err != nil {
		return err
	}
	for b := p.b[symtab.Off:][:symtab.Size]; len(b) >= elf.Sym64Size; b = b[elf.Sym64Size:] {
		if _, err := name(table, binary.LittleEndian.Uint32(b)); err != nil { // st_name is an Elf64_Sym's first field
			return err
		}
	}
	return nil
}

// strings gives a string table.
func (p *parser) strings(headers []elf.Section64, i uint32) ([]byte, error) {
	if uint64(i) >= uint64(len(headers)) || elf.SectionType(headers[i].Type) != elf.SHT_STRTAB {
		return nil, refuse("", "section %d of %d is no string table", i, len(headers))
	}
	return p.b[headers[i].Off:][:headers[i].Size], nil
}
