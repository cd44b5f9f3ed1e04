package wasmcode

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
)

// Revision is raised whenever Instrument's output changes for the same input:
// caches of compiled code are keyed by it.
const Revision = 8

// Names that Instrument adds. The imports are from Rules.Module; the host calls
// or sets the exports.
const (
	ImportTick      = "__tick"    // () -> i64: the fuel is used up; the result is the new fuel
	ImportStoreTrap = "__ro_trap" // (i64) -> (): a store at this address was refused; must not return

	ExportStart      = "__start"       // () -> (): the start function, if there is one
	ExportFuel       = "__fuel"        // i64, 0 at first
	ExportHeapPages  = "__heap_pages"  // i32: what memory.size says
	ExportHeapLimit  = "__heap_limit"  // i32: what memory.grow may reach; MinPages at first
	ExportStoreLimit = "__store_limit" // i64: the first address that must not be written
	ExportMailbox    = "__mailbox"     // i32: address of the mailbox; 0, as at first, for none
	// ExportWindow and 2i, 2i+1: i64, the 16 bytes that Rules.Windows writes for index i; the second half is 0,
	// as at first, if the host is to be asked.
	ExportWindow = "__window"
)

// addedImports is the number of functions put behind the module's own imports:
// every function defined in the module moves up by it.
const addedImports = 2

// Options choose a variant of the instrumented module.
type Options struct {
	// CheckStores refuses stores at and above the global ExportStoreLimit.
	CheckStores bool
}

// writer builds the instrumented binary.
type writer struct {
	m       *Module
	opt     Options
	out     []byte
	tmp     []byte // of a body
	squares int    // of the bodies' blocks, summed
	code    reader
	first   uint32 // index of the first function defined in the module, before

	types       int // types in the output
	tickType    uint32
	trapType    uint32
	growType    uint32
	bulkType    uint32
	extraTypes  []Type
	standIns    map[uint32]uint32 // by import: the kind of helper that stands for it
	helpers     []helper
	helperIndex map[uint32]uint32 // by kind<<16 | data segment: function index
}

// Indices of the added globals, from the number of the module's own.
const (
	globalFuel = iota
	globalHeapPages
	globalHeapLimit
	globalStoreLimit
	globalMailbox
	globalWindows
	addedGlobals = globalWindows + 2*FastWindows
)

// Instrument writes the module anew; see the package comment. The result is
// valid if and only if the module was.
func (m *Module) Instrument(opt Options) ([]byte, error) {
	w := &writer{m: m, opt: opt, first: uint32(len(m.imports)), types: len(m.types), helperIndex: make(map[uint32]uint32)}
	w.out = make([]byte, 0, len(m.code)*2+1024)
	w.tickType = w.typeIndex(Type{Results: []ValType{I64}})
	w.trapType = w.typeIndex(Type{Params: []ValType{I64}})
	w.growType = w.typeIndex(Type{Params: []ValType{I32}, Results: []ValType{I32}})
	w.bulkType = w.typeIndex(Type{Params: []ValType{I32, I32, I32}})
	w.standIns = map[uint32]uint32{}
	for kind, name := range map[uint32]string{helperMail: m.rules.Mailed, helperMailTo: m.rules.MailedTo, helperWindow: m.rules.Windows} {
		if i := slices.Index(m.Imports, name); i >= 0 {
			w.standIns[uint32(i)] = kind
		}
	}
	// Bodies come first: they decide which helpers there are.
	bodies, err := w.bodies()
	if err != nil {
		return nil, err
	}
	w.out = append(w.out, preamble...)
	w.section(secType, w.typeSection)
	w.section(secImport, w.importSection)
	w.section(secFunction, w.functionSection)
	if len(m.tables) > 0 {
		w.section(secTable, w.tableSection)
	}
	w.section(secMemory, func(b []byte) []byte { return uleb(uleb(append(b, 1, 1), m.MinPages), 1<<16) })
	w.section(secGlobal, w.globalSection)
	w.section(secExport, w.exportSection)
	if len(m.elems) > 0 || w.declares() {
		w.section(secElement, w.elementSection)
	}
	if m.dataCount >= 0 {
		w.section(secDataCount, func(b []byte) []byte { return uleb(b, uint32(m.dataCount)) })
	}
	w.section(secCode, func(b []byte) []byte {
		b = append(uleb(b, uint32(len(m.functions)+len(w.helpers))), bodies...)
		for _, h := range w.helpers {
			b = append(uleb(b, uint32(len(h.body))), h.body...)
		}
		return b
	})
	if len(m.data) > 0 {
		w.section(secData, func(b []byte) []byte { return append(uleb(b, uint32(len(m.data))), m.dataRaw...) })
	}
	w.section(secCustom, w.nameSection)
	return w.out, nil
}

// section appends one section, whose size is only known once it is written: five
// bytes are left for it.
func (w *writer) section(id byte, write func([]byte) []byte) {
	w.out = append(w.out, id, 0, 0, 0, 0, 0)
	start := len(w.out)
	w.out = write(w.out)
	padded(w.out[start-5:start], uint32(len(w.out)-start))
}

func (w *writer) typeIndex(t Type) uint32 {
	for i, u := range w.m.types {
		if t.Equal(u) {
			return uint32(i)
		}
	}
	w.extraTypes = append(w.extraTypes, t)
	return uint32(len(w.m.types) + len(w.extraTypes) - 1)
}

// function maps a function index of the module to one of the output.
func (w *writer) function(i uint32) uint32 {
	if i >= w.first {
		return i + addedImports
	}
	return i
}

func (w *writer) global(which int) uint32 { return uint32(len(w.m.globals) + which) }

func (w *writer) typeSection(b []byte) []byte {
	b = uleb(b, uint32(len(w.m.types)+len(w.extraTypes)))
	b = append(b, w.m.typesRaw...)
	for _, t := range w.extraTypes {
		b = append(b, 0x60, byte(len(t.Params)))
		for _, v := range t.Params {
			b = append(b, byte(v))
		}
		b = append(b, byte(len(t.Results)))
		for _, v := range t.Results {
			b = append(b, byte(v))
		}
	}
	return b
}

func (w *writer) importSection(b []byte) []byte {
	one := func(name string, t uint32) {
		b = str(str(b, w.m.rules.Module), name)
		b = uleb(append(b, 0), t)
	}
	b = uleb(b, uint32(len(w.m.imports)+addedImports))
	for i, name := range w.m.Imports {
		rule, _ := w.m.rules.lookup(name)
		one(cmp.Or(rule.As, name), w.m.imports[i])
	}
	one(ImportTick, w.tickType)
	one(ImportStoreTrap, w.trapType)
	return b
}

func (w *writer) tick() uint32      { return w.first }
func (w *writer) storeTrap() uint32 { return w.first + 1 }

func (w *writer) functionSection(b []byte) []byte {
	b = uleb(b, uint32(len(w.m.functions)+len(w.helpers)))
	for _, t := range w.m.functions {
		b = uleb(b, t)
	}
	for _, h := range w.helpers {
		b = uleb(b, h.typ)
	}
	return b
}

func (w *writer) tableSection(b []byte) []byte {
	b = uleb(b, uint32(len(w.m.tables)))
	for _, t := range w.m.tables {
		b = append(b, byte(t.elem), 1)
		b = uleb(uleb(b, t.min), t.max)
	}
	return b
}

func (w *writer) globalSection(b []byte) []byte {
	b = uleb(b, uint32(len(w.m.globals)+addedGlobals))
	for _, g := range w.m.globals {
		mutable := byte(0)
		if g.mutable {
			mutable = 1
		}
		b = w.constExpr(append(b, byte(g.typ), mutable), g.init)
	}
	i32 := func(v uint32) {
		b = append(b, byte(I32), 1, byte(opI32Const))
		b = append(sleb(b, int64(int32(v))), byte(opEnd))
	}
	b = append(b, byte(I64), 1, byte(opI64Const), 0, byte(opEnd))    // fuel
	i32(w.m.MinPages)                                                // heap pages
	i32(w.m.MinPages)                                                // heap limit
	b = append(b, byte(I64), 1, byte(opI64Const), 0x7f, byte(opEnd)) // store limit
	i32(0)                                                           // mailbox
	for range 2 * FastWindows {
		b = append(b, byte(I64), 1, byte(opI64Const), 0, byte(opEnd))
	}
	return b
}

func (w *writer) constExpr(b []byte, e constExpr) []byte {
	if e.function < 0 {
		return append(b, e.raw...)
	}
	return append(uleb(append(b, byte(opRefFunc)), w.function(uint32(e.function))), byte(opEnd))
}

func (w *writer) exportSection(b []byte) []byte {
	type export struct {
		name  string
		kind  byte
		index uint32
	}
	list := []export{
		{w.m.rules.Entry, 0, w.function(w.m.Entry)},
		{ExportFuel, 3, w.global(globalFuel)},
		{ExportHeapPages, 3, w.global(globalHeapPages)},
		{ExportHeapLimit, 3, w.global(globalHeapLimit)},
		{ExportStoreLimit, 3, w.global(globalStoreLimit)},
		{ExportMailbox, 3, w.global(globalMailbox)},
	}
	for i := range 2 * FastWindows {
		list = append(list, export{ExportWindow + strconv.Itoa(i), 3, w.global(globalWindows + i)})
	}
	if w.m.Init >= 0 {
		list = append(list, export{w.m.rules.Init, 0, w.function(uint32(w.m.Init))})
	}
	if w.m.Start >= 0 {
		list = append(list, export{ExportStart, 0, w.function(uint32(w.m.Start))})
	}
	for i, g := range w.m.globals {
		if g.variable() {
			list = append(list, export{exportVariable + strconv.Itoa(i), 3, uint32(i)})
		}
	}
	b = uleb(b, uint32(len(list)))
	for _, e := range list {
		b = uleb(append(str(b, e.name), e.kind), e.index)
	}
	return b
}

// declares reports whether functions that were exported must be declared in
// another way, because some ref.func may refer to them.
func (w *writer) declares() bool { return w.m.usesRef && len(w.m.exported) > 0 }

func (w *writer) elementSection(b []byte) []byte {
	n := len(w.m.elems)
	if w.declares() {
		n++
	}
	b = uleb(b, uint32(n))
	for _, e := range w.m.elems {
		b = w.element(b, e)
	}
	if w.declares() {
		b = append(b, 3, 0)
		b = uleb(b, uint32(len(w.m.exported)))
		for _, f := range w.m.exported {
			b = uleb(b, w.function(f))
		}
	}
	return b
}

func (w *writer) element(b []byte, e elem) []byte {
	b = uleb(b, e.flags)
	if e.flags&1 == 0 {
		if e.flags&2 != 0 {
			b = uleb(b, e.table)
		}
		b = append(b, e.offset.raw...)
	}
	if e.flags&3 != 0 {
		if e.flags&4 != 0 {
			b = append(b, byte(e.typ))
		} else {
			b = append(b, 0)
		}
	}
	if e.flags&4 != 0 {
		b = uleb(b, uint32(len(e.exprs)))
		for _, x := range e.exprs {
			b = w.constExpr(b, x)
		}
		return b
	}
	b = uleb(b, uint32(len(e.funcs)))
	for _, f := range e.funcs {
		b = uleb(b, w.function(f))
	}
	return b
}

// nameSection names every function, so that traps are readable: by its own
// name, or else by its index in the original.
func (w *writer) nameSection(b []byte) []byte {
	b = str(b, "name")
	b = append(b, 1, 0, 0, 0, 0, 0)
	start := len(b)
	n := w.m.functionCount()
	b = uleb(b, uint32(n+addedImports+len(w.helpers)))
	one := func(i uint32, name string) { b = str(uleb(b, i), name) }
	for i := range uint32(n) {
		if i == w.first {
			one(w.tick(), ImportTick)
			one(w.storeTrap(), ImportStoreTrap)
		}
		one(w.function(i), w.m.FunctionName(i))
	}
	for i, h := range w.helpers {
		one(uint32(n+addedImports+i), h.name)
	}
	padded(b[start-5:start], uint32(len(b)-start))
	return b
}

// FunctionName is the name of the function with index i, from the binary's
// name section where it has one.
func (m *Module) FunctionName(i uint32) string {
	if name := m.names[i]; name != "" {
		return name
	}
	if int(i) < len(m.Imports) {
		return m.Imports[i]
	}
	return fmt.Sprintf("function[%d]", i)
}

// ImportsUsed lists the imports' names in order, each once.
func (m *Module) ImportsUsed() []string {
	names := slices.Clone(m.Imports)
	slices.Sort(names)
	return slices.Compact(names)
}

func uleb(b []byte, x uint32) []byte { return binary.AppendUvarint(b, uint64(x)) }

func sleb(b []byte, x int64) []byte {
	for {
		c := byte(x & 0x7f)
		x >>= 7
		if x == 0 && c&0x40 == 0 || x == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

// padded writes x as an unsigned LEB128 number of exactly five bytes.
func padded(b []byte, x uint32) {
	for i := range 5 {
		b[i] = byte(x&0x7f) | 0x80
		x >>= 7
	}
	b[4] &^= 0x80
}

func str(b []byte, s string) []byte { return append(uleb(b, uint32(len(s))), s...) }
