package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/bench"
	"github.com/wherry-fabric/wherry/demo/debgraph"
	"github.com/wherry-fabric/wherry/fabric"
)

func (a *app) benchCommand() *cobra.Command {
	parent := noun(&cobra.Command{
		Use:   "bench",
		Short: "Measure wherry on this machine",
		Long: `Measure wherry on this machine. Client and servers are processes of their own:
the client on CPU 0, all servers on CPU 1, one wake-up policy for all. Both
sides of a comparison take turns in one run, and medians are reported. On a
shared machine the ratios say more than the figures.`,
		Example: "  wherry bench chase --transport tcp --servers 4",
	})
	var c bench.Config
	for _, b := range []struct {
		name, short, example, transport string
		servers                         int
		policy                          fabric.Policy
	}{
		{"verbs", "Time Send, Get, Put and fetch-add", "wherry bench verbs --transport shm --json", "shm", 1, fabric.Latency},
		// Five processes on two processors: the product's own policy, since polling all the time would be polling against each other.
		{"chase", "Compare a pointer chase: injected, deployed, fetched", "wherry bench chase --transport tcp --servers 4 --depth 64 --json", "tcp", 4, fabric.Balanced},
		{"inject", "Compare a cached injection with an active message", "wherry bench inject --transport shm --json", "shm", 1, fabric.Latency},
		{"rpc", "Time small calls, one or many in flight", "wherry bench rpc --transport tcp --inflight 64 --json", "shm", 1, fabric.Latency},
		{"bulk", "Time large Gets and Puts beside plain memory copies", "wherry bench bulk --transport tcp --bytes 1048576 --with-sends --json", "shm", 1, fabric.Latency},
		{"rounds", "Time functions that go on in rounds, on many elements and on four", "wherry bench rounds --elements 64 --json", "shm", 1, fabric.Balanced},
		{"ring", "Pass a token round processes, more of them than processors", "wherry bench ring --elements 4 --json", "shm", 1, fabric.Latency},
	} {
		cmd := &cobra.Command{Use: b.name, Short: b.short, Example: "  " + b.example, Args: cobra.NoArgs}
		f := cmd.Flags()
		transport, servers, policy := b.transport, b.servers, b.policy.String()
		elements := 0 // ring's and rounds' defaults differ
		switch b.name {
		case "ring":
			f.IntVar(&elements, "elements", 4, fmt.Sprintf("processes in the ring, 2 to %d", bench.MaxElements))
		case "rounds":
			f.IntVar(&elements, "elements", bench.MaxElements, fmt.Sprintf("processes that hold the graph, 4 to %d", bench.MaxElements))
		}
		f.StringVar(&transport, "transport", transport, "shm or tcp")
		f.StringVar(&policy, "policy", policy, "wake-up policy: latency, balanced or efficient")
		f.IntVar(&c.Rounds, "rounds", 0, fmt.Sprintf("measurements of each kind, %d to %d; 0 is the benchmark's own number", bench.MinRounds(b.name), bench.MaxRounds))
		f.BoolVar(&c.Pin, "pin", true, "client on CPU 0, servers on CPU 1; the elements of ring and rounds on them in turn")
		cpus := "split"
		f.StringVar(&cpus, "cpus", cpus, "split: client and servers on a CPU each; same: all processes on one")
		text := "huge"
		f.StringVar(&text, "text-pages", text, "pages for the processes' code: huge, as a node's (if the kernel has them), or small")
		tls := "off"
		f.StringVar(&tls, "tls", tls, "on: TLS 1.3 between the processes, with certificates made for the occasion (tcp only)")
		f.StringVar(&c.Profiles, "cpuprofile", "", "directory for a CPU profile of each process (go tool pprof reads them)")
		if b.name == "chase" {
			f.IntVar(&servers, "servers", servers, fmt.Sprintf("processes that hold the table, 1 to %d", bench.MaxServers))
			f.IntVar(&c.Depth, "depth", 64, fmt.Sprintf("hops of one chase, 1 to %d", bench.MaxDepth))
			f.IntVar(&c.Rows, "rows", 1<<20, fmt.Sprintf("rows of the table, 8 bytes each: at least 2 for each server, at most %d", bench.MaxRows))
		}
		benchFlags(cmd, b.name, &c)
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			for name, v := range map[string]int{"servers": servers, "depth": c.Depth, "rows": c.Rows, "inflight": c.Inflight, "bytes": c.Bytes, "elements": elements} {
				if cmd.Flags().Changed(name) && v < 1 {
					return usagef("--%s %d: it must be at least 1", name, v)
				}
			}
			c.Kind, c.Transport, c.Servers, c.Elements = b.name, transport, servers, elements
			for _, e := range []struct {
				flag, value, yes, no string
				to                   *bool
			}{{"tls", tls, "on", "off", &c.TLS}, {"text-pages", text, "small", "huge", &c.SmallText}, {"cpus", cpus, "same", "split", &c.SameCPU}} {
				if e.value != e.yes && e.value != e.no {
					return usagef("--%s %q: it is %s or %s", e.flag, e.value, e.no, e.yes)
				}
				*e.to = e.value == e.yes
			}
			return a.bench(cmd, c, policy)
		}
		parent.AddCommand(cmd)
	}
	parent.AddCommand(&cobra.Command{Use: "role", Hidden: true, Args: cobra.NoArgs, Short: "One of a benchmark's processes",
		RunE: func(cmd *cobra.Command, _ []string) error { return bench.Role(cmd.Context(), a.in, a.out, demoGraph) }})
	return parent
}

// demoGraph is the demo's graph, which rounds are measured on.
func demoGraph() (*bench.Graph, error) {
	g, err := debgraph.Load()
	if err != nil {
		return nil, err
	}
	return &bench.Graph{Offsets: [2][]uint64{g.Fwd.Off, g.Rev.Off}, Targets: [2][]uint32{g.Fwd.Dst, g.Rev.Dst}}, nil
}

// benchFlags are those that one benchmark alone has.
func benchFlags(cmd *cobra.Command, name string, c *bench.Config) {
	f := cmd.Flags()
	switch name {
	case "rpc":
		f.IntVar(&c.Inflight, "inflight", 1, fmt.Sprintf("calls under way at once, 1 to %d", bench.MaxInflight))
	case "bulk":
		f.IntVar(&c.Bytes, "bytes", 1<<20, fmt.Sprintf("bytes of one transfer, 1 to %d", bench.MaxBytes))
		f.BoolVar(&c.WithSends, "with-sends", false, "time active messages beside running Puts too")
	}
}

func (a *app) bench(cmd *cobra.Command, c bench.Config, policy string) error {
	var err error
	if c.Policy, err = fabric.ParsePolicy(policy); err != nil {
		return usageError{err}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.Command = []string{self, "bench", "role"}
	if err := c.Validate(); err != nil {
		return usageError{err}
	}
	if c.Profiles != "" {
		if info, err := os.Stat(c.Profiles); err != nil || !info.IsDir() {
			return usagef("--cpuprofile %s: it is no directory: make it first", c.Profiles)
		}
	}
	b := a.bar(false)
	c.Progress = func(text string, done float64) { b.at(text, int64(done*100), 100) }
	ctx, cancel := a.context(cmd)
	defer cancel()
	r, err := bench.Run(ctx, c)
	b.end()
	if err != nil {
		return err
	}
	return a.print(r, func(w io.Writer) {
		for _, name := range r.Names() {
			fmt.Fprintf(w, "%-28s %v\n", name, r.Get(name))
		}
	})
}
