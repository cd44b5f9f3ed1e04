package query

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/wherry-fabric/wherry/column/expr"
)

// The program's form, as inject/xrdma/src/query.c reads it.
const (
	programMagic = 0x32505157 // "WQP2"
	// maxRegisters, maxKeys and maxStates bound a program: the function has room for this many.
	maxRegisters = 250
	maxKeys      = 64
	maxStates    = 64
	none         = 0xffff
	// maxChosen bounds the limit up to which elements sort and cut off; above it, the client does.
	maxChosen = 1 << 16
)

// compiler writes a program.
type compiler struct {
	registers uint16
	consts    []byte
	nconsts   uint32
	text      []byte
	code      []byte // of the phase that is written
	ncode     uint32
	loaded    map[int]uint16 // columns of the phase
}

// Program is the payload of the function query.
func (p *Plan) Program() ([]byte, error) {
	le := binary.LittleEndian
	c := &compiler{loaded: map[int]uint16{}}
	condition := uint32(none)
	if p.where != nil {
		condition = uint32(c.node(p.where))
	}
	filter, nfilter := c.code, c.ncode
	c.code, c.ncode, c.loaded = nil, 0, map[int]uint16{}
	var keys []byte
	for _, o := range p.keys {
		keys = le.AppendUint16(keys, c.node(o.tree))
		keys = le.AppendUint16(keys, uint16(held(o.tree.Kind)))
		keys = le.AppendUint32(keys, 0)
	}
	states, nstates, outputs := c.aggregates(p.aggs)
	if err := p.room(c.registers); err != nil {
		return nil, err
	}
	var order []byte
	if p.chosen() {
		for _, o := range p.order {
			order = le.AppendUint32(order, uint32(o.column))
			order = le.AppendUint32(order, uint32(boolBit(o.down)))
		}
	}
	limit, pushed := uint64(0), p.pushed()
	if p.chosen() || len(p.order) == 0 {
		limit = min(p.query.Limit, math.MaxUint32)
	}
	var b []byte
	for _, v := range []uint32{programMagic, uint32(c.registers), c.nconsts, nfilter, c.ncode, uint32(len(p.keys)), nstates, uint32(len(p.aggs)), uint32(len(order) / 8),
		uint32(len(pushed)), condition, uint32(boolBit(p.rows))} {
		b = le.AppendUint32(b, v)
	}
	b = le.AppendUint64(b, limit)
	b = le.AppendUint32(b, uint32(len(c.text)))
	b = le.AppendUint32(b, uint32(p.Workers()))
	for _, part := range [][]byte{c.consts, filter, c.code, keys, states, outputs, order} {
		b = append(b, part...)
	}
	for _, t := range pushed {
		b = le.AppendUint32(b, uint32(t.column))
		b = le.AppendUint16(b, uint16(t.op))
		b = le.AppendUint16(b, uint16(t.kind))
		b = le.AppendUint64(b, t.value)
	}
	return append(b, c.text...), nil
}

// room refuses what the function has no room for.
func (p *Plan) room(registers uint16) error {
	keys, aggs := len(p.keys), len(p.aggs)
	switch {
	case keys > maxKeys && p.rows && len(p.query.Select) == 0:
		return fmt.Errorf("%w: rows of %d columns are asked for, at most %d come out of a query: name those that are wanted with --select", ErrQuery, keys, maxKeys)
	case keys > maxKeys && p.rows:
		return fmt.Errorf("%w: --select names %d columns, at most %d come out of a query: name fewer; mem get gives whole rows, of any number of columns", ErrQuery, keys, maxKeys)
	case keys > maxKeys:
		return fmt.Errorf("%w: --group names %d columns, at most %d are allowed: name fewer", ErrQuery, keys, maxKeys)
	case aggs > maxStates:
		return fmt.Errorf("%w: --agg names %d aggregates, at most %d are allowed: ask for the others in another query", ErrQuery, aggs, maxStates)
	case registers > maxRegisters:
		return fmt.Errorf("%w: its expressions take more than %d steps together, of columns, numbers and operators: ask for less at once", ErrQuery, maxRegisters)
	}
	return nil
}

func boolBit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// chosen reports whether elements send only the first by the order.
func (p *Plan) chosen() bool {
	return len(p.order) > 0 && p.query.Limit > 0 && p.query.Limit <= maxChosen
}

// aggregates writes the states that aggregates need, each once, and the columns that they read.
func (c *compiler) aggregates(aggs []output) (states []byte, n uint32, outputs []byte) {
	le := binary.LittleEndian
	known := map[string]uint16{}
	for _, o := range aggs {
		kind, reg, scale, key := byte(0), uint16(none), 0, string(o.fn)
		if o.tree != nil {
			kind, scale, key = byte(held(o.tree.Kind)), o.tree.Type.Scale, key+o.tree.String()
		}
		at, shared := known[key]
		if !shared {
			at = uint16(n)
			known[key] = at
			n++
			if o.tree != nil {
				reg = c.node(o.tree)
			}
			states = append(states, o.fn, kind)
			states = le.AppendUint16(states, reg)
			states = le.AppendUint32(states, 0)
		}
		outputs = le.AppendUint16(outputs, at)
		outputs = append(outputs, byte(o.read), kind)
		outputs = le.AppendUint32(outputs, uint32(scale))
		outputs = le.AppendUint64(outputs, math.Float64bits(o.part))
	}
	return states, n, outputs
}

func (c *compiler) register() uint16 {
	if c.registers <= maxRegisters { // Program refuses more
		c.registers++
	}
	return c.registers - 1
}

// held is a kind as the function has it: bytes lie as text does.
func held(k expr.Kind) expr.Kind {
	if k == expr.Raw {
		return expr.Text
	}
	return k
}

// bits is a literal as the function holds it.
func bits(n *expr.Node) uint64 {
	switch n.Kind {
	case expr.Uint, expr.Decimal:
		return n.Uint
	case expr.Float:
		return math.Float64bits(n.Float)
	}
	return uint64(n.Int)
}

// node writes what computes a tree, and returns the register that has its values.
func (c *compiler) node(n *expr.Node) uint16 {
	le := binary.LittleEndian
	switch n.Op {
	case expr.Literal:
		to := c.register()
		c.consts = le.AppendUint32(c.consts, uint32(to))
		c.consts = le.AppendUint32(c.consts, uint32(held(n.Kind)))
		c.consts = le.AppendUint64(c.consts, bits(n))
		c.consts = le.AppendUint64(c.consts, uint64(n.Int)) // of a decimal
		c.consts = le.AppendUint32(c.consts, uint32(len(c.text)))
		c.consts = le.AppendUint32(c.consts, uint32(len(n.Text)))
		c.text = append(c.text, n.Text...)
		c.nconsts++
		return to
	case expr.Load:
		if to, done := c.loaded[n.Column]; done {
			return to
		}
		to := c.register()
		c.loaded[n.Column] = to
		c.instruction(n, to, 0, 0, 0)
		return to
	}
	if n.Op == expr.And || n.Op == expr.Or {
		return c.guarded(n)
	}
	var args [2]uint16
	for i, a := range n.Args {
		args[i] = c.node(a)
	}
	to := c.register()
	c.instruction(n, to, args[0], args[1], uint16(n.Args[0].Kind))
	return to
}

// harmless reports whether a tree may be computed for all rows: it cannot fail, and costs less than selecting the rows that need it.
func harmless(n *expr.Node) bool {
	switch n.Op {
	case expr.Load, expr.Literal, expr.Eq, expr.Ne, expr.Lt, expr.Le, expr.Gt, expr.Ge, expr.And, expr.Or, expr.Not, expr.IsNull:
	default:
		return false
	}
	return n.Kind <= expr.Bool && !slices.ContainsFunc(n.Args, func(a *expr.Node) bool { return !harmless(a) })
}

// guarded writes && and ||: the right side, if it is not harmless, is a block that runs only for rows that the left side leaves undecided.
func (c *compiler) guarded(n *expr.Node) uint16 {
	left := c.node(n.Args[0])
	if harmless(n.Args[1]) {
		right := c.node(n.Args[1])
		to := c.register()
		c.instruction(n, to, left, right, 0)
		return to
	}
	to := c.register()
	at, first, outer := len(c.code), c.ncode+1, c.loaded
	c.instruction(n, to, left, 0, 0)
	c.loaded = map[int]uint16{} // what is loaded for some rows is of no use to all
	right := c.node(n.Args[1])
	c.loaded = outer
	binary.LittleEndian.PutUint16(c.code[at+6:], right)
	binary.LittleEndian.PutUint32(c.code[at+12:], c.ncode-first)
	return to
}

// instruction writes one. Comparisons are of their arguments' kind.
func (c *compiler) instruction(n *expr.Node, to, a, b, from uint16) {
	le := binary.LittleEndian
	kind := n.Kind
	if n.Op >= expr.Eq && n.Op <= expr.Ge {
		kind = n.Args[0].Kind
	}
	c.code = append(c.code, byte(n.Op), byte(held(kind)))
	scale := 0
	if n.Op == expr.Cast {
		scale = n.Args[0].Type.Scale
	}
	for _, v := range []uint16{to, a, b, from, uint16(scale)} {
		c.code = le.AppendUint16(c.code, v)
	}
	c.code = le.AppendUint32(c.code, uint32(n.Column))
	c.ncode++
}

// test is a comparison that every selected row satisfies: a chunk whose bounds rule it out is not read.
type test struct {
	column int
	op     expr.Op
	kind   expr.Kind
	value  uint64
	text   string
}

// swapped is an operator with its sides changed.
var swapped = map[expr.Op]expr.Op{expr.Eq: expr.Eq, expr.Lt: expr.Gt, expr.Le: expr.Ge, expr.Gt: expr.Lt, expr.Ge: expr.Le}

// pushed finds the comparisons of a column with a literal among the terms that && joins.
func (p *Plan) pushed() (out []test) {
	var walk func(n *expr.Node)
	walk = func(n *expr.Node) {
		if n.Op == expr.And {
			walk(n.Args[0])
			walk(n.Args[1])
			return
		}
		op, ok := swapped[n.Op]
		if !ok {
			return
		}
		col, lit := n.Args[0], n.Args[1]
		if col.Op == expr.Literal {
			col, lit = lit, col
		} else {
			op = n.Op
		}
		if col.Op == expr.Load && lit.Op == expr.Literal && lit.Kind <= expr.Float {
			out = append(out, test{col.Column, op, lit.Kind, bits(lit), fmt.Sprintf("%s %v %v", p.columns[col.Column].Name, op, lit)})
		}
	}
	if p.where != nil {
		walk(p.where)
	}
	return out
}

// Pushed says which comparisons keep chunks from being read.
func (p *Plan) Pushed() []string {
	out := []string{}
	for _, t := range p.pushed() {
		out = append(out, t.text)
	}
	return out
}

// Steps says in words what is done where.
func (p *Plan) Steps() []string {
	out := []string{fmt.Sprintf("nodes: read %q", p.Reads())}
	if n := p.Workers(); n > 1 {
		out = append(out, fmt.Sprintf("nodes: share the chunks among %d workers, which do the rest as nodes of their own", n))
	}
	if p.where != nil {
		out = append(out, "nodes: keep rows where "+p.query.Where)
	}
	order, limit := fmt.Sprintf("order by %q", p.query.Order), fmt.Sprintf("cut off after %d", p.query.Limit)
	switch {
	case p.rows:
		out = append(out, fmt.Sprintf("nodes: select %q", p.Columns().Names()))
	default:
		out = append(out, fmt.Sprintf("nodes: group by %q, aggregate %q", p.query.Group, p.query.Agg), "nodes: send each group to the node that its keys' hash names, and put it together there")
	}
	for _, o := range p.aggs {
		switch o.read {
		case readQuantile:
			out = append(out, fmt.Sprintf("nodes: %s is approximate, but exact for the groups that have at most 512 values", o.text))
		case readApprox:
			out = append(out, fmt.Sprintf("nodes: %s is approximate", o.text))
		}
	}
	if p.chosen() {
		out = append(out, "nodes: "+order+", "+limit)
	} else if p.query.Limit > 0 && len(p.order) == 0 {
		out = append(out, "nodes: "+limit)
	}
	if len(p.order) > 0 {
		out = append(out, "client: "+order)
	}
	if p.query.Limit > 0 {
		out = append(out, "client: "+limit)
	}
	return out
}
