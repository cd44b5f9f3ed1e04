package part

import (
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// A part's decimals have no more digits than their type says, and its times are those of a day, within lists and structs too.
func TestOutOfRange(t *testing.T) {
	decimals := func(precision int32, values ...string) arrow.Array {
		b := array.NewDecimal128Builder(memory.DefaultAllocator, &arrow.Decimal128Type{Precision: precision, Scale: 1})
		for _, v := range values {
			n, err := decimal128.FromString(v, 38, 1)
			if err != nil {
				t.Fatal(err)
			}
			b.Append(n)
		}
		return b.NewArray()
	}
	times := func(t *arrow.Time32Type, values ...arrow.Time32) arrow.Array {
		b := array.NewTime32Builder(memory.DefaultAllocator, t)
		b.AppendValues(values, nil)
		return b.NewArray()
	}
	nanos := func(values ...arrow.Time64) arrow.Array {
		b := array.NewTime64Builder(memory.DefaultAllocator, &arrow.Time64Type{Unit: arrow.Nanosecond})
		b.AppendValues(values, nil)
		return b.NewArray()
	}
	lists := array.NewListBuilderWithField(memory.DefaultAllocator, arrow.ListOf(arrow.FixedWidthTypes.Time32s).ElemField())
	for r := range 3 {
		lists.Append(true)
		lists.ValueBuilder().(*array.Time32Builder).AppendValues([]arrow.Time32{0, arrow.Time32(86399 + r/2)}[:r], nil)
	}
	most := strings.Repeat("9", 37) + ".9"
	for name, c := range map[string]struct {
		a    arrow.Array
		want string // "": it is in range
	}{
		"decimals":     {decimals(3, "99.9", "-99.9", "0"), ""},
		"long":         {decimals(3, "1", "1234.5"), "row 1: 1234.5 has more digits than a decimal128(3, 1): write the column as decimal128(5, 1)"},
		"below":        {decimals(3, "-100"), "row 0: -100.0 has more digits than a decimal128(3, 1): write the column as decimal128(4, 1)"},
		"greatest":     {decimals(38, most, "-"+most), ""},
		"no decimal":   {array.NewDecimal128Data(array.NewData(&arrow.Decimal128Type{Precision: 38, Scale: 1}, 1, []*memory.Buffer{nil, memory.NewBufferBytes([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"))}, nil, 0, 0)), "write the column as f64"},
		"times":        {times(arrow.FixedWidthTypes.Time32ms.(*arrow.Time32Type), 0, 86_399_999), ""},
		"25 hours":     {times(arrow.FixedWidthTypes.Time32ms.(*arrow.Time32Type), 90_000_000), "row 0: 90000000 is no time32[ms]: a time of day is at least 0, and less than 86400000: write the column as duration[ms]"},
		"before a day": {nanos(5, -1), "row 1: -1 is no time64[ns]"},
		"in a list":    {lists.NewArray(), "row 2: 86400 is no time32[s]"},
	} {
		_, err := Open(raw(t, arrow.Field{Name: "n", Type: c.a.DataType()}, c.a))
		if c.want == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.want != "" && (!errors.Is(err, ErrPart) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `chunk 0: column "n": `)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
