package nativetest

import (
	"errors"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/schema"
)

// endless has every element run a function that was made where the call began, and that never ends: a derived one, or an assembled one.
const endless = `
#include "wherry.h"
#include "wherry_asm.h"
static wherry_asm_t a;
WHERRY_ENTRY(payload, size)
{
    uint64_t k = 0;
    int32_t f = wherry_constants(&k, sizeof k);
    if (f == WHERRY_OK)
        for (volatile int i = 0; ; i = 1 - i)
            ;
    if (size != 1)
        return WHERRY_ERR_ARGUMENT;
    if (*(const uint8_t *)payload == 'd') {
        f = wherry_derive(&k, sizeof k);
    } else {
        wherry_asm_begin(&a, 0);
        uint32_t again = wherry_asm_loop(&a);
        wherry_asm_jump(&a, again);
        wherry_asm_close(&a);
        wherry_asm_i32(&a, 0);
        f = wherry_asm_end(&a);
    }
    if (f < 0)
        return f;
    for (int32_t e = 1; e < wherry_elements(); e++)
        WHERRY_TRY(wherry_fork((uint32_t)f, e, "", 0));
    return wherry_forward((uint32_t)f, 0, "", 0);
}
`

// TestMadeLost: a call whose branches run as functions that it made ends when an element dies, whether that made them or runs one of them. The error names the
// element, nothing of the call goes on elsewhere, and the others serve on.
func TestMadeLost(t *testing.T) {
	number := &schema.Schema{Fields: []schema.Field{{Name: "n", Type: schema.U64}}}
	img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "endless.c", Code: []byte(endless)},
		image.Manifest{Name: "endless", ABI: abi.Version, Constants: number, Limits: abi.Limits{RunTime: time.Minute}},
		cbuild.Options{Forms: []image.Form{image.Wasm, image.LLVMBitcode}, Targets: []string{runtime.GOARCH}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, how, dies string
		form            forms.Wish
	}{
		{"the maker of bitcode", "d", "a", forms.Bitcode},
		{"an element that runs assembled wasm", "a", "c", forms.Wasm},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, "a", "b", "c")
			table, _ := s.ring(64)
			ended := make(chan error, 1)
			go func() {
				first := uint32(0)
				_, err := s.call(invoke.Request{Image: s.sign(img, s.key), Table: table, Form: c.form, Element: &first, Payload: []byte(c.how)})
				ended <- err
			}()
			running := func(names ...string) (n int) {
				for _, name := range names {
					st, err := s.c.Status(t.Context(), name)
					if err != nil {
						t.Fatal(err)
					}
					n += st.Queues.Running
				}
				return n
			}
			// Each element runs one branch for good once the call's own has forked them.
			for until := time.Now().Add(patience); running("a") != 1 || running("b") != 1 || running("c") != 1; time.Sleep(5 * time.Millisecond) {
				select {
				case err := <-ended:
					t.Fatalf("it ended: %v", err)
				default:
				}
				if time.Now().After(until) {
					t.Fatal("its branches do not run")
				}
			}
			cmd := s.procs[c.dies]
			delete(s.procs, c.dies)
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // as it was killed
			err := <-ended
			if lost := new(travel.PeerLostError); !errors.As(err, &lost) || lost.Element != c.dies {
				t.Errorf("it ended with %v", err)
			}
			rest := []string{"b", "c"}
			if c.dies == "c" {
				rest = []string{"a", "b"}
			}
			for until := time.Now().Add(patience); running(rest...) != 0; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(until) {
					t.Fatal("branches of a call that has ended run on")
				}
			}
			s.names = rest
			good := s.sign(s.build(function{name: "good", source: echo}), s.key)
			if got, err := s.at(good, forms.Bitcode, "hello"); err != nil || got != "hello" {
				t.Errorf("and after that %s answers %q, %v", rest[0], got, err)
			}
		})
	}
}
