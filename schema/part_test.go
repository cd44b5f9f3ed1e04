package schema

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func mustRows(t testing.TB, s *Schema, rows ...string) Rows {
	t.Helper()
	b, err := NewPartBuilder(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if err := b.AppendStrings(strings.Split(row, "|")...); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.DecodePart(b.Finish())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func partOf(r Rows) []byte { return r.Part() }

func allStrings(r Rows) []string {
	var out []string
	for i := range r.Len() {
		out = append(out, strings.Join(r.Strings(i), "|"))
	}
	return out
}

func TestPartBytes(t *testing.T) {
	r := mustRows(t, mustParse(t, "n:u16,name:str"), "7|ab", "8|c")
	want := []byte{
		2, 0, 0, 0, 0, 0, 0, 0,
		7, 0, 0, 0, 40, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
		8, 0, 0, 0, 42, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
		'a', 'b', 'c',
	}
	if diff := cmp.Diff(want, r.Part()); diff != "" {
		t.Error(diff)
	}
	if got := r.Uint(1, 0); got != 8 {
		t.Errorf("n %d", got)
	}
	if len(r.Record(1)) != 12 {
		t.Errorf("record of %d bytes", len(r.Record(1)))
	}
}

func TestDecodePartErrors(t *testing.T) {
	withText := mustParse(t, "n:u16,ok:bool,name:str")
	plain := mustParse(t, "n:u32")
	good := partOf(mustRows(t, withText, "7|true|ab"))
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	tests := []struct {
		s    *Schema
		part []byte
		want string
	}{
		{plain, nil, "its header alone has 8"},
		{plain, []byte{0, 0, 0, 0, 1, 0, 0, 0}, "second word is 0x1"},
		{plain, []byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}, "1 rows of 8 bytes need 8 bytes, it has 4"},
		{plain, []byte{255, 255, 255, 255, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0}, "4294967295 rows"},
		{plain, make([]byte, 9), "1 bytes follow its 0 rows"},
		{withText, change(10, 2), "row 0: ok is 2, a bool is 0 or 1"},
		{withText, change(12, 8), "row 0: name is text at 8 to 10, outside of the part's text at 24 to 26"},
		{withText, change(16, 3), "at 24 to 27"},
		{withText, change(15, 255), "outside"},
	}
	for _, tt := range tests {
		_, err := tt.s.DecodePart(tt.part)
		if !errors.Is(err, ErrPart) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%x: %v, want …%s…", tt.part, err, tt.want)
		}
	}
	empty := bytes.Clone(good)
	binary.LittleEndian.PutUint64(empty[12:], 0) // an empty text may be anywhere
	if _, err := withText.DecodePart(empty); err != nil {
		t.Error(err)
	}
	if _, err := new(Schema).DecodePart(good); !errors.Is(err, ErrSchema) {
		t.Errorf("no fields: %v", err)
	}
}

func TestPartRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genSchema(true).Draw(t, "schema")
		b, err := NewPartBuilder(s)
		if err != nil {
			t.Fatal(err)
		}
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [][]byte {
			cells := make([][]byte, len(s.Fields))
			for f, field := range s.Fields {
				n := int(field.Type.Size())
				switch field.Type {
				case Str:
					cells[f] = rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "text")
				case Bool:
					cells[f] = []byte{rapid.ByteRange(0, 1).Draw(t, "bool")}
				default:
					cells[f] = rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "cell")
				}
			}
			return cells
		}), 0, 10).Draw(t, "rows")
		for _, cells := range rows {
			if err := b.Append(cells); err != nil {
				t.Fatal(err)
			}
		}
		r, err := s.DecodePart(b.Finish())
		if err != nil {
			t.Fatal(err)
		}
		if r.Len() != len(rows) {
			t.Fatalf("%d rows, want %d", r.Len(), len(rows))
		}
		for i, cells := range rows {
			for f, want := range cells {
				got := r.Cell(i, f)
				if s.Fields[f].Type == Str {
					got = r.Text(i, f)
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("row %d field %d: %x, want %x", i, f, got, want)
				}
			}
		}
	})
}

func TestBuilderErrors(t *testing.T) {
	b, err := NewPartBuilder(mustParse(t, "n:u16,ok:bool"))
	if err != nil {
		t.Fatal(err)
	}
	for _, cells := range [][][]byte{{{1, 2}}, {{1}, {1}}, {{1, 2}, {2}}} {
		if err := b.Append(cells); !errors.Is(err, ErrArgument) {
			t.Errorf("%v: %v", cells, err)
		}
	}
	if err := b.AppendStrings("x", "true"); !errors.Is(err, ErrArgument) || b.Len() != 0 {
		t.Errorf("%v, %d rows", err, b.Len())
	}
	if err := b.AppendStrings("1"); !errors.Is(err, ErrArgument) {
		t.Error(err)
	}
}

func TestMerge(t *testing.T) {
	s := mustParse(t, "host:str:key,code:i16:key,hits:u64:sum,least:f32:min,most:i64:max,last:str:max,from:u8:count")
	a := mustRows(t, s, "b|1|5|1.5|-7|x|9", "a|-1|1|2|3|y|9")
	b := mustRows(t, s, "a|-1|10|-2|4|z|9", "b|1|1|1|-8|w|9", "a|-2|7|0|0||9")
	want := []string{"a|-2|7|0|0||1", "a|-1|11|-2|4|z|2", "b|1|6|1|-7|x|2"}
	for _, parts := range [][]Rows{{a, b}, {b, a}, {a, {}, b}} {
		got, err := Merge(s, parts...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, allStrings(got)); diff != "" {
			t.Error(diff)
		}
		if _, err := s.DecodePart(got.Part()); err != nil {
			t.Error(err)
		}
	}
	apart := mustParse(t, "n:u8")
	got, err := Merge(apart, mustRows(t, apart, "3", "1"), mustRows(t, apart, "2"))
	if diff := cmp.Diff([]string{"3", "1", "2"}, allStrings(got)); diff != "" || err != nil {
		t.Error(diff, err)
	}
	total := mustParse(t, "n:u8:sum")
	got, err = Merge(total, mustRows(t, total, "3", "1"), mustRows(t, total, "2"))
	if diff := cmp.Diff([]string{"6"}, allStrings(got)); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if got, err = Merge(total); err != nil || got.Len() != 0 {
		t.Error(got.Len(), err)
	}
}

func TestMergeOverflow(t *testing.T) {
	tests := []struct{ typ, a, b, want string }{
		{"u8", "255", "1", "too large for a u8"},
		{"u64", "18446744073709551615", "1", "too large for a u64"},
		{"i8", "127", "1", "too large for an i8"},
		{"i8", "-128", "-1", "too large for an i8"},
		{"i64", "9223372036854775807", "1", "too large for an i64"},
		{"i64", "-9223372036854775808", "-1", "too large for an i64"},
		{"u8", "254", "1", ""},
		{"i64", "-9223372036854775808", "9223372036854775807", ""},
		{"i64", "0", "0", ""},
		{"i8", "-127", "-1", ""},
	}
	for _, tt := range tests {
		s := mustParse(t, "k:str:key,n:"+tt.typ+":sum")
		_, err := Merge(s, mustRows(t, s, "x|"+tt.a, "x|"+tt.b))
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrMerge) || !strings.Contains(err.Error(), "n (k x): ") || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	count := mustParse(t, "k:u8:key,n:i8:count")
	rows := mustRows(t, count, strings.Split(strings.Repeat("1|0 ", 128)[:128*4-1], " ")...)
	if _, err := Merge(count, rows); !errors.Is(err, ErrMerge) || !strings.Contains(err.Error(), "a count of 128") {
		t.Error(err)
	}
	m, _ := NewMerger(count)
	m.limit = 1
	if err := m.Add(mustRows(t, count, "1|0", "2|0")); !errors.Is(err, ErrMerge) || !strings.Contains(err.Error(), "more than 1 groups") {
		t.Error(err)
	}
	if _, err := m.Rows(); err == nil {
		t.Error("a merger that failed gave rows")
	}
	m, _ = NewMerger(count)
	m.bytes = MaxPartBytes - 8
	if err := m.Add(mustRows(t, count, "1|0", "1|0")); err != nil {
		t.Error(err)
	}
	if err := m.Add(mustRows(t, count, "2|0")); !errors.Is(err, ErrMerge) || !strings.Contains(err.Error(), "the groups take more than") {
		t.Error(err)
	}
	if _, err := Merge(count, mustRows(t, mustParse(t, "n:u8"), "1")); !errors.Is(err, ErrMerge) {
		t.Error(err)
	}
}

func TestMergeFloatKeys(t *testing.T) {
	s := mustParse(t, "k:f64:key,n:u8:sum")
	negativeZero := make([]byte, 8)
	binary.LittleEndian.PutUint64(negativeZero, math.Float64bits(math.Copysign(0, -1)))
	b, _ := NewPartBuilder(s)
	if err := b.Append([][]byte{negativeZero, {1}}); err != nil {
		t.Fatal(err)
	}
	got, err := Merge(s, b.Rows(), mustRows(t, s, "0|1", "NaN|1", "NaN|1", "-Inf|1"))
	if diff := cmp.Diff([]string{"NaN|2", "-Inf|1", "0|2"}, allStrings(got)); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// TestMergeOrder checks that the result does not depend on where rows came from.
func TestMergeOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &Schema{Fields: []Field{{Name: "k", Type: I8, Merge: MergeKey}, {Name: "s", Type: I64, Merge: MergeSum},
			{Name: "t", Type: Str, Merge: MergeMin}, {Name: "c", Type: U32, Merge: MergeCount}}}
		type row struct {
			k, s int8
			t    string
		}
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) row {
			return row{rapid.Int8Range(-3, 3).Draw(t, "k"), rapid.Int8().Draw(t, "s"), rapid.StringN(0, 3, -1).Draw(t, "t")}
		}), 0, 30).Draw(t, "rows")
		merge := func(seed uint64) []string {
			rng := rand.New(rand.NewPCG(seed, 0))
			m, _ := NewMerger(s)
			for _, i := range rng.Perm(len(rows)) {
				b, _ := NewPartBuilder(s)
				if err := b.Append([][]byte{{byte(rows[i].k)}, binary.LittleEndian.AppendUint64(nil, uint64(int64(rows[i].s))), []byte(rows[i].t), make([]byte, 4)}); err != nil {
					t.Fatal(err)
				}
				if err := m.Add(b.Rows()); err != nil {
					t.Fatal(err)
				}
			}
			r, err := m.Rows()
			if err != nil {
				t.Fatal(err)
			}
			return allStrings(r)
		}
		if diff := cmp.Diff(merge(1), merge(2)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzDecodePart(f *testing.F) {
	schemas := []string{"n:u16,name:str", "a:bool,b:bytes3", "k:str:key,t:str:min,f:f64:max", "x:i8:sum"}
	f.Add(uint8(0), partOf(mustRows(f, mustParse(f, schemas[0]), "7|ab", "8|c")))
	f.Add(uint8(1), partOf(mustRows(f, mustParse(f, schemas[1]), "true|010203")))
	f.Add(uint8(2), partOf(mustRows(f, mustParse(f, schemas[2]), "a|b|1", "|x|2")))
	f.Fuzz(func(t *testing.T, which uint8, part []byte) {
		s := mustParse(t, schemas[int(which)%len(schemas)])
		r, err := s.DecodePart(part)
		if err != nil {
			if !errors.Is(err, ErrPart) {
				t.Fatal(err)
			}
			return
		}
		allStrings(r)
		merged, err := Merge(s, r)
		if err != nil {
			if !errors.Is(err, ErrMerge) {
				t.Fatal(err)
			}
			return
		}
		if _, err := s.DecodePart(merged.Part()); err != nil {
			t.Fatalf("merged: %v", err)
		}
	})
}

// TestFieldOfAnotherType: a field read as what it is not is named with its type and the right method, and gives no
// number that only looks like one.
func TestFieldOfAnotherType(t *testing.T) {
	s := mustParse(t, "name:str,n:u64,f:f64,ok:bool,id:bytes2")
	r := mustRows(t, s, "x|7|1.5|true|0a0b")
	for _, c := range []struct {
		name string
		typ  Type
		says string // "": it is of this type
	}{
		{"name", Str, ""}, {"n", U64, ""}, {"id", BytesType(2), ""},
		{"nam", Str, `the rows have no field "nam"; did you mean "name"?`},
		{"n", U32, "field n is of type u64, not u32: read it with Uint"},
		{"f", U64, "field f is of type f64, not u64: read it with Float"},
		{"name", U64, "field name is of type str, not u64: read it with Text"},
		{"id", Str, "field id is of type bytes2, not str: read it with Cell"},
	} {
		f, err := r.Field(c.name, c.typ)
		if c.says == "" && (err != nil || f != s.Index(c.name)) || c.says != "" && (!errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s as %s: %d, %v, want %q", c.name, c.typ, f, err, c.says)
		}
	}
	for says, read := range map[string]func(){
		"Rows.Uint of field name, which is of type str: read it with Text":   func() { r.Uint(0, 0) },
		"Rows.Uint of field f, which is of type f64: read it with Float":     func() { r.Uint(0, 2) },
		"Rows.Float of field id, which is of type bytes2: read it with Cell": func() { r.Float(0, 4) },
		"Rows.Float of field n, which is of type u64: read it with Uint":     func() { r.Float(0, 1) },
		"Rows.Float of field ok, which is of type bool: read it with Uint":   func() { r.Float(0, 3) },
		"Rows.Text of field n, which is of type u64: read it with Uint":      func() { r.Text(0, 1) },
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, says) {
					t.Errorf("it says %q, want %q", got, says)
				}
			}()
			read()
		}()
	}
	if got := r.Float(0, 2); got != 1.5 {
		t.Errorf("Float of 1.5 is %v", got)
	}
	if _, err := (&Rows{}).Field("n", U64); !errors.Is(err, ErrArgument) {
		t.Errorf("of no rows: %v", err)
	}
}
