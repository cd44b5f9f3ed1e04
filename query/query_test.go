package query

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/wherry-fabric/wherry/column"
)

var columns = column.Schema{
	{Name: "level", Type: column.Type{ID: column.UTF8}, Nullable: true},
	{Name: "n", Type: column.Type{ID: column.I64}},
	{Name: "x", Type: column.Type{ID: column.F64}, Nullable: true},
}

// groupRecord is a group as an element sends it: its level ("": missing), and states of three words.
func groupRecord(level string, states ...[3]uint64) []byte {
	b := []byte{recordGroup, 0}
	if level != "" {
		b[1] = 1
		b = binary.LittleEndian.AppendUint32(b, uint32(len(level)))
		b = append(b, level...)
	}
	for _, s := range states {
		for _, v := range append(s[:], 0) {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return b
}

func end() []byte {
	b := []byte{recordEnd}
	for _, v := range []uint64{10, 2, 1} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func float(x float64) uint64 { return math.Float64bits(x) }

// Groups of two elements are added up: sums in 128 bits, spreads about their common mean, missing keys as a group of their own.
func TestMerge(t *testing.T) {
	p, err := Make(Query{Group: []string{"level"}, Agg: []string{"count()", "sum(n)", "min(n)", "stddev(x)"}, Order: []string{"level"}}, columns)
	if err != nil {
		t.Fatal(err)
	}
	minus := ^uint64(0)
	big := uint64(1) << 63
	m := p.Merge()
	a := append(groupRecord("info", [3]uint64{3}, [3]uint64{3, big, 0}, [3]uint64{3, minus}, [3]uint64{2, float(1), float(2)}), groupRecord("", [3]uint64{1}, [3]uint64{1, 4, 0}, [3]uint64{1, 4}, [3]uint64{})...)
	b := groupRecord("info", [3]uint64{1}, [3]uint64{1, big, minus}, [3]uint64{1, 7}, [3]uint64{1, float(7)})
	for _, answer := range [][]byte{append(a, end()...), append(b, end()...)} {
		if err := m.Add(answer); err != nil {
			t.Fatal(err)
		}
	}
	out, rows, err := m.Finish()
	if err != nil || rows != 2 {
		t.Fatal(rows, err)
	}
	if s := out[0].(*array.String); s.Value(0) != "info" || !s.IsNull(1) {
		t.Errorf("levels %v", s)
	}
	if n := out[1].(*array.Int64); n.Value(0) != 4 || n.Value(1) != 1 {
		t.Errorf("counts %v", n)
	}
	if s := out[2].(*array.Int64); s.Value(0) != 0 || s.Value(1) != 4 { // 2⁶³ and -2⁶³
		t.Errorf("sums %v", s)
	}
	if s := out[3].(*array.Int64); s.Value(0) != -1 {
		t.Errorf("least %v", s)
	}
	if d := out[4].(*array.Float64); math.Abs(d.Value(0)-math.Sqrt(13)) > 1e-12 || !d.IsNull(1) { // of 0, 2 and 7
		t.Errorf("deviations %v", d)
	}
	if m.Stats != (Stats{RowsRead: 20, ChunksRead: 4, ChunksSkipped: 2}) {
		t.Errorf("%+v", m.Stats)
	}
}

func TestSumOverflows(t *testing.T) {
	p, err := Make(Query{Agg: []string{"sum(n)"}}, columns)
	if err != nil {
		t.Fatal(err)
	}
	b := []byte{recordGroup}
	for _, v := range []uint64{2, 1 << 63, 0, 0} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	m := p.Merge()
	if err := m.Add(append(b, end()...)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Finish(); !errors.Is(err, ErrQuery) || !strings.Contains(err.Error(), "sum(n) is 9223372036854775808") {
		t.Error(err)
	}
}

func TestBadAnswers(t *testing.T) {
	p, err := Make(Query{Group: []string{"level"}, Agg: []string{"count()"}}, columns)
	if err != nil {
		t.Fatal(err)
	}
	good := append(groupRecord("info", [3]uint64{3}), end()...)
	for n := range good {
		if err := p.Merge().Add(good[:n]); !errors.Is(err, ErrAnswer) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	for _, b := range [][]byte{{recordRow}, {9}, append(end(), 1), groupRecord("\xff", [3]uint64{})} {
		if err := p.Merge().Add(b); !errors.Is(err, ErrAnswer) {
			t.Errorf("%v: %v", b, err)
		}
	}
}

func TestBadQueries(t *testing.T) {
	for want, q := range map[string]Query{
		"--select names columns of rows":       {Select: []string{"n"}, Group: []string{"n"}},
		"is no aggregate":                      {Agg: []string{"n"}},
		`did you mean "count"?`:                {Agg: []string{"coun()"}},
		`--order: nothing that comes out`:      {Select: []string{"n"}, Order: []string{"-x"}},
		"it is too long":                       {Where: strings.Repeat("n*2 == 1 || ", 80) + "n == 1"},
		`there is no column "m"; did you mean`: {Select: []string{"m"}},
	} {
		p, err := Make(q, columns)
		if err == nil {
			_, err = p.Program()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", q, err, want)
		}
	}
}

// A comparison with a literal is pushed, whichever side it stands on; what is below || is not.
func TestPushed(t *testing.T) {
	p, err := Make(Query{Where: `n >= 5 && 7 > x && (n == 1 || x < 2) && level == "a"`}, columns)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(p.Pushed(), "; "); got != "n ge 5; x lt 7" {
		t.Error(got)
	}
}

// A bare column keeps its name, however it is written.
func TestNames(t *testing.T) {
	odd := append(column.Schema{{Name: "user id", Type: column.Type{ID: column.I64}}}, columns...)
	p, err := Make(Query{Group: []string{`col("user id")`, "(n)", "n + 1", "m=n"}, Agg: []string{"count()"}, Order: []string{"user id"}}, odd)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(p.Columns().Names(), ";"); got != "user id;n;n + 1;m;count()" {
		t.Error(got)
	}
}

// FuzzAdd: whatever an element answers, it is refused or read.
func FuzzAdd(f *testing.F) {
	f.Add(append(groupRecord("info", [3]uint64{3}, [3]uint64{3, 5}), end()...))
	p, err := Make(Query{Group: []string{"level"}, Agg: []string{"count()", "max(level)"}}, columns)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := p.Merge()
		if m.Add(b) == nil {
			if _, _, err := m.Finish(); err != nil {
				t.Error(err)
			}
		}
	})
}
