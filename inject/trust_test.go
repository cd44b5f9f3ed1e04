package inject_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/trust"
	"github.com/wherry-fabric/wherry/schema"
)

// trusting is a policy of keys.
func trusting(t *testing.T, keys ...trust.Key) *trust.Policy {
	t.Helper()
	p, err := trust.New(keys)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTrustReplaced: a key that is withdrawn starts no more runs of what it signed, although that is loaded and bound; one that is added does, of what
// is here already; and code that needs no key is left alone.
func TestTrustReplaced(t *testing.T) {
	s := newStage(t, newScripted())
	first, one := signer(1)
	second, two := signer(2)
	img := inForms(t, "both", 4, image.Wasm, image.LLVMBitcode)
	ones, twos := signed(t, img, first), signed(t, inForms(t, "twos", 4, image.LLVMBitcode), second)
	runs := func(when string, img *image.Image, form forms.Wish, want string) {
		t.Helper()
		if got, err := s.call(img, form); err != nil || got != want {
			t.Errorf("%s: %q, %v", when, got, err)
		}
	}
	refused := func(when string, img *image.Image) {
		t.Helper()
		if got, err := s.call(img, forms.Bitcode); !errors.Is(err, travel.ErrRefused) || !strings.Contains(err.Error(), "none of those keys is trusted") {
			t.Errorf("%s: %q, %v", when, got, err)
		}
	}
	prepared, err := s.client.rt.PrepareAs(ones, nil, forms.Bitcode) // whose binding lasts
	if err != nil {
		t.Fatal(err)
	}
	defer prepared.Close()
	again := func() error { _, err := prepared.Do(s.ctx, s.root(), nil); return err }
	if err := again(); err != nil {
		t.Fatal(err)
	}
	runs("before", ones, forms.Wasm, "wasm32")
	refused("before it is trusted", twos)

	s.node.rt.SetTrust(trusting(t, two))
	if err := again(); !errors.Is(err, travel.ErrRefused) {
		t.Errorf("with a binding of before: %v", err)
	}
	refused("withdrawn", ones)
	if s.e.closed != 1 {
		t.Errorf("%d programs were given up", s.e.closed)
	}
	runs("as wasm", ones, forms.Wasm, "wasm32")
	runs("added", twos, forms.Bitcode, "llvm-bitcode")

	s.node.rt.SetTrust(trusting(t, one, two))
	runs("trusted again", ones, forms.Bitcode, "llvm-bitcode")
	if err := again(); err != nil {
		t.Errorf("trusted again, with a binding of before: %v", err)
	}
	runs("still trusted", twos, forms.Bitcode, "llvm-bitcode")
}

// TestTrustOfDerived: a derived function is trusted as its parent is, and no longer: a key that is withdrawn takes its own machine code with it.
func TestTrustOfDerived(t *testing.T) {
	e := newScripted()
	e.derive = true
	s := newStage(t, e)
	key, one := signer(1)
	img := signed(t, parentOf(t), key)
	call := func() error {
		got, err := s.callWith(img, make([]byte, 8))
		if err == nil && got != "llvm-bitcode" {
			t.Errorf("answer %q", got)
		}
		return err
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	programs := func() (loaded []abi.Code, closed int) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return slices.Clone(e.loaded), e.closed
	}
	if l, _ := programs(); len(l) != 2 || len(l[0].Constants) != 0 || len(l[1].Constants) != 8 || l[1].ID != img.ID().Derived(make([]byte, 8)) {
		t.Errorf("what was loaded: %+v", l)
	}
	s.node.rt.SetTrust(trusting(t))
	err := call()
	if _, closed := programs(); !errors.Is(err, travel.ErrRefused) || closed != 2 {
		t.Errorf("withdrawn: %v, %d programs were given up, want both", err, closed)
	}
	s.node.rt.SetTrust(trusting(t, one))
	if err := call(); err != nil {
		t.Errorf("trusted again: %v", err)
	}
}

// parentOf is a function of bitcode that derives others by eight bytes.
func parentOf(t *testing.T) *image.Image {
	t.Helper()
	m := image.Manifest{Name: "parent", Constants: &schema.Schema{Fields: []schema.Field{{Name: "n", Type: schema.U64}}}}
	img, err := image.Build(m, inForms(t, "parent", 4, image.LLVMBitcode).Entries()...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// callWith runs a function's bitcode at the node.
func (s *stage) callWith(img *image.Image, payload []byte) (string, error) {
	f, err := s.client.rt.PrepareAs(img, nil, forms.Bitcode)
	if err != nil {
		return "", err
	}
	defer f.Close()
	got, err := f.Do(s.ctx, inject.Root{To: s.client.eps["n0"], Payload: payload}, nil)
	return string(got), err
}

// TestTrustReplacedWhileLoading: what was loaded while its key was withdrawn does not run.
func TestTrustReplacedWhileLoading(t *testing.T) {
	e := newScripted()
	g := newLock(e)
	s := newStage(t, e)
	img := signed(t, inForms(t, "slow", 4, image.LLVMBitcode), s.key)
	answer := make(chan error)
	go func() {
		_, err := s.call(img, forms.Bitcode)
		answer <- err
	}()
	<-g.begun
	s.node.rt.SetTrust(nil)
	for _, o := range s.node.rt.Offers() {
		if off := o.Why != ""; off != (o.Form != "wasm32") {
			t.Errorf("while nobody is trusted: %+v", o)
		}
	}
	if got := s.node.rt.Forms(); !slices.Equal(got, []string{"wasm32"}) {
		t.Errorf("while nobody is trusted it runs %v", got)
	}
	g.open <- nil
	if err := <-answer; !errors.Is(err, travel.ErrRefused) || !strings.Contains(err.Error(), "no key is trusted here") {
		t.Errorf("%v", err)
	}
}

// TestTrustReplacedWhileHolding: of a call that keeps scratch, what has begun when a key is withdrawn ends, and no further run of it begins.
func TestTrustReplacedWhileHolding(t *testing.T) {
	e := newScripted()
	e.holds, e.runs = true, make(chan func(), 2)
	s := newStage(t, e)
	e.runs <- func() { s.node.rt.SetTrust(nil) }
	e.runs <- func() { t.Error("it ran again, and nobody is trusted") }
	m := image.Manifest{Name: "holds", ABI: 1, Imports: []string{"scratch"}, Limits: abi.Limits{ScratchBytes: 8}}
	img, err := image.Build(m, inForms(t, "holds", 4, image.LLVMBitcode).Entries()...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.call(signed(t, img, s.key), forms.Bitcode); !errors.Is(err, travel.ErrRefused) || !strings.Contains(err.Error(), "no key is trusted here") {
		t.Error(err)
	}
}
