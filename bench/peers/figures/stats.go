package figures

import (
	"math"
	"slices"
)

// Median is the middle of v, or the mean of the two in the middle; NaN if v is
// empty. v is left as it was.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	m := len(s) / 2
	if len(s)%2 == 1 {
		return s[m]
	}
	return (s[m-1] + s[m]) / 2
}

// Quantile is the q-th (0 to 1) of sorted durations, by nearest rank: the
// smallest that at least q of them do not exceed. It is 0 if there are none.
func Quantile(sorted []uint32, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return float64(sorted[min(max(rank, 1), len(sorted))-1])
}

// spread is the least and the greatest of v.
func spread(v []float64) (least, most float64) {
	if len(v) == 0 {
		return math.NaN(), math.NaN()
	}
	return slices.Min(v), slices.Max(v)
}
