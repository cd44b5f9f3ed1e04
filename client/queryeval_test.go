package client

import (
	"cmp"
	"math"
	"math/bits"
	"strings"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/column/expr"
)

type columnOf = column.Column

// evaluator computes expressions of one row. A value is an int64, uint64, float64, bool or string, or nil if it is missing.
type evaluator struct {
	row *randomRow
	err error
}

func deref[T, U any](p *T, to func(T) U) any {
	if p == nil {
		return nil
	}
	return to(*p)
}

func integer[T int8 | int64 | uint16 | uint32](v T) int64 { return int64(v) }
func same[T any](v T) T                                   { return v }

func (e *evaluator) load(i int) any {
	r := e.row
	switch i {
	case 0:
		return deref(r.A, integer[int8])
	case 1:
		return deref(r.B, same[int64])
	case 2:
		return int64(r.C)
	case 3:
		return deref(r.D, integer[uint16])
	case 4:
		return deref(r.U, same[uint64])
	case 5:
		return deref(r.F, same[float64])
	case 6:
		return deref(r.G, func(f float32) float64 { return float64(f) })
	case 7:
		return deref(r.K, same[bool])
	case 8:
		return deref(r.S, same[string])
	}
	return r.T
}

func (e *evaluator) overflow(yes bool) {
	if yes {
		e.err = errOverflow
	}
}

func literal(n *expr.Node) any {
	switch n.Kind {
	case expr.Int:
		return n.Int
	case expr.Uint:
		return n.Uint
	case expr.Float:
		return n.Float
	case expr.Bool:
		return n.Int != 0
	}
	return n.Text
}

func (e *evaluator) eval(n *expr.Node) any {
	switch n.Op {
	case expr.Load:
		return e.load(n.Column)
	case expr.Literal:
		return literal(n)
	}
	a := e.eval(n.Args[0])
	if n.Op == expr.And && a == false || n.Op == expr.Or && a == true { // what follows is not computed
		return a
	}
	var b any
	if len(n.Args) > 1 {
		b = e.eval(n.Args[1])
	}
	switch n.Op {
	case expr.IsNull:
		return a == nil
	case expr.And:
		if b == false {
			return false
		}
	case expr.Or:
		if b == true {
			return true
		}
	}
	if a == nil || len(n.Args) > 1 && b == nil {
		return nil
	}
	switch n.Op {
	case expr.And, expr.Or:
		return n.Op == expr.And
	case expr.Not:
		return a == false
	case expr.Neg:
		if x, ok := a.(int64); ok {
			e.overflow(x == math.MinInt64)
			return -x
		}
		return -a.(float64)
	case expr.Cast:
		return e.cast(n.Kind, a)
	case expr.HasPrefix:
		return strings.HasPrefix(a.(string), b.(string))
	case expr.HasSuffix:
		return strings.HasSuffix(a.(string), b.(string))
	case expr.Contains:
		return strings.Contains(a.(string), b.(string))
	}
	if n.Op >= expr.Eq {
		return compared(n.Op, a, b)
	}
	switch x := a.(type) {
	case int64:
		return e.signed(n.Op, x, b.(int64))
	case uint64:
		return e.unsigned(n.Op, x, b.(uint64))
	}
	x, y := a.(float64), b.(float64)
	return map[expr.Op]float64{expr.Add: x + y, expr.Sub: x - y, expr.Mul: x * y, expr.Div: x / y}[n.Op]
}

func (e *evaluator) signed(op expr.Op, x, y int64) any {
	switch op {
	case expr.Add:
		e.overflow((x+y > x) != (y > 0))
		return x + y
	case expr.Sub:
		e.overflow((x-y < x) != (y > 0))
		return x - y
	case expr.Mul:
		e.overflow(x != 0 && (x*y/x != y || x == -1 && y == math.MinInt64))
		return x * y
	}
	if y == 0 {
		return nil
	}
	e.overflow(x == math.MinInt64 && y == -1)
	if op == expr.Div {
		return x / y
	}
	return x % y
}

func (e *evaluator) unsigned(op expr.Op, x, y uint64) any {
	switch op {
	case expr.Add:
		sum, carry := bits.Add64(x, y, 0)
		e.overflow(carry > 0)
		return sum
	case expr.Sub:
		e.overflow(y > x)
		return x - y
	case expr.Mul:
		high, low := bits.Mul64(x, y)
		e.overflow(high > 0)
		return low
	}
	if y == 0 {
		return nil
	}
	if op == expr.Div {
		return x / y
	}
	return x % y
}

func (e *evaluator) cast(to expr.Kind, a any) any {
	switch to {
	case expr.Float:
		return floatOf(a)
	case expr.Int:
		switch x := a.(type) {
		case uint64:
			e.overflow(x > math.MaxInt64)
			return int64(x)
		case float64:
			if !(x >= -0x1p63 && x < 0x1p63) {
				e.err = errOverflow
				return int64(0)
			}
			return int64(x)
		}
		return a
	}
	switch x := a.(type) {
	case int64:
		e.overflow(x < 0)
		return uint64(x)
	case float64:
		if !(x > -1 && x < 0x1p64) {
			e.err = errOverflow
			return uint64(0)
		}
		return uint64(x)
	}
	return a
}

func floatOf(a any) float64 {
	switch x := a.(type) {
	case int64:
		return float64(x)
	case uint64:
		return float64(x)
	}
	return a.(float64)
}

// compared is what an operator says of two values of one type; a NaN is equal to nothing, and in no order.
func compared(op expr.Op, a, b any) any {
	if x, ok := a.(float64); ok && (math.IsNaN(x) || math.IsNaN(b.(float64))) {
		return op == expr.Ne
	}
	o := order(a, b)
	return map[expr.Op]bool{expr.Eq: o == 0, expr.Ne: o != 0, expr.Lt: o < 0, expr.Le: o <= 0, expr.Gt: o > 0, expr.Ge: o >= 0}[op]
}

// order is that of min and max: NaN is greater than all others.
func order(a, b any) int {
	switch x := a.(type) {
	case int64:
		return cmp.Compare(x, b.(int64))
	case uint64:
		return cmp.Compare(x, b.(uint64))
	case string:
		return cmp.Compare(x, b.(string))
	case bool:
		return cmp.Compare(boolBit(x), boolBit(b.(bool)))
	}
	x, y := a.(float64), b.(float64)
	if math.IsNaN(x) || math.IsNaN(y) {
		return -cmp.Compare(x, y)
	}
	return cmp.Compare(x, y)
}

func boolBit(b bool) int {
	if b {
		return 1
	}
	return 0
}
