package ca

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestReminder: each stage is told once, and anew of a certificate that takes another's place.
func TestReminder(t *testing.T) {
	until := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	later := until.Add(365 * 24 * time.Hour)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	var r reminder
	for _, c := range []struct {
		until, now time.Time
		says       string // "": nothing
	}{
		{until, until.Add(-31 * 24 * time.Hour), ""},
		{until, until.Add(-RenewTime), "level=WARN msg=\"this element's own certificate ends soon"},
		{until, until.Add(-2 * 24 * time.Hour), ""},
		{until, until.Add(-lastCall), "left=24h0m0s"},
		{until, until, ""},
		{until, until.Add(time.Second), "level=ERROR msg=\"this element's own certificate has expired"},
		{until, until.Add(time.Hour), ""},
		{later, until.Add(time.Hour), ""},
		{later, later.Add(-time.Hour), "left=1h0m0s"},
		{later, later.Add(time.Hour), "has expired"},
	} {
		log.Reset()
		r.remind(logger, "n1.crt", c.until, c.now)
		text := log.String()
		if (text == "") != (c.says == "") || !strings.Contains(text, c.says) || c.says != "" && (strings.Count(text, "\n") != 1 || !strings.Contains(text, "cert=n1.crt")) {
			t.Errorf("%v before the end: %q, want %q", c.until.Sub(c.now), text, c.says)
		}
	}
}

// lockedText is a log that may be read while it is written.
type lockedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestWatchReminds: whoever watches over its connections hears that its certificate has ended.
func TestWatchReminds(t *testing.T) {
	a := newAuthority(t)
	log := &lockedText{}
	var cert *Cert
	var id *Identity
	for term := 2 * time.Second; id == nil; term *= 2 { // a longer one where it has ended before it is read
		request := nodeOf("for-"+term.String(), "127.0.0.1")
		request.Term = term
		issued, files := issue(t, a, request)
		loaded, err := Load(files, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil && !strings.Contains(err.Error(), "has expired") {
			t.Fatal(err)
		}
		cert, id = issued, loaded
	}
	if !id.Until().Equal(cert.Until) {
		t.Errorf("it ends at %v, want %v", id.Until(), cert.Until)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		id.watch(ctx, time.Millisecond, func() {})
	}()
	for end := time.Now().Add(time.Minute); !strings.Contains(log.String(), "has expired"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log: %s", log)
		}
	}
	cancel()
	<-done
	if text := log.String(); strings.Count(text, "level=ERROR") != 1 || strings.Count(text, "ends soon") > 1 {
		t.Errorf("the log: %s", text)
	}
}
