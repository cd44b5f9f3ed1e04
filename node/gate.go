package node

import (
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
)

const (
	// maxFiles bounds the files that a node reads for loads at once. Reading one takes
	// some times a line, which has dataset.MaxLineBytes at most.
	maxFiles = 8
	// maxGraphs bounds those of them that are graphs or columns: each takes dataset.DefaultMemoryBytes at most.
	maxGraphs = 2
	// maxGateLine bounds those that wait until they may be read: each is a call that is served, and a
	// node serves few at once.
	maxGateLine = 32
)

// gate lets a number of files be read at once, and others wait in line.
type gate struct {
	what     string
	in, line chan struct{} // a value for each
}

func newGate(what string, most int) *gate {
	return &gate{what: what, in: make(chan struct{}, most), line: make(chan struct{}, maxGateLine)}
}

// enter waits until there is room, or ctx ends; waiting is called if that is not at once. Each enter takes a leave.
func (g *gate) enter(ctx context.Context, waiting func()) error {
	select {
	case g.in <- struct{}{}:
		return nil
	default:
	}
	select {
	case g.line <- struct{}{}:
	default:
		return fmt.Errorf("%w: %d %s are being loaded from files of this node, the most there can be at once, and %d loads wait: try again later",
			control.ErrMemory, cap(g.in), g.what, cap(g.line))
	}
	defer func() { <-g.line }()
	waiting()
	select {
	case g.in <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %d %s are being loaded from files of this node, the most there can be at once: %w", control.ErrMemory, cap(g.in), g.what, context.Cause(ctx))
	}
}

func (g *gate) leave() { <-g.in }

// enterFile waits until a file may be read: what reading takes is bounded for each, and with
// the number at once for all together.
func (n *Node) enterFile(ctx context.Context, o *dataset.Options) (leave func(), err error) {
	most := n.live.Load().LoadTime
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("none has ended for %v: try again later", most))
	defer cancel()
	gates := []*gate{n.files}
	if o.Format == dataset.Edges || o.Columnar() { // these wait for one another first, and hold up no other load
		gates = []*gate{n.graphs, n.files}
	}
	var entered []*gate
	leave = func() {
		for _, g := range entered {
			g.leave()
		}
	}
	for _, g := range gates {
		if err = g.enter(ctx, func() { o.Progress(control.PhaseWait, 0, -1) }); err == nil {
			entered = append(entered, g)
			continue
		}
		leave()
		return nil, err
	}
	if n.stopping.Load() {
		leave()
		return nil, control.ErrStopping
	}
	return leave, nil
}
