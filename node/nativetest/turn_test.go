package nativetest

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/internal/stackswitch"
)

// steps goes as many steps as its payload says for the form that it runs in, and answers which that is.
const steps = `#include "wherry.h"
struct order { uint64_t wasm, native; };
WHERRY_ENTRY(payload, size)
{
    const struct order *o = payload;
    uint64_t ran =
#ifdef __wasm__
        0;
    for (volatile uint64_t i = 0; i < o->wasm; i++)
        ;
#else
        1;
    for (volatile uint64_t i = 0; i < o->native; i++)
        ;
#endif
    return wherry_reply(&ran, 1);
}
`

// TestTurnsAgain: native code that was given up because it took longer than wasm is tried once more, and used again when it takes less; so is wasm.
func TestTurnsAgain(t *testing.T) {
	modes := []string{"worker"}
	if stackswitch.Resumes() {
		modes = append(modes, "in-process")
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) { turnsAgain(t, startAs(t, mode, "a")) })
	}
}

func turnsAgain(t *testing.T, s *nodes) {
	img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "steps.c", Code: []byte(steps)}, image.Manifest{Name: "steps"},
		cbuild.Options{Forms: []image.Form{image.Wasm, image.LLVMBitcode}, Targets: []string{runtime.GOARCH}})
	if err != nil {
		t.Fatal(err)
	}
	img = s.sign(img, s.key)
	// until runs it with so many steps until it is explained so, and says how many runs were as native code.
	until := func(form image.Form, why string, wasm, native uint64) (natives int) {
		t.Helper()
		payload := string(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, wasm), native))
		said := ""
		for end := time.Now().Add(patience); time.Now().Before(end); {
			got, err := s.at(img, forms.Auto, payload)
			if err != nil {
				t.Fatal(err)
			}
			natives += int(got[0])
			e, err := s.c.Explain(t.Context(), "a", img.ID(), forms.Auto)
			if err != nil {
				t.Fatal(err)
			}
			if said = e.Form + ": " + e.Why; strings.HasPrefix(said, form.String()+": ") && strings.Contains(said, why) {
				return natives
			}
		}
		t.Fatalf("after %v it is %s, want %v: … %s", patience, said, form, why)
		return 0
	}
	const many, more = 500_000, 12_000_000 // a processor takes a step of native code in a tenth of the time
	if n := until(image.Wasm, "native code is tried again once", many, more); n == 0 {
		t.Error("native code was given up and never run")
	}
	if n := until(image.LLVMBitcode, "runs as native code take", many, 1000); n == 0 {
		t.Error("native code was found better and never run")
	}
	until(image.Wasm, "native code is tried again once", many/5, more) // the other way
}
