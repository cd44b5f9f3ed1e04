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
	recordGroup
	recordEnd
	stateBytes = 32
)

// Stats are what elements did.
type Stats struct {
	RowsRead      uint64 `json:"rows_read"`
	ChunksRead    uint64 `json:"chunks_read"`
	ChunksSkipped uint64 `json:"chunks_skipped"`
}

// value is one value of the answer.
type value struct {
	there bool
	bits  uint64
	text  string
}

// state is what is known of a group for one aggregate.
type state struct {
	n    uint64
	a, b uint64
	text string
}

// group is one group, or one row.
type group struct {
	keys   []value
	states []state
}

// Merge puts answers together. One goroutine uses it.
type Merge struct {
	p      *Plan
	groups []group
	byKey  map[string]int
	Stats  Stats
}

// Merge begins to put answers together.
func (p *Plan) Merge() *Merge { return &Merge{p: p, byKey: map[string]int{}} }

// Add reads one element's answer.
func (m *Merge) Add(b []byte) error {
	d := &decoder{rest: b}
	for {
		switch kind := d.u8(); {
		case d.bad:
			return fmt.Errorf("%w: it is cut off after %d groups or rows", ErrAnswer, len(m.groups))
		case kind == recordEnd:
			m.Stats.RowsRead += d.u64()
			m.Stats.ChunksRead += d.u64()
			m.Stats.ChunksSkipped += d.u64()
			if d.bad || len(d.rest) > 0 {
				return fmt.Errorf("%w: %d bytes follow its end", ErrAnswer, len(d.rest))
			}
			return nil
		case kind == recordRow && m.p.rows || kind == recordGroup && !m.p.rows:
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
		return make([]byte, min(n, stateBytes))
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

// record reads a row or a group, and adds a group to the one with the same keys.
func (m *Merge) record(d *decoder) error {
	before := d.rest
	g := group{keys: make([]value, len(m.p.keys))}
	for i := range g.keys {
		v := &g.keys[i]
		if v.there = d.u8() != 0; !v.there {
			continue
		}
		switch m.p.keys[i].tree.Kind {
		case expr.Text:
			if v.text = d.text(); !utf8.ValidString(v.text) {
				return fmt.Errorf("%w: text that is not UTF-8", ErrAnswer)
			}
		case expr.Raw:
			v.text = d.text()
		default:
			v.bits = d.u64()
		}
	}
	key := before[:len(before)-len(d.rest)]
	for _, o := range m.p.aggs {
		s := state{n: d.u64(), a: d.u64(), b: d.u64()}
		d.u64()
		if o.tree != nil && o.tree.Kind == expr.Text && (o.fn == fnLeast || o.fn == fnMost) && s.n > 0 {
			if s.text = d.text(); !utf8.ValidString(s.text) {
				return fmt.Errorf("%w: text that is not UTF-8", ErrAnswer)
			}
		}
		g.states = append(g.states, s)
	}
	if d.bad {
		return fmt.Errorf("%w: it is cut off after %d groups or rows", ErrAnswer, len(m.groups))
	}
	if m.p.rows {
		m.groups = append(m.groups, g)
		return nil
	}
	i, known := m.byKey[string(key)]
	if !known {
		m.byKey[string(key)] = len(m.groups)
		m.groups = append(m.groups, g)
		return nil
	}
	for k := range g.states {
		m.groups[i].states[k].add(&g.states[k], m.p.aggs[k])
	}
	return nil
}

// add adds what another element knows of the same group.
func (s *state) add(t *state, o output) {
	switch {
	case t.n == 0:
		return
	case s.n == 0:
		*s = *t
		return
	}
	switch o.fn {
	case fnSum:
		if o.tree.Kind == expr.Float {
			s.a = math.Float64bits(math.Float64frombits(s.a) + math.Float64frombits(t.a))
			break
		}
		low := s.a + t.a
		if s.b += t.b; low < t.a {
			s.b++
		}
		s.a = low
	case fnLeast, fnMost:
		order := compare(o.tree.Kind, value{bits: t.a, text: t.text}, value{bits: s.a, text: s.text})
		if o.fn == fnLeast && order < 0 || o.fn == fnMost && order > 0 {
			s.a, s.b, s.text = t.a, t.b, t.text
		}
	case fnSpread: // Chan, Golub and LeVeque: updating formulae and a pairwise algorithm, 1979
		n, k := float64(s.n), float64(t.n)
		mean, other := math.Float64frombits(s.a), math.Float64frombits(t.a)
		d := other - mean
		s.a = math.Float64bits(mean + d*k/(n+k))
		s.b = math.Float64bits(math.Float64frombits(s.b) + math.Float64frombits(t.b) + d*d*n*k/(n+k))
	}
	s.n += t.n
}

// compare orders two values that are there; NaN is greater than all others.
func compare(k expr.Kind, a, b value) int {
	switch k {
	case expr.Text:
		return strings.Compare(a.text, b.text)
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
	columns := m.p.Columns()
	rows := make([][]value, len(m.groups))
	for i, g := range m.groups {
		rows[i] = g.keys
		for k, o := range m.p.aggs {
			v, err := g.states[k].value(o)
			if err != nil {
				return nil, 0, err
			}
			rows[i] = append(rows[i], v)
		}
	}
	m.groups, m.byKey = nil, nil
	m.sort(rows, columns)
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
func (m *Merge) sort(rows [][]value, columns column.Schema) {
	if len(m.p.order) == 0 {
		return
	}
	kinds := make([]expr.Kind, len(columns))
	for i, c := range columns {
		kinds[i] = expr.KindOf(c.Type)
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
			order := compare(kinds[o.column], x, y)
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

// value is what a state says in the end.
func (s *state) value(o output) (value, error) {
	if o.read == readCount {
		return value{there: true, bits: s.n}, nil
	}
	if s.n == 0 {
		return value{}, nil
	}
	v := value{there: true, bits: s.a, text: s.text}
	switch o.read {
	case readSum:
		if o.tree.Kind == expr.Int && int64(s.b) != int64(s.a)>>63 || o.tree.Kind == expr.Uint && s.b != 0 {
			return v, fmt.Errorf("%w: %s is %v, which does not fit into %v: use sum(f64(…))", ErrQuery, o.text, s.wide(o.tree.Kind), o.tree.Kind)
		}
	case readMean:
		sum := math.Float64frombits(s.a)
		if o.tree.Kind != expr.Float {
			sum, _ = new(big.Float).SetInt(s.wide(o.tree.Kind)).Float64()
		}
		v.bits = math.Float64bits(sum / float64(s.n))
	case readDeviation:
		if s.n < 2 {
			return value{}, nil
		}
		v.bits = math.Float64bits(math.Sqrt(math.Float64frombits(s.b) / float64(s.n-1)))
	}
	return v, nil
}

// wide is a sum of 128 bits.
func (s *state) wide(k expr.Kind) *big.Int {
	high := new(big.Int).SetUint64(s.b)
	if k == expr.Int {
		high = big.NewInt(int64(s.b))
	}
	return high.Add(high.Lsh(high, 64), new(big.Int).SetUint64(s.a))
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
