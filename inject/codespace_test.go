package inject_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// TestUnusedCodeGivesWay: machine code that nothing uses any more, also that of a client that has left, gives way to a function that there is no room for otherwise.
func TestUnusedCodeGivesWay(t *testing.T) {
	e, err := wasm.New(wasm.Config{CodeBytes: 256 << 10}) // two of these functions are one principal's share
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	node := newMember(t, "n0", true, fabric.Balanced, func(c *inject.Config) {
		c.Engines = []abi.Engine{wasm.Runner{Engine: e}}
		c.Travel.IdleUnpin = time.Millisecond
	})
	echo := xrdma.Echo()
	manifest := echo.Manifest()
	for i := range 8 {
		manifest.Name = fmt.Sprint("echo", i)
		img, err := image.Build(manifest, echo.Entries()...)
		if err != nil {
			t.Fatal(err)
		}
		client := newMember(t, fmt.Sprint("client", i), false, fabric.Balanced)
		to, err := client.el.Dial(within(t, patience), node.addr)
		if err != nil {
			t.Fatal(err)
		}
		f, err := client.rt.Prepare(img, nil)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string { // the ones before it are in use for a moment still
			got, err := f.Do(within(t, patience), inject.Root{To: to, Payload: []byte("here")}, nil)
			if err != nil || string(got) != "here" {
				return fmt.Sprintf("function %d: %q, %v", i, got, err)
			}
			return ""
		})
		f.Close()
		client.el.Close()
	}
	if s := e.Stats(); s.Compiled < 8 {
		t.Errorf("%d were compiled", s.Compiled)
	}
	if evicted := node.rt.Stats().Evicted; evicted < 6 {
		t.Errorf("%d images gave way", evicted)
	}
}
