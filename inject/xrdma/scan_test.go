package xrdma

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/schema"
	"pgregory.net/rapid"
)

// dataset is a table in plain Go; cells are text, as in a CSV file.
type dataset struct {
	schema *schema.Schema
	rows   [][]string
}

// all column types in an order that leaves gaps between them.
func allTypes() *schema.Schema {
	var s schema.Schema
	for _, t := range []schema.Type{
		schema.Bool, schema.I16, schema.I8, schema.U64, schema.U8, schema.Str, schema.I32, schema.F32,
		schema.U16, schema.F64, schema.U32, schema.BytesType(5), schema.I64,
	} {
		s.Fields = append(s.Fields, schema.Field{Name: "c_" + string(t), Type: t})
	}
	return &s
}

// few values, so that comparisons come out equal now and then.
func drawCell(t *rapid.T, typ schema.Type) string {
	switch typ {
	case schema.Bool:
		return rapid.SampledFrom([]string{"true", "false"}).Draw(t, "bool")
	case schema.Str:
		return rapid.OneOf(
			rapid.StringOfN(rapid.SampledFrom([]rune("ab")), 0, 6, -1),
			rapid.SampledFrom([]string{"", "go", "golang", "gopher", "lang-go", "ärger"})).Draw(t, "str")
	case schema.F32, schema.F64:
		bits := 64
		if typ == schema.F32 {
			bits = 32
		}
		f := rapid.OneOf(rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 0.1, -0.1, 1, -1, 1e30, math.Inf(1), math.Inf(-1), math.NaN()}),
			rapid.Float64Range(-3, 3)).Draw(t, "float")
		return strconv.FormatFloat(f, 'g', -1, bits)
	case "bytes5":
		return hex.EncodeToString(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 255}), 5, 5).Draw(t, "bytes"))
	}
	size := uint(8 * typ.Size())
	if typ.IsSigned() {
		v := rapid.OneOf(rapid.Int64Range(-2, 2), rapid.SampledFrom([]int64{math.MinInt64 >> (64 - size), math.MaxInt64 >> (64 - size)})).Draw(t, "int")
		return fmt.Sprint(v)
	}
	v := rapid.OneOf(rapid.Uint64Range(0, 3), rapid.SampledFrom([]uint64{math.MaxUint64 >> (64 - size), math.MaxUint64>>(64-size) - 1})).Draw(t, "uint")
	return fmt.Sprint(v)
}

func drawDataset(t *rapid.T) *dataset {
	d := &dataset{schema: allTypes()}
	for range rapid.IntRange(0, 40).Draw(t, "rows") {
		row := make([]string, len(d.schema.Fields))
		for i, f := range d.schema.Fields {
			row[i] = drawCell(t, f.Type)
		}
		d.rows = append(d.rows, row)
	}
	return d
}

// windows cuts the dataset into rows and text of each element.
func (d *dataset) windows(t tb, shards sharding) [][][]byte {
	layout, err := d.schema.Layout()
	if err != nil {
		t.Fatal(err)
	}
	out := make([][][]byte, len(shards.Shards))
	for e := range out {
		text := []byte("~")
		var rows []byte
		for local := range shards.Shards[e].Rows {
			at, _ := shards.Row(uint32(e), local)
			cells := d.rows[at]
			row := make([]byte, layout.Size)
			for i, f := range d.schema.Fields {
				cell := row[layout.Offsets[i]:][:f.Type.Size()]
				if f.Type == schema.Str {
					copy(cell, u32s(uint32(len(text)), uint32(len(cells[i]))))
					text = append(text, cells[i]...)
				} else if err := f.Type.PutText(cell, []byte(cells[i])); err != nil {
					t.Fatal(err)
				}
			}
			rows = append(rows, row...)
		}
		out[e] = [][]byte{rows, text}
	}
	return out
}

// compare orders two cells; ok is false if one is NaN.
func compare(typ schema.Type, a, b string) (order int, ok bool) {
	switch {
	case typ == schema.Str:
		return strings.Compare(a, b), true
	case typ == schema.Bool:
		return strings.Compare(a, b), true // false < true
	case typ.IsFloat():
		bits := int(8 * typ.Size())
		x, _ := strconv.ParseFloat(a, bits)
		y, _ := strconv.ParseFloat(b, bits)
		return cmp.Compare(x, y), x == x && y == y // not a number: in no order
	case typ.IsSigned():
		x, _ := strconv.ParseInt(a, 10, 64)
		y, _ := strconv.ParseInt(b, 10, 64)
		return cmp.Compare(x, y), true
	case typ.IsInteger():
		x, _ := strconv.ParseUint(a, 10, 64)
		y, _ := strconv.ParseUint(b, 10, 64)
		return cmp.Compare(x, y), true
	}
	x, _ := hex.DecodeString(a)
	y, _ := hex.DecodeString(b)
	return bytes.Compare(x, y), true
}

func matches(typ schema.Type, op, cell, value string) bool {
	order, ok := compare(typ, cell, value)
	switch op {
	case "any", "":
		return true
	case "eq", "==", "=":
		return ok && order == 0
	case "ne", "!=":
		return !ok || order != 0
	case "lt", "<":
		return ok && order < 0
	case "le", "<=":
		return ok && order <= 0
	case "gt", ">":
		return ok && order > 0
	case "ge", ">=":
		return ok && order >= 0
	case "prefix", "^":
		return strings.HasPrefix(cell, value)
	case "contains", "~":
		return strings.Contains(cell, value)
	}
	panic(op)
}

// drawCondition draws a column, an operation that it has, and a value.
func drawCondition(t *rapid.T, s *schema.Schema) (column int, op, value string) {
	column = rapid.IntRange(0, len(s.Fields)-1).Draw(t, "column")
	typ := s.Fields[column].Type
	ops := []string{"any", "eq", "ne", "lt", "le", "gt", "ge", "=", "==", "!=", "<", "<=", ">", ">="}
	if typ == schema.Str {
		ops = append(ops, "prefix", "contains", "prefix", "contains", "^", "~")
	}
	return column, rapid.SampledFrom(ops).Draw(t, "op"), drawCell(t, typ)
}

// condition are the arguments of a function that has a column of its own beside the condition's.
func (d *dataset) condition(column int, op, value string) map[string]string {
	return map[string]string{"where": d.schema.Fields[column].Name, "op": op, "value": value}
}

func (d *dataset) args(column int, op, value string) map[string]string {
	return map[string]string{"column": d.schema.Fields[column].Name, "op": op, "value": value}
}

func TestCount(t *testing.T) {
	e := newEngine(t)
	img := ready("count")
	rapid.Check(t, func(t *rapid.T) {
		d := drawDataset(t)
		shards, _ := drawShards(t, uint64(len(d.rows)))
		column, op, value := drawCondition(t, d.schema)
		c := e.cluster(t, img, shards, d.windows(t, shards), nil)
		defer c.close()
		c.part = rapid.SampledFrom([]uint64{0, 512, 2048}).Draw(t, "part")
		values := d.args(column, op, value)
		if rapid.Bool().Draw(t, "derive") {
			values["row_bytes"] = "0"
		}
		parts, err := c.invoke(args(t, img, d.schema, values), c.every()...)
		if err != nil {
			t.Fatal(err, c.logs)
		}
		want := 0
		for _, row := range d.rows {
			if matches(d.schema.Fields[column].Type, op, row[column], value) {
				want++
			}
		}
		got := mergedRows(t, img, parts)
		if got[0][0] != fmt.Sprint(want) || got[0][1] != fmt.Sprint(len(d.rows)) {
			t.Fatalf("%s %s %q matches %v, want %d of %d", values["column"], op, value, got, want, len(d.rows))
		}
	})
}

// one makes a dataset with one column and one row on one element.
func one(typ schema.Type, cell string) *dataset {
	return &dataset{
		schema: &schema.Schema{Fields: []schema.Field{{Name: "x", Type: typ}}},
		rows:   [][]string{{cell}},
	}
}

// Decimal text must become the very double that Go makes of it.
func TestCountFloats(t *testing.T) {
	e := newEngine(t)
	img := ready("count")
	check := func(t tb, text string) {
		t.Helper()
		f, err := strconv.ParseFloat(text, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			t.Fatal(err)
		}
		d := one(schema.F64, strconv.FormatFloat(f, 'g', -1, 64))
		c := e.cluster(t, img, blocks(1, 1), d.windows(t, blocks(1, 1)), nil)
		defer c.close()
		parts, err := c.invoke(args(t, img, d.schema, d.args(0, "eq", text)), 0)
		if err != nil {
			t.Fatal(err, c.logs)
		}
		if got := mergedRows(t, img, parts); got[0][0] != "1" {
			t.Fatalf("%s is not equal to %v", text, f)
		}
	}
	for _, text := range []string{
		"0", "-0", "1", "0.1", "1e23", "9007199254740993", "9007199254740992.999999999999999999999", "1.7976931348623157e308",
		"1.7976931348623159e308", "1e400", "-1e400", "4.9406564584124654e-324", "2.4703282292062327e-324", "2.4703282292062328e-324",
		"2.2250738585072011e-308", "2.2250738585072014e-308", "1e-400", "000.0001", ".5", "5.", "+3", "Infinity", "-INF",
		"0." + strings.Repeat("0", 300) + "1", "1" + strings.Repeat("0", 63), "8.5e-0000000007", "1e99999999999",
		"5708990770823839524233143877797980545530986496e0", "6929495644600919.5", "3.7455744005952583e15",
	} {
		check(t, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		f := math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
		if f != f {
			return
		}
		format := rapid.SampledFrom([]byte("ge")).Draw(t, "format")
		check(t, strconv.FormatFloat(f, format, rapid.SampledFrom([]int{-1, 3, 17, 25, 40}).Draw(t, "digits"), 64))
	})
}

func TestCountIntegersOutOfRange(t *testing.T) {
	e := newEngine(t)
	img := ready("count")
	for _, tc := range []struct {
		typ             schema.Type
		cell, op, value string
		want            string
	}{
		{schema.U8, "255", "lt", "300", "1"},
		{schema.U8, "255", "eq", "300", "0"},
		{schema.U8, "0", "gt", "-1", "1"},
		{schema.U8, "0", "le", "-1", "0"},
		{schema.U8, "0", "ne", "-1", "1"},
		{schema.I8, "-128", "ge", "-99999999999999999999", "1"},
		{schema.I8, "-128", "lt", "-99999999999999999999", "0"},
		{schema.I8, "127", "lt", "99999999999999999999", "1"},
		{schema.I64, "9223372036854775807", "lt", "9223372036854775808", "1"},
		{schema.I64, "9223372036854775807", "ge", "9223372036854775808", "0"},
		{schema.I64, "-9223372036854775808", "le", "-9223372036854775808", "1"},
		{schema.I64, "-9223372036854775808", "lt", "-9223372036854775808", "0"},
		{schema.I64, "-9223372036854775808", "ge", "-9223372036854775809", "1"},
		{schema.I64, "-9223372036854775808", "lt", "-0x8000000000000001", "0"},
		{schema.U64, "18446744073709551615", "eq", "0xffffffffffffffff", "1"},
		{schema.U64, "18446744073709551615", "gt", "18446744073709551615", "0"},
		{schema.U64, "18446744073709551615", "ge", "18446744073709551616", "0"},
		{schema.U64, "0", "ge", "-18446744073709551616", "1"},
		{schema.U64, "0", "lt", "0", "0"},
		{schema.U64, "0", "ge", "-0", "1"},
		{schema.Bool, "true", "eq", "1", "1"},
		{schema.BytesType(3), "0aff00", "prefix", "0AFF", "1"},
		{schema.BytesType(3), "0aff00", "contains", "ff", "1"},
		{schema.BytesType(3), "0aff00", "contains", "fe", "0"},
	} {
		d := one(tc.typ, tc.cell)
		c := e.cluster(t, img, blocks(1, 1), d.windows(t, blocks(1, 1)), nil)
		parts, err := c.invoke(args(t, img, d.schema, d.args(0, tc.op, tc.value)), 0)
		if err != nil {
			t.Errorf("%v: %v %v", tc, err, c.logs)
		} else if got := mergedRows(t, img, parts); got[0][0] != tc.want {
			t.Errorf("%v: matched %s", tc, got[0][0])
		}
		c.close()
	}
}

func TestScanErrors(t *testing.T) {
	e := newEngine(t)
	img := ready("count")
	for _, tc := range []struct {
		typ       schema.Type
		cell      string
		op, value string
		rowBytes  string
		log       string
	}{
		{schema.I32, "1", "like", "1", "", "op is none of"},
		{schema.I32, "1", "eq", "1.5", "", "not an integer"},
		{schema.I32, "1", "eq", "", "", "not an integer"},
		{schema.I32, "1", "eq", "0x", "", "not an integer"},
		{schema.I32, "1", "prefix", "1", "", "need a column of text"},
		{schema.F64, "1", "eq", "one", "", "not a number"},
		{schema.F64, "1", "eq", "1e", "", "not a number"},
		{schema.F64, "1", "eq", ".", "", "not a number"},
		{schema.F64, "1", "eq", strings.Repeat("1", 65), "", "at most 64 digits"},
		{schema.BytesType(2), "0011", "eq", "001", "", "odd number"},
		{schema.BytesType(2), "0011", "eq", "00zz", "", "not hex digits"},
		{schema.I32, "1", "eq", "1", "3", "outside the row"},
		{schema.I32, "1", "eq", "1", "5", "shorter than its rows"},
	} {
		d := one(tc.typ, tc.cell)
		c := e.cluster(t, img, blocks(1, 1), d.windows(t, blocks(1, 1)), nil)
		values := d.args(0, tc.op, tc.value)
		if tc.rowBytes != "" {
			values["row_bytes"] = tc.rowBytes
		}
		_, err := c.invoke(anyArgs(t, img, d.schema, values), 0)
		if !errors.Is(err, statusError(abi.ErrArgument)) || len(c.logs) != 1 || !strings.Contains(c.logs[0], tc.log) {
			t.Errorf("%v: %v, log %q", tc, err, c.logs)
		}
		c.close()
	}
	// Text that lies outside its window, in every function that reads it.
	d := one(schema.Str, "abc")
	d.schema.Fields = append(d.schema.Fields, schema.Field{Name: "n", Type: schema.U8})
	d.rows[0] = append(d.rows[0], "1")
	for _, name := range []string{"count", "countby", "sumif"} {
		windows := d.windows(t, blocks(1, 1))
		copy(windows[0][0], u32s(2, 3)) // one byte too many
		c := e.cluster(t, ready(name), blocks(1, 1), windows, nil)
		values := map[string]string{"column": "x", "op": "eq", "value": "abc"}
		switch name {
		case "countby":
			values = map[string]string{"column": "x"}
		case "sumif":
			values["column"], values["where"] = "n", "x"
		}
		_, err := c.invoke(args(t, ready(name), d.schema, values), 0)
		if !errors.Is(err, statusError(abi.ErrArgument)) || len(c.logs) != 1 || !strings.Contains(c.logs[0], "outside the window with text") {
			t.Errorf("%s of text outside the window: %v, log %q", name, err, c.logs)
		}
		c.close()
	}
}

// TestManifestsAllow: what the manifests allow is what the functions take, column by column and word by word.
func TestManifestsAllow(t *testing.T) {
	e := newEngine(t)
	check := func(name string, d *dataset, values map[string]string) {
		t.Helper()
		img := ready(name)
		_, refused := img.Manifest().Params.EncodeArgs(values, d.schema)
		c := e.cluster(t, img, blocks(1, 1), d.windows(t, blocks(1, 1)), nil)
		defer c.close()
		if _, err := c.invoke(anyArgs(t, img, d.schema, values), 0); (err == nil) != (refused == nil) {
			t.Errorf("%s of %v: the function says %v, its manifest %v", name, values, err, refused)
		}
	}
	all := &dataset{schema: allTypes(), rows: [][]string{{"true", "1", "1", "1", "1", "x", "1", "1", "1", "1", "1", "0011223344", "1"}}}
	for _, f := range all.schema.Fields {
		check("countby", all, map[string]string{"column": f.Name})
		check("sum", all, map[string]string{"column": f.Name})
		check("count", all, map[string]string{"column": f.Name})
		check("countbyif", all, map[string]string{"column": f.Name, "where": "c_u8", "op": "any"})
		check("sumif", all, map[string]string{"column": f.Name, "where": "c_u8", "op": "any"})
	}
	text := one(schema.Str, "abc")
	for _, op := range []string{"any", "eq", "ne", "lt", "le", "gt", "ge", "prefix", "contains", "", "=", "==", "!=", "<", "<=", ">", ">=", "^", "~",
		"bogus", "EQ", "e", "eqq", "!", "=!", "===", "<>", " eq"} {
		check("count", text, map[string]string{"column": "x", "op": op, "value": "b"})
	}
}

func TestCountby(t *testing.T) {
	e := newEngine(t)
	rapid.Check(t, func(t *rapid.T) {
		d := drawDataset(t)
		shards, _ := drawShards(t, uint64(len(d.rows)))
		column, op, value := drawCondition(t, d.schema)
		by := rapid.IntRange(0, len(d.schema.Fields)-1).Draw(t, "by")
		if d.schema.Fields[by].Type.IsFloat() {
			by = 0
		}
		name, values := "countby", map[string]string{}
		if rapid.Bool().Draw(t, "condition") {
			name, values = "countbyif", d.condition(column, op, value)
		} else {
			op = "any"
		}
		values["column"] = d.schema.Fields[by].Name
		img := ready(name)
		c := e.cluster(t, img, shards, d.windows(t, shards), nil)
		defer c.close()
		c.part = rapid.SampledFrom([]uint64{0, 512, 2048}).Draw(t, "part")
		parts, err := c.invoke(args(t, img, d.schema, values), c.every()...)
		if err != nil {
			t.Fatal(err, c.logs)
		}
		want := map[string]int{}
		for _, row := range d.rows {
			if matches(d.schema.Fields[column].Type, op, row[column], value) {
				key := row[by]
				if d.schema.Fields[by].Type == schema.Bool {
					key = map[string]string{"true": "1", "false": "0"}[key]
				}
				want[key]++
			}
		}
		got := mergedRows(t, img, parts)
		if len(got) != len(want) {
			t.Fatalf("%d groups, want %d", len(got), len(want))
		}
		for _, row := range got {
			if fmt.Sprint(want[row[0]]) != row[1] {
				t.Fatalf("%q is there %s times, want %d", row[0], row[1], want[row[0]])
			}
		}
	})
}

// Many values, in more than one part: the table holds 786,432, so that each comes once. Of more the same may come again.
func TestCountbyMany(t *testing.T) {
	e := newEngine(t)
	img := ready("countby")
	for _, tc := range []struct {
		typ          schema.Type
		rows, values int
		again        bool
	}{{schema.U32, 150_000, 70_000, false}, {schema.Str, 150_000, 70_000, false}, {schema.U32, 900_000, 800_000, true}} {
		d := &dataset{schema: &schema.Schema{Fields: []schema.Field{{Name: "x", Type: tc.typ}}}}
		for i := range tc.rows {
			d.rows = append(d.rows, []string{fmt.Sprint(i % tc.values)})
		}
		shards := blocks(uint64(tc.rows), 1)
		c := e.cluster(t, img, shards, d.windows(t, shards), nil)
		parts, err := c.invoke(args(t, img, d.schema, map[string]string{"column": "x"}), 0)
		if err != nil {
			t.Fatal(err)
		}
		sent := 0
		for _, p := range parts {
			sent += int(binary.LittleEndian.Uint32(p))
		}
		if sent > tc.values != tc.again {
			t.Errorf("%s: %d rows were sent for %d values", tc.typ, sent, tc.values)
		}
		got := mergedRows(t, img, parts)
		if len(got) != tc.values {
			t.Fatalf("%s: %d groups, want %d", tc.typ, len(got), tc.values)
		}
		for _, row := range got {
			i, _ := strconv.Atoi(row[0])
			want := tc.rows / tc.values
			if i < tc.rows%tc.values {
				want++
			}
			if row[1] != fmt.Sprint(want) {
				t.Fatalf("%s: %s is there %s times, want %d", tc.typ, row[0], row[1], want)
			}
		}
		c.close()
	}
	long := one(schema.Str, strings.Repeat("x", 16385))
	c := e.cluster(t, img, blocks(1, 1), long.windows(t, blocks(1, 1)), nil)
	defer c.close()
	if _, err := c.invoke(args(t, img, long.schema, map[string]string{"column": "x"}), 0); !errors.Is(err, statusError(abi.ErrLimit)) {
		t.Errorf("a key of 16385 bytes: %v, want ErrLimit", err)
	}
	if len(c.logs) == 0 || !strings.Contains(c.logs[len(c.logs)-1], "16384 bytes") {
		t.Errorf("a key of 16385 bytes: it logs %q, which names no limit", c.logs)
	}
}

func TestSum(t *testing.T) {
	e := newEngine(t)
	rapid.Check(t, func(t *rapid.T) {
		d := drawDataset(t)
		shards, _ := drawShards(t, uint64(len(d.rows)))
		column, op, value := drawCondition(t, d.schema)
		numeric := []int{0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12}
		of := rapid.SampledFrom(numeric).Draw(t, "of")
		name, values := "sum", map[string]string{}
		if rapid.Bool().Draw(t, "condition") {
			name, values = "sumif", d.condition(column, op, value)
		} else {
			op = "any"
		}
		typ := d.schema.Fields[of].Type
		values["column"] = d.schema.Fields[of].Name
		if rapid.Bool().Draw(t, "unsaid") {
			values["row_bytes"] = "0" // the function finds out
		}
		img := ready(name)
		c := e.cluster(t, img, shards, d.windows(t, shards), nil)
		defer c.close()
		c.part = rapid.SampledFrom([]uint64{0, 512, 2048}).Draw(t, "part")
		parts, err := c.invoke(args(t, img, d.schema, values), c.every()...)
		if err != nil {
			t.Fatal(err, c.logs)
		}
		n, sum, scale := 0, 0.0, 0.0
		least, most := math.Inf(1), math.Inf(-1)
		for _, row := range d.rows {
			if !matches(d.schema.Fields[column].Type, op, row[column], value) {
				continue
			}
			x := cellNumber(typ, row[of])
			n++
			sum += x
			scale += math.Abs(x)
			if x == x {
				least, most = min(least, x), max(most, x)
			}
		}
		got := mergedRows(t, img, parts)
		if len(got) != 1 {
			t.Fatalf("%d rows, want one: %v", len(got), got)
		}
		f := func(s string) float64 { v, _ := strconv.ParseFloat(s, 64); return v }
		near := f(got[0][1]) == sum || math.Abs(f(got[0][1])-sum) <= scale*1e-12 || (sum != sum && f(got[0][1]) != f(got[0][1]))
		if got[0][0] != fmt.Sprint(n) || !near || f(got[0][2]) != least || f(got[0][3]) != most {
			t.Fatalf("sum is %v, want %d %v %v %v", got, n, sum, least, most)
		}
	})
}

func cellNumber(typ schema.Type, cell string) float64 {
	switch {
	case typ == schema.Bool:
		return map[string]float64{"true": 1}[cell]
	case typ == schema.F32:
		v, _ := strconv.ParseFloat(cell, 32)
		return v
	case typ == schema.F64:
		v, _ := strconv.ParseFloat(cell, 64)
		return v
	case typ.IsSigned():
		v, _ := strconv.ParseInt(cell, 10, 64)
		return float64(v)
	}
	v, _ := strconv.ParseUint(cell, 10, 64)
	return float64(v)
}

func TestEcho(t *testing.T) {
	e := newEngine(t)
	c := e.cluster(t, Echo(), blocks(1, 1), [][][]byte{nil}, nil)
	defer c.close()
	for _, payload := range []string{"", "x", strings.Repeat("wherry", 3000)} {
		parts, err := c.invoke([]byte(payload), 0)
		if err != nil || !slices.EqualFunc(parts, [][]byte{[]byte(payload)}, bytes.Equal) {
			t.Errorf("%d bytes come back as %q, %v", len(payload), parts, err)
		}
	}
}
