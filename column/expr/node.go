package expr

import (
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/column"
)

// ErrExpr says that an expression is not one; the message says where and why.
var ErrExpr = errors.New("expr: bad expression")

// Kind is how values are held while an expression runs.
type Kind uint8

// Kinds.
const (
	Int   Kind = 1 + iota // i64
	Uint                  // u64
	Float                 // f64
	Bool
	Text
	Raw     // bytes: those of an extension are compared, nothing else is computed with them
	Decimal // decimal128 of the node's type
)

func (k Kind) String() string {
	return [...]string{"?", "i64", "u64", "f64", "bool", "utf8", "bytes", "decimal128"}[k]
}

// Type is the column type of a kind's values; Raw and Decimal have none of their own.
func (k Kind) Type() column.Type {
	return column.Type{ID: [...]column.ID{column.Invalid, column.I64, column.U64, column.F64, column.Bool, column.UTF8, column.Binary, column.Decimal128}[k]}
}

// KindOf is how a column's values are held.
func KindOf(t column.Type) Kind {
	switch t.ID {
	case column.I8, column.I16, column.I32, column.I64, column.Date32, column.Time32, column.Time64, column.Timestamp, column.Duration:
		return Int
	case column.U8, column.U16, column.U32: // they fit
		return Int
	case column.U64:
		return Uint
	case column.F32, column.F64:
		return Float
	case column.Bool:
		return Bool
	case column.UTF8:
		return Text
	case column.Decimal128:
		return Decimal
	}
	return Raw
}

// Op is what a node does.
type Op uint8

// Operations. Their numbers are those of the query function's instructions.
const (
	Load    Op = 1 + iota // a column
	Literal               // a value
	Add
	Sub
	Mul
	Div
	Mod
	Neg
	Eq
	Ne
	Lt
	Le
	Gt
	Ge
	And
	Or
	Not
	IsNull
	Cast // from the argument's kind to the node's
	HasPrefix
	HasSuffix
	Contains
)

// Node is a part of an expression.
type Node struct {
	Op   Op
	Kind Kind
	// Type is the column type of the values: a column's own, or that of their kind.
	Type   column.Type
	Args   []*Node
	Column int     // of Load
	Int    int64   // of Literal, as its kind has it; of Decimal the high 64 bits
	Uint   uint64  // of Decimal the low ones
	Float  float64 //
	Text   string  //
}

// Columns adds the columns that a tree reads to a set.
func (n *Node) Columns(set map[int]bool) {
	if n.Op == Load {
		set[n.Column] = true
	}
	for _, a := range n.Args {
		a.Columns(set)
	}
}

// Nullable reports whether a value of the tree may be missing.
func (n *Node) Nullable(s column.Schema) bool {
	switch n.Op {
	case Load:
		return s[n.Column].Nullable
	case IsNull:
		return false
	case Div, Mod:
		return n.Kind != Float || n.Args[0].Nullable(s) || n.Args[1].Nullable(s)
	}
	for _, a := range n.Args {
		if a.Nullable(s) {
			return true
		}
	}
	return false
}

// String is the tree in full, for explanations.
func (n *Node) String() string {
	switch n.Op {
	case Load:
		return fmt.Sprintf("#%d", n.Column)
	case Literal:
		switch n.Kind {
		case Text, Raw:
			return fmt.Sprintf("%q", n.Text)
		case Float:
			return fmt.Sprint(n.Float)
		case Uint:
			return fmt.Sprint(n.Uint)
		case Bool:
			return fmt.Sprint(n.Int != 0)
		case Decimal:
			return n.Text
		}
		return fmt.Sprint(n.Int)
	}
	s := fmt.Sprintf("%v.%v(", opNames[n.Op], n.Kind)
	for i, a := range n.Args {
		if i > 0 {
			s += ", "
		}
		s += a.String()
	}
	return s + ")"
}

var opNames = [...]string{Load: "load", Literal: "literal", Add: "add", Sub: "sub", Mul: "mul", Div: "div", Mod: "mod", Neg: "neg", Eq: "eq", Ne: "ne",
	Lt: "lt", Le: "le", Gt: "gt", Ge: "ge", And: "and", Or: "or", Not: "not", IsNull: "isnull", Cast: "cast", HasPrefix: "hasprefix",
	HasSuffix: "hassuffix", Contains: "contains"}

func (o Op) String() string { return opNames[o] }
