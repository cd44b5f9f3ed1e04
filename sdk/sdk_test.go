package sdk

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/schema"
)

// constants reads the header's #define NAME number lines.
func constants(t *testing.T) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for _, m := range regexp.MustCompile(`(?m)^#define WHERRY_(\w+) \(?(-?\d+)u?\)?(?: +/\*.*)?$`).FindAllStringSubmatch(Header(), -1) {
		v, err := strconv.ParseInt(m[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out[m[1]] = v
	}
	return out
}

// The header's numbers are the ABI's, and it has all of them; inject/abi tests those of statuses.
func TestHeaderConstants(t *testing.T) {
	want := map[string]int64{
		"ABI_VERSION": abi.Version,
		"ATOMIC_ADD":  int64(abi.AtomicAdd), "ATOMIC_SWAP": int64(abi.AtomicSwap), "ATOMIC_COMPARE_SWAP": int64(abi.AtomicCompareSwap),
		"ATOMIC_AND": int64(abi.AtomicAnd), "ATOMIC_OR": int64(abi.AtomicOr), "ATOMIC_XOR": int64(abi.AtomicXor),
		"TYPE_BYTES": int64(schema.BytesType(1).Code()) - 1,
	}
	for _, typ := range []schema.Type{
		schema.I8, schema.I16, schema.I32, schema.I64, schema.U8, schema.U16, schema.U32, schema.U64,
		schema.F32, schema.F64, schema.Bool, schema.Str,
	} {
		want["TYPE_"+strings.ToUpper(string(typ))] = int64(typ.Code())
	}
	got := constants(t)
	for name, v := range want {
		if g, ok := got[name]; !ok || g != v {
			t.Errorf("WHERRY_%s is %d in the header (there: %v), %d in Go", name, g, ok, v)
		}
	}
	for name := range got {
		for _, prefix := range []string{"ATOMIC_", "TYPE_"} {
			if _, ok := want[name]; !ok && strings.HasPrefix(name, prefix) {
				t.Errorf("WHERRY_%s is not in Go", name)
			}
		}
	}
	if got["ROWS_HEAD"] != schema.PartHeadBytes {
		t.Errorf("a part's head has %d bytes in the header, %d in Go", got["ROWS_HEAD"], schema.PartHeadBytes)
	}
}

// The header says of itself that it is for this version.
func TestHeaderVersion(t *testing.T) {
	if want := fmt.Sprintf("ABI version %d.", abi.Version); !strings.Contains(Header(), want) {
		t.Errorf("the header does not say %q", want)
	}
}
