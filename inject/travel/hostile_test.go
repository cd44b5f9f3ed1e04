package travel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	quick  bool // Arrive and Ask come first
	ended  map[FutureID]bool
	begun  map[FutureID]bool
	asked  []ID
	held   map[InvocationID]bool
	refuse bool
	roots  []root
	bound  *Binding
	l      Limits
	log    []string // all effects, and what begins

	visiting    *Run   // the light one
	lightFuture uint64 // the open light future's number
	met         counts
}

// counts say how visits and light futures ended.
type counts struct{ answered, onward, became, reported, registered int }

func (n *counts) add(o counts) {
	n.answered, n.onward, n.became = n.answered+o.answered, n.onward+o.onward, n.became+o.became
	n.reported, n.registered = n.reported+o.reported, n.registered+o.registered
}

// watch counts what became of the visit and the light future that were open.
func (h *hostile) watch() {
	if h.visiting != nil && h.c.light != h.visiting {
		h.visiting = nil
		h.met.became++
	}
	e := &h.c.lightFuture
	if h.lightFuture != 0 && (!e.open || e.seq != h.lightFuture) {
		if e.seq == h.lightFuture { // register forgets it
			h.met.reported++
		} else {
			h.met.registered++
		}
	}
	if h.lightFuture = 0; e.open {
		h.lightFuture = e.seq
	}
}

// inject gives the core an INJECT, and reports whether something may begin.
func (h *hostile) inject(p Peer, body []byte) bool {
	if h.quick {
		if r := h.c.Arrive(h.now, p, body); r != nil {
			h.logf("begin %x for %d until %d: %x", r.Binding().Image, r.Origin(), r.Deadline(), r.Payload)
			h.visiting = r
			h.runs = append(h.runs, r)
			return true
		}
	}
	r, err := h.c.Recv(h.now, p, KindInject, body)
	if err != nil && !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrNoPeer) {
		h.t.Fatal(err)
	}
	h.begin(r)
	return r != nil
}

// done gives the core a DONE.
func (h *hostile) done(p Peer, body []byte) {
	if h.quick && h.c.Done(h.now, p, body) {
		return
	}
	if _, err := h.c.Recv(h.now, p, KindDone, body); err != nil && !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrNoPeer) {
		h.t.Fatal(err)
	}
}

func (h *hostile) Get(id ID) []byte { return h.store[id] }
func (h *hostile) Pin(id ID) bool   { return h.store[id] != nil }
func (h *hostile) Unpin(ID)         {}
func (h *hostile) Send(to Peer, k Kind, head, body []byte) error {
	if len(head)+len(body) > MaxMessageBytes {
		h.t.Fatalf("a message of %d bytes", len(head)+len(body))
	}
	if h.refuse {
		return ErrBackpressure
	}
	h.logf("send %d %v %x %x", to, k, head, body)
	if k == KindInject {
		var m injectMsg
		var e injectExt
		if err := m.decode(append(append([]byte(nil), head...), body...), &e); err != nil {
			h.t.Fatal(err)
		}
		if m.flags&flagOrigin == 0 {
			h.roots = append(h.roots, root{to, m.seq, m.branch, m.transfer})
		}
	}
	return nil
}

func (h *hostile) logf(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

// root is a branch of ours that was sent.
type root struct {
	to                    Peer
	seq, branch, transfer uint64
}

func (h *hostile) Part(f FutureID, branch uint64, index uint32, last bool, data []byte) {
	h.logf("part %d %x %d %v %x", f, branch, index, last, data)
	if h.ended[f] {
		h.t.Fatal("a part after the end")
	}
}
func (h *hostile) Complete(f FutureID, o *Outcome) {
	if o.HasReply {
		h.Part(f, 0, 0, true, o.Reply)
	}
	if h.ended[f] {
		h.t.Fatal("ended twice")
	}
	h.ended[f] = true
	h.logf("complete %d %v %d", f, o.Err, o.Branches)
	if o.Err != nil && o.Err.Error() == "" {
		h.t.Fatal("an error without words")
	}
}
func (h *hostile) Stop(r *Run) { h.logf("stop %v %x", r.Invocation(), r.Branch()) }
func (h *hostile) FreeState(id InvocationID, _ any) {
	delete(h.held, id)
	h.logf("free %v", id)
}
func (h *hostile) Retire(any)        {}
func (h *hostile) Keep() any         { return h }
func (h *hostile) Release(any)       {}
func (h *hostile) Reserve(*Run) Room { return RoomTaken }
func (h *hostile) Freeing() bool     { return false }
func (h *hostile) Unreserve(*Run)    {}
func (h *hostile) Object(id ID, _ []byte) {
	h.asked = append(h.asked, id)
	h.logf("object %v", id)
}
func (h *hostile) Sever(p Peer, err error) { h.logf("sever %d %v", p, err) }

var hostileLimits = Limits{Futures: 8, Invocations: 16, Running: 4, HeldRuns: 8, HeldBytes: 16 << 10, PrincipalHeldRuns: 6, PrincipalHeldBytes: 12 << 10,
	Records: 32, Tombstones: 4, Bindings: 3, Fetches: 2, ObjectBytes: 200 << 10, FetchBytes: 300 << 10, OutboxBytes: 4 << 10, Branches: 16, Parts: 8, MaxTime: time.Hour}

func (h *hostile) up(p Peer) {
	info := PeerInfo{Incarnation: uint64(p) + 10, Name: "peer", Member: p <= 2, Injector: true}
	if err := h.c.PeerUp(h.now, p, info); err != nil && !errors.Is(err, ErrLimit) {
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
			e.declared, e.what.Image = true, testID(b[5]%4+1)
			if b[7]&1 != 0 {
				e.what.Table = testID(b[7]%8 + 100)
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
		return appendAck(nil, n%8, []span{{uint64(b[3] % 8), uint16(b[4]%4) + 1}})
	case KindNeed:
		return (&needMsg{id: testID(b[0]%4 + 1), first: uint16(b[1]), count: uint16(b[2]%needChunks) + 1}).append(nil)
	case KindCode:
		m := codeMsg{id: testID(b[0]%4 + 1), size: uint32(b[1]) * 1000, index: uint16(b[2] % 4)}
		first, end := chunk(int(m.size), int(m.index))
		return append(m.append(nil), make([]byte, end-first)...)
	case KindCancel:
		return (&cancelMsg{left: uint16(b[3]) << 4, seq: seq}).append(nil)
	case KindLost:
		return (&lostMsg{numbered: b[3]&1 != 0, code: CodePeerLost, seq: seq, branch: branch, transfer: n, incarnation: 11}).append(nil)
	case KindPace:
		return (&paceMsg{wait: b[3]&1 != 0, origin: uint64(n%4) + 1}).append(nil)
	case KindRefused:
		return (&refusedMsg{transfer: n % 8, code: CodeRefused, reason: b[3] % reasonCount}).append(nil)
	case KindRoom:
		return (&roomMsg{what: roomWord(b[3] % byte(roomWords)), seq: seq}).append(nil)
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
	if op >= honestOps {
		h.honest(op, b)
		h.begin(c.NextRun())
		return
	}
	switch op %= 24; {
	case op < 14 && Kind(op)%Kinds == KindInject:
		h.inject(p, h.message(KindInject, b))
	case op < 14 && Kind(op)%Kinds == KindDone:
		h.done(p, h.message(KindDone, b))
	case op < 14:
		_, err := c.Recv(h.now, p, Kind(op)%Kinds, h.message(Kind(op)%Kinds, b))
		if err != nil && !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrNoPeer) {
			h.t.Fatal(err)
		}
	case op == 14:
		h.start(b[5]&1 != 0, Instant(b[4])*Instant(time.Millisecond)+1, []Root{{To: Peer(b[0] % 4)}, {To: Peer(b[1] % 4)}}[:1+b[2]%2]...)
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

// start starts a function that every core here has bound from the first.
func (h *hostile) start(stateful bool, d Instant, roots ...Root) {
	if h.quick && len(roots) == 1 && !stateful {
		if f := h.c.Ask(h.now, h.bound, roots[0].To, h.now+d, nil); f != 0 {
			h.logf("start %d %v", f, nil)
			h.begun[f] = true
			h.watch()
			return
		}
	}
	f, err := h.c.Start(h.now, &StartArgs{Binding: h.bound, Roots: roots, Deadline: h.now + d, Stateful: stateful})
	if h.logf("start %d %v", f, err); err == nil {
		h.begun[f] = true
	}
}

// honestOps is the first operation of those that keep to the protocol, which chance would seldom hit.
const honestOps = 216

// honest does what a peer that means well does: it ends a branch that it has, perhaps says so twice, or sends one that it numbers right.
func (h *hostile) honest(op byte, b [8]byte) {
	c := h.c
	switch {
	case op%4 == 2 && b[6]&1 != 0:
		h.acknowledge(c.peer(Peer(b[0]%2+1)), b)
		return
	case op%4 == 2:
		h.start(b[5]&3 == 0, Instant(b[4])*Instant(time.Millisecond)+1, Root{To: Peer(b[0]%2 + 1)})
		if b[6]&2 != 0 {
			h.answer(0, b)
		}
		return
	case op%4 == 0:
		p := c.peer(Peer(b[0]%2 + 1))
		if p == nil {
			return
		}
		m := injectMsg{hops: 9, left: encodeTime(Instant(b[1]+1) * Instant(time.Millisecond)), transfer: p.recvLow, seq: max(c.nextID, 16) - uint64(b[2]%16)}
		if b[4]&1 != 0 && p.Member {
			m.flags, m.origin = m.flags|flagOrigin, 10+uint64(b[4]>>1%3)*2
		}
		if b[5]&7 == 0 {
			m.flags |= flagState
		}
		var ext *injectExt
		if len(p.handles) == 0 || !p.handles[0].known || b[5]>>3&3 == 0 {
			m.flags |= flagExt
			ext = &injectExt{declared: true, what: What{Image: testID(1)}}
		}
		if !h.inject(p.num, injectBytes(m, ext, nil, "payload")) {
			return
		}
		switch b[6] & 3 {
		case 1:
			h.end(len(h.runs)-1, CodeOK)
		case 2, 3: // it goes straight on
			h.leave(len(h.runs)-1, Peer(b[6]>>2%2+1), CodeOK)
		}
		return
	}
	h.answer(int(b[0]%8), b)
}

// answer ends one of the branches sent last, perhaps twice.
func (h *hostile) answer(back int, b [8]byte) {
	c := h.c
	if len(h.roots) == 0 {
		return
	}
	r := h.roots[max(len(h.roots)-1-back, 0)]
	if c.peer(r.to) == nil {
		return
	}
	m := doneMsg{flags: doneFinal | doneResult&b[1], seq: r.seq, branch: r.branch, final: r.transfer}
	if r.branch != 0 {
		m.flags |= doneBranch
	}
	body := append(m.append(nil, nil), make([]byte, int(m.flags&doneResult))...)
	for range 1 + b[2]%2 {
		h.done(r.to, body)
	}
}

// acknowledge accepts all that a peer was sent, or all but the last.
func (h *hostile) acknowledge(p *peer, b [8]byte) {
	if p == nil {
		return
	}
	low := p.next - min(p.next, uint64(b[3]%2))
	if _, err := h.c.Recv(h.now, p.num, KindAck, appendAck(nil, low, nil)); err != nil {
		h.t.Fatal(err)
	}
}

// leave forwards a run and gives it back.
func (h *hostile) leave(i int, to Peer, code Code) {
	c := h.c
	if code == CodeOK && c.Onward(h.now, h.runs[i], to, nil) {
		h.runs = slices.Delete(h.runs, i, i+1)
		h.visiting = nil
		h.met.onward++
		return
	}
	r := h.runs[i]
	_ = c.Forward(h.now, r, to, nil)
	h.runs = slices.Delete(h.runs, i, i+1)
	c.Finish(h.now, r, End{HasResult: true, Code: code})
}

// end gives a run back.
func (h *hostile) end(i int, code Code) {
	if code == CodeOK && h.c.Answer(h.runs[i], []byte("result"), true) {
		h.visiting = nil
		h.met.answered++
	} else {
		h.c.Finish(h.now, h.runs[i], End{Result: []byte("result"), HasResult: true, Code: code})
	}
	h.runs = slices.Delete(h.runs, i, i+1)
}

func (h *hostile) begin(r *Run) {
	if r != nil {
		h.logf("begin %x for %d until %d: %x", r.Binding().Image, r.Origin(), r.Deadline(), r.Payload)
		h.c.Own(r)
		h.runs = append(h.runs, r)
	}
}

// step lets a run do something, and perhaps finish.
func (h *hostile) step(op byte, b [8]byte) {
	c, i := h.c, int(b[0])%len(h.runs)
	switch {
	case op == 23 && b[1]&1 != 0:
		h.leave(i, Peer(b[2]%4), Code(b[4]%2))
		return
	case op == 23:
		h.end(i, Code(b[4]%2))
		return
	}
	r := h.runs[i]
	h.logf("step %v %x %d %d", r.Invocation(), r.Branch(), r.Hops(), r.Deadline())
	switch id := r.Invocation(); {
	case op == 21:
		_, _ = c.Fork(h.now, r, Peer(b[1]%4), nil, nil)
	case b[1]&1 != 0:
		_ = c.Part(h.now, r, []byte{1})
	default:
		if c.HoldState(r, 1) == nil {
			h.held[id] = true
		}
	}
}

func (h *hostile) check() {
	s, l := h.c.Sizes(), h.l
	if s.Futures > l.Futures || s.Invocations > l.Invocations || s.Running > l.Running || s.HeldRuns > l.HeldRuns || s.HeldBytes > l.HeldBytes ||
		s.Records > l.Records || s.Tombstones > l.Tombstones || s.Fetches > l.Fetches || s.FetchBytes > l.FetchBytes || s.OutboxBytes > 2*l.OutboxBytes {
		h.t.Fatalf("over a limit: %+v", s)
	}
}

// FuzzRecv: whatever peers send and whenever, nothing panics, no table grows
// over its limit, every future ends once, and when all is over nothing is left.
func FuzzRecv(f *testing.F) {
	f.Add([]byte("a few bytes to begin with, nine for each thing that happens"))
	f.Fuzz(func(t *testing.T, b []byte) { attack(t, b, hostileLimits, false) })
}

// TestHostile is the same with long random histories.
func TestHostile(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := make([]byte, 9*(10+r.IntN(600)))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if !t.Run("", func(t *testing.T) { same(t, attack(t, b, hostileLimits, false), attack(t, b, hostileLimits, true)) }) {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestPutOff: what the core puts off nobody can tell, whatever happens meanwhile and however narrow its limits. Peers
// mostly mean well here, so that branches come and end in all ways; a core that puts nothing off does the same.
func TestPutOff(t *testing.T) {
	narrow := []func(l *Limits){
		func(*Limits) {},
		func(l *Limits) { l.Futures = 1 },
		func(l *Limits) { l.Futures, l.Invocations = 3, 3 },
		func(l *Limits) { l.Invocations = 1 },
		func(l *Limits) { l.Records = 4 },
		func(l *Limits) { l.Running, l.HeldRuns = 1, 2 },
		func(l *Limits) { l.Bindings = 1 },
	}
	often := []byte{14, 15, 16, 17, 17, 18, 20, 21, 21, 22, 22, 23, 23, 23, 23} // see act
	met := counts{}
	for seed := range uint64(420) {
		r := rand.New(rand.NewPCG(seed, 2))
		l := hostileLimits
		narrow[seed%uint64(len(narrow))](&l)
		b := make([]byte, 9*(10+r.IntN(400)))
		for i := range b {
			b[i] = byte(r.Uint32())
			if i%9 == 0 && r.IntN(3) > 0 {
				b[i] = honestOps + b[i]%(255-honestOps)
			} else if i%9 == 0 {
				b[i] = often[int(b[i])%len(often)]
			}
		}
		if !t.Run("", func(t *testing.T) {
			h := attack(t, b, l, false)
			met.add(h.met)
			same(t, h, attack(t, b, l, true))
		}) {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("visits and light futures: %+v", met)
	if least := min(met.answered, met.onward, met.became, met.reported, met.registered); least < 300 {
		t.Errorf("some of that only %d times", least)
	}
}

// same checks that two cores did the same. Which of several peers gets its ACK first is left open: a visit's
// acceptance is noted when it ends, and one that is answered needs none.
func same(t *testing.T, h, prompt *hostile) {
	t.Helper()
	for _, log := range [][]string{h.log, prompt.log} {
		for i, from := 0, 0; i <= len(log); i++ {
			if i == len(log) || !strings.HasPrefix(log[i], "send") || !strings.Contains(log[i], " "+KindAck.String()+" ") {
				slices.Sort(log[from:i])
				from = i + 1
			}
		}
	}
	for i := range min(len(h.log), len(prompt.log)) {
		if h.log[i] != prompt.log[i] {
			t.Fatalf("effect %d is %s; of a core that puts nothing off it is %s", i, h.log[i], prompt.log[i])
		}
	}
	if len(h.log) != len(prompt.log) || h.c.stats != prompt.c.stats {
		t.Fatalf("%d effects and %+v; of a core that puts nothing off %d and %+v", len(h.log), h.c.stats, len(prompt.log), prompt.c.stats)
	}
}

// attack plays a history. prompt has the core catch up after each event with what it puts off, and makes no visits
// and no light futures.
func attack(t *testing.T, b []byte, l Limits, prompt bool) *hostile {
	h := &hostile{t: t, l: l, quick: !prompt, now: 1, store: map[ID][]byte{testID(1): make([]byte, 100_000)}, ended: map[FutureID]bool{}, begun: map[FutureID]bool{}, held: map[InvocationID]bool{}}
	c, err := New(Config{Self: 10, Name: "victim", Limits: l, Store: h, Effects: h})
	if err != nil {
		t.Fatal(err)
	}
	h.c = c
	h.up(1)
	h.up(2)
	if h.bound, err = c.Bind(h.now, testID(1), ID{}); err != nil {
		t.Fatal(err)
	}
	for ; len(b) >= 9; b = b[9:] {
		h.act(b[0], [8]byte(b[1:]))
		h.watch()
		if audit(t, c, h.bound); t.Failed() {
			t.FailNow()
		}
		if prompt || b[8]&7 == 0 { // not each time: it makes the core catch up with what it has put off
			h.check()
		}
	}
	h.finish()
	return h
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
		for i := range h.runs {
			h.c.Finish(h.now, h.runs[i], End{})
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
