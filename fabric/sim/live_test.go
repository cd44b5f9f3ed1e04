package sim_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/fabrictest"
	"github.com/wherry-fabric/wherry/fabric/sim"
	"github.com/wherry-fabric/wherry/internal/seeds"
)

// TestSimConformance: what every transport must pass, over wires that lose, double and
// reorder packets and have little room, and over some that hand over descriptors.
func TestSimConformance(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults sim.WireFaults
	}{
		{"lossy", sim.WireFaults{MinDelay: 2 * us, MaxDelay: 200 * us, Loss: 0.03, Duplicate: 0.1, Detect: ms, Lag: 20 * us, Room: 40, Burst: 8, Pieces: 0.3}},
		{"mapped", sim.WireFaults{MinDelay: 2 * us, MaxDelay: 60 * us, Duplicate: 0.1, Detect: ms, Lag: 5 * us, Room: 200, Pieces: 0.3, Descriptors: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			trials.Each(t, 1, func(seed uint64, fail seeds.Fail) {
				l := sim.NewLive(seed, c.faults)
				fabrictest.RunWith(t, l.Port, fabrictest.Traits{Local: true})
				if t.Failed() {
					fail("%v", l)
				}
			})
		})
	}
}

// element makes one on a live network, with the address where it listens.
func element(t *testing.T, l *sim.Live, c fabric.Config) (*fabric.Element, *sim.Port, string) {
	t.Helper()
	tr, addr, err := l.Port()
	if err != nil {
		t.Fatal(err)
	}
	c.Transports = []fabric.Transport{tr}
	el, err := fabric.New(c)
	if err == nil {
		addr, err = el.Listen(addr)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { el.Close() })
	return el, tr.(*sim.Port), addr
}

// TestLiveCrash: who crashes is lost to its peers, and its element is told; another can
// have its address.
func TestLiveCrash(t *testing.T) {
	l := sim.NewLive(1, sim.WireFaults{MaxDelay: 50 * us, Detect: ms})
	ctx := t.Context()
	a, _, _ := element(t, l, fabric.Config{})
	for range 5 {
		b, port, addr := element(t, l, fabric.Config{})
		ep, err := a.Dial(ctx, addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := ep.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		back := b.Endpoints()[0]
		port.Crash()
		port.Crash()
		for el, of := range map[*fabric.Element]*fabric.Endpoint{a: ep, b: back} {
			if err := el.WaitFor(ctx, func() bool { return of.Err() != nil }); err != nil {
				t.Fatal(err)
			}
			if err := of.Err(); !errors.Is(err, fabric.ErrPeerLost) {
				t.Errorf("%v", err)
			}
		}
		if !strings.Contains(back.Err().Error(), sim.ErrCrashed.Error()) {
			t.Errorf("who crashed was told %v", back.Err())
		}
		if _, err := a.Dial(ctx, addr); !errors.Is(err, sim.ErrUnreachable) {
			t.Errorf("dialled the dead: %v", err)
		}
		if _, err := b.Dial(ctx, addr); err == nil {
			t.Error("the dead dialled")
		}
		tr, _, err := l.Port()
		if err != nil {
			t.Fatal(err)
		}
		again, err := fabric.New(fabric.Config{Transports: []fabric.Transport{tr}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := again.Listen(addr); err != nil || got != addr {
			t.Errorf("listens at %q, %v", got, err)
		}
		if _, err := a.Dial(ctx, addr); err != nil {
			t.Errorf("dialled who came back: %v", err)
		}
		again.Close()
	}
}

// TestLiveFreeze: while a port is frozen nothing passes, and then everything does.
func TestLiveFreeze(t *testing.T) {
	l := sim.NewLive(1, sim.WireFaults{MaxDelay: 50 * us, Detect: ms})
	a, _, _ := element(t, l, fabric.Config{})
	_, port, addr := element(t, l, fabric.Config{})
	ep, err := a.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	port.Freeze(true)
	flushed := make(chan error, 1)
	go func() { flushed <- ep.Flush(t.Context()) }()
	time.Sleep(30 * ms)
	select {
	case err := <-flushed:
		t.Errorf("a frozen peer answered: %v", err)
		flushed <- err
	default:
	}
	if _, err := a.Dial(t.Context(), addr); !errors.Is(err, sim.ErrUnreachable) {
		t.Errorf("dialled a frozen peer: %v", err)
	}
	port.Freeze(false)
	if err := <-flushed; err != nil {
		t.Error(err)
	}
}
}
