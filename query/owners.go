package query

import (
	"encoding/binary"
	"slices"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/column/expr"
)

// Owners are the elements that can have rows for which the condition is true, in ascending order, of a dataset that is sharded by a key: the owners
// of the keys that the condition asks for; owner says which does, of a key's column.KeyBytes. nil: all elements can; otherwise there is at
// least one, which answers that there are no such rows.
func (p *Plan) Owners(key string, owner func(key []byte) uint32) []uint32 {
	c := p.columns.Index(key)
	if c < 0 || p.where == nil {
		return nil
	}
	owners, some := ownersOf(p.where, c, owner)
	switch {
	case !some:
		return nil
	case len(owners) == 0: // one key cannot be two
		return []uint32{0}
	}
	return owners
}

// ownersOf returns the elements that can have rows for which a condition is true; false means all of them.
func ownersOf(n *expr.Node, key int, owner func([]byte) uint32) (owners []uint32, some bool) {
	switch n.Op {
	case expr.And:
		a, someA := ownersOf(n.Args[0], key, owner)
		b, someB := ownersOf(n.Args[1], key, owner)
		switch {
		case !someA:
			return b, someB
		case !someB:
			return a, true
		}
		return slices.DeleteFunc(a, func(e uint32) bool { return !slices.Contains(b, e) }), true
	case expr.Or:
		a, someA := ownersOf(n.Args[0], key, owner)
		b, someB := ownersOf(n.Args[1], key, owner)
		all := append(a, b...)
		slices.Sort(all)
		return slices.Compact(all), someA && someB
	case expr.IsNull:
		if n.Args[0].Op == expr.Load && n.Args[0].Column == key {
			return []uint32{owner(nil)}, true
		}
	case expr.Eq:
		col, lit := n.Args[0], n.Args[1]
		if col.Op == expr.Literal {
			col, lit = lit, col
		}
		if col.Op == expr.Load && col.Column == key && lit.Op == expr.Literal && lit.Kind == col.Kind {
			if b := keyBytes(lit); b != nil {
				return []uint32{owner(b)}, true
			}
		}
	}
	return nil, false
}

// keyBytes encodes a literal as column.KeyBytes encodes keys; nil: a key cannot have its type.
func keyBytes(lit *expr.Node) []byte {
	switch lit.Kind {
	case expr.Int, expr.Uint, expr.Bool:
		return column.KeyBytes([]byte{}, bits(lit))
	case expr.Text, expr.Raw:
		return append([]byte{}, lit.Text...)
	case expr.Decimal:
		return binary.LittleEndian.AppendUint64(column.KeyBytes([]byte{}, lit.Uint), uint64(lit.Int))
	}
	return nil
}
