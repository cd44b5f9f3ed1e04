package elf

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

// Image is an object at its addresses.
type Image struct {
	Base  uint64
	Bytes []byte // code, read-only data, and the data that is not zero, as it is at first
	Const uint64 // where read-only data begins in Bytes, a multiple of SegmentBytes; code lies before it
	Data  uint64 // where writable data begins, another one
	Size  uint64 // with the zeroed data, which follows Bytes
	Parts []Part // what of Bytes is more than gaps between segments, in its order
	Entry uint64 // an address
	funcs []function
	named map[string]uint64 // global symbols
}

// Part is a part of an image's Bytes.
type Part struct{ From, To uint64 }

type function struct {
	name      string
	from, end uint64
}

// placement is an object on its way to becoming an image.
type placement struct {
	o       *Object
	img     *Image
	resolve func(name string) (uint64, bool)
	high    map[uint64]int64 // riscv64: by the address of an auipc, what it and its low part reach together
}

// site is where a relocation goes.
type site struct {
	bytes []byte // from there to the section's end
	at    uint64 // address
	value uint64 // of the symbol
}

// Place gives an object its addresses: base is a multiple of SegmentBytes. resolve says where an import is. Errors are *Error.
func (o *Object) Place(base uint64, resolve func(name string) (addr uint64, ok bool)) (*Image, error) {
	if base%SegmentBytes != 0 || base > 1<<62 {
		return nil, refuse("", "an image cannot lie at %#x: that is no multiple of %d, or too high", base, SegmentBytes)
	}
	img := &Image{Base: base, Bytes: make([]byte, o.filled), Const: o.starts[segmentConst], Data: o.starts[segmentData], Size: o.size, named: map[string]uint64{}}
	for i := range o.sections {
		copy(img.Bytes[min(o.sections[i].at, o.filled):], o.sections[i].data)
	}
	img.Parts = o.parts()
	p := &placement{o: o, img: img, resolve: resolve, high: map[uint64]int64{}}
	for _, sym := range o.gotOrder {
		v, err := p.value(sym)
		if err != nil {
			return nil, err
		}
		binary.LittleEndian.PutUint64(img.Bytes[o.got[sym]:], v)
	}
	for pass := range 2 { // riscv64's low parts need the high ones first
		for i := range o.relocs {
			r := &o.relocs[i]
			if late := o.arch.machine == riscvMachine && lowPart(r.kind); late != (pass == 1) {
				continue
			}
			if err := p.relocate(r); err != nil {
				return nil, err
			}
		}
	}
	entry := &o.symbols[o.entry]
	img.Entry = base + o.sections[entry.section].at + entry.value
	for i := range o.symbols {
		s := &o.symbols[i]
		if s.section < 0 {
			continue
		}
		from := base + o.sections[s.section].at + s.value
		if s.global {
			img.named[s.name] = from
		}
		if s.isFunc {
			img.funcs = append(img.funcs, function{s.name, from, from + s.size})
		}
	}
	slices.SortFunc(img.funcs, func(a, b function) int { return cmp.Compare(a.from, b.from) })
	return img, nil
}

// partGap is how far two sections lie apart that are not in one part: with less between them nothing is won.
const partGap = 4096

// parts are where the object's sections and its GOT lie.
func (o *Object) parts() []Part {
	var all []Part
	for i := range o.sections {
		if s := &o.sections[i]; s.data != nil {
			all = append(all, Part{s.at, s.at + s.size})
		}
	}
	for _, at := range o.got {
		all = append(all, Part{at, at + gotEntry})
	}
	slices.SortFunc(all, func(a, b Part) int { return cmp.Compare(a.From, b.From) })
	var joined []Part
	for _, p := range all {
		if n := len(joined); n > 0 && p.From < joined[n-1].To+partGap {
			joined[n-1].To = max(joined[n-1].To, p.To)
		} else {
			joined = append(joined, p)
		}
	}
	return joined
}

func (p *placement) relocate(r *reloc) error {
	sec := &p.o.sections[r.section]
	v, err := p.value(r.symbol)
	if err != nil {
		return err
	}
	s := &site{bytes: p.img.Bytes[sec.at+r.offset : sec.at+sec.size], at: p.img.Base + sec.at + r.offset, value: v}
	return p.o.arch.apply(p, r, s)
}

// value is a symbol's address; 0 for the symbol 0, which stands for none.
func (p *placement) value(index uint32) (uint64, error) {
	if index == 0 {
		return 0, nil
	}
	s := &p.o.symbols[index-1]
	switch s.section {
	case nowhere:
		return 0, refuse("", "a relocation refers to the symbol %q, which is no part of the image", s.name)
	case undefined:
		addr, ok := p.resolve(s.name)
		if !ok {
			return 0, refuse("", "the symbol %q is an import that this element does not have", s.name)
		}
		return addr, nil
	}
	return p.img.Base + p.o.sections[s.section].at + s.value, nil
}

// got is the address of a symbol's entry in the GOT.
func (p *placement) got(r *reloc) uint64 { return p.img.Base + p.o.got[r.symbol] }

// fail says why a relocation cannot be carried out.
func (p *placement) fail(r *reloc, do, why string) error {
	name := ""
	if r.symbol != 0 {
		name = " to " + p.o.symbolName(r.symbol)
	}
	kind := p.o.arch.kindName(r.kind)
	if strings.Contains(kind, "+") { // debug/elf names an unknown one by the last that it knows before it
		kind = strconv.FormatUint(uint64(r.kind), 10)
	}
	return refuse(do, "the relocation %s%s at %#x of section %q %s", kind, name, r.offset, p.o.sections[r.section].name, why)
}

func (o *Object) symbolName(index uint32) string {
	s := &o.symbols[index-1]
	if s.name == "" && s.section >= 0 {
		return o.sections[s.section].name
	}
	return s.name
}

// unknown refuses a relocation of a kind that is not carried out.
func (p *placement) unknown(r *reloc) error {
	return p.fail(r, "compile with -fPIC and the small code model (riscv64: with -mno-relax too)", "is of a kind that is not known here")
}

const outOfReach = "does not reach its target"

// put stores a value of n bytes; ok is false if it leaves the section.
func (s *site) put(v uint64, n int) bool {
	if len(s.bytes) < n {
		return false
	}
	for i := range n {
		s.bytes[i] = byte(v >> (8 * i))
	}
	return true
}

// word is the 32-bit instruction at the site; ok is false if it leaves the section.
func (s *site) word() (uint32, bool) {
	if len(s.bytes) < 4 {
		return 0, false
	}
	return binary.LittleEndian.Uint32(s.bytes), true
}

// fits reports whether v can be had as a signed number of so many bits.
func fits(v int64, bits int) bool {
	return v>>(bits-1) == 0 || v>>(bits-1) == -1
}

// Function names the function that an address lies in, and how far; ok is false if it is in none.
func (img *Image) Function(addr uint64) (name string, offset uint64, ok bool) {
	i, found := slices.BinarySearchFunc(img.funcs, addr, func(f function, a uint64) int { return cmp.Compare(f.from, a) })
	if !found {
		i--
	}
	if i < 0 || addr >= img.funcs[i].end {
		return "", 0, false
	}
	return img.funcs[i].name, addr - img.funcs[i].from, true
}

// Address is where a global function or variable of the image lies.
func (img *Image) Address(name string) (addr uint64, ok bool) {
	addr, ok = img.named[name]
	return addr, ok
}
