package schema

import (
	"errors"
	"strings"
	"testing"
)

// TestOneOf: what a parameter is kept to is refused elsewhere before anything is encoded, with the choice.
func TestOneOf(t *testing.T) {
	rows := mustParse(t, "a:u8,b:f32,c:str,d:bool,e:bytes4,f:i64")
	def := func(text string) *string { return &text }
	for _, c := range []struct {
		f    Field
		text string
		says string // "": it is taken
	}{
		{Field{Type: Str, OneOf: []string{"eq", "ne"}}, "eq", ""},
		{Field{Type: Str, OneOf: []string{"eq", "ne"}}, "eqq", `"eqq" is none of eq, ne`},
		{Field{Type: Str, OneOf: []string{"eq", "ne"}}, "", `"" is none of`},
		{Field{Type: Str, OneOf: []string{"eq", ""}}, "", ""},
		{Field{Type: U32, OneOf: []string{"0", "1"}}, "1", ""},
		{Field{Type: U32, OneOf: []string{"0", "1"}}, "0x1", ""},
		{Field{Type: U32, OneOf: []string{"0", "1"}}, "2", `"2" is none of 0, 1`},
		{Field{Type: U32, OneOf: []string{"0", "1"}}, "one", `"one" is not a u32`},
		{Field{Type: U32, OneOf: []string{"0..254"}}, "0", ""},
		{Field{Type: U32, OneOf: []string{"0..254"}}, "0xfe", ""},
		{Field{Type: U32, OneOf: []string{"0..254"}}, "255", `"255" is out of range, it goes from 0 to 254`},
		{Field{Type: U32, OneOf: []string{"1", "7..9"}}, "9", ""},
		{Field{Type: U32, OneOf: []string{"1", "7..9"}}, "6", `"6" is none of 1, 7..9`},
		{Field{Type: I16, OneOf: []string{"-3..3"}}, "-3", ""},
		{Field{Type: I16, OneOf: []string{"-3..3"}}, "-4", `"-4" is out of range, it goes from -3 to 3`},
		{Field{Type: I16, OneOf: []string{"-3..3"}}, "-3..3", "is not an i16"},
		{Field{Type: U64, OneOf: []string{"1..0xffffffffffffffff"}}, "0", "out of range"},
		{Field{Type: U64, OneOf: []string{"1..0xffffffffffffffff"}}, "18446744073709551615", ""},
		{Field{Type: U64, OneOf: []string{"row"}}, "18446744073709551615", ""},
		{Field{Type: U64, OneOf: []string{"row"}}, "row", `"row" is not a u64`},
		{Field{Type: Str, OneOf: []string{"0..9"}}, "3", `"3" is not possible, only 0..9 is`},
		{Field{Type: Str, OneOf: []string{"row"}}, "3", `"3" is not possible, only row is`},
		{Field{Type: Bool, OneOf: []string{"true"}}, "1", ""},
		{Field{Type: Bool, OneOf: []string{"true"}}, "0", "only true is"},
		{Field{Type: Column, OneOf: []string{"integer"}}, "a", ""},
		{Field{Type: Column, OneOf: []string{"integer"}}, "f", ""},
		{Field{Type: Column, OneOf: []string{"integer"}}, "b", "column b is of type f32; it must be one of integer"},
		{Field{Type: Column, OneOf: []string{"integer"}}, "d", "of type bool"},
		{Field{Type: Column, OneOf: []string{"float", "bool"}}, "b", ""},
		{Field{Type: Column, OneOf: []string{"float", "bool"}}, "d", ""},
		{Field{Type: Column, OneOf: []string{"float", "bool"}}, "c", "of type str; it must be one of float, bool"},
		{Field{Type: Column, OneOf: []string{"bytes"}}, "e", ""},
		{Field{Type: Column, OneOf: []string{"bytes8"}}, "e", "of type bytes4"},
		{Field{Type: Column, OneOf: []string{"u8"}}, "a", ""},
		{Field{Type: Column, OneOf: []string{"u8"}}, "f", "of type i64"},
		{Field{Type: Column}, "c", ""},
	} {
		c.f.Name = "p"
		s := &Schema{Fields: []Field{c.f}}
		_, err := s.EncodeArgs(map[string]string{"p": c.text}, rows)
		if (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s kept to %q, given %q: %v", c.f.Type, c.f.OneOf, c.text, err)
		}
	}
	long := make([]string, MaxOneOf+1)
	for i := range long {
		long[i] = strings.Repeat("x", i)
	}
	for _, c := range []struct {
		f    Field
		says string // "": a good declaration
	}{
		{Field{Type: Str, Default: def("a"), OneOf: []string{"a"}}, ""}, {Field{Type: Str, Default: def("b"), OneOf: []string{"a"}}, "default: \"b\" is not possible, only a is"},
		{Field{Type: U8, Default: def("0x0"), OneOf: []string{"0"}}, ""}, {Field{Type: U8, Default: def("3"), OneOf: []string{"0"}}, "default"},
		{Field{Type: U8, OneOf: []string{"300"}}, "one_of"}, {Field{Type: U8, OneOf: []string{"1", "1"}}, "twice"},
		{Field{Type: U8, Default: def("9"), OneOf: []string{"0..9"}}, ""}, {Field{Type: U8, Default: def("10"), OneOf: []string{"0..9"}}, "default"},
		{Field{Type: U8, OneOf: []string{"0..256"}}, "256"}, {Field{Type: U8, OneOf: []string{"9..3"}}, "ends before it begins"}, {Field{Type: U8, OneOf: []string{".."}}, "one_of"},
		{Field{Type: U8, OneOf: []string{"0..3..5"}}, "one_of"}, {Field{Type: F32, OneOf: []string{"0..3"}}, "one_of"}, {Field{Type: Column, OneOf: []string{"0..3"}}, "0..3"},
		{Field{Type: U8, OneOf: []string{"row"}}, ""}, {Field{Type: I64, OneOf: []string{"row", "3"}}, "one_of"}, {Field{Type: F64, OneOf: []string{"row"}}, "one_of"},
		{Field{Type: Column, Default: def("level"), OneOf: []string{"str", "bytes", "u16", "bytes4"}}, ""},
		{Field{Type: Column, OneOf: []string{"text"}}, "text"}, {Field{Type: Column, OneOf: []string{"column"}}, "column"}, {Field{Type: Column, OneOf: []string{""}}, "one_of"},
		{Field{Type: Str, OneOf: long[:MaxOneOf]}, ""}, {Field{Type: Str, OneOf: long}, "at most 32"},
		{Field{Type: Str, OneOf: []string{strings.Repeat("x", MaxOneOfBytes+1)}}, "at most 64"},
	} {
		c.f.Name = "p"
		s := &Schema{Fields: []Field{c.f}}
		if err := s.ValidateParams(); (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s kept to %.80q: %v", c.f.Type, c.f.OneOf, err)
		}
		c.f.Default = nil
		s = &Schema{Fields: []Field{c.f}}
		if s.ValidateDataset() == nil || (s.ValidateResult() == nil) != c.f.IsRow() { // a result may be a row
			t.Errorf("rows whose field is one of %.80q", c.f.OneOf)
		}
	}
}
