package inject_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
)

// TestTurn: a function whose runs are long turns to native code once that is ready, and runs as wasm meanwhile; one that is asked for as wasm stays so.
func TestTurn(t *testing.T) {
	e := newScripted()
	e.ticks = 10
	g := newLock(e)
	s := newStage(t, e)
	img := signed(t, inForms(t, "long", 4, image.Wasm, image.LLVMBitcode), s.key)
	for range 3 {
		if got, err := s.call(img, forms.Auto); err != nil || got != "wasm32" {
			t.Fatalf("before native code is ready: %q, %v", got, err)
		}
	}
	<-g.begun
	g.open <- nil
	for got := ""; got != "llvm-bitcode"; {
		var err error
		if got, err = s.call(img, forms.Auto); err != nil {
			t.Fatal(err)
		}
	}
	ex, _ := s.node.rt.Explain(img.ID(), forms.Auto)
	if ex.Form != "llvm-bitcode" || !strings.Contains(ex.Why, "as wasm took") {
		t.Errorf("explained as %+v", ex)
	}
	if got, err := s.call(img, forms.Wasm); err != nil || got != "wasm32" {
		t.Errorf("asked for as wasm: %q, %v", got, err)
	}
	if n := len(e.loads("llvm-bitcode")); n != 1 {
		t.Errorf("it was made %d times", n)
	}
	if err := s.node.rt.Close(); err != nil || e.closed != 2 {
		t.Errorf("%d programs were closed, want 2 (%v)", e.closed, err)
	}
}

// TestExplainedAfterRuns: why a function runs as wasm goes by the runs so far, not by those before its code was made ready.
func TestExplainedAfterRuns(t *testing.T) {
	s := newStage(t, newScripted())
	img := signed(t, inForms(t, "short", 4, image.Wasm, image.LLVMBitcode), s.key)
	for range 3 {
		if got, err := s.call(img, forms.Auto); err != nil || got != "wasm32" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if ex, _ := s.node.rt.Explain(img.ID(), forms.Auto); ex.Form != "wasm32" || !strings.Contains(ex.Why, "runs take less than 100µs each") {
		t.Errorf("explained as %+v", ex)
	}
}

// TestTurnToWhatIsReady: a function turns to native code that somebody else has had made, too.
func TestTurnToWhatIsReady(t *testing.T) {
	e := newScripted()
	e.ticks = 10
	s := newStage(t, e)
	img := signed(t, inForms(t, "long", 4, image.Wasm, image.LLVMBitcode), s.key)
	if got, err := s.call(img, forms.Bitcode); err != nil || got != "llvm-bitcode" {
		t.Fatalf("asked for as bitcode: %q, %v", got, err)
	}
	var got []string
	wasm := false
	for end := time.Now().Add(patience); time.Now().Before(end); {
		answer, err := s.call(img, forms.Auto)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, answer)
		if wasm = wasm || answer == "wasm32"; wasm && answer == "llvm-bitcode" {
			return
		}
	}
	t.Errorf("it ran %d times, as wasm %v, and last as %s", len(got), wasm, got[len(got)-1])
}

// TestTurnBack: a function that turned to native code turns back if that takes longer, and says so.
func TestTurnBack(t *testing.T) {
	e := newScripted()
	e.ticks = 10
	e.took = map[string]time.Duration{"llvm-bitcode": 50 * time.Millisecond}
	s := newStage(t, e)
	img := signed(t, inForms(t, "long", 4, image.Wasm, image.LLVMBitcode), s.key)
	run := func(until string) (others int) {
		t.Helper()
		for end := time.Now().Add(patience); time.Now().Before(end); others++ {
			if got, err := s.call(img, forms.Auto); err != nil {
				t.Fatal(err)
			} else if got == until {
				return others
			}
		}
		t.Fatalf("it did not run as %s", until)
		return 0
	}
	run("llvm-bitcode")
	run("wasm32")
	for range 20 {
		if got, err := s.call(img, forms.Auto); err != nil || got != "wasm32" {
			t.Fatalf("after it turned back: %q, %v", got, err)
		}
	}
	ex, _ := s.node.rt.Explain(img.ID(), forms.Auto)
	if want := "runs as native code took 50ms each, and as wasm take 1ms: native code is tried again once they have taken"; ex.Form != "wasm32" || !strings.Contains(ex.Why, want) {
		t.Errorf("explained as %+v, want %q", ex, want)
	}
}

// TestHasteForgotten: how long native code takes that was made in haste does not decide against the best, and a function that has turned back from native code tries it
// once more when that has become better.
func TestHasteForgotten(t *testing.T) {
	e := newScripted()
	e.ticks, e.tiers = 10, true
	e.took = map[string]time.Duration{"llvm-bitcode": 50 * time.Millisecond, "llvm-bitcode, better": time.Microsecond}
	better := make(chan struct{})
	e.load = func(ctx context.Context, c abi.Code) error {
		if !c.Best {
			return nil
		}
		select {
		case <-better:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s := newStage(t, e)
	img := signed(t, inForms(t, "long", 4, image.Wasm, image.LLVMBitcode), s.key)
	run := func(until string) {
		t.Helper()
		got := ""
		for end := time.Now().Add(patience); got != until && time.Now().Before(end); {
			var err error
			if got, err = s.call(img, forms.Auto); err != nil {
				t.Fatal(err)
			}
		}
		if got != until {
			t.Fatalf("it did not run as %s", until)
		}
	}
	run("llvm-bitcode")
	for range 8 { // of which four would be enough to give the best up
		if got, err := s.call(img, forms.Auto); err != nil || got != "llvm-bitcode" {
			t.Fatalf("while the best is made: %q, %v", got, err)
		}
	}
	run("wasm32") // as this goes on, it is what there is
	close(better)
	run("llvm-bitcode, better")
	for range 50 {
		if got, err := s.call(img, forms.Auto); err != nil || got != "llvm-bitcode, better" {
			t.Fatalf("once the best is there: %q, %v", got, err)
		}
	}
	if ex, _ := s.node.rt.Explain(img.ID(), forms.Auto); !strings.Contains(ex.Why, "runs as native code take 1ms each, and as wasm took 1ms") {
		t.Errorf("explained as %+v", ex)
	}
}

// TestNotMade: native code that cannot be made ready is named with its reason, while the function runs as wasm.
func TestNotMade(t *testing.T) {
	e := newScripted()
	e.ticks = 10
	e.load = func(_ context.Context, c abi.Code) error {
		if c.Form == "llvm-bitcode" {
			return errors.New("it calls puts")
		}
		return nil
	}
	s := newStage(t, e)
	img := signed(t, inForms(t, "long", 4, image.Wasm, image.LLVMBitcode), s.key)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if got, err := s.call(img, forms.Auto); err != nil || got != "wasm32" {
			t.Fatalf("%q, %v", got, err)
		}
		if ex, _ := s.node.rt.Explain(img.ID(), forms.Auto); len(ex.Refused) == 1 && strings.Contains(ex.Refused[0].Why, "calls puts") {
			if ex.Form != "wasm32" {
				t.Errorf("explained as %+v", ex)
			}
			return
		}
	}
	t.Error("its bitcode was not named")
}
