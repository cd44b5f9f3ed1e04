package native

import (
	"encoding/binary"
	"fmt"
	"math"
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
