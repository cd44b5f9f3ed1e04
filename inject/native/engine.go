package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/elf"
	"github.com/wherry-fabric/wherry/inject/native/worker"
	"github.com/wherry-fabric/wherry/inject/room"
	"github.com/wherry-fabric/wherry/internal/stackswitch"
)

// The forms that an engine can run, as images call them.
const (
	formELF     = "elf"
	formBitcode = "llvm-bitcode"
)

// Engine loads programs and keeps their workers. Its methods may be called from any goroutine.
type Engine struct {
	config  Config
	runtime *worker.Runtime
	code    *codeFile // the runtime's
	offers  []abi.Offer
	nursery *nursery
	calls   []hostCall // by number

	room   *room.Room
	loaded *room.Code // charged to whom a program was loaded for first; others may run it too

	mu     sync.Mutex
	closed bool
	stats  Stats
}

// Stats counts what an engine did.
type Stats struct {
	Loaded     uint64 // programs
	room.Stats        // of workers
}

// Main makes this process a nursery of workers if it was started as one, and else returns at once. Programs that embed a node call it first of
// all in main.
func Main() { worker.Main() }

// New makes an engine, and starts the nursery of its workers, which knows whether there can be any here: Offers tells what it says.
func New(config Config) (*Engine, error) {
	config, err := config.filled()
	if err != nil {
		return nil, err
	}
	e := &Engine{config: config, nursery: newNursery(config), loaded: room.NewCode("native", maxPrograms, config.CodeBytes),
		room: room.New(room.Config{Instances: config.MaxWorkers, Bytes: config.MemoryBytes, Noun: "workers", Busy: ErrBusy, Closed: ErrClosed})}
	for _, c := range abi.Calls() {
		e.calls = append(e.calls, hostCall{c, carried(c.Name)})
	}
	var why string
	if e.runtime, err = worker.NewRuntime(worker.Base); err == nil {
		switch {
		case !config.InProcess:
			if e.code, err = newCodeFile(e.runtime.Image, e.runtime.Image.Data); err == nil {
				err = e.nursery.probe()
			}
		case !stackswitch.Resumes():
			err = errNotInside
		}
	}
	if err != nil {
		why = err.Error()
	}
	e.offers = e.makeOffers(why)
	return e, nil
}

// triple is this machine's, as LLVM writes it.
func triple() string { return worker.Arch + "-unknown-linux-gnu" }

// where ends a tier's name if code runs elsewhere than in workers.
func (e *Engine) where() string {
	if e.config.InProcess {
		return ", in the node's own process"
	}
	return ""
}

func (e *Engine) makeOffers(why string) []abi.Offer {
	where := e.where()
	object := abi.Offer{Form: formELF, Triple: triple(), Tier: "as built" + where, Why: why}
	if e.config.Compiler == nil {
		return []abi.Offer{object}
	}
	bitcode := abi.Offer{Form: formBitcode, Triple: triple(), Why: why}
	if t, cpu, features, err := e.config.Compiler.Target(); err != nil {
		bitcode.Why = err.Error()
	} else {
		bitcode.Triple, bitcode.Tier, bitcode.Features, object.Features = t, "compiled for "+cpu+where, features, features
	}
	return []abi.Offer{bitcode, object}
}

// Offers are the forms that this machine can run.
func (e *Engine) Offers() []abi.Offer { return slices.Clone(e.offers) }

// Load checks code and gives it its address. Errors are *CodeError and *LimitError, and those of the compiler.
func (e *Engine) Load(ctx context.Context, code abi.Code) (abi.Program, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(e.offers, func(o abi.Offer) bool { return o.Form == code.Form })
	if i < 0 {
		return nil, &CodeError{fmt.Errorf("%q is no form of native code", code.Form)}
	}
	if why := e.offers[i].Why; why != "" {
		return nil, &CodeError{errors.New(why)}
	}
	if arch, _, _ := strings.Cut(code.Triple, "-"); arch != worker.Arch {
		return nil, &CodeError{fmt.Errorf("it is for %q, this machine is %q", code.Triple, triple())}
	}
	object, tier := code.Bytes, tier{e.offers[i].Tier, false}
	if code.Form == formBitcode {
		r := Request{Bitcode: code.Bytes, Constants: code.Constants, Triple: code.Triple, Imports: code.Imports, Principal: code.Principal, Best: code.Best}
		if len(code.Signers) > 0 {
			r.Signer = code.Signers[0]
		}
		made, best, err := e.config.Compiler.Object(ctx, r)
		if err != nil {
			return nil, err
		}
		if object = made; !best {
			tier.name, tier.better = firstTier+e.where(), true
		}
	}
	return e.program(object, tier, code)
}

func (e *Engine) program(object []byte, tier tier, code abi.Code) (abi.Program, error) {
	rules := elf.Rules{Arch: worker.Arch, Entry: worker.Entry}
	calls := hostCalls{}
	for _, name := range code.Imports {
		c, err := abi.CallNamed(name, code.ABI)
		if err != nil {
			return nil, &CodeError{err}
		}
		rules.Imports = append(rules.Imports, worker.Prefix+name)
		calls[worker.Prefix+name] = worker.Prefix + c.Symbol()
	}
	o, err := elf.Parse(object, rules)
	if err != nil {
		return nil, &CodeError{err}
	}
	img, err := o.Place(worker.FunctionAt, calls.in(e.runtime))
	if err != nil {
		return nil, &CodeError{err}
	}
	limits := code.Limits.Or(e.config.Defaults).AtMost(e.config.Ceilings)
	if statics := img.Size - img.Data; statics > limits.HeapBytes {
		if code.Limits.HeapBytes != 0 || statics > e.config.Ceilings.HeapBytes {
			return nil, &LimitError{Limit: "heap_bytes", Wanted: statics, Max: limits.HeapBytes}
		}
		limits.HeapBytes = statics // no limit was named, so the object's own size is as good as the default
	}
	p := &program{engine: e, payer: code.Principal, tier: tier, object: o, calls: calls, image: img, limits: limits, scratches: slices.Contains(code.Imports, "scratch")}
	if err := e.loaded.Admit(p.payer, p.codeBytes()); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		err = ErrClosed
	} else {
		p.code, err = newCodeFile(img, uint64(len(img.Bytes)))
	}
	if err != nil {
		e.loaded.Drop(p.payer, p.codeBytes())
		return nil, err
	}
	e.stats.Loaded++
	return p, nil
}

// Stats returns what the engine did so far.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Stats = e.room.Stats()
	return s
}

// Close ends the idle workers and the nursery. If workers are running it says so, and each is ended when it is released.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	running, first := e.room.Close()
	if !first {
		return nil
	}
	err := e.nursery.close()
	if e.code != nil {
		e.code.close()
	}
	if running > 0 {
		return errors.Join(fmt.Errorf("native: %d workers are still running; each ends when it is released", running), err)
	}
	return err
}
