package ucx

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Report is the last line of figures that ucx_perftest printed.
type Report struct {
	Iterations int
	P50Us      float64 // as printed: half of a round trip in the _lat tests; over the last 2048 only
	OverallUs  float64 // mean of all iterations, halved likewise
	RatePerS   float64 // messages per second over the whole run
}

// ErrOutput says that ucx_perftest printed something else than expected.
var ErrOutput = errors.New("output of ucx_perftest not understood")

// Columns of the CSV form (-v) that are needed. A percentile's column is named after its rank.
const (
	columnIterations = "iterations"
	columnP50        = "50.0_percentile_lat"
	columnOverall    = "overall_lat"
	columnRate       = "overall_mr"
)

// Fields of the human form's last line, after "Final:".
const (
	finalWord   = "Final:"
	finalFields = 8 // iterations, 50 %, average, overall; MB/s twice; messages/s twice
)

// Parse reads the output of ucx_perftest: its CSV form (-v, with or without
// -f) or the table for people. Lines that are neither, warnings among them, are
// passed over; of several reports the last counts.
func Parse(out string) (Report, error) {
	var columns []string
	var last *Report
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, columnIterations+","):
			columns = strings.Split(line, ",")
		case strings.HasPrefix(line, finalWord):
			r, err := parseFinal(line)
			if err != nil {
				return Report{}, err
			}
			last = &r
		case columns != nil && strings.Count(line, ",") == len(columns)-1:
			r, err := parseCSV(columns, strings.Split(line, ","))
			if err != nil {
				return Report{}, err
			}
			last = &r
		}
	}
	if last == nil {
		return Report{}, fmt.Errorf("%w: no line of figures in %q", ErrOutput, clip(out))
	}
	return *last, last.check()
}

func parseCSV(columns, fields []string) (Report, error) {
	get := func(name string) (float64, error) {
		for i, c := range columns {
			if c == name {
				return number(fields[i])
			}
		}
		return 0, fmt.Errorf("%w: no column %q in %q", ErrOutput, name, clip(strings.Join(columns, ",")))
	}
	iterations, err := get(columnIterations)
	p50, err2 := get(columnP50)
	overall, err3 := get(columnOverall)
	rate, err4 := get(columnRate)
	return Report{int(iterations), p50, overall, rate}, errors.Join(err, err2, err3, err4)
}

func parseFinal(line string) (Report, error) {
	fields := strings.Fields(strings.TrimPrefix(line, finalWord))
	if len(fields) != finalFields {
		return Report{}, fmt.Errorf("%w: %d figures in %q, not %d", ErrOutput, len(fields), clip(line), finalFields)
	}
	var v [finalFields]float64
	for i, f := range fields {
		var err error
		if v[i], err = number(f); err != nil {
			return Report{}, err
		}
	}
	return Report{int(v[0]), v[1], v[3], v[7]}, nil
}

func number(s string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is no number", ErrOutput, clip(s))
	}
	return v, nil
}

// maxIterations is more than any run here makes; beyond it a figure is no count.
const maxIterations = 1 << 40

// leastUs is less than an operation can take, a picosecond.
const leastUs = 1e-6

// check refuses figures that cannot be.
func (r Report) check() error {
	ok := func(v float64) bool { return v >= 0 && v < 1e15 }
	if r.Iterations < 1 || r.Iterations > maxIterations || !ok(r.P50Us) || !ok(r.RatePerS) || !ok(r.OverallUs) || r.OverallUs < leastUs {
		return fmt.Errorf("%w: impossible figures %+v", ErrOutput, r)
	}
	return nil
}

// maxQuoted bounds how much of another program's output an error repeats.
const maxQuoted = 300

func clip(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > maxQuoted {
		return s[:maxQuoted] + "…"
	}
	return s
}
