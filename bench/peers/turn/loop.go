package turn

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/internal/child"
)

// Loops are processes that keep both sides' CPUs busy while turns are taken, as other programs on the machine would.
type Loops []*child.Process

// StartLoops starts one for each side. They run until End.
func (r *Runner) StartLoops(ctx context.Context) (l Loops, err error) {
	for _, server := range []bool{false, true} {
		p, err := r.start(ctx, spec{Server: server, Loop: true})
		if err == nil {
			l = append(l, p)
			_, err = ask(p, "")
		}
		if err != nil {
			l.End()
			return nil, err
		}
	}
	return l, nil
}

// End ends them.
func (l Loops) End() {
	for _, p := range l {
		p.End()
	}
}

// loop keeps a CPU busy until the input ends.
func loop(in *json.Decoder, out *json.Encoder) error {
	if err := out.Encode(answer{}); err != nil {
		return err
	}
	var stop atomic.Bool
	go func() { // it ends with the process, which ends with the loop
		var word string
		_ = in.Decode(&word)
		stop.Store(true)
	}()
	for !stop.Load() {
	}
	return nil
}
