package travel_test

import (
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// hopper repeats the cached one-hop injection, event by event: Start at the
// origin, Recv and Finish at the target, Recv of the DONE at the origin.
func hopper(tb testing.TB) (hop func()) {
	a, z, args := oneHop(tb)
	a.tb, z.tb = nil, nil
	now := travel.Instant(1e9)
	hop = func() {
		now += 1000
		a.n, z.n = 0, 0
		args.Deadline = now + 1e9
		if _, err := a.core.Start(now, args); err != nil {
			tb.Fatal(err)
		}
		r, err := z.core.Recv(now, 1, travel.KindInject, a.sent[0].body)
		if err != nil || r == nil {
			tb.Fatal(r, err)
		}
		z.core.Finish(now, r, travel.End{HasResult: true, Result: r.Payload})
		if _, err := a.core.Recv(now, 1, travel.KindDone, z.sent[z.n-1].body); err != nil {
			tb.Fatal(err)
		}
		if now%(1<<20) < 1000 {
			a.core.Tick(now)
			z.core.Tick(now)
		}
	}
	for range 10000 {
		hop()
	}
	return hop
}

func TestOneHopAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(5000, hopper(t)); n != 0 {
		t.Errorf("%v allocations per injection, want none", n)
	}
}

func BenchmarkOneHop(b *testing.B) {
	hop := hopper(b)
	if n := testing.AllocsPerRun(1000, hop); n != 0 {
		b.Fatalf("%v allocations per injection, want none", n)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		hop()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4, "ns/event")
}

// started starts a function, and is the message that it leaves with.
func started(tb testing.TB, d *desk, args *travel.StartArgs) []byte {
	d.n = 0
	if _, err := d.core.Start(1, args); err != nil {
		tb.Fatal(err)
	}
	return d.sent[0].body
}

// BenchmarkShort is the same with the short records: a light future and a light run.
func BenchmarkShort(b *testing.B) {
	a, z, args := oneHop(b)
	a.tb, z.tb = nil, nil
	if r, err := z.core.Recv(1, 1, travel.KindInject, started(b, a, args)); err != nil || r == nil { // the handle is looked up
		b.Fatal(r, err)
	} else {
		z.core.Finish(1, r, travel.End{})
	}
	if _, err := a.core.Recv(1, 1, travel.KindDone, z.sent[z.n-1].body); err != nil {
		b.Fatal(err)
	}
	now := travel.Instant(1e9)
	for range b.N {
		now += 1000
		a.n, z.n = 0, 0
		if a.core.Ask(now, args.Binding, 1, now+1e9, args.Roots[0].Payload) == 0 {
			b.Fatal("it takes more")
		}
		r := z.core.Arrive(now, 1, a.sent[0].body)
		if r == nil || !z.core.Answer(r, r.Payload, true) || !a.core.Done(now, 1, z.sent[z.n-1].body) {
			b.Fatal("it takes more")
		}
		if now%(1<<20) < 1000 {
			a.core.Tick(now)
			z.core.Tick(now)
		}
	}
}

// oneHop is an origin and a target that knows the function already.
func oneHop(tb testing.TB) (a, z *desk, args *travel.StartArgs) {
	a, z = newDesk(tb, 1, travel.Limits{}), newDesk(tb, 2, travel.Limits{})
	meet(tb, a, z, true)
	id := a.put([]byte("image"))
	b, err := a.core.Bind(0, id, travel.ID{})
	if err != nil {
		tb.Fatal(err)
	}
	args = &travel.StartArgs{Binding: b, Deadline: 1e9, Roots: []travel.Root{{To: 1, Payload: []byte("12345678")}}}
	if _, err := a.core.Start(0, args); err != nil {
		tb.Fatal(err)
	}
	z.deliverFrom(tb, 0, 1, a.take())
	z.core.ObjectArrived(0, id)
	r := z.core.NextRun()
	if r == nil {
		tb.Fatal("the function does not run once its code is there")
	}
	z.core.Finish(0, r, travel.End{})
	a.deliverFrom(tb, 0, 1, z.take())
	if len(a.ended) != 1 || a.ended[0].Err != nil {
		tb.Fatalf("ended with %+v", a.ended)
	}
	a.ended = nil
	return a, z, args
}

// meet makes two desks peers; each is the other's peer number 1.
func meet(tb testing.TB, a, z *desk, members bool) {
	tb.Helper()
	for _, x := range []struct {
		d     *desk
		other uint64
	}{{a, 2}, {z, 1}} {
		if err := x.d.core.PeerUp(0, 1, travel.PeerInfo{Incarnation: x.other, Name: string(rune('a' + x.other - 1)), Member: members, Injector: true}); err != nil {
			tb.Fatal(err)
		}
	}
}
