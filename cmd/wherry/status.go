package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/node"
)

// statusFlags are those of node status.
type statusFlags struct {
	node  string
	watch bool
	every time.Duration
}

// nodeTime bounds how long one node may take, or may take to be connected to.
const nodeTime = 10 * time.Second

// shortestWatch bounds how often nodes are asked.
const shortestWatch = 100 * time.Millisecond

func (a *app) nodeStatusCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status [NODE]",
		Short: "Show the state of running nodes",
		Long: `Ask running nodes for their state: how much of their memory is lent, their
connections (the peer, what was sent, what waits, how much credit is left),
transports, queues of travelling functions, the functions in their code cache,
and how full the cache is.

Without NODE all nodes are asked. You need the capability read; only an admin
sees the connections of other clients. A node that does not answer is named, and
the exit code says so (docs/cli.md).`,
		Example: `  wherry node status --peers tcp://127.0.0.1:7000 --token ann
  wherry node status n1 --watch
  wherry node status --json | jq '.nodes[].queues.running'
  wherry node status --node n1 --json --watch --every 10s >> n1.ndjson`,
		Args: cobra.MaximumNArgs(1),

		ValidArgsFunction: a.completing(completeNodes, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if f.node != "" && f.node != args[0] {
					return usagef("two nodes are named, %s and %s: name one, or none to ask all", args[0], f.node)
				}
				f.node = args[0]
			}
			if f.every < shortestWatch {
				return usagef("--every %v: at least %v", f.every, shortestWatch)
			}
			return a.nodeStatus(cmd, &f)
		},
	}
	p := cmd.Flags()
	p.Var((*onceValue)(&f.node), "node", "the node to ask, like the argument")
	p.BoolVarP(&f.watch, "watch", "w", false, "ask again and again, until Ctrl-C; --timeout then bounds each round")
	p.DurationVar(&f.every, "every", 2*time.Second, fmt.Sprintf("with --watch: how often, at least %v", shortestWatch))
	a.client.add(cmd)
	return cmd
}

// nodeAnswer is one node's status, or why there is none.
type nodeAnswer struct {
	Name            string `json:"name"`
	*control.Status        // its Name is hidden by the one above, which is the same
	Error           string `json:"error,omitempty"`
	err             error
}

// nodeAnswers is the command's answer.
type nodeAnswers struct {
	Nodes []nodeAnswer `json:"nodes"`
}

func (a *app) nodeStatus(cmd *cobra.Command, f *statusFlags) error {
	ctx, cancel := a.context(cmd)
	defer cancel()
	a.client.node = f.node
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if !f.watch {
		answers := askStatus(ctx, c, f.node)
		if err := a.printStatus(answers); err != nil {
			return err
		}
		return answers.err()
	}
	for {
		round, end := context.WithTimeout(cmd.Context(), a.timeout)
		answers := askStatus(round, c, f.node)
		end()
		if cmd.Context().Err() != nil {
			return nil // Ctrl-C is how it ends
		}
		if !a.json {
			fmt.Fprint(a.out, watchHead(isTerminal(a.out), time.Now()))
		}
		if err := a.printStatus(answers); err != nil {
			return err
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(f.every):
		}
	}
}

// watchHead separates rounds: a person's screen is cleared.
func watchHead(screen bool, now time.Time) string {
	head := now.Format("15:04:05") + "\n"
	if screen {
		return "\x1b[H\x1b[2J\x1b[3J" + head
	}
	return head
}

// askStatus asks one node, or all that are known, at once.
func askStatus(ctx context.Context, c *client.Client, name string) *nodeAnswers {
	out := &nodeAnswers{Nodes: []nodeAnswer{}}
	for _, s := range c.Nodes() {
		if name != "" {
			continue
		}
		n := nodeAnswer{Name: s.Member.Name}
		if s.Endpoint == nil { // no waiting for it: the others are of interest now
			n.err = fmt.Errorf("node %s: %w: %w", n.Name, control.ErrNotConnected, s.Err)
			n.Error = n.err.Error()
		}
		out.Nodes = append(out.Nodes, n)
	}
	if name != "" {
		out.Nodes = append(out.Nodes, nodeAnswer{Name: name})
	}
	var wg sync.WaitGroup
	for i := range out.Nodes {
		n := &out.Nodes[i]
		if n.err != nil {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, nodeTime)
			defer cancel()
			if n.Status, n.err = c.Status(ctx, n.Name); n.err != nil {
				n.Status, n.Error = nil, n.err.Error()
			}
		})
	}
	wg.Wait()
	return out
}

// err is what went wrong, if anything did.
func (n *nodeAnswers) err() error {
	var errs []error
	for i := range n.Nodes {
		if n.Nodes[i].err != nil {
			errs = append(errs, n.Nodes[i].err)
		}
	}
	return errors.Join(errs...)
}

func (a *app) printStatus(answers *nodeAnswers) error {
	return a.print(answers, func(w io.Writer) {
		for i := range answers.Nodes {
			if i > 0 {
				fmt.Fprintln(w)
			}
			if n := &answers.Nodes[i]; n.Status != nil {
				writeStatus(w, n.Status)
			} else {
				fmt.Fprintf(w, "node %s: no answer: %s\n", n.Name, n.Error)
			}
		}
	})
}

// writeStatus shows one node's status to people.
func writeStatus(w io.Writer, s *control.Status) {
	state := ""
	if s.Stopping {
		state = ", stopping"
	}
	fmt.Fprintf(w, "node %s (%v), up %v%s, runs %s\n", s.Name, s.Incarnation, age(s.UptimeMs), state, orNone(strings.Join(s.Forms, ", ")))
	for _, t := range s.Transports {
		fmt.Fprintf(w, "  %s: %d endpoints, listens at %s\n", t.Scheme, t.Endpoints, orNone(strings.Join(t.Listening, ", ")))
	}
	if m := s.Memory; m.LimitBytes > 0 { // an older node does not say
		fmt.Fprintf(w, "  memory: %v lent of %v, %d %s, %d %s under way\n", node.Bytes(m.LentBytes), node.Bytes(m.LimitBytes),
			m.Datasets, plural(m.Datasets, "dataset"), m.Loads, plural(m.Loads, "load"))
		if m.PoolLimitBytes > 0 {
			fmt.Fprintf(w, "  pool: %v of %v in regions\n", node.Bytes(m.PoolBytes), node.Bytes(m.PoolLimitBytes))
		}
	}
	if !s.CertUntil.IsZero() {
		fmt.Fprintf(w, "  certificate: %s\n", certText(s.CertUntil, time.Now()))
	}
	for _, e := range s.Engines {
		if e.Why != "" {
			fmt.Fprintf(w, "  runs no %s: %s\n", abi.Offer{Form: e.Form, Triple: e.Triple}, e.Why)
		}
	}
	writePeers(w, s, time.Now())
	writeEndpoints(w, s)
	q := s.Queues
	fmt.Fprintf(w, "  functions: %d running, %d queued, %d held (%v), %d invocations, %d records, %d futures, %d tombstones\n",
		q.Running, q.Queued, q.Held, node.Bytes(q.HeldBytes), q.Invocations, q.Records, q.Futures, q.Tombstones)
	fmt.Fprintf(w, "             %d runs, %d forwards, %d forks, %d refused so far\n", q.Runs, q.Forwards, q.Forks, q.Refused)
	fmt.Fprintf(w, "  calls: %d active, %d answers held (%v), %d served (%d with an error), %d refused, %d made (%d with an error)\n",
		s.Calls.Active, s.Calls.Held, node.Bytes(s.Calls.HeldBytes), s.Calls.Served, s.Calls.ServedErrors, s.Calls.Refused, s.Calls.Made, s.Calls.MadeErrors)
	writeFunctions(w, s)
	writeCache(w, "memory", &s.CodeCache.Memory)
	if s.CodeCache.Disk != nil {
		writeCache(w, "disk", s.CodeCache.Disk)
	}
	fmt.Fprintf(w, "  code: %d compiled, %d instances\n", s.CodeCache.Compiled, s.CodeCache.Instances)
}

// certText says when a certificate ends, and what to do about it.
func certText(until, now time.Time) string {
	text := "until " + until.UTC().Format("2006-01-02 15:04 MST")
	switch left := until.Sub(now); {
	case left < 0:
		text += ": EXPIRED, renew it"
	case left <= soon:
		text += ": renew it"
	}
	return text
}

// writePeers shows the other nodes, and what went with them.
func writePeers(w io.Writer, s *control.Status, now time.Time) {
	for i := range s.Peers {
		p := &s.Peers[i]
		state := "connected"
		if !p.Connected {
			state = "NOT CONNECTED"
		}
		if !p.Since.IsZero() {
			state += fmt.Sprintf(" for %v", age(now.Sub(p.Since).Milliseconds()))
		}
		if p.Losses > 0 {
			state += fmt.Sprintf(", lost %d %s", p.Losses, plural(int(p.Losses), "time"))
		}
		if !p.Configured {
			state += ", not among this node's peers"
		}
		if p.Error != "" {
			state += ": " + p.Error
		}
		fmt.Fprintf(w, "  peer %s: %s\n", p.Name, state)
	}
	for _, l := range s.LostShards {
		fmt.Fprintf(w, "  LOST: the shard of %s (version %d) at %s, which came back without it: remove the dataset, or load it again with --replace\n", l.Dataset, l.Version, l.Element)
	}
	if left := s.ShardsLost - len(s.LostShards); left > 0 {
		fmt.Fprintf(w, "  LOST: %d more %s, of datasets that you may not use\n", left, plural(left, "shard"))
	}
}

func writeEndpoints(w io.Writer, s *control.Status) {
	if len(s.Endpoints) > 0 {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "  PEER\tPRINCIPAL\tOVER\tMEMORY\tFRAMES\tBYTES\tOUTBOX\tRESERVED\tCREDIT")
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			memory, self := "by messages", ""
			if e.Shared {
				memory = fmt.Sprintf("mapped (%d here, %d there)", e.Mapped, e.Exported)
			}
			if e.Asker {
				self = " (this one)"
			}
			fmt.Fprintf(t, "  %s%s\t%s\t%s\t%s\t%d\t%v\t%v\t%v\t%v of %v\n", orNone(e.Peer), self, orNone(e.Principal), e.Transport, memory, e.SentFrames,
				node.Bytes(e.SentBytes), node.Bytes(e.OutboxBytes), node.Bytes(e.ReservedBytes), node.Bytes(e.Credit), node.Bytes(e.Window))
		}
		t.Flush()
	}
	if s.EndpointsLeft > 0 {
		fmt.Fprintf(w, "  and %d more endpoints (an admin sees those of other clients)\n", s.EndpointsLeft)
	}
}

func writeFunctions(w io.Writer, s *control.Status) {
	if len(s.Functions) > 0 {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "  FUNCTION\tID\tFORMS\tSIZE\tRUNS\tERRORS\tRAN AS\tLAST RUN")
		for i := range s.Functions {
			f := &s.Functions[i]
			last := "never"
			if f.IdleMs >= 0 {
				last = age(f.IdleMs).String() + " ago"
			}
			fmt.Fprintf(t, "  %s\t%.16s\t%s\t%v\t%d\t%d\t%s\t%s\n", f.Name, f.ID, strings.Join(f.Forms, ","), node.Bytes(f.Bytes), f.Runs, f.Errors, ranText(f.Ran), last)
		}
		t.Flush()
		writeLesser(w, s.Functions)
	}
	if s.FunctionsLeft > 0 {
		fmt.Fprintf(w, "  and %d more functions\n", s.FunctionsLeft)
	}
}

// writeLesser says of which functions no better code could be made.
func writeLesser(w io.Writer, functions []control.FunctionStatus) {
	for i := range functions {
		for _, r := range functions[i].Ran {
			if r.Why != "" {
				fmt.Fprintf(w, "  %s %.16s as %s: %s\n", functions[i].Name, functions[i].ID, r.Form, r.Why)
			}
		}
	}
}

// ranText is how a function's runs went, by form.
func ranText(ran []control.RanStatus) string {
	var all []string
	for _, r := range ran {
		mean := fmt.Sprintf("%.0fµs", r.MeanUs)
		if r.MeanUs < 1 {
			mean = "<100µs" // a slice of a run's time is the least that is counted
		}
		form := r.Form
		if r.Tier != "" {
			form += " (" + r.Tier + ")"
		}
		all = append(all, fmt.Sprintf("%s %d× %s %v", form, r.Runs, mean, node.Bytes(r.Bytes)))
	}
	return orNone(strings.Join(all, ", "))
}

func writeCache(w io.Writer, where string, c *control.CacheStatus) {
	fmt.Fprintf(w, "  code cache in %s: %d entries, %v of %v, %d hits, %d misses, %d evicted\n",
		strings.TrimSpace(where+" "+c.Dir), c.Entries, node.Bytes(c.Bytes), node.Bytes(c.Limit), c.Hits, c.Misses, c.Evicted)
}

// age is a duration in as few digits as people need.
func age(ms int64) time.Duration {
	d := time.Duration(ms) * time.Millisecond
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(100 * time.Millisecond)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
