package travel_test

import (
	"crypto/sha256"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// bench is one element without a world: what it sends stays in a list.
type desk struct {
	tb    testing.TB
	core  *travel.Core
	sent  []sentMsg
	n     int // of sent that count
	ended []travel.Outcome
	parts [][]byte
	stops []*travel.Run
	freed int
	asked []travel.ID // Object was called for
	sever []travel.Peer
	store map[travel.ID][]byte
	pins  map[travel.ID]int
	full  bool // Send finds no room
}

type sentMsg struct {
	to   travel.Peer
	kind travel.Kind
	body []byte
}

func newDesk(tb testing.TB, self uint64, l travel.Limits) *desk {
	tb.Helper()
	d := &desk{tb: tb, store: map[travel.ID][]byte{}, pins: map[travel.ID]int{}}
	core, err := travel.New(travel.Config{Self: self, Name: string(rune('a' + self - 1)), Limits: l, Store: d, Effects: d})
	if err != nil {
		tb.Fatal(err)
	}
	d.core = core
	return d
}

// put stores an object.
func (d *desk) put(b []byte) travel.ID {
	id := travel.ID(sha256.Sum256(b))
	d.store[id] = b
	return id
}

func (d *desk) Get(id travel.ID) []byte { return d.store[id] }
func (d *desk) Pin(id travel.ID) bool {
	if d.store[id] == nil {
		return false
	}
	d.pins[id]++
	return true
}
func (d *desk) Unpin(id travel.ID) { d.pins[id]-- }

func (d *desk) Send(to travel.Peer, kind travel.Kind, head, body []byte) error {
	if d.full {
		return travel.ErrBackpressure
	}
	if d.n == len(d.sent) {
		d.sent = append(d.sent, sentMsg{})
	}
	m := &d.sent[d.n]
	d.n++
	m.to, m.kind = to, kind
	m.body = append(append(m.body[:0], head...), body...)
	return nil
}

func (d *desk) Part(_ travel.FutureID, _ uint64, _ uint32, _ bool, data []byte) {
	if d.tb != nil {
		d.parts = append(d.parts, append([]byte(nil), data...))
	}
}

func (d *desk) Complete(_ travel.FutureID, o *travel.Outcome) {
	if d.tb != nil {
		d.ended = append(d.ended, *o)
	}
}
func (d *desk) Stop(r *travel.Run)                 { d.stops = append(d.stops, r) }
func (d *desk) FreeState(travel.InvocationID, any) { d.freed++ }
func (d *desk) Retire(any)                         {}
func (d *desk) Object(id travel.ID, b []byte) {
	d.asked = append(d.asked, id)
	if travel.ID(sha256.Sum256(b)) == id {
		d.store[id] = append([]byte(nil), b...)
	}
}
func (d *desk) Sever(p travel.Peer, _ error) { d.sever = append(d.sever, p) }

// take empties the list of what was sent.
func (d *desk) take() []sentMsg {
	out := make([]sentMsg, d.n)
	for i := range out {
		m := d.sent[i]
		out[i] = sentMsg{m.to, m.kind, append([]byte(nil), m.body...)}
	}
	d.n = 0
	return out
}

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
	z.deliver(0, a.take())
	z.core.ObjectArrived(0, id)
	r := z.core.NextRun()
	if r == nil {
		tb.Fatal("the function does not run once its code is there")
	}
	z.core.Finish(0, r, travel.End{})
	a.deliver(0, z.take())
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
		if err := x.d.core.PeerUp(1, travel.PeerInfo{Incarnation: x.other, Name: string(rune('a' + x.other - 1)), Member: members, Injector: true}); err != nil {
			tb.Fatal(err)
		}
	}
}

// deliver gives a desk what its peer 1 sent; runs that may begin are returned.
func (d *desk) deliver(now travel.Instant, msgs []sentMsg) (runs []*travel.Run) {
	d.tb.Helper()
	for _, m := range msgs {
		r, err := d.core.Recv(now, 1, m.kind, m.body)
		if err != nil {
			d.tb.Fatalf("%v: %v", m.kind, err)
		}
		if r != nil {
			runs = append(runs, r)
		}
	}
	return runs
}
