package inject_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
)

// lines is what was logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestLesser: why no better code could be made is said where the function's tier is, and once in the log. Each try puts the next one off for twice as long, for 10 minutes
// at most. Once there is better code, nothing is said any more.
func TestLesser(t *testing.T) {
	e := newScripted()
	e.tiers = true
	var fails error
	e.load = func(_ context.Context, c abi.Code) error {
		if c.Best {
			return fails
		}
		return nil
	}
	var log lines
	s := newStage(t, e, func(c *inject.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	img := signed(t, inForms(t, "bomb", 4, image.LLVMBitcode), s.key)
	try := func(err error, want time.Duration) {
		t.Helper()
		fails = err
		before := len(e.loads("llvm-bitcode"))
		if got, err := s.call(img, forms.Bitcode); err != nil || got != "llvm-bitcode" {
			t.Fatalf("%q, %v", got, err)
		}
		eventually(t, func() string {
			if n := len(e.loads("llvm-bitcode")); n == before || s.node.rt.Loading() > 0 {
				return "nothing better is tried"
			}
			return ""
		})
		if err != nil {
			ex, _ := s.node.rt.Explain(img.ID(), forms.Bitcode)
			list, _ := s.node.rt.Functions(1)
			for _, why := range []string{ex.Why, list[0].Ran[0].Why} {
				if !strings.Contains(why, "better code could not be made, which is tried again when it runs") || !strings.HasSuffix(why, ": "+err.Error()) {
					t.Errorf("after %v it is said %q", err, why)
				}
			}
		}
		if _, err := s.call(img, forms.Bitcode); err != nil { // which tries nothing
			t.Fatal(err)
		}
		if got := s.node.rt.PutOff(img.ID()); got > want || err != nil && got < want/2 {
			t.Errorf("after %v the next try is in %v, want %v", err, got, want)
		}
	}
	slow, refused := errors.New("it takes too long"), errors.New("it calls open")
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 320, 600, 600} {
		try(slow, want*time.Second)
	}
	try(refused, 600*time.Second)
	try(nil, 0)
	ex, _ := s.node.rt.Explain(img.ID(), forms.Bitcode)
	if list, _ := s.node.rt.Functions(1); strings.Contains(ex.Why, "better") || list[0].Ran[0].Why != "" {
		t.Errorf("with better code it is said %q and %q", ex.Why, list[0].Ran[0].Why)
	}
	if got := log.String(); strings.Count(got, "better code of a function could not be made") != 1 || !strings.Contains(got, "function=bomb") || !strings.Contains(got, "it takes too long") {
		t.Errorf("logged: %s", got)
	}
}
