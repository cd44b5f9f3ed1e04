package faulttest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// hoard is a grid of two with memory for two functions of 256 MiB of scratch each, if it were charged beforehand, and the
// guest of that name. The second element runs one at a time: the others wait there, and their scratch at the first.
func hoard(t *testing.T) (*grid, *inject.Function) {
	t.Helper()
	g := newGrid(t, 2, nil, func(s *settings) {
		if s.MemoryBytes = 800 << 20; s.Name == "n1" {
			s.Instances = 1
		}
	})
	limits := withLimits(func(l *abi.Limits) { l.ScratchBytes, l.RunTime = 256<<20, time.Minute })
	return g, g.prepare(g.client, guestImage(t, "hoard", limits), g.plain())
}

// takes is the payload of a function that takes so much scratch, and leaves it untouched: that would take a second.
func takes(op uint32, bytes uint64, stays time.Duration) []byte {
	return binary.LittleEndian.AppendUint64(order(op, 1, bytes), uint64(stays))
}

// touches is the same of one that writes to every page.
func touches(bytes uint64, stays time.Duration) []byte {
	return binary.LittleEndian.AppendUint64(order(0, 0, bytes), uint64(stays))
}

// start starts a function at the first element.
func start(t testing.TB, ctx context.Context, f *inject.Function, payload []byte) *inject.Future {
	t.Helper()
	fut, err := f.Start(ctx, []inject.Root{{Payload: payload}}, inject.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return fut
}

// charged is what the first element's engine charges its functions for.
func (g *grid) charged() uint64 { return g.nodes[0].own.engine.Stats().Bytes }

// TestScratchIsCharged covers: functions that may have much scratch and take little all run at once, in memory for a few of those
// that take all; one that takes all is charged for all.
func TestScratchIsCharged(t *testing.T) {
	t.Parallel()
	g, f := hoard(t)
	const many = 48
	ctx := within(t, patience)
	var futures []*inject.Future
	for range many {
		futures = append(futures, start(t, ctx, f, touches(100<<10, time.Minute)))
	}
	eventually(t, "not all run at once", func() string {
		held := g.nodes[0].report(t).Stats.Sizes.Stateful
		if s := g.nodes[0].own.engine.Stats(); s.Live < many || held < many || g.nodes[0].report(t).Stats.Sizes.Awaiting > 0 {
			return fmt.Sprintf("%d instances, %d invocations, %d wait", s.Live, held, g.nodes[0].report(t).Stats.Sizes.Awaiting)
		}
		return ""
	})
	small := g.charged()
	if small < many*100<<10 {
		t.Errorf("%d bytes are charged", small)
	}
	greedy := start(t, ctx, f, touches(256<<20, time.Minute))
	eventually(t, "a function with 256 MiB is not charged for them", func() string {
		if n := g.charged(); n < small+256<<20 {
			return fmt.Sprintf("%d bytes are charged, %d without it", n, small)
		}
		return ""
	})
	for _, fut := range append(futures, greedy) {
		fut.Cancel()
		if _, err := fut.Wait(ctx); !errors.Is(err, travel.ErrCanceled) {
			t.Error(err)
		}
	}
	g.serves()
}

// TestScratchWaits covers: functions that take more scratch than there is room for wait until others have given theirs back, and
// start over unnoticed, also if they had computed for a while.
func TestScratchWaits(t *testing.T) {
	t.Parallel()
	g, f := hoard(t)
	const many = 12
	ctx := within(t, patience)
	var futures []*inject.Future
	for i := range many {
		futures = append(futures, start(t, ctx, f, takes(3*uint32(i%2), 250<<20, 20*time.Millisecond)))
	}
	for i, fut := range futures {
		if r, err := fut.Wait(ctx); err != nil || len(r.Pieces) != 1 {
			t.Errorf("function %d: %v, %v", i, r, err)
		}
	}
	if g.nodes[0].report(t).Stats.Awaited == 0 {
		t.Error("no branch waited, so this tests nothing")
	}
	eventually(t, "they are still charged", func() string { // a run ends after its reply
		if n := g.charged(); n > 400<<20 {
			return fmt.Sprintf("%d bytes", n)
		}
		return ""
	})
	g.serves()
}

// TestScratchStartsOver covers: what starts over finds the payload that it came with, whatever else has come meanwhile.
func TestScratchStartsOver(t *testing.T) {
	t.Parallel()
	g, f := hoard(t)
	others := g.fill(f)
	want := takes(3, 250<<20, 300*time.Millisecond)
	late := start(t, within(t, patience), f, want)
	for range 300 { // while it computes
		if _, err := g.echo.Do(within(t, patience), g.at(0, make([]byte, 1000)), nil); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "no branch waits for room", func() string {
		if s := g.nodes[0].report(t).Stats.Sizes; s.Awaiting == 0 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	for _, fut := range others {
		fut.Cancel()
	}
	r, err := late.Wait(within(t, patience))
	if err != nil || len(r.Pieces) != 1 || !bytes.Equal(r.Pieces[0].Data, want) {
		t.Errorf("%+v, %v; want %x", r, err, want)
	}
	g.serves()
}

// fill takes the room of the first element with two functions that stay.
func (g *grid) fill(f *inject.Function) (futures []*inject.Future) {
	g.t.Helper()
	before := g.charged()
	for range 2 {
		futures = append(futures, start(g.t, within(g.t, patience), f, takes(0, 256<<20, time.Minute)))
	}
	eventually(g.t, "the room is not taken", func() string {
		if n := g.charged() - before; n < 512<<20 {
			return fmt.Sprintf("%d bytes are charged", n)
		}
		return ""
	})
	return futures
}

// TestScratchCannotWait covers: a function that has sent something cannot start over, and hears which room is short.
func TestScratchCannotWait(t *testing.T) {
	t.Parallel()
	g, f := hoard(t)
	others := g.fill(f)
	_, err := f.Do(within(t, patience), inject.Root{Payload: takes(2, 256<<20, 0)}, nil)
	if !errors.Is(err, travel.ErrBackpressure) {
		t.Errorf("%v is not ErrBackpressure", err)
	}
	says(t, err, "n0", "hoard", "262144 KiB of scratch", "MemoryBytes", `"alice"`)
	for _, fut := range others {
		fut.Cancel()
	}
	if _, err = run(within(t, patience), f, inject.Root{Payload: takes(0, 1<<20, 0)}); err != nil {
		t.Error(err)
	}
	_, err = run(within(t, patience), f, inject.Root{Payload: takes(4, 0, 0)})
	says(t, err, "n0", "hoard", "scratch", "asked for 1 bytes")
	g.serves()
}
