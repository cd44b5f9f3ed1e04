package inject

import (
	"fmt"
	"testing"

	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
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
