package schema

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// MaxGroups bounds the groups that a Merger keeps in memory.
const MaxGroups = 16 << 20

// ErrMerge says that rows cannot be combined; the message says which field and why.
var ErrMerge = errors.New("schema: cannot merge")

// Merger combines the rows of several elements as their fields' Merge says.
// Rows without merges are kept apart, in the order they were added; merged rows
// come out sorted by their keys, whatever order they were added in. (The one exception is
// the last bits of a float sum, which depend on the order.) One goroutine uses it.
type Merger struct {
	schema *Schema
	merged bool
	build  *PartBuilder // of rows that stay apart

	codecs       []Codec
	keys, values []int // fields
	byKey        map[string]*group
	limit        int
	bytes        uint64 // that the groups take as rows
	scratch      []byte
	err          error
}

type group struct {
	cells [][]byte // one per field; a Str field's text
	rows  uint64
}

// NewMerger starts with no rows.
func NewMerger(s *Schema) (*Merger, error) {
	c, err := s.CheckedResult()
	if err != nil {
		return nil, err
	}
	return c.merger(), nil
}

func (c *Checked) merger() *Merger {
	s, b := c.schema, c.builder()
	m := &Merger{schema: s, merged: s.Merges(), build: b, codecs: b.layout.Codecs, byKey: map[string]*group{}, limit: MaxGroups}
	for i, f := range s.Fields {
		if f.Merge == MergeKey {
			m.keys = append(m.keys, i)
		} else {
			m.values = append(m.values, i)
		}
	}
	return m
}

// Add takes rows in. They are copied. After an error the merger is of no more use.
func (m *Merger) Add(r Rows) error {
	if m.err != nil || r.schema == nil {
		return m.err
	}
	if r.schema != m.schema && r.schema.String() != m.schema.String() {
		return fmt.Errorf("%w: rows of %s with rows of %s", ErrMerge, r.schema, m.schema)
	}
	cells := make([][]byte, len(m.schema.Fields))
	for i := range r.n {
		for f, c := range m.codecs {
			if c.IsStr() {
				cells[f] = r.Text(i, f)
			} else {
				cells[f] = r.Cell(i, f)
			}
		}
		if m.merged {
			m.err = m.addRow(cells)
		} else {
			m.err = m.build.Append(cells)
		}
		if m.err != nil {
			return m.err
		}
	}
	return nil
}

func (m *Merger) addRow(cells [][]byte) error {
	m.scratch = m.scratch[:0]
	for _, f := range m.keys {
		if m.codecs[f].IsStr() {
			m.scratch = binary.LittleEndian.AppendUint32(m.scratch, uint32(len(cells[f])))
		}
		m.scratch = append(m.scratch, canonical(m.codecs[f], cells[f])...)
	}
	g := m.byKey[string(m.scratch)]
	if g == nil {
		if len(m.byKey) >= m.limit {
			return fmt.Errorf("%w: more than %d groups; let the function keep fewer keys", ErrMerge, m.limit)
		}
		if err := m.account(cells); err != nil {
			return err
		}
		g = &group{cells: make([][]byte, len(cells)), rows: 1}
		for f := range cells {
			g.cells[f] = bytes.Clone(cells[f])
		}
		for _, f := range m.keys {
			g.cells[f] = bytes.Clone(canonical(m.codecs[f], cells[f]))
		}
		m.byKey[string(m.scratch)] = g
		return nil
	}
	g.rows++
	for _, f := range m.values {
		if err := combine(m.schema.Fields[f].Merge, m.codecs[f], &g.cells[f], cells[f]); err != nil {
			return fmt.Errorf("%w: %s%s: %w", ErrMerge, m.schema.Fields[f].Name, m.describe(cells), err)
		}
	}
	return nil
}

// account charges a new group: what could not be returned in the end is not gathered.
func (m *Merger) account(cells [][]byte) error {
	m.bytes += uint64(m.build.stride)
	for f, c := range m.codecs {
		if c.IsStr() {
			m.bytes += uint64(len(cells[f]))
		}
	}
	if m.bytes > MaxPartBytes {
		return fmt.Errorf("%w: the groups take more than %d bytes; let the function keep fewer keys", ErrMerge, uint64(MaxPartBytes))
	}
	return nil
}

// canonical makes keys that compare equal have equal bytes: the two zeros of a
// float, and all NaNs.
func canonical(c Codec, cell []byte) []byte {
	if !c.float() {
		return cell
	}
	v := getFloat(cell)
	if v == 0 {
		return make([]byte, len(cell))
	}
	if math.IsNaN(v) {
		return bytes.Repeat([]byte{0xff}, len(cell))
	}
	return cell
}

// describe names the group of a row, for messages.
func (m *Merger) describe(cells [][]byte) string {
	out := ""
	for _, f := range m.keys {
		text := string(cells[f])
		if t := m.schema.Fields[f].Type; t != Str {
			text = string(t.AppendText(nil, cells[f]))
		}
		out += fmt.Sprintf(" (%s %s)", m.schema.Fields[f].Name, clip(text))
	}
	return out
}

// combine merges one more cell into acc.
func combine(merge string, c Codec, acc *[]byte, cell []byte) error {
	switch merge {
	case MergeSum:
		return addCell(c, *acc, cell)
	case MergeMin:
		if compareCells(c, cell, *acc) < 0 {
			*acc = append((*acc)[:0], cell...)
		}
	case MergeMax:
		if compareCells(c, cell, *acc) > 0 {
			*acc = append((*acc)[:0], cell...)
		}
	}
	return nil
}

func addCell(c Codec, acc, cell []byte) error {
	switch {
	case c.code == codeF32:
		v := math.Float32frombits(binary.LittleEndian.Uint32(acc)) + math.Float32frombits(binary.LittleEndian.Uint32(cell))
		binary.LittleEndian.PutUint32(acc, math.Float32bits(v))
	case c.code == codeF64:
		binary.LittleEndian.PutUint64(acc, math.Float64bits(getFloat(acc)+getFloat(cell)))
	case c.signed():
		a, b := getInt(acc), getInt(cell)
		sum := a + b
		if (sum > a) != (b > 0) && b != 0 || sum<<(64-8*c.size)>>(64-8*c.size) != sum {
			return fmt.Errorf("the sum of %d and %d is too large for an %s; use a wider type", a, b, c.typ)
		}
		putUint(acc, uint64(sum))
	default:
		a, b := getUint(acc), getUint(cell)
		sum, carry := bits.Add64(a, b, 0)
		if carry != 0 || sum>>(8*c.size-1)>>1 != 0 {
			return fmt.Errorf("the sum of %d and %d is too large for a %s; use a wider type", a, b, c.typ)
		}
		putUint(acc, sum)
	}
	return nil
}

// compareCells orders two values of a type. NaN comes before every other float.
func compareCells(c Codec, a, b []byte) int {
	switch {
	case c.float():
		return cmp.Compare(getFloat(a), getFloat(b))
	case c.signed():
		return cmp.Compare(getInt(a), getInt(b))
	case c.integer():
		return cmp.Compare(getUint(a), getUint(b))
	default:
		return bytes.Compare(a, b)
	}
}

// Rows returns what was added, combined. The merger is empty afterwards.
func (m *Merger) Rows() (Rows, error) {
	if m.err != nil {
		return Rows{}, m.err
	}
	groups := make([]*group, 0, len(m.byKey))
	for _, g := range m.byKey {
		groups = append(groups, g)
	}
	clear(m.byKey)
	m.bytes = 0
	slices.SortFunc(groups, func(a, b *group) int {
		for _, f := range m.keys {
			if c := compareCells(m.codecs[f], a.cells[f], b.cells[f]); c != 0 {
				return c
			}
		}
		return 0
	})
	for _, g := range groups {
		if err := m.finish(g); err != nil {
			return Rows{}, err
		}
	}
	return m.build.Rows(), nil
}

// finish writes the group's counts and appends its row.
func (m *Merger) finish(g *group) error {
	for _, f := range m.values {
		field := &m.schema.Fields[f]
		if field.Merge != MergeCount {
			continue
		}
		unused := 64 - 8*field.Type.Size()
		if field.Type.IsSigned() {
			unused++
		}
		if g.rows > math.MaxUint64>>unused {
			return fmt.Errorf("%w: %s: a count of %d is too large for %s; use a wider type", ErrMerge, field.Name, g.rows, field.Type)
		}
		putUint(g.cells[f], g.rows)
	}
	return m.build.Append(g.cells)
}

// Merge combines the rows of several parts.
func Merge(s *Schema, parts ...Rows) (Rows, error) {
	c, err := s.CheckedResult()
	if err != nil {
		return Rows{}, err
	}
	return c.Merge(parts...)
}

// Merge is the package's Merge, of result rows that were checked.
func (c *Checked) Merge(parts ...Rows) (Rows, error) {
	m := c.merger()
	for _, p := range parts {
		if err := m.Add(p); err != nil {
			return Rows{}, err
		}
	}
	return m.Rows()
}
