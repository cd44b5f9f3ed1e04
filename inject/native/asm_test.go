package native

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/wasm"
)

// runIn runs a function once, and says what its host heard.
func runIn(t *testing.T, b abi.Bound, payload []byte) (*fakeHost, abi.Status) {
	t.Helper()
	place, err := b.Reserve(0)
	if err != nil {
		t.Fatal(err)
	}
	in, err := place.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	h := &fakeHost{}
	st, err := in.Run(payload, nil, h)
	if err != nil {
		t.Fatal(err)
	}
	return h, st
}

// TestAsm: what wherry_asm.h writes is the same module in each form of the function that writes it, and does what was meant; what is
// written wrong is not assembled, and the log says what and where.
func TestAsm(t *testing.T) {
	object, err := compileFile("testdata/asm.c")
	native := bind(t, loadObject(t, newEngine(t, Config{}), object, err, abi.Limits{}), "alice")
	portable := bind(t, must(wasmProgram(t, "asm.c", abi.Version, nil))(t), "alice")
	compiler, err := wasm.New(wasm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer compiler.Close()
	assembled := func(op uint32) (code, log string, st abi.Status) {
		t.Helper()
		order := binary.LittleEndian.AppendUint32(nil, op)
		h, st := runIn(t, portable, order)
		again, st2 := runIn(t, native, order)
		if st != st2 || strings.Join(h.derived, "") != strings.Join(again.derived, "") || strings.Join(h.log, "") != strings.Join(again.log, "") {
			t.Errorf("program %d: wasm %d %q %x, native %d %q %x", op, st, h.log, h.derived, st2, again.log, again.derived)
		}
		return strings.Join(h.derived, ""), strings.Join(h.log, ""), st
	}
	pairs := []int64{3, -4, -9, -2, math.MaxInt64, 5, 0, 0, 7, 8}
	var ints, floats []byte
	var sum int64
	var squares [2]float64
	for i := 0; i < len(pairs); i += 2 {
		sum += max(pairs[i], pairs[i+1])
		for lane, v := range []float64{float64(pairs[i]) / 3, float64(pairs[i+1]) / 7} {
			squares[lane] += v * v
			floats = binary.LittleEndian.AppendUint64(floats, math.Float64bits(v))
		}
		ints = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(ints, uint64(pairs[i])), uint64(pairs[i+1]))
	}
	var folded int64
	for _, v := range []int64{0, -1, 63, 64, -64, -65, 8191, 8192, math.MaxInt64, math.MinInt64, 0x123456789abcdef} {
		folded = (folded*31 ^ v) + int64(int32(v))
	}
	for op, c := range map[uint32]struct {
		payload []byte
		want    uint64
	}{
		1:  {ints, uint64(sum)},
		2:  {floats, math.Float64bits(squares[0] + squares[1])},
		3:  {nil, uint64(folded) + math.Float64bits(1.5)},
		10: {nil, 0},
	} {
		code, log, st := assembled(op)
		if st != abi.OK || log != "" {
			t.Fatalf("program %d: status %d, %q", op, st, log)
		}
		p, err := wasm.Runner{Engine: compiler}.Load(t.Context(), abi.Code{Form: "wasm32", ABI: abi.Version, Bytes: []byte(code)})
		if err != nil {
			t.Fatalf("program %d: %v\n%x", op, err, code)
		}
		b := bind(t, p, "alice")
		for range 2 { // the second run finds its memory as the first one did
			h, st := runIn(t, b, c.payload)
			if want := binary.LittleEndian.AppendUint64(nil, c.want); st != abi.OK || !bytes.Equal(h.reply, want) {
				t.Errorf("program %d: status %d, %x, want %x", op, st, h.reply, want)
			}
		}
	}
	for op, says := range map[uint32]string{
		4: "byte 8: a block is not closed", 5: "byte 3: a jump to a block that is not open", 6: "byte 4096: more code than WHERRY_ASM_BYTES", 7: "byte 0: a local that there is not",
		8: "byte 0: a block is closed that was not opened", 9: "byte 0: more imports than WHERRY_ASM_IMPORTS",
	} {
		if code, log, st := assembled(op); st != abi.ErrArgument || code != "" || log != fmt.Sprintf("wherry_asm: %s", says) {
			t.Errorf("program %d: status %d, %q, %x; want %q", op, st, log, code, says)
		}
	}
}
