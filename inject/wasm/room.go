package wasm

import (
	"context"

	"github.com/wherry-fabric/wherry/inject/room"
)

// stackBytes is charged for the stack of a function that recurs: wazero lets it grow to about that, and no limit of ours
// does. What others need at most is known from their code (wasmcode's StackBytes); wazero doubles a stack that is too small.
const stackBytes = 100 << 20

// stack is what is charged for a program's stack.
func (p *Program) stack() uint64 {
	if p.recursive {
		return stackBytes
	}
	return min(2*p.module.StackBytes, stackBytes)
}

// needs is what an instance takes of Config.MemoryBytes, with the stack of one that recurs, and with all of its scratch or
// none.
func (p *Program) needs(scratch bool) uint64 {
	l := p.room
	if !scratch {
		l.ScratchBytes = 0
	}
	return ownBytes(l) + p.stack()
}

// Acquire takes room for an instance, without scratch, and then the instance. If there is no room, the error is ErrBusy.
func (b *Binding) Acquire(ctx context.Context) (*Instance, error) {
	p, err := b.Reserve(0)
	if err != nil {
		return nil, b.Explain(err, 0)
	}
	in, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return (*Instance)(in.(*runnerInstance)), nil
}

// Make makes an instance: the Pool asks for it. Making the first one compiles the program, unless Prepare did;
// every one runs its start function and _initialize, bounded by ctx and the program's RunTime.
func (b *Binding) Make(ctx context.Context) (room.Instance, error) {
	if err := b.program.open(); err != nil {
		return nil, err
	}
	in, err := b.instantiate(ctx)
	if err != nil {
		return nil, err
	}
	if err = in.start(ctx); err == nil {
		err = in.remember()
	}
	if err != nil {
		in.close()
		return nil, err
	}
	return (*runnerInstance)(in), nil
}

// Gone gives the program up: the Pool is closed, and its last instance has gone.
func (b *Binding) Gone() { b.program.drop() }
