package cluster

import (
	"encoding/binary"

	"github.com/wherry-fabric/wherry/column"
)

// versionOf is the version of the encoding that a table has.
func versionOf(t *Table) uint16 {
	switch {
	case t.Kind == Columns:
		return columnsVersion
	case t.File() >= 0:
		return fileVersion
	}
	return tableVersion
}

func appendColumns(b []byte, t *Table) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(t.Columns)))
	for _, c := range t.Columns {
		b = appendText(b, c.Name)
		b = appendText(b, c.Type.String())
		nullable := byte(0)
		if c.Nullable {
			nullable = 1
		}
		b = append(b, nullable)
	}
	return b
}

// appendParts leaves out how many there are, which the windows say.
func appendParts(b []byte, parts []Part) []byte {
	for _, p := range parts {
		b = binary.LittleEndian.AppendUint64(b, p.Rows)
		b = binary.LittleEndian.AppendUint32(b, p.Chunks)
	}
	return b
}

// shortType is more than the text of a type has that is no list or struct; those, which take long to read, are bounded together.
const shortType = 32 + column.MaxZoneBytes

func (d *decoder) columns() (out column.Schema) {
	n := int(d.u16())
	if n > column.MaxColumns {
		d.fail("%d columns, at most %d are allowed", n, column.MaxColumns)
	}
	texts := 0
	for range n {
		c := column.Column{Name: d.text(column.MaxNameBytes)}
		text := d.text(column.MaxTypeBytes)
		nullable := d.u8()
		if texts += len(text); texts > column.MaxTypesBytes+n*shortType {
			d.fail("more than %d bytes of the texts of types", column.MaxTypesBytes)
		}
		if d.err != nil {
			return out
		}
		var err error
		if c.Type, err = column.Parse(text); err != nil || c.Type.String() != text || nullable > 1 {
			d.fail("column %q of type %q, flags %#x: %v", c.Name, text, nullable, err)
			return out
		}
		c.Nullable = nullable == 1
		out = append(out, c)
	}
	return out
}

func (d *decoder) parts(windows int) (out []Part) {
	for range windows / PartWindows {
		out = append(out, Part{Rows: d.u64(), Chunks: d.u32()})
	}
	return out
}
