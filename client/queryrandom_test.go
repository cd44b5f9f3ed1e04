package client

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/parquet-go/parquet-go"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column/expr"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/query"
)

// randomRow is a row of the dataset that random questions are asked of. Names are one letter: a to d are integers, u has 64 bits
// without a sign, f and g are floats, k a bool, s few words and t many.
type randomRow struct {
	A *int8    `parquet:"a,optional"`
	B *int64   `parquet:"b,optional"`
	C uint32   `parquet:"c"`
	D *uint16  `parquet:"d,optional"`
	U *uint64  `parquet:"u,optional"`
	F *float64 `parquet:"f,optional"`
	G *float32 `parquet:"g,optional"`
	K *bool    `parquet:"k,optional"`
	S *string  `parquet:"s,optional"`
	T string   `parquet:"t"`
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// perhaps is a value, or none: all of them are missing in some ranges of rows, so that whole chunks miss them.
func perhaps[T any](r *rand.Rand, row int, v T) *T {
	if r.IntN(6) == 0 || row/500%5 == 3 {
		return nil
	}
	return &v
}

// randomRows grow with their number in places, so that the bounds of chunks differ.
func randomRows(r *rand.Rand, n int) (out []randomRow) {
	for i := range n {
		row := randomRow{C: uint32(i), T: fmt.Sprintf("%s %d", pick(r, "note", "ünot", ""), i)}
		row.A = perhaps(r, i, int8(r.IntN(256)-128))
		row.B = perhaps(r, i, pick(r, int64(i)*7-9000, int64(i), -int64(i), 0, 3, pick(r, int64(1), 1, 1, math.MaxInt64, math.MinInt64)))
		row.D = perhaps(r, i, uint16(i/500*4000+r.IntN(3)))
		row.U = perhaps(r, i, pick(r, uint64(i), 5, math.MaxUint64-uint64(i), 1<<63, 1<<63-1))
		row.F = perhaps(r, i, pick(r, float64(i)/8, -float64(r.IntN(100))/4, 0, math.Copysign(0, -1), pick(r, 1.5, 1.5, 1.5, 2, math.NaN(), math.Inf(-1))))
		if i/500%2 == 0 { // no NaN: such chunks have bounds
			row.F = perhaps(r, i, float64(i)/8)
		}
		row.G = perhaps(r, i, float32(i/500)+0.1)
		row.K = perhaps(r, i, r.IntN(3) == 0)
		row.S = perhaps(r, i, pick(r, "", "info", "inf", "warn", "ärger", "info\x00", strconv.Itoa(i/500)))
		out = append(out, row)
	}
	return out
}

// loadRandom loads rows as columns of chunks of so many rows.
func loadRandom(t *testing.T, b *bench, c *Client, name string, rows []randomRow, chunk int) *cluster.Table {
	t.Helper()
	path := filepath.Join(b.dir, name+".parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := parquet.NewGenericWriter[randomRow](f)
	for group := range slices.Chunk(rows, chunk) {
		if _, err := w.Write(group); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	in, err := dataset.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load(t.Context(), LoadSpec{Name: name, Input: in, Options: dataset.Options{Format: dataset.Parquet}}, nil); err != nil {
		t.Fatal(err)
	}
	table, err := c.Table(t.Context(), name, "r")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// maker makes random expressions.
type maker struct{ *rand.Rand }

func (m maker) number(k expr.Kind, depth int) string {
	if depth <= 0 || m.IntN(3) == 0 {
		switch k {
		case expr.Int:
			return pick(m.Rand, "a", "b", "c", "d", "3", "(-1)", "0", "1000", "9223372036854775807", "(-9223372036854775808)")
		case expr.Uint:
			return pick(m.Rand, "u", "u", "u64(c)", "u64(7)")
		}
		return pick(m.Rand, "f", "g", "f64(c)", "0.5", "1e3", "f64(u)")
	}
	a, b := m.number(k, depth-1), m.number(k, depth-1)
	switch m.IntN(9) {
	case 0:
		if k == expr.Uint || strings.HasPrefix(a, "(-9") { // the least number has no other sign
			return a
		}
		return "-(" + a + ")"
	case 1:
		return map[expr.Kind]string{expr.Int: "i64", expr.Uint: "u64", expr.Float: "f64"}[k] + "(" + m.number(pick(m.Rand, expr.Int, expr.Uint, expr.Float), depth-1) + ")"
	case 2, 3:
		if k != expr.Float {
			return "(" + a + pick(m.Rand, " / ", " % ") + b + ")"
		}
		return "(" + a + " / " + b + ")"
	}
	return "(" + a + pick(m.Rand, " + ", " - ", " * ") + b + ")"
}

func (m maker) condition(depth int) string {
	if depth > 0 && m.IntN(2) == 0 {
		if m.IntN(5) == 0 {
			return "!(" + m.condition(depth-1) + ")"
		}
		return "(" + m.condition(depth-1) + pick(m.Rand, " && ", " && ", " || ") + m.condition(depth-1) + ")"
	}
	op := pick(m.Rand, " == ", " != ", " < ", " <= ", " > ", " >= ")
	switch m.IntN(10) {
	case 0:
		return "isnull(" + pick(m.Rand, "a", "u", "g", "k", "s", "b / a") + ")"
	case 1:
		return pick(m.Rand, "hasprefix", "hassuffix", "contains") + "(" + pick(m.Rand, "s", "t") + ", " + pick(m.Rand, `"inf"`, `""`, `"o"`, `"9"`, `"ünot 1"`) + ")"
	case 2:
		return pick(m.Rand, "k", "k == true", "k != (a > 3)", "true", "false")
	case 3:
		return pick(m.Rand, "s", "t") + op + pick(m.Rand, `"info"`, `"inf"`, `"note 7"`, "s", `""`)
	case 4, 5: // what keeps chunks from being read
		return pick(m.Rand, "a", "b", "c", "d") + op + pick(m.Rand, "-1", "0", "700", "12000", "2500", "127", "65535")
	case 6:
		return pick(m.Rand, "0", "5", "9223372036854775807", "9223372036854775808", "18446744073709551615", "1200") + op + "u"
	case 7:
		return pick(m.Rand, "f", "g") + op + pick(m.Rand, "0", "-3.5", "2", "0.1", "100", "1e300")
	}
	k := pick(m.Rand, expr.Int, expr.Uint, expr.Float)
	return m.number(k, depth) + op + m.number(k, depth)
}

func (m maker) value(depth int) string {
	if m.IntN(3) == 0 {
		return pick(m.Rand, "k", "s", "t", "isnull(s)")
	}
	return m.number(pick(m.Rand, expr.Int, expr.Uint, expr.Float), depth)
}

func (m maker) query() query.Query {
	q := query.Query{Workers: m.IntN(4)}
	if m.IntN(8) > 0 {
		q.Where = m.condition(2)
	}
	if m.IntN(3) == 0 {
		for i := range 1 + m.IntN(3) {
			q.Select = append(q.Select, fmt.Sprintf("x%d=%s", i, m.value(1)))
		}
		return q
	}
	for i := range m.IntN(3) {
		q.Group = append(q.Group, fmt.Sprintf("x%d=%s", i, pick(m.Rand, "s", "a % 5", "k", "d", "f", "g", "u / u64(1000000000000000000)", "isnull(b)", m.value(1))))
	}
	for i := range 1 + m.IntN(4) {
		fn := pick(m.Rand, "count", "sum", "mean", "min", "max", "stddev", "min", "max", "distinct", "approx_distinct", "quantile")
		arg := m.value(1)
		if fn == "sum" || fn == "mean" || fn == "stddev" || fn == "quantile" {
			arg = m.number(pick(m.Rand, expr.Int, expr.Uint, expr.Float), 1)
		}
		if fn == "quantile" {
			arg += ", " + pick(m.Rand, "0", "0.25", "0.5", "0.99", "1")
		}
		q.Agg = append(q.Agg, fmt.Sprintf("y%d=%s(%s)", i, fn, arg))
	}
	return q
}

// cellOf is a value of an answer, as the evaluation in Go has it.
func cellOf(a arrow.Array, i int) any {
	if a.IsNull(i) {
		return nil
	}
	switch a := a.(type) {
	case *array.Int8:
		return int64(a.Value(i))
	case *array.Int64:
		return a.Value(i)
	case *array.Uint16:
		return int64(a.Value(i))
	case *array.Uint32:
		return int64(a.Value(i))
	case *array.Uint64:
		return a.Value(i)
	case *array.Float32:
		return float64(a.Value(i))
	case *array.Float64:
		return a.Value(i)
	case *array.Boolean:
		return a.Value(i)
	case *array.String:
		return strings.Clone(a.Value(i))
	}
	panic(a.DataType().String())
}

// near reports whether two values are the same, or floats that differ by rounding only.
func near(x, y any, scale float64) bool {
	switch y := y.(type) {
	case quantiled:
		return y.near(x)
	case approximate: // of 2,048 parts: 2.3 % as a rule
		n, ok := x.(int64)
		return ok && math.Abs(float64(n-int64(y))) <= 0.15*float64(y)+1
	}
	a, isFloat := x.(float64)
	b, both := y.(float64)
	if !isFloat || !both {
		return x == y
	}
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-9*(1+scale+math.Abs(a))
}

// checkRandom asks one question and compares the answer with what plain Go makes of the same rows.
func checkRandom(t *testing.T, c *Client, table *cluster.Table, rows []randomRow, q query.Query) (asked bool) {
	t.Helper()
	p, err := query.Make(q, table.Columns)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	want, keys, err := evaluate(table.Columns, rows, q)
	found, got := invoke.Query(patient(t), c.Runtime(), table, q)
	switch {
	case err != nil && got != nil:
		return false // which of the two overflows is found first is open
	case err != nil && len(p.Pushed()) > 0: // it was in a chunk that was not read
		return false
	case err != nil || got != nil:
		t.Fatalf("%+v: %v, want %v", q, got, err)
	}
	var out [][]any
	for i := range found.Rows {
		row := make([]any, len(found.Arrays))
		for k, a := range found.Arrays {
			if row[k] = cellOf(a, i); row[k] == 0.0 {
				row[k] = 0.0 // the sign of a zero is not kept
			}
		}
		out = append(out, row)
	}
	if len(out) != len(want) {
		t.Fatalf("%+v: %d rows, want %d", q, len(out), len(want))
	}
	if keys > 0 || len(q.Agg) == 0 {
		key := func(a, b []any) int { return cmp.Compare(fmt.Sprintf("%#v", a[:keys]), fmt.Sprintf("%#v", b[:keys])) }
		slices.SortStableFunc(out, key)
		slices.SortStableFunc(want, key)
	}
	for i := range out {
		for k := range out[i] {
			if w := want[i][k]; !near(out[i][k], unscaled(w), scaleOf(w)) {
				t.Fatalf("%+v: row %d, column %d is %v (%T), want %v (%T)\n%v\n%v", q, i, k, out[i][k], out[i][k], w, w, out[i], want[i])
			}
		}
	}
	return true
}

// scaled is a float that was added up of others, which may be greater.
type scaled struct{ v, scale float64 }

func unscaled(x any) any {
	if s, ok := x.(scaled); ok {
		return s.v
	}
	return x
}

func scaleOf(x any) float64 {
	if s, ok := x.(scaled); ok && !math.IsNaN(s.scale) && !math.IsInf(s.scale, 0) {
		return s.scale
	}
	return 0
}

// Random questions to columns of many small chunks on two nodes, and of few that are longer than what is computed at once, have the answers that plain Go gives: missing values, NaN, overflow,
// unsigned numbers beyond 2⁶³, bounds that keep chunks from being read, groups over chunks and dictionaries of several parts.
func TestRandomQueries(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	seeds, questions := uint64(2), 150
	if testing.Short() {
		seeds, questions = 1, 50
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 15))
		rows := randomRows(r, 5000)
		table := loadRandom(t, b, c, fmt.Sprint("random", seed), rows, []int{500, 4500}[seed])
		asked := 0
		for range questions {
			if checkRandom(t, c, table, rows, maker{r}.query()) {
				asked++
			}
		}
		if asked < questions/2 {
			t.Errorf("seed %d: only %d questions had an answer", seed, asked)
		}
	}
}

// Many groups with many states: nodes send each other what is long in several messages.
func TestQueryManyGroups(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	n := 30000
	if testing.Short() {
		n = 5000
	}
	rows := randomRows(rand.New(rand.NewPCG(7, 15)), n)
	table := loadRandom(t, b, c, "many", rows, 500)
	q := query.Query{Group: []string{"x0=c % 14000"}, Where: "c != 5"}
	for i := range 64 {
		q.Agg = append(q.Agg, fmt.Sprintf("y%d=%s", i, []string{"sum(d)", "max(s)", "min(f)", "stddev(a)"}[i%4]))
	}
	if !checkRandom(t, c, table, rows, q) {
		t.Error("it has no answer")
	}
}

// Where groups are many, each worker reads all rows of its node for the groups that are its own: all states, keys of all types, missing ones and long ones, conditions and orders
// give what one worker gives, and what was read is told once.
func TestQueryManyGroupsWorkers(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	n := 34000
	if testing.Short() { // the race detector makes each question long
		n = 10000
	}
	rows := randomRows(rand.New(rand.NewPCG(9, 15)), n)
	table := loadRandom(t, b, c, "split", rows, 500)
	agg := []string{"y0=count(a)", "y1=sum(d)", "y2=min(t)", "y3=distinct(s)", "y4=quantile(d, 0.5)", "y5=stddev(a)", "y6=max(f)", "y7=approx_distinct(k)"}
	for i, q := range []query.Query{
		{Group: []string{"x0=c"}, Agg: agg},
		{Group: []string{"x0=c % 30011", "x1=s"}, Agg: agg, Where: "c % 3 != 1"},
		{Group: []string{"x0=t"}, Agg: agg[:3]},
		{Group: []string{"x0=c / 2", "x1=b"}, Agg: agg[1:5]},
		{Group: []string{"x0=f", "x1=c % 29009", "x2=g"}, Agg: agg[:6]}, // NaN, -0, and floats that are missing
		{Group: []string{"x0=u", "x1=c / 2"}, Agg: agg[6:], Where: "isnull(f) || f != 1.5"},
		{Group: []string{"x0=c", "x1=k"}, Agg: agg[:2], Where: "a > 127"}, // of no row
		{Group: []string{"x0=c % 29001"}, Agg: []string{"n=count()"}, Order: []string{"-n", "x0"}, Limit: 6100},
		{Group: []string{"x0=s"}, Agg: agg}, // few: rows are shared
	} {
		if testing.Short() && i%4 != 0 {
			continue
		}
		one, err := invoke.Query(patient(t), c.Runtime(), table, q)
		if err != nil {
			t.Fatal(err)
		}
		q.Workers = 2 + i%2
		found, err := invoke.Query(patient(t), c.Runtime(), table, q)
		if err != nil {
			t.Fatal(err)
		}
		got, want := found.Explanation.Stats, one.Explanation.Stats
		if got.RowsRead != want.RowsRead || got.ChunksRead != want.ChunksRead || got.ChunksSkipped != want.ChunksSkipped || got.BytesRead != want.BytesRead {
			t.Errorf("%+v: read %+v, one worker %+v", q, got, want)
		}
		switch {
		case q.Limit == 0 && !checkRandom(t, c, table, rows, q):
			t.Errorf("%+v has no answer", q)
		case q.Limit > 0 && (found.Rows != one.Rows || !array.Equal(found.Arrays[0], one.Arrays[0])):
			t.Errorf("%+v: %d rows other than one worker's %d", q, found.Rows, one.Rows)
		}
	}
}

// Groups of three nodes, with all that has records of its own on the way: distinct values, sketches, text. The first of them by an order are those that
// the whole answer begins with.
func TestQueryExchange(t *testing.T) {
	b := newBench(t, "tcp", "n1", "n2", "n3")
	c := b.connect(t, tokenOwner)
	rows := randomRows(rand.New(rand.NewPCG(8, 15)), 3000)
	table := loadRandom(t, b, c, "three", rows, 500)
	q := query.Query{Group: []string{"x0=c % 500", "x1=s"}, Agg: []string{"y0=count(a)", "y1=distinct(s)", "y2=distinct(f)", "y3=quantile(d, 0.5)", "y4=approx_distinct(t)", "y5=min(t)", "y6=max(s)"}}
	if !checkRandom(t, c, table, rows, q) {
		t.Error("it has no answer")
	}
	if !checkRandom(t, c, table, rows, query.Query{Agg: []string{"y0=distinct(t)", "y1=quantile(f, 0.25)", "y2=approx_distinct(c)", "y3=distinct(k)"}}) {
		t.Error("it has no answer")
	}
	q = query.Query{Group: []string{"x0=c % 500"}, Agg: []string{"y0=distinct(s)", "y1=sum(d)"}}
	want, _, err := evaluate(table.Columns, rows, q)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(want, func(a, b []any) int {
		return cmp.Or(cmp.Compare(b[1].(int64), a[1].(int64)), cmp.Compare(a[0].(int64), b[0].(int64)))
	})
	q.Order, q.Limit = []string{"-y0", "x0"}, 7
	found, err := invoke.Query(patient(t), c.Runtime(), table, q)
	if err != nil || found.Rows != 7 {
		t.Fatal(found, err)
	}
	for i := range found.Rows {
		for k, a := range found.Arrays {
			if got := cellOf(a, i); got != want[i][k] {
				t.Errorf("row %d, column %d is %v, want %v", i, k, got, want[i][k])
			}
		}
	}
	if moved := found.Explanation.BytesMoved; moved > 3*(7*40+40) {
		t.Errorf("%d bytes came to the client", moved)
	}
}

// The first groups by an order are those that the whole answer begins with, whatever they are ordered by first: numbers with and without sign, sums, both
// ways, with missing ones and without.
func TestQueryFirstGroups(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	c := b.connect(t, tokenOwner)
	table := loadRandom(t, b, c, "first", randomRows(rand.New(rand.NewPCG(11, 15)), 12000), 500)
	for i, q := range []query.Query{
		{Group: []string{"x0=c % 4001"}, Agg: []string{"y0=count(a)", "y1=sum(a)", "y2=sum(d)", "y3=min(b)", "y4=max(u)", "y5=max(f)", "y6=mean(a)"}},
		{Group: []string{"x0=b"}, Agg: []string{"y0=count()"}},
		{Group: []string{"x0=b"}, Agg: []string{"y0=count()"}, Where: "!isnull(b)"},
		{Group: []string{"x0=u"}, Agg: []string{"y0=max(b)"}, Where: "!isnull(u)"},
		{Group: []string{"x0=t"}, Agg: []string{"y0=min(a)"}},
	} {
		by := []string{"x0"}
		for k := range q.Agg {
			by = append(by, fmt.Sprint("y", k))
		}
		for k, name := range by {
			for _, down := range []string{"", "-"} {
				q.Order, q.Limit, q.Workers = []string{down + name, "x0"}[:1+min(k, 1)], 0, 1
				want, err := invoke.Query(patient(t), c.Runtime(), table, q)
				if err != nil {
					t.Fatal(err)
				}
				q.Limit, q.Workers = pick(rand.New(rand.NewPCG(uint64(i), uint64(k))), uint64(1), 7, 300), 1+i%2
				got, err := invoke.Query(patient(t), c.Runtime(), table, q)
				if err != nil || got.Rows != int(q.Limit) {
					t.Fatalf("%+v: %v, %v", q, got, err)
				}
				for row := range got.Rows {
					for col := range got.Arrays {
						if g, w := cellOf(got.Arrays[col], row), cellOf(want.Arrays[col], row); !near(g, w, 0) {
							t.Fatalf("%+v: row %d, column %d is %v, want %v", q, row, col, g, w)
						}
					}
				}
			}
		}
	}
}

var errOverflow = errors.New("an integer overflows")

// parsed is the expression of NAME=EXPRESSION.
func parsed(columns []columnOf, item string) *expr.Node {
	n, err := expr.Parse(item[strings.Index(item, "=")+1:], columns)
	if err != nil {
		panic(err)
	}
	return n
}

// function splits NAME=FUNCTION(ARGUMENT); a quantile's function has its part.
func function(item string) (fn, arg string) {
	fn, arg, _ = strings.Cut(item[strings.Index(item, "=")+1:], "(")
	arg = strings.TrimSuffix(arg, ")")
	if fn == "quantile" {
		i := strings.LastIndex(arg, ", ")
		fn, arg = fn+arg[i:], arg[:i]
	}
	return fn, arg
}

// evaluate answers a query in plain Go; the first keys columns of the answer say which row it is.
func evaluate(columns []columnOf, rows []randomRow, q query.Query) (out [][]any, keys int, err error) {
	parse := func(item string) *expr.Node { return parsed(columns, item) }
	var where *expr.Node
	if q.Where != "" {
		where = parse("=" + q.Where)
	}
	items := append(slices.Clone(q.Select), q.Group...)
	var trees []*expr.Node
	for _, item := range items {
		trees = append(trees, parse(item))
	}
	var fns []string
	for _, item := range q.Agg {
		fn, arg := function(item)
		fns = append(fns, fn)
		trees = append(trees, parse("="+cmp.Or(arg, "1"))) // count() counts all rows
	}
	keys = len(items)
	type group struct {
		key    []any
		values [][]any
	}
	groups := map[string]*group{}
	if keys == 0 {
		groups[""] = &group{values: make([][]any, len(fns))}
	}
	for i := range rows {
		e := &evaluator{row: &rows[i]}
		if where != nil && e.eval(where) != true && e.err == nil {
			continue
		}
		row := make([]any, len(trees))
		for k, n := range trees {
			if row[k] = e.eval(n); row[k] == 0.0 {
				row[k] = 0.0
			}
		}
		if e.err != nil {
			return nil, 0, e.err
		}
		if len(fns) == 0 && len(q.Group) == 0 {
			out = append(out, row)
			continue
		}
		key := fmt.Sprintf("%#v", row[:keys])
		if keys == 0 {
			key = ""
		}
		if groups[key] == nil {
			groups[key] = &group{row[:keys], make([][]any, len(fns))}
		}
		for k := range fns {
			if v := row[keys+k]; v != nil {
				groups[key].values[k] = append(groups[key].values[k], v)
			}
		}
	}
	for _, g := range groups {
		row := slices.Clone(g.key)
		for k, fn := range fns {
			v, err := aggregate(fn, g.values[k])
			if err != nil {
				return nil, 0, err
			}
			row = append(row, v)
		}
		out = append(out, row)
	}
	return out, keys, nil
}

// approximate is a number that an answer may miss by some percent.
type approximate int

// quantiled are values in order, and the part of them that a quantile is not less than. Of up to 512 values it is exact.
type quantiled struct {
	values []any
	part   float64
}

func (q quantiled) near(x any) bool {
	n := float64(len(q.values))
	at := max(math.Ceil(q.part*n), 1) - 1
	slack := 0.0
	if n > 512 {
		slack = 0.02 * n
	}
	least, most := q.values[int(max(at-slack, 0))], q.values[int(min(at+slack, n-1))]
	return order(x, least) >= 0 && order(x, most) <= 0
}

// aggregate is a function of values that are there.
func aggregate(fn string, values []any) (any, error) {
	if fn == "count" {
		return int64(len(values)), nil
	}
	if strings.HasSuffix(fn, "distinct") {
		set := map[any]bool{}
		for _, v := range values {
			if f, ok := v.(float64); ok && math.IsNaN(f) {
				v = "NaN"
			}
			set[v] = true
		}
		if fn == "approx_distinct" {
			return approximate(len(set)), nil
		}
		return int64(len(set)), nil
	}
	if part, ok := strings.CutPrefix(fn, "quantile, "); ok && len(values) > 0 {
		p, err := strconv.ParseFloat(part, 64)
		slices.SortFunc(values, order)
		return quantiled{values, p}, err
	}
	if len(values) == 0 || fn == "stddev" && len(values) < 2 {
		return nil, nil
	}
	if fn == "min" || fn == "max" {
		return slices.MaxFunc(values, func(a, b any) int {
			if fn == "min" {
				return -order(a, b)
			}
			return order(a, b)
		}), nil
	}
	sum, whole, scale := 0.0, new(big.Int), 0.0
	for _, v := range values {
		f := floatOf(v)
		sum, scale = sum+f, scale+math.Abs(f)
		switch v := v.(type) {
		case int64:
			whole.Add(whole, big.NewInt(v))
		case uint64:
			whole.Add(whole, new(big.Int).SetUint64(v))
		}
	}
	n := float64(len(values))
	switch {
	case fn == "mean":
		return scaled{sum / n, scale / n}, nil
	case fn == "stddev":
		squares := 0.0
		for _, v := range values {
			squares += (floatOf(v) - sum/n) * (floatOf(v) - sum/n)
		}
		return scaled{math.Sqrt(squares / (n - 1)), 1e3 * scale / n}, nil
	}
	switch values[0].(type) {
	case int64:
		if !whole.IsInt64() {
			return nil, errOverflow
		}
		return whole.Int64(), nil
	case uint64:
		if !whole.IsUint64() {
			return nil, errOverflow
		}
		return whole.Uint64(), nil
	}
	return scaled{sum, scale}, nil
}
