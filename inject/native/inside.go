package native

import (
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/inject/native/worker"
	"github.com/wherry-fabric/wherry/internal/stackswitch"
)

// Where Config.InProcess says so, an instance is no process: what a worker would have lies in this one, at addresses of its own, and what gives the
// function its turn is a switch of stacks (internal/stackswitch) in place of two switches of processes. All the rest is the
// same: the runtime's code, the page, the host calls and their checks.

var errNotInside = errors.New("native code cannot run in the node's own process on this processor, only on Linux on amd64, arm64 and riscv64; native: worker runs it in processes of its own")

// reserve takes addresses for an instance, and places its code there. The caller closes the codes.
func (p *process) reserve(b *bound) (c codes, err error) {
	if p.reserved, err = worker.Reserve(); err != nil {
		return c, err
	}
	p.base = p.reserved.Base
	if c.runtime, err = worker.NewRuntime(p.base); err != nil {
		return c, err
	}
	if p.image, err = b.program.object.Place(p.base+worker.FunctionAt-worker.Base, b.program.calls.in(c.runtime)); err != nil {
		return c, err
	}
	if c.runtimeCode, err = newCodeFile(c.runtime.Image, c.runtime.Image.Data); err != nil {
		return c, err
	}
	if c.function, err = newCodeFile(p.image, uint64(len(p.image.Bytes))); err != nil {
		c.runtimeCode.close()
	}
	return c, err
}

// enter maps what a worker has, and runs the runtime's code until it waits for its first run. What is not mapped, below the stack above
// all, stays without access.
func (p *process) enter(l *layout, s *worker.Start) error {
	if err := p.reserved.Map(l.maps, l.fds); err != nil {
		return err
	}
	p.inside = &stackswitch.Frame{}
	p.page.SetYield(stackswitch.Yield(), p.inside.Address())
	p.inside.Begin(uintptr(s.Entry), uintptr(s.Stack), 0, 0)
	if p.inside.Resume(); p.page.Wants() != worker.WantsReady {
		return fmt.Errorf("it began with %d", p.page.Wants())
	}
	return nil
}
