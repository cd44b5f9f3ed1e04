package nativetest

import (
	"runtime"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/invoke"
)

// boom writes to a bad address in its sixth line, and needs the runtime's memcpy, which was compiled without lines.
const boom = `#include "wherry.h"
static char kept[256];
static __attribute__((noinline)) int32_t poke(const void *payload, uint32_t size)
{
    memcpy(kept, payload, size);
    *(volatile uint64_t *)(uintptr_t)(size + 16) = 1;
    return 1;
}
WHERRY_ENTRY(payload, size)
{
    return wherry_reply(kept, (uint32_t)poke(payload, size));
}
`

// TestLines: where a function was built with lines, an error names the one in which it faulted, as an object and as bitcode of either tier.
func TestLines(t *testing.T) {
	s := start(t, "a")
	table, _ := s.ring(16)
	for _, lines := range []bool{true, false} {
		img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "boom.c", Code: []byte(boom)}, image.Manifest{Name: "boom"},
			cbuild.Options{Forms: []image.Form{image.LLVMBitcode, image.ELF}, Targets: []string{runtime.GOARCH}, Lines: lines})
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []forms.Wish{forms.ELF, forms.Bitcode, forms.Bitcode, forms.Bitcode} {
			_, err := s.call(invoke.Request{Image: s.sign(img, s.key), Table: table, Form: form})
			if err == nil || !strings.Contains(err.Error(), "SIGSEGV in poke+0x") || strings.Contains(err.Error(), "(boom.c:6)") != lines {
				t.Errorf("%v, lines: %v: %v", form, lines, err)
			}
		}
	}
}
