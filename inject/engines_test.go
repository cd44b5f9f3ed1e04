package inject

import (
	"context"
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// offering is an engine that loads nothing.
type offering []abi.Offer

func (o offering) Offers() []abi.Offer { return o }
func (o offering) Load(context.Context, abi.Code) (abi.Program, error) {
	return nil, errors.ErrUnsupported
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
