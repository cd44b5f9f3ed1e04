package elf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

const (
	// MaxBytes is the largest object: 8 MiB, as the largest wasm module.
	MaxBytes = 8 << 20
	// MaxSections is enough for two thousand functions with a section each.
	MaxSections = 4096
	// MaxImageBytes bounds code, read-only data and writable data together, so that every
	// part is within the reach of 32-bit relocations from every other.
	MaxImageBytes = 1 << 30
	// SegmentBytes is what an image's segments are aligned to: the largest page of the three processors.
	SegmentBytes = 64 << 10

	relaBytes = 24 // of an Elf64_Rela
	gotEntry  = 8
	maxAlign  = SegmentBytes
)

// Error says why an object is refused.
type Error struct {
	What string // in full
	Do   string // what to do about it; may be empty
}

func (e *Error) Error() string {
	if e.Do == "" {
		return "elf: " + e.What
	}
	return "elf: " + e.What + "; " + e.Do
}

func refuse(do, format string, args ...any) error {
	return &Error{What: fmt.Sprintf(format, args...), Do: do}
}

// Rules are what an object must keep to.
type Rules struct {
	Arch    string   // "x86_64", "aarch64" or "riscv64", as a triple begins
	Entry   string   // a global function that the object must define
	Imports []string // the names that it may leave undefined
}

// The segments of an image, in their order.
const (
	segmentCode = iota
	segmentConst
	segmentData
	segments
)

// section is a part of the object that becomes part of the image.
type section struct {
	name    string
	segment int
	at      uint64 // offset in the image
	size    uint64
	data    []byte // nil: zeroed
}

// symbol is one of the object's, by its index in the symbol table.
type symbol struct {
	name    string
	section int // index in Object.sections; undefined: an import; nowhere: not to be referred to
	value   uint64
	size    uint64
	isFunc  bool
	global  bool
}

const (
	undefined = -1
	nowhere   = -2
)

// reloc is a relocation of a kept section.
type reloc struct {
	section int
	offset  uint64
	kind    uint32
	symbol  uint32
	addend  int64
}

// Object is an object that was accepted.
type Object struct {
	arch     *arch
	bytes    []byte // all of it, for Line
	sections []section
	symbols  []symbol // as in the table, from its second entry on
	relocs   []reloc
	entry    int
	gotOrder []uint32          // its symbols, in the order of the relocations
	got      map[uint32]uint64 // by symbol: offset in the image
	starts   [segments]uint64
	filled   uint64 // image bytes with content; the zeroed part follows
	size     uint64 // with the zeroed part
}

// arch is what differs between processors.
type arch struct {
	name     string
	machine  elf.Machine
	flags    uint32 // of e_flags that are allowed
	apply    func(*placement, *reloc, *site) error
	usesGOT  func(kind uint32) bool
	kindName func(kind uint32) string
}

func arches() []*arch {
	return []*arch{
		{name: "x86_64", machine: elf.EM_X86_64, apply: applyX86, usesGOT: gotX86,
			kindName: func(k uint32) string { return elf.R_X86_64(k).String() }},
		{name: "aarch64", machine: elf.EM_AARCH64, apply: applyARM, usesGOT: gotARM,
			kindName: func(k uint32) string { return elf.R_AARCH64(k).String() }},
		{name: "riscv64", machine: elf.EM_RISCV, flags: riscvCompressed | riscvDouble, apply: applyRISCV, usesGOT: gotRISCV,
			kindName: func(k uint32) string { return elf.R_RISCV(k).String() }},
	}
}

// Parse checks an object. It keeps b, which must not change.
func Parse(b []byte, rules Rules) (*Object, error) {
	if len(b) > MaxBytes {
		return nil, refuse("", "the object has %d bytes, at most %d are taken", len(b), MaxBytes)
	}
	i := slices.IndexFunc(arches(), func(a *arch) bool { return a.name == rules.Arch })
	if i < 0 {
		return nil, refuse("", "no object of %q can be loaded, only x86_64, aarch64 and riscv64", rules.Arch)
	}
	o := &Object{arch: arches()[i], bytes: b, got: map[uint32]uint64{}}
	p := &parser{o: o, b: b, rules: rules}
	for _, step := range []func() error{p.head, p.open, p.readSections, p.readSymbols, p.readRelocs, p.layOut} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Check says why an element would not load an object: what Parse refuses, and relocations that Place does. It places the object on trial.
func Check(b []byte, rules Rules) (*Object, error) {
	o, err := Parse(b, rules)
	if err != nil {
		return nil, err
	}
	const base = 1 << 32
	_, err = o.Place(base, func(string) (uint64, bool) { return base - SegmentBytes, true })
	return o, err
}

// parser reads an object's parts.
type parser struct {
	o      *Object
	f      *elf.File
	b      []byte
	rules  Rules
	index  []int // by the file's section: in Object.sections, or nowhere
	symtab int   // its section; 0: there is none
}

// open has debug/elf read the headers, once head has bounded them.
func (p *parser) open() (err error) {
	if p.f, err = elf.NewFile(bytes.NewReader(p.b)); err != nil {
		return refuse("", "it is no ELF file: %v", err)
	}
	p.index = make([]int, len(p.f.Sections))
	return nil
}

// knownFlags are the section flags that change nothing here, or that are looked at.
const knownFlags = elf.SHF_WRITE | elf.SHF_ALLOC | elf.SHF_EXECINSTR | elf.SHF_MERGE | elf.SHF_STRINGS | elf.SHF_INFO_LINK |
	elf.SHF_LINK_ORDER | elf.SHF_GROUP

// dropped are the kinds and names of sections that say something about the code to tools.
func dropped(s *elf.Section) bool {
	const unwind = 0x70000001 // SHT_X86_64_UNWIND
	return s.Type == elf.SHT_NOTE || s.Name == ".eh_frame" && (s.Type == elf.SHT_PROGBITS || s.Type == unwind)
}

func (p *parser) readSections() error {
	total := uint64(0)
	for i, s := range p.f.Sections {
		p.index[i] = nowhere
		if s.Flags&elf.SHF_TLS != 0 {
			return refuse("use no thread-local variables", "section %q is thread-local storage", s.Name)
		}
		if constructs(s) {
			return refuse("set in the function, in wherry_main, what they set", "section %q holds constructors or destructors", s.Name)
		}
		if s.Flags&elf.SHF_ALLOC == 0 || s.Size == 0 || dropped(s) {
			continue
		}
		if err := p.keep(i, s); err != nil {
			return err
		}
		if total += s.Size; s.Size > MaxImageBytes || total > MaxImageBytes {
			return refuse("", "its code and data take %d bytes up to section %q, at most %d are taken", total, s.Name, MaxImageBytes)
		}
	}
	return nil
}

func constructs(s *elf.Section) bool {
	switch s.Type {
	case elf.SHT_INIT_ARRAY, elf.SHT_FINI_ARRAY, elf.SHT_PREINIT_ARRAY:
		return true
	}
	for _, name := range []string{".init", ".fini", ".ctors", ".dtors", ".init_array", ".fini_array", ".preinit_array"} {
		if s.Name == name || strings.HasPrefix(s.Name, name+".") {
			return true
		}
	}
	return false
}

// keep makes a section part of the image.
func (p *parser) keep(i int, s *elf.Section) error {
	if s.Flags&^knownFlags != 0 {
		return refuse("compile with the small code model", "section %q has the flags %v, of which some are not known here", s.Name, s.Flags)
	}
	if s.Type != elf.SHT_PROGBITS && s.Type != elf.SHT_NOBITS {
		return refuse("", "section %q is of the type %v, which is not loaded", s.Name, s.Type)
	}
	align := max(s.Addralign, 1)
	if align&(align-1) != 0 || align > maxAlign {
		return refuse("", "section %q is aligned to %d; a power of two up to %d is wanted", s.Name, align, maxAlign)
	}
	sec := section{name: s.Name, segment: segmentConst, size: s.Size, at: align} // at: the alignment, until it is laid out
	write, exec := s.Flags&elf.SHF_WRITE != 0, s.Flags&elf.SHF_EXECINSTR != 0
	switch {
	case write && exec:
		return refuse("", "section %q is writable and executable", s.Name)
	case exec:
		sec.segment = segmentCode
	case write && !strings.HasPrefix(s.Name, ".data.rel.ro"): // that one is constant once it is relocated
		sec.segment = segmentData
	}
	if s.Type == elf.SHT_PROGBITS {
		sec.data = p.b[s.Offset : s.Offset+s.Size]
	} else if sec.segment != segmentData {
		return refuse("", "section %q is zeroed and not writable", s.Name)
	}
	p.index[i] = len(p.o.sections)
	p.o.sections = append(p.o.sections, sec)
	return nil
}

func (p *parser) readSymbols() error {
	syms, err := p.f.Symbols()
	if err != nil {
		return refuse("", "its symbol table cannot be read: %v", err)
	}
	p.o.entry = nowhere
	p.o.symbols = make([]symbol, len(syms))
	for i := range syms {
		s, err := p.symbol(&syms[i])
		if err != nil {
			return err
		}
		if p.o.symbols[i] = s; s.section >= 0 && s.name == p.rules.Entry && s.global {
			if !s.isFunc || p.o.sections[s.section].segment != segmentCode {
				return refuse("", "%s is no function", s.name)
			}
			p.o.entry = i
		}
	}
	if p.o.entry == nowhere {
		return refuse("define it, as WHERRY_ENTRY does", "it defines no global function %s", p.rules.Entry)
	}
	return nil
}

func (p *parser) symbol(s *elf.Symbol) (symbol, error) {
	const indirect = elf.STT_LOOS // STT_GNU_IFUNC
	kind := elf.ST_TYPE(s.Info)
	sym := symbol{name: s.Name, section: nowhere, value: s.Value, size: s.Size, isFunc: kind == elf.STT_FUNC,
		global: elf.ST_BIND(s.Info) == elf.STB_GLOBAL}
	switch {
	case kind == elf.STT_TLS:
		return sym, refuse("use no thread-local variables", "the symbol %q is thread-local", s.Name)
	case kind == indirect:
		return sym, refuse("", "the symbol %q is an indirect function, which would run before it is called", s.Name)
	case kind > elf.STT_COMMON:
		return sym, refuse("", "the symbol %q is of the type %d, which is not known here", s.Name, kind)
	case s.Section == elf.SHN_UNDEF && kind != elf.STT_FILE:
		if !slices.Contains(p.rules.Imports, s.Name) {
			return sym, refuse("a function calls nothing but the host calls that its manifest lists, and defines the rest", "the symbol %q is defined nowhere", s.Name)
		}
		if !sym.global {
			return sym, refuse("", "the symbol %q is defined nowhere and weak", s.Name)
		}
		sym.section = undefined
	case s.Section == elf.SHN_COMMON:
		return sym, refuse("compile with -fno-common", "the symbol %q is common", s.Name)
	case s.Section >= elf.SHN_LORESERVE:
		sym.isFunc = false // a file's name, or a number: nothing may refer to it
	case int(s.Section) >= len(p.index):
		return sym, refuse("", "the symbol %q is in section %d of %d", s.Name, s.Section, len(p.index))
	default:
		if sym.section = p.index[s.Section]; sym.section >= 0 {
			if size := p.o.sections[sym.section].size; s.Value > size || s.Size > size-s.Value {
				return sym, refuse("", "the symbol %q leaves its section", s.Name)
			}
		}
	}
	return sym, nil
}

func (p *parser) readRelocs() error {
	for i, s := range p.f.Sections {
		switch s.Type {
		case elf.SHT_RELA:
		case elf.SHT_REL, elf.SectionType(19), elf.SectionType(0x40000014): // SHT_RELR, SHT_CREL
			return refuse("", "section %d (%q) has relocations of the type %v; with addends (RELA) is wanted", i, s.Name, s.Type)
		default:
			continue
		}
		if int(s.Info) >= len(p.index) {
			return refuse("", "section %q relocates section %d of %d", s.Name, s.Info, len(p.index))
		}
		target := p.index[s.Info]
		if target < 0 {
			continue
		}
		if int(s.Link) != p.symtab || s.Size%relaBytes != 0 {
			return refuse("", "section %q is damaged", s.Name)
		}
		for d := p.b[s.Offset : s.Offset+s.Size]; len(d) > 0; d = d[relaBytes:] {
			if err := p.reloc(target, d); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *parser) reloc(target int, d []byte) error {
	info := binary.LittleEndian.Uint64(d[8:])
	r := reloc{section: target, offset: binary.LittleEndian.Uint64(d), kind: uint32(info), symbol: uint32(info >> 32),
		addend: int64(binary.LittleEndian.Uint64(d[16:]))}
	sec := &p.o.sections[target]
	if r.offset >= sec.size || sec.data == nil {
		return refuse("", "a relocation at %#x leaves section %q", r.offset, sec.name)
	}
	if r.symbol > uint32(len(p.o.symbols)) {
		return refuse("", "a relocation at %#x of section %q has the symbol %d of %d", r.offset, sec.name, r.symbol, len(p.o.symbols))
	}
	if p.o.arch.usesGOT(r.kind) {
		if _, ok := p.o.got[r.symbol]; !ok {
			p.o.got[r.symbol] = 0
			p.o.gotOrder = append(p.o.gotOrder, r.symbol)
		}
	}
	p.o.relocs = append(p.o.relocs, r)
	return nil
}

// layOut gives every section, and every entry of the GOT, its place in the image.
func (p *parser) layOut() error {
	o, at := p.o, uint64(0)
	place := func(segment int, zeroed bool) {
		for i := range o.sections {
			if s := &o.sections[i]; s.segment == segment && (s.data == nil) == zeroed {
				s.at = alignUp(at, s.at)
				at = s.at + s.size
			}
		}
	}
	for segment := range segments {
		at = alignUp(at, SegmentBytes)
		o.starts[segment] = at
		place(segment, false)
		if segment == segmentConst {
			at = alignUp(at, gotEntry)
			for _, sym := range o.gotOrder {
				o.got[sym] = at
				at += gotEntry
			}
		}
	}
	if most := maxFilled(len(p.b)); at > most {
		return refuse("align less", "its code and data take %d bytes with their alignment, at most %d are taken of an object of %d", at, most, len(p.b))
	}
	o.filled = at
	place(segmentData, true)
	if o.size = at; o.size > MaxImageBytes {
		return refuse("", "its code and data take %d bytes, at most %d are taken", o.size, MaxImageBytes)
	}
	return nil
}

// maxFilled bounds the filled part of an object's image: as much padding as content, and the segments' own alignment.
// Otherwise a thousand sections of one byte, each aligned to 64 KiB, would take 64 MiB.
func maxFilled(objectBytes int) uint64 { return 2*uint64(objectBytes) + segments*SegmentBytes }

func alignUp(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }

// DataBytes is how much memory the data takes that the function may write to.
func (o *Object) DataBytes() uint64 { return o.size - o.starts[segmentData] }
