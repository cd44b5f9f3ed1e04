// Package lograte keeps a log readable, and its disk free, whatever peers do: of each message it writes so many lines at once, and then so many a second.
package lograte

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// burst lines of one message may come at once: what happens to that many peers or shards at one time is told for each.
	burst = 50
	// every is how often there is one more.
	every = 200 * time.Millisecond
	// mostMessages bounds the messages that are told apart. Programs have a few hundred, each a constant; others count as one.
	mostMessages = 1 << 12
)

// Handler is a slog.Handler that leaves out lines beyond that, and says with the next one of the same message how many (left_out).
type Handler struct {
	to    slog.Handler
	state *state
}

type state struct {
	mu sync.Mutex
	of map[string]*message
}

// message is what was said of one message.
type message struct {
	free time.Time // when all of burst may come again
	left uint64    // left out since the last line
}

// New wraps a handler.
func New(to slog.Handler) *Handler { return &Handler{to, &state{of: map[string]*message{}}} }

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.to.Enabled(ctx, l) }

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{h.to.WithAttrs(attrs), h.state}
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler { return &Handler{h.to.WithGroup(name), h.state} }

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	left, says := h.state.admit(r.Message, r.Time)
	if !says {
		return nil
	}
	if left > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Uint64("left_out", left))
	}
	return h.to.Handle(ctx, r)
}

// admit reports whether a line may be written now, and how many were left out before it.
func (s *state) admit(text string, now time.Time) (left uint64, says bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.of[text]
	if m == nil {
		if len(s.of) >= mostMessages {
			text = ""
			m = s.of[text]
		}
		if m == nil {
			m = &message{}
			s.of[text] = m
		}
	}
	if m.free.Before(now) {
		m.free = now
	}
	if m.free.Sub(now) > (burst-1)*every {
		m.left++
		return 0, false
	}
	m.free = m.free.Add(every)
	left, m.left = m.left, 0
	return left, true
}
