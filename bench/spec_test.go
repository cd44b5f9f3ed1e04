package bench

import "testing"

// Small figures keep digits that say something.
func TestRounded(t *testing.T) {
	for f, want := range map[float64]string{0: "0.000", 12345.6: "12346", -123.4: "-123", 12.34: "12.3", 1.2345: "1.234", 0.9994: "0.999", 0.5: "0.500",
		0.0123456: "0.0123", -0.0123456: "-0.0123", 0.000012345: "0.0000123", 7e-10: "0.000000000700"} {
		if got := rounded(f).String(); got != want {
			t.Errorf("%v is written as %s, want %s", f, got, want)
		}
	}
}

// What the runtime allocates for itself is not an operation's.
func TestAllocsPerOp(t *testing.T) {
	for ops, want := range map[int]string{1: "40.0", 40: "1.000", 30_000: "0.00100", 100_000: "0.000"} {
		if got := rounded(allocsPerOp(40, ops)).String(); got != want {
			t.Errorf("40 of %d operations are %s each, want %s", ops, got, want)
		}
	}
}
