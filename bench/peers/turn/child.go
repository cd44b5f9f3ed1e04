package turn

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/wherry-fabric/wherry/internal/child"
)

// start starts this program in a role.
func (r *Runner) start(ctx context.Context, s spec) (*child.Process, error) {
	var p *child.Process
	if err := r.CPUs.On(s.Server, func() (err error) {
		p, err = child.Start(exec.CommandContext(ctx, r.Command[0], r.Command[1:]...))
		return err
	}); err != nil {
		return nil, err
	}
	_ = p.Tell(s) // if it fails the process has ended, and ask says why
	return p, nil
}

// ask says a word to a process and hears its answer. An empty word only hears.
func ask(p *child.Process, word string) (a answer, err error) {
	if word != "" {
		_ = p.Tell(word) // as above
	}
	if err := p.Hear(&a); err != nil {
		return a, fmt.Errorf("a process of the turn failed: %w", err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}
