package inject

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// offering is an engine that loads nothing.
type offering []abi.Offer

func (o offering) Offers() []abi.Offer { return o }
func (o offering) Load(context.Context, abi.Code) (abi.Program, error) {
	return nil, errors.ErrUnsupported
}

// TestChoose: the engines' order decides, an entry for what this processor lacks does not count, and an error says what there is and why it does not do.
func TestChoose(t *testing.T) {
	const amd, arm = "x86_64-linux-gnu", "aarch64-linux-gnu"
	bitcode := func(of byte, triple string, features ...string) image.Entry {
		return image.Entry{Form: image.LLVMBitcode, Triple: triple, Features: features, Code: []byte{'B', 'C', 0xC0, 0xDE, of, 0, 0, 0}}
	}
	plain, fast, foreign := bitcode(1, amd), bitcode(2, amd, "avx2"), bitcode(3, arm)
	offer := func(triple, why string, features ...string) abi.Offer {
		return abi.Offer{Form: "llvm-bitcode", Triple: triple, Features: features, Why: why}
	}
	for name, c := range map[string]struct {
		engines []abi.Engine
		entries []image.Entry
		want    *image.Entry
		says    []string // if there is none
	}{
		"plain":                {[]abi.Engine{offering{offer(amd, "")}}, []image.Entry{plain, fast, foreign}, &plain, nil},
		"with its features":    {[]abi.Engine{offering{offer(amd, "", "avx2")}}, []image.Entry{plain, fast}, &fast, nil},
		"first offer":          {[]abi.Engine{offering{offer(arm, ""), offer(amd, "")}}, []image.Entry{plain, foreign}, &foreign, nil},
		"first engine":         {[]abi.Engine{offering{offer(amd, "")}, offering{offer(arm, "")}}, []image.Entry{plain, foreign}, &plain, nil},
		"the other":            {[]abi.Engine{offering{offer(arm, "")}, offering{offer(amd, "")}}, []image.Entry{plain}, &plain, nil},
		"not here":             {[]abi.Engine{offering{offer(amd, "no LLVM is installed")}}, []image.Entry{plain}, nil, []string{"no LLVM is installed", amd}},
		"lacks a feature":      {[]abi.Engine{offering{offer(amd, "")}}, []image.Entry{fast}, nil, []string{amd}},
		"of another machine":   {[]abi.Engine{offering{offer(amd, "")}}, []image.Entry{foreign}, nil, []string{amd, arm}},
		"where no code is run": {nil, []image.Entry{plain}, nil, []string{"runs no code", amd}},
	} {
		img, err := image.Build(image.Manifest{Name: "chosen", ABI: 1}, c.entries...)
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := choose(c.engines, img)
		if c.want != nil {
			if err != nil || string(got.Code) != string(c.want.Code) {
				t.Errorf("%s: %v %x, want %x", name, err, got.Code, c.want.Code)
			}
			continue
		}
		var r *refusal
		if !errors.As(err, &r) || r.code != travel.CodeRefused {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, word := range append(c.says, "chosen") {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", name, err, word)
			}
		}
	}
}

// TestEngines: two engines cannot offer the same, unless one says that it cannot run it; nor what is no form.
func TestEngines(t *testing.T) {
	wasm := offering{{Form: "wasm32"}}
	for name, c := range map[string]struct {
		engines []abi.Engine
		ok      bool
	}{
		"one":         {[]abi.Engine{wasm}, true},
		"twice":       {[]abi.Engine{wasm, wasm}, false},
		"not here":    {[]abi.Engine{wasm, offering{{Form: "wasm32", Why: "broken"}}}, true},
		"no form":     {[]abi.Engine{offering{{Form: "jar"}}}, false},
		"two triples": {[]abi.Engine{offering{{Form: "elf", Triple: "a-b"}, {Form: "elf", Triple: "c-d"}}}, true},
	} {
		cfg := Config{Engines: c.engines}
		if err := cfg.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
