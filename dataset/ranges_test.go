package dataset

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// oneColumnStream is a stream of one column, a batch of each array.
func oneColumnStream(t testing.TB, f arrow.Field, arrays ...arrow.Array) string {
	t.Helper()
	var out bytes.Buffer
	s := arrow.NewSchema([]arrow.Field{f}, nil)
	w := ipc.NewWriter(&out, ipc.WithSchema(s))
	for _, a := range arrays {
		if err := w.Write(array.NewRecordBatch(s, []arrow.Array{a}, int64(a.Len()))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A decimal of too many digits, and a time that is none of a day, are refused where they are loaded; what lies beneath a missing value is no value.
func TestLoadOutOfRange(t *testing.T) {
	type decimals struct {
		D int32 `parquet:"d,decimal(1:3)"`
	}
	d := array.NewDecimal128Builder(memory.DefaultAllocator, &arrow.Decimal128Type{Precision: 3, Scale: 1})
	tm := array.NewTime32Builder(memory.DefaultAllocator, arrow.FixedWidthTypes.Time32ms.(*arrow.Time32Type))
	decimalsOf := func(valid bool, values ...int64) arrow.Array {
		for _, v := range values {
			d.AppendValues([]decimal128.Num{decimal128.FromI64(v)}, []bool{valid})
		}
		return d.NewArray()
	}
	tm.AppendValues([]arrow.Time32{5, 90_000_000}, nil)
	times := tm.NewArray()
	field := arrow.Field{Name: "d", Type: &arrow.Decimal128Type{Precision: 3, Scale: 1}, Nullable: true}
	for name, c := range map[string]struct {
		in   Input
		o    Options
		want string
	}{
		"Parquet":       {parquetInput(t, []decimals{{999}, {12345}, {-99999}}), Options{Format: Parquet}, `x.parquet: row group 0, column "d": row 1 of the file: 1234.5 has more digits than a decimal128(3, 1): write the column as decimal128(5, 1)`},
		"Arrow":         {text("x.arrows", oneColumnStream(t, field, decimalsOf(true, 1, 2), decimalsOf(true, -999, -99999))), Options{Format: Arrow}, `x.arrows: record batch 1: column "d": row 1 of the batch: -9999.9 has more digits`},
		"times":         {text("x.arrows", oneColumnStream(t, arrow.Field{Name: "t", Type: arrow.FixedWidthTypes.Time32ms}, times)), Options{Format: Arrow}, `x.arrows: record batch 0: column "t": row 1 of the batch: 90000000 is no time32[ms]: a time of day is at least 0, and less than 86400000: write the column as duration[ms]`},
		"missing value": {text("x.arrows", oneColumnStream(t, field, decimalsOf(false, 12345))), Options{Format: Arrow}, ""},
	} {
		_, err := loaded(t, c.o, c.in)
		if c.want == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.want != "" && (!errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
