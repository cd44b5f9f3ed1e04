package column

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Each type has one text form, which is read back as the same type.
func TestTypesRoundTrip(t *testing.T) {
	for _, text := range []string{"i8", "i64", "u8", "u64", "f32", "f64", "bool", "date32", "time32[s]", "time32[ms]", "time64[us]", "time64[ns]",
		"timestamp[s]", "timestamp[us, UTC]", "timestamp[ns, Europe/Berlin]", "duration[ms]", "decimal128(10, 2)", "utf8", "binary", "bytes16", "uuid", "ip",
		"list<u32>", "list<uuid>", "struct<a:ip>", "list<list<timestamp[us, UTC]>>", `struct<a:i64,"b,c>":list<struct<x:decimal128(10, 2),y y:utf8>>>`} {
		typ, err := Parse(text)
		if err != nil || typ.String() != text {
			t.Errorf("%s became %v (%v)", text, typ, err)
		}
	}
	if typ, err := Parse("timestamp[ms,UTC]"); err != nil || typ.Zone != "UTC" {
		t.Errorf("without a space: %v, %v", typ, err)
	}
}

func TestBadTypes(t *testing.T) {
	for text, want := range map[string]string{
		"int":               `there is no type "int"`,
		"bytes0":            "bytesN takes N",
		"bytes":             "bytesN takes N",
		"bytes+4":           "bytesN takes N",
		"i32[s]":            "takes nothing in brackets",
		"time32[us]":        "use time64",
		"time64[s]":         "use time32",
		"timestamp":         "want timestamp[UNIT]",
		"timestamp[h]":      "want timestamp[UNIT]",
		"timestamp[s":       "is not closed",
		"timestamp(s)":      "want timestamp[UNIT]",
		"duration[s, UTC]":  "want duration[UNIT]",
		"decimal128(39, 0)": "1 to 38 digits",
		"decimal128(5, 6)":  "a scale from 0",
		"decimal128":        "want decimal128",
		"invalid":           "there is no type",
		"list<u32":          "is not closed",
		"list<u33>":         `no type "u33"`,
		"struct<>":          "0 columns",
		"struct<a:u8,a:u8>": "stands twice",
		"list<" + strings.Repeat("list<", 8) + "u8" + strings.Repeat(">", 9): "at most 8 deep",
		`struct<a"b:` + strings.Repeat("list<", 600) + "u8":                  "not closed",
		"struct<" + strings.Repeat("x", 5000) + ":u8>":                       "at most 4096",
	} {
		if _, err := Parse(text); !errors.Is(err, ErrType) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestDeepTypes: structs within each other are read once, not once more at each depth: a table may have thousands of them.
func TestDeepTypes(t *testing.T) {
	var fields []string
	for i := range 400 {
		fields = append(fields, fmt.Sprintf("f%d:u8", i))
	}
	reads := func(depth int) float64 {
		text := "struct<" + strings.Repeat("a:struct<", depth-1) + strings.Join(fields, ",") + strings.Repeat(">", depth)
		return testing.AllocsPerRun(1, func() {
			typ, err := Parse(text)
			if err == nil {
				err = typ.Validate()
			}
			if err != nil || typ.String() != text {
				t.Errorf("%d deep: %v", depth, err)
			}
		})
	}
	if flat, deep := reads(1), reads(MaxNesting); deep > 2*MaxNesting*flat {
		t.Errorf("a type takes %v allocations, %d deep %v", flat, MaxNesting, deep)
	}
}

func TestBadSchemas(t *testing.T) {
	i32 := Type{ID: I32}
	for want, s := range map[string]Schema{
		"0 columns":         {},
		"both called \"a\"": {{Name: "a", Type: i32}, {Name: "a", Type: i32}},
		"1 to 255 bytes":    {{Name: "", Type: i32}},
		"column \"x\"":      {{Name: "x"}},
		"not its own":       {{Name: "y", Type: Type{ID: I32, Width: 4}}},
	} {
		if err := s.Validate(); !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", s, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("timestamp[us, UTC]")
	f.Add("decimal128(10, 2)")
	f.Add("bytes16")
	f.Fuzz(func(t *testing.T, text string) {
		typ, err := Parse(text)
		if err != nil {
			return
		}
		if back, err := Parse(typ.String()); err != nil || back != typ {
			t.Errorf("%q is %v, which is %v (%v)", text, typ, back, err)
		}
	})
}

// TestManyTypes: a schema's types are as long together as a few of the longest, and no more.
func TestManyTypes(t *testing.T) {
	var long Schema
	for i := 0; len(long.List()) < MaxTypeBytes-64; i++ {
		long = append(long, Column{Name: fmt.Sprintf("f%d", i), Type: Type{ID: U8}})
	}
	var s Schema
	for i := range MaxColumns {
		s = append(s, Column{Name: fmt.Sprint("c", i), Type: StructOf(long)})
	}
	if err := s[:32].Validate(); err != nil {
		t.Error(err)
	}
	if err := s.Validate(); !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), "text together") {
		t.Errorf("%d columns of %d bytes of type: %v", len(s), len(s[0].Type.String()), err)
	}
}
