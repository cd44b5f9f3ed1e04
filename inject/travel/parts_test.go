package travel

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTables: both tables behave as a map does.
func TestTables(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type key struct{ a, b uint64 }
		model := map[key]*int{}
		var tab table[int]
		nr := fronted[int]{front: make([]entry[int], 8)}
		for range rapid.IntRange(0, 400).Draw(t, "n") {
			k := key{rapid.Uint64Range(0, 30).Draw(t, "a"), rapid.Uint64Range(0, 3).Draw(t, "b") << 20}
			switch {
			case model[k] == nil:
				v := new(int)
				model[k] = v
				tab.put(k.a, k.b, v)
				nr.put(k.a, k.b, v)
			case rapid.Bool().Draw(t, "del"):
				if got := tab.del(k.a, k.b); got != model[k] {
					t.Fatalf("del gave %p, want %p", got, model[k])
				}
				nr.del(k.a, k.b)
				delete(model, k)
			}
			for k, v := range model {
				if tab.get(k.a, k.b) != v || nr.get(k.a, k.b) != v {
					t.Fatalf("%v is not found", k)
				}
			}
			if tab.get(k.a, k.b+1) != nil || nr.get(k.a, k.b+1) != nil || tab.n != len(model) || nr.n != len(model) {
				t.Fatal("something is found that is not there, or the count is wrong")
			}
		}
		n := 0
		nr.all(func(*int) { n++ })
		if n != len(model) {
			t.Fatalf("all gives %d, want %d", n, len(model))
		}
		if tab.clear(); tab.n != 0 || tab.get(0, 0) != nil {
			t.Fatal("clear leaves something")
		}
	})
}

// TestWheel: each timer fires once, never early, at most a tick late if the
// wheel is asked when it says.
func TestWheel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w wheel
		now := Instant(rapid.Int64Range(0, 1<<50).Draw(t, "now"))
		w.advance(now)
		due := map[*timer]Instant{}
		fire := func() {
			for tm := w.advance(now); tm != nil; tm = w.advance(now) {
				if due[tm] > now || now-due[tm] > 2<<tickBits {
					t.Fatalf("due at %d, fires at %d", due[tm], now)
				}
				delete(due, tm)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				tm := new(timer)
				shift := rapid.IntRange(0, 52).Draw(t, "shift")
				due[tm] = now + Instant(rapid.Int64Range(0, 1<<shift).Draw(t, "in"))
				w.arm(tm, due[tm])
			case 2:
				for tm := range due {
					w.disarm(tm)
					delete(due, tm)
					break
				}
			case 3: // let the wheel run to its next moment, sometimes
				if tick, ok := w.next(); ok {
					now = max(now, Instant(tick<<tickBits))
					fire()
				}
			}
			if w.n != len(due) {
				t.Fatalf("%d timers are armed, want %d", w.n, len(due))
			}
		}
		for len(due) > 0 {
			tick, ok := w.next()
			if !ok {
				t.Fatalf("the wheel has forgotten %d timers", len(due))
			}
			now = max(now, Instant(tick<<tickBits))
			fire()
		}
	})
}

// TestTombs: of the canceled the latest deadlines are kept, of the lapsed all that had a place; each is given up in time.
func TestTombs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := tombModel{canceled: map[InvocationID]Instant{}, lapsed: map[InvocationID]Instant{}, of: map[InvocationID]string{}}
		l := Limits{Tombstones: rapid.IntRange(1, 6).Draw(t, "limit"), Stateful: rapid.IntRange(1, 6).Draw(t, "places")}
		l.PrincipalStateful = rapid.IntRange(1, l.Stateful).Draw(t, "of one")
		for range rapid.IntRange(0, 100).Draw(t, "n") {
			id := InvocationID{1, rapid.Uint64Range(0, 9).Draw(t, "seq")}
			until := Instant(rapid.Int64Range(0, 1<<40).Draw(t, "until"))
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0:
				m.expire(Instant(rapid.Int64Range(0, 50).Draw(t, "now")))
			case 1, 2:
				m.cancel(t, id, until, &l)
			case 3:
				m.tb.free(id)
				delete(m.lapsed, id)
			default:
				m.lapse(t, id, until, rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "principal"), &l)
			}
			m.check(t, &l)
		}
	})
}

type tombModel struct {
	tb               tombs
	canceled, lapsed map[InvocationID]Instant
	of               map[InvocationID]string
}

func (m *tombModel) expire(now Instant) {
	m.tb.expire(now)
	past := func(_ InvocationID, until Instant) bool { return until <= now }
	maps.DeleteFunc(m.canceled, past)
	maps.DeleteFunc(m.lapsed, past)
}

func (m *tombModel) cancel(t *rapid.T, id InvocationID, until Instant, l *Limits) {
	if _, ok := m.canceled[id]; !ok && len(m.canceled) == l.Tombstones {
		first := m.tb.canceled[0]
		for _, u := range m.canceled {
			if u < first.until {
				t.Fatal("the heap's top is not the earliest")
			}
		}
		delete(m.canceled, first.id)
	}
	delete(m.lapsed, id)
	m.canceled[id] = max(m.canceled[id], until)
	m.tb.cancel(id, until, "ann", l.Tombstones)
}

func (m *tombModel) lapse(t *rapid.T, id InvocationID, until Instant, principal string, l *Limits) {
	if _, ok := m.lapsed[id]; ok {
		return // while there is a tombstone no branch is taken
	}
	over := m.tb.take(principal, l)
	if full := len(m.lapsed) >= l.Stateful || m.count(principal) >= l.PrincipalStateful; (over != "") != full {
		t.Fatalf("%d lapsed of %+v: %q", len(m.lapsed), l, over)
	}
	if over != "" {
		return
	}
	m.tb.lapse(id, until, CodeDeadline, principal)
	if _, ok := m.canceled[id]; !ok {
		m.lapsed[id], m.of[id] = until, principal
	}
}

func (m *tombModel) count(principal string) (n int) {
	for id := range m.lapsed {
		if m.of[id] == principal {
			n++
		}
	}
	return n
}

func (m *tombModel) check(t *rapid.T, l *Limits) {
	if len(m.tb.canceled) != len(m.canceled) || len(m.tb.lapsed) != len(m.lapsed) || m.tb.places != len(m.lapsed) || m.tb.byID.n != len(m.canceled)+len(m.lapsed) {
		t.Fatalf("%d canceled, %d lapsed, %d places; want %d and %d", len(m.tb.canceled), len(m.tb.lapsed), m.tb.places, len(m.canceled), len(m.lapsed))
	}
	for _, principal := range []string{"ann", "bob"} {
		if got, want := m.tb.placesOf[principal], m.count(principal); got != want {
			t.Fatalf("%s has %d places, want %d", principal, got, want)
		}
	}
	first, some := Instant(0), false
	for why, model := range map[Code]map[InvocationID]Instant{CodeOK: m.canceled, CodeDeadline: m.lapsed} {
		for id, until := range model {
			if n := m.tb.get(id); n == nil || n.why != why || n.until != until {
				t.Fatalf("%v is forgotten, or taken for another: %+v", id, n)
			}
			if !some || until < first {
				first, some = until, true
			}
		}
	}
	if at, ok := m.tb.earliest(); at != first || ok != some {
		t.Fatalf("the earliest is at %d, %v, want %d, %v", at, ok, first, some)
	}
}

// TestReceiveWindow: no number is taken twice, whatever the order; while the
// numbers stay within a window of each other, each is taken once.
func TestReceiveWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p peer
		taken := map[uint64]bool{}
		high := uint64(0)
		for range rapid.IntRange(0, 300).Draw(t, "n") {
			jump := rapid.SampledFrom([]uint64{0, 1, 1, 2, 5, 64, 4095, 4096, 9000}).Draw(t, "jump")
			v := high + jump
			if back := rapid.Uint64Range(0, 5000).Draw(t, "back"); jump == 0 && back <= high {
				v = high - back
			}
			fresh := p.receive(v)
			if fresh && taken[v] {
				t.Fatalf("%d is taken twice", v)
			}
			if !fresh && !taken[v] && v >= p.recvLow {
				t.Fatalf("%d is refused at low-water mark %d", v, p.recvLow)
			}
			if !fresh && !taken[v] && high < WindowTransfers+v {
				if high-v < WindowTransfers-1 {
					t.Fatalf("%d is refused, %d is the highest", v, high)
				}
			}
			taken[v] = taken[v] || fresh
			high = max(high, v)
		}
	})
}

// TestSendWindow: the low-water mark is the lowest number not acknowledged, and each message that is under way lies where its number says.
func TestSendWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, p := &Core{}, &peer{}
		tenant := new(tenant).init("alice")
		tenant.peers = 1
		open := []uint64{}
		for range rapid.IntRange(0, 200).Draw(t, "n") {
			for range rapid.IntRange(0, 80).Draw(t, "send") {
				if p.next-p.low < WindowTransfers {
					open = append(open, p.next)
					c.number(p, tenant, 1).seq = p.next - 1
				}
			}
			if len(open) > 0 {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "i")
				if s := p.sentAt(open[i]); s == nil || s.seq != open[i] {
					t.Fatalf("message %d is %+v", open[i], s)
				}
				c.accept(p, open[i])
				c.accept(p, open[i])
				open = slices.Delete(open, i, i+1)
			}
			want := p.next
			if len(open) > 0 {
				want = open[0]
			}
			if p.low != want {
				t.Fatalf("low-water mark %d, want %d", p.low, want)
			}
			if c.records != len(open) || tenant.records != len(open) {
				t.Fatalf("%d are under way, %d of the principal's, want %d", c.records, tenant.records, len(open))
			}
		}
	})
}

// TestLateDeclaration: it does not replace a newer one of the same slot.
func TestLateDeclaration(t *testing.T) {
	var p peer
	for _, c := range []struct {
		message uint64
		gen     uint16
		id      byte
		want    byte
	}{{10, 14, 1, 1}, {12, 15, 2, 2}, {11, 14, 1, 2}, {14, 0, 3, 3}, {13, 15, 2, 3}, {16, 14, 4, 4}, {15, 0, 3, 4}, {20, 14, 5, 5}, {17, 14, 4, 5}} {
		p.learn(c.message, 5|c.gen<<12, &injectExt{declared: true, what: What{Image: testID(c.id)}})
		if p.handles[5].what.Image != testID(c.want) {
			t.Errorf("after message %d of generation %d the slot means %v, want %v", c.message, c.gen, p.handles[5].what.Image, testID(c.want))
		}
	}
}

// TestLongestHead: data of MaxDataBytes fit a message, whatever its head says.
func TestLongestHead(t *testing.T) {
	forks := make([]uint64, listForks)
	e := injectExt{declared: true, what: What{Image: testID(1), Table: testID(2), Form: 3}, hasTrace: true, parts: 1, lists: 1}
	inject := injectBytes(injectMsg{flags: flagOrigin | flagBranch | flagExt, origin: 1, branch: 1}, &e, forks, "")
	done := (&doneMsg{flags: doneBranch | doneNumbered | doneSent | doneForks | doneResult, branch: 1, parts: 1}).append(nil, forks)
	part := (&partMsg{branch: 1}).append(nil)
	failed := (&doneMsg{flags: 0x7f, branch: 1, element: make([]byte, maxName), function: make([]byte, maxName), text: make([]byte, maxText)}).append(nil, forks)
	for i, n := range []int{len(inject) + MaxDataBytes, len(done) + MaxDataBytes, len(part) + MaxDataBytes, len(failed)} {
		if n > MaxMessageBytes {
			t.Errorf("message %d can have %d bytes, at most %d", i, n, MaxMessageBytes)
		}
	}
}

func TestMixIsABijection(t *testing.T) {
	seen := map[uint64]bool{}
	for i := range uint64(1 << 16) {
		if v := mix(12345 + i); seen[v] {
			t.Fatalf("%d repeats", i)
		} else {
			seen[v] = true
		}
	}
}

func TestConfigValidate(t *testing.T) {
	ok := Config{Self: 1, Store: nopStore{}, Effects: nopEffects{}}
	if err := ok.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"no incarnation": func(c *Config) { c.Self = 0 },
		"no store":       func(c *Config) { c.Store = nil },
		"no effects":     func(c *Config) { c.Effects = nil },
		"long name":      func(c *Config) { c.Name = string(make([]byte, 256)) },
		"peers":          func(c *Config) { c.Limits.Peers = -1 },
		"bindings":       func(c *Config) { c.Limits.Bindings = MaxSlots + 1 },
		"time":           func(c *Config) { c.Limits.MaxTime = 2 * maxTime },
	} {
		c := ok
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

type nopStore struct{}

func (nopStore) Get(ID) []byte { return nil }
func (nopStore) Pin(ID) bool   { return false }
func (nopStore) Unpin(ID)      {}

type nopEffects struct{}

func (nopEffects) Send(Peer, Kind, []byte, []byte) error       { return nil }
func (nopEffects) Part(FutureID, uint64, uint32, bool, []byte) {}
func (nopEffects) Complete(FutureID, *Outcome)                 {}
func (nopEffects) Stop(*Run)                                   {}
func (nopEffects) FreeState(InvocationID, any)                 {}
func (nopEffects) Keep() any                                   { return 1 }
func (nopEffects) Release(any)                                 {}
func (nopEffects) Retire(any)                                  {}
func (nopEffects) Reserve(*Run) Room                           { return RoomTaken }
func (nopEffects) Freeing() bool                               { return false }
func (nopEffects) Unreserve(*Run)                              {}
func (nopEffects) Object(ID, []byte)                           {}
func (nopEffects) Sever(Peer, error)                           {}

// TestTimeOnward: what goes on has its time rounded up as often as down, to the next step at most; so a thousand
// elements in a row do not take it away.
func TestTimeOnward(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, d := range []Instant{0, 999, 1000, Instant(time.Millisecond) + 1, 4095 * 1000, 4096 * 1000, 12_345_678_901, Instant(time.Hour) + 777, Instant(maxTime) - 1, Instant(maxTime)} {
		down, sum := decodeTime(encodeTime(d)), 0.0
		up := Instant(0)
		if encodeTime(d) < 1<<16-1 {
			up = decodeTime(encodeTime(d)+1) - down
		}
		const draws = 2000
		for range draws {
			got := decodeTime(encodeTimeOnward(d, r.Uint64()))
			if got != down && got != down+up {
				t.Fatalf("%v became %v, want %v or %v", time.Duration(d), time.Duration(got), time.Duration(down), time.Duration(down+up))
			}
			sum += float64(got - d)
		}
		if up > 1000 && math.Abs(sum/draws) > float64(up)/10 {
			t.Errorf("%v became %v longer on average", time.Duration(d), time.Duration(sum/draws))
		}
	}
	for _, d := range []Instant{Instant(time.Second), Instant(time.Minute), Instant(time.Hour)} {
		left := d
		for hops := range uint64(1000) {
			left = decodeTime(encodeTimeOnward(left-1, (77^(1000-hops)<<40)*hashA))
		}
		if off := math.Abs(float64(left-d)) / float64(d); off > 0.02 {
			t.Errorf("%v became %v on the way by a thousand elements", time.Duration(d), time.Duration(left))
		}
	}
}

// TestExtend: a deadline moves out for what arrives with more time, never in, and not by less than a rounding.
func TestExtend(t *testing.T) {
	c, err := New(Config{Self: 1, Name: "x", Store: nopStore{}, Effects: nopEffects{}})
	if err != nil {
		t.Fatal(err)
	}
	const now, first = Instant(1e9), Instant(11e9)
	for _, step := range []struct{ deadline, want Instant }{
		{first, first},
		{first - 5e9, first},
		{first + 9e6, first},         // less than a 1024th of ten seconds
		{first + 11e6, first + 11e6}, // more
		{first + 20e9, first + 20e9},
	} {
		inv := c.newInvocation(InvocationID{2, 3}, nil, first)
		c.enter(inv)
		c.extend(now, inv, step.deadline)
		if inv.deadline != step.want || inv.timer.tick != uint64(step.want>>tickBits)+1 {
			t.Errorf("a branch that has until %d: the deadline is %d, the timer at tick %d; want %d", step.deadline, inv.deadline, inv.timer.tick, step.want)
		}
		c.kill(now, inv, CodeOK, "")
	}
}
