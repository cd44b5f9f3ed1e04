package nativetest

import (
	"encoding/binary"
	"runtime"
	"slices"
	"testing"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/internal/stackswitch"
	"github.com/wherry-fabric/wherry/invoke"
)

// nearby answers what get_near says of its own element and of the next one, of what is not there, and of memory that it cannot write to.
const nearby = `#include "wherry.h"
WHERRY_ENTRY(payload, size)
{
    uint64_t row = 0;
    int32_t self = wherry_self(), next = wherry_elements() > 1 ? (self + 1) % wherry_elements() : self;
    static uint64_t kept;
    void *bad = (void *)(uintptr_t)0xfffffff0u, *read_only = bad;
    wherry_window_t w;
    if (wherry_window(0, &w) == WHERRY_OK)
        read_only = (void *)(uintptr_t)w.addr;
    int32_t st[] = {
        wherry_get_near(self, 0, 0, &row, 8), wherry_get_near(self, 9, 0, &row, 8), wherry_get_near(self, 0, 1ull << 40, &row, 8),
        wherry_get_near(next, 0, 0, &row, 8), wherry_get_near(wherry_elements(), 0, 0, &row, 8), wherry_get_near(-1, 0, 0, &row, 8),
        wherry_get_near(next, 0, 0, &kept, 8), wherry_get_near(next, 0, 0, (void *)(uintptr_t)payload, size), wherry_get_near(next, 0, 0, bad, 0),
        wherry_get_near(next, 0, 0, bad, 8), wherry_get_near(next, 0, 0, read_only, 8), wherry_get_near(self, 0, 0, bad, 8),
    };
    return wherry_reply(st, sizeof st);
}
`

// TestNearAlike: get_near answers the same in all forms, also where no other element is near, it is lost, there is none, or no dataset.
func TestNearAlike(t *testing.T) {
	modes := []string{"worker"}
	if stackswitch.Resumes() {
		modes = append(modes, "in-process")
	}
	for _, mode := range modes {
		t.Run(mode+" alone", func(t *testing.T) { nearAlike(t, startApart(t, mode, "a"), abi.OK) })
		t.Run(mode+" far", func(t *testing.T) { nearAlike(t, startApart(t, mode, "a", "b"), abi.ErrFar) })
		t.Run(mode+" near", func(t *testing.T) { nearAlike(t, startAs(t, mode, "a", "b"), abi.OK) })
	}
}

// nearAlike runs nearby in each form where get_near says next of the next element, then with that element gone.
func nearAlike(t *testing.T, s *nodes, next abi.Status) {
	img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "nearby.c", Code: []byte(nearby)}, image.Manifest{Name: "nearby"},
		cbuild.Options{Forms: []image.Form{image.Wasm, image.LLVMBitcode, image.ELF}, Targets: []string{runtime.GOARCH}})
	if err != nil {
		t.Fatal(err)
	}
	img = s.sign(img, s.key)
	table, _ := s.ring(16)
	ask := func(form forms.Wish) []abi.Status {
		t.Helper()
		a, err := s.call(invoke.Request{Image: img, Table: table, Form: form, Payload: make([]byte, 8)})
		if err != nil {
			t.Fatalf("%v: %v", form, err)
		}
		return statuses(a.Raw)
	}
	all := []forms.Wish{forms.Wasm, forms.Bitcode, forms.ELF}
	alike := func(next abi.Status) {
		t.Helper()
		const self, none = abi.OK, abi.ErrArgument
		want := []abi.Status{self, abi.ErrNoWindow, abi.ErrArgument, next, none, none, next, next, next, abi.ErrMemory, abi.ErrRights, abi.ErrMemory}
		for _, form := range all {
			if got := ask(form); !slices.Equal(got, want) {
				t.Errorf("%v: %v, want %v", form, got, want)
			}
		}
	}
	alike(next)
	for _, form := range all {
		none, bad := abi.ErrArgument, abi.ErrMemory
		raw, err := s.at(img, form, "")
		if got := statuses([]byte(raw)); err != nil || !slices.Equal(got, []abi.Status{none, none, none, none, none, none, none, none, none, bad, bad, bad}) {
			t.Errorf("%v without a dataset: %v, %v", form, got, err)
		}
	}
	if len(s.names) == 1 {
		return
	}
	s.stop(s.names[1])
	for gone := false; !gone; {
		st, err := s.c.Status(t.Context(), s.names[0])
		if err != nil {
			t.Fatal(err)
		}
		gone = !slices.ContainsFunc(st.Peers, func(p control.PeerStatus) bool { return p.Name == s.names[1] && p.Connected })
	}
	alike(abi.ErrFar)
}

func statuses(b []byte) (all []abi.Status) {
	for ; len(b) >= 4; b = b[4:] {
		all = append(all, abi.Status(int32(binary.LittleEndian.Uint32(b))))
	}
	return all
}
