package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/wherry-fabric/wherry/bench/peers/echo"
	"github.com/wherry-fabric/wherry/bench/peers/figures"
	"github.com/wherry-fabric/wherry/bench/peers/turn"
	"github.com/wherry-fabric/wherry/bench/peers/ucx"
	"github.com/wherry-fabric/wherry/fabric"
)

// maxFailures is after how many failed turns a row takes no more.
const maxFailures = 2

// goPolicy is how Go's libraries wait: nobody can choose.
const goPolicy = "sleep (Go netpoller)"

// entry is a row, and how it takes a turn; take is nil if it cannot.
type entry struct {
	row  *figures.Row
	take func(ctx context.Context) (figures.Sample, error)
}

// plan is who takes turns, in order: all peers at one work, then all at the next.
type plan struct {
	o       options
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
	runner := &turn.Runner{Command: command, CPUs: cpus, Policy: o.policy, Time: o.time}
	tool, missing := ucx.Find(ctx)
	if missing == nil {
		tool.CPUs, tool.Time, tool.Sleep = cpus, o.time, o.policy == fabric.Efficient
	}
	for _, work := range figures.Works() {
		for _, peer := range echo.All() {
			p.library(runner, f, peer, work)
		}
		p.ucx(tool, missing, cpus, f, work)
	}
	if len(p.entries) == 0 {
		return nil, errors.New("--peers, --works and --transports leave nobody")
	}
	return p, nil
}

// library adds the rows of a peer that is a library.
func (p *plan) library(r *turn.Runner, f filter, peer echo.Peer, work figures.Work) {
	policy := goPolicy
	if peer.Polls {
		policy = p.o.policy.String()
	}
	for _, transport := range peer.Transports {
		if !f.lets(peer.Name, transport, work) {
			continue
		}
		p.add(&figures.Row{Peer: peer.Name, Version: peer.Version(), Work: work, Transport: transport, Class: echo.Class(transport),
			Policy: policy, Pinning: r.CPUs.String()},
			func(ctx context.Context) (figures.Sample, error) { return r.Take(ctx, peer, transport, work) })
	}
}

// ucx adds the rows of ucx_perftest, also where it is missing.
func (p *plan) ucx(tool *ucx.Tool, missing error, cpus turn.CPUs, f filter, work figures.Work) {
	names := []string{ucx.Peer}
	if work == figures.Put {
		names = append(names, ucx.PeerAM)
	}
	for _, name := range names {
		for _, transport := range ucx.Transports() {
			if !f.lets(name, transport, work) {
				continue
			}
			row := &figures.Row{Peer: name, Work: work, Transport: transport, Class: echo.Class(transport), Pinning: cpus.String()}
			switch noTest := ucx.Offers(name, work); {
			case noTest != nil:
				row.Status, row.Reason = figures.NotOffered, noTest.Error()
				p.add(row, nil)
			case missing != nil:
				row.Status, row.Reason, row.Install = figures.NotInstalled, missing.Error(), ucx.Install
				p.add(row, nil)
			default:
				row.Version, row.Policy = tool.Version, tool.Policy(name, transport, work)
				if p.o.policy == fabric.Balanced {
					row.Policy = "poll (ucx has no balanced)"
				}
				p.add(row, func(ctx context.Context) (figures.Sample, error) { return tool.Take(ctx, name, transport, work) })
			}
		}
	}
}

func (p *plan) add(row *figures.Row, take func(context.Context) (figures.Sample, error)) {
	p.entries = append(p.entries, entry{row, take})
	p.table.Rows = append(p.table.Rows, row)
}

// run takes all turns of all rounds. Every other round goes backwards, so
// that nobody always follows the same neighbour. A row that fails says why; the others go on.
func (p *plan) run(ctx context.Context, progress io.Writer) (*figures.Table, error) {
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
