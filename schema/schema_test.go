package schema

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func mustParse(t testing.TB, text string) *Schema {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCodesAreStable(t *testing.T) {
	want := map[Type]uint32{
		I8: 1, I16: 2, I32: 3, I64: 4, U8: 5, U16: 6, U32: 7, U64: 8, F32: 9, F64: 10,
		Bool: 11, Str: 12, Column: 13, "bytes1": 0x10001, "bytes16": 0x10010, "bytes4096": 0x11000,
	}
	for typ, code := range want {
		if got := typ.Code(); got != code {
			t.Errorf("%s: code %d, want %d", typ, got, code)
		}
		if back, ok := TypeOfCode(code); !ok || back != typ {
			t.Errorf("code %d: type %q %v, want %s", code, back, ok, typ)
		}
	}
	for _, typ := range []Type{"", "u24", "bytes", "bytes0", "bytes01", "bytes+1", "bytes-1", "bytes4097", "U8"} {
		if typ.Valid() || typ.Code() != 0 || typ.Size() != 0 {
			t.Errorf("%q is taken for a type", typ)
		}
	}
	for _, code := range []uint32{0, 14, 0x10000, 0x11001, 1 << 31} {
		if typ, ok := TypeOfCode(code); ok {
			t.Errorf("code %#x is taken for %s", code, typ)
		}
	}
}

func TestLayout(t *testing.T) {
	tests := []struct {
		text        string
		offsets     []uint32
		size, align uint32
	}{
		{"", []uint32{}, 0, 1},
		{"a:u8", []uint32{0}, 1, 1},
		{"a:u8,b:u64,c:u8", []uint32{0, 8, 16}, 24, 8},
		{"a:bytes3,b:u16,c:bool", []uint32{0, 4, 6}, 8, 2},
		{"name:str,status:u16,bytes:u64", []uint32{0, 8, 16}, 24, 8},
		{"a:u8,s:str,c:column,f:f32,g:f64", []uint32{0, 4, 12, 20, 24}, 32, 8},
	}
	for _, tt := range tests {
		s := mustParse(t, tt.text)
		l, err := s.Layout()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.offsets, l.Offsets); diff != "" || l.Size != tt.size || l.Align != tt.align {
			t.Errorf("%q: size %d align %d %s", tt.text, l.Size, l.Align, diff)
		}
		if s.RecordBytes() != tt.size {
			t.Errorf("%q: RecordBytes %d", tt.text, s.RecordBytes())
		}
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct{ text, want string }{
		{"a", `field 1: "a" is not name:type`},
		{"a:u8,", `field 2: "" is not name:type`},
		{"a:u8,a:u16", `field 2: the name "a" is used twice`},
		{"a:u24", `"u24" is not a type (types are i8`},
		{"9a:u8", `must be letters, digits and _`},
		{":u8", `a field needs a name`},
		{"a:u8:avg", `merge "avg" is unknown`},
		{"a:str:sum", `only numbers can be merged with "sum"`},
		{"a:f64:count", `a count must be an integer`},
		{"a:column:min", `a column cannot be merged`},
		{"a:u8:key:x", `is not name:type`},
		{`a:str="x`, `not a closed quoted string`},
		{`a:str="x"y`, `a comma is missing`},
		{"a:bytes4096,b:bytes4096,c:bytes4096,d:bytes4096,e:u8", `a record takes 16385 bytes, at most 16384`},
		{strings.Repeat("x", 65) + ":u8", `has 65 bytes, at most 64`},
		{strings.Repeat("a:u8,", 400), `257 fields, at most 256`},
	}
	for _, tt := range tests {
		_, err := Parse(tt.text)
		if !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40q: %v, want …%s…", tt.text, err, tt.want)
		}
	}
}

func TestUses(t *testing.T) {
	tests := []struct {
		text                    string
		dataset, params, result string // "" is no error
	}{
		{"a:u8", "", "", ""},
		{"", "at least one field", "", "at least one field"},
		{"c:column", "only a parameter", "", "only a parameter"},
		{"a:u8=3", "no default", "", "no default"},
		{"a:u8=300", "no default", "out of range", "no default"},
		{"c:column=9", "only a parameter", "must be letters", "only a parameter"},
		{"k:str:key,n:u64:sum", "not merged", "not merged", ""},
		{"k:str:key,n:u64", "not merged", "not merged", "needs a merge too"},
	}
	check := func(text, use, want string, err error) {
		t.Helper()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q as %s: %v, want %q", text, use, err, want)
		}
	}
	for _, tt := range tests {
		s := mustParse(t, tt.text)
		check(tt.text, "dataset", tt.dataset, s.ValidateDataset())
		check(tt.text, "parameters", tt.params, s.ValidateParams())
		check(tt.text, "result", tt.result, s.ValidateResult())
	}
}

func TestJSON(t *testing.T) {
	s, err := ParseAny(` {"fields":[{"name":"by","type":"column","help":"group by it"},{"name":"n","type":"u32","default":"10"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.String(); got != "by:column,n:u32=10" {
		t.Errorf("got %s", got)
	}
	for _, bad := range []string{`{"fields":[{"nam":"a"}]}`, `{} {}`, `{`, `{"fields":[{"name":"a","type":"x"}]}`, `[]`} {
		if _, err := ParseJSON([]byte(bad)); !errors.Is(err, ErrSchema) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// genSchema draws valid schemas; use selects what merges and defaults they have.
func genSchema(result bool) *rapid.Generator[*Schema] {
	return rapid.Custom(func(t *rapid.T) *Schema {
		n := rapid.IntRange(1, 8).Draw(t, "fields")
		merged := result && rapid.Bool().Draw(t, "merged")
		s := &Schema{}
		for i := range n {
			name := rapid.StringMatching(`[a-z_][a-z0-9_]{0,5}`).Draw(t, "name") + string(rune('A'+i))
			typ := rapid.SampledFrom([]Type{I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, Bool, Str, "bytes1", "bytes5", "bytes16"}).Draw(t, "type")
			f := Field{Name: name, Type: typ}
			if merged {
				ways := []string{MergeKey, MergeMin, MergeMax}
				if typ.IsInteger() {
					ways = append(ways, MergeCount)
				}
				f.Merge = rapid.SampledFrom(ways).Draw(t, "merge")
			}
			if !result && rapid.Bool().Draw(t, "default") {
				d := rapid.String().Draw(t, "value")
				f.Default = &d
			}
			s.Fields = append(s.Fields, f)
		}
		return s
	})
}

func TestTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genSchema(rapid.Bool().Draw(t, "result")).Draw(t, "schema")
		text, err := Parse(s.String())
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if diff := cmp.Diff(s, text); diff != "" {
			t.Fatalf("text: %s", diff)
		}
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseJSON(data)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if got, want := back.String(), text.String(); strings.ToValidUTF8(got, "") != strings.ToValidUTF8(want, "") {
			t.Fatalf("JSON: %s, want %s", got, want)
		}
	})
}

// TestCStruct has a C compiler check every offset, where there is one.
func TestCStruct(t *testing.T) {
	s := mustParse(t, "name:str,int:u16,by:column,key:bytes5,ok:bool,f:f32,big:u64,d:f64,a:i8,b:i16,c:i32,e:i64,g:u8,h:u32")
	s.Fields[0].Help = "who\n*/ is it"
	text, err := s.CStruct("row")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"struct { uint32_t offset, length; } name;", "uint16_t int_;", "uint8_t key[5];", "who * / is it"} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in\n%s", want, text)
		}
	}
	if text, err := s.CStruct("int"); err != nil || !strings.HasPrefix(text, "struct int_ {") {
		t.Errorf("%.20q, %v", text, err)
	}
	if _, err := s.CStruct("a b"); !errors.Is(err, ErrSchema) {
		t.Errorf("struct name: %v", err)
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Log("no C compiler here: the layout is not checked against one")
		return
	}
	l, _ := s.Layout()
	src := "#include <stdint.h>\n#include <stddef.h>\n" + text
	for i, f := range s.Fields {
		name := f.Name
		if name == "int" {
			name = "int_"
		}
		src += "_Static_assert(offsetof(struct row, " + name + ") == " + binaryString(l.Offsets[i]) + ", \"" + name + "\");\n"
	}
	path := filepath.Join(t.TempDir(), "row.c")
	if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", path).CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, src)
	}
}

func binaryString(n uint32) string { b, _ := json.Marshal(n); return string(b) }

func TestEncodeArgs(t *testing.T) {
	ds := mustParse(t, "name:str,status:u16,bytes:u64")
	s := mustParse(t, "by:column,match:str=x,most:u32=24,limit:i16=-5,note:str")
	got, err := s.EncodeArgs(map[string]string{"by": "bytes", "note": "hello"}, ds)
	if err != nil {
		t.Fatal(err)
	}
	u := func(at int) uint32 { return binary.LittleEndian.Uint32(got[at:]) }
	if len(got) != 32+1+5 {
		t.Fatalf("%d bytes", len(got))
	}
	if u(0) != 16 || u(4) != codeU64 {
		t.Errorf("column: offset %d code %d", u(0), u(4))
	}
	if text := string(got[u(8) : u(8)+u(12)]); text != "x" {
		t.Errorf("match %q", text)
	}
	if u(16) != 24 {
		t.Errorf("most %d", u(16))
	}
	if v := int16(binary.LittleEndian.Uint16(got[20:])); v != -5 {
		t.Errorf("limit %d", v)
	}
	if text := string(got[u(24) : u(24)+u(28)]); text != "hello" {
		t.Errorf("note %q", text)
	}
	if empty, err := new(Schema).EncodeArgs(nil, nil); err != nil || len(empty) != 0 {
		t.Errorf("no parameters: %v %v", empty, err)
	}
}

func TestEncodeArgsErrors(t *testing.T) {
	ds := mustParse(t, "name:str,status:u16")
	tests := []struct {
		params string
		values map[string]string
		ds     *Schema
		want   string
	}{
		{"status:u16", map[string]string{"statsu": "1"}, nil, `there is no parameter "statsu"; did you mean "status"?`},
		{"status:u16", map[string]string{"zzzzzzzzz": "1"}, nil, `there are status`},
		{"", map[string]string{"a": "1"}, nil, `the function takes none`},
		{"a:u16,b:str", nil, nil, `no value for a (u16), b (str)`},
		{"a:u16", map[string]string{"a": "70000"}, nil, `parameter a: "70000" is not a u16: out of range, the greatest is 65535`},
		{"a:i8", map[string]string{"a": "-129"}, nil, `"-129" is not an i8: out of range, it goes from -128 to 127`},
		{"a:u8", map[string]string{"a": "-1"}, nil, `cannot be negative`},
		{"a:u64", map[string]string{"a": "18446744073709551616"}, nil, `out of range`},
		{"a:bytes2", map[string]string{"a": "12345"}, nil, `write 4 hex digits`},
		{"a:bool", map[string]string{"a": "yes"}, nil, `write true or false`},
		{"a:f32", map[string]string{"a": "1e99"}, nil, `out of range`},
		{"by:column", map[string]string{"by": "nane"}, ds, `the dataset has no column "nane"; did you mean "name"?`},
		{"by:column", map[string]string{"by": "name"}, nil, `runs on no dataset`},
		{"a:str", map[string]string{"a": strings.Repeat("x", MaxArgsBytes)}, nil, `take more than`},
	}
	for _, tt := range tests {
		_, err := mustParse(t, tt.params).EncodeArgs(tt.values, tt.ds)
		if !errors.Is(err, ErrArgument) || !strings.Contains(err.Error()+"\n", tt.want) {
			t.Errorf("%s %.60v: %v, want …%s…", tt.params, tt.values, err, tt.want)
		}
	}
}

func TestValueRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := rapid.SampledFrom([]Type{I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, "bytes1", "bytes7"}).Draw(t, "type")
		n := int(typ.Size())
		cell := rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "cell")
		if typ.IsFloat() && getFloat(cell) != getFloat(cell) {
			t.Skip("every NaN reads back as the same NaN")
		}
		text := typ.AppendText(nil, cell)
		back := make([]byte, n)
		if err := typ.PutText(back, text); err != nil {
			t.Fatal(err)
		}
		if string(back) != string(cell) {
			t.Fatalf("%s: %x through %q is %x", typ, cell, text, back)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("name:str,status:u16,bytes:u64")
	f.Add(`a:str="x,\"y",b:i8=-3,c:u64:sum`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		back, err := Parse(s.String())
		if err != nil {
			t.Fatalf("%q gives %q: %v", text, s, err)
		}
		if diff := cmp.Diff(s, back); diff != "" {
			t.Fatal(diff)
		}
		if _, err := s.CStruct("row"); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(`{"fields":[{"name":"a","type":"u8","default":"1","help":"h","merge":"key"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseJSON(data)
		if err != nil {
			return
		}
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDocumentedTypes checks docs/datasets.md's table against the code.
func TestDocumentedTypes(t *testing.T) {
	text, err := os.ReadFile("../docs/datasets.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range types {
		row := fmt.Sprintf("| `%s` | %d | %d | %d |", info.typ, info.code, info.size, info.align)
		if !strings.Contains(string(text), row) {
			t.Errorf("the page lacks %s", row)
		}
	}
	s := mustParse(t, "name:str,status:u16,bytes:u64")
	l, _ := s.Layout()
	if !strings.Contains(string(text), "```\n"+s.String()+"\n```") || l.Size != 24 || l.Offsets[1] != 8 || l.Offsets[2] != 16 {
		t.Error("the page's example is another")
	}
}
