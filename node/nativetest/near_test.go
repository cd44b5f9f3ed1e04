package nativetest

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/internal/stackswitch"
	"github.com/wherry-fabric/wherry/invoke"
)

// nearby answers what get_near says of its own element and of the next one, and of what is not there.
const nearby = `#include "wherry.h"
WHERRY_ENTRY(payload, size)
{
    uint64_t row = 0;
    int32_t self = wherry_self(), next = wherry_elements() > 1 ? (self + 1) % wherry_elements() : self;
    int32_t st[] = {
        wherry_get_near(self, 0, 0, &row, 8), wherry_get_near(self, 9, 0, &row, 8), wherry_get_near(self, 0, 1ull << 40, &row, 8),
        wherry_get_near(next, 0, 0, &row, 8), wherry_get_near(wherry_elements(), 0, 0, &row, 8), wherry_get_near(-1, 0, 0, &row, 8),
    };
    return wherry_reply(st, sizeof st + 0 * size + 0 * (payload == 0));
}
`

// TestNearAlike: get_near answers the same in all forms, also where no other element is near, there is no other one, or no dataset.
func TestNearAlike(t *testing.T) {
	modes := []string{"worker"}
	if stackswitch.Resumes() {
		modes = append(modes, "in-process")
	}
	for _, mode := range modes {
		for _, names := range [][]string{{"a"}, {"a", "b"}} {
			t.Run(fmt.Sprint(mode, len(names)), func(t *testing.T) { nearAlike(t, startApart(t, mode, names...)) })
		}
	}
}

func nearAlike(t *testing.T, s *nodes) {
	img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "nearby.c", Code: []byte(nearby)}, image.Manifest{Name: "nearby"},
		cbuild.Options{Forms: []image.Form{image.Wasm, image.LLVMBitcode, image.ELF}, Targets: []string{runtime.GOARCH}})
	if err != nil {
		t.Fatal(err)
	}
	img = s.sign(img, s.key)
	table, _ := s.ring(16)
	next := abi.OK
	if len(s.names) > 1 {
		next = abi.ErrFar
	}
	want := []abi.Status{abi.OK, abi.ErrNoWindow, abi.ErrArgument, next, abi.ErrArgument, abi.ErrArgument}
	for _, form := range []forms.Wish{forms.Wasm, forms.Bitcode, forms.ELF} {
		a, err := s.call(invoke.Request{Image: img, Table: table, Form: form})
		if err != nil {
			t.Fatalf("%v: %v", form, err)
		}
		if got := statuses(a.Raw); !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", form, got, want)
		}
		raw, err := s.at(img, form, "")
		if got := statuses([]byte(raw)); err != nil || !slices.Equal(got, slices.Repeat([]abi.Status{abi.ErrArgument}, len(want))) {
			t.Errorf("%v without a dataset: %v, %v", form, got, err)
		}
	}
}

func statuses(b []byte) (all []abi.Status) {
	for ; len(b) >= 4; b = b[4:] {
		all = append(all, abi.Status(int32(binary.LittleEndian.Uint32(b))))
	}
	return all
}
