package lograte

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestFlood: thousands of lines of one message come to some kilobytes, which say how many there were; other messages are told.
func TestFlood(t *testing.T) {
	var out strings.Builder
	h := New(slog.NewTextHandler(&out, nil)).WithAttrs([]slog.Attr{slog.String("node", "a")}).WithGroup("g")
	now := time.Unix(1000, 0)
	say := func(text string) {
		t.Helper()
		r := slog.NewRecord(now, slog.LevelWarn, text, 0)
		r.AddAttrs(slog.String("peer", "10.0.0.1:50000"), slog.String("err", strings.Repeat("x", 200)))
		if err := h.Handle(context.Background(), r); err != nil {
			t.Fatal(err)
		}
	}
	for range 5760 { // in ten seconds
		say("peer broke the protocol")
		now = now.Add(10 * time.Second / 5760)
	}
	say("peer lost")
	if n := out.Len(); n > 40<<10 {
		t.Errorf("5,760 lines come to %d bytes", n)
	}
	now = now.Add(time.Minute)
	say("peer broke the protocol")
	lines, left := 0, 0
	for line := range strings.Lines(out.String()) {
		if !strings.Contains(line, "broke") {
			continue
		}
		lines++
		if _, n, ok := strings.Cut(line, "left_out="); ok {
			var k int
			fmt.Sscan(n, &k)
			left += k
		}
	}
	if lines+left != 5761 || lines < burst || lines > burst+55 {
		t.Errorf("%d lines say that %d were left out, of 5,761", lines, left)
	}
	if !strings.Contains(out.String(), "peer lost") {
		t.Error("another message is not told")
	}
}

// TestManyMessages: what is kept has a bound, also for a program whose messages are not constants.
func TestManyMessages(t *testing.T) {
	s := &state{of: map[string]*message{}}
	now := time.Unix(1000, 0)
	for i := range 2 * mostMessages {
		s.admit(fmt.Sprint(i), now)
	}
	if len(s.of) > mostMessages+1 {
		t.Errorf("%d messages are kept", len(s.of))
	}
}
