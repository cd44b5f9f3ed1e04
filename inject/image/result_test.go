package image

import (
	"errors"
	"slices"
	"testing"

	"github.com/wherry-fabric/wherry/schema"
)

func TestDecodeResult(t *testing.T) {
	vertex := &schema.Schema{Fields: []schema.Field{{Name: "vertex", Type: schema.U32}}}
	named := &schema.Schema{Fields: []schema.Field{{Name: "a", Type: schema.Str}, {Name: "n", Type: schema.U8}, {Name: "b", Type: schema.Str}}}
	for name, tc := range map[string]struct {
		form   ResultForm
		schema *schema.Schema
		part   string
		want   [][]string // nil: ErrResult or schema.ErrPart
	}{
		"list":          {ResultList, vertex, "\x01\x00\x00\x00\x02\x01\x00\x00", [][]string{{"1"}, {"258"}}},
		"list of 5":     {ResultList, vertex, "\x01\x00\x00\x00\x02", nil},
		"empty list":    {ResultList, vertex, "", [][]string{}},
		"rows":          {ResultRows, vertex, "\x01\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00", [][]string{{"7"}}},
		"empty rows":    {ResultRows, vertex, "", [][]string{}},
		"rows cut":      {ResultRows, vertex, "\x01\x00\x00\x00\x00\x00\x00\x00\x07", nil},
		"record":        {ResultRecord, vertex, "\x09\x00\x00\x00", [][]string{{"9"}}},
		"record cut":    {ResultRecord, vertex, "\x09\x00\x00", nil},
		"record longer": {ResultRecord, vertex, "\x09\x00\x00\x00\x00", nil},
		"record text": {ResultRecord, named,
			"\x14\x00\x00\x00\x02\x00\x00\x00\x05\x00\x00\x00\x16\x00\x00\x00\x01\x00\x00\x00hi!", [][]string{{"hi", "5", "!"}}},
		"record no text": {ResultRecord, named,
			"\x00\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", [][]string{{"", "5", ""}}},
		"record text outside": {ResultRecord, named,
			"\x14\x00\x00\x00\x04\x00\x00\x00\x05\x00\x00\x00\x16\x00\x00\x00\x01\x00\x00\x00hi!", nil},
		"record text inside": {ResultRecord, named,
			"\x00\x00\x00\x00\x04\x00\x00\x00\x05\x00\x00\x00\x16\x00\x00\x00\x01\x00\x00\x00hi!", nil},
		"raw": {ResultRaw, nil, "x", nil},
	} {
		m, err := newCall(&Manifest{Name: "f", Result: tc.schema, ResultForm: tc.form})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := m.DecodeResult([]byte(tc.part))
		if tc.want == nil {
			if !errors.Is(err, ErrResult) && !errors.Is(err, schema.ErrPart) {
				t.Errorf("%s: %v, want an error", name, err)
			}
			continue
		}
		got := [][]string{}
		for i := range rows.Len() {
			got = append(got, rows.Strings(i))
		}
		if err != nil || !slices.EqualFunc(got, tc.want, slices.Equal[[]string]) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, tc.want)
		}
	}
}
