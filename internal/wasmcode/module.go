package wasmcode

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ValType is a value's type, as in the binary format.
type ValType byte

const (
	I32       ValType = 0x7f
	I64       ValType = 0x7e
	F32       ValType = 0x7d
	F64       ValType = 0x7c
	V128      ValType = 0x7b
	FuncRef   ValType = 0x70
	ExternRef ValType = 0x6f
)

func (v ValType) valid() bool {
	return v >= V128 && v <= I32 || v == FuncRef || v == ExternRef
}

func (v ValType) String() string {
	switch v {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case F32:
		return "f32"
	case F64:
		return "f64"
	case V128:
		return "v128"
	case FuncRef:
		return "funcref"
	case ExternRef:
		return "externref"
	}
	return "?"
}

// Type is a function's type.
type Type struct {
	Params, Results []ValType
}

// Equal reports whether t and u are the same type.
func (t Type) Equal(u Type) bool {
	return slices.Equal(t.Params, u.Params) && slices.Equal(t.Results, u.Results)
}

func (t Type) String() string {
	var b strings.Builder
	list := func(vs []ValType) {
		b.WriteByte('(')
		for i, v := range vs {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(v.String())
		}
		b.WriteByte(')')
	}
	list(t.Params)
	b.WriteString(" -> ")
	list(t.Results)
	return b.String()
}

// Import is a function that the host provides.
type Import struct {
	Name string
	Type Type
	As   string // what it is called in instrumented code; "": as it is
}

// Rules say what a host accepts and wants of a module.
type Rules struct {
	Module  string                  // the only module to import from
	Imports []Import                // the functions to be imported from it
	Missing func(name string) error // says why another cannot be; nil: it does not exist
	Entry   string                  // the export that the host calls
	Type    Type                    // of Entry
	Memory  string                  // the name under which the memory is exported; "" for any, or none
	Init    string                  // an export of type () -> () that is kept if it is there; "" for none
	// Mailed names an import of type (pointer i32, length i32) -> (i32) whose
	// short messages are left in the mailbox instead of calling the host, and MailedTo
	// one of type (to i32, pointer i32, length i32) -> (i32), or with an i32 before them, which is
	// 0 of what is left in the mailbox; "" for none.
	Mailed   string
	MailedTo string
	// Windows names an import of type (index i32, out i32) -> (i32), which writes
	// 16 bytes to out. What it says of the first FastWindows indices the host may leave in
	// globals (ExportWindow) instead; "" for none.
	Windows string
}

// Module is a decoded binary.
type Module struct {
	Imports  []string // names of the imported functions, by function index
	MinPages uint32   // of the memory
	Entry    uint32   // function index of Rules.Entry
	Init     int      // function index of Rules.Init, or -1
	Start    int      // function index of the start function, or -1

	// Recursive says that the depth of the call stack is not bounded by the
	// code: a cycle of direct calls, or any indirect call.
	Recursive bool
	// StackBytes is what the call stack takes at most, if it is not Recursive.
	StackBytes uint64
	// Grows says that some code asks for a larger memory; if none does, it keeps its MinPages.
	Grows bool
	// Lasting says why what a run changes cannot all be put back by writing to memory and globals; "" if it can: no code changes
	// tables or drops segments, and no mutable global is anything but a number.
	Lasting string
	// Statics are where the module's static variables lie, as its linker's exports __global_base and __data_end say; all of its memory if it has none.
	Statics struct{ From, To uint32 }

	rules     *Rules
	code      []byte
	types     []Type
	typesRaw  []byte
	imports   []uint32 // type indices
	functions []uint32 // type indices of the functions defined here
	tables    []table
	globals   []global
	exported  []uint32 // function indices of all exports, for ref.func
	elems     []elem
	dataCount int // of the data count section, or -1
	data      []dataSegment
	dataRaw   []byte
	bodies    []body
	names     map[uint32]string
	usesRef   bool   // some ref.func occurs in a body
	dataFrom  uint32 // where the first data segment begins
	dataEnd   int64  // of the export __data_end; -1: none
	dataBase  int64  // __global_base, the same
}

type table struct {
	elem     ValType
	min, max uint32
}

type global struct {
	typ     ValType
	mutable bool
	init    constExpr
}

// constExpr is a constant expression: raw bytes up to and including its end,
// and the function it refers to (or -1).
type constExpr struct {
	raw      []byte
	typ      ValType
	function int
	value    uint32 // of an i32.const
}

type elem struct {
	flags  uint32
	table  uint32
	offset constExpr
	typ    ValType
	funcs  []uint32    // flags&4 == 0
	exprs  []constExpr // flags&4 != 0
}

type dataSegment struct {
	active bool
	bytes  int
}

// Section numbers of the binary format.
const (
	secCustom = iota
	secType
	secImport
	secFunction
	secTable
	secMemory
	secGlobal
	secExport
	secStart
	secElement
	secCode
	secData
	secDataCount
)

var sectionNames = [...]string{"custom", "type", "import", "function", "table", "memory", "global",
	"export", "start", "element", "code", "data", "data count"}

// sectionRank is the order sections must come in.
var sectionRank = [...]int{secType: 1, secImport: 2, secFunction: 3, secTable: 4, secMemory: 5, secGlobal: 6,
	secExport: 7, secStart: 8, secElement: 9, secDataCount: 10, secCode: 11, secData: 12}

var preamble = []byte("\x00asm\x01\x00\x00\x00")

// decoder builds a Module.
type decoder struct {
	m         *Module
	outline   bool // Inspect
	hasMemory bool
	memory    bool // Rules.Memory was seen
	entry     bool
	bodies    int // bodies seen
	checker   bodyChecker
	sections  [secDataCount + 1]bool
}

// Decode reads a binary. The Module refers to code and rules.
func Decode(code []byte, rules *Rules) (*Module, error) { return decode(code, rules, false) }

// Inspect reads a binary's imports, exports and the types of its functions, and passes over code and data. The Module
// is not to be instrumented.
func Inspect(code []byte, rules *Rules) (*Module, error) { return decode(code, rules, true) }

func decode(code []byte, rules *Rules, outline bool) (*Module, error) {
	r := reader{b: code, fn: -1}
	if len(code) > MaxCodeBytes {
		r.fail("%d bytes of code; the limit is %d", len(code), MaxCodeBytes)
		return nil, r.err
	}
	if !bytes.HasPrefix(code, preamble) {
		r.fail("not a WebAssembly binary, version 1 (it must start with %x)", preamble)
		return nil, r.err
	}
	r.pos = len(preamble)
	d := decoder{outline: outline, m: &Module{rules: rules, code: code, Init: -1, Start: -1, dataCount: -1, dataFrom: math.MaxUint32, dataEnd: -1, dataBase: -1}}
	rank := 0
	for r.ok() && r.left() > 0 {
		at := r.pos
		id := int(r.u8())
		size := r.u32()
		if r.ok() && id >= len(sectionNames) {
			r.failAt(at, "unknown section %d", id)
		}
		if !r.ok() {
			break
		}
		if id != secCustom {
			if sectionRank[id] <= rank {
				r.failAt(at, "the %s section is out of order", sectionNames[id])
				break
			}
			rank = sectionRank[id]
			d.sections[id] = true
		}
		r.take(int(size), "the "+sectionNames[id]+" section")
		if r.ok() {
			s := reader{b: code[:r.pos], pos: r.pos - int(size), section: sectionNames[id], fn: -1}
			d.section(id, &s)
			r.err = s.err
		}
	}
	if r.ok() {
		d.finish(&r)
	}
	if r.err != nil {
		return nil, r.err
	}
	return d.m, nil
}

func (d *decoder) section(id int, r *reader) {
	if d.outline && (id == secCustom || id >= secStart) {
		return
	}
	switch id {
	case secCustom:
		d.custom(r)
		return
	case secType:
		d.typeSection(r)
	case secImport:
		d.importSection(r)
	case secFunction:
		d.functionSection(r)
	case secTable:
		d.tableSection(r)
	case secMemory:
		d.memorySection(r)
	case secGlobal:
		d.globalSection(r)
	case secExport:
		d.exportSection(r)
	case secStart:
		d.startSection(r)
	case secElement:
		d.elementSection(r)
	case secDataCount:
		d.m.dataCount = int(r.u32())
	case secCode:
		d.codeSection(r)
	case secData:
		d.dataSection(r)
	}
	if r.ok() && r.left() > 0 {
		r.fail("%d bytes too many", r.left())
	}
}

// finish checks what concerns more than one section.
func (d *decoder) finish(r *reader) {
	m := d.m
	switch {
	case !d.outline && d.bodies != len(m.functions):
		r.fail("%d functions are declared, but %d have code", len(m.functions), d.bodies)
	case m.dataCount >= 0 && m.dataCount != len(m.data):
		r.fail("%d data segments are announced, but there are %d", m.dataCount, len(m.data))
	case !d.hasMemory:
		r.fail("the module defines no memory; a function needs one of its own, for its payload (and must not import it)")
	case !d.entry:
		r.fail("the module exports no function %q of type %v (link with --export=%[1]s)", m.rules.Entry, m.rules.Type)
	case m.rules.Memory != "" && !d.memory:
		r.fail("the module does not export its memory under the name %s", m.rules.Memory)
	}
	if r.ok() && !d.outline {
		m.callGraph()
		m.statics()
	}
}

// What linkers call the bounds of static variables.
const (
	exportDataBase = "__global_base"
	exportDataEnd  = "__data_end"
)

// statics finds out what a run may change besides what it allocates.
func (m *Module) statics() {
	all := min(int64(m.MinPages)<<16, math.MaxUint32)
	m.Statics.To = uint32(all)
	if m.dataEnd >= 0 && m.dataEnd <= all {
		from := m.dataBase
		if from < 0 && m.dataFrom != math.MaxUint32 {
			from = int64(m.dataFrom)
		}
		if from = max(from, 0); from <= int64(min(m.dataFrom, uint32(m.dataEnd))) { // or the bounds are not the linker's
			m.Statics.From, m.Statics.To = uint32(from), uint32(m.dataEnd)
		}
	}
	for i, g := range m.globals {
		if g.mutable && (g.typ == V128 || g.typ == FuncRef || g.typ == ExternRef) && m.Lasting == "" {
			m.Lasting = fmt.Sprintf("global %d is mutable and of type %v", i, g.typ)
		}
	}
}

// lasts notes that code changes what no host can put back.
func (m *Module) lasts(what string) {
	if m.Lasting == "" {
		m.Lasting = what
	}
}

// Variables are the names under which an instrumented module exports its mutable globals that are numbers.
func (m *Module) Variables() (names []string) {
	for i, g := range m.globals {
		if g.variable() {
			names = append(names, exportVariable+strconv.Itoa(i))
		}
	}
	return names
}

const exportVariable = "__variable"

func (g *global) variable() bool { return g.mutable && g.typ >= F64 && g.typ <= I32 }

func (m *Module) functionCount() int { return len(m.imports) + len(m.functions) }

// typeOf is the type of the function with index i, which must exist.
func (m *Module) typeOf(i uint32) Type {
	if int(i) < len(m.imports) {
		return m.types[m.imports[i]]
	}
	return m.types[m.functions[int(i)-len(m.imports)]]
}
