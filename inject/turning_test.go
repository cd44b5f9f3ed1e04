package inject_test

import (
	"context"
	"errors"
	"fmt"
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
	if ex, _ := s.node.rt.Explain(img.ID(), forms.Auto); ex.Form != "wasm32" || !strings.Contains(ex.Why, "3 runs took") {
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
	native := 1 + run("wasm32")
	for range 20 {
		if got, err := s.call(img, forms.Auto); err != nil || got != "wasm32" {
			t.Fatalf("after it turned back: %q, %v", got, err)
		}
	}
	ex, _ := s.node.rt.Explain(img.ID(), forms.Auto)
	if want := fmt.Sprintf("%d runs as native code took 50ms each", native); ex.Form != "wasm32" || !strings.Contains(ex.Why, want) {
		t.Errorf("explained as %+v, want %q", ex, want)
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
