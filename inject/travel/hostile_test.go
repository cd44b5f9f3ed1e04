package travel

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// hostile is one core that two peers send whatever they like.
type hostile struct {
	t      *testing.T
	c      *Core
	now    Instant
	store  map[ID][]byte
	runs   []*Run
	ended  map[FutureID]bool
	begun  map[FutureID]bool
	asked  []ID
	held   map[InvocationID]bool
	refuse bool
}

func (h *hostile) Get(id ID) []byte { return h.store[id] }
func (h *hostile) Pin(id ID) bool   { return h.store[id] != nil }
func (h *hostile) Unpin(ID)         {}
func (h *hostile) Send(_ Peer, _ Kind, head, body []byte) error {
	if len(head)+len(body) > MaxMessageBytes {
		h.t.Fatalf("a message of %d bytes", len(head)+len(body))
	}
	if h.refuse {
		return ErrBackpressure
	}
	return nil
}
func (h *hostile) Part(f FutureID, _ uint64, _ uint32, _ bool, _ []byte) {
	if h.ended[f] {
		h.t.Fatal("a part after the end")
	}
}
func (h *hostile) Complete(f FutureID, o *Outcome) {
	if h.ended[f] {
		h.t.Fatal("ended twice")
	}
	h.ended[f] = true
	if o.Err != nil && o.Err.Error() == "" {
		h.t.Fatal("an error without words")
	}
}
func (h *hostile) Stop(*Run)                        {}
func (h *hostile) FreeState(id InvocationID, _ any) { delete(h.held, id) }
func (h *hostile) Retire(any)                       {}
func (h *hostile) Object(id ID, _ []byte)           { h.asked = append(h.asked, id) }
func (h *hostile) Sever(Peer, error)                {}

var hostileLimits = Limits{Futures: 8, Invocations: 16, Running: 4, HeldRuns: 8, HeldBytes: 16 << 10, PeerHeldRuns: 6, PeerHeldBytes: 12 << 10,
	Records: 32, Tombstones: 4, Bindings: 3, Fetches: 2, ObjectBytes: 200 << 10, FetchBytes: 300 << 10, OutboxBytes: 4 << 10, Branches: 16, Parts: 8, MaxTime: time.Hour}

func (h *hostile) up(p Peer) {
	info := PeerInfo{Incarnation: uint64(p) + 10, Name: "peer", Member: p == 1, Injector: true}
	if err := h.c.PeerUp(p, info); err != nil && !errors.Is(err, ErrLimit) {
		h.t.Fatal(err)
	}
}

// message builds one out of a few bytes: small numbers, so that messages are
// about the same things.
func (h *hostile) message(k Kind, b [8]byte) []byte {
	seq, branch, n := uint64(b[0]%8), uint64(b[1]%4), uint64(b[2]%48)
	switch k {
	case KindInject:
		m := injectMsg{hops: uint16(b[3]), left: encodeTime(Instant(b[4]) * Instant(time.Millisecond)), handle: uint16(b[5] % 4), transfer: n, seq: seq}
		if m.branch = branch; branch != 0 {
			m.flags |= flagBranch
		}
		if b[6]&1 != 0 {
			m.flags, m.origin = m.flags|flagOrigin, 10+uint64(b[6]>>1%4)
		}
		if b[6]&32 != 0 {
			m.flags |= flagState
		}
		e := injectExt{}
		if b[6]&64 != 0 {
			m.flags |= flagExt
			e.declared, e.image = true, testID(b[5]%4+1)
			if b[7]&1 != 0 {
				e.table = testID(b[7]%8 + 100)
			}
			if b[7]&2 != 0 {
				e.imageBytes = make([]byte, 100)
			}
		}
		return injectBytes(m, &e, nil, "payload")
	case KindDone:
		return done(b, seq, branch, n)
	case KindPart, KindList:
		m := partMsg{transfer: n, seq: seq, branch: branch, index: uint32(b[3] % 12)}
		return le.AppendUint64(m.append(nil), uint64(b[4]%16))
	case KindAck:
		return appendAck(nil, n%8, []span{{uint64(b[3] % 8), uint16(b[4]%4) + 1}}, []span{{uint64(b[5] % 8), uint16(b[6]%4) + 1}})
	case KindNeed:
		return (&needMsg{id: testID(b[0]%4 + 1), first: uint16(b[1]), count: uint16(b[2]%needChunks) + 1}).append(nil)
	case KindCode:
		m := codeMsg{id: testID(b[0]%4 + 1), size: uint32(b[1]) * 1000, index: uint16(b[2] % 4)}
		first, end := chunk(int(m.size), int(m.index))
		return append(m.append(nil), make([]byte, end-first)...)
	case KindCancel:
		m := cancelMsg{left: uint16(b[3]) << 4, seq: seq}
		if b[4]&1 != 0 {
			m.origin = 10 + uint64(b[4]>>1%4)
		}
		return m.append(nil)
	case KindLost:
		return (&lostMsg{numbered: b[3]&1 != 0, code: CodePeerLost, seq: seq, branch: branch, transfer: n, incarnation: 11}).append(nil)
	case KindRefused:
		return (&refusedMsg{transfer: n % 8, code: CodeRefused, reason: b[3] % reasonCount}).append(nil)
	}
	return appendU40(nil, seq)
}

func done(b [8]byte, seq, branch, n uint64) []byte {
	m := doneMsg{flags: b[3] &^ (doneForks | doneSent | doneError), seq: seq, branch: branch, transfer: n, final: n}
	if branch == 0 {
		m.flags &^= doneBranch
	} else {
		m.flags |= doneBranch
	}
	if m.flags&doneNumbered != 0 {
		m.flags &^= doneFinal
	}
	var forks []uint64
	if b[4]&1 != 0 {
		m.flags |= doneForks
		forks = []uint64{uint64(b[4] % 16), uint64(b[5] % 16)}
	}
	if b[4]&2 != 0 {
		m.flags |= doneSent
		m.parts = uint32(b[6]%4) + 1
	}
	if b[4]&64 != 0 {
		m.flags |= doneError
		m.code = CodeTrap
	}
	return m.append(nil, forks)
}

// act does one thing that the bytes say.
func (h *hostile) act(op byte, b [8]byte) {
	c, p := h.c, Peer(b[7]>>6%2+1)
	h.now += Instant(b[3]) * 1000
	switch op %= 24; {
	case op < 14:
		r, err := c.Recv(h.now, p, Kind(op)%Kinds, h.message(Kind(op)%Kinds, b))
		if err != nil && !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrNoPeer) {
			h.t.Fatal(err)
		}
		h.begin(r)
	case op == 14:
		a := StartArgs{Roots: []Root{{To: Peer(b[0] % 4)}, {To: Peer(b[1] % 4)}}[:1+b[2]%2], Deadline: h.now + Instant(b[4])*Instant(time.Millisecond) + 1, Stateful: b[5]&1 != 0}
		a.Binding, _ = c.Bind(h.now, testID(1), ID{})
		if a.Binding != nil {
			if f, err := c.Start(h.now, &a); err == nil {
				h.begun[f] = true
			}
			c.Unbind(a.Binding)
		}
	case op == 15:
		_ = c.Cancel(h.now, FutureID(b[0]%8))
	case op == 16:
		c.PeerLost(h.now, p, nil)
	case op == 17:
		h.up(p)
	case op == 18:
		h.now += Instant(b[0]) << 20
		c.Tick(h.now)
	case op == 19:
		h.refuse = b[0]&1 != 0
	case op == 20 && len(h.asked) > 0:
		id := h.asked[0]
		h.asked = h.asked[1:]
		if b[0]&1 != 0 {
			h.store[id] = []byte{1}
			c.ObjectArrived(h.now, id)
		} else {
			c.ObjectFailed(h.now, id, nil)
		}
	case op > 20 && len(h.runs) > 0:
		h.step(op, b)
	}
	h.begin(c.NextRun())
}

func (h *hostile) begin(r *Run) {
	if r != nil {
		h.c.Own(r)
		h.runs = append(h.runs, r)
	}
}

// step lets a run do something, and perhaps finish.
func (h *hostile) step(op byte, b [8]byte) {
	c, i := h.c, int(b[0])%len(h.runs)
	r := h.runs[i]
	switch op {
	case 21:
		_, _ = c.Fork(h.now, r, Peer(b[1]%4), nil, nil)
		return
	case 22:
		if b[1]&1 != 0 {
			_ = c.Part(h.now, r, []byte{1})
		} else if id := r.Invocation(); c.HoldState(r, 1) == nil {
			h.held[id] = true
		}
		return
	}
	if b[1]&1 != 0 {
		_ = c.Forward(h.now, r, Peer(b[2]%4), nil)
	}
	h.runs = append(h.runs[:i], h.runs[i+1:]...)
	c.Finish(h.now, r, End{HasResult: true, Code: Code(b[4] % 2)})
}

func (h *hostile) check() {
	s, l := h.c.Sizes(), hostileLimits
	if s.Futures > l.Futures || s.Invocations > l.Invocations || s.Running > l.Running || s.HeldRuns > l.HeldRuns || s.HeldBytes > l.HeldBytes ||
		s.Records > l.Records || s.Tombstones > l.Tombstones || s.Fetches > l.Fetches || s.FetchBytes > l.FetchBytes || s.OutboxBytes > 2*l.OutboxBytes {
		h.t.Fatalf("over a limit: %+v", s)
	}
}

// FuzzRecv: whatever peers send and whenever, nothing panics, no table grows
// over its limit, every future ends once, and when all is over nothing is left.
func FuzzRecv(f *testing.F) {
	f.Add([]byte("a few bytes to begin with, nine for each thing that happens"))
	f.Fuzz(attack)
}

// TestHostile is the same with long random histories.
func TestHostile(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := make([]byte, 9*(10+r.IntN(600)))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if !t.Run("", func(t *testing.T) { attack(t, b) }) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func attack(t *testing.T, b []byte) {
	h := &hostile{t: t, now: 1, store: map[ID][]byte{testID(1): make([]byte, 100_000)}, ended: map[FutureID]bool{}, begun: map[FutureID]bool{}, held: map[InvocationID]bool{}}
	c, err := New(Config{Self: 10, Name: "victim", Limits: hostileLimits, Store: h, Effects: h})
	if err != nil {
		t.Fatal(err)
	}
	h.c = c
	h.up(1)
	h.up(2)
	for ; len(b) >= 9; b = b[9:] {
		h.act(b[0], [8]byte(b[1:]))
		h.check()
	}
	h.finish()
}

// finish lets all time pass, and looks at what is left.
func (h *hostile) finish() {
	h.refuse = false
	for range 10 {
		h.now += Instant(time.Hour)
		h.c.Tick(h.now)
		for r := h.c.NextRun(); r != nil; r = h.c.NextRun() {
			h.runs = append(h.runs, r)
		}
		for _, r := range h.runs {
			h.c.Finish(h.now, r, End{})
		}
		h.runs = nil
	}
	if s := h.c.Sizes(); s != (Sizes{}) {
		h.t.Fatalf("left: %+v", s)
	}
	if len(h.held) > 0 {
		h.t.Fatalf("state of %v was never freed", h.held)
	}
	for f := range h.begun {
		if !h.ended[f] {
			h.t.Fatalf("future %d never ended", f)
		}
	}
}
