package image

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/wherry-fabric/wherry/schema"
)

// fuzzSchemas are results with and without text, of sizes that are and are not
// multiples of a part's alignment.
func fuzzSchemas() []*schema.Schema {
	return []*schema.Schema{
		{Fields: []schema.Field{{Name: "vertex", Type: schema.U32}}},
		{Fields: []schema.Field{{Name: "ok", Type: schema.Bool}, {Name: "n", Type: schema.U64}, {Name: "id", Type: schema.BytesType(3)}}},
		{Fields: []schema.Field{{Name: "key", Type: schema.Str}, {Name: "n", Type: schema.U16}, {Name: "other", Type: schema.Str}}},
	}
}

// FuzzDecodeResult reads bytes as results of all forms. What is taken has as many
// rows as the bytes have records, and each record's fields and text are those of the bytes.
func FuzzDecodeResult(f *testing.F) {
	text := append(make([]byte, 20), "abc"...)
	binary.LittleEndian.PutUint32(text, 20)
	binary.LittleEndian.PutUint32(text[4:], 3)
	binary.LittleEndian.PutUint32(text[12:], 21)
	binary.LittleEndian.PutUint32(text[16:], 1)
	for which := range byte(3) {
		for _, b := range [][]byte{nil, {1, 0, 0, 0}, make([]byte, 8), make([]byte, 24), make([]byte, 48), text, bytes.Repeat([]byte{0xff}, 20), text[:19]} {
			f.Add(which, b)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		s := fuzzSchemas()[int(which)%3]
		layout, err := s.Layout()
		if err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(b)
		for _, form := range []ResultForm{ResultRecord, ResultList, ResultRows, ResultRaw, "nonsense"} {
			if form == ResultList && layout.HasStr {
				continue // Build refuses that
			}
			m, err := newCall(&Manifest{Name: "f", Result: s, ResultForm: form})
			if err != nil {
				t.Fatal(err)
			}
			rows, err := m.DecodeResult(b)
			if !bytes.Equal(b, before) {
				t.Fatal("it has changed the bytes")
			}
			if err != nil {
				continue
			}
			size := int(layout.Size)
			switch form {
			case ResultRecord:
				checkRecord(t, s, layout, rows, b)
			case ResultList:
				if rows.Len() != len(b)/size || len(b)%size != 0 {
					t.Fatalf("%d rows of %d bytes, %d each", rows.Len(), len(b), size)
				}
				for i := range rows.Len() {
					if !bytes.Equal(rows.Record(i), b[i*size:(i+1)*size]) {
						t.Fatalf("row %d is %x", i, rows.Record(i))
					}
				}
			case ResultRows:
			default:
				if len(b) > 0 {
					t.Fatalf("form %q was read", form)
				}
			}
			for i := range rows.Len() {
				rows.Strings(i)
			}
		}
	})
}

// checkRecord compares the only row with the record that it was made of.
func checkRecord(t *testing.T, s *schema.Schema, layout schema.Layout, rows schema.Rows, b []byte) {
	t.Helper()
	if len(b) == 0 {
		if rows.Len() != 0 {
			t.Fatal("a row of nothing")
		}
		return
	}
	if rows.Len() != 1 {
		t.Fatalf("a record is %d rows", rows.Len())
	}
	for i, field := range s.Fields {
		cell := b[layout.Offsets[i]:]
		if field.Type != schema.Str {
			if want := cell[:field.Type.Size()]; !bytes.Equal(rows.Cell(0, i), want) {
				t.Fatalf("%s is %x, not %x", field.Name, rows.Cell(0, i), want)
			}
			continue
		}
		at, n := binary.LittleEndian.Uint32(cell), binary.LittleEndian.Uint32(cell[4:])
		if n == 0 {
			at = 0
		}
		if want := b[at : at+n]; !bytes.Equal(rows.Text(0, i), want) {
			t.Fatalf("%s is %q, not %q", field.Name, rows.Text(0, i), want)
		}
	}
}
