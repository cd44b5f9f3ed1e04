package native

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// TestStd: what stands where a C library would gives the same answers in both forms, and the right ones.
func TestStd(t *testing.T) {
	object, err := compileFile("testdata/std.c")
	forms := map[string]abi.Bound{
		"native": bind(t, loadObject(t, newEngine(t, Config{}), object, err, abi.Limits{}), "alice"),
		"wasm":   bind(t, must(wasmProgram(t, "std.c", abi.Version, nil))(t), "alice"),
	}
	replies := func(o order, want string) {
		t.Helper()
		for name, b := range forms {
			for range 2 { // the second run has all its memory again
				if got := heard(t, b, o); !strings.HasPrefix(got, want) {
					t.Errorf("%s: %+v: %s, want %s", name, o, got, want)
				}
			}
		}
	}
	replies(order{op: 1, n: 900}, fmt.Sprintf("0 reply true %x", numbersOf(2700, 1800, 0, 900)))
	replies(order{op: 3}, fmt.Sprintf("0 reply true %x", numbersOf(math.Float64bits(19), math.Float64bits(10), math.Float64bits(1), math.Float64bits(1))))
	replies(order{op: 4, a: 1100 << 10}, fmt.Sprint(int32(abi.ErrLimit)))
	replies(order{op: 4, a: 500 << 10}, "0 reply false")
	ldexpAgrees(t, forms)
	near := func(x, y float64) bool {
		return x == y || x != x && y != y || math.Abs(x-y) <= 2*math.Abs(math.Nextafter(y, math.Inf(1))-y)
	}
	for _, x := range []float64{0, 1, 2, 0.5, -1, 1e-300, 5e-324, 1e300, 709.7, 710, -745, -746, -708.5, 3.25, 1.4142135623730951, 1e-8, 12345.678, -20.5,
		math.Inf(1), math.Inf(-1), math.NaN()} {
		o := order{op: 2, a: math.Float64bits(x)}
		got := heard(t, forms["wasm"], o)
		if again := heard(t, forms["native"], o); again != got && x == x { // a NaN's sign is the processor's
			t.Errorf("%v: native %s, wasm %s", x, again, got)
		}
		var b []byte
		if _, err := fmt.Sscanf(got, "0 reply true %x", &b); err != nil || len(b) != 32 {
			t.Fatal(got, err)
		}
		exp, log := math.Exp(x), math.Log(x)
		switch x { // where Go's assembly is not exact
		case 709.7:
			exp = 1.6549840276802644e+308
		case 5e-324:
			log = -744.4400719213812
		}
		for i, want := range []float64{math.Sqrt(x), exp, log, math.Abs(x)} {
			if v := math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])); !near(v, want) {
				t.Errorf("function %d of %v is %v, want %v", i, x, v, want)
			}
		}
	}
}

// ldexpAgrees compares ldexp with Go's, which rounds once: below the least normal number too.
func ldexpAgrees(t *testing.T, forms map[string]abi.Bound) {
	t.Helper()
	check := func(x float64, n int) {
		want := fmt.Sprintf("0 reply true %x", numbersOf(math.Float64bits(math.Ldexp(x, n))))
		for name, b := range forms {
			if got := heard(t, b, order{op: 5, n: uint32(int32(n)), a: math.Float64bits(x)}); !strings.HasPrefix(got, want+" ") {
				t.Errorf("%s: ldexp(%x, %d) is %.40s, want %s", name, x, n, got, want)
			}
		}
	}
	powers := []int{0, 1, -1, 1000, 1001, 1023, 2098, 2099, -960, -961, -1022, -1023, -1991, -2098, -2099, math.MaxInt32, math.MinInt32}
	for _, x := range []float64{0, math.Copysign(0, -1), 1, -1.5, 5e-324, -5e-324, 2.2250738585072009e-308, 2.2250738585072014e-308, math.MaxFloat64, math.Inf(1), math.Inf(-1)} {
		for _, n := range powers {
			check(x, n)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		y := 1 + rng.Float64()
		e := rng.IntN(2098) - 1074
		check(math.Ldexp(y, e), -1080+rng.IntN(64)-e) // to denormal numbers, and to 0
		check(-math.Ldexp(y, e), rng.IntN(2200)-1100)
		check(math.Ldexp(y, -70), -964)
	}
}
