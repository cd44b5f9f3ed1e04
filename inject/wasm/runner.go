package wasm

import (
	"context"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// Runner is an Engine as package inject uses engines.
type Runner struct{ Engine *Engine }

// Offers are wasm, which runs everywhere.
func (r Runner) Offers() []abi.Offer { return []abi.Offer{{Form: "wasm32", Tier: r.Engine.kind}} }

// Load checks a module.
func (r Runner) Load(ctx context.Context, code abi.Code) (abi.Program, error) {
	p, err := r.Engine.Compile(ctx, ID(code.ID), code.ABI, code.Bytes, code.Limits)
	if err != nil {
		return nil, err
	}
	return runnerProgram{p}, nil
}

type runnerProgram struct{ *Program }

func (p runnerProgram) Bind(principal string, windows []abi.Window) (abi.Bound, error) {
	b, err := p.Program.Bind(principal, windows)
	if err != nil {
		return nil, err
	}
	return runnerBound{b}, nil
}

type runnerBound struct{ *Binding }

func (b runnerBound) Reserve(scratch uint64) (abi.Place, error) {
	p, err := b.Binding.Reserve(scratch)
	if err != nil {
		return nil, err
	}
	return runnerPlace{p}, nil
}

type runnerPlace struct{ Place }

func (p runnerPlace) Acquire(ctx context.Context) (abi.Instance, error) {
	in, err := p.Place.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return (*runnerInstance)(in), nil
}

// runnerInstance is an Instance; a pointer of its own type, so that a run allocates nothing.
type runnerInstance Instance

func (in *runnerInstance) Run(payload []byte, limits *abi.Limits, h abi.Host) (abi.Status, error) {
	return (*Instance)(in).run(payload, limits, h)
}

// Waits says that the current host call is about to wait.
func (in *runnerInstance) Waits() { (*Instance)(in).Waits() }

func (in *runnerInstance) Release() { (*Instance)(in).Release() }
