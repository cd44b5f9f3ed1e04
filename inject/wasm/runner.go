package wasm

import (
	"context"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/room"
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

// Bind also makes the machine code: no run holds its place meanwhile.
func (p runnerProgram) Bind(ctx context.Context, principal string, windows []abi.Window) (abi.Bound, error) {
	b, err := p.Program.Bind(principal, windows)
	if err != nil {
		return nil, err
	}
	if err := b.Prepare(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// runnerInstance is an Instance; a pointer of its own type, so that a run allocates nothing.
type runnerInstance Instance

func (in *runnerInstance) Run(payload []byte, limits *abi.Limits, h abi.Host) (abi.Status, error) {
	return (*Instance)(in).run(payload, limits, h)
}

// Waits says that the current host call is about to wait.
func (in *runnerInstance) Waits() { (*Instance)(in).Waits() }

func (in *runnerInstance) Release() { (*Instance)(in).Release() }

// Slot is where the instance lies in its Pool.
func (in *runnerInstance) Slot() *room.Slot { return &in.slot }

// Discard closes the instance: it is in no pool any more.
func (in *runnerInstance) Discard() { (*Instance)(in).close() }
