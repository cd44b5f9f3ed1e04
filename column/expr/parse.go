package expr

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/schema"
)

const (
	// MaxBytes bounds an expression's text.
	MaxBytes = 16 << 10
	// maxDecimalText bounds the text of a number that is compared with a decimal, and greatestDecimal its
	// magnitude and how near it is to 0: a large exponent would take all memory.
	maxDecimalText  = 64
	greatestDecimal = 1e39
	// maxDepth bounds how deep an expression is nested.
	maxDepth = 100
)

// Parse reads an expression over these columns.
func Parse(text string, columns column.Schema) (*Node, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrExpr, len(text), MaxBytes)
	}
	tree, err := parser.ParseExpr(text)
	if err != nil {
		var list scanner.ErrorList
		if errors.As(err, &list) && len(list) > 0 {
			return nil, fmt.Errorf("%w %.80q: at %d: %s%s", ErrExpr, text, list[0].Pos.Column, list[0].Msg, stray(list[0].Msg, columns))
		}
		return nil, fmt.Errorf("%w %.80q: %w", ErrExpr, text, err)
	}
	r := &reader{text: text, columns: columns}
	n, err := r.read(tree, 0)
	if err == nil && n.untyped() {
		n, err = r.settle(n, nil, tree)
	}
	return n, err
}

// words are what SQL writes where Go has a sign or a function.
var words = map[string]string{"and": "&&", "or": "||", "not": "!", "in": "==, and || between several", "is": "isnull(…), or ==", "like": "hasprefix(…), hassuffix(…) or contains(…)"}

// stray says what to write instead of a word with which an expression cannot go on.
func stray(msg string, columns column.Schema) string {
	if strings.Contains(msg, "in octal literal") {
		return ": write the number without zeros in front"
	}
	_, word, ok := strings.Cut(msg, "expected 'EOF', found ")
	if sign := words[strings.ToLower(strings.Trim(word, "'"))]; sign != "" {
		return ": write " + sign
	}
	for _, c := range columns {
		if ok && slices.Contains(strings.Fields(c.Name), word) {
			return fmt.Sprintf(": a column whose name is not one word is written col(%q)", c.Name)
		}
	}
	return ""
}

// Condition reads an expression that is true or false.
func Condition(text string, columns column.Schema) (*Node, error) {
	n, err := Parse(text, columns)
	if err == nil && n.Kind != Bool {
		err = fmt.Errorf("%w %.80q: it is %v, a condition is true or false", ErrExpr, text, n.Kind)
	}
	return n, err
}

// reader makes nodes of a syntax tree.
type reader struct {
	text    string
	columns column.Schema
}

// fail says what is wrong where.
func (r *reader) fail(at ast.Node, format string, args ...any) error {
	return fmt.Errorf("%w %.80q: at %d: %s", ErrExpr, r.text, at.Pos(), fmt.Sprintf(format, args...))
}

// untyped reports a number whose kind is still open.
func (n *Node) untyped() bool { return n.Op == Literal && n.Kind == 0 }

func (r *reader) read(e ast.Expr, depth int) (*Node, error) {
	if depth > maxDepth {
		return nil, r.fail(e, "it is nested more than %d deep", maxDepth)
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		return r.read(e.X, depth+1)
	case *ast.Ident:
		if e.Name == "true" || e.Name == "false" {
			n := &Node{Op: Literal, Kind: Bool, Type: Bool.Type()}
			if e.Name == "true" {
				n.Int = 1
			}
			return n, nil
		}
		return r.load(e, e.Name)
	case *ast.BasicLit:
		return r.literal(e)
	case *ast.UnaryExpr:
		return r.unary(e, depth)
	case *ast.BinaryExpr:
		return r.binary(e, depth)
	case *ast.CallExpr:
		return r.call(e, depth)
	}
	return nil, r.fail(e, "this has no meaning here: expressions are names, numbers, text, operators and calls")
}

// load is a column by name.
func (r *reader) load(at ast.Node, name string) (*Node, error) {
	i := r.columns.Index(name)
	if i < 0 && (name == "nil" || strings.EqualFold(name, "null")) {
		return nil, r.fail(at, "there is no column %q; what is missing is asked for by isnull(…)", name)
	}
	if i < 0 && strings.EqualFold(name, "nan") {
		return nil, r.fail(at, "there is no column %q; NaN differs from itself: x != x finds it", name)
	}
	if i < 0 {
		return nil, r.fail(at, "there is no column %q; %s", name, schema.Suggest(name, r.columns.Names()))
	}
	t := r.columns[i].Type
	if t.Nested() {
		return nil, r.fail(at, "column %q is %v, which queries do not read: name the other columns (--select); wherry mem get gives it", name, t)
	}
	return &Node{Op: Load, Kind: KindOf(t), Type: t, Column: i}, nil
}

// literal is text, or a number of a kind that what stands beside it decides.
func (r *reader) literal(e *ast.BasicLit) (*Node, error) {
	switch e.Kind {
	case token.STRING, token.CHAR:
		text, err := strconv.Unquote(e.Value)
		if err != nil || e.Kind == token.CHAR {
			return nil, r.fail(e, "text stands in double quotes, or between backquotes")
		}
		return &Node{Op: Literal, Kind: Text, Type: Text.Type(), Text: text}, nil
	case token.INT, token.FLOAT:
		if digits := strings.Trim(e.Value[1:], "_"); e.Kind == token.INT && e.Value[0] == '0' && digits != "" && digits[0] >= '0' && digits[0] <= '9' {
			return nil, r.octal(e)
		}
		return &Node{Op: Literal, Text: e.Value}, nil
	}
	return nil, r.fail(e, "%s is no number", e.Value)
}

// octal refuses a number with a zero in front: Go takes it as octal, and hardly anybody means that.
func (r *reader) octal(e *ast.BasicLit) error {
	digits := strings.TrimLeft(strings.ReplaceAll(e.Value, "_", ""), "0")
	if digits == "" {
		digits = "0"
	}
	v, _ := new(big.Int).SetString(digits, 8) // the parser has seen that its digits are octal
	return r.fail(e, "%.40s would be %.40s, an octal number: write %.40s, or 0o%.40[3]s", e.Value, v.String(), digits)
}

var unaries = map[token.Token]Op{token.SUB: Neg, token.NOT: Not}

func (r *reader) unary(e *ast.UnaryExpr, depth int) (*Node, error) {
	n, err := r.read(e.X, depth+1)
	if err != nil {
		return nil, err
	}
	op, ok := unaries[e.Op]
	switch {
	case e.Op == token.ADD && n.Kind <= Float:
		return n, nil
	case !ok:
		return nil, r.fail(e, "there is no operator %v before a value", e.Op)
	case op == Neg && n.untyped():
		if positive, minus := strings.CutPrefix(n.Text, "-"); minus {
			return &Node{Op: Literal, Text: positive}, nil
		}
		return &Node{Op: Literal, Text: "-" + n.Text}, nil
	case op == Not && n.Kind != Bool, op == Neg && n.Kind != Int && n.Kind != Float:
		return nil, r.fail(e, "%v cannot stand before %v", e.Op, n.Kind)
	}
	return &Node{Op: op, Kind: n.Kind, Type: n.Kind.Type(), Args: []*Node{n}}, nil
}

var binaries = map[token.Token]Op{token.ADD: Add, token.SUB: Sub, token.MUL: Mul, token.QUO: Div, token.REM: Mod,
	token.EQL: Eq, token.NEQ: Ne, token.LSS: Lt, token.LEQ: Le, token.GTR: Gt, token.GEQ: Ge, token.LAND: And, token.LOR: Or}

func (r *reader) binary(e *ast.BinaryExpr, depth int) (*Node, error) {
	op, ok := binaries[e.Op]
	if !ok {
		return nil, r.fail(e, "there is no operator %v; there are + - * / %% == != < <= > >= && || !", e.Op)
	}
	a, err := r.read(e.X, depth+1)
	if err != nil {
		return nil, err
	}
	b, err := r.read(e.Y, depth+1)
	if err != nil {
		return nil, err
	}
	for _, n := range []*Node{a, b} {
		if n.Kind == Raw && n.Type.Extension == column.NoExtension {
			return nil, r.fail(e, "column %q is of type %v, with which expressions cannot compute yet", r.columns[n.Column].Name, n.Type)
		}
	}
	if a, b, err = r.match(e, a, b); err != nil {
		return nil, err
	}
	n := &Node{Op: op, Kind: a.Kind, Type: a.Kind.Type(), Args: []*Node{a, b}}
	switch {
	case op >= Eq && op <= Ge:
		n.Kind, n.Type = Bool, Bool.Type()
		if a.Kind == Bool && op > Ne {
			return nil, r.fail(e, "%v does not compare bools", e.Op)
		}
	case op == And || op == Or:
		if a.Kind != Bool {
			return nil, r.fail(e, "%v joins conditions, not %v", e.Op, a.Kind)
		}
	case a.Kind > Float || op == Mod && a.Kind == Float:
		return nil, r.fail(e, "%v does not compute with %v", e.Op, a.Kind)
	}
	return n, nil
}

// match makes both sides of an operator one kind.
func (r *reader) match(e *ast.BinaryExpr, a, b *Node) (*Node, *Node, error) {
	var err error
	switch {
	case a.untyped() && b.untyped():
		if a, err = r.settle(a, nil, e.X); err == nil {
			b, err = r.settle(b, a, e.Y)
		}
	case a.untyped():
		a, err = r.settle(a, b, e.X)
	case b.untyped():
		b, err = r.settle(b, a, e.Y)
	}
	if err == nil && a.Op == Literal && a.Kind == Text {
		a, err = r.moment(a, b, e.X)
	}
	if err == nil && b.Op == Literal && b.Kind == Text {
		b, err = r.moment(b, a, e.Y)
	}
	if err != nil {
		return nil, nil, err
	}
	if a.Type.Extension != b.Type.Extension {
		return nil, nil, r.fail(e, "%v %v %v: an ip or a uuid is compared with another, or with one in quotes", a.Type, e.Op, b.Type)
	}
	if a.Kind != b.Kind {
		return nil, nil, r.fail(e, "%v %v %v: both sides must be of one type: convert one with i64(…), u64(…) or f64(…)", a.Kind, e.Op, b.Kind)
	}
	if a.Kind == Decimal && a.Type.Scale != b.Type.Scale {
		return nil, nil, r.fail(e, "%v %v %v: they have different places behind the point: compare with f64(…)", a.Type, e.Op, b.Type)
	}
	if a.Type.ID == column.Timestamp && b.Type.ID == column.Timestamp && (a.Type.Zone == "") != (b.Type.Zone == "") {
		return nil, nil, r.fail(e, "%v %v %v: one is an instant, the other a local time of no zone: convert both with i64(…) if they are meant to be in UTC", a.Type, e.Op, b.Type)
	}
	if timely(a.Type) && timely(b.Type) && a.Type != b.Type && (a.Type.ID != b.Type.ID || a.Type.Unit != b.Type.Unit) {
		return nil, nil, r.fail(e, "%v %v %v: they count different units: convert with i64(…) and compute", a.Type, e.Op, b.Type)
	}
	return a, b, nil
}

// settle gives a number the kind of what stands beside it; nil: that of its text.
func (r *reader) settle(n, beside *Node, at ast.Node) (*Node, error) {
	out := &Node{Op: Literal, Kind: Int}
	if beside != nil && beside.Kind == Decimal {
		return r.decimal(n, beside.Type, at)
	}
	if beside != nil {
		if out.Kind = beside.Kind; out.Kind > Float {
			return nil, r.fail(at, "%s is a number, beside it is %v", n.Text, beside.Kind)
		}
	} else if _, err := strconv.ParseInt(n.Text, 0, 64); err != nil {
		out.Kind = Float
	}
	var err error
	switch out.Kind {
	case Int:
		out.Int, err = strconv.ParseInt(n.Text, 0, 64)
	case Uint:
		out.Uint, err = strconv.ParseUint(n.Text, 0, 64)
	default:
		out.Float, err = strconv.ParseFloat(n.Text, 64)
	}
	if err != nil {
		return nil, r.fail(at, "%s is no %v, as what stands beside it is: convert that with f64(…)", n.Text, out.Kind)
	}
	out.Type = out.Kind.Type()
	return out, nil
}

// decimal converts a number that is compared with a decimal: exactly, to the same number of places behind the point.
func (r *reader) decimal(n *Node, t column.Type, at ast.Node) (*Node, error) {
	v, ok := new(big.Rat), len(n.Text) <= maxDecimalText
	if about, err := strconv.ParseFloat(n.Text, 64); err == nil && about == 0 {
		ok = ok && !strings.ContainsAny(n.Text, "eEpP")
	} else if err == nil || errors.Is(err, strconv.ErrRange) { // integers of other bases are no floats
		ok = ok && math.Abs(about) < greatestDecimal && math.Abs(about) > 1/greatestDecimal
	}
	if ok {
		v, ok = v.SetString(n.Text)
	}
	if ok {
		v.Mul(v, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Scale)), nil)))
		ok = v.IsInt() && v.Num().BitLen() < 128
	}
	if !ok {
		return nil, r.fail(at, "%.80s is no %v: it has more digits than that; compare f64(…) with it", n.Text, t)
	}
	low := new(big.Int).And(v.Num(), new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	high := new(big.Int).Rsh(v.Num(), 64).Int64()
	return &Node{Op: Literal, Kind: Decimal, Type: t, Uint: low, Int: high, Text: n.Text}, nil
}

// calls are the functions that expressions can call.
var calls = map[string]Op{"isnull": IsNull, "hasprefix": HasPrefix, "hassuffix": HasSuffix, "contains": Contains, "i64": Cast, "u64": Cast, "f64": Cast, "col": Load}

// Functions names them.
func Functions() []string {
	return []string{"col", "contains", "f64", "hasprefix", "hassuffix", "i64", "isnull", "u64"}
}

func (r *reader) call(e *ast.CallExpr, depth int) (*Node, error) {
	name, ok := e.Fun.(*ast.Ident)
	if !ok {
		return nil, r.fail(e, "this cannot be called")
	}
	op, ok := calls[name.Name]
	if !ok {
		return nil, r.fail(e, "there is no function %q; %s", name.Name, schema.Suggest(name.Name, Functions()))
	}
	want := 1
	if op >= HasPrefix {
		want = 2
	}
	if len(e.Args) != want {
		return nil, r.fail(e, "%s takes %d arguments, here are %d", name.Name, want, len(e.Args))
	}
	if op == Load {
		text, ok := e.Args[0].(*ast.BasicLit)
		if !ok || text.Kind != token.STRING {
			return nil, r.fail(e, `col takes a name in quotes, as in col("user id")`)
		}
		lit, err := r.literal(text)
		if err != nil {
			return nil, err
		}
		return r.load(text, lit.Text)
	}
	n := &Node{Op: op, Kind: Bool}
	for _, arg := range e.Args {
		a, err := r.read(arg, depth+1)
		if err == nil && a.untyped() {
			a, err = r.settle(a, nil, arg)
		}
		if err != nil {
			return nil, err
		}
		if op >= HasPrefix && a.Kind != Text {
			return nil, r.fail(arg, "%s takes text, not %v", name.Name, a.Kind)
		}
		n.Args = append(n.Args, a)
	}
	if op >= HasPrefix && n.Args[1].Op != Literal {
		return nil, r.fail(e.Args[1], "%s looks for text in quotes", name.Name)
	}
	if op == Cast {
		n.Kind = map[string]Kind{"i64": Int, "u64": Uint, "f64": Float}[name.Name]
		from := n.Args[0].Kind
		if from > Bool && (from != Decimal || n.Kind != Float) || from == Bool && n.Kind != Int {
			return nil, r.fail(e, "%s does not convert %v", name.Name, from)
		}
	}
	n.Type = n.Kind.Type()
	return n, nil
}
