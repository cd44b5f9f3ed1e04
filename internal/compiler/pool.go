package compiler

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of a Config. What a compile may take is far above any function's of a few hundred lines (the papers' chase takes
// some 20 ms), and far below what would hold up everybody else.
const (
	DefaultProcesses    = 1
	DefaultDeadline     = 1200 * time.Millisecond
	DefaultMemoryBytes  = 512 << 20
	DefaultRequests     = 256
	DefaultPerPrincipal = 16
	DefaultInAll        = 64
)

// Config says how compilers run. Zero values stand for the defaults above.
type Config struct {
	Command   []string // program and arguments
	Processes int      // that compile at once; as many more may be idle, and one is a spare
	// Deadline is the processor time that one compile may take; on the clock it may be ten times that, for others have the processors too.
	Deadline     time.Duration
	MemoryBytes  uint64 // a process that holds more is replaced; one that asks for twice as much fails
	Requests     int    // a process is replaced after so many
	PerPrincipal int    // requests that wait, of one principal
	InAll        int    // of all
	NoSpare      bool   // no process waits for the one that is replaced: the next request waits for its start
}

func (c Config) withDefaults() Config {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&c.Processes, DefaultProcesses)
	set(&c.Requests, DefaultRequests)
	set(&c.PerPrincipal, DefaultPerPrincipal)
	set(&c.InAll, DefaultInAll)
	if c.Deadline <= 0 {
		c.Deadline = DefaultDeadline
	}
	if c.MemoryBytes == 0 {
		c.MemoryBytes = DefaultMemoryBytes
	}
	return c
}

// Job is one request and whom it is charged to.
type Job struct {
	Principal string
	Signer    string // who answers for the code
	Request   Request
}

// Pool runs compilers. Its methods may be called from any goroutine.
type Pool struct {
	config  Config
	ctx     context.Context // ends when the pool is closed
	stop    context.CancelFunc
	work    sync.WaitGroup
	started atomic.Uint64

	mu       sync.Mutex
	queue    *queue
	idle     []*process // the one used last comes last
	starting bool       // a spare is
}

// NewPool makes a pool. No process runs yet.
func NewPool(c Config) *Pool {
	c = c.withDefaults()
	p := &Pool{config: c, queue: newQueue(c.Processes, c.PerPrincipal, c.InAll)}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// Hello says what the compiler is, from one that it starts if none runs; the process then waits as the spare. The context's end ends the wait.
func (p *Pool) Hello(ctx context.Context) (Hello, error) {
	p.mu.Lock()
	if len(p.idle) > 0 {
		defer p.mu.Unlock()
		return p.idle[0].hello, nil
	}
	if p.ctx.Err() != nil {
		p.mu.Unlock()
		return Hello{}, ErrClosed
	}
	p.work.Add(1)
	defer p.work.Done()
	p.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(ErrClosed) })()
	c, err := p.start(ctx)
	if err != nil {
		return Hello{}, err
	}
	p.keep(c)
	return c.hello, nil
}

// Started is how many processes were started so far.
func (p *Pool) Started() uint64 { return p.started.Load() }

// Asked is how many requests are answered now, or wait for their turn.
func (p *Pool) Asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config.Processes - p.queue.free + p.queue.total
}

func (p *Pool) start(ctx context.Context) (*process, error) {
	p.started.Add(1)
	return start(ctx, p.config.Command, p.config.MemoryBytes)
}

// Compile has one request answered, when it is its turn. The context's end ends the compile too.
func (p *Pool) Compile(ctx context.Context, j Job) ([]byte, error) {
	p.mu.Lock()
	if p.ctx.Err() != nil {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	p.work.Add(1)
	defer p.work.Done()
	t, err := p.queue.enter(j.Principal)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(ErrClosed) })()
	select {
	case <-t.ready:
	case <-ctx.Done():
		p.mu.Lock()
		if !p.queue.abandon(t) {
			p.queue.leave(j.Principal, 0)
		}
		p.mu.Unlock()
		return nil, fmt.Errorf("while other functions are compiled: %w", context.Cause(ctx))
	}
	return p.serve(ctx, j)
}

// serve has a request answered by a process, whose turn it is.
func (p *Pool) serve(ctx context.Context, j Job) ([]byte, error) {
	var cost time.Duration
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.queue.leave(j.Principal, cost)
	}()
	c, err := p.take(ctx, j.Signer)
	if err != nil {
		return nil, err
	}
	before, begin := c.processorTime(), time.Now()
	a, err := c.ask(ctx, j.Request, p.config.Deadline)
	c.principal, c.charged = j.Principal, c.processorTime()
	if cost = c.charged - before; cost <= 0 { // the process is gone
		cost = time.Since(begin)
	}
	switch {
	case err != nil:
		c.end()
	case c.served >= p.config.Requests || c.residentBytes() > p.config.MemoryBytes:
		c.end()
	default:
		p.keep(c)
	}
	if !p.config.NoSpare {
		p.warm()
	}
	switch {
	case err != nil:
		return nil, err
	case a.Refused != "":
		return nil, &RefusedError{a.Refused}
	case a.Failed != "":
		return nil, fmt.Errorf("compiler: %s", a.Failed)
	}
	return a.Object, nil
}

// take gives a process that has seen this signer's code only, or none's.
func (p *Pool) take(ctx context.Context, signer string) (*process, error) {
	for {
		c := p.pick(signer)
		switch {
		case c == nil:
			var err error
			if c, err = p.start(ctx); err != nil {
				return nil, err
			}
		case !c.alive(): // it was killed while it was idle
			c.end()
			continue
		}
		c.signer = signer
		return c, nil
	}
}

// pick takes such a process out of those that are idle; nil: there is none.
func (p *Pool) pick(signer string) *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.idle, func(c *process) bool { return c.served > 0 && c.signer == signer })
	if i < 0 {
		i = slices.IndexFunc(p.idle, func(c *process) bool { return c.served == 0 })
	}
	if i < 0 {
		return nil
	}
	c := p.idle[i]
	p.idle = slices.Delete(p.idle, i, i+1)
	p.charge(c)
	return c
}

// How idle processes are looked at: an idle compiler needs a few milliseconds for its garbage. One that uses more is not idle; code has taken it over.
const (
	idleLook = time.Second
	idleTime = idleLook / 10 // of processor time, between two looks
)

// look ends an idle process that computes all the same, or grows, and charges what it has used to whom it compiled for last.
func (p *Pool) look(c *process) {
	p.mu.Lock()
	i := slices.Index(p.idle, c)
	if i < 0 || p.ctx.Err() != nil {
		p.mu.Unlock()
		return
	}
	if p.charge(c) < idleTime && c.residentBytes() <= p.config.MemoryBytes {
		c.next.Reset(idleLook)
		p.mu.Unlock()
		return
	}
	p.idle = slices.Delete(p.idle, i, i+1)
	p.work.Add(1)
	defer p.work.Done()
	p.mu.Unlock()
	c.kill()
	c.end()
}

// charge charges what a process has used since it became idle, or was looked at; mu is held.
func (p *Pool) charge(c *process) (used time.Duration) {
	now := c.processorTime()
	used = max(now-c.charged, 0)
	c.charged = max(now, c.charged)
	if c.served > 0 {
		p.queue.charge(c.principal, used)
	}
	return used
}

// keep puts a process aside for the next request. The one that has been idle longest goes, if there are too many.
func (p *Pool) keep(c *process) {
	p.mu.Lock()
	var old *process
	if p.ctx.Err() != nil {
		old = c
	} else {
		if c.served == 0 {
			c.charged = c.processorTime() // its start is charged to no principal
		}
		p.idle = append(p.idle, c)
		if c.next == nil {
			c.next = time.AfterFunc(idleLook, func() { p.look(c) })
		} else {
			c.next.Reset(idleLook)
		}
		if len(p.idle) > p.config.Processes+1 {
			old = p.idle[0]
			p.idle = slices.Delete(p.idle, 0, 1)
			p.charge(old)
		}
	}
	p.mu.Unlock()
	if old != nil {
		old.end()
	}
}

// warm starts a spare in the background if there is none: a process that has seen no code.
func (p *Pool) warm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.starting || p.ctx.Err() != nil || slices.ContainsFunc(p.idle, func(c *process) bool { return c.served == 0 }) {
		return
	}
	p.starting = true
	p.work.Go(func() {
		c, err := p.start(p.ctx)
		p.mu.Lock()
		p.starting = false
		p.mu.Unlock()
		if err == nil { // else the next request that needs one says why
			p.keep(c)
		}
	})
}

// Close ends every compile and every process, and waits for that.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.stop()
	p.mu.Unlock()
	p.work.Wait()
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	for _, c := range idle {
		c.next.Stop()
	}
	p.mu.Unlock()
	for _, c := range idle {
		c.end()
	}
	return nil
}
