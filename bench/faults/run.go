package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
)

// Config says what to do.
type Config struct {
	Command  []string // that runs wherry
	Calls    int      // in all
	Seed     uint64   // of faults and calls; their order in time is the machine's
	Progress func(text string, done float64)
}

// MaxCalls bounds a run: about a day.
const MaxCalls = 1_000_000

const (
	callers = 32
	// pace is the mean time between two calls: faults come between any number of them.
	pace = 30 * time.Millisecond
	// shown is how many examples are kept of each verdict.
	shown = 10
	// moreDescriptors is what a node may have beyond what it had at the beginning: of connections that it has twice for a moment, say.
	moreDescriptors = 8
)

// Result is what came of it.
type Result struct {
	Calls    int            `json:"calls"`
	Right    int            `json:"right"`  // answers
	Failed   int            `json:"failed"` // calls that ended with an error
	Wrong    int            `json:"wrong"`
	Late     int            `json:"late"`
	Nameless int            `json:"nameless"`
	Leftover int            `json:"leftover"`
	LateMs   float64        `json:"late_ms_max"`
	Faults   map[string]int `json:"faults"`
	ByKind   map[string]int `json:"right_by_kind"`
	Seed     uint64         `json:"seed"`
	Netem    bool           `json:"netem"` // packets were delayed and lost, too
	Seconds  float64        `json:"seconds"`
	Examples []string       `json:"examples,omitempty"`
	Errors   map[string]int `json:"errors,omitempty"` // how often errors began so
}

// Bad is what must be 0.
func (r *Result) Bad() int { return r.Wrong + r.Late + r.Nameless + r.Leftover }

// soak is one run.
type soak struct {
	Config
	nodes *nodes
	c     *client.Client
	mu    sync.Mutex
	res   Result
	fds   int // that a node had at the beginning, at most
}

// Run asks calls of a cluster while it breaks. The process must be one that Enter started.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	dir, err := os.MkdirTemp("", "wherry-faults-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	net, err := newNetwork(ctx, len(names))
	if err != nil {
		return nil, err
	}
	s := &soak{Config: cfg, res: Result{Seed: cfg.Seed, Netem: net.netem, Faults: map[string]int{}, ByKind: map[string]int{}, Errors: map[string]int{}}}
	if s.nodes, err = newNodes(ctx, cfg.Command, dir); s.nodes != nil {
		defer s.nodes.close()
	}
	if err != nil {
		return nil, err
	}
	if s.c, err = s.nodes.connect(ctx); err != nil {
		return nil, err
	}
	defer s.c.Close()
	from := time.Now()
	if err := s.all(ctx, net); err != nil {
		return nil, fmt.Errorf("seed %d: %w", cfg.Seed, err)
	}
	s.res.Seconds = time.Since(from).Seconds()
	return &s.res, nil
}

// all makes the calls and the faults, and looks at what is left.
func (s *soak) all(ctx context.Context, net *network) error {
	lib := newLibrary(s.Seed)
	clk := &clock{}
	watched, end := context.WithCancel(ctx)
	defer end()
	go clk.watch(watched)
	caller := func(i int) *caller {
		return newCaller(s.c, lib, rand.New(rand.NewPCG(s.Seed, uint64(i))), clk)
	}
	first := caller(0)
	if err := errors.Join(s.nodes.whole(ctx, s.c), lib.load(ctx, s.c, names)); err != nil {
		return err
	}
	if err := s.begin(ctx, first); err != nil {
		return err
	}
	feed := make(chan string)
	var busy sync.WaitGroup
	for i := range callers {
		busy.Go(func() {
			c := caller(i + 1)
			for kind := range feed {
				s.count(c.call(context.WithoutCancel(ctx), kind))
			}
		})
	}
	asking, asked := context.WithCancel(ctx)
	go func() {
		defer asked()
		defer close(feed)
		r := rand.New(rand.NewPCG(s.Seed, 1<<32))
		for i := range s.Calls {
			wait(asking, time.Duration(r.ExpFloat64()*float64(pace)))
			if asking.Err() != nil {
				return
			}
			feed <- kinds[i%len(kinds)]
		}
	}()
	b := &breaker{nodes: s.nodes, net: net, lib: lib, r: rand.New(rand.NewPCG(s.Seed, 1<<33)), made: s.res.Faults}
	err := s.breakAll(ctx, asking, b, first)
	if err != nil {
		asked()
		for range feed { // the rest
		}
	}
	busy.Wait()
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	return s.left(ctx)
}

// breakAll makes faults of all kinds, each as often as any other, until all calls have begun, when asking ends. A fault that is under way then is
// no failure: it is made, and mended, by ctx.
func (s *soak) breakAll(ctx, asking context.Context, b *breaker, first *caller) error {
	for asking.Err() == nil {
		for _, i := range b.r.Perm(len(faults)) {
			if asking.Err() != nil {
				return nil
			}
			if faults[i].name == "delay" && !b.net.netem {
				continue
			}
			s.say()
			if err := b.once(ctx, asking, first, faults[i]); err != nil {
				return err
			}
			wait(asking, b.between(0, mostCalm))
		}
	}
	return nil
}

func (s *soak) say() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Progress != nil {
		r := &s.res
		s.Progress(fmt.Sprintf("%d right, %d errors, %d wrong, %d late, %d nameless", r.Right, r.Failed, r.Wrong, r.Late, r.Nameless), float64(r.Calls)/float64(s.Calls))
	}
}

// begin sees that each kind of call works, and what a node has then.
func (s *soak) begin(ctx context.Context, first *caller) error {
	for _, kind := range kinds {
		var last outcome
		for end := time.Now().Add(patience); ; {
			if last = first.callFor(ctx, kind, patience); last.err == nil { // time to compile, on any machine
				break
			}
			if time.Now().After(end) || ctx.Err() != nil {
				return fmt.Errorf("before any fault: %s: %w", kind, last.err)
			}
		}
	}
	for i := range names {
		n, err := s.nodes.descriptors(i)
		if err != nil {
			return err
		}
		s.fds = max(s.fds, n)
	}
	return nil
}

// count judges the end of a call.
func (s *soak) count(o outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.res
	r.Calls++
	ms := float64(o.late) / float64(time.Millisecond)
	r.LateMs = max(r.LateMs, ms)
	if o.late > LateAfter {
		r.Late++
		s.example(r.Late, "late", fmt.Sprintf("%s of %v, %.0f ms after it: %v", o.kind, o.allows, ms, o.err))
	}
	var wrong *wrongError
	switch {
	case o.err == nil:
		r.Right++
		r.ByKind[o.kind]++
		return
	case errors.As(o.err, &wrong):
		r.Wrong++
		s.example(r.Wrong, "wrong", o.kind+": "+o.err.Error())
		return
	case !named(o.err):
		r.Nameless++
		s.example(r.Nameless, "nameless", fmt.Sprintf("%s of %v: %v", o.kind, o.allows, o.err))
	}
	r.Failed++
	r.Errors[o.kind+": "+beginning(o.err)]++
}

func (s *soak) example(n int, verdict, text string) {
	if n <= shown {
		s.res.Examples = append(s.res.Examples, verdict+": "+text)
	}
}

// beginning is an error's kind, for people: its words without numbers.
func beginning(err error) string {
	text := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, err.Error())
	for _, name := range names {
		text = strings.ReplaceAll(text, name, "NODE")
	}
	return text[:min(len(text), 70)]
}

// left waits until nodes have nothing left, and counts what they have after patience.
func (s *soak) left(ctx context.Context) error {
	if err := s.nodes.whole(ctx, s.c); err != nil {
		return err
	}
	for _, name := range []string{chain, web, sales} {
		if err := s.remove(ctx, name); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	var all []string
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		all = nil
		for i, name := range names {
			st, err := s.status(ctx, name)
			if err != nil {
				return err
			}
			n, err := s.nodes.descriptors(i)
			if err != nil {
				return err
			}
			all = append(all, leftAt(st, n-s.fds)...)
		}
		if n := s.c.Runtime().Stats().Sizes.Futures; n > 0 {
			all = append(all, fmt.Sprintf("the client: %d futures", n))
		}
		if len(all) == 0 || time.Now().After(end) || ctx.Err() != nil {
			break
		}
	}
	s.res.Leftover = len(all)
	for i, text := range all {
		s.example(i+1, "leftover", text)
	}
	return ctx.Err()
}

// remove removes a dataset. What is not there any more has been removed: the answer to that was lost.
func (s *soak) remove(ctx context.Context, name string) error {
	return again(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, loadTime)
		defer cancel()
		err := s.c.Remove(ctx, name)
		if errors.Is(err, cluster.ErrNotFound) {
			return nil
		}
		return err
	})
}

// status asks a node for its status.
func (s *soak) status(ctx context.Context, name string) (st *control.Status, err error) {
	err = again(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, loadTime)
		defer cancel()
		st, err = s.c.Status(ctx, name)
		return err
	})
	return st, err
}

// leftAt is what a node still has.
func leftAt(s *control.Status, descriptors int) (all []string) {
	q := &s.Queues
	own := int64(1) // the call that asks
	for _, f := range []struct {
		what string
		n    int64
	}{
		{"running", int64(q.Running)}, {"queued", int64(q.Queued)}, {"held", int64(q.Held)}, {"held bytes", int64(q.HeldBytes)}, {"invocations", int64(q.Invocations)},
		{"records", int64(q.Records)}, {"futures", int64(q.Futures)}, {"tombstones", int64(q.Tombstones)}, {"fetches", int64(q.Fetches)}, {"fetch bytes", int64(q.FetchBytes)},
		{"reports", int64(q.Reports)}, {"outbox bytes", int64(q.OutboxBytes)}, {"calls", s.Calls.Active - own}, {"answers held", s.Calls.Held}, {"answers' bytes", s.Calls.HeldBytes},
		{"loads", int64(s.Memory.Loads)}, {"datasets", int64(s.Memory.Datasets)}, {"lent bytes", s.Memory.LentBytes}, {"lost shards", int64(s.ShardsLost)},
		{"descriptors more", int64(descriptors - moreDescriptors)}, {"endpoints more", int64(len(s.Endpoints) + s.EndpointsLeft - 2*len(names))},
	} {
		if f.n > 0 {
			all = append(all, fmt.Sprintf("%s: %d %s", s.Name, f.n, f.what))
		}
	}
	for _, e := range s.Endpoints {
		if e.OutboxBytes > 0 || e.ReservedBytes > 0 {
			all = append(all, fmt.Sprintf("%s: %d and %d bytes wait for %s", s.Name, e.OutboxBytes, e.ReservedBytes, e.Peer))
		}
	}
	return all
}
