package inject_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/trust"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

const triple = "x86_64-unknown-linux-gnu"

// scripted is an engine whose code does what a table says: a function replies with the form that it runs in.
type scripted struct {
	offers []abi.Offer
	load   func(context.Context, abi.Code) error // nil: it is ready at once
	ticks  int                                   // of each run
	tiers  bool                                  // bitcode comes in two: soon, and better
	derive bool                                  // what runs goes on as a function that it derives, with its payload as constants
	runs   chan func()                           // one for each run that is to begin: what it does; nil: nothing
	bind   func(form string) error               // nil: it can be bound
	traps  bool                                  // bitcode traps
	leaves func()                                // an instance of what trapped is given back by it; nil: at once
	holds  bool                                  // what runs without a payload keeps scratch, and goes on here with one
	took   map[string]time.Duration              // by runs in a form; the others are not known

	mu     sync.Mutex
	loaded []abi.Code
	closed int
}

func newScripted() *scripted {
	return &scripted{offers: []abi.Offer{{Form: "wasm32", Tier: "read aloud"}, {Form: "llvm-bitcode", Triple: triple, Tier: "O9"}, {Form: "elf", Triple: triple}}}
}

func (e *scripted) Offers() []abi.Offer { return e.offers }

func (e *scripted) Load(ctx context.Context, c abi.Code) (abi.Program, error) {
	e.mu.Lock()
	e.loaded = append(e.loaded, c)
	e.mu.Unlock()
	if e.load != nil {
		if err := e.load(ctx, c); err != nil {
			return nil, err
		}
	}
	if e.tiers && c.Form == "llvm-bitcode" {
		return tieredProgram{scriptedProgram{e, c.Form + map[bool]string{true: ", better"}[c.Best]}, !c.Best}, nil
	}
	return scriptedProgram{e, c.Form}, nil
}

// tieredProgram is one of two.
type tieredProgram struct {
	scriptedProgram
	soon bool
}

func (p tieredProgram) Tier() (string, bool) {
	return map[bool]string{true: "soon", false: "better"}[p.soon], p.soon
}

// loads are those so far, of one form.
func (e *scripted) loads(form string) (list []abi.Code) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.loaded {
		if c.Form == form {
			list = append(list, c)
		}
	}
	return list
}

type scriptedProgram struct {
	e    *scripted
	form string
}

func (p scriptedProgram) Bind(context.Context, string, []abi.Window) (abi.Bound, error) {
	if p.e.bind != nil {
		if err := p.e.bind(p.form); err != nil {
			return nil, err
		}
	}
	return scriptedBound(p), nil
}

func (p scriptedProgram) Close() {
	p.e.mu.Lock()
	p.e.closed++
	p.e.mu.Unlock()
}

type scriptedBound scriptedProgram

func (scriptedBound) Need(uint64) uint64                  { return 0 }
func (b scriptedBound) Reserve(uint64) (abi.Place, error) { return b, nil }
func (scriptedBound) Ready() bool                         { return true }
func (b scriptedBound) Acquire(context.Context) (abi.Instance, error) {
	return scriptedInstance(b), nil
}
func (scriptedBound) Release() {}
func (scriptedBound) Close()   {}

type scriptedInstance scriptedProgram

func (i scriptedInstance) Run(payload []byte, _ *abi.Limits, h abi.Host) (abi.Status, error) {
	if i.e.runs != nil {
		(<-i.e.runs)()
	}
	if i.e.traps && i.form == "llvm-bitcode" {
		return 0, errors.New("it trapped")
	}
	for range i.e.ticks {
		if err := h.Tick(); err != nil {
			return 0, err
		}
	}
	if i.e.holds && len(payload) == 0 {
		if st, err := h.Scratch(8, nil); st != abi.OK || err != nil {
			return st, err
		}
		return h.Forward(0, 0, []byte{1}), nil
	}
	if i.e.derive && h.Constants() == nil {
		f, st := h.Derive(append([]byte(nil), payload...))
		if st == abi.OK {
			st = h.Forward(f, 0, nil)
		}
		return st, nil
	}
	return h.Reply([]byte(i.form)), nil
}
func (scriptedInstance) Waits() {}

func (i scriptedInstance) Took() (time.Duration, bool) { return i.e.took[i.form], true }

func (i scriptedInstance) Release() {
	if i.e.leaves != nil && i.form == "llvm-bitcode" {
		i.e.leaves()
	}
}

// signer is a key of which the public half is trusted.
func signer(of byte) (ed25519.PrivateKey, trust.Key) {
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{of}, ed25519.SeedSize))
	return private, trust.Key{Name: fmt.Sprint("key", of), Public: private.Public().(ed25519.PublicKey)}
}

// inForms makes an image of a function in forms; of its bitcode there are so many bytes.
func inForms(t *testing.T, name string, size int, formsOf ...image.Form) *image.Image {
	t.Helper()
	var entries []image.Entry
	for _, f := range formsOf {
		switch f {
		case image.Wasm:
			w, _ := xrdma.Echo().Entry(image.Wasm, "")
			entries = append(entries, w)
		case image.LLVMBitcode:
			entries = append(entries, image.Entry{Form: f, Triple: triple, Code: append([]byte{'B', 'C', 0xC0, 0xDE}, make([]byte, size)...)})
		}
	}
	img, err := image.Build(image.Manifest{Name: name, ABI: 1}, entries...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func signed(t *testing.T, img *image.Image, key ed25519.PrivateKey) *image.Image {
	t.Helper()
	img, err := img.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// stage is a node with a scripted engine that trusts key 1, and a client of it.
type stage struct {
	t            *testing.T
	e            *scripted
	node, client *member
	key          ed25519.PrivateKey
	ctx          context.Context
}

func newStage(t *testing.T, e *scripted, changes ...func(*inject.Config)) *stage {
	t.Helper()
	private, key := signer(1)
	policy, err := trust.New([]trust.Key{key})
	if err != nil {
		t.Fatal(err)
	}
	node := newMember(t, "n0", true, fabric.Balanced, append(changes, func(c *inject.Config) {
		c.Engines, c.Trust = []abi.Engine{e}, policy
	})...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return &stage{t, e, node, connect(t, []*member{node}, fabric.Balanced), private, ctx}
}

func (s *stage) root() inject.Root { return inject.Root{To: s.client.eps["n0"]} }

// call runs a function at the node.
func (s *stage) call(img *image.Image, form forms.Wish) (string, error) {
	return s.callFrom(s.client, img, form)
}

func (s *stage) callFrom(m *member, img *image.Image, form forms.Wish) (string, error) {
	f, err := m.rt.PrepareAs(img, nil, form)
	if err != nil {
		s.t.Error(err)
		return "", err
	}
	defer f.Close()
	got, err := f.Do(s.ctx, inject.Root{To: m.eps["n0"]}, nil)
	return string(got), err
}

// TestForms: a function runs in the form that was asked for, if a key that is trusted signed it; else the answer says why not.
func TestForms(t *testing.T) {
	both := inForms(t, "both", 4, image.Wasm, image.LLVMBitcode)
	stranger, _ := signer(9)
	for name, c := range map[string]struct {
		img  func(s *stage) *image.Image
		form forms.Wish
		want string
		says []string // of a refusal
	}{
		"as wasm":              {func(*stage) *image.Image { return both }, forms.Wasm, "wasm32", nil},
		"as it is best":        {func(*stage) *image.Image { return both }, forms.Auto, "wasm32", nil},
		"as bitcode":           {func(s *stage) *image.Image { return signed(t, both, s.key) }, forms.Bitcode, "llvm-bitcode", nil},
		"unsigned":             {func(*stage) *image.Image { return both }, forms.Bitcode, "", []string{"both cannot run on n0", "llvm-bitcode", "not signed", "form bitcode was asked for"}},
		"signed by a stranger": {func(*stage) *image.Image { return signed(t, both, stranger) }, forms.Bitcode, "", []string{"none of those keys is trusted"}},
		"not there":            {func(*stage) *image.Image { return both }, forms.ELF, "", []string{"form elf was asked for"}},
	} {
		s := newStage(t, newScripted())
		img := c.img(s)
		got, err := s.call(img, c.form)
		if got != c.want || (err == nil) != (c.says == nil) || err != nil && !errors.Is(err, travel.ErrRefused) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
		ex, ok := s.node.rt.Explain(img.ID(), c.form)
		if !ok || ex.Form != c.want || ex.Why == "" {
			t.Errorf("%s: explained as %+v, %v", name, ex, ok)
		}
		if c.want == "llvm-bitcode" {
			load := s.e.loads("llvm-bitcode")[0]
			if len(load.Signers) != 1 || !bytes.Equal(load.Signers[0], s.key.Public().(ed25519.PublicKey)) || load.Principal != "anybody" || load.ID != img.ID() || ex.Tier != "O9" {
				t.Errorf("the engine was told %+v", load)
			}
		}
	}
}

// TestSecondCopy: signatures of a second copy count, however an unsigned one came first, in the first message or by itself; and a program is one entry's.
func TestSecondCopy(t *testing.T) {
	for name, size := range map[string]int{"with the first message": 4, "fetched": 2 * travel.InlineObjectBytes} {
		s := newStage(t, newScripted())
		img := inForms(t, "copied", size, image.Wasm, image.LLVMBitcode)
		if got, err := s.call(img, forms.Wasm); err != nil || got != "wasm32" {
			t.Fatalf("%s: %q, %v", name, got, err)
		}
		if _, err := s.call(img, forms.Bitcode); !errors.Is(err, travel.ErrRefused) {
			t.Fatalf("%s: unsigned bitcode ran: %v", name, err)
		}
		if got, err := s.call(signed(t, img, s.key), forms.Bitcode); err != nil || got != "llvm-bitcode" {
			t.Errorf("%s: a signed copy: %q, %v", name, got, err)
		}
		if got, err := s.call(img, forms.Bitcode); err != nil || got != "llvm-bitcode" {
			t.Errorf("%s: what was signed is known, but its unsigned copy: %q, %v", name, got, err)
		}
		if w, b := len(s.e.loads("wasm32")), len(s.e.loads("llvm-bitcode")); w != 1 || b != 1 {
			t.Errorf("%s: %d and %d loads, want one of each entry", name, w, b)
		}
		if list, _ := s.node.rt.Functions(10); len(list) != 1 || len(list[0].Ran) != 2 || list[0].Runs != 4 || list[0].Failed != 1 {
			t.Errorf("%s: listed as %+v", name, list)
		}
	}
}

// lock has bitcode be ready, or fail, when the test says so.
type lock struct {
	begun chan context.Context
	open  chan error
}

func newLock(e *scripted) *lock {
	g := &lock{make(chan context.Context, 64), make(chan error)}
	e.load = func(ctx context.Context, c abi.Code) error {
		if c.Form == "wasm32" {
			return nil
		}
		g.begun <- ctx
		select {
		case err := <-g.open:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return g
}

// TestCompilingHoldsNothing: while a program is made, the element's only place is free for others, and the fabric goes on.
func TestCompilingHoldsNothing(t *testing.T) {
	e := newScripted()
	g := newLock(e)
	s := newStage(t, e, func(c *inject.Config) { c.Running = 1 })
	slow := signed(t, inForms(t, "slow", 4, image.LLVMBitcode), s.key)
	answers := make(chan error, 2)
	for range 2 { // who come later wait for the same
		go func() {
			got, err := s.call(slow, forms.Auto)
			if err == nil && got != "llvm-bitcode" {
				err = fmt.Errorf("answer %q", got)
			}
			answers <- err
		}()
	}
	<-g.begun
	for range 10 {
		if got, err := s.call(inForms(t, "quick", 4, image.Wasm), forms.Auto); err != nil || got != "wasm32" {
			t.Fatalf("while a program is made: %q, %v", got, err)
		}
	}
	g.open <- nil
	for range 2 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if n := len(e.loads("llvm-bitcode")); n != 1 {
		t.Errorf("%d programs were made of one entry", n)
	}
}

// TestFailedInstanceGoesAside: giving back an instance that failed takes as long as its memory is large, which others do not wait for.
func TestFailedInstanceGoesAside(t *testing.T) {
	e := newScripted()
	leaving, gone := make(chan struct{}, 8), make(chan struct{})
	e.traps, e.leaves = true, func() { leaving <- struct{}{}; <-gone }
	s := newStage(t, e)
	end := sync.OnceFunc(func() { close(gone) })
	defer end()
	bad, good := signed(t, inForms(t, "bad", 4, image.LLVMBitcode), s.key), inForms(t, "good", 4, image.Wasm)
	if _, err := s.call(good, forms.Auto); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	for range 2 { // the first waits for its program, and the second one's runs where its message is handled
		go func() { _, err := s.call(bad, forms.Auto); ended <- err }()
		<-leaving
		if got, err := s.call(good, forms.Auto); err != nil || got != "wasm32" {
			t.Fatalf("while a failed instance is given back: %q, %v", got, err)
		}
	}
	end()
	for range 2 {
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "it trapped") {
			t.Error(err)
		}
	}
}

// TestCompilingEnds: when nobody waits for a program any more, its making is ended; who asks later has it made anew.
func TestCompilingEnds(t *testing.T) {
	e := newScripted()
	g := newLock(e)
	s := newStage(t, e)
	img := signed(t, inForms(t, "slow", 4, image.LLVMBitcode), s.key)
	f, err := s.client.rt.Prepare(img, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fut, err := f.Start(s.ctx, []inject.Root{{To: s.client.eps["n0"]}}, inject.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := <-g.begun
	fut.Cancel()
	select {
	case <-ctx.Done():
	case <-s.ctx.Done():
		t.Fatal("nobody waits, and the program is still being made")
	}
	answer := make(chan error)
	go func() {
		_, err := s.call(img, forms.Auto)
		answer <- err
	}()
	<-g.begun
	g.open <- nil
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// TestReadyTooLate: an engine that does not notice that nobody waits any more makes the program all the same, and it is kept.
func TestReadyTooLate(t *testing.T) {
	e := newScripted()
	begun := make(chan struct{}, 8)
	e.load = func(ctx context.Context, c abi.Code) error {
		begun <- struct{}{}
		<-ctx.Done()
		return nil
	}
	s := newStage(t, e)
	img := signed(t, inForms(t, "late", 4, image.LLVMBitcode), s.key)
	f, err := s.client.rt.Prepare(img, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fut, err := f.Start(s.ctx, []inject.Root{{To: s.client.eps["n0"]}}, inject.Options{})
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	fut.Cancel()
	for { // until the program is there, a further call may be among those that wait for it
		_, err := s.call(img, forms.Auto)
		if err == nil {
			break
		}
		if s.ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if n := len(e.loads("llvm-bitcode")); n != 1 {
		t.Errorf("it was made %d times", n)
	}
}

// TestCompileFails: the caller hears why; for a while the code is not tried again; and by auto other code runs.
func TestCompileFails(t *testing.T) {
	e := newScripted()
	e.load = func(_ context.Context, c abi.Code) error {
		if c.Form == "llvm-bitcode" {
			return errors.New("it calls open")
		}
		return nil
	}
	s := newStage(t, e)
	img := signed(t, inForms(t, "broken", 4, image.Wasm, image.LLVMBitcode), s.key)
	for range 3 {
		if _, err := s.call(img, forms.Bitcode); err == nil || !strings.Contains(err.Error(), "it calls open") || !strings.Contains(err.Error(), "broken") {
			t.Fatalf("%v", err)
		}
	}
	if n := len(e.loads("llvm-bitcode")); n != 1 {
		t.Errorf("it was tried %d times", n)
	}
	if got, err := s.call(img, forms.Auto); err != nil || got != "wasm32" {
		t.Errorf("by auto: %q, %v", got, err)
	}
	ex, _ := s.node.rt.Explain(img.ID(), forms.Auto)
	if len(ex.Refused) != 1 || ex.Refused[0].Why != "it calls open" {
		t.Errorf("explained as %+v", ex)
	}
}

// TestCompileTooSlow: an element gives a program so much time and no more.
func TestCompileTooSlow(t *testing.T) {
	e := newScripted()
	newLock(e)
	s := newStage(t, e, func(c *inject.Config) { c.LoadTime = 1 })
	img := signed(t, inForms(t, "slow", 4, image.LLVMBitcode), s.key)
	if _, err := s.call(img, forms.Auto); !errors.Is(err, travel.ErrDeadline) || !strings.Contains(err.Error(), "LoadTime; a node's is 10s, or ten times the compile_time that it was given where that is more") {
		t.Errorf("%v", err)
	}
	if ex, known := s.node.rt.Explain(img.ID(), forms.Auto); !known || ex.Form != "" || len(ex.Refused) != 1 || !strings.Contains(ex.Refused[0].Why, "it was not ready") {
		t.Errorf("explained as %+v, %v", ex, known)
	}
}

// TestLoadsBounded: a principal's crowd of programs leaves a place for another's.
func TestLoadsBounded(t *testing.T) {
	e := newScripted()
	g := newLock(e)
	s := newStage(t, e, func(c *inject.Config) { c.Loads = 4 })
	const crowd = 6
	answers := make(chan error, crowd+1)
	call := func(m *member, i int) {
		img := signed(t, inForms(t, fmt.Sprint("crowd", i), 4, image.LLVMBitcode), s.key)
		go func() {
			_, err := s.callFrom(m, img, forms.Auto)
			answers <- err
		}()
	}
	for i := range crowd {
		call(s.client, i)
	}
	for range 3 {
		<-g.begun
	}
	call(s.node, crowd) // the node itself is another principal
	<-g.begun
	by := map[string]int{}
	for _, c := range e.loads("llvm-bitcode") {
		by[c.Principal]++
	}
	if by["anybody"] != 3 || by[""] != 1 {
		t.Errorf("made at once: %v", by)
	}
	go func() {
		for range crowd + 1 {
			g.open <- nil
		}
	}()
	for range crowd + 1 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

// loaded waits until a stage's node loads nothing.
func loaded(t *testing.T, s *stage) {
	for end := time.Now().Add(patience); s.node.rt.Loading() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Error("nothing better was made")
			return
		}
	}
}

// TestTiers: code that was made soon runs at once; better code is made once it has run, and replaces it between runs, charged to the same principal, and a run that is
// under way ends in the code that it began in. What cannot be made better stays.
func TestTiers(t *testing.T) {
	for _, fails := range []bool{false, true} {
		e := newScripted()
		e.tiers, e.runs = true, make(chan func(), 10)
		open := make(chan error)
		e.load = func(ctx context.Context, c abi.Code) error {
			if !c.Best {
				return nil
			}
			select {
			case err := <-open:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s := newStage(t, e)
		img := signed(t, inForms(t, "tiers", 4, image.LLVMBitcode), s.key)
		f, err := s.client.rt.PrepareAs(img, nil, forms.Bitcode)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		call := func(want, tier string) {
			t.Helper()
			if got, err := f.Do(s.ctx, inject.Root{To: s.client.eps["n0"]}, nil); err != nil || string(got) != want {
				t.Fatalf("%q, %v; want %q", got, err, want)
			}
			if ex, _ := s.node.rt.Explain(img.ID(), forms.Bitcode); ex.Tier != tier {
				t.Fatalf("explained as %+v, want tier %q", ex, tier)
			}
		}
		e.runs <- func() {
			if n := s.node.rt.Loading(); n > 0 {
				t.Errorf("%d loads run beside the first run, which waits for processors too", n)
			}
		}
		call("llvm-bitcode", "soon")
		e.runs <- func() { // while it runs, the better code comes
			if fails {
				open <- errors.New("too clever by half")
			} else {
				open <- nil
			}
			loaded(t, s)
		}
		call("llvm-bitcode", "soon")
		e.runs <- func() {}
		if fails {
			call("llvm-bitcode", "soon")
		} else {
			call("llvm-bitcode, better", "better")
		}
		loads := e.loads("llvm-bitcode")
		if len(loads) != 2 || loads[0].Best || !loads[1].Best || loads[0].Principal != "anybody" || loads[1].Principal != "anybody" {
			t.Errorf("loaded %+v", loads)
		}
		if list, _ := s.node.rt.Functions(1); len(list) != 1 || len(list[0].Ran) != 1 || list[0].Ran[0].Tier != map[bool]string{false: "better", true: "soon"}[fails] {
			t.Errorf("stats %+v", list)
		}
		if err := s.node.rt.Close(); err != nil || e.closed != map[bool]int{false: 2, true: 1}[fails] {
			t.Errorf("%d programs were closed (%v)", e.closed, err)
		}
	}
}

// TestReplacedWhileBinding: code that better code replaces just as it is bound to windows fails no run, and the next one runs the better code.
func TestReplacedWhileBinding(t *testing.T) {
	for name, closed := range map[string]error{"refused": errors.New("the program is closed"), "bound": nil} {
		e := newScripted()
		e.tiers = true
		binds, begun := 0, make(chan struct{})
		e.load = func(_ context.Context, c abi.Code) error {
			if c.Best {
				<-begun
			}
			return nil
		}
		e.bind = func(form string) error {
			if form != "llvm-bitcode" {
				return nil
			}
			if binds++; binds == 1 {
				return nil
			}
			close(begun)
			for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
				e.mu.Lock()
				n := e.closed
				e.mu.Unlock()
				if n > 0 {
					return closed
				}
			}
			return errors.New("nothing better was made")
		}
		s := newStage(t, e)
		img := signed(t, inForms(t, "replaced", 4, image.LLVMBitcode), s.key)
		call := func(wish forms.Wish) (string, error) { // each wish is a binding of its own
			f, err := s.client.rt.PrepareAs(img, nil, wish)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, err := f.Do(s.ctx, inject.Root{To: s.client.eps["n0"]}, nil)
			return string(got), err
		}
		for _, wish := range []forms.Wish{forms.Bitcode, forms.Auto} {
			if _, err := call(wish); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		got, err := call(forms.Bitcode)
		if err != nil || got != "llvm-bitcode, better" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestReadyWhileBinding: a form that becomes ready just as another is bound to windows is what the next run takes.
func TestReadyWhileBinding(t *testing.T) {
	e := newScripted()
	binds, stages := 0, make(chan *stage, 1)
	e.bind = func(form string) error {
		if form != "llvm-bitcode" {
			return nil
		}
		if binds++; binds == 2 { // by auto, as it is ready; wasm is better, and is made beside it
			s := <-stages
			for end := time.Now().Add(patience); s.node.rt.Loading() > 1; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					return errors.New("wasm was not made")
				}
			}
		}
		return nil
	}
	s := newStage(t, e)
	stages <- s
	img := signed(t, inForms(t, "ready", 4, image.Wasm, image.LLVMBitcode), s.key)
	for i, c := range []struct {
		wish forms.Wish
		want string
	}{{forms.Bitcode, "llvm-bitcode"}, {forms.Auto, "llvm-bitcode"}, {forms.Auto, "wasm32"}, {forms.Auto, "wasm32"}} {
		if got, err := s.call(img, c.wish); err != nil || got != c.want {
			t.Errorf("call %d, %v: %q, %v; want %q", i, c.wish, got, err, c.want)
		}
	}
	if w, b := len(e.loads("wasm32")), len(e.loads("llvm-bitcode")); w != 1 || b != 1 {
		t.Errorf("made %d and %d times", w, b)
	}
}
