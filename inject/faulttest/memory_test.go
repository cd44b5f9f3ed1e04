package faulttest

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestSecrets covers: a principal never sees what another left in heap, scratch
// or payload of a reused instance, and no invocation sees another's scratch.
func TestSecrets(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, nil)
	img := guestImage(t, "memory", nil)
	bob := g.newClient(settings{Name: "bob's", Token: "bob"})
	to := g.connect(bob, g.nodes[0])
	alices, bobs := g.prepare(g.client, img, nil), g.prepare(bob, img, nil)
	ctx := within(t, patience)
	const secret = 0x0123456789abcdef
	ask := func(f *inject.Function, root inject.Root) uint32 {
		t.Helper()
		got, err := f.Do(ctx, root, nil)
		if err != nil || len(got) != 4 {
			t.Fatalf("%x, %v", got, err)
		}
		return binary.LittleEndian.Uint32(got)
	}
	const heap, scratch = 1024, 64 << 10 / 8
	for range 20 {
		if n := ask(alices, g.at(0, order(0, 0, secret))); n < heap+scratch {
			t.Fatalf("a run finds %d of the words that it has just left", n)
		}
		if n := ask(bobs, inject.Root{To: to, Payload: order(1, 0, secret)}); n != 0 {
			t.Fatalf("bob finds %d of alice's words", n)
		}
		// Her own heap may be as she left it; scratch is new, and so is what is behind the payload for others.
		if n := ask(alices, g.at(0, order(1, 0, secret))); n >= heap+scratch {
			t.Fatalf("alice's next invocation finds %d words, scratch among them", n)
		}
	}
	g.serves()
}

// TestSecretsOfQuickRuns covers: the same of a function that keeps nothing and answers at once, whose instance is at
// hand for the next run. Each of its runs is counted.
func TestSecretsOfQuickRuns(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, nil)
	img := guestImage(t, "memory", withLimits(func(l *abi.Limits) { l.ScratchBytes = 0 }))
	bob := g.newClient(settings{Name: "bob's", Token: "bob"})
	toBob := g.connect(bob, g.nodes[0])
	alices, bobs := g.prepare(g.client, img, nil), g.prepare(bob, img, nil)
	ctx := within(t, patience)
	ask := func(f *inject.Function, root inject.Root) uint32 {
		t.Helper()
		got, err := f.Do(ctx, root, nil)
		if err != nil || len(got) != 4 {
			t.Fatalf("%x, %v", got, err)
		}
		return binary.LittleEndian.Uint32(got)
	}
	const secret, heap, rounds = 0x0123456789abcdef, 1024, 20
	leave, look := order(7, 1, secret), order(7, 0, secret)
	for range rounds {
		if n := ask(alices, g.at(0, leave)); n != heap {
			t.Fatalf("a run finds %d of the words that it has just left", n)
		}
		if n := ask(bobs, inject.Root{To: toBob, Payload: look}); n != 0 {
			t.Fatalf("bob finds %d of alice's words", n)
		}
		if n := ask(alices, g.at(0, look)); n != 0 {
			t.Fatalf("alice's next run finds %d words, not its data as declared", n)
		}
	}
	if made := g.nodes[0].own.engine.Stats().Created; made > 4 { // one for each, and a few beside them
		t.Errorf("%d instances were made for %d runs: they were not used again, so this tests nothing", made, 3*rounds)
	}
	for range rounds { // this one ends within its first slice of time
		if _, err := g.echo.Do(ctx, g.at(0, look), nil); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]uint64{"memory": 3 * rounds, "echo": rounds}
	functions, _ := g.nodes[0].own.rt.Functions(10)
	for _, f := range functions {
		if f.Runs != want[f.Name] || f.Failed != 0 {
			t.Errorf("%d runs: %+v", want[f.Name], f)
		}
		delete(want, f.Name)
	}
	if len(want) > 0 {
		t.Errorf("nothing is said of %v", want)
	}
	g.serves()
}

// TestScratch covers: branches of one invocation at one element run one at a
// time and find each other's scratch; the next invocation finds it empty.
func TestScratch(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	f := g.prepare(g.client, guestImage(t, "memory", nil), g.plain())
	const branches = 12
	var futures []*inject.Future
	for range 6 {
		fut, err := f.Start(within(t, patience), []inject.Root{{Element: 1, Payload: order(2, branches, uint64(time.Millisecond))}}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, fut)
	}
	for _, fut := range futures {
		r, err := fut.Wait(within(t, patience))
		if err != nil {
			t.Fatal(err) // a status of 77 or 78: two ran at once
		}
		seen := map[uint32]bool{}
		for _, p := range r.Pieces {
			seen[binary.LittleEndian.Uint32(p.Data)] = true
		}
		for i := uint32(1); i <= branches+1; i++ {
			if !seen[i] {
				t.Errorf("no branch was number %d of %d", i, branches+1)
			}
		}
	}
	g.serves()
}

// TestScratchAfterDeadline covers: an element that keeps scratch of an
// invocation that ends elsewhere, badly, lets go of it; more scratch than allowed is refused.
func TestScratchAfterDeadline(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	f := g.prepare(g.client, guestImage(t, "memory", nil), g.plain())
	start := time.Now()
	_, err := run(within(t, 300*time.Millisecond), f, inject.Root{Payload: order(5, 0, uint64(time.Minute))})
	if !errors.Is(err, travel.ErrDeadline) {
		t.Error(err)
	}
	says(t, err, "memory")
	soon(t, start, atOnce)
	g.serves()
	greedy := g.prepare(g.client, guestImage(t, "faults", withLimits(func(l *abi.Limits) { l.ScratchBytes = 64 << 10 })), nil)
	_, err = greedy.Do(within(t, patience), g.at(0, order(12, 0, 64<<10+1)), nil)
	says(t, err, "n0", "faults", "scratch_bytes: the limit is 65536; raise limits.scratch_bytes in the manifest")
	if !errors.Is(err, travel.ErrLimit) {
		t.Errorf("%v is not ErrLimit", err)
	}
	if _, err := greedy.Do(within(t, patience), g.at(0, order(12, 0, 64<<10)), nil); err != nil {
		t.Error(err)
	}
	if _, err := run(within(t, patience), f, inject.Root{Payload: order(5, 0, 0)}); err != nil {
		t.Error(err)
	}
	g.serves()
}

// TestScratchAfterRevocation covers: an invocation that keeps scratch, and with
// it its windows, does not run on once a window's key is revoked.
func TestScratchAfterRevocation(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, nil)
	table := g.table(16, fabric.RightRead, number)
	f := g.prepare(g.client, guestImage(t, "memory", nil), table)
	fut, err := f.Start(within(t, patience), []inject.Root{{Payload: order(2, 200, uint64(20*time.Millisecond))}}, inject.Options{})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if err := g.nodes[0].own.Revoke(table.Shards[0].Windows[0].Key); err != nil {
		t.Fatal(err)
	}
	_, err = fut.Wait(within(t, patience))
	if !errors.Is(err, travel.ErrRefused) {
		t.Errorf("%v is not ErrRefused", err)
	}
	says(t, err, "n0", "memory", "words", "revoked")
	g.serves()
}
