package query

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/column/expr"
	"github.com/wherry-fabric/wherry/schema"
)

// ErrQuery says that a query is not one; the message says why.
var ErrQuery = errors.New("query: bad query")

// Query is a question. The zero value asks for all columns of all rows.
type Query struct {
	Where  string   `json:"where,omitempty"`  // a condition; "" takes all rows
	Select []string `json:"select,omitempty"` // columns, or NAME=EXPRESSION; none: all columns. Not with Group or Agg
	Group  []string `json:"group,omitempty"`  // the same
	Agg    []string `json:"agg,omitempty"`    // NAME=FUNCTION(EXPRESSION), or without NAME=
	Order  []string `json:"order,omitempty"`  // names of what comes out, with - before one for the greatest first
	Limit  uint64   `json:"limit,omitempty"`  // 0: none
	// Workers is how many workers of each node share its chunks. At most node.Config.Workers run at once. 0 means one.
	Workers int `json:"workers,omitempty"`
}

// MaxWorkers is how many workers a query may have at each node.
const MaxWorkers = 16

// Functions that aggregate. Their numbers are those of the query function's states.
const (
	fnCount = 1 + iota
	fnSum
	fnLeast
	fnMost
	fnSpread // number, mean and sum of squared distances
	fnDistinct
	fnApprox
	fnQuantile
)

// aggregates are the functions' names, the state each needs, and how it is read.
var aggregates = map[string]struct {
	fn   byte
	read reading
}{
	"count": {fnCount, readCount}, "sum": {fnSum, readSum}, "min": {fnLeast, readValue}, "max": {fnMost, readValue},
	"mean": {fnSum, readMean}, "avg": {fnSum, readMean}, "stddev": {fnSpread, readDeviation},
	"distinct": {fnDistinct, readCount}, "approx_distinct": {fnApprox, readApprox}, "quantile": {fnQuantile, readQuantile},
}

var aggregateNames = slices.Sorted(maps.Keys(aggregates))

// reading is what a state says. Its numbers are those of the query function's outputs.
type reading uint8

const (
	readCount reading = iota
	readSum
	readValue
	readMean
	readMiddle // a mean of what counts time, which is of the same type
	readDeviation
	readApprox
	readQuantile
)

// output is a column of the answer.
type output struct {
	name string
	tree *expr.Node // of a key or selected column; of an aggregate its argument, nil for count()
	text string     // for explanations
	fn   byte       // 0: a key or a selected column
	read reading
	part float64 // of a quantile
}

// Plan is a query that fits a dataset.
type Plan struct {
	query   Query
	columns column.Schema
	where   *expr.Node
	keys    []output // or what is selected
	aggs    []output
	rows    bool // rows come out, not groups
	order   []ordering
}

// ordering is a column of the answer by which it is ordered.
type ordering struct {
	column int
	down   bool
}

// Make checks a query against a dataset's columns.
func Make(q Query, columns column.Schema) (*Plan, error) {
	p := &Plan{query: q, columns: columns, rows: len(q.Group) == 0 && len(q.Agg) == 0}
	if q.Workers < 0 || q.Workers > MaxWorkers {
		return nil, fmt.Errorf("%w: %d workers: a node's chunks are shared by 1 to %d of them", ErrQuery, q.Workers, MaxWorkers)
	}
	var err error
	if q.Where != "" {
		if p.where, err = expr.Condition(q.Where, columns); err != nil {
			return nil, fmt.Errorf("--where: %w", err)
		}
	}
	items, flag := q.Group, "--group"
	if p.rows {
		if items, flag = q.Select, "--select"; len(items) == 0 {
			items = quoted(columns.Names())
		}
	} else if len(q.Select) > 0 {
		return nil, fmt.Errorf("%w: --select names columns of rows; with --group or --agg those come out", ErrQuery)
	}
	for _, item := range items {
		o, err := p.named(item)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		p.keys = append(p.keys, o)
	}
	for _, item := range q.Agg {
		o, err := p.aggregate(item)
		if err != nil {
			return nil, fmt.Errorf("--agg: %w", err)
		}
		p.aggs = append(p.aggs, o)
	}
	if err := p.Columns().Validate(); err != nil {
		return nil, fmt.Errorf("%w: what comes out: %w", ErrQuery, err)
	}
	return p, p.setOrder()
}

// quoted makes expressions of names.
func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf("%s=col(%q)", n, n)
	}
	return out
}

// cut splits NAME=EXPRESSION; a comparison is no name.
func cut(item string) (name, text string) {
	for i := range len(item) {
		switch item[i] {
		case '"', '`', '(', '<', '>', '!':
			return "", item
		case '=':
			if strings.HasPrefix(item[i:], "==") {
				return "", item
			}
			return strings.TrimSpace(item[:i]), item[i+1:]
		}
	}
	return "", item
}

// named reads a column's name, or an expression.
func (p *Plan) named(item string) (output, error) {
	item = strings.TrimSpace(item)
	if i := p.columns.Index(item); i >= 0 {
		item = quoted([]string{item})[0]
		n, err := expr.Parse(item[len(p.columns[i].Name)+1:], p.columns)
		return output{name: p.columns[i].Name, tree: n, text: p.columns[i].Name}, err
	}
	name, text := cut(item)
	for _, c := range p.columns { // a name may hold any character
		if rest, ok := strings.CutPrefix(item, c.Name+"=col("); ok {
			name, text = c.Name, "col("+rest
		}
	}
	n, err := expr.Parse(text, p.columns)
	switch {
	case name != "":
	case err == nil && n.Op == expr.Load:
		name = p.columns[n.Column].Name
	default:
		name = strings.TrimSpace(text)
	}
	return output{name: name, tree: n, text: text}, err
}

// aggregate reads NAME=FUNCTION(EXPRESSION).
func (p *Plan) aggregate(item string) (output, error) {
	item = strings.TrimSpace(item)
	name, text := cut(item)
	text = strings.TrimSpace(text)
	fn, arg, ok := strings.Cut(text, "(")
	fn = strings.TrimSpace(fn)
	if !ok || !strings.HasSuffix(arg, ")") {
		return output{}, fmt.Errorf("%w: %.80q is no aggregate, as in n=count() or total=sum(price)", ErrQuery, text)
	}
	a, ok := aggregates[fn]
	if !ok {
		return output{}, fmt.Errorf("%w: %.80q: at %d: there is no aggregate %.40q; %s", ErrQuery, item, len(item)-len(text)+1, fn, schema.Suggest(fn, aggregateNames))
	}
	o := output{name: name, text: text, fn: a.fn, read: a.read}
	if name == "" {
		o.name = text
	}
	arg = strings.TrimSpace(strings.TrimSuffix(arg, ")"))
	if a.fn == fnQuantile {
		var err error
		if arg, o.part, err = quantile(arg); err != nil {
			return output{}, err
		}
	}
	if arg == "" {
		if a.fn != fnCount {
			return output{}, fmt.Errorf("%w: %s() of what? It takes a column, as in %s(%s)", ErrQuery, fn, fn, p.columns[0].Name)
		}
		return o, nil
	}
	in, err := p.named(arg)
	if err != nil {
		return output{}, err
	}
	o.tree = in.tree
	return o, o.fit(fn, arg)
}

// quantile splits what stands in the brackets of quantile(x, 0.99).
func quantile(arg string) (string, float64, error) {
	i := strings.LastIndexByte(arg, ',')
	part, err := strconv.ParseFloat(strings.TrimSpace(arg[i+1:]), 64)
	if i < 0 || err != nil || !(part >= 0 && part <= 1) {
		return "", 0, fmt.Errorf("%w: quantile(%.80s) takes a column and a number from 0 to 1, as in quantile(ms, 0.99)", ErrQuery, arg)
	}
	return strings.TrimSpace(arg[:i]), part, nil
}

// fit checks that an aggregate is defined for its argument's type, and converts the argument to what the function takes.
func (o *output) fit(fn, arg string) error {
	t, kind := o.tree.Type, o.tree.Kind
	number := kind <= expr.Float || kind == expr.Decimal
	ok := true
	switch {
	case fn == "sum" || fn == "stddev":
		ok = number && !timely(t) && (fn == "sum" || t.ID != column.Duration)
	case o.read == readMean:
		ok = number
		if timely(t) || t.ID == column.Duration {
			o.read = readMiddle
		}
	case o.fn == fnQuantile && kind == expr.Decimal:
		return fmt.Errorf("%w: quantile does not take %v: convert with quantile(f64(%s), …)", ErrQuery, t, arg)
	case o.fn == fnQuantile:
		ok = kind <= expr.Float
	}
	if !ok {
		return fmt.Errorf("%w: %s computes with %s; %s is %v, of which there are count, min, max, %sdistinct and approx_distinct", ErrQuery, fn, o.takes(fn), arg, t, o.others(fn))
	}
	if o.fn == fnSpread && kind != expr.Float {
		o.tree = &expr.Node{Op: expr.Cast, Kind: expr.Float, Type: expr.Float.Type(), Args: []*expr.Node{o.tree}}
	}
	return nil
}

// takes are the types that an aggregate computes with, in words.
func (o *output) takes(fn string) string {
	switch {
	case fn == "sum":
		return "numbers, decimals and durations"
	case o.fn == fnSum:
		return "numbers, decimals and times"
	case o.fn == fnQuantile:
		return "numbers and times"
	}
	return "numbers"
}

// others are aggregates that there are of the argument's type, beside those of all types.
func (o *output) others(fn string) string {
	switch {
	case o.tree.Type.ID == column.Duration && fn != "sum":
		return "sum, mean, quantile, "
	case timely(o.tree.Type):
		return "mean, quantile, "
	case o.tree.Kind == expr.Decimal:
		return "sum, mean, "
	}
	return ""
}

// Overflowing are the parts of the query that compute with integers, which may be too large for 64 bits.
func (p *Plan) Overflowing() []string {
	out := []string{}
	if p.where != nil && overflows(p.where) {
		out = append(out, "--where "+p.query.Where)
	}
	keys, flag := p.query.Group, "--group "
	if p.rows {
		keys, flag = p.query.Select, "--select "
	}
	for i, text := range keys {
		if overflows(p.keys[i].tree) {
			out = append(out, flag+text)
		}
	}
	for i, text := range p.query.Agg {
		if tree := p.aggs[i].tree; tree != nil && overflows(tree) {
			out = append(out, "--agg "+text)
		}
	}
	return out
}

func overflows(n *expr.Node) bool {
	switch n.Op {
	case expr.Add, expr.Sub, expr.Mul, expr.Div, expr.Neg, expr.Cast:
		if n.Kind == expr.Int || n.Kind == expr.Uint {
			return true
		}
	}
	return slices.ContainsFunc(n.Args, overflows)
}

// timely reports types that count time from some moment on, which have no sum.
func timely(t column.Type) bool { return t.ID >= column.Date32 && t.ID <= column.Timestamp }

// setOrder finds the columns that the answer is ordered by.
func (p *Plan) setOrder() error {
	out := p.Columns()
	for _, item := range p.query.Order {
		name, down := strings.CutPrefix(strings.TrimSpace(item), "-")
		i := out.Index(strings.TrimSpace(item)) // a name may begin with -
		if i >= 0 {
			down = false
		} else {
			i = out.Index(called(name))
		}
		if i < 0 {
			return fmt.Errorf("%w: --order: nothing that comes out is called %.80q; %s", ErrQuery, name, schema.Suggest(name, out.Names()))
		}
		p.order = append(p.order, ordering{i, down})
	}
	return nil
}

// called is the name that col("NAME") stands for, which may hold any character; other text stands for itself.
func called(text string) string {
	text = strings.TrimSpace(text)
	if inner, ok := strings.CutPrefix(text, "col("); ok && strings.HasSuffix(inner, ")") {
		if name, err := strconv.Unquote(strings.TrimSpace(strings.TrimSuffix(inner, ")"))); err == nil {
			return name
		}
	}
	return text
}

// outputs are the columns of the answer, in their order.
func (p *Plan) outputs() []output { return slices.Concat(p.keys, p.aggs) }

// Columns are those of the answer.
func (p *Plan) Columns() column.Schema {
	var out column.Schema
	for _, o := range p.outputs() {
		c := column.Column{Name: o.name, Nullable: true}
		switch {
		case o.fn == 0:
			c.Type, c.Nullable = o.tree.Type, o.tree.Nullable(p.columns)
		case o.read == readCount || o.read == readApprox:
			c.Type, c.Nullable = column.Type{ID: column.I64}, false
		case o.read == readMean || o.read == readDeviation:
			c.Type = column.Type{ID: column.F64}
		case o.read != readSum || o.tree.Type.ID == column.Duration:
			c.Type = o.tree.Type
		case o.tree.Kind == expr.Decimal:
			c.Type = column.Type{ID: column.Decimal128, Precision: column.MaxPrecision, Scale: o.tree.Type.Scale}
		default:
			c.Type = o.tree.Kind.Type()
		}
		out = append(out, c)
	}
	return out
}

// Workers is how many workers each node has for the query.
func (p *Plan) Workers() int { return max(p.query.Workers, 1) }

// Reads are the names of the columns that the query reads.
func (p *Plan) Reads() []string {
	set := map[int]bool{}
	if p.where != nil {
		p.where.Columns(set)
	}
	for _, o := range p.outputs() {
		if o.tree != nil {
			o.tree.Columns(set)
		}
	}
	names := []string{}
	for i, c := range p.columns {
		if set[i] {
			names = append(names, c.Name)
		}
	}
	return names
}
