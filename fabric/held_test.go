package fabric

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// slowCork stands for goroutines that compute while the leader steps aside.
type slowCork func()

func (c slowCork) Cork()   { c() }
func (c slowCork) Uncork() {}

// held is a leader without transports, whose clock goes on when a test says so.
type held struct {
	t     *testing.T
	el    *Element
	clock int64
	log   bytes.Buffer
}

func newHeld(t *testing.T) *held {
	h := &held{t: t, clock: 1}
	h.el = &Element{now: func() int64 { return h.clock }, log: slog.New(slog.NewTextHandler(&h.log, nil))}
	h.el.leader.el = h.el
	h.el.leader.clock(h.clock)
	return h
}

// handle delivers n messages, each handled in a time.
func (h *held) handle(n int, id FrameID, each time.Duration) {
	for range n {
		Message{From: &Endpoint{el: h.el}, ID: id}.handle(func(Message) { h.clock += int64(each) })
	}
}

// look reads the clock as the leader does now and then, and returns what was logged.
func (h *held) look() string {
	h.el.leader.clock(h.clock)
	defer h.log.Reset()
	return h.log.String()
}

func (h *held) silent(what string) {
	h.t.Helper()
	if s := h.look(); s != "" {
		h.t.Errorf("%s: %s", what, s)
	}
}

func (h *held) says(what string, parts ...string) {
	h.t.Helper()
	s := h.look()
	for _, p := range parts {
		if !strings.Contains(s, p) {
			h.t.Errorf("%s: the log has no %q: %q", what, p, s)
		}
	}
}

// TestHeldBySlowHandler: a handler that takes its time is in the log, by its name if it has one.
func TestHeldBySlowHandler(t *testing.T) {
	h := newHeld(t)
	h.handle(1, 100, 11*time.Millisecond)
	h.says("one alone", "level=WARN", "message 100", "held=11ms")
	h.silent("nothing more")
	h.clock += 2 * int64(time.Second)
	h.look()
	h.handle(50, 100, time.Microsecond)
	h.handle(1, 101, time.Second)
	h.says("very slow among others", "level=WARN", "message 101")
	h.clock += 2 * int64(time.Second)
	h.look()
	h.handle(50, 100, time.Microsecond)
	h.handle(1, 101, 20*time.Millisecond)
	h.handle(50, 102, time.Microsecond)
	h.look() // it could have been many: from now on each is timed
	h.handle(50, 100, time.Microsecond)
	h.handle(1, 101, 20*time.Millisecond)
	h.handle(50, 102, time.Microsecond)
	h.says("slow again among others", "level=WARN", "message 101", "held=20ms")
}

// TestHeldByMany: many quick handlers are no slow one, however long they take together.
func TestHeldByMany(t *testing.T) {
	h := newHeld(t)
	for range 5 {
		h.handle(2000, 100, 10*time.Microsecond)
		h.silent("2,000 handlers of 10 µs")
	}
}

// TestHeldByOthers: what goroutines compute while the leader steps aside for them is no handler's time.
func TestHeldByOthers(t *testing.T) {
	h := newHeld(t)
	h.el.leader.corkers = []Corker{slowCork(func() { h.clock += int64(30 * time.Millisecond) })}
	for range 3 {
		h.handle(1, 100, time.Microsecond)
		h.el.leader.giveWay()
		h.silent("a goroutine had the processor")
	}
	h.handle(1, 100, 15*time.Millisecond)
	h.el.leader.giveWay()
	h.says("slow before the leader stepped aside", "message 100", "held=15ms")
}

// TestHeldByOwn: of messages of this program's own layers the log has the name, and nobody is warned who can do nothing about them.
func TestHeldByOwn(t *testing.T) {
	h := newHeld(t)
	if err := h.el.Handle(100, func(Message) {}); err != nil {
		t.Fatal(err)
	}
	(*Layer)(h.el).Describe(100, "rpc: requests")
	h.handle(1, 100, 15*time.Millisecond)
	h.says("described", "level=INFO", `"rpc: requests"`, "held=15ms")
	h.clock += 2 * int64(time.Second)
	h.look()
	Message{From: &Endpoint{el: h.el}, ID: 100}.handle(func(Message) { (*Layer)(h.el).Handling("mine"); h.clock += int64(15 * time.Millisecond) })
	h.says("an inline handler of it", "level=WARN", "mine")
}
