package query

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/column/expr"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// ErrAnswer says that what an element answered is no answer to the query.
var ErrAnswer = errors.New("query: bad answer")

// Kinds of records in an answer.
const (
	recordRow = 1 + iota
	recordEnd
	wideBytes = 16 // a decimal, or a sum of integers
)

// Stats are what elements did.
type Stats struct {
	RowsRead      uint64 `json:"rows_read"`
	ChunksRead    uint64 `json:"chunks_read"`
	ChunksSkipped uint64 `json:"chunks_skipped"`
	BytesRead     uint64 `json:"bytes_read"` // of columns
}

// value is one value of the answer.
type value struct {
	there bool
	bits  uint64
	text  string // or the bytes of a decimal
}

// Merge puts answers together. One goroutine uses it.
type Merge struct {
	p     *Plan
	kinds []expr.Kind // of the answer's columns
	wide  []bool      // they come as 128 bits
	rows  [][]value
	Stats Stats
}

// Merge begins to put answers together.
func (p *Plan) Merge() *Merge {
	m := &Merge{p: p}
	columns := p.Columns()
	for i, o := range p.outputs() {
		kind := expr.KindOf(columns[i].Type)
		m.kinds = append(m.kinds, kind)
		m.wide = append(m.wide, kind == expr.Decimal || o.fn == fnSum && o.read == readSum && kind != expr.Float)
	}
	return m
}

// Add reads one element's answer.
func (m *Merge) Add(b []byte) error {
	d := &decoder{rest: b}
	for {
		switch kind := d.u8(); {
		case d.bad:
			return fmt.Errorf("%w: it is cut off after %d rows", ErrAnswer, len(m.rows))
		case kind == recordEnd:
			m.Stats.RowsRead += d.u64()
			m.Stats.ChunksRead += d.u64()
			m.Stats.ChunksSkipped += d.u64()
			m.Stats.BytesRead += d.u64()
			if d.bad || len(d.rest) > 0 {
				return fmt.Errorf("%w: %d bytes follow its end", ErrAnswer, len(d.rest))
			}
			return nil
		case kind == recordRow:
			if err := m.record(d); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: a record of kind %d", ErrAnswer, kind)
		}
	}
}

// decoder reads an answer until something is missing.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.bad, d.rest = true, nil
		return make([]byte, min(n, wideBytes))
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) u8() byte    { return d.take(1)[0] }
func (d *decoder) u64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

func (d *decoder) text() string {
	n := binary.LittleEndian.Uint32(d.take(4))
	if d.bad || uint64(n) > uint64(len(d.rest)) {
		d.bad, d.rest = true, nil
		return ""
	}
	return string(d.take(int(n)))
}

// record reads a row.
func (m *Merge) record(d *decoder) error {
	row := make([]value, len(m.kinds))
	for i, kind := range m.kinds {
		v := &row[i]
		if v.there = d.u8() != 0; !v.there {
			continue
		}
		switch {
		case kind == expr.Text || kind == expr.Raw:
			if v.text = d.text(); kind == expr.Text && !utf8.ValidString(v.text) {
				return fmt.Errorf("%w: text that is not UTF-8", ErrAnswer)
			}
		case m.wide[i]:
			v.text = string(d.take(wideBytes))
			v.bits = binary.LittleEndian.Uint64([]byte(v.text))
		default:
			v.bits = d.u64()
		}
		if m.wide[i] && !d.bad {
			if err := m.fits(i, v); err != nil {
				return err
			}
		}
	}
	if d.bad {
		return fmt.Errorf("%w: it is cut off after %d rows", ErrAnswer, len(m.rows))
	}
	m.rows = append(m.rows, row)
	return nil
}

// fits checks that a sum of 128 bits fits into its column.
func (m *Merge) fits(i int, v *value) error {
	high, sum := binary.LittleEndian.Uint64([]byte(v.text[8:])), new(big.Int)
	switch m.kinds[i] {
	case expr.Int:
		if int64(high) == int64(v.bits)>>63 {
			return nil
		}
		sum = wide(v.text)
	case expr.Uint: // the high half has no sign
		if high == 0 {
			return nil
		}
		sum.And(wide(v.text), maxWide)
	default:
		if sum = wide(v.text); sum.CmpAbs(maxDecimal) < 0 {
			return nil
		}
	}
	return fmt.Errorf("%w: %s is %v, which does not fit into %v: use sum(f64(…))", ErrQuery, m.p.outputs()[i].text, sum, m.p.Columns()[i].Type)
}

var (
	maxDecimal = new(big.Int).Exp(big.NewInt(10), big.NewInt(column.MaxPrecision), nil)
	maxWide    = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1))
)

// wide is a number of 128 bits with a sign.
func wide(b string) *big.Int {
	le := binary.LittleEndian
	high := big.NewInt(int64(le.Uint64([]byte(b[8:]))))
	return high.Add(high.Lsh(high, 64), new(big.Int).SetUint64(le.Uint64([]byte(b))))
}

// compare orders two values that are there; NaN is greater than all others.
func compare(k expr.Kind, a, b value) int {
	switch k {
	case expr.Text, expr.Raw:
		return strings.Compare(a.text, b.text)
	case expr.Decimal:
		return wide(a.text).Cmp(wide(b.text))
	case expr.Int:
		return cmp.Compare(int64(a.bits), int64(b.bits))
	case expr.Float:
		x, y := math.Float64frombits(a.bits), math.Float64frombits(b.bits)
		if math.IsNaN(x) || math.IsNaN(y) {
			return -cmp.Compare(x, y) // package cmp has it before all others
		}
		return cmp.Compare(x, y)
	}
	return cmp.Compare(a.bits, b.bits)
}

// Finish gives the answer: an array for each of the plan's columns.
func (m *Merge) Finish() ([]arrow.Array, int, error) {
	columns, rows := m.p.Columns(), m.rows
	m.rows = nil
	m.sort(rows)
	if l := m.p.query.Limit; l > 0 && l < uint64(len(rows)) {
		rows = rows[:l]
	}
	out := make([]arrow.Array, len(columns))
	for c := range columns {
		a, err := build(columns[c], rows, c)
		if err != nil {
			return nil, 0, err
		}
		out[c] = a
	}
	return out, len(rows), nil
}

// sort orders rows; missing values come last.
func (m *Merge) sort(rows [][]value) {
	if len(m.p.order) == 0 {
		return
	}
	slices.SortStableFunc(rows, func(a, b []value) int {
		for _, o := range m.p.order {
			x, y := a[o.column], b[o.column]
			switch {
			case !x.there && !y.there:
				continue
			case !x.there:
				return 1
			case !y.there:
				return -1
			}
			order := compare(m.kinds[o.column], x, y)
			if o.down {
				order = -order
			}
			if order != 0 {
				return order
			}
		}
		return 0
	})
}

// build makes a column of the answer.
func build(c column.Column, rows [][]value, i int) (arrow.Array, error) {
	b := part.NewBuilder(c.Type, len(rows))
	for _, r := range rows {
		v := r[i]
		switch {
		case !v.there && !c.Nullable:
			return nil, fmt.Errorf("%w: column %q misses a value", ErrAnswer, c.Name)
		case !v.there:
			b.Null()
		case c.Type.Size() > 8 || c.Type.Varies() || c.Type.ID == column.Bytes:
			if err := b.Bytes([]byte(v.text)); err != nil {
				return nil, fmt.Errorf("column %q of what comes out: %w: ask for less (--limit)", c.Name, err)
			}
		case c.Type.ID == column.Bool:
			b.Bool(v.bits != 0)
		case c.Type.ID == column.F32 || c.Type.ID == column.F64:
			b.Float(math.Float64frombits(v.bits))
		default:
			b.Bits(v.bits)
		}
	}
	return b.Finish(), nil
}
