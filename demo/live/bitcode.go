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

// bitcode is what a mixed demo shows of code that is compiled where it arrives: one of its functions, built from its source as wasm and as bitcode for the
// processors of the nodes that have a compiler, and signed with a key that only those nodes trust.
type bitcode struct {
	public  ed25519.PublicKey
	private ed25519.PrivateKey
	names   []string // of the processors, as Go and as targets are called
	targets []string
}

// compiled is the papers' pointer chase.
const compiled = "chase"

// newBitcode finds out which processors' nodes have a compiler; nil: none has.
func newBitcode(programs []Program) (*bitcode, error) {
	b := &bitcode{}
	for _, p := range programs {
		if len(p.Compiler) > 0 {
			b.names = append(b.names, p.Arch)
			b.targets = append(b.targets, map[string]string{"amd64": "x86_64", "arm64": "aarch64", "riscv64": "riscv64"}[p.Arch])
		}
	}
	if len(b.names) == 0 {
		return nil, nil
	}
	var err error
	b.public, b.private, err = ed25519.GenerateKey(rand.Reader)
	return b, err
}

// bitcodeSteps is how many steps of the chase each form is asked for: each begins at another index of the node's own, so no other node needs bitcode.
const bitcodeSteps = 16

// ask asks each node that has a compiler for steps of the chase, as wasm and as bitcode, and says where both answers are the table's. Without clang it says that.
func (c *bitcode) ask(ctx context.Context, loaded *Loaded, programs []Program) (said []string, err error) {
	img, err := c.build(ctx)
	if errors.Is(err, cbuild.ErrNoCompiler) {
		return []string{"none, as there is no clang to make it: " + err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	b := loaded.opened[slices.IndexFunc(loaded.opened, func(b *Backend) bool { return b.next != nil })]
	for e := range b.eps {
		p := programs[e%len(programs)]
		if len(p.Compiler) == 0 {
			continue
		}
		for _, form := range []forms.Wish{forms.Wasm, forms.Bitcode} {
			if err := b.steps(ctx, img, form, e); err != nil {
				return nil, fmt.Errorf("live: the %s as %v at element %d (%s): %w", compiled, form, e, p.Arch, err)
			}
		}
		said = append(said, fmt.Sprintf("%s compiled at element %d (%s), whose answer is that of wasm there", compiled, e, p.Arch))
	}
	return said, nil
}

func (c *bitcode) build(ctx context.Context) (*image.Image, error) {
	ready, err := xrdma.Lookup(compiled)
	if err != nil {
		return nil, err
	}
	code, err := xrdma.Source(compiled)
	if err != nil {
		return nil, err
	}
	img, err := cbuild.Build(ctx, cbuild.Source{Name: compiled + ".c", Code: code}, ready.Manifest(),
		cbuild.Options{Forms: []image.Form{image.Wasm, image.LLVMBitcode}, Targets: slices.Compact(c.targets)})
	if err != nil {
		return nil, err
	}
	return img.Sign(c.private)
}

// steps takes some steps of the chase at one element, in one form.
func (b *Backend) steps(ctx context.Context, img *image.Image, form forms.Wish, element int) error {
	f, err := b.client.Runtime().PrepareAs(img, b.table, form)
	if err != nil {
		return err
	}
	defer f.Close()
	first, rows := b.layout.Block(element)
	for i := range min(rows, bitcodeSteps) {
		at := first + i*(rows/bitcodeSteps)
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
