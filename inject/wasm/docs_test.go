package wasm

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// docs/abi.md must say the limits there are.
func TestDocumentedLimits(t *testing.T) {
	b, err := os.ReadFile("../../docs/abi.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []struct {
		what string
		v    uint64
	}{{"heap_bytes", abi.DefaultLimits().HeapBytes}, {"scratch_bytes", abi.DefaultLimits().ScratchBytes}, {"payload_bytes", abi.DefaultLimits().PayloadBytes}} {
		if row := fmt.Sprintf("| `%s` | %d MiB |", l.what, l.v>>20); !strings.Contains(string(b), row) {
			t.Errorf("docs/abi.md has no row %q", row)
		}
	}
}
