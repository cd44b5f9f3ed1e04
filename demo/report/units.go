package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// duration writes three significant digits and a unit.
func duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < 999500*time.Nanosecond:
		return digits(float64(d)/1e3) + " µs"
	case d < 999500*time.Microsecond:
		return digits(float64(d)/1e6) + " ms"
	default:
		return digits(float64(d)/1e9) + " s"
	}
}

// digits writes three significant digits, or all before the point.
func digits(x float64) string {
	switch {
	case x < 9.995:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case x < 99.95:
		return strconv.FormatFloat(x, 'f', 1, 64)
	default:
		return strconv.FormatFloat(math.Round(x), 'f', 0, 64)
	}
}

// Size writes bytes in decimal units.
func Size(n uint64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 999500:
		return digits(float64(n)/1e3) + " kB"
	case n < 999500000:
		return digits(float64(n)/1e6) + " MB"
	default:
		return digits(float64(n)/1e9) + " GB"
	}
}

// Count writes a number with a comma between every three digits.
func Count(n uint64) string {
	s := strconv.FormatUint(n, 10)
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// Plural writes how many there are of something: "1 read", "2,000 reads".
func Plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + many
}

// ratio writes how many times longer.
func ratio(x float64) string {
	switch {
	case x <= 0:
		return "–"
	case x >= 999.5:
		return Count(uint64(math.Round(x))) + "×"
	default:
		return digits(x) + "×"
	}
}

func join(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, " and ")
}

// logAbove is the spread above which a linear bar for the smallest value
// would be too short to be seen.
const logAbove = 40

// scale maps values to bar lengths from 0 to 1, linearly or, where the values
// spread too far, by their logarithm.
type scale struct {
	log    bool
	lo, hi float64
}

// newScale fits a scale to the positive ones of values.
func newScale(values []float64) scale {
	lo, hi := math.Inf(1), 0.0
	for _, v := range values {
		if v > 0 {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	if hi == 0 {
		return scale{hi: 1}
	}
	if hi/lo <= logAbove {
		return scale{hi: hi}
	}
	// A decade below the smallest is the origin, so that it has a bar as well.
	return scale{log: true, lo: math.Pow(10, math.Floor(math.Log10(lo))-0.5), hi: hi}
}

// at is the length of the bar for v.
func (s scale) at(v float64) float64 {
	switch {
	case v <= 0:
		return 0
	case s.log:
		return max(0, math.Log(v/s.lo)/math.Log(s.hi/s.lo))
	default:
		return v / s.hi
	}
}

// ticks are values to mark on an axis.
func (s scale) ticks() []float64 {
	var out []float64
	if !s.log {
		// The roundest step of which two to five fit.
		step := math.Pow(10, math.Floor(math.Log10(s.hi/2)))
		for _, m := range []float64{5, 2} {
			if s.hi/(m*step) >= 2 {
				step *= m
				break
			}
		}
		for v := step; v <= s.hi*1.0001; v += step {
			out = append(out, v)
		}
		return out
	}
	decades := math.Log10(s.hi / s.lo)
	step := math.Max(1, math.Ceil(decades/6))
	for e := math.Ceil(math.Log10(s.lo)); math.Pow(10, e) <= s.hi*1.0001; e += step {
		out = append(out, math.Pow(10, e))
	}
	return out
}
