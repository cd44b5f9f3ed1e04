package nativetest

import (
	"bytes"
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
)

// wide calculates with each pair of integers of 128 bits in its payload.
const wide = `#include "wherry.h"
typedef unsigned __int128 U;
typedef __int128 I;
struct pair { uint64_t a[2], b[2]; };
static U get(const uint64_t *v) { return (U)v[1] << 64 | v[0]; }
static uint64_t *put(uint64_t *o, U v) { o[0] = (uint64_t)v; o[1] = (uint64_t)(v >> 64); return o + 2; }
WHERRY_ENTRY(payload, size)
{
    static uint64_t out[32 * 40];
    uint64_t *o = out;
    const struct pair *p = payload;
    for (uint32_t i = 0; i < size / sizeof *p && i < 32; i++) {
        U a = get(p[i].a), b = get(p[i].b);
        I sa = (I)a, sb = (I)b, product;
        int by = (int)(b & 127);
        int64_t narrow;
        o = put(o, a * b); o = put(o, a / b); o = put(o, a % b); o = put(o, (U)(sa / sb)); o = put(o, (U)(sa % sb));
        o = put(o, a << by); o = put(o, a >> by); o = put(o, (U)(sa >> by));
        o = put(o, __builtin_mul_overflow(sa, sb, &product)); o = put(o, (U)product);
        o = put(o, __builtin_mul_overflow((int64_t)a, (int64_t)b, &narrow)); o = put(o, (U)(I)narrow);
        double d = (double)sa;
        o = put(o, (U)(I)(d / 4));
    }
    return wherry_reply(out, (uint32_t)((uint8_t *)o - (uint8_t *)out));
}
`

// TestWideIntegers: what clang makes of integers of 128 bits and of checked products builds in all forms, and is right.
func TestWideIntegers(t *testing.T) {
	s := start(t, "a")
	s.ring(16)
	img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "wide.c", Code: []byte(wide)}, image.Manifest{Name: "wide"},
		cbuild.Options{Forms: []image.Form{image.Wasm, image.LLVMBitcode, image.ELF}, Targets: []string{runtime.GOARCH}})
	if err != nil {
		t.Fatal(err)
	}
	img = s.sign(img, s.key)
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var payload, want []byte
		for range 32 {
			a, b := wideNumber(r), wideNumber(r)
			if b.Sign() == 0 {
				b.SetInt64(-1)
			}
			if b.IsInt64() && b.Int64() == -1 { // the least number has no negation
				a.Quo(a, big.NewInt(2))
			}
			payload = appendWide(appendWide(payload, a), b)
			want = appendAnswers(want, a, b)
		}
		for _, form := range []forms.Wish{forms.Wasm, forms.Bitcode, forms.ELF} {
			got, err := s.at(img, form, string(payload))
			if err != nil {
				t.Fatalf("%v: %v", form, err)
			}
			for i := 0; i < len(want); i += 16 {
				if len(got) != len(want) || !bytes.Equal([]byte(got[i:i+16]), want[i:i+16]) {
					pair := payload[i/16/13*32:][:32]
					t.Fatalf("%v: %d bytes; answer %d of %x is wrong, want %x", form, len(got), i/16%13, pair, want[i:i+16])
				}
			}
		}
	}
}

// wideNumber is a signed number of up to 128 bits, many of them short.
func wideNumber(r *rand.Rand) *big.Int {
	v := new(big.Int).Lsh(new(big.Int).SetUint64(r.Uint64()), 64)
	v.Or(v, new(big.Int).SetUint64(r.Uint64()))
	v.Rsh(v, uint(1+r.IntN(127)))
	if r.IntN(2) == 0 {
		v.Neg(v)
	}
	return v
}

var wideModulus = new(big.Int).Lsh(big.NewInt(1), 128)

// unsigned is a number's 128 bits as one without a sign.
func unsigned(v *big.Int) *big.Int { return new(big.Int).Mod(v, wideModulus) }

func appendWide(b []byte, v *big.Int) []byte {
	var big16 [16]byte
	unsigned(v).FillBytes(big16[:])
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, binary.BigEndian.Uint64(big16[8:])), binary.BigEndian.Uint64(big16[:8]))
}

// appendAnswers appends what the function is to answer to a pair.
func appendAnswers(to []byte, a, b *big.Int) []byte {
	n := func() *big.Int { return new(big.Int) }
	truth := func(v bool) *big.Int {
		if v {
			return big.NewInt(1)
		}
		return n()
	}
	ua, ub := unsigned(a), unsigned(b)
	by := uint(n().And(ub, big.NewInt(127)).Uint64())
	product := n().Mul(a, b)
	least := n().Neg(n().Rsh(wideModulus, 1))
	fits := product.Cmp(least) >= 0 && product.Cmp(n().Neg(least)) < 0
	low := func(v *big.Int) *big.Int {
		return big.NewInt(int64(n().And(v, n().SetUint64(1<<64-1)).Uint64()))
	}
	narrow := n().Mul(low(a), low(b))
	d, _ := a.Float64()
	quarter, _ := big.NewFloat(d / 4).Int(nil)
	for _, v := range []*big.Int{
		n().Mul(a, b), n().Quo(ua, ub), n().Rem(ua, ub), n().Quo(a, b), n().Rem(a, b), n().Lsh(ua, by), n().Rsh(ua, by), n().Rsh(a, by),
		truth(!fits), product, truth(!narrow.IsInt64()), low(unsigned(narrow)), quarter,
	} {
		to = appendWide(to, v)
	}
	return to
}

// TestWideIsLeftOut: a module that needs none of the runtime's functions has none.
func TestWideIsLeftOut(t *testing.T) {
	wasm := func(body string) []byte {
		code, err := cbuild.Compile(t.Context(), cbuild.Source{Name: "f.c", Code: []byte("#include \"wherry.h\"\nWHERRY_ENTRY(payload, size) { " + body + " }")}, cbuild.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	for _, name := range []string{"__multi3", "__udivti3", "__floattidf"} {
		with := wasm("const uint64_t *p = payload; return (int32_t)((unsigned __int128)p[0] * p[1] >> 64) + (int32_t)size;")
		if got := bytes.Contains(with, []byte(name)); got != (name == "__multi3") {
			t.Errorf("a product of 128 bits links %s: %v", name, got)
		}
	}
}
