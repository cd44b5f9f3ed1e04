package rpc

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// locked is a buffer for a log that several goroutines write.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestHeldIsNamed: an inline handler that holds up the fabric is named in the log; one on a goroutine of its own is not, and
// holds up nothing.
func TestHeldIsNamed(t *testing.T) {
	log := &locked{}
	a := newSide(t, "a", Limits{})
	b := newSideOf(t, fabric.Config{Name: "b", Log: slog.New(slog.NewTextHandler(log, nil))}, Limits{})
	slow := func(context.Context, *Call) ([]byte, error) { time.Sleep(30 * time.Millisecond); return nil, nil }
	for name, o := range map[string]Options{"own": {}, "inline": {Inline: true}} {
		if err := b.p.Register(name, slow, o); err != nil {
			t.Fatal(err)
		}
	}
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	call := func(name string) {
		if _, err := a.p.Call(t.Context(), ep, name, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		call("own")
	}
	waitFor(t, "the handler is named", func() bool { // the clock must have been read before, in the same term of the same leader
		call("inline")
		return strings.Contains(log.String(), "last=inline")
	})
	if strings.Contains(log.String(), "last=own") {
		t.Errorf("a handler on its own goroutine is said to hold up the fabric:\n%s", log.String())
	}
}
