package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/wherry-fabric/wherry/bench/peers/echo"
	"github.com/wherry-fabric/wherry/bench/peers/figures"
	"github.com/wherry-fabric/wherry/bench/peers/turn"
	"github.com/wherry-fabric/wherry/bench/peers/ucx"
	"github.com/wherry-fabric/wherry/fabric"
)

// maxFailures is after how many failed turns a row takes no more.
const maxFailures = 2

// goPolicy is how Go's libraries wait: they offer no choice.
const goPolicy = "sleep (Go netpoller)"

// entry is a row, and how it takes a turn; take is nil if it cannot.
type entry struct {
	row  *figures.Row
	take func(ctx context.Context) (figures.Sample, error)
}

// plan lists the turns in order: all peers at one work, then all at the next.
type plan struct {
	o       options
	runner  turn.Runner
	entries []entry
	table   *figures.Table
}

// filter is what the command line leaves of the peers.
type filter struct{ peers, works, transports *regexp.Regexp }

func (f filter) lets(peer, transport string, work figures.Work) bool {
	return f.peers.MatchString(peer) && f.transports.MatchString(transport) && f.works.MatchString(string(work))
}

func newFilter(o options) (f filter, err error) {
	for _, e := range []struct {
		flag, text string
		to         **regexp.Regexp
	}{{"peers", o.peers, &f.peers}, {"works", o.works, &f.works}, {"transports", o.transports, &f.transports}} {
		if *e.to, err = regexp.Compile(e.text); err != nil {
			return f, fmt.Errorf("--%s: %w", e.flag, err)
		}
	}
	return f, nil
}

func newPlan(ctx context.Context, o options, command []string) (*plan, error) {
	f, err := newFilter(o)
	if err != nil {
		return nil, err
	}
	cpus, err := turn.Pinned(o.pin)
	if err != nil {
		return nil, err
	}
	p := &plan{o: o, table: &figures.Table{Machine: figures.ThisMachine(), TurnMs: float64(o.time.Microseconds()) / 1e3}}
	p.runner = turn.Runner{Command: command, CPUs: cpus, Time: o.time}
	installs := []ucx.Install{ucx.Debian(), ucx.PyPI(o.ucx)}
	tools := make([]*ucx.Tool, len(installs))
	missing := make([]error, len(installs))
	for i, in := range installs {
		if tools[i], missing[i] = ucx.Find(ctx, in); missing[i] == nil {
			tools[i].CPUs, tools[i].Time = cpus, o.time
		}
	}
	for _, work := range figures.Works() {
		for _, peer := range echo.All() {
			p.library(f, peer, work)
		}
		for i, in := range installs {
			p.ucx(in, tools[i], missing[i], f, work)
		}
	}
	if len(p.entries) == 0 {
		return nil, errors.New("--peers, --works and --transports leave nobody")
	}
	return p, nil
}

// library adds the rows of a peer that is a library: for each policy, if it has a choice.
func (p *plan) library(f filter, peer echo.Peer, work figures.Work) {
	if !peer.Offers(work) {
		return
	}
	policies := p.o.policiesOf(work)
	if !peer.Polls {
		policies = policies[:1]
	}
	for _, transport := range peer.Transports {
		if !f.lets(peer.Name, transport, work) {
			continue
		}
		for _, policy := range policies {
			r, shown := p.runner, goPolicy
			if r.Policy = policy; peer.Polls {
				shown = policy.String()
			}
			p.add(&figures.Row{Peer: peer.Name, Version: peer.Version(), Work: work, Transport: transport, Class: echo.Class(transport),
				Policy: shown, Pinning: r.CPUs.String()},
				func(ctx context.Context) (figures.Sample, error) { return r.Take(ctx, peer, transport, work) })
		}
	}
}

// ucx adds the rows of an installation's ucx_perftest, also where it is missing.
func (p *plan) ucx(in ucx.Install, tool *ucx.Tool, missing error, f filter, work figures.Work) {
	kinds := []string{ucx.Peer}
	if work == figures.Put {
		kinds = append(kinds, ucx.PeerAM)
	}
	for _, kind := range kinds {
		noTest := ucx.Offers(kind, work)
		if noTest != nil && work.Ordinary() { // it has no calls
			continue
		}
		for _, transport := range ucx.Transports() {
			name := in.Name(kind)
			if !f.lets(name, transport, work) {
				continue
			}
			row := figures.Row{Peer: name, Work: work, Transport: transport, Class: echo.Class(transport), Pinning: p.runner.CPUs.String()}
			switch {
			case noTest != nil:
				row.Status, row.Reason = figures.NotOffered, noTest.Error()
				p.add(&row, nil)
			case missing != nil:
				row.Status, row.Reason, row.Install = figures.NotInstalled, missing.Error(), in.How
				p.add(&row, nil)
			default:
				p.ucxTurns(row, tool, kind)
			}
		}
	}
}

// ucxTurns adds a row that takes turns: one that polls, and one that sleeps, as the policies want it.
func (p *plan) ucxTurns(row figures.Row, tool *ucx.Tool, kind string) {
	policies := p.o.policiesOf(row.Work)
	polls := slices.ContainsFunc(policies, func(p fabric.Policy) bool { return p != fabric.Efficient })
	for _, sleep := range []bool{false, true} {
		if sleep && !slices.Contains(policies, fabric.Efficient) || !sleep && !polls {
			continue
		}
		row, t := row, tool.Sleeping(sleep)
		row.Version, row.Policy = t.Version, t.Policy(kind, row.Transport, row.Work)
		if !sleep && !slices.Contains(policies, fabric.Latency) {
			row.Policy = "poll (ucx has no balanced)"
		}
		p.add(&row, func(ctx context.Context) (figures.Sample, error) { return t.Take(ctx, kind, row.Transport, row.Work) })
	}
}

func (p *plan) add(row *figures.Row, take func(context.Context) (figures.Sample, error)) {
	p.entries = append(p.entries, entry{row, take})
	p.table.Rows = append(p.table.Rows, row)
}

// run takes all turns of all rounds. Every other round goes backwards, so
// that no peer always follows the same neighbour. A row that fails says why; the others go on.
func (p *plan) run(ctx context.Context, progress io.Writer) (*figures.Table, error) {
	if p.o.besideLoad {
		loops, err := p.runner.StartLoops(ctx)
		if err != nil {
			return nil, err
		}
		defer loops.End()
		p.table.BusyLoops = len(loops)
	}
	say := newSayer(progress)
	defer say.end()
	for round := range p.o.rounds {
		say.round(round+1, p.o.rounds)
		for i := range p.entries {
			e := p.entries[i]
			if round%2 == 1 {
				e = p.entries[len(p.entries)-1-i]
			}
			if e.take == nil || e.row.Errors >= maxFailures {
				continue
			}
			say.turn(i+1, len(p.entries), e.row)
			s, err := e.take(ctx)
			switch {
			case ctx.Err() != nil:
				return nil, fmt.Errorf("interrupted: %w", context.Cause(ctx))
			case err != nil:
				e.row.Fail(err)
				say.failed(e.row, err)
			default:
				e.row.Add(round, s)
			}
		}
	}
	return p.table, nil
}
