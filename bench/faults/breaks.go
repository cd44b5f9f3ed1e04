package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/invoke"
)

// breaker makes faults, one after the other.
type breaker struct {
	nodes *nodes
	net   *network
	lib   *library
	r     *rand.Rand
	made  map[string]int
}

// A fault lasts as long as this, some shorter than peerTime and some longer.
const (
	leastFault = 100 * time.Millisecond
	mostFault  = 3 * time.Second
	mostCalm   = time.Second
)

// fault breaks something; mend makes it whole.
type fault struct {
	name string
	make func(b *breaker, ctx context.Context) (mend func() error, err error)
}

var faults = []fault{
	{"kill", (*breaker).kill}, {"stop", (*breaker).stop}, {"cut", (*breaker).cut}, {"apart", (*breaker).apart}, {"leave", (*breaker).leave},
	{"kill two", (*breaker).killTwo}, {"delay", (*breaker).delay}, {"restart", (*breaker).restart}, {"replace", (*breaker).replace},
}

// wait waits for a while, but for the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (b *breaker) between(least, most time.Duration) time.Duration {
	return least + time.Duration(b.r.Int64N(int64(most-least)))
}

// nothing is what there is to mend after some faults.
func nothing() error { return nil }

// kill kills a node and starts it again.
func (b *breaker) kill(ctx context.Context) (func() error, error) {
	i := b.r.IntN(len(names))
	return func() error { return b.nodes.start(i) }, b.nodes.end(i, syscall.SIGKILL)
}

func (b *breaker) killTwo(ctx context.Context) (func() error, error) {
	i := b.r.IntN(len(names))
	j := (i + 1 + b.r.IntN(len(names)-1)) % len(names)
	err := errors.Join(b.nodes.end(i, syscall.SIGKILL), b.nodes.end(j, syscall.SIGKILL))
	return func() error { return errors.Join(b.nodes.start(i), b.nodes.start(j)) }, err
}

// restart ends a node in order.
func (b *breaker) restart(ctx context.Context) (func() error, error) {
	i := b.r.IntN(len(names))
	return func() error { return b.nodes.start(i) }, b.nodes.end(i, syscall.SIGTERM)
}

// stop stops a node, which is silent then, and keeps what it was doing.
func (b *breaker) stop(ctx context.Context) (func() error, error) {
	p := b.nodes.running[b.r.IntN(len(names))].cmd.Process
	return func() error { return p.Signal(syscall.SIGCONT) }, p.Signal(syscall.SIGSTOP)
}

// cut parts one or two nodes from the others and from the client.
func (b *breaker) cut(ctx context.Context) (func() error, error) {
	away := b.r.Perm(len(names))[:1+b.r.IntN(2)]
	return func() error { return b.net.join(ctx, away...) }, b.net.cut(ctx, away...)
}

// apart parts two nodes from each other; the client sees both.
func (b *breaker) apart(ctx context.Context) (func() error, error) {
	two := b.r.Perm(len(names))[:2]
	return func() error { return b.net.together(ctx, two...) }, b.net.apart(ctx, two...)
}

// delay delays and loses packets of a node; not all kernels can.
func (b *breaker) delay(ctx context.Context) (func() error, error) {
	at := fmt.Sprintf("dev p%d root", b.r.IntN(len(names)))
	return func() error { return tc(ctx, "qdisc del "+at) }, tc(ctx, "qdisc add "+at+" netem delay 20ms 10ms loss 2%")
}

// replace puts other data in place of what there is, while calls go on.
func (b *breaker) replace(ctx context.Context) (func() error, error) {
	c, err := b.nodes.connect(ctx)
	if err != nil {
		return nothing, err
	}
	defer c.Close()
	return nothing, b.lib.load(ctx, c, names)
}

// leavers is how many calls a program has under way when it ends.
const leavers = 8

// tableSoon is the chain's table; while peers are lost and found there is none for a moment.
func tableSoon(ctx context.Context, c *client.Client) (t *cluster.Table, err error) {
	err = again(ctx, func() error {
		t, err = c.Table(ctx, chain, "r")
		return err
	})
	return t, err
}

// again does something that fails while peers are lost, as on a busy machine they are for no other reason, until patience has gone.
func again(ctx context.Context, do func() error) error {
	for end := time.Now().Add(patience); ; wait(ctx, 100*time.Millisecond) {
		if err := do(); err == nil || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
	}
}

// leave has a program end in the middle of its calls.
func (b *breaker) leave(ctx context.Context) (func() error, error) {
	c, err := b.nodes.connect(ctx)
	if err != nil {
		return nothing, err
	}
	defer c.Close()
	table, err := tableSoon(ctx, c)
	if err != nil {
		return nothing, err
	}
	img, err := xrdma.Lookup("chase")
	if err != nil {
		return nothing, err
	}
	for i := range leavers {
		started, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = invoke.Run(ctx, c.Runtime(), invoke.Request{Image: img, Table: table, Args: map[string]string{"start": fmt.Sprint(i), "depth": fmt.Sprint(uint64(1) << 40)},
				Options: inject.Options{Hops: travel.MaxHops}, Started: func(*inject.Future) { close(started) }})
		}()
		select {
		case <-started:
		case <-ended: // a peer is lost where the machine stands still for long: so one call less is left
		case <-time.After(startTime):
			return nothing, errors.New("a chase did not begin")
		}
	}
	wait(ctx, b.between(0, 200*time.Millisecond))
	return nothing, nil
}

// once makes one fault, mends it, and waits until all is whole. It is shorter when asking ends, and no less complete.
func (b *breaker) once(ctx, asking context.Context, a *caller, f fault) error {
	mend, err := f.make(b, ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	b.made[strings.ReplaceAll(f.name, " ", "_")]++
	wait(asking, b.between(leastFault, mostFault))
	if err := mend(); err != nil {
		return fmt.Errorf("after %s: %w", f.name, err)
	}
	ctx = context.WithoutCancel(ctx) // each wait below has its bound
	if err := b.nodes.whole(ctx, a.c); err != nil {
		return fmt.Errorf("after %s: %w", f.name, err)
	}
	if strings.HasPrefix(f.name, "kill") || f.name == "restart" {
		if err := b.lib.load(ctx, a.c, names); err != nil {
			return fmt.Errorf("after %s: %w", f.name, err)
		}
	}
	return nil
}
