package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/demo"
	"github.com/wherry-fabric/wherry/demo/debgraph"
	"github.com/wherry-fabric/wherry/demo/live"
	"github.com/wherry-fabric/wherry/demo/report"
	"github.com/wherry-fabric/wherry/fabric"
)

// demoFlags say what the demo asks, and of whom.
type demoFlags struct {
	graph    string
	html     string
	elements int
	distance demo.Distance
	link     string
	made     int
	hops     uint64
	first    int
	prove    bool
	mixed    bool
	programs string
	repeats  int
	budget   time.Duration
}

func (a *app) demoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo [NAME]...",
		Short: "Ask the Debian archive who needs whom, in four ways",
		Long: `Ask questions of Debian's dependency graph (63,666 packages, built in), which
lies on four node processes that this command starts on this machine, a quarter
at each. Every question is answered by functions that travel to the data, and by
three baselines that read the data from afar: Get by Get, all Gets of a step at
once, and fetching everything. Every answer is checked against one computed here.

The client is said to be far away (--client-rtt, --bandwidth) and the nodes near
each other. Those times are computed from each method's round trips and bytes;
the times measured on this machine stand beside them.

Name packages to ask about those: what each needs and who needs it, and why the
first ends up needing the second. The ranking and the pointer chase come after.

docs/demo.md says what is measured, and how.`,
		Example: `  wherry demo
  wherry demo firefox-esr libc6
  wherry demo --make 2000000 --html demo.html
  wherry demo --client-rtt 100ms --bandwidth 20Mbit
  wherry demo --client-rtt 0 --bandwidth 0
  wherry demo --graph edges.txt --json
  wherry demo --mixed --programs bin
  wherry demo --peers tcp://127.0.0.1:7000`,
		Args: cobra.ArbitraryArgs, // names of packages
	}
	a.client.add(cmd)
	peers := cmd.PersistentFlags().Lookup("peers")
	peers.Usage, peers.DefValue = "ask on these nodes, which run already, and on those they know; $WHERRY_PEERS is not looked at (nodes that this command starts)", ""
	p := cmd.Flags()
	p.StringVar(&f.graph, "graph", "", "a graph of your own: a line 'from to' for each edge, or a file in the built-in one's format")
	p.StringVar(&f.html, "html", "", "write the report as a web page to this file too")
	p.IntVar(&f.elements, "elements", live.DefaultElements, fmt.Sprintf("node processes to start, 1 to %d", live.MaxProcesses))
	p.BoolVar(&f.mixed, "mixed", false, "start nodes for amd64, arm64 and riscv64 in turn (3 if --elements is not given): this machine's own, and the others under QEMU (apt-get install qemu-user)")
	p.StringVar(&f.programs, "programs", "", "directory of the other processors' programs, wherry-arm64 and the like, for --mixed (where this program is)")
	p.IntVar(&f.made, "make", 0, fmt.Sprintf("instead, a graph made for the occasion, of so many vertices, 1 to %d; 2000000 take 100 MB", debgraph.MaxMade))
	p.DurationVar(&f.distance.ClientRTT, "client-rtt", demo.DefaultClientRTT, fmt.Sprintf("emulated round trip between the client and the nodes, which are near each other, at most %v; 0: the client is here", demo.MaxRTT))
	p.StringVar(&f.link, "bandwidth", demo.DefaultBandwidth, "emulated bandwidth of the client's link, in bits a second, as in 100Mbit or 1.5Gbit; 0: without limit")
	p.DurationVar(&f.distance.RTT, "rtt", 0, fmt.Sprintf("emulated round trip between any two, client or node, as in 200us, at most %v", demo.MaxRTT))
	p.Uint64Var(&f.hops, "hops", demo.DefaultHops, fmt.Sprintf("hops of the pointer chase, 1 to %d", demo.MaxHops))
	p.IntVar(&f.first, "first", 10, fmt.Sprintf("ranks to look for, 1 to %d", demo.MaxFirst))
	p.BoolVar(&f.prove, "prove", false, "count until all ranks are proven by the functions alone")
	p.IntVar(&f.repeats, "repeats", demo.DefaultRepeats, fmt.Sprintf("answers of each method that the median is taken from, 1 to %d", demo.MaxRepeats))
	p.DurationVar(&f.budget, "budget", demo.DefaultBudget, "stop a method that needs longer for one answer: more than 0")
	cmd.RunE = func(cmd *cobra.Command, names []string) error { return a.demo(cmd, &f, names) }
	cmd.AddCommand(&cobra.Command{Use: "role", Hidden: true, Args: cobra.NoArgs, Short: "One of the demo's nodes",
		RunE: func(cmd *cobra.Command, _ []string) error { return live.Role(cmd.Context(), a.in, a.out) }})
	return cmd
}

// options are the flags made ready; what is wrong with them is a mistake of usage.
func (f *demoFlags) options(policy string, names []string) (o live.Options, err error) {
	if o.Policy, err = fabric.ParsePolicy(policy); err != nil {
		return o, err
	}
	if f.elements < 1 || f.elements > live.MaxProcesses {
		return o, fmt.Errorf("--elements %d: 1 to %d are possible", f.elements, live.MaxProcesses)
	}
	if f.repeats < 1 || f.budget <= 0 {
		return o, fmt.Errorf("--repeats and --budget must be more than 0")
	}
	if o.Graph, err = f.load(); err != nil {
		return o, err
	}
	if f.distance.Bandwidth, err = demo.ParseBandwidth(f.link); err != nil {
		return o, fmt.Errorf("--bandwidth: %w", err)
	}
	o.Elements = f.elements
	o.Run = demo.Options{Repeats: f.repeats, Budget: f.budget, Distance: f.distance}
	o.Queries = f.queries(o.Graph, names)
	for _, q := range o.Queries {
		if err := demo.CheckQuery(o.Graph, q); err != nil {
			return o, err
		}
	}
	return o, o.Run.Validate()
}

func (f *demoFlags) load() (*debgraph.Graph, error) {
	if f.made != 0 {
		if f.graph != "" {
			return nil, fmt.Errorf("--graph %s and --make %d: give one of them", f.graph, f.made)
		}
		return debgraph.Make(f.made)
	}
	if f.graph == "" {
		return debgraph.Load()
	}
	file, err := os.Open(f.graph)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	g, err := debgraph.Read(filepath.Base(f.graph), file)
	if err == nil && g.Edges() == 0 {
		err = fmt.Errorf("%s has no edges; a line is 'from to'", f.graph)
	}
	return g, err
}

// queries are the default ones, or those about the names given.
func (f *demoFlags) queries(g *debgraph.Graph, names []string) []demo.Query {
	all := demo.DefaultQueries(g)
	if f.made > 0 && len(names) == 0 {
		names = madeNames(g)
	}
	if len(names) > 0 {
		about := []demo.Query{}
		for _, name := range names {
			about = append(about, demo.Query{Kind: demo.KindNeeds, Package: name}, demo.Query{Kind: demo.KindNeededBy, Package: name})
		}
		if len(names) > 1 {
			about = append(about, demo.Query{Kind: demo.KindPath, Package: names[0], Goal: names[1]})
		}
		general := func(q demo.Query) bool { return q.Kind == demo.KindTop || q.Kind == demo.KindChase }
		all = append(about, slices.DeleteFunc(all, func(q demo.Query) bool { return !general(q) })...)
	}
	for i := range all {
		switch all[i].Kind {
		case demo.KindTop:
			all[i].First, all[i].Prove = min(f.first, g.Len()), f.prove
		case demo.KindChase:
			all[i].Hops = f.hops
		}
	}
	return all
}

// madeNames are two vertices of a made graph to ask about: one with many below it, and one of those.
func madeNames(g *debgraph.Graph) []string {
	for v := g.Len() - 1; v > 0; v-- {
		if below := g.Closure(uint32(v), debgraph.Needs); len(below) >= min(20, v/4) && len(below) > 0 {
			return []string{g.Names[v], g.Names[below[len(below)/4]]}
		}
	}
	return nil
}

func (a *app) demo(cmd *cobra.Command, f *demoFlags, names []string) error {
	o, err := f.options(a.client.policy, names)
	if err != nil {
		return usageError{err}
	}
	running := a.client.peers != "" && cmd.Flags().Changed("peers") // not $WHERRY_PEERS: that is set for other commands
	if running && cmd.Flags().Changed("elements") {
		return usagef("--elements is how many nodes to start, and --peers are nodes that run: give one of them")
	}
	if running && f.mixed {
		return usagef("--mixed says what nodes to start, and --peers are nodes that run: give one of them")
	}
	if err := checkOut(f.html, append(a.client.reads(), f.graph)...); err != nil {
		return err
	}
	ctx, cancel := a.context(cmd)
	defer cancel()
	if running {
		done, err := a.demoPeers(ctx, &o)
		if err != nil {
			return err
		}
		defer done()
	} else {
		if o.Programs, err = f.start(); err != nil {
			return usageError{err}
		}
		if f.mixed && !cmd.Flags().Changed("elements") {
			o.Elements = len(o.Programs)
		}
	}
	b := a.bar(false)
	o.Progress = func(text string, done, all int) { b.at(text, int64(done), int64(all)) }
	r, err := live.Run(ctx, o)
	b.end()
	if err != nil {
		return err
	}
	if f.html != "" {
		if err := writeHTML(f.html, r); err != nil {
			return err
		}
	}
	if a.json {
		err = report.JSON(a.out, r)
	} else {
		color := isTerminal(a.out) && os.Getenv("NO_COLOR") == ""
		err = report.Text(a.out, r, report.TextOptions{Width: width(a.out), Color: color})
	}
	if err == nil && r.Failed() {
		err = errors.New("demo: an answer was wrong or failed; the report says which")
	}
	return err
}

// start are the programs that nodes are started with.
func (f *demoFlags) start() ([]live.Program, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if !f.mixed {
		if f.programs != "" {
			return nil, fmt.Errorf("--programs %s: it is for --mixed, which is not given", f.programs)
		}
		return []live.Program{{Arch: runtime.GOARCH, Command: []string{self, "demo", "role"}}}, nil
	}
	if f.programs == "" {
		f.programs = filepath.Dir(self)
	}
	return live.Mixed(self, f.programs, "demo", "role")
}

// demoPeers has the demo use nodes that run already: all that are connected.
func (a *app) demoPeers(ctx context.Context, o *live.Options) (done func(), err error) {
	c, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range c.Nodes() { // by name
		if n.Endpoint == nil {
			c.Close()
			return nil, fmt.Errorf("node %s is %w: start it, or name the nodes to use without it", n.Member.Name, control.ErrNotConnected)
		}
		o.Nodes = append(o.Nodes, n.Member.Name)
	}
	o.Client = c
	return func() { c.Close() }, nil
}

func writeHTML(path string, r *report.Report) error {
	return writeFile(path, func(w io.Writer) error { return report.HTML(w, r) })
}
