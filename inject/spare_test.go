package inject_test

import (
	"context"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// TestSpare: functions travel over the endpoint that is not spared, also where the other's number is known by heart, and
// over that again once it is the only one.
func TestSpare(t *testing.T) {
	node, client := newMember(t, "node", true, fabric.Balanced), newMember(t, "client", false, fabric.Balanced)
	table, next := permutation(t, []*member{node}, 100)
	f, err := client.rt.Prepare(xrdma.Chase(), table)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var eps [2]*fabric.Endpoint
	for i := range eps {
		if eps[i], err = client.el.Dial(ctx, node.addr); err != nil {
			t.Fatal(err)
		}
	}
	chase := func(over *fabric.Endpoint) {
		t.Helper()
		before := over.Stats().NormalFrames
		got, err := f.Do(ctx, inject.Root{Payload: xrdma.ChaseArgs(7, 1)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if row, err := xrdma.ChaseResult(got); err != nil || row != next[7] {
			t.Fatalf("row %d, want %d (%v)", row, next[7], err)
		}
		if over.Stats().NormalFrames == before {
			t.Errorf("nothing went over %v", over)
		}
	}
	chase(eps[0])
	client.rt.Spare(eps[0])
	chase(eps[1])
	client.rt.Spare(eps[1])
	chase(eps[0])
	eps[0].Close()
	chase(eps[1])
	for client.rt.Spare(eps[1]) { // acknowledgements wait for company
		if err := client.el.WaitFor(ctx, func() bool { return !client.rt.Spare(eps[1]) }); err != nil {
			t.Fatal(err)
		}
	}
	chase(eps[1])
}
