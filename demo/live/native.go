package live

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/demo"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// native is what a mixed demo shows besides wasm: one of its functions, built from its source in every form for the emulated processors, and
// signed with a key that only their nodes trust.
type native struct {
	public  ed25519.PublicKey
	private ed25519.PrivateKey
	targets []string // the processors, as compilers call them
}

// shown is the papers' pointer chase.
const shown = "chase"

// newNative says what to show; nil: no processor is emulated.
func newNative(programs []Program) (*native, error) {
	n := &native{}
	for _, p := range programs {
		if p.Emulated {
			n.targets = append(n.targets, map[string]string{"amd64": "x86_64", "arm64": "aarch64", "riscv64": "riscv64"}[p.Arch])
		}
	}
	if len(n.targets) == 0 {
		return nil, nil
	}
	var err error
	n.public, n.private, err = ed25519.GenerateKey(rand.Reader)
	return n, err
}

// nativeSteps is how many steps of the chase each form is asked for: each begins at another index of the node's own, so no other node needs native code.
const nativeSteps = 16

// ask asks each emulated node for steps of the chase, as wasm, as an object and, where it has a compiler, as bitcode, and says where all answers are the
// table's. Without clang it says that.
func (n *native) ask(ctx context.Context, loaded *Loaded, programs []Program) (objects, bitcode []string, err error) {
	img, err := n.build(ctx)
	if errors.Is(err, cbuild.ErrNoCompiler) {
		return []string{"none, as there is no clang to make it: " + err.Error()}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	b := loaded.opened[slices.IndexFunc(loaded.opened, func(b *Backend) bool { return b.next != nil })]
	for e := range b.eps {
		p := programs[e%len(programs)]
		if !p.Emulated {
			continue
		}
		asked := []forms.Wish{forms.Wasm, forms.ELF}
		if len(p.Compiler) > 0 {
			asked = append(asked, forms.Bitcode)
		}
		for _, form := range asked {
			if err := b.steps(ctx, img, form, e); err != nil {
				return nil, nil, fmt.Errorf("live: the %s as %v at element %d (%s): %w", shown, form, e, p.Arch, err)
			}
		}
		objects = append(objects, fmt.Sprintf("%s at element %d (%s), whose answer is that of wasm there", shown, e, p.Arch))
		if len(p.Compiler) > 0 {
			bitcode = append(bitcode, fmt.Sprintf("%s compiled at element %d (%s), whose answer is that of wasm there", shown, e, p.Arch))
		}
	}
	return objects, bitcode, nil
}

func (n *native) build(ctx context.Context) (*image.Image, error) {
	ready, err := xrdma.Lookup(shown)
	if err != nil {
		return nil, err
	}
	code, err := xrdma.Source(shown)
	if err != nil {
		return nil, err
	}
	img, err := cbuild.Build(ctx, cbuild.Source{Name: shown + ".c", Code: code}, ready.Manifest(),
		cbuild.Options{Forms: []image.Form{image.Wasm, image.LLVMBitcode, image.ELF}, Targets: n.targets})
	if err != nil {
		return nil, err
	}
	return img.Sign(n.private)
}

// steps takes some steps of the chase at one element, in one form.
func (b *Backend) steps(ctx context.Context, img *image.Image, form forms.Wish, element int) error {
	f, err := b.client.Runtime().PrepareAs(img, b.table, form)
	if err != nil {
		return err
	}
	defer f.Close()
	first, rows := b.layout.Block(element)
	for i := range min(rows, nativeSteps) {
		at := first + i*(rows/nativeSteps)
		reply, err := f.Do(ctx, inject.Root{Element: uint32(element), Payload: xrdma.ChaseArgs(at, 1)}, nil)
		if err != nil {
			return err
		}
		if got, err := xrdma.ChaseResult(reply); err != nil || got != b.next[at] {
			return fmt.Errorf("%w: from %d it goes to %d (%v), the table says %d", demo.ErrBadData, at, got, err, b.next[at])
		}
	}
	return nil
}
