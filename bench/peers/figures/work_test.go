package figures

import (
	"math"
	"testing"
)

func TestWorks(t *testing.T) {
	type figure struct {
		callers, clients, bytes int
		ordinary, time          bool
	}
	want := map[Work]figure{
		Echo: {1, 1, 8, false, true}, Echo64: {64, 1, 8, false, false}, Get: {1, 1, BulkBytes, false, false}, Put: {1, 1, BulkBytes, false, false},
		"callers1": {1, 1, 8, true, false}, "callers4": {4, 1, 8, true, false}, "callers8": {8, 1, 8, true, false},
		"callers16": {16, 1, 8, true, false}, "callers64": {64, 1, 8, true, false},
		"size8192": {1, 1, 8192, true, true}, "size8192x64": {64, 1, 8192, true, false}, "size8193": {1, 1, 8193, true, true}, "size8193x64": {64, 1, 8193, true, false},
		"size16384": {1, 1, 16384, true, true}, "size16384x64": {64, 1, 16384, true, false}, "size65536": {1, 1, 65536, true, true}, "size65536x64": {64, 1, 65536, true, false},
		"processes16": {1, 16, 8, true, false},
	}
	titles := map[string]Work{}
	for _, w := range Works() {
		got := figure{w.Callers(), w.Clients(), w.Bytes(), w.Ordinary(), w.lessIsBetter()}
		if got != want[w] {
			t.Errorf("%s: %+v, want %+v", w, got, want[w])
		}
		if other, ok := titles[w.Title()]; ok {
			t.Errorf("%s and %s are both called %q", w, other, w.Title())
		}
		titles[w.Title()] = w
	}
	if len(titles) != len(want) {
		t.Errorf("%d works, want %d", len(titles), len(want))
	}
}

func TestTogether(t *testing.T) {
	one := Sample{P50Ns: 10, P99Ns: 20, MeanNs: 12, CallsPerS: 100, Calls: 30, AllocsPerOp: 2}
	if got := Together([]Sample{one}); got != one {
		t.Errorf("one client: %+v", got)
	}
	other := Sample{P50Ns: 30, P99Ns: 60, MeanNs: 36, CallsPerS: 50, Calls: 15, AllocsPerOp: 1}
	got := Together([]Sample{one, other})
	if got.CallsPerS != 150 || got.Calls != 45 || got.LeastOverMost != 0.5 || got.P50Ns != 20 || got.P99Ns != 40 || got.MeanNs != 24 || got.AllocsPerOp != 2 {
		t.Errorf("two clients: %+v", got)
	}
	if got := Together([]Sample{{}, {}}); got.LeastOverMost != 0 || math.IsNaN(got.CallsPerS) {
		t.Errorf("two without calls: %+v", got)
	}
}

// What is compared with net/rpc is its row on the same kind of transport, and with wherry the row with the same policy.
func TestBase(t *testing.T) {
	tab := &Table{}
	row := func(peer, transport, class, policy string, rate float64) *Row {
		r := &Row{Peer: peer, Work: "callers4", Transport: transport, Class: class, Policy: policy}
		r.Add(0, Sample{CallsPerS: rate})
		tab.Rows = append(tab.Rows, r)
		return r
	}
	fast, slow := row(RPCPeer, "tcp", "tcp", "latency", 400), row(RPCPeer, "tcp", "tcp", "balanced", 100)
	netrpc := row(NetRPCPeer, "tcp", "tcp", "sleep", 200)
	row(NetRPCPeer, "unix", "shm", "sleep", 50)
	shm := row(RPCPeer, "shm", "shm", "latency", 500)
	inline := row(InlinePeer, "tcp", "tcp", "balanced", 300)
	for r, want := range map[*Row]float64{fast: 2, slow: 0.5, netrpc: 1, shm: 10, inline: 1.5} {
		if got := tab.overNetRPC(r); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s %s is %v times as fast as net/rpc, want %v", r.Label(), r.Policy, got, want)
		}
	}
	for r, want := range map[*Row]*Row{inline: slow, netrpc: fast, slow: slow} {
		if got := tab.base(r, RPCPeer); got != want {
			t.Errorf("%s %s is compared with wherry's %s row", r.Label(), r.Policy, got.Policy)
		}
	}
	if !math.IsNaN(tab.overNetRPC(&Row{Peer: "x", Work: Echo, Class: "tcp"})) {
		t.Error("a row that was not measured is compared")
	}
}
