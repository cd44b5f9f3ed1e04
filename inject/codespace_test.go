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

// TestCodeOfWhoLeftGivesWay: two principals have filled the room for machine code, one its share and the other the rest, and their connections end without a word. What a third
// one sends runs at once, as do many times as many functions as it may have there.
func TestCodeOfWhoLeftGivesWay(t *testing.T) {
	e, err := wasm.New(wasm.Config{CodeBytes: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	node := newMemberAs(t, fabric.Config{Name: "n0", Auth: tokens{"cluster"}}, true, func(c *inject.Config) { c.Engines = []abi.Engine{wasm.Runner{Engine: e}} })
	echo := xrdma.Echo()
	manifest := echo.Manifest()
	made := 0
	run := func(m *member) error {
		manifest.Name = fmt.Sprint("echo", made)
		made++
		img, err := image.Build(manifest, echo.Entries()...)
		if err != nil {
			t.Fatal(err)
		}
		f, err := m.rt.Prepare(img, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Do(within(t, patience), inject.Root{To: m.eps["n0"], Payload: []byte("here")}, nil) // it is not closed
		return err
	}
	join := func(who string) *member {
		m := newMemberAs(t, fabric.Config{Name: who, Auth: tokens{who}}, false)
		if m.eps["n0"], err = m.el.Dial(within(t, patience), node.addr); err != nil {
			t.Fatal(err)
		}
		return m
	}
	var hostile []*member
	for _, who := range []string{"bob", "node"} {
		m := join(who)
		hostile = append(hostile, m)
		for n := range 4 { // of which there is room for two of bob's, and one of the other's: their own give way
			if err := run(m); err != nil {
				t.Fatalf("function %d of %s: %v", n, who, err)
			}
		}
	}
	if s := e.Stats(); s.CodeBytes < 196<<10 {
		t.Fatalf("%+v: this test proves nothing", s)
	}
	ann := join("ann")
	for _, m := range hostile {
		m.el.Close()
	}
	eventually(t, func() string { // it hears of the end of the connections
		if n := len(node.el.Endpoints()); n > 1 {
			return fmt.Sprintf("there are %d connections", n)
		}
		return ""
	})
	for i := range 2 * made {
		if err := run(ann); err != nil {
			t.Fatalf("function %d of another principal: %v; %+v", i, err, e.Stats())
		}
	}
}
