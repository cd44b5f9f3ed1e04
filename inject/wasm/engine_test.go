package wasm_test

import (
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/enginetest"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

func TestEngineConformance(t *testing.T) {
	engine, err := wasm.New(wasm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	img := xrdma.Echo()
	entry, ok := img.Entry(image.Wasm, "")
	if !ok {
		t.Fatal("echo has no wasm")
	}
	enginetest.Run(t, wasm.Runner{Engine: engine}, abi.Code{ID: [32]byte(img.ID()), Form: entry.Form.String(), ABI: img.Manifest().ABI, Imports: img.Manifest().Imports,
		Bytes: entry.Code, Limits: img.Call().Limits})
}
