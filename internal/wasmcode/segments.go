package wasmcode

import "bytes"

func (d *decoder) elementSection(r *reader) {
	n := r.count("element segments", MaxElemSegments)
	total := 0
	for range n {
		e := d.element(r)
		total += len(e.funcs) + len(e.exprs)
		if total > MaxTableElements {
			r.fail("more than %d elements in all segments", MaxTableElements)
		}
		if !r.ok() {
			return
		}
		d.m.elems = append(d.m.elems, e)
	}
}

// element reads one element segment. Flags: 1 passive or declarative, 2 explicit table (or
// declarative), 4 expressions instead of function indices.
func (d *decoder) element(r *reader) elem {
	at := r.pos
	e := elem{flags: r.u32(), typ: FuncRef}
	if e.flags > 7 {
		r.failAt(at, "an element segment with flags %d", e.flags)
		return e
	}
	if e.flags&1 == 0 {
		if e.flags&2 != 0 {
			e.table = r.u32()
		}
		if r.ok() && int(e.table) >= len(d.m.tables) {
			r.failAt(at, "an element segment for table %d, but there are %d", e.table, len(d.m.tables))
			return e
		}
		e.offset = d.constExpr(r, I32)
	}
	if e.flags&3 != 0 {
		if e.flags&4 != 0 {
			e.typ = r.refType()
		} else {
			r.zero()
		}
	}
	if r.ok() && e.flags&1 == 0 && d.m.tables[e.table].elem != e.typ {
		r.failAt(at, "an element segment of %v for table %d of %v", e.typ, e.table, d.m.tables[e.table].elem)
	}
	d.elements(r, &e)
	if r.ok() && e.flags&1 == 0 {
		if end := int64(e.offset.value) + int64(len(e.funcs)+len(e.exprs)); end > int64(d.m.tables[e.table].min) {
			r.failAt(at, "an element segment ends at %d, but table %d has %d elements", end, e.table, d.m.tables[e.table].min)
		}
	}
	return e
}

func (d *decoder) elements(r *reader, e *elem) {
	n := r.count("elements", MaxTableElements)
	if e.flags&4 != 0 {
		for range n {
			if !r.ok() {
				return
			}
			e.exprs = append(e.exprs, d.constExpr(r, e.typ))
		}
		return
	}
	e.funcs = make([]uint32, n)
	for i := range e.funcs {
		e.funcs[i] = r.index("function", d.m.functionCount())
	}
}

func (d *decoder) dataSection(r *reader) {
	n := r.count("data segments", MaxDataSegments)
	start := r.pos
	for range n {
		at := r.pos
		flags := r.u32()
		s := dataSegment{active: flags != 1}
		offset := uint32(0)
		switch {
		case flags > 2:
			r.failAt(at, "a data segment with flags %d", flags)
		case flags == 2:
			if mem := r.u32(); mem != 0 {
				r.failAt(at, "a data segment for memory %d (only memory 0 exists)", mem)
			}
			fallthrough
		case flags == 0:
			if !d.hasMemory {
				r.failAt(at, "a data segment without a memory")
			}
			offset = d.constExpr(r, I32).value
		}
		s.bytes = int(r.u32())
		r.take(s.bytes, "a data segment")
		if end := int64(offset) + int64(s.bytes); r.ok() && s.active && end > int64(d.m.MinPages)<<16 {
			r.failAt(at, "a data segment ends at %#x, beyond the memory's %d pages", end, d.m.MinPages)
		}
		if !r.ok() {
			return
		}
		if s.active {
			d.m.dataFrom = min(d.m.dataFrom, offset)
		}
		d.m.data = append(d.m.data, s)
	}
	d.m.dataRaw = r.b[start:r.pos]
}

// custom looks for function names; every other custom section is dropped. Broken
// names are no reason to refuse code, so errors only end the search.
func (d *decoder) custom(r *reader) {
	if r.name("a custom section's name") != "name" || !r.ok() || d.m.names != nil {
		if !r.ok() {
			r.err = nil
		}
		return
	}
	const functionNames = 1
	for r.ok() && r.left() > 0 {
		id := r.u8()
		b := r.take(int(r.u32()), "names")
		if r.ok() && id == functionNames {
			d.m.names = functionNameMap(b)
		}
	}
	r.err = nil
}

func functionNameMap(b []byte) map[uint32]string {
	r := reader{b: b, fn: -1}
	n := r.count("names", MaxFunctions+MaxImports)
	names := make(map[uint32]string, n)
	for range n {
		i, name := r.u32(), r.name("a function's name")
		if !r.ok() {
			break
		}
		names[i] = string(bytes.ToValidUTF8([]byte(name), nil))
	}
	return names
}
