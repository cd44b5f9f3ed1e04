package main

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/wherry-fabric/wherry/bench/faults"
)

// faultCalls is enough for a few faults; make soak makes more.
const faultCalls = "150"

// TestFaults asks real nodes in namespaces of their own while they are killed, stopped and cut off: what is answered is right, what is not
// says which node it was about, and nothing is left. How late calls end is for make soak to judge, on a machine that does nothing else.
func TestFaults(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root; the gate runs as root")
	}
	cmd := self(t.Context(), "", "bench", "faults", "--calls", faultCalls, "--json", "--timeout", "10m")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	failed := cmd.Run()
	var r faults.Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %v\n%s%s", failed, err, out.String(), errs.String())
	}
	if r.Wrong+r.Nameless+r.Leftover > 0 || r.Right == 0 || r.Calls == 0 || len(r.Faults) == 0 {
		t.Errorf("%v:\n%s", failed, out.String())
	}
}
