package schema

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrPart says that bytes are not an encoded result part; the message says where.
var ErrPart = errors.New("schema: not a result part")

const (
	// PartHeadBytes is a part's header: u32 number of rows, u32 zero.
	PartHeadBytes = 8
	// PartAlign is the alignment of every record in a part.
	PartAlign = 8
	// MaxPartBytes bounds a part: a row refers to its text with 32 bits.
	MaxPartBytes = math.MaxUint32
)

// Rows are the rows of one result part. They refer to the part's bytes, which
// must not change while the Rows are in use. The zero value has no rows.
type Rows struct {
	schema *Schema
	layout Layout
	stride int
	part   []byte
	n      int
}

// stride is the distance of records in a part.
func (l Layout) stride() int { return int(roundUp(l.Size, PartAlign)) }

// DecodePart reads a result part: the header, the records, each at a multiple
// of 8, and the text they refer to by offset from the part's first byte. It
// checks everything a reader of the rows relies on: sizes, that text lies in the
// text's place, bools.
func (s *Schema) DecodePart(part []byte) (Rows, error) {
	c, err := s.CheckedResult()
	if err != nil {
		return Rows{}, err
	}
	return c.DecodePart(part)
}

// DecodePart is Schema.DecodePart, of result rows that were checked.
func (c *Checked) DecodePart(part []byte) (Rows, error) {
	r := Rows{schema: c.schema, layout: c.layout, part: part}
	r.stride = r.layout.stride()
	if len(part) < PartHeadBytes {
		return Rows{}, fmt.Errorf("%w: %d bytes, its header alone has %d", ErrPart, len(part), PartHeadBytes)
	}
	if uint64(len(part)) > MaxPartBytes {
		return Rows{}, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrPart, len(part), uint64(MaxPartBytes))
	}
	n := uint64(binary.LittleEndian.Uint32(part))
	if zero := binary.LittleEndian.Uint32(part[4:]); zero != 0 {
		return Rows{}, fmt.Errorf("%w: its second word is %#x, not zero", ErrPart, zero)
	}
	records := n * uint64(r.stride)
	if room := uint64(len(part) - PartHeadBytes); records > room {
		return Rows{}, fmt.Errorf("%w: %d rows of %d bytes need %d bytes, it has %d", ErrPart, n, r.stride, records, room)
	}
	r.n = int(n)
	heap := PartHeadBytes + r.n*r.stride
	if !r.layout.HasStr && heap != len(part) {
		return Rows{}, fmt.Errorf("%w: %d bytes follow its %d rows, which have no text", ErrPart, len(part)-heap, n)
	}
	if err := r.checkCells(uint64(heap)); err != nil {
		return Rows{}, err
	}
	return r, nil
}

// checkCells checks what not every bit pattern is valid for.
func (r *Rows) checkCells(heap uint64) error {
	for f, field := range r.schema.Fields {
		if field.Type != Str && field.Type != Bool {
			continue
		}
		for i := range r.n {
			cell := r.Cell(i, f)
			if field.Type == Bool {
				if cell[0] > 1 {
					return fmt.Errorf("%w: row %d: %s is %d, a bool is 0 or 1", ErrPart, i, field.Name, cell[0])
				}
				continue
			}
			at, n := strRef(cell)
			if n != 0 && (at < heap || at+n > uint64(len(r.part))) {
				return fmt.Errorf("%w: row %d: %s is text at %d to %d, outside of the part's text at %d to %d",
					ErrPart, i, field.Name, at, at+n, heap, len(r.part))
			}
		}
	}
	return nil
}

// strRef reads a Str cell.
func strRef(cell []byte) (offset, length uint64) {
	return uint64(binary.LittleEndian.Uint32(cell)), uint64(binary.LittleEndian.Uint32(cell[4:]))
}

// Len is the number of rows.
func (r *Rows) Len() int { return r.n }

// Schema is what the rows were decoded with; nil for zero Rows.
func (r *Rows) Schema() *Schema { return r.schema }

// Part is the part that the rows were decoded from.
func (r *Rows) Part() []byte { return r.part }

// Record is row i as a record; its Str fields refer to Part.
func (r *Rows) Record(i int) []byte {
	at := PartHeadBytes + i*r.stride
	return r.part[at : at+int(r.layout.Size)]
}

// Field is the number of the field called name, for the methods that take one. It is an error
// if there is none, or if it has another type: Uint of text would be an offset, not a number.
func (r *Rows) Field(name string, t Type) (int, error) {
	if r.schema == nil {
		return 0, fmt.Errorf("%w: there is no field %q: these rows were not decoded", ErrArgument, name)
	}
	f := r.schema.Index(name)
	if f < 0 {
		return 0, fmt.Errorf("%w: the rows have no field %q; %s", ErrArgument, clip(name), Suggest(name, r.schema.Names()))
	}
	if has := r.schema.Fields[f].Type; has != t {
		return 0, fmt.Errorf("%w: field %s is of type %s, not %s: read it with %s", ErrArgument, name, has, t, has.accessor())
	}
	return f, nil
}

// accessor is the method of Rows that reads a field of this type.
func (t Type) accessor() string {
	switch {
	case t == Str:
		return "Text"
	case t.IsFloat():
		return "Float"
	case t.IsInteger() || t == Bool:
		return "Uint"
	}
	return "Cell"
}

// must panics if field f is read with a method that its type has not: what it would give is no value of the field.
func (r *Rows) must(ok bool, f int, method string) {
	if !ok {
		field := &r.schema.Fields[f]
		panic(fmt.Sprintf("schema: Rows.%s of field %s, which is of type %s: read it with %s", method, field.Name, field.Type, field.Type.accessor()))
	}
}

// Cell is the record's bytes of field f in row i.
func (r *Rows) Cell(i, f int) []byte {
	at := PartHeadBytes + i*r.stride + int(r.layout.Offsets[f])
	return r.part[at : at+r.layout.Codecs[f].Size()]
}

// Text is the text of field f in row i. It panics if the field is not of type Str; AppendCell gives any value as text.
func (r *Rows) Text(i, f int) []byte {
	r.must(r.layout.Codecs[f].IsStr(), f, "Text")
	at, n := strRef(r.Cell(i, f))
	if n == 0 {
		return nil
	}
	return r.part[at : at+n]
}

// Uint is integer or bool field f in row i, sign-extended if it is signed. It panics if the field is of another type.
func (r *Rows) Uint(i, f int) uint64 {
	c := &r.layout.Codecs[f]
	r.must(c.integer() || c.code == codeBool, f, "Uint")
	if r.layout.Codecs[f].signed() {
		return uint64(getInt(r.Cell(i, f)))
	}
	return getUint(r.Cell(i, f))
}

// Float is float field f in row i. It panics if the field is of another type: many integers of more than 53 bits are no float, so
// only Uint reads an integer.
func (r *Rows) Float(i, f int) float64 {
	c := &r.layout.Codecs[f]
	r.must(c.float(), f, "Float")
	return getFloat(r.Cell(i, f))
}

// AppendCell appends field f of row i as text, as Type.AppendText does.
func (r *Rows) AppendCell(dst []byte, i, f int) []byte {
	if c := r.layout.Codecs[f]; !c.IsStr() {
		return c.AppendText(dst, r.Cell(i, f))
	}
	return append(dst, r.Text(i, f)...)
}

// Strings is row i as text, for tests and small results.
func (r *Rows) Strings(i int) []string {
	out := make([]string, len(r.schema.Fields))
	for f := range out {
		out[f] = string(r.AppendCell(nil, i, f))
	}
	return out
}

func getFloat(cell []byte) float64 {
	if len(cell) == 4 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(cell)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(cell))
}

// PartBuilder encodes a result part row by row.
type PartBuilder struct {
	schema  *Schema
	layout  Layout
	stride  int
	records []byte
	heap    []byte
}

// NewPartBuilder starts an empty part.
func NewPartBuilder(s *Schema) (*PartBuilder, error) {
	c, err := s.CheckedResult()
	if err != nil {
		return nil, err
	}
	return c.builder(), nil
}

func (c *Checked) builder() *PartBuilder {
	return &PartBuilder{schema: c.schema, layout: c.layout, stride: c.layout.stride()}
}

// Append adds a row: cells holds each field's bytes as in a record, a Str
// field's text itself. The cells are copied.
func (b *PartBuilder) Append(cells [][]byte) error {
	if len(cells) != len(b.schema.Fields) {
		return fmt.Errorf("%w: a row with %d cells, want %d", ErrArgument, len(cells), len(b.schema.Fields))
	}
	text := 0
	for f, c := range b.layout.Codecs {
		switch {
		case c.IsStr():
			text += len(cells[f])
		case len(cells[f]) != c.Size():
			return fmt.Errorf("%w: %s: %d bytes, a %s has %d", ErrArgument, b.schema.Fields[f].Name, len(cells[f]), c.typ, c.Size())
		case c.code == codeBool && cells[f][0] > 1:
			return fmt.Errorf("%w: %s: %d, a bool is 0 or 1", ErrArgument, b.schema.Fields[f].Name, cells[f][0])
		}
	}
	if uint64(PartHeadBytes+len(b.records)+b.stride+len(b.heap)+text) > MaxPartBytes {
		return fmt.Errorf("%w: the part would have more than %d bytes", ErrArgument, uint64(MaxPartBytes))
	}
	at := len(b.records)
	b.records = append(b.records, make([]byte, b.stride)...)
	record := b.records[at:]
	for f, c := range b.layout.Codecs {
		cell := record[b.layout.Offsets[f]:]
		if !c.IsStr() {
			copy(cell, cells[f])
			continue
		}
		// Relative to the heap until Finish knows where the heap starts.
		binary.LittleEndian.PutUint32(cell, uint32(len(b.heap)))
		binary.LittleEndian.PutUint32(cell[4:], uint32(len(cells[f])))
		b.heap = append(b.heap, cells[f]...)
	}
	return nil
}

// AppendStrings adds a row given as text, one value per field.
func (b *PartBuilder) AppendStrings(values ...string) error {
	if len(values) != len(b.schema.Fields) {
		return fmt.Errorf("%w: a row with %d values, want %d", ErrArgument, len(values), len(b.schema.Fields))
	}
	cells := make([][]byte, len(values))
	for f, field := range b.schema.Fields {
		if field.Type == Str {
			cells[f] = []byte(values[f])
			continue
		}
		cells[f] = make([]byte, field.Type.Size())
		if err := field.Type.PutText(cells[f], []byte(values[f])); err != nil {
			return fmt.Errorf("%s: %w", field.Name, err)
		}
	}
	return b.Append(cells)
}

// Len is the number of rows so far.
func (b *PartBuilder) Len() int { return len(b.records) / b.stride }

// Finish returns the encoded part. The builder is empty afterwards.
func (b *PartBuilder) Finish() []byte {
	n := b.Len()
	part := make([]byte, PartHeadBytes, PartHeadBytes+len(b.records)+len(b.heap))
	binary.LittleEndian.PutUint32(part, uint32(n))
	heap := uint32(PartHeadBytes + len(b.records))
	for f, field := range b.schema.Fields {
		if field.Type != Str {
			continue
		}
		for i := range n {
			cell := b.records[i*b.stride+int(b.layout.Offsets[f]):]
			binary.LittleEndian.PutUint32(cell, binary.LittleEndian.Uint32(cell)+heap)
		}
	}
	part = append(part, b.records...)
	part = append(part, b.heap...)
	b.records, b.heap = nil, nil
	return part
}

// Rows is Finish, decoded.
func (b *PartBuilder) Rows() Rows {
	n, part := b.Len(), b.Finish()
	return Rows{schema: b.schema, layout: b.layout, stride: b.stride, part: part, n: n}
}
