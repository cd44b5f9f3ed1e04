package nativetest

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/schema"
)

// atLeast counts the rows of at least so much: where the call begins it derives a function of itself that has the number as a constant, and sends
// that to every element.
const atLeast = `
#include "wherry.h"
struct k { uint64_t least; };
WHERRY_ENTRY(payload, size)
{
    struct k k;
    int32_t st = wherry_constants(&k, sizeof k);
    if (st == WHERRY_ERR_UNSUPPORTED) {
        if (size != sizeof k)
            return WHERRY_ERR_ARGUMENT;
        int32_t f = wherry_derive(payload, size);
        if (f < 0)
            return f;
        for (int32_t e = 1; e < wherry_elements(); e++)
            WHERRY_TRY(wherry_fork((uint32_t)f, e, "", 0));
        return wherry_forward((uint32_t)f, 0, "", 0);
    }
    WHERRY_TRY(st);
    wherry_window_t w;
    WHERRY_TRY(wherry_window_or_empty(0, &w));
    const uint64_t *row = w.addr;
    struct { uint32_t rows, zero; uint64_t n; } part = {1, 0, 0};
    for (uint64_t i = 0; i < w.size / 8; i++)
        part.n += row[i] >= k.least;
    return wherry_reply(&part, sizeof part);
}
`

// TestDerived: a derived function runs on four nodes as wasm, as bitcode into which its constants were compiled, and as an object that asks for them, and
// answers alike; it is trusted because its parent is.
func TestDerived(t *testing.T) {
	s := start(t, "a", "b", "c", "d")
	table, _ := s.ring(4096)
	number := schema.Field{Name: "least", Type: schema.U64}
	m, err := image.ParseManifest([]byte(`{"name": "atleast"}`))
	if err != nil {
		t.Fatal(err)
	}
	m.Params, m.Constants = &schema.Schema{Fields: []schema.Field{number}}, &schema.Schema{Fields: []schema.Field{number}}
	m.Result, m.ResultForm = &schema.Schema{Fields: []schema.Field{{Name: "n", Type: schema.U64, Merge: "sum"}}}, image.ResultRows
	img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "atleast.c", Code: []byte(atLeast)}, m,
		cbuild.Options{Forms: []image.Form{image.Wasm, image.LLVMBitcode, image.ELF}, Targets: []string{runtime.GOARCH}})
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []forms.Wish{forms.Wasm, forms.Bitcode, forms.ELF} {
		for _, least := range []int{0, 7, 4000, 7} {
			a, err := s.call(invoke.Request{Image: s.sign(img, s.key), Table: table, Form: form, Args: map[string]string{"least": fmt.Sprint(least)}})
			if err != nil {
				t.Fatalf("%v: %v", form, err)
			}
			if got := a.Parts[0].Strings(0)[0]; got != fmt.Sprint(4096-least) || a.Branches != 4 {
				t.Errorf("%v: %s rows of at least %d, from %d branches; want %d from 4", form, got, least, a.Branches, 4096-least)
			}
		}
	}
}
