package xrdma

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/schema"
)

// The helpers of wherry.h: each distinct u64 of the payload, its text and its
// text twice, in parts of a small buffer. The set lies in scratch.
const distinctSource = `#include "wherry.h"
typedef struct { uint64_t value; wherry_str_t name, twice; } row_t;
static uint8_t buffer[128];
static uint32_t digits(char *to, uint64_t v)
{
    uint32_t n = 1;
    for (uint64_t x = v; x > 9; x /= 10) n++;
    for (uint32_t i = n; i; i--, v /= 10) to[i - 1] = (char)('0' + v % 10);
    return n;
}
WHERRY_ENTRY(payload, size)
{
    wherry_bump_t b;
    if (!wherry_bump_init(&b, 16 + 1024 * 8))
        return WHERRY_ERR_LIMIT;
    uint32_t *used = wherry_bump(&b, 12);
    wherry_set_t set = {wherry_bump(&b, 1024 * 8), 1024, *used};
    if (!set.slot || wherry_bump(&b, 1))
        return 77;
    wherry_rows_t out;
    wherry_rows_init(&out, buffer, sizeof buffer, sizeof(row_t));
    wherry_rows_string(&out, offsetof(row_t, name));
    wherry_rows_string(&out, offsetof(row_t, twice));
    for (uint32_t i = 0; i < size / 8; i++) {
        uint64_t v = ((const uint64_t *)payload)[i];
        int had = wherry_set_has(&set, v), added = wherry_set_add(&set, v);
        if (added < 0)
            return WHERRY_ERR_LIMIT;
        if (had == added)
            return 78;
        if (!added)
            continue;
        char text[20];
        uint32_t n = digits(text, v);
        row_t *r = wherry_rows_add(&out, 3 * n);
        if (!r)
            return out.status;
        r->value = v;
        wherry_rows_put(&out, &r->name, text, n);
        char two[40];
        memcpy(two, text, n);
        memmove(two + n, two, n);
        wherry_rows_put(&out, &r->twice, two, v == 7 ? 0 : 2 * n);
    }
    *used = set.used;
    return wherry_rows_reply(&out);
}
`

func TestHeaderHelpers(t *testing.T) {
	m := image.Manifest{
		Name: "distinct", Limits: abi.Limits{ScratchBytes: 1 << 16},
		Result: &schema.Schema{Fields: []schema.Field{{Name: "value", Type: schema.U64}, {Name: "name", Type: schema.Str}, {Name: "twice", Type: schema.Str}}},
	}
	img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "distinct.c", Code: []byte(distinctSource)}, m, cbuild.Options{})
	if errors.Is(err, cbuild.ErrNoCompiler) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t)
	c := e.cluster(t, img, blocks(1, 1), [][][]byte{nil}, nil)
	defer c.close()
	r := seeded(3)
	for _, n := range []int{0, 1, 5, 600, 880} {
		var values []uint64
		want := [][]string{}
		seen := map[uint64]bool{}
		for range n {
			v := r.Uint64() >> r.UintN(60)
			values = append(values, v)
			if !seen[v] {
				seen[v] = true
				twice := fmt.Sprint(v, v)
				twice = twice[:len(twice)/2] + twice[len(twice)/2+1:]
				if v == 7 {
					twice = ""
				}
				want = append(want, []string{fmt.Sprint(v), fmt.Sprint(v), twice})
			}
		}
		parts, err := c.invoke(u64s(values...), 0)
		if err != nil {
			t.Fatalf("%d values: %v", n, err)
		}
		if got := rowsOf(t, img, parts); len(got) != len(want) || !slices.EqualFunc(got, want, slices.Equal[[]string]) {
			t.Fatalf("%d values: %v, want %v", n, got, want)
		}
		for _, p := range parts {
			if len(p) > 128 {
				t.Errorf("a part of %d bytes from a buffer of 128", len(p))
			}
		}
	}
	many := make([]uint64, 897) // one more than seven eighths of 1024
	for i := range many {
		many[i] = uint64(i)
	}
	if _, err := c.invoke(u64s(many[:896]...), 0); err != nil {
		t.Errorf("896 values: %v", err)
	}
	if _, err := c.invoke(u64s(many...), 0); !errors.Is(err, statusError(abi.ErrLimit)) {
		t.Errorf("897 values: %v, want ErrLimit", err)
	}
	if _, err := c.invoke(u64s(1<<64-1), 0); !errors.Is(err, statusError(abi.ErrLimit)) {
		t.Errorf("the value that cannot be kept: %v, want ErrLimit", err)
	}
}

// Rows of any size: a count and its double as text, or as a number.
const rowSource = `#include "wherry.h"
typedef struct { FIELDS } row_t;
static uint8_t buffer[100];
WHERRY_ENTRY(payload, size)
{
    wherry_rows_t out;
    wherry_rows_init(&out, buffer, sizeof buffer, sizeof(row_t));
#ifdef TEXT
    wherry_rows_string(&out, offsetof(row_t, text));
#endif
    for (uint32_t i = 0; i < *(const uint64_t *)payload; i++) {
        row_t *r = wherry_rows_add(&out, 1);
        if (!r)
            return out.status;
        r->n = i;
#ifdef TEXT
        char c = 'a' + i % 26;
        wherry_rows_put(&out, &r->text, &c, 1);
#endif
    }
    return wherry_rows_reply(&out);
}
`

// TestHeaderRowSizes: what the builder sends can be decoded, whether a record's size is a multiple of 8 or not.
func TestHeaderRowSizes(t *testing.T) {
	n := func(typ schema.Type) schema.Field { return schema.Field{Name: "n", Type: typ} }
	text := schema.Field{Name: "text", Type: schema.Str}
	for name, c := range map[string]struct {
		fields  string // in C
		defines map[string]string
		schema  []schema.Field
	}{
		"1":  {"uint8_t n;", nil, []schema.Field{n(schema.U8)}},
		"4":  {"uint32_t n;", nil, []schema.Field{n(schema.U32)}},
		"8":  {"uint64_t n;", nil, []schema.Field{n(schema.U64)}},
		"9":  {"uint8_t n, more[8];", nil, []schema.Field{n(schema.U8), {Name: "more", Type: schema.BytesType(8)}}},
		"12": {"uint32_t n; wherry_str_t text;", map[string]string{"TEXT": "1"}, []schema.Field{n(schema.U32), text}},
		"16": {"uint64_t n; wherry_str_t text;", map[string]string{"TEXT": "1"}, []schema.Field{n(schema.U64), text}},
	} {
		m := image.Manifest{Name: "rows", Result: &schema.Schema{Fields: c.schema}}
		code := strings.Replace(rowSource, "FIELDS", c.fields, 1)
		img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "rows.c", Code: []byte(code)}, m, cbuild.Options{Defines: c.defines})
		if errors.Is(err, cbuild.ErrNoCompiler) && os.Getenv("CI") != "true" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(name, err)
		}
		e := newEngine(t)
		for _, rows := range []uint64{0, 1, 2, 3, 40} {
			cl := e.cluster(t, img, blocks(1, 1), [][][]byte{nil}, nil)
			parts, err := cl.invoke(u64s(rows), 0)
			if err != nil {
				t.Fatalf("%s: %d rows: %v", name, rows, err)
			}
			got := rowsOf(t, img, parts)
			for i, row := range got {
				if row[0] != fmt.Sprint(i) || c.defines != nil && row[1] != string(rune('a'+i%26)) {
					t.Errorf("%s bytes: row %d of %d is %q", name, i, rows, row)
				}
			}
			if len(got) != int(rows) {
				t.Errorf("%s bytes: %d rows, want %d", name, len(got), rows)
			}
			cl.close()
		}
	}
}
