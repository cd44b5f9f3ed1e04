package inject

import (
	"fmt"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// TestDerivedGiveWay: of an image's derived functions the one gives way that was not used for longest, of the principal that has the most.
func TestDerivedGiveWay(t *testing.T) {
	img, err := image.Build(image.Manifest{Name: "parent"}, image.Entry{Form: image.LLVMBitcode, Triple: "x86_64-unknown-linux-gnu", Code: []byte{'B', 'C', 0xC0, 0xDE, 0, 0, 0, 0}})
	if err != nil {
		t.Fatal(err)
	}
	parent := &code{img: img, copies: 1, programs: make([]program, 1)}
	now := travel.Instant(0)
	derive := func(principal string, i int) {
		now++
		parent.derive(fmt.Sprintf("%s %d", principal, i), principal, now)
	}
	kept := func(principal string, from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if parent.derived[fmt.Sprintf("%s %d", principal, i)] == nil {
				t.Errorf("%s's function %d of %d to %d gave way", principal, i, from, to-1)
			}
		}
	}
	for i := range 16 {
		derive("alice", i)
	}
	for i := range 48 {
		derive("bob", i)
	}
	for i := 48; i < 1000; i++ {
		derive("bob", i)
		derive("bob", 5) // in use all the time
	}
	if n := len(parent.derived); n != maxDerived {
		t.Errorf("%d are kept, want %d", n, maxDerived)
	}
	kept("alice", 0, 16)
	kept("bob", 1000-47, 1000)
	kept("bob", 5, 6)
	for i := range 4 {
		derive("carol", i)
	}
	kept("alice", 0, 16)
	kept("bob", 1000-43, 1000)
	kept("bob", 5, 6)
	kept("carol", 0, 4)
}

// TestDerivedSharePrograms: only bitcode is compiled for each derived function; the others are given to engines as their parent's, so that those find them in their caches.
func TestDerivedSharePrograms(t *testing.T) {
	img, err := image.Build(image.Manifest{Name: "parent", ABI: 1, Imports: []string{}}, image.Entry{Form: image.LLVMBitcode, Triple: "x86_64-unknown-linux-gnu", Code: []byte{'B', 'C', 0xC0, 0xDE, 0, 0, 0, 0}},
		wasmEntry(t))
	if err != nil {
		t.Fatal(err)
	}
	rt := &Runtime{store: newStore(1<<20, nil), offers: []forms.Offer{{Offer: abi.Offer{Form: "wasm32"}}, {Offer: abi.Offer{Form: "llvm-bitcode", Triple: "x86_64-unknown-linux-gnu"}}}, cfg: Config{Engines: make([]abi.Engine, 2)}}
	parent := &code{img: img, copies: 1, programs: make([]program, 2)}
	d := parent.derive("constant", "alice", 1)
	for i, e := range img.Entries() {
		c, _ := rt.codeOf(d, i, "alice")
		if own := e.Form == image.LLVMBitcode; own != (string(c.Constants) == "constant") || own != (c.ID == d.id()) || own == (c.ID == img.ID()) {
			t.Errorf("%v is loaded as %v with constants %q", e.Form, c.ID, c.Constants)
		}
	}
}

func wasmEntry(t *testing.T) image.Entry {
	t.Helper()
	e, ok := xrdma.Echo().Entry(image.Wasm, "")
	if !ok {
		t.Fatal("echo has no wasm")
	}
	return e
}

// TestOriginsBound: a function that one principal's runs make of ever new functions is still known to be another one's.
func TestOriginsBound(t *testing.T) {
	c := &code{}
	c.cameFrom(origin{parent: image.ID{1}, principal: "alice"})
	for i := range 100 {
		c.cameFrom(origin{parent: image.ID{2, byte(i)}, principal: "bob", at: travel.Instant(i)})
		c.cameFrom(origin{parent: image.ID{2}, principal: "bob", at: travel.Instant(i)})
	}
	of := map[string]int{}
	for _, o := range c.origins {
		of[o.principal]++
	}
	if last := c.origins[len(c.origins)-1]; of["alice"] != 1 || of["bob"] != maxParents || last.parent != (image.ID{2}) || last.at != 99 {
		t.Errorf("%v, the last is %+v", of, last)
	}
	for i := range 200 {
		c.cameFrom(origin{parent: image.ID{1}, principal: fmt.Sprint(i)})
	}
	if len(c.origins) != maxOrigins {
		t.Errorf("%d origins are kept, want %d", len(c.origins), maxOrigins)
	}
}
