package bench

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/llvm"
	"github.com/wherry-fabric/wherry/inject/native"
	"github.com/wherry-fabric/wherry/inject/native/worker"
	"github.com/wherry-fabric/wherry/inject/trust"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// What Config.Native can be.
const (
	nativeWorker    = "worker"
	nativeInProcess = "in-process"
)

// codeOf is what a role is told of the code that is measured; nil: the ready functions, as wasm.
type codeOf struct {
	Form   string // that is asked for
	Native string // how servers run native code
	Trust  []byte // the public key that servers trust
	Dir    string // of the images: a file for each
}

//go:embed native/increment.c
var incrementSource []byte

// firstUses is how many functions are used for the first time, and once more from the disk, at most --rounds of them; one goes before
// them, to warm the compiler.
func firstUses(rounds int) int {
	const usual = 20
	if rounds == 0 {
		return usual
	}
	return min(usual, rounds/10)
}

// wish is the form that is asked for.
func (s *role) wish() forms.Wish {
	if s.Code == nil {
		return forms.Auto
	}
	w, err := forms.ParseWish(s.Code.Form)
	if err != nil {
		panic("bench: Validate let a form through: " + err.Error())
	}
	return w
}

// validateForm looks at Form and Native, and fills Native in.
func (c *Config) validateForm() error {
	if c.Form == "" && c.Kind == "scan" && c.GiB == 0 {
		c.Form = forms.Auto.String() // both are measured
	}
	if c.Kind == "codegen" {
		c.Form = forms.Wasm.String() // as everything runs that is made
	}
	if c.Form == "" && c.Kind == "hostile" {
		c.Form = forms.Wasm.String() // which anybody may send
	}
	if c.Form == "" {
		if c.Native != "" {
			if c.GiB > 0 {
				return errors.New("bench: --native with --gib: columns are scanned as wasm; leave one of them out")
			}
			return errors.New("bench: --native without --form: say which form of code is to be measured")
		}
		return nil
	}
	if _, err := forms.ParseWish(c.Form); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if c.Native == "" {
		c.Native = nativeWorker
	}
	if c.Native != nativeWorker && c.Native != nativeInProcess {
		return fmt.Errorf("bench: native %q: it is %s or %s", c.Native, nativeWorker, nativeInProcess)
	}
	if c.Kind == "hostile" && c.Native == nativeInProcess {
		return errors.New("bench: hostile functions in the node's own process: nothing contains them there, so there is nothing to measure")
	}
	if c.Kind == "hostile" && c.TLS {
		return errors.New("bench: hostile functions over TLS: the node there knows its clients by tokens; leave --tls away")
	}
	return nil
}

// code builds what is measured and signs it, with a key that is made for the occasion.
func (c *Config) code(ctx context.Context, dir string) (*codeOf, error) {
	if c.Form == "" {
		return nil, nil
	}
	wish, err := forms.ParseWish(c.Form)
	if err != nil {
		return nil, err
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	b := builder{ctx: ctx, dir: filepath.Join(dir, "code"), key: private}
	switch wish {
	case forms.Auto:
		b.forms = []image.Form{image.Wasm, image.LLVMBitcode, image.ELF}
	case forms.Wasm:
		b.forms = []image.Form{image.Wasm}
	case forms.Bitcode:
		b.forms = []image.Form{image.LLVMBitcode}
	case forms.ELF:
		b.forms = []image.Form{image.ELF}
	}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return nil, err
	}
	switch c.Kind {
	case "chase":
		err = b.ready(xrdma.Chase(), "chase")
	case "scan":
		err = b.build(cbuild.Source{Name: "scan.c", Code: scanSource, Includes: map[string][]byte{"scan.h": scanHeader}}, image.Manifest{Name: "bitcode-scan"}, nil, "auto-scan")
	case "codegen":
		err = b.where()
	case "hostile":
		err = b.hostile()
	case "inject":
		if err = b.ready(xrdma.Echo(), "echo"); err != nil {
			return nil, err
		}
		for i := range 1 + firstUses(c.Rounds) {
			if c.Progress != nil {
				c.Progress("building functions", float64(i)/float64(1+firstUses(c.Rounds)))
			}
			src := cbuild.Source{Name: "increment.c", Code: incrementSource}
			m := image.Manifest{Name: increment(i), Windows: []image.Window{{Name: "words", Writable: true}}}
			if err = b.build(src, m, map[string]string{"STEP": strconv.Itoa(i + 1)}, known(i)); err != nil {
				break
			}
		}
	}
	return &codeOf{Form: c.Form, Native: c.Native, Trust: public, Dir: b.dir}, err
}

// increment is a function's name, and known that of another one with the same code.
func increment(i int) string { return fmt.Sprintf("increment-%d", i) }
func known(i int) string     { return fmt.Sprintf("known-%d", i) }

// builder makes signed images, a file for each.
type builder struct {
	ctx   context.Context
	dir   string
	key   ed25519.PrivateKey
	forms []image.Form
}

// ready builds a ready function anew.
func (b *builder) ready(img *image.Image, name string) error {
	code, err := xrdma.Source(name)
	if err != nil {
		return err
	}
	return b.build(cbuild.Source{Name: name + ".c", Code: code}, img.Manifest(), nil)
}

// build builds a function, and others with the same code.
func (b *builder) build(src cbuild.Source, m image.Manifest, defines map[string]string, others ...string) error {
	img, err := cbuild.Build(b.ctx, src, m, cbuild.Options{Forms: b.forms, Targets: []string{worker.Arch}, Defines: defines})
	for _, name := range append([]string{m.Name}, others...) {
		if err == nil {
			img, err = renamed(img, name)
		}
		if err == nil {
			img, err = img.Sign(b.key)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(b.dir, name+".wfn"), img.Encode(), 0o600)
		}
	}
	return err
}

// image reads what was built; without a form it is the ready function.
func (s *role) image(name string) (*image.Image, error) {
	if s.Code == nil {
		return xrdma.Lookup(name)
	}
	b, err := os.ReadFile(filepath.Join(s.Code.Dir, name+".wfn"))
	if err != nil {
		return nil, err
	}
	return image.Parse(b)
}

// engines are what a server runs functions with.
func (s *station) engines(spec *role) (cfg inject.Config, err error) {
	e, err := wasm.New(wasm.Config{})
	if err != nil {
		return cfg, err
	}
	cfg.Engines = []abi.Engine{wasm.Runner{Engine: e}}
	if spec.Code == nil {
		return cfg, nil
	}
	if cfg.Trust, err = trust.New([]trust.Key{{Name: "bench", Public: spec.Code.Trust}}); err != nil {
		return cfg, err
	}
	// Objects are kept on disk only: what is used again is what a node finds there after it was started again.
	s.compiler = llvm.New(llvm.Config{CacheDir: spec.CacheDir, MemoryBytes: 1})
	s.native, err = native.New(native.Config{Compiler: compiler{s.compiler}, InProcess: spec.Code.Native == nativeInProcess})
	if err != nil {
		return cfg, err
	}
	for _, o := range s.native.Offers() {
		if w := spec.wish(); o.Why != "" && (w == forms.Bitcode && o.Form == image.LLVMBitcode.String() || w == forms.ELF && o.Form == image.ELF.String()) {
			return cfg, fmt.Errorf("%s cannot be measured here: %s", w, o.Why)
		}
	}
	cfg.Engines = append(cfg.Engines, s.native)
	return cfg, nil
}

// compiler has package llvm compile for package native: neither knows the other.
type compiler struct{ *llvm.Compiler }

func (c compiler) Object(ctx context.Context, r native.Request) ([]byte, bool, error) {
	return c.Compiler.Object(ctx, llvm.Request(r))
}

// handleObjects answers how many objects were made, and how many were found on disk.
func (s *station) handleObjects() {
	s.el.Handle(idObjects, func(m fabric.Message) {
		var st llvm.Stats
		if s.compiler != nil {
			st = s.compiler.Stats()
		}
		m.From.Post(idAlloc, binary.LittleEndian.AppendUint64(nil, st.Compiled<<32|st.FromDisk), nil)
	})
}

// settleTime is how long a server has for what it does after a first use: better code, and files.
const settleTime = 50 * time.Millisecond

// firstIncrements measures the papers' increment in functions that no server has seen, and then in such whose objects
// are on the server's disk: sent, made ready, run, answered.
func (c *client) firstIncrements() error {
	table, _, err := c.table()
	if err != nil {
		return err
	}
	first, err := c.uses("first use", table, increment)
	if err != nil {
		return err
	}
	c.r.Set("first_use_us", first.p(0.5)/1e3)
	c.r.Set("first_use_us_max", first.p(1)/1e3)
	if c.spec.wish() != forms.Bitcode {
		return nil
	}
	_, before, err := c.objects()
	if err != nil {
		return err
	}
	disk, err := c.uses("use from the disk", table, known)
	if err != nil {
		return err
	}
	made, after, err := c.objects()
	if err != nil {
		return err
	}
	if n := uint64(1 + firstUses(c.spec.Rounds)); after-before != n {
		return fmt.Errorf("%d of %d objects were found on disk, %d were made in all", after-before, n, made)
	}
	c.r.Set("disk_use_us", disk.p(0.5)/1e3)
	c.r.Set("disk_use_us_max", disk.p(1)/1e3)
	return nil
}

// uses times a run each of functions that the server does not have.
func (c *client) uses(what string, table *cluster.Table, name func(int) string) (s samples, err error) {
	for i := range 1 + firstUses(c.spec.Rounds) {
		c.say(what, float64(i)/float64(1+firstUses(c.spec.Rounds)))
		img, err := c.spec.image(name(i))
		if err != nil {
			return nil, err
		}
		t := time.Now()
		f, err := c.rt.PrepareAs(img, table, c.spec.wish())
		if err != nil {
			return nil, err
		}
		_, err = f.Do(c.ctx, inject.Root{Element: 0}, nil)
		if err != nil {
			return nil, err
		}
		if i > 0 { // the first one warms the compiler
			s = append(s, float64(time.Since(t)))
		}
		f.Close()
		time.Sleep(settleTime)
	}
	return s, nil
}

// objects asks the first server how many objects it has made, and how many it has found on disk.
func (c *client) objects() (made, found uint64, err error) {
	if err := c.ask(c.eps[0], idObjects, nil); err != nil {
		return 0, 0, err
	}
	both := c.last.Load()
	return both >> 32, both & (1<<32 - 1), nil
}
