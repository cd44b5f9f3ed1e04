package inject_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
)

// TestRan: runs, their time and their bytes are counted by form, for each function and in all, and the sums stay when images go.
func TestRan(t *testing.T) {
	const ticks = 3 // slices of each run
	e := newScripted()
	e.ticks = ticks
	s := newStage(t, e, func(c *inject.Config) { c.CacheBytes = 30 << 10 })
	img := signed(t, inForms(t, "both", 4, image.Wasm, image.LLVMBitcode), s.key)
	f, err := s.client.rt.PrepareAs(img, nil, forms.Bitcode)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, payload := range []string{"seven b", ""} {
		if _, err := f.Do(s.ctx, inject.Root{To: s.client.eps["n0"], Payload: []byte(payload)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.call(img, forms.Wasm); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"wasm32": fmt.Sprintf("1 %d %v", len("wasm32"), ticks), "llvm-bitcode": fmt.Sprintf("2 %d %v", 7+2*len("llvm-bitcode"), 2*ticks)}
	check := func(when string, list []inject.FormStats) {
		t.Helper()
		got := map[string]string{}
		for _, r := range list {
			if r.Runs > 0 {
				got[r.Form] = fmt.Sprintf("%d %d %d", r.Runs, r.Bytes, r.Time.Microseconds()/100)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v (runs, bytes, slices)", when, got, want)
		}
	}
	list, _ := s.node.rt.Functions(10)
	if len(list) != 1 {
		t.Fatalf("%+v", list)
	}
	check("of the function", list[0].Ran)
	check("in all", s.node.rt.Ran())
	f.Close()
	runs := 1
	for s.node.rt.Stats().Evicted == 0 && s.ctx.Err() == nil {
		if _, err := s.call(inForms(t, fmt.Sprint("other", runs), 4000, image.Wasm, image.LLVMBitcode), forms.Wasm); err == nil {
			runs++
		} else if !strings.Contains(err.Error(), "all in use") { // until the node hears that the client has let go of the others
			t.Fatal(err)
		}
	}
	want["wasm32"] = fmt.Sprintf("%d %d %d", runs, runs*len("wasm32"), runs*ticks)
	check("after images have gone", s.node.rt.Ran())
}
