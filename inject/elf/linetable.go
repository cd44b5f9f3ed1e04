package elf

import "bytes"

// The tables come from the object's maker, and they are read in the node's own process. debug/dwarf makes as much room as a table's head says, and joins
// each file's name with its folder's: a table of some bytes has it ask for terabytes, which ends the process. This reader takes time and memory
// in proportion to the tables: it runs through them once, and keeps one row.

// lineTables are the sections of an object that know lines: DWARF of version 2 to 5, in 32-bit form.
type lineTables struct {
	lines     []byte // .debug_line: one table after another
	lineNames []byte // .debug_line_str
	names     []byte // .debug_str
}

// find looks for the row of an offset in the section of code.
func (t *lineTables) find(offset uint64) (file string, line int, ok bool) {
	for c := (cursor{b: t.lines}); len(c.b) > 0; {
		unit := cursor{b: c.take(c.number(4))}
		if c.bad {
			break
		}
		h := readLineHead(&unit)
		if unit.bad {
			continue
		}
		row, found := h.run(offset)
		if !found || row.line == 0 || row.line > 1<<31-1 {
			continue
		}
		if name := t.fileName(&h, row.file); len(name) > 0 {
			return shown(string(name)), int(row.line), true
		}
	}
	return "", 0, false
}

// lineHead is a table's head, as far as it is needed.
type lineHead struct {
	version  uint64
	step     uint64 // that addresses are multiples of
	base     int64  // the least that a short instruction adds to the line, …
	span     uint64 // … and how many such numbers there are
	first    int    // of the short instructions
	operands []byte // how many the others have, from number 1 on
	files    cursor
	program  []byte
}

func readLineHead(c *cursor) (h lineHead) {
	h.version = c.number(2)
	if h.version < 2 || h.version > 5 {
		c.bad = true
		return h
	}
	if h.version == 5 {
		c.take(2) // sizes of addresses and segments
	}
	head := cursor{b: c.take(c.number(4))}
	h.program = c.b
	h.step = head.number(1)
	if h.version >= 4 {
		head.take(1) // instructions a word, of processors that are none of ours
	}
	head.take(1) // whether rows are statements
	h.base = int64(int8(head.number(1)))
	h.span = head.number(1)
	h.first = int(head.number(1))
	h.operands = head.take(uint64(max(h.first-1, 0)))
	h.files = head
	c.bad = c.bad || head.bad || h.span == 0 || h.first == 0
	return h
}

// lineRow says what begins at an address.
type lineRow struct{ addr, file, line uint64 }

// run runs a table's program until a row covers the offset.
func (h *lineHead) run(offset uint64) (found lineRow, ok bool) {
	begin := lineRow{file: 1, line: 1}
	row, last, any := begin, lineRow{}, false
	// emit ends the row before this one.
	emit := func() bool {
		if any && last.addr <= offset && offset < row.addr {
			return true
		}
		last, any = row, true
		return false
	}
	for c := (cursor{b: h.program}); len(c.b) > 0 && !c.bad; {
		op := int(c.number(1))
		switch {
		case op >= h.first:
			h.short(&row, uint64(op-h.first))
			ok = emit()
		case op == 0:
			e := cursor{b: c.take(c.leb())}
			switch kind := e.number(1); {
			case e.bad:
			case kind == 1: // the sequence ends
				ok = emit()
				row, any = begin, false
			case kind == 2:
				row.addr = e.number(len(e.b))
			}
		case op == 1:
			ok = emit()
		default:
			h.long(&c, &row, op)
		}
		if ok {
			return last, true
		}
	}
	return lineRow{}, false
}

// short moves on by what one byte says.
func (h *lineHead) short(row *lineRow, by uint64) {
	row.addr += by / h.span * h.step
	row.line += uint64(h.base) + by%h.span
}

// long carries out an instruction that makes no row.
func (h *lineHead) long(c *cursor, row *lineRow, op int) {
	switch op {
	case 2:
		row.addr += c.leb() * h.step
	case 3:
		row.line += c.signed()
	case 4:
		row.file = c.leb()
	case 8:
		row.addr += uint64(255-h.first) / h.span * h.step
	case 9:
		row.addr += c.number(2)
	default:
		for range h.operands[op-1] {
			c.leb()
		}
	}
}

// fileName is what a table calls a file, without its folder.
func (t *lineTables) fileName(h *lineHead, number uint64) []byte {
	c := h.files
	if h.version == 5 {
		t.entries(&c, 0) // folders
		return t.entries(&c, number)
	}
	for len(c.text()) > 0 { // folders
	}
	for i := uint64(1); ; i++ {
		name := c.text()
		if i == number || len(name) == 0 {
			return name
		}
		c.leb() // its folder, time and size
		c.leb()
		c.leb()
	}
}

// entries reads a list of version 5, and gives the name of one of its entries.
func (t *lineTables) entries(c *cursor, number uint64) (name []byte) {
	const isName = 1
	format := make([]struct{ kind, form uint64 }, c.number(1))
	for i := range format {
		format[i].kind, format[i].form = c.leb(), c.leb()
	}
	count := c.leb()
	if len(format) == 0 {
		return nil // of nothing but a count
	}
	for i := uint64(0); i < count && !c.bad; i++ {
		for _, f := range format {
			place := *c
			if skip(c, f.form); i == number && f.kind == isName {
				name = t.value(&place, f.form)
			}
		}
	}
	return name
}

// Forms of values.
const (
	formData2    = 0x05
	formData4    = 0x06
	formData8    = 0x07
	formText     = 0x08
	formBlock    = 0x09
	formData1    = 0x0b
	formName     = 0x0e // its place in names
	formNumber   = 0x0f
	formData16   = 0x1e
	formLineName = 0x1f // its place in lineNames
)

// skip passes over a value. It follows no reference: each would be a search for a text's end.
func skip(c *cursor, form uint64) {
	switch form {
	case formText:
		c.text()
	case formNumber:
		c.leb()
	case formBlock:
		c.take(c.leb())
	case formData1:
		c.take(1)
	case formData2:
		c.take(2)
	case formData4, formName, formLineName:
		c.take(4)
	case formData8:
		c.take(8)
	case formData16:
		c.take(16)
	default:
		c.bad = true
	}
}

// value is a value's text, if it is one.
func (t *lineTables) value(c *cursor, form uint64) []byte {
	switch form {
	case formText:
		return c.text()
	case formName:
		return textAt(t.names, c.number(4))
	case formLineName:
		return textAt(t.lineNames, c.number(4))
	}
	return nil
}

func textAt(b []byte, at uint64) []byte {
	if at >= uint64(len(b)) {
		return nil
	}
	c := cursor{b: b[at:]}
	return c.text()
}

// cursor reads bytes. Once there are too few it is bad, and gives zeros.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n uint64) []byte {
	if c.bad || n > uint64(len(c.b)) {
		c.b, c.bad = nil, true
		return nil
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

// number reads a little-endian number of some bytes, at most 8 of which count.
func (c *cursor) number(size int) (n uint64) {
	for i, x := range c.take(uint64(size)) {
		n |= uint64(x) << (8 * i)
	}
	return n
}

// leb reads a number of seven bits a byte.
func (c *cursor) leb() (n uint64) {
	n, _, _ = c.bits()
	return n
}

// signed is leb for numbers below 0 too, as what wraps around to them.
func (c *cursor) signed() uint64 {
	n, width, negative := c.bits()
	if negative && width < 64 {
		n |= ^uint64(0) << width
	}
	return n
}

func (c *cursor) bits() (n uint64, width int, negative bool) {
	for {
		x := c.number(1)
		n |= (x & 0x7f) << width
		width += 7
		if x < 0x80 || c.bad {
			return n, width, x&0x40 != 0
		}
	}
}

// text reads what ends with a zero, and that.
func (c *cursor) text() []byte {
	n := bytes.IndexByte(c.b, 0)
	if n < 0 {
		c.take(uint64(len(c.b)) + 1)
		return nil
	}
	b := c.take(uint64(n) + 1)
	return b[:max(len(b)-1, 0)]
}
