package elf

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"path"
	"strings"
	"unicode"
)

// Bounds of what is looked through for a line. Line tables of a few thousand lines of C take some 50 KiB.
const (
	maxLineBytes = 4 << 20
	maxLineUnits = 64
	maxFileName  = 64
)

// Line is where in its author's source an address of an image comes from, if the object has line tables (clang -gline-tables-only or -g). They are
// not looked at before: it takes milliseconds, and what is wrong with them costs the line only.
func (o *Object) Line(img *Image, addr uint64) (file string, line int, ok bool) {
	defer func() {
		if recover() != nil { // nobody checked these tables
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
	size := uint64(0)
	for _, s := range f.Sections {
		if strings.HasPrefix(s.Name, ".debug_") {
			size += s.Size
		}
	}
	if size == 0 || size > maxLineBytes {
		return "", 0, false
	}
	tables, err := f.DWARF()
	if err != nil {
		return "", 0, false
	}
	return lineOf(tables, offset)
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

func lineOf(tables *dwarf.Data, offset uint64) (file string, line int, ok bool) {
	units := tables.Reader()
	for range maxLineUnits {
		unit, err := units.Next()
		if err != nil || unit == nil {
			break
		}
		var at dwarf.LineEntry
		rows, err := tables.LineReader(unit)
		if err == nil && rows != nil && rows.SeekPC(offset, &at) == nil && at.File != nil && at.Line > 0 {
			return shown(at.File.Name), at.Line, true
		}
		units.SkipChildren()
	}
	return "", 0, false
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
