package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/demo"
	"github.com/wherry-fabric/wherry/demo/debgraph"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// ErrCall says that a call makes no sense for this dataset.
var ErrCall = errors.New("live: the call makes no sense")

// callAndReply are the two messages that every injection has.
const callAndReply = 2

// Inject starts a ready function and waits for its answer.
func (b *Backend) Inject(ctx context.Context, c *demo.Call) (*demo.Reply, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := b.check(c); err != nil {
		return nil, err
	}
	switch c.Op {
	case demo.OpClosure:
		return b.closure(ctx, c)
	case demo.OpPath:
		return b.path(ctx, c)
	case demo.OpDependents:
		return b.dependents(ctx, c)
	case demo.OpMostDirect:
		return b.mostDirect(ctx, c)
	case demo.OpInside:
		return b.inside(ctx, c)
	default:
		return b.chase(ctx, c)
	}
}

// check refuses what no function could answer.
func (b *Backend) check(c *demo.Call) error {
	isChase := len(b.layout.WindowBytes[0]) < int(demo.GraphWindows)
	if c.Op > demo.OpChase || isChase != (c.Op == demo.OpChase) {
		return fmt.Errorf("%w: operation %d on %s", ErrCall, c.Op, b.table.Name)
	}
	if len(c.Starts) == 0 && c.Op != demo.OpMostDirect && c.Op != demo.OpInside {
		return fmt.Errorf("%w: it starts nowhere", ErrCall)
	}
	for _, v := range append(slices.Clone(c.Starts), c.Goal) {
		if uint64(v) >= b.layout.Vertices {
			return fmt.Errorf("%w: vertex %d of %d", ErrCall, v, b.layout.Vertices)
		}
	}
	switch {
	case c.Op == demo.OpDependents && len(c.Starts) > demo.MaxStarts:
		return fmt.Errorf("%w: %d starts, at most %d are possible", ErrCall, len(c.Starts), demo.MaxStarts)
	case c.Op == demo.OpMostDirect && c.Limit < 0:
		return fmt.Errorf("%w: the first %d vertices", ErrCall, c.Limit)
	case c.Op == demo.OpInside && uint64(len(c.Set)) != (b.layout.Vertices+63)/64:
		return fmt.Errorf("%w: a set of %d words for %d vertices", ErrCall, len(c.Set), b.layout.Vertices)
	case c.Op == demo.OpInside && b.layout.Vertices%64 != 0 && c.Set[len(c.Set)-1]>>(b.layout.Vertices%64) != 0:
		return fmt.Errorf("%w: a set with vertices beyond %d", ErrCall, b.layout.Vertices)
	case c.Op == demo.OpChase && c.Hops > demo.MaxHops:
		return fmt.Errorf("%w: %d hops, at most %d are possible", ErrCall, c.Hops, demo.MaxHops)
	}
	return nil
}

// start runs a function to its end.
func (b *Backend) start(ctx context.Context, name string, roots []inject.Root) (*inject.Result, error) {
	f, err := b.funcs[name].Start(ctx, roots, inject.Options{Hops: travel.MaxHops})
	if err != nil {
		return nil, fmt.Errorf("live: %s: %w", name, err)
	}
	r, err := f.Wait(ctx)
	if err == nil {
		return r, nil
	}
	f.Cancel()                              // it may have ended; if the context has, nobody wants its answer
	if errors.Is(err, travel.ErrDeadline) { // the context's, which the invocation took along
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return nil, fmt.Errorf("live: %s: %w", name, err)
}

// everywhere is a root at each element.
func (b *Backend) everywhere(payloads ...[]byte) []inject.Root {
	var roots []inject.Root
	for e := range b.eps {
		for _, p := range payloads {
			roots = append(roots, inject.Root{Element: uint32(e), Payload: p})
		}
	}
	return roots
}

func direction(d debgraph.Direction) xrdma.Direction {
	if d == debgraph.NeededBy {
		return xrdma.Backward
	}
	return xrdma.Forward
}

// closure starts where the starts lie.
func (b *Backend) closure(ctx context.Context, c *demo.Call) (*demo.Reply, error) {
	starts := make([][]uint32, len(b.eps))
	for _, v := range c.Starts {
		e, _ := b.layout.Owner(uint64(v))
		starts[e] = append(starts[e], v)
	}
	var roots []inject.Root
	for e, list := range starts {
		for part := range slices.Chunk(list, xrdma.MaxInsideList) {
			a := xrdma.ClosureArgs{Direction: direction(c.Dir), Vertices: part, Trail: true}
			roots = append(roots, inject.Root{Element: uint32(e), Payload: a.Encode()})
		}
	}
	result, err := b.start(ctx, "closure", roots)
	if err != nil {
		return nil, err
	}
	reply := &demo.Reply{IDs: []uint32{}}
	for _, p := range result.Pieces {
		data, trail := p.Data, uint32(0)
		if p.Last {
			if data, trail, err = xrdma.CutTrail(p.Data); err != nil {
				return nil, err
			}
		}
		reply.Chain = max(reply.Chain, callAndReply+int(trail))
		if reply.IDs, err = xrdma.AppendVertices(reply.IDs, data); err != nil {
			return nil, err
		}
	}
	slices.Sort(reply.IDs)
	return reply, nil
}

// path searches level by level: each level is a message that follows the one
// before, and then the way is followed back from the goal.
func (b *Backend) path(ctx context.Context, c *demo.Call) (*demo.Reply, error) {
	result, err := b.start(ctx, "path", b.everywhere(xrdma.PathArgs(c.Starts[0], c.Goal, xrdma.Forward, 0)))
	if err != nil {
		return nil, err
	}
	reply := &demo.Reply{}
	for _, p := range result.Pieces {
		if reply.IDs, err = xrdma.AppendPath(reply.IDs, p.Data); err != nil {
			return nil, err
		}
	}
	reply.Chain = callAndReply
	if n := len(b.eps); n > 1 {
		messages, steps := xrdma.Round(n)
		levels := (int(result.Branches) - n) / messages // too high where lists are long, too low where elements slept
		if len(reply.IDs) > 0 {
			levels = len(reply.IDs) - 1
		}
		reply.Chain += levels * steps
	}
	for i := 1; i < len(reply.IDs); i++ {
		from, _ := b.layout.Owner(uint64(reply.IDs[i-1]))
		if to, _ := b.layout.Owner(uint64(reply.IDs[i])); to != from {
			reply.Chain++
		}
	}
	return reply, nil
}

func (b *Backend) dependents(ctx context.Context, c *demo.Call) (*demo.Reply, error) {
	result, err := b.start(ctx, "dependents", b.everywhere(xrdma.DependentsArgs(xrdma.Backward, c.Starts)))
	if err != nil {
		return nil, err
	}
	counts := map[uint32]uint64{}
	rounds := uint32(0)
	for _, p := range result.Pieces {
		n, err := xrdma.AddDependents(counts, p.Data)
		if err != nil {
			return nil, err
		}
		rounds = max(rounds, n)
	}
	reply := &demo.Reply{Chain: callAndReply}
	if n := len(b.eps); n > 1 {
		_, steps := xrdma.Round(n)
		reply.Chain += int(rounds) * steps
	}
	for _, v := range c.Starts {
		if counts[v] == 0 {
			return nil, fmt.Errorf("%w: no count came back for vertex %d", demo.ErrBadData, v)
		}
		reply.Counts = append(reply.Counts, counts[v]-1) // it reaches itself
	}
	return reply, nil
}

// mostDirect asks every element for its best, and merges them.
func (b *Backend) mostDirect(ctx context.Context, c *demo.Call) (*demo.Reply, error) {
	var all []xrdma.Degree
	var err error
	switch {
	case c.Limit == 0:
		return &demo.Reply{Chain: callAndReply}, nil
	case c.Limit <= xrdma.MaxTopDegrees:
		all, err = b.topDegrees(ctx, uint32(c.Limit))
	default:
		all, err = b.degrees(ctx)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(x, y xrdma.Degree) int {
		return cmp.Or(cmp.Compare(y.Edges, x.Edges), cmp.Compare(x.Vertex, y.Vertex))
	})
	reply := &demo.Reply{Chain: callAndReply}
	for _, d := range all[:min(c.Limit, len(all))] {
		reply.IDs = append(reply.IDs, d.Vertex)
		reply.Counts = append(reply.Counts, uint64(d.Edges))
	}
	return reply, nil
}

func (b *Backend) topDegrees(ctx context.Context, k uint32) ([]xrdma.Degree, error) {
	result, err := b.start(ctx, "topdeg", b.everywhere(xrdma.TopArgs(k, xrdma.Backward)))
	if err != nil {
		return nil, err
	}
	var all []xrdma.Degree
	for _, p := range result.Pieces {
		if all, err = xrdma.AppendTop(all, p.Data); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// degrees fetches how many edges every vertex has.
func (b *Backend) degrees(ctx context.Context) ([]xrdma.Degree, error) {
	result, err := b.start(ctx, "degrees", b.everywhere(xrdma.DegreesArgs(xrdma.Backward)))
	if err != nil {
		return nil, err
	}
	var all []xrdma.Degree
	for _, p := range result.Pieces {
		if all, err = xrdma.AppendDegrees(all, p.Data); err != nil {
			return nil, err
		}
	}
	if uint64(len(all)) != b.layout.Vertices {
		return nil, fmt.Errorf("%w: %d numbers of edges came back for %d vertices", demo.ErrBadData, len(all), b.layout.Vertices)
	}
	return all, nil
}

func (b *Backend) inside(ctx context.Context, c *demo.Call) (*demo.Reply, error) {
	var set []uint32
	for v := range uint32(b.layout.Vertices) {
		if c.Set[v/64]>>(v%64)&1 != 0 {
			set = append(set, v)
		}
	}
	result, err := b.start(ctx, "inside", b.everywhere(xrdma.InsideArgs(xrdma.Forward, set)...))
	if err != nil {
		return nil, err
	}
	total := uint64(0)
	for _, p := range result.Pieces {
		n, err := xrdma.InsideResult(p.Data)
		if err != nil {
			return nil, err
		}
		total += n
	}
	return &demo.Reply{Counts: []uint64{total}, Chain: callAndReply}, nil
}

// chaseHops is how far one invocation goes: each hop may be one to another
// element, and those are bounded.
const chaseHops = travel.MaxHops - 1

// chase follows the table in as few invocations as possible.
func (b *Backend) chase(ctx context.Context, c *demo.Call) (*demo.Reply, error) {
	reply := &demo.Reply{}
	at, left := uint64(c.Starts[0]), c.Hops
	for {
		hops := min(left, chaseHops)
		e, _ := b.layout.Owner(at)
		result, err := b.start(ctx, "chase", []inject.Root{{Element: uint32(e), Payload: xrdma.ChaseArgs(at, hops)}})
		if err != nil {
			return nil, err
		}
		if len(result.Pieces) != 1 {
			return nil, fmt.Errorf("%w: a chase replied %d times", demo.ErrBadData, len(result.Pieces))
		}
		end, err := xrdma.ChaseResult(result.Pieces[0].Data)
		if err != nil {
			return nil, err
		}
		if end >= b.layout.Vertices {
			return nil, fmt.Errorf("%w: a chase ended at %d of %d", demo.ErrBadData, end, b.layout.Vertices)
		}
		reply.Chain += callAndReply + b.moves(at, hops)
		reply.Trips++
		at, left = end, left-hops
		if left == 0 {
			reply.Counts = []uint64{at}
			return reply, nil
		}
	}
}

// moves counts how often a chase moves on: it looks for its next row where it is, and
// goes where that lies if there is a hop left to take.
func (b *Backend) moves(at, hops uint64) int {
	n := 0
	here, _ := b.layout.Owner(at)
	for ; hops > 0 && b.next != nil; hops-- {
		if e, _ := b.layout.Owner(at); e != here {
			here = e
			n++
		}
		at = b.next[at]
	}
	return n
}
