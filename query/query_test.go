package query

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/wherry-fabric/wherry/column"
)

var columns = column.Schema{
	{Name: "level", Type: column.Type{ID: column.UTF8}, Nullable: true},
	{Name: "n", Type: column.Type{ID: column.I64}},
	{Name: "x", Type: column.Type{ID: column.F64}, Nullable: true},
}

// row is a row as an element sends it: nil is a missing value, text, 64 bits, or 128.
func row(values ...any) []byte {
	b := []byte{recordRow}
	for _, v := range values {
		if v == nil {
			b = append(b, 0)
			continue
		}
		b = append(b, 1)
		switch v := v.(type) {
		case string:
			b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
			b = append(b, v...)
		case uint64:
			b = binary.LittleEndian.AppendUint64(b, v)
		case [2]uint64:
			b = binary.LittleEndian.AppendUint64(b, v[0])
			b = binary.LittleEndian.AppendUint64(b, v[1])
		}
	}
	return b
}

func end() []byte {
	b := []byte{recordEnd}
	for _, v := range []uint64{10, 2, 1, 80} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// Rows of two elements are put in order, missing values last, and cut off; what elements did is added up.
func TestMerge(t *testing.T) {
	p, err := Make(Query{Group: []string{"level"}, Agg: []string{"count()", "sum(n)", "min(n)", "stddev(x)"}, Order: []string{"level"}, Limit: 3}, columns)
	if err != nil {
		t.Fatal(err)
	}
	minus := ^uint64(0)
	m := p.Merge()
	a := append(row("info", uint64(4), [2]uint64{minus, minus}, minus, math.Float64bits(1.5)), row(nil, uint64(1), [2]uint64{4, 0}, uint64(4), nil)...)
	b := append(row("warn", uint64(1), nil, nil, nil), row("a", uint64(9), [2]uint64{1 << 62, 0}, uint64(7), nil)...)
	for _, answer := range [][]byte{append(a, end()...), append(b, end()...)} {
		if err := m.Add(answer); err != nil {
			t.Fatal(err)
		}
	}
	out, rows, err := m.Finish()
	if err != nil || rows != 3 {
		t.Fatal(rows, err)
	}
	if s := out[0].(*array.String); s.Value(0) != "a" || s.Value(1) != "info" || s.Value(2) != "warn" {
		t.Errorf("levels %v", s)
	}
	if n := out[1].(*array.Int64); n.Value(0) != 9 || n.Value(1) != 4 {
		t.Errorf("counts %v", n)
	}
	if s := out[2].(*array.Int64); s.Value(0) != 1<<62 || s.Value(1) != -1 || !s.IsNull(2) {
		t.Errorf("sums %v", s)
	}
	if d := out[4].(*array.Float64); d.Value(1) != 1.5 || !d.IsNull(0) {
		t.Errorf("deviations %v", d)
	}
	if m.Stats != (Stats{RowsRead: 20, ChunksRead: 4, ChunksSkipped: 2, BytesRead: 160}) {
		t.Errorf("%+v", m.Stats)
	}
}

// Sums come as 128 bits; one that does not fit into its column is an error that says how much it is.
func TestSumOverflows(t *testing.T) {
	odd := append(column.Schema{{Name: "u", Type: column.Type{ID: column.U64}}, {Name: "d", Type: column.Type{ID: column.Decimal128, Precision: 38, Scale: 2}}}, columns...)
	for agg, c := range map[string]struct {
		low, high uint64
		want      string
	}{
		"sum(n)":      {1 << 63, 0, "sum(n) is 9223372036854775808, which does not fit into i64"},
		"sum(i64(n))": {1<<63 - 1, ^uint64(0), "sum(i64(n)) is -9223372036854775809, "},
		"sum(u)":      {5, 1, "sum(u) is 18446744073709551621, "},
		"sum(d)":      {0, 1<<63 - 1, "which does not fit into decimal128(38, 2)"},
	} {
		p, err := Make(Query{Agg: []string{agg}}, odd)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Merge().Add(append(row([2]uint64{c.low, c.high}), end()...)); !errors.Is(err, ErrQuery) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func TestBadAnswers(t *testing.T) {
	p, err := Make(Query{Group: []string{"level"}, Agg: []string{"count()", "sum(n)"}}, columns)
	if err != nil {
		t.Fatal(err)
	}
	good := append(row("info", uint64(3), [2]uint64{3, 0}), end()...)
	for n := range good {
		if err := p.Merge().Add(good[:n]); !errors.Is(err, ErrAnswer) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	for _, b := range [][]byte{{9}, append(end(), 1), row("\xff", uint64(0), nil)} {
		if err := p.Merge().Add(b); !errors.Is(err, ErrAnswer) {
			t.Errorf("%v: %v", b, err)
		}
	}
}

func TestBadQueries(t *testing.T) {
	for want, q := range map[string]Query{
		"--select names columns of rows": {Select: []string{"n"}, Group: []string{"n"}},
		"is no aggregate":                {Agg: []string{"n"}},
		`"n = cuont()": at 5: there is no aggregate "cuont"; did you mean "count"`: {Agg: []string{"m=count()", " n = cuont() "}},
		`did you mean "count"?`:              {Agg: []string{"coun()"}},
		"takes a column and a number from 0": {Agg: []string{"quantile(n, 2)"}},
		"quantile(x) takes a column and":     {Agg: []string{"quantile(x)"}},
		"mean computes with numbers":         {Agg: []string{"mean(level)"}},
		`--order: nothing that comes out`:    {Select: []string{"n"}, Order: []string{"-x"}},
		"its expressions take more than 250 steps together, of columns, numbers and operators: ask for less at once": {Where: strings.Repeat("n*2 == 1 || ", 80) + "n == 1"},
		`there is no column "m"; did you mean`: {Select: []string{"m"}},
	} {
		p, err := Make(q, columns)
		if err == nil {
			_, err = p.Program()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", q, err, want)
		}
	}
}

// A query of more columns than the function has room for says how many it may name, and with what.
func TestTooManyColumns(t *testing.T) {
	wide := make(column.Schema, 300)
	for i := range wide {
		wide[i] = column.Column{Name: fmt.Sprint("c", i), Type: column.Type{ID: column.I64}}
	}
	names, counts := wide.Names(), make([]string, 65)
	for i := range counts {
		counts[i] = fmt.Sprintf("n%d=count()", i)
	}
	for want, q := range map[string]Query{
		"rows of 300 columns are asked for, at most 64 come out of a query: name those that are wanted with --select":               {Where: "c299 > 1290", Limit: 1},
		"--select names 65 columns, at most 64 come out of a query: name fewer; mem get gives whole rows, of any number of columns": {Select: names[:65]},
		"--group names 65 columns, at most 64 are allowed: name fewer":                                                              {Group: names[:65]},
		"--agg names 65 aggregates, at most 64 are allowed: ask for the others in another query":                                    {Agg: counts},
	} {
		p, err := Make(q, wide)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = p.Program(); !errors.Is(err, ErrQuery) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	p, err := Make(Query{Where: "c299 > 1290", Select: names[:64]}, wide)
	if err == nil {
		_, err = p.Program()
	}
	if err != nil {
		t.Error(err)
	}
}

// An aggregate of a type that it does not take says which ones do; and the expressions that can overflow are those that compute with integers.
func TestNamed(t *testing.T) {
	timed := append(column.Schema{{Name: "tsus", Type: column.Type{ID: column.Timestamp, Unit: column.Microsecond}}, {Name: "u", Type: column.Type{ID: column.U64}}}, columns...)
	for agg, want := range map[string]string{
		"sum(tsus)":          "sum computes with numbers, decimals and durations; tsus is timestamp[us], of which there are count, min, max, mean, quantile, distinct and approx_distinct",
		"stddev(tsus)":       "stddev computes with numbers; tsus is timestamp[us], of which there are count, min, max, mean, quantile, distinct and approx_distinct",
		"sum(level)":         "sum computes with numbers, decimals and durations; level is utf8, of which there are count, min, max, distinct and approx_distinct",
		"mean(level)":        "mean computes with numbers, decimals and times; level is utf8, of which",
		"quantile(level, 1)": "quantile computes with numbers and times; level is utf8, of which",
	} {
		if _, err := Make(Query{Agg: []string{agg}}, timed); !errors.Is(err, ErrQuery) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, c := range []struct {
		q    Query
		want string
	}{
		{Query{Where: "x > 1.5 && n > 1", Select: []string{"n", "y=n+1"}}, "--select y=n+1"},
		{Query{Where: "n * 2 > 1", Group: []string{"i64(x)"}, Agg: []string{"a=sum(-n)", "b=min(u)", "count()"}}, "--where n * 2 > 1, --group i64(x), --agg a=sum(-n)"},
		{Query{Where: "x * 2.0 > 1.0"}, ""},
	} {
		p, err := Make(c.q, timed)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(p.Overflowing(), ", "); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A comparison with a literal is pushed, whichever side it stands on; what is below || is not.
func TestPushed(t *testing.T) {
	p, err := Make(Query{Where: `n >= 5 && 7 > x && (n == 1 || x < 2) && level == "a"`}, columns)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(p.Pushed(), "; "); got != "n ge 5; x lt 7" {
		t.Error(got)
	}
}

// What is approximate is called so, and nothing else.
func TestApproximate(t *testing.T) {
	p, err := Make(Query{Agg: []string{"count()", "p=quantile(n, 0.5)", "approx_distinct(level)", "distinct(level)", "mean(x)"}}, columns)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, step := range p.Steps() {
		if strings.Contains(step, "approximate") {
			got = append(got, step)
		}
	}
	if len(got) != 2 || !strings.Contains(got[0], "quantile(n, 0.5) is approximate") || !strings.Contains(got[1], "approx_distinct(level) is approximate") {
		t.Errorf("%q", got)
	}
}

// Literals that are beside a uuid or an ip stay apart: what is computed of one is not taken for what is computed of the other.
func TestExtensionLiterals(t *testing.T) {
	s := column.Schema{{Name: "a", Type: column.Extended(column.IP)}, {Name: "b", Type: column.Extended(column.IP)}}
	p, err := Make(Query{Agg: []string{`count(a == "::1")`, `count(a == "::2")`, `count(a <= b)`}}, s)
	if err != nil {
		t.Fatal(err)
	}
	if one, two := p.aggs[0].tree.String(), p.aggs[1].tree.String(); one == two {
		t.Errorf("both are %s", one)
	}
	for where, want := range map[string]string{`a == 1`: "beside it is bytes", `a + b > a`: "does not compute", `a == "::g"`: "is no ip", `hasprefix(a, "x")`: "takes text"} {
		if _, err := Make(Query{Where: where}, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", where, err, want)
		}
	}
}

// A bare column keeps its name, however it is written.
func TestNames(t *testing.T) {
	odd := append(column.Schema{{Name: "user id", Type: column.Type{ID: column.I64}}}, columns...)
	p, err := Make(Query{Group: []string{`col("user id")`, "(n)", "n + 1", "m=n"}, Agg: []string{"count()"}, Order: []string{"user id"}}, odd)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(p.Columns().Names(), ";"); got != "user id;n;n + 1;m;count()" {
		t.Error(got)
	}
}

// Times and lengths of time are integers of their unit, and so is what is computed with them.
func TestTimesAreIntegers(t *testing.T) {
	of := func(text string) column.Type {
		ty, err := column.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return ty
	}
	cols := column.Schema{{Name: "when", Type: of("timestamp[us, UTC]")}, {Name: "at", Type: of("time64[us]")}, {Name: "took", Type: of("duration[us]")}}
	p, err := Make(Query{Select: []string{"a=when + 1", "b=at + 1", "c=took + took"}, Where: "took > 1500000 && at < 43200000000"}, cols)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Columns() {
		if c.Type.ID != column.I64 {
			t.Errorf("%s is %v", c.Name, c.Type)
		}
	}
	if _, err := Make(Query{Where: `took > "1.5s"`}, cols); err == nil {
		t.Error("a duration has a literal: docs/columns.md says that it has none")
	}
}

// --order names what comes out as --select does: a name that holds any character within col(…), and with a - before it.
func TestOrderNames(t *testing.T) {
	odd := append(column.Schema{{Name: "user id", Type: column.Type{ID: column.I64}}, {Name: "a,b", Type: column.Type{ID: column.I64}},
		{Name: "-n", Type: column.Type{ID: column.I64}}}, columns...)
	for item, want := range map[string]ordering{
		`col("user id")`: {0, false}, `-col("user id")`: {0, true}, "-col( `a,b` )": {1, true}, `col("a,b")`: {1, false},
		"user id": {0, false}, "-user id": {0, true}, "-n": {2, false}, `-col("-n")`: {2, true}, `--n`: {2, true},
	} {
		p, err := Make(Query{Order: []string{item}}, odd)
		if err != nil {
			t.Errorf("%s: %v", item, err)
		} else if len(p.order) != 1 || p.order[0] != want {
			t.Errorf("%s: %v, want %v", item, p.order, want)
		}
	}
	for _, item := range []string{`col("nobody")`, `col(user id)`, `-col("user id"`} {
		if _, err := Make(Query{Order: []string{item}}, odd); err == nil || !strings.Contains(err.Error(), "--order: nothing that comes out is called") {
			t.Errorf("%s: %v", item, err)
		}
	}
}

// FuzzAdd: whatever an element answers, it is refused or read.
func FuzzAdd(f *testing.F) {
	f.Add(append(row("info", uint64(3), "x", [2]uint64{1, 0}), end()...))
	p, err := Make(Query{Group: []string{"level"}, Agg: []string{"count()", "max(level)", "sum(n)"}, Order: []string{"-sum(n)"}}, columns)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := p.Merge()
		if m.Add(b) == nil {
			if _, _, err := m.Finish(); err != nil && !errors.Is(err, ErrAnswer) {
				t.Error(err)
			}
		}
	})
}
