package elf

import (
	"bytes"
	"debug/elf"
	"path"
	"slices"
	"strings"
	"unicode"
)

// Bounds of what is looked through for a line. Line tables of a few thousand lines of C take some 50 KiB.
const (
	maxLineBytes = 4 << 20
	maxFileName  = 64
)

// Line is where in its author's source an address of an image comes from, if the object has line tables (clang -gline-tables-only or -g). They are
// not looked at before: it takes milliseconds, and what is wrong with them costs the line only.
func (o *Object) Line(img *Image, addr uint64) (file string, line int, ok bool) {
	defer func() {
		if recover() != nil { // these tables were not checked before
			file, line, ok = "", 0, false
		}
	}()
	offset, ok := o.codeOffset(addr - img.Base)
	if !ok {
		return "", 0, false
	}
	f, err := elf.NewFile(bytes.NewReader(o.bytes))
	if err != nil {
		return "", 0, false
	}
	return o.lineTables(f).find(offset)
}

// codeOffset is where in its section an offset in the image lies: that is what line tables know. With several sections of code one could not tell which.
func (o *Object) codeOffset(at uint64) (offset uint64, ok bool) {
	found := 0
	for i := range o.sections {
		s := &o.sections[i]
		if s.segment != segmentCode {
			continue
		}
		found++
		if at >= s.at && at-s.at < s.size {
			offset, ok = at-s.at, true
		}
	}
	return offset, ok && found == 1
}

// lineTables gives the sections that hold lines, as a linker would leave them; without any, or with too large ones, none.
func (o *Object) lineTables(f *elf.File) *lineTables {
	t := &lineTables{}
	for i, s := range f.Sections {
		if s.Type != elf.SHT_PROGBITS || s.Size > maxLineBytes {
			continue
		}
		switch content := o.bytes[s.Offset:][:s.Size]; s.Name {
		case ".debug_line":
			if t.lines != nil { // one is looked at, however many there are
				continue
			}
			t.lines = slices.Clone(content)
			o.settle(f, i, t.lines)
		case ".debug_line_str":
			t.lineNames = content
		case ".debug_str":
			t.names = content
		}
	}
	return t
}

// settle carries out a section's relocations, as far as line tables have any: places of symbols, and RISC-V's distances between two.
func (o *Object) settle(f *elf.File, section int, b []byte) {
	symbols, err := f.Symbols()
	if err != nil {
		return
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_RELA || int(s.Info) != section {
			continue
		}
		for c := (cursor{b: o.bytes[s.Offset:][:s.Size]}); ; {
			at, info, addend := c.number(8), c.number(8), c.number(8)
			if c.bad {
				break
			}
			how, symbol := fillings[f.Machine][uint32(info)], info>>32
			if how.size == 0 || symbol == 0 || symbol > uint64(len(symbols)) || at > uint64(len(b)) || how.size > uint64(len(b))-at {
				continue
			}
			place := b[at:][:how.size]
			value := symbols[symbol-1].Value + addend
			if how.times != 0 {
				old := cursor{b: place}
				value = old.number(len(place)) + how.times*value
			}
			for i := range place {
				place[i] = byte(value >> (8 * i))
			}
		}
	}
}

// filling is how a relocation fills its place: with a value, or by adding to what is there the value so many times.
type filling struct{ size, times uint64 }

var fillings = map[elf.Machine]map[uint32]filling{
	elf.EM_X86_64:  {uint32(elf.R_X86_64_64): {8, 0}, uint32(elf.R_X86_64_32): {4, 0}},
	elf.EM_AARCH64: {uint32(elf.R_AARCH64_ABS64): {8, 0}, uint32(elf.R_AARCH64_ABS32): {4, 0}},
	elf.EM_RISCV: {uint32(elf.R_RISCV_64): {8, 0}, uint32(elf.R_RISCV_32): {4, 0},
		uint32(elf.R_RISCV_ADD16): {2, 1}, uint32(elf.R_RISCV_SUB16): {2, ^uint64(0)}},
}

// shown is a file's name as errors show it: without folders, and nothing that a terminal takes for more than text.
func shown(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, path.Base(name))
	return name[:min(len(name), maxFileName)]
}

// Bytes is how many bytes the object has, which it keeps.
func (o *Object) Bytes() int { return len(o.bytes) }
