package dataset

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	writer "github.com/wherry-fabric/wherry/dataset/batch"
)

// structs are rows as programs write them to Parquet: numbers are of 64 bits, mostly.
type structs struct {
	Next int64    `parquet:"next"`
	Kind uint16   `parquet:"kind"`
	OK   bool     `parquet:"ok"`
	F    float32  `parquet:"f"`
	ID   [16]byte `parquet:"id,uuid"`
	More string   `parquet:"more"`
}

const structsSchema = "next:u32,ok:bool,kind:i32,f:f32,id:bytes16"

// Rows of fixed width are the same bytes from whatever format they come; columns that the schema does not name are left out.
func TestPackedFormats(t *testing.T) {
	var rows []structs
	var text, lines strings.Builder
	for i := range 300_000 { // several chunks
		r := structs{Next: int64(i*7919) % 300_000, Kind: uint16(i), OK: i%3 == 0, F: float32(i) / 8, ID: [16]byte{byte(i), byte(i >> 8), 15: 1}, More: "x"}
		rows = append(rows, r)
		fmt.Fprintf(&text, "%d,%t,%d,%v,%x\n", r.Next, r.OK, r.Kind, r.F, r.ID)
		fmt.Fprintf(&lines, `{"kind":%d,"more":1,"next":%d,"ok":%t,"f":%v,"id":"%x"}`+"\n", r.Kind, r.Next, r.OK, r.F, r.ID)
	}
	file := parquetInput(t, rows)
	_, stream, err := loadedAs(t, writer.Arrow, 1, Options{Format: Parquet}, file)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"", "next"} {
		var want [][]byte
		for _, in := range []struct {
			Input
			Format
		}{{NewText("csv", []byte(text.String())), CSV}, {NewText("ndjson", []byte(lines.String())), NDJSON}, {file, Parquet}, {NewText("arrow", []byte(stream)), Arrow}} {
			o := Options{Format: in.Format, Schema: mustSchema(t, structsSchema), Packed: true, Spread: Spread{Elements: 2, Key: key}}
			p, b := load(t, in.Input, o, true)
			if p.Rows != uint64(len(rows)) || p.Kind != cluster.Records {
				t.Fatalf("%s: %d rows of kind %v", in.Name(), p.Rows, p.Kind)
			}
			got := [][]byte{b.Memory(0, cluster.FixedValues), b.Memory(1, cluster.FixedValues)}
			if want == nil {
				want = got
			} else if !bytes.Equal(got[0], want[0]) || !bytes.Equal(got[1], want[1]) {
				t.Errorf("%s, key %q: other bytes than csv", in.Name(), key)
			}
		}
	}
	// One field of fixed width needs no --packed: a chase follows it.
	p, b := load(t, file, Options{Format: Parquet, Schema: mustSchema(t, "next:u64")}, false)
	if p.Kind != cluster.Records || rowTexts(p, b, 0, 1)[0] != "7919" {
		t.Error(p.Kind, rowTexts(p, b, 0, 1))
	}
}

func TestPackedErrors(t *testing.T) {
	type row struct {
		N     int64   `parquet:"n"`
		Maybe *int32  `parquet:"maybe,optional"`
		F     float64 `parquet:"f"`
	}
	one := int32(1)
	file := parquetInput(t, []row{{1, &one, 1}, {-129, &one, 1}, {math.MaxInt64, nil, 1}})
	tests := []struct{ schema, want string }{
		{"n:u64", `row group 0, row 1 of the file, column "n": -129 does not fit u64`},
		{"n:i8", `row 1 of the file, column "n": -129 does not fit i8`},
		{"n:i16", `row 2 of the file, column "n": 9223372036854775807 does not fit i16`},
		{"maybe:u8", `row 2 of the file, column "maybe": a value is missing, and rows of fixed width have them all`},
		{"f:u64", `column "f" is f64, and the schema (--schema) has it as u64`},
		{"m:u64", `it has no column "m"`},
	}
	for _, tt := range tests {
		_, err := loaded(t, Options{Format: Parquet, Schema: mustSchema(t, tt.schema)}, file)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), file.Name()) {
			t.Errorf("%s: %v, want …%s…", tt.schema, err, tt.want)
		}
	}
	p, b := load(t, file, Options{Format: Parquet, Schema: mustSchema(t, "n:i64,maybe:u8"), Packed: true, EmptyIsZero: true}, true)
	if got := fmt.Sprint(allRows(t, p, b)); got != "[[1 1] [-129 1] [9223372036854775807 0]]" {
		t.Error(got)
	}
}
