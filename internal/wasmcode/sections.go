package wasmcode

import (
	"errors"
	"strings"
)

func (r *reader) valType() ValType {
	v := ValType(r.u8())
	if r.ok() && !v.valid() {
		r.failAt(r.pos-1, "unknown value type %#x", byte(v))
	}
	return v
}

func (r *reader) refType() ValType {
	v := ValType(r.u8())
	if r.ok() && v != FuncRef && v != ExternRef {
		r.failAt(r.pos-1, "unknown reference type %#x", byte(v))
	}
	return v
}

func (r *reader) valTypes(what string, limit int) []ValType {
	n := r.count(what, limit)
	vs := make([]ValType, n)
	for i := range vs {
		vs[i] = r.valType()
	}
	return vs
}

// limits reads the size range of a table or memory.
func (r *reader) limits(shared bool) (min, max uint32, hasMax bool) {
	at := r.pos
	flags := r.u8()
	if flags > 1 && !(shared && flags == 3) {
		r.failAt(at, "limits with flags %#x (64-bit and imported memories are not supported)", flags)
		return 0, 0, false
	}
	min = r.u32()
	if flags&1 != 0 {
		max = r.u32()
		if r.ok() && max < min {
			r.failAt(at, "the maximum %d is below the minimum %d", max, min)
		}
		return min, max, true
	}
	return min, 0, false
}

func (d *decoder) typeSection(r *reader) {
	n := r.count("types", MaxTypes)
	start := r.pos
	d.m.types = make([]Type, 0, n)
	for range n {
		if form := r.u8(); form != 0x60 {
			r.failAt(r.pos-1, "type form %#x; only function types (0x60) are supported", form)
		}
		params := r.valTypes("parameters", MaxParams)
		results := r.valTypes("results", MaxResults)
		if !r.ok() {
			return
		}
		d.m.types = append(d.m.types, Type{params, results})
	}
	d.m.typesRaw = r.b[start:r.pos]
}

func (d *decoder) importSection(r *reader) {
	for range r.count("imports", MaxImports) {
		at := r.pos
		module, name := r.name("a module name"), r.name("an import's name")
		kind := r.u8()
		if !r.ok() {
			return
		}
		rules := d.m.rules
		if module != rules.Module || kind != 0 {
			r.failAt(at, "%s", importRefused(rules.Module, module, name, kind))
			return
		}
		t := r.index("type", len(d.m.types))
		if !r.ok() {
			return
		}
		rule, err := rules.lookup(name)
		if err != nil {
			r.failAt(at, "the import %s.%s: %v", module, name, err)
			return
		}
		if got := d.m.types[t]; !got.Equal(rule.Type) {
			r.failAt(at, "the import %s.%s has type %v, but the host's is %v", module, name, got, rule.Type)
			return
		}
		d.m.imports = append(d.m.imports, t)
		d.m.Imports = append(d.m.Imports, name)
	}
}

func (rules *Rules) lookup(name string) (*Import, error) {
	for i := range rules.Imports {
		if rules.Imports[i].Name == name {
			return &rules.Imports[i], nil
		}
	}
	if rules.Missing != nil {
		return nil, rules.Missing(name)
	}
	return nil, errors.New("it does not exist")
}

// importRefused explains why an import that is no host call cannot be had.
func importRefused(host, module, name string, kind byte) string {
	full := module + "." + name
	switch {
	case strings.HasPrefix(module, "wasi"):
		return "the import " + full + " is WASI's; a function that travels has no files, clocks or arguments of its host. " +
			"Build without a WASI libc (clang --target=wasm32 -nostdlib; TinyGo -target=wasm-unknown) and use the calls of module " + host
	case kind == 1:
		return "the import " + full + " is a table; define it in the module"
	case kind == 2:
		return "the import " + full + " is a memory; define it in the module (do not link with --import-memory)"
	case kind == 3:
		return "the import " + full + " is a global; define it in the module (do not link as a shared library)"
	case kind != 0:
		return "the import " + full + " is of an unknown kind"
	}
	return "the import " + full + " is from an unknown module; only functions of module " + host +
		" can be imported (an undefined symbol? link without --allow-undefined to find it)"
}

func (d *decoder) functionSection(r *reader) {
	n := r.count("functions", MaxFunctions)
	d.m.functions = make([]uint32, n)
	for i := range d.m.functions {
		d.m.functions[i] = r.index("type", len(d.m.types))
	}
}

func (d *decoder) tableSection(r *reader) {
	for range r.count("tables", MaxTables) {
		at := r.pos
		t := table{elem: r.refType()}
		var hasMax bool
		t.min, t.max, hasMax = r.limits(false)
		if t.min > MaxTableElements {
			r.failAt(at, "a table of %d elements; the limit is %d", t.min, MaxTableElements)
		}
		if !hasMax || t.max > MaxTableElements {
			t.max = MaxTableElements
		}
		d.m.tables = append(d.m.tables, t)
	}
}

func (d *decoder) memorySection(r *reader) {
	at := r.pos
	if n := r.count("memories", 1); n == 0 {
		return
	}
	min, _, _ := r.limits(true)
	if min > MaxPages {
		r.failAt(at, "a memory of %d pages; the limit is %d", min, MaxPages)
	}
	d.m.MinPages = min
	d.hasMemory = true
}

func (d *decoder) globalSection(r *reader) {
	n := r.count("globals", MaxGlobals)
	d.m.globals = make([]global, 0, n)
	for range n {
		g := global{typ: r.valType()}
		at := r.pos
		mutable := r.u8()
		if mutable > 1 {
			r.failAt(at, "a global's mutability is %d", mutable)
		}
		g.mutable = mutable == 1
		g.init = d.constExpr(r, g.typ)
		if !r.ok() {
			return
		}
		d.m.globals = append(d.m.globals, g)
	}
}

// constExpr reads a constant expression of type want.
func (d *decoder) constExpr(r *reader, want ValType) constExpr {
	e := constExpr{function: -1}
	start := r.pos
	var in instr
	r.next(&in)
	switch in.op {
	case opI32Const:
		e.typ, e.value = I32, in.a
	case opI64Const:
		e.typ = I64
	case opF32Const:
		e.typ = F32
	case opF64Const:
		e.typ = F64
	case opV128Const:
		e.typ = V128
	case opRefNull:
		e.typ = ValType(in.a)
	case opRefFunc:
		e.typ, e.function = FuncRef, int(in.a)
		if r.ok() && int(in.a) >= d.m.functionCount() {
			r.failAt(start, "function %d, but there are %d", in.a, d.m.functionCount())
		}
	case opGlobalGet:
		r.failAt(start, "a constant expression reads a global; only imported globals may be read there, and there are none")
	default:
		r.failAt(start, "instruction %s in a constant expression", in.op)
	}
	if r.ok() && e.typ != want {
		r.failAt(start, "a constant of type %v where %v is wanted", e.typ, want)
	}
	if end := opcode(r.u8()); r.ok() && end != opEnd {
		r.failAt(r.pos-1, "a constant expression of more than one instruction is not supported")
	}
	if r.ok() {
		e.raw = r.b[start:r.pos]
	}
	return e
}

func (d *decoder) exportSection(r *reader) {
	seen := make(map[string]bool)
	for range r.count("exports", MaxExports) {
		at := r.pos
		name := r.name("an export's name")
		kind := r.u8()
		if r.ok() && seen[name] {
			r.failAt(at, "two exports are called %q", name)
		}
		seen[name] = true
		switch kind {
		case 0:
			f := r.index("function", d.m.functionCount())
			if r.ok() {
				d.exportFunction(r, at, name, f)
			}
		case 1:
			r.index("table", len(d.m.tables))
		case 2:
			n := 0
			if d.hasMemory {
				n = 1
			}
			r.index("memory", n)
			d.memory = d.memory || name == d.m.rules.Memory
		case 3:
			d.exportGlobal(name, r.index("global", len(d.m.globals)), r)
		default:
			r.failAt(at, "the export %q is of unknown kind %d", name, kind)
		}
		if !r.ok() {
			return
		}
	}
}

func (d *decoder) exportGlobal(name string, i uint32, r *reader) {
	if !r.ok() || d.m.globals[i].mutable || d.m.globals[i].typ != I32 {
		return
	}
	switch v := int64(d.m.globals[i].init.value); name {
	case exportDataBase:
		d.m.dataBase = v
	case exportDataEnd:
		d.m.dataEnd = v
	}
}

func (d *decoder) exportFunction(r *reader, at int, name string, f uint32) {
	m := d.m
	m.exported = append(m.exported, f)
	t := m.typeOf(f)
	switch name {
	case m.rules.Entry:
		if !t.Equal(m.rules.Type) {
			r.failAt(at, "the entry point %s has type %v, want %v", name, t, m.rules.Type)
		} else if int(f) < len(m.imports) {
			r.failAt(at, "the entry point %s is an import", name)
		}
		m.Entry = f
		d.entry = true
	case m.rules.Init:
		if !t.Equal(Type{}) {
			r.failAt(at, "%s has type %v, want () -> ()", name, t)
		}
		m.Init = int(f)
	}
}

func (d *decoder) startSection(r *reader) {
	at := r.pos
	f := r.index("function", d.m.functionCount())
	if !r.ok() {
		return
	}
	if t := d.m.typeOf(f); !t.Equal(Type{}) {
		r.failAt(at, "the start function has type %v, want () -> ()", t)
	}
	d.m.Start = int(f)
}
