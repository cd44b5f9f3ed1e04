package sim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/sim"
	"github.com/wherry-fabric/wherry/internal/seeds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = sim.WireFaults{MinDelay: 2 * time.Microsecond, MaxDelay: 50 * time.Microsecond, Detect: time.Millisecond, Lag: 5 * time.Microsecond}

// lender is a host that lends a segment to whoever asks this process for its key.
type lender struct {
	seg *fabric.Segment
	key fabric.Key
}

func (l *lender) program(t *testing.T) sim.Program {
	return sim.Program{Start: func(h *sim.Host) (err error) {
		if l.seg, err = h.Element().NewSegment(300_000, fabric.Writable); err != nil {
			return err
		}
		if l.key, err = l.seg.Key(fabric.RightsAll); err != nil {
			return err
		}
		_, err = h.Element().Listen("sim://" + h.Name)
		return err
	}}
}

// TestDial: HELLO, Import, the verbs and Flush, by calls that wait, also over a network that
// loses every fifth packet.
func TestDial(t *testing.T) {
	rough := quiet
	rough.Loss, rough.Duplicate, rough.Pieces = 0.2, 0.2, 0.5
	for name, f := range map[string]sim.WireFaults{"quiet": quiet, "rough": rough} {
		t.Run(name, func(t *testing.T) {
			w := sim.New(7, sim.Faults{})
			n := sim.NewNetwork(w, f)
			defer n.Close()
			var there lender
			a, err := n.Add("a", sim.Program{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = n.Add("b", there.program(t)); err != nil {
				t.Fatal(err)
			}
			done := false
			a.Go(func(ctx context.Context) {
				if err := verbs(ctx, a, &there); err != nil {
					t.Error(err)
				}
				done = true
			})
			w.Run(5 * time.Second)
			if !done {
				t.Error("the call did not end")
			}
		})
	}
}

func verbs(ctx context.Context, a *sim.Host, there *lender) error {
	ep, err := a.Element().Dial(ctx, "sim://b")
	if err != nil {
		return err
	}
	r, err := ep.Import(ctx, there.key)
	if err != nil {
		return err
	}
	data, back := make([]byte, 200_000), make([]byte, 200_000)
	for i := range data {
		data[i] = byte(i * 7)
	}
	if err := r.Put(ctx, data, 1000); err != nil {
		return err
	}
	if err := r.Get(ctx, back, 1000); err != nil {
		return err
	}
	if string(back) != string(data) {
		return errors.New("Get does not give what Put was given")
	}
	if _, err := r.Atomic(ctx, fabric.FetchAdd(5), 8, 0); err != nil {
		return err
	}
	if v, err := r.Atomic(ctx, fabric.FetchAdd(5), 8, 0); err != nil || v != 5 {
		return errors.Join(errors.New("an atomic was lost"), err)
	}
	return ep.Flush(ctx)
}

// pair is two connected hosts of which the second lends a segment.
func pair(t *testing.T, seed uint64, f sim.WireFaults) (w *sim.World, n *sim.Network, a, b *sim.Host, ends [2]*fabric.Endpoint, there *lender) {
	t.Helper()
	w = sim.New(seed, sim.Faults{})
	n = sim.NewNetwork(w, f)
	there = &lender{}
	limits := func(h *sim.Host, c *fabric.Config) { c.Limits = tight }
	p := there.program(t)
	p.Configure = limits
	var err error
	if a, err = n.Add("a", sim.Program{Configure: limits}); err != nil {
		t.Fatal(err)
	}
	if b, err = n.Add("b", p); err != nil {
		t.Fatal(err)
	}
	if ends[0], ends[1], err = n.Connect(a, b); err != nil {
		t.Fatal(err)
	}
	return w, n, a, b, ends, there
}

// imported has a host import the lender's key.
func imported(t *testing.T, w *sim.World, a *sim.Host, ep *fabric.Endpoint, k fabric.Key) (r *fabric.Remote) {
	t.Helper()
	a.Go(func(ctx context.Context) {
		var err error
		if r, err = ep.Import(ctx, k); err != nil {
			t.Error(err)
		}
	})
	if w.Run(10 * time.Millisecond); r == nil {
		t.Fatal("Import did not end")
	}
	return r
}

// TestSilence: a peer that cannot be heard is lost in time, one way or both
// ways, with all that is under way; one that merely has nothing to say is not.
func TestSilence(t *testing.T) {
	for name, ways := range map[string]int{"idle": 0, "one way": 1, "both ways": 2} {
		t.Run(name, func(t *testing.T) {
			w, n, a, b, ends, there := pair(t, 3, quiet)
			defer n.Close()
			r := imported(t, w, a, ends[0], there.key)
			w.Run(20 * tight.PeerTime)
			if ends[0].Err() != nil || ends[1].Err() != nil {
				t.Fatalf("an idle connection ended: %v, %v", ends[0].Err(), ends[1].Err())
			}
			if ways > 0 {
				n.Partition(a, b, true)
				n.Partition(b, a, ways > 1)
			}
			buf := make([]byte, 100_000)
			var ops []fabric.Op
			a.Do(0, func() { ops = append(ops, r.StartGet(buf, 0), r.StartPut(make([]byte, 100_000), 100_000)) })
			w.Run(tight.PeerTime / 3) // it may have had nothing to say for a third of that, and a ping's way, before
			if ends[0].Err() != nil {
				t.Fatalf("lost early: %v", ends[0].Err())
			}
			// There is a look every eighth of PeerTime, and one to begin counting.
			w.Run(tight.PeerTime)
			for i, o := range ops {
				err := error(nil)
				if !o.Poll() {
					t.Fatalf("operation %d is still under way", i)
				}
				if err = o.Wait(context.Background()); (ways == 0) != (err == nil) || err != nil && !errors.Is(err, fabric.ErrPeerLost) {
					t.Errorf("operation %d: %v", i, err)
				}
			}
			for i, ep := range ends {
				if err := ep.Err(); (ways == 0) != (err == nil) || err != nil && !errors.Is(err, fabric.ErrPeerLost) {
					t.Errorf("end %d: %v", i, err)
				}
			}
		})
	}
}

// TestPause: a peer that said that it would be silent is lost once it has been so for longer than it said, or, if it went on meanwhile, for as long as ever.
func TestPause(t *testing.T) {
	for name, c := range map[string]struct{ said, goesOn, kept, lost time.Duration }{
		"as it said":      {said: 10 * tight.PeerTime, kept: 9 * tight.PeerTime, lost: 3 * tight.PeerTime},
		"it goes on":      {said: 10 * tight.PeerTime, goesOn: tight.PeerTime, kept: tight.PeerTime / 3, lost: tight.PeerTime},
		"not for so long": {said: tight.PeerTime / 10, kept: tight.PeerTime / 3, lost: tight.PeerTime},
		"it said nothing": {kept: tight.PeerTime / 3, lost: tight.PeerTime},
	} {
		t.Run(name, func(t *testing.T) {
			w, n, a, b, ends, _ := pair(t, 3, quiet)
			defer n.Close()
			b.Do(0, func() { b.Element().Pause(fabric.MaxPause) }) // a does not stand still, so it must not take b for lost
			if c.said > 0 {
				a.Do(0, func() { a.Element().Pause(c.said) })
				w.Run(tight.PeerTime / 100)
			}
			if c.goesOn > 0 {
				a.Do(c.goesOn, func() { a.Element().Pause(0) })
				w.Run(c.goesOn + tight.PeerTime/100)
			}
			n.Partition(a, b, true)
			n.Partition(b, a, true)
			if w.Run(c.kept); ends[1].Err() != nil {
				t.Fatalf("lost early: %v", ends[1].Err())
			}
			if w.Run(c.lost); !errors.Is(ends[1].Err(), fabric.ErrPeerLost) {
				t.Errorf("not lost: %v", ends[1].Err())
			}
		})
	}
}

// TestCrashFails: whatever is under way at a crash ends with ErrPeerLost, started or
// waited for, and a key of the life that ended is of no use with the next one.
func TestCrashFails(t *testing.T) {
	for seed := range uint64(50) {
		w, n, a, b, ends, there := pair(t, seed+1, quiet)
		r := imported(t, w, a, ends[0], there.key)
		key, incarnation := there.key, b.Element().Incarnation()
		buf := make([]byte, 250_000)
		var op fabric.Op
		var waited error
		over := false
		a.Do(0, func() { op = r.StartGet(buf, 0) })
		a.Go(func(ctx context.Context) {
			for waited == nil {
				waited = r.Put(ctx, make([]byte, 70_000), 0)
			}
			over = true
		})
		w.Run(w.Between(0, 200*time.Microsecond))
		b.Crash()
		w.Run(quiet.Detect + time.Millisecond)
		if !op.Poll() || !over || !errors.Is(waited, fabric.ErrPeerLost) {
			t.Fatalf("seed %d: the Get has ended: %v; the Put ended with %v", seed+1, op.Poll(), waited)
		}
		if err := op.Wait(context.Background()); err != nil && !errors.Is(err, fabric.ErrPeerLost) {
			t.Fatalf("seed %d: the Get ended with %v", seed+1, err)
		}
		if err := b.Boot(); err != nil {
			t.Fatal(err)
		}
		if b.Element().Incarnation() == incarnation {
			t.Fatal("the next life has the same incarnation")
		}
		if ends[0], _, waited = n.Connect(a, b); waited != nil {
			t.Fatal(waited)
		}
		a.Go(func(ctx context.Context) { _, waited = ends[0].Import(ctx, key) })
		if w.Run(time.Millisecond); !errors.Is(waited, fabric.ErrIncarnation) {
			t.Fatalf("seed %d: Import of a key of the earlier life: %v", seed+1, waited)
		}
		n.Close()
	}
}

// TestSimDial: HELLO under everything that can go wrong. A Dial ends in time,
// with an endpoint to a life that was there, or with an error.
func TestSimDial(t *testing.T) {
	f := sim.WireFaults{MinDelay: 5 * us, MaxDelay: 2 * ms, Loss: 0.1, Duplicate: 0.1, Tries: 4, Detect: 5 * ms, Silent: 0.5, Lag: 100 * us}
	dialled, failed := 0, 0
	trials.Each(t, few(40), func(seed uint64, fail seeds.Fail) {
		w := sim.New(seed, sim.Faults{})
		n := sim.NewNetwork(w, f)
		limits := func(h *sim.Host, c *fabric.Config) {
			c.Limits = tight
			c.Limits.HelloTime = 200 * ms
		}
		lives := map[fabric.Incarnation]string{}
		for _, name := range []string{"a", "b", "c"} {
			if _, err := n.Add(name, sim.Program{Configure: limits, Start: func(h *sim.Host) error {
				lives[h.Element().Incarnation()] = h.Name
				_, err := h.Element().Listen("sim://" + h.Name)
				return err
			}}); err != nil {
				fail("%v", err)
			}
		}
		for range 12 {
			dialSomebody(w, n, func(took time.Duration, b *sim.Host, ep *fabric.Endpoint, err error) {
				if dialled++; err != nil {
					failed++
				} else if ep.Name() != b.Name || lives[ep.Incarnation()] != b.Name {
					fail("a Dial of %s led to %v", b.Name, ep)
				}
				if took > time.Second {
					fail("a Dial took %v", took)
				}
			})
		}
		for range 2 {
			w.After(w.Between(0, 50*ms), func() {
				h := n.Hosts()[w.Rand.IntN(3)]
				h.Crash()
				w.After(w.Between(0, 5*ms), func() { h.Boot() })
			})
			w.After(w.Between(0, 50*ms), func() { n.Cut(n.Hosts()[0], n.Hosts()[1]) })
		}
		w.After(w.Between(0, 50*ms), func() { n.Hosts()[w.Rand.IntN(3)].Stop() })
		w.After(w.Between(0, 50*ms), func() { n.Partition(n.Hosts()[1], n.Hosts()[2], true) })
		w.Run(2 * time.Second)
		n.Close()
	})
	if !trials.One() && (failed == 0 || failed*4 > dialled*3) {
		t.Errorf("%d of %d Dials failed", failed, dialled)
	}
}

func dialSomebody(w *sim.World, n *sim.Network, ended func(time.Duration, *sim.Host, *fabric.Endpoint, error)) {
	hosts := n.Hosts()
	from := w.Rand.IntN(3)
	a, b := hosts[from], hosts[(from+1+w.Rand.IntN(2))%3]
	a.Do(w.Between(0, 50*ms), func() {
		el := a.Element()
		a.Go(func(context.Context) {
			ctx, cancel := a.Timeout(w.Between(ms, 400*ms))
			defer cancel()
			start := w.Now()
			ep, err := el.Dial(ctx, "sim://"+b.Name)
			ended(time.Duration(w.Now()-start), b, ep, err)
		})
	})
}

// TestRefusals: what cannot be is refused with a reason.
func TestRefusals(t *testing.T) {
	w, n, a, b, _, _ := pair(t, 9, quiet)
	defer n.Close()
	want := func(what string, err, is error) {
		t.Helper()
		if err == nil || is != nil && !errors.Is(err, is) {
			t.Errorf("%s: %v, want %v", what, err, is)
		}
	}
	_, err := a.Element().Listen("sim://elsewhere")
	want("listening under another name", err, nil)
	_, err = b.Element().Listen("sim://b")
	want("listening twice", err, nil)
	_, err = a.Element().Dial(context.Background(), "sim://b")
	want("Dial outside a call", err, nil)
	for addr, is := range map[string]error{"sim://nobody": sim.ErrUnreachable, "sim://a": sim.ErrUnreachable, "tcp://b:1": fabric.ErrNoTransport} {
		a.Go(func(ctx context.Context) { _, err = a.Element().Dial(ctx, addr) })
		w.Run(time.Millisecond)
		want("Dial "+addr, err, is)
	}
	_, _, err = n.Connect(a, a)
	want("connecting to oneself", err, sim.ErrUnreachable)
	n.Partition(b, a, true)
	_, _, err = n.Connect(a, b)
	want("connecting over a partition", err, sim.ErrUnreachable)
	n.Partition(b, a, false)
}

// TestWaitOutside: a call that waits where nothing could happen meanwhile says so.
func TestWaitOutside(t *testing.T) {
	w, _, a, b, ends, there := pair(t, 9, quiet)
	defer b.Crash() // a stands for ever in the middle of its call
	r := imported(t, w, a, ends[0], there.key)
	defer func() {
		if recover() == nil {
			t.Error("a Get that waits outside a call did not panic")
		}
	}()
	a.Do(0, func() { r.Get(context.Background(), make([]byte, 10), 0) })
	w.Run(time.Millisecond)
}
