package inject_test

import (
	"context"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
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
	chaseTo := func(over, to *fabric.Endpoint) {
		t.Helper()
		before := over.Stats().NormalFrames
		got, err := f.Do(ctx, inject.Root{Payload: xrdma.ChaseArgs(7, 1), To: to}, nil)
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
	chase := func(over *fabric.Endpoint) {
		t.Helper()
		chaseTo(over, nil)
	}
	chase(eps[0])
	chaseTo(eps[1], eps[1])
	client.rt.Spare(eps[0])
	chase(eps[1])
	chaseTo(eps[1], eps[0])
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

// TestSpareWindows: so does what a function reads of another element's windows, also where it was read over the spare before.
func TestSpareWindows(t *testing.T) {
	nodes := []*member{newMember(t, "n0", true, fabric.Balanced), newMember(t, "n1", true, fabric.Balanced)}
	client := connect(t, nodes, fabric.Balanced)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	table, _ := permutation(t, nodes, 100)
	img := stepsImage(t, "read", func(m *image.Manifest) { m.Windows[0].Writable = false })
	f, err := client.rt.Prepare(img, table)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first := nodes[1].eps["n0"]
	second, err := nodes[1].el.Dial(ctx, nodes[0].addr)
	if err != nil {
		t.Fatal(err)
	}
	read := func(over *fabric.Endpoint) {
		t.Helper()
		before := over.Stats().SentFrames
		if _, err := f.Do(ctx, inject.Root{Element: 1, Payload: payload(1, one(opGet, 0, 1), one(opReply, 0, 8))}, nil); err != nil {
			t.Fatal(err)
		}
		if over.Stats().SentFrames == before {
			t.Errorf("nothing went over %v", over)
		}
	}
	read(first)
	nodes[1].rt.Spare(first)
	read(second)
	read(second)
	nodes[1].rt.Spare(second)
	read(first)
}
