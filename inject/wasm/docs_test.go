package wasm

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// docs/abi.md must list exactly the host calls there are, with their types.
func TestDocumentedCalls(t *testing.T) {
	b, err := os.ReadFile("../../docs/abi.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(line, "|")
		if len(cells) == 5 && strings.Contains(cells[2], "`(") {
			documented[strings.Trim(cells[1], " `")] = strings.Trim(cells[2], " `")
		}
	}
	for _, c := range hostCalls() {
		doc, ok := documented[c.name]
		delete(documented, c.name)
		if !ok {
			t.Errorf("%s is not in docs/abi.md", c.name)
			continue
		}
		if got, want := documentedType(doc), (wasmcode.Type{Params: c.params, Results: c.results}).String(); got != want {
			t.Errorf("%s is documented as %s, that is %s; it is %s", c.name, doc, got, want)
		}
	}
	for name := range documented {
		t.Errorf("docs/abi.md has a call %s that does not exist", name)
	}
	for _, l := range []struct {
		what string
		v    uint64
	}{{"heap_bytes", DefaultLimits().HeapBytes}, {"scratch_bytes", DefaultLimits().ScratchBytes}, {"payload_bytes", DefaultLimits().PayloadBytes}} {
		if row := fmt.Sprintf("| `%s` | %d MiB |", l.what, l.v>>20); !strings.Contains(string(b), row) {
			t.Errorf("docs/abi.md has no row %q", row)
		}
	}
}

// documentedType is a signature with the parameters' names left out.
func documentedType(doc string) string {
	params, result, _ := strings.Cut(doc, ") -> ")
	var types []string
	for _, p := range strings.Split(strings.Trim(params, "()"), ",") {
		f := strings.Fields(p)
		switch {
		case len(f) == 0:
		case f[len(f)-1] == "ptr":
			types = append(types, "i32")
		default:
			types = append(types, f[len(f)-1])
		}
	}
	return fmt.Sprintf("(%s) -> (%s)", strings.Join(types, ", "), result)
}
