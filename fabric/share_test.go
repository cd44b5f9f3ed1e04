package fabric

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// incarnationOf is one for each principal.
func incarnationOf(who string) (inc Incarnation) {
	inc = 9
	for _, b := range []byte(who) {
		inc = inc<<8 | Incarnation(b)
	}
	return inc
}

// attachAs is attach for a peer of some principal, who reads nothing from the start.
func attachAs(t *testing.T, e *Element, who string) (*Endpoint, *fakeLink) {
	t.Helper()
	link := &fakeLink{room: -1 << 30}
	ep, err := (*Layer)(e).Attach(PeerHello{Name: who, Incarnation: incarnationOf(who), Principal: Principal{Name: who}}, func(Receiver) (Link, error) { return link, nil })
	if err != nil {
		t.Fatal(err)
	}
	return ep, link
}

// reads has such a peer read all that waits for it.
func reads(ep *Endpoint, link *fakeLink) {
	link.mu.Lock()
	link.room = -1
	link.mu.Unlock()
	ep.receiver().Writable()
	ep.el.Progress()
}

// waits checks what is counted of all queues against what is in them.
func waits(t *testing.T, e *Element) {
	t.Helper()
	var outbox, reserved int
	for _, ep := range e.Endpoints() {
		s := ep.Stats()
		outbox, reserved = outbox+s.Outbox, reserved+s.Reserved
	}
	if o, r := e.outboxes.Load(), e.answers.Load(); o != int64(outbox) || r != int64(reserved) {
		t.Fatalf("%d and %d bytes are counted, %d and %d wait", o, r, outbox, reserved)
	}
}

// TestUnreadInAll: where too many answers wait for all peers together, the principal for whom most wait loses the
// connection with most, and nobody else anything.
func TestUnreadInAll(t *testing.T) {
	const bound = 64 << 10
	var log bytes.Buffer
	e, err := New(Config{Manual: true, Now: func() int64 { return 1 }, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Limits: Limits{ReservedBytes: bound, ReservedBytesInAll: bound}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	one, honest := attachAs(t, e, "honest")
	var crowd []*Endpoint
	for range 10 {
		ep, _ := attachAs(t, e, "crowd")
		crowd = append(crowd, ep)
	}
	answer := make([]byte, 1<<10)
	post := func(ep *Endpoint, times int) {
		t.Helper()
		for range times {
			if err := ep.Post(FirstReservedID, nil, answer); err != nil && ep.Err() == nil {
				t.Fatal(err)
			}
		}
	}
	post(one, 12)    // more than each of the crowd has
	const greedy = 7 // of the crowd: it has most, and less than the honest peer
	post(crowd[greedy], 5)
	lost := 0
	for round := range 10 {
		for _, ep := range crowd {
			post(ep, 1)
			waits(t, e)
			e.Progress()
			waits(t, e)
			if n := e.answers.Load(); n > bound {
				t.Fatalf("round %d: %d bytes wait", round, n)
			}
			if len(e.Endpoints()) == len(crowd) && crowd[greedy].Err() == nil {
				t.Fatal("it is not the one with most of the crowd that has ended first")
			}
		}
	}
	for i, ep := range crowd {
		if err := ep.Err(); err != nil {
			lost++
			if !errors.Is(err, ErrPeerLost) || !strings.Contains(err.Error(), "ReservedBytesInAll") || !strings.Contains(err.Error(), "crowd") {
				t.Errorf("connection %d of the crowd: %v", i, err)
			}
		}
	}
	if lost == 0 || lost == len(crowd) {
		t.Errorf("%d of %d connections of the crowd have ended", lost, len(crowd))
	}
	reads(one, honest)
	if got := len(honest.take()); one.Err() != nil || got != 12 {
		t.Errorf("the honest peer has %d of 12 answers, and %v", got, one.Err())
	}
	if s := log.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "principal=crowd ended=1") || lost < 2 {
		t.Errorf("of %d ended connections the log says\n%s", lost, s)
	}
	waits(t, e)
	for _, ep := range crowd {
		ep.Close()
	}
	if n := e.answers.Load(); n != 0 {
		t.Errorf("%d bytes are counted when nothing waits", n)
	}
}

// TestOutboxesInAll: where too much is posted to all peers together, each may still be posted one message.
func TestOutboxesInAll(t *testing.T) {
	const bound = 64 << 10
	e := loneElement(t, 1, Limits{OutboxBytes: bound, OutboxBytesInAll: bound})
	greedy, link := attachAs(t, e, "greedy")
	for n := 0; ; n++ {
		if err := greedy.Post(FirstMessageID, nil, make([]byte, 1<<10)); err == ErrBackpressure {
			break
		} else if err != nil || n > 64 {
			t.Fatalf("post %d: %v", n, err)
		}
	}
	waits(t, e)
	for i := range 3 {
		ep, _ := attachAs(t, e, fmt.Sprint(i))
		if err := ep.Post(FirstMessageID, nil, make([]byte, MaxMessageBytes-1<<10)); err != nil {
			t.Errorf("a first message: %v", err)
		}
		ep.Fence() // its mark is not held up
		if ep.epoch == 0 {
			t.Error("no room for a fence")
		}
		if err := ep.Post(FirstMessageID, nil, nil); err != ErrBackpressure {
			t.Errorf("a second message: %v", err)
		}
		waits(t, e)
		ep.Close()
	}
	waits(t, e)
	reads(greedy, link)
	if n := e.outboxes.Load(); n != 0 {
		t.Errorf("%d bytes are counted when all has gone", n)
	}
	if err := greedy.Post(FirstMessageID, nil, nil); err != nil {
		t.Error(err)
	}
}

// TestEndpointsPerPrincipal: places are counted for whom they are, and come back.
func TestEndpointsPerPrincipal(t *testing.T) {
	e := loneElement(t, 1, Limits{Endpoints: 5, EndpointsPerPrincipal: 2})
	try := func(who string) (*Endpoint, *fakeLink, error) {
		link := &fakeLink{room: -1}
		var peer Receiver
		ep, err := (*Layer)(e).Attach(PeerHello{Name: who, Incarnation: incarnationOf(who), Principal: Principal{Name: who}}, func(r Receiver) (Link, error) {
			peer = r
			return link, nil
		})
		if err != nil {
			peer.Lost(ErrPeerLost) // it was none, and frees no place
		}
		return ep, link, err
	}
	for _, who := range []string{"a", "b", "a", "b"} {
		if _, _, err := try(who); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // refused ones do not count
		ep, link, err := try("a")
		if !errors.Is(err, ErrTooMany) || !strings.Contains(err.Error(), `"a"`) || !link.closed || ep != nil {
			t.Fatalf("a third one of a principal: %v", err)
		}
	}
	if err := e.roomForPrincipal("b"); !errors.Is(err, ErrTooMany) {
		t.Errorf("in HELLO: %v", err)
	}
	first := e.Endpoints()[0]
	first.Close()
	first.receiver().Lost(ErrPeerLost) // which is no second end
	if _, _, err := try("a"); err != nil {
		t.Errorf("after one of them ended: %v", err)
	}
	if _, _, err := try("a"); err == nil {
		t.Error("one end made room for two")
	}
	if _, _, err := try("c"); err != nil {
		t.Errorf("another principal: %v", err)
	}
	for _, ep := range e.Endpoints() {
		ep.Close()
	}
	if len(e.opened) != 0 {
		t.Errorf("counted when all have ended: %v", e.opened)
	}
}

func TestSharesByDefault(t *testing.T) {
	for _, c := range []struct {
		set                       Limits
		apart                     bool
		principal, outbox, answer int
	}{
		{Limits{}, false, 4096, 256 << 20, 256 << 20},
		{Limits{}, true, 3584, 256 << 20, 256 << 20},
		{Limits{Endpoints: 7}, true, 7, 256 << 20, 256 << 20},
		{Limits{Endpoints: 7, EndpointsPerPrincipal: 3, OutboxBytes: 1 << 30, ReservedBytes: 2 << 30}, true, 3, 1 << 30, 2 << 30},
	} {
		l := c.set
		l.defaults()
		l.defaultPrincipal(c.apart)
		if l.EndpointsPerPrincipal != c.principal || l.OutboxBytesInAll != c.outbox || l.ReservedBytesInAll != c.answer {
			t.Errorf("%+v, apart %v: %d of one principal, %d and %d bytes", c.set, c.apart, l.EndpointsPerPrincipal, l.OutboxBytesInAll, l.ReservedBytesInAll)
		}
	}
}

// TestIdleEndpointsLetGo: what an endpoint keeps for its next use goes when nothing is heard of the peer, and
// a late answer meets nobody else's operation afterwards.
func TestIdleEndpointsLetGo(t *testing.T) {
	now := int64(1)
	e, err := New(Config{Name: "lone", Manual: true, Now: func() int64 { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	seg, err := e.NewSegment(1<<20, Writable)
	if err != nil {
		t.Fatal(err)
	}
	key, err := seg.Key(RightsAll)
	if err != nil {
		t.Fatal(err)
	}
	ep, link := attach(t, e, 2)
	remote := newRemote(ep, Key{Owner: 2, Size: 1 << 20, Rights: RightsAll})
	link.room = 0
	var ops []Op
	var late uint32
	for i := range 200 { // the link takes none of these
		ops = append(ops, remote.StartPut(make([]byte, 1000), 0))
		late = max(late, ops[i].rec.id())
		ep.Post(FirstMessageID, nil, make([]byte, 100))
		for _, id := range []FrameID{framePut, frameGet} {
			if err := ep.receiver().Frame(id, appendAccess(nil, uint32(i), key.ref(), 0, 5000)); err != nil {
				t.Fatal(err)
			}
		}
	}
	idle := func() {
		for range 3 {
			now += int64(e.cfg.Limits.PeerTime) / 8
			e.Progress()
		}
	}
	idle()
	if n := len(ep.ops.records); n != 4*opChunk || len(ep.in.puts) != 200 || len(ep.bulk) != 400 || ep.outbox.n != 200 {
		t.Fatalf("of what is under way, %d operations, %d Puts, %d transfers and %d messages are left", n, len(ep.in.puts), len(ep.bulk), ep.outbox.n)
	}
	link.room = -1
	ep.receiver().Writable()
	for i, op := range ops {
		if err := errors.Join(ep.receiver().Frame(framePutDone, append(u32(op.rec.id()), u32(0)...)), op.Wait(soon(t)),
			ep.receiver().Frame(framePutData, bulkHead(nil, uint32(i), bulkLast|bulkAbort, 0))); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		e.Progress()
	}
	if len(ep.bulkFree) == 0 || len(ep.in.free) == 0 || len(ep.ops.free) == 0 || cap(ep.outbox.buf) == 0 {
		t.Error("nothing is kept where it may be of use at once")
	}
	idle()
	if ep.ops.records != nil || ep.ops.free != nil || ep.bulkFree != nil || ep.in.free != nil || ep.in.puts != nil || ep.outbox.buf != nil {
		t.Error("an idle endpoint keeps what it had for more than that")
	}
	lateAnswers(t, remote, late, idle)
}

// lateAnswers has operations run, with pauses, for each of which the answer to an earlier one of its index comes first.
func lateAnswers(t *testing.T, remote *Remote, late uint32, idle func()) {
	ep, buf := remote.ep, make([]byte, 8)
	for range 3 {
		op := remote.StartGet(buf, 0)
		if n := len(ep.ops.records); n != opChunk {
			t.Errorf("%d records for one operation", n)
		}
		if err := ep.receiver().Frame(frameGetDone, append(u32(late&0xffff0000|uint32(op.rec.index)), u32(1)...)); err != nil || op.Poll() {
			t.Fatalf("the answer to an earlier operation: %v", err)
		}
		late = op.rec.id()
		if err := errors.Join(ep.receiver().Frame(frameGetData, append(bulkHead(nil, late, bulkLast, 0), buf...)), op.Wait(soon(t))); err != nil {
			t.Fatal(err)
		}
		idle()
	}
}

// TestRingRefused: a doorbell that finds no room behind a fence says so, and is not forgotten.
func TestRingRefused(t *testing.T) {
	e := loneElement(t, 1, Limits{OutboxBytes: 64 << 10})
	ep, _ := attachAs(t, e, "greedy")
	for n := 0; ; n++ {
		if err := ep.Post(FirstMessageID, nil, make([]byte, 1<<10)); err == ErrBackpressure {
			break
		} else if err != nil || n > 100 {
			t.Fatalf("post %d: %v", n, err)
		}
	}
	for ep.Post(FirstMessageID, nil, nil) == nil { // no room for less, either
	}
	ep.Fence()
	r := ep.Served(Key{Owner: ep.Incarnation(), Size: 64, Rights: RightsAll})
	var said *PeerError
	if err := r.Ring(8, 4, 1); !errors.Is(err, ErrBackpressure) || !errors.As(err, &said) {
		t.Errorf("a doorbell that was not rung: %v", err)
	}
	if n := ep.ops.inUse(); n != 0 {
		t.Errorf("%d operations are left", n)
	}
}
