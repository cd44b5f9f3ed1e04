package main

import (
	"fmt"
	"io"
	"os"
	"strings"

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
	for _, b := range []struct {
		name, short, example, transport string
		servers                         int
		policy                          fabric.Policy
	}{
		{"verbs", "Time Send, Get, Put and fetch-add", "wherry bench verbs --transport shm --json", "shm", 1, fabric.Latency},
		// Five processes on two processors: the product's own policy, since polling all the time would be polling against each other.
		{"chase", "Compare a pointer chase: injected, deployed, fetched", "wherry bench chase --transport tcp --servers 4 --depth 64 --json", "tcp", 4, fabric.Balanced},
		{"inject", "Compare a cached injection with an active message", "wherry bench inject --transport shm --json\n  wherry bench inject --form bitcode --json", "shm", 1, fabric.Latency},
		{"crowd", "Run many functions at once on one element", "wherry bench crowd --calls 256 --json", "shm", 1, fabric.Balanced},
		{"rpc", "Time calls of goroutines that each wait for the answer", "wherry bench rpc --transport tcp --callers 16 --json", "shm", 1, fabric.Balanced},
		{"bulk", "Time large Gets and Puts beside plain memory copies", "wherry bench bulk --transport tcp --bytes 1048576 --with-sends --json", "shm", 1, fabric.Latency},
		{"pool", "Time Gets, Puts and gathers of a region of remote memory beside the plain verbs", "wherry bench pool --transport tcp --json", "shm", 1, fabric.Latency},
		{"dev", "Time reads and writes of a borrowed drive beside pread and Get", "wherry bench dev --transport shm --json", "shm", 1, fabric.Latency},
		{"rounds", "Time functions that go on in rounds, on many elements and on four", "wherry bench rounds --elements 64 --json", "shm", 1, fabric.Balanced},
		{"excache", "Time page faults of a program whose memory is remote", "wherry bench excache --transport shm --json", "shm", 1, fabric.Balanced},
		{"ring", "Pass a token round processes, more of them than processors", "wherry bench ring --elements 4 --json", "shm", 1, fabric.Latency},
		{"scan", "Compare a scan of 64 MiB, as bitcode and by auto, with native C", "wherry bench scan --json", "shm", 1, fabric.Balanced},
		{"query", "Compare questions to columns with DuckDB on the same memory", "wherry bench query --python ~/venv/bin/python --json", "shm", 1, fabric.Balanced},
		{"load", "Compare loading a CSV file as columns with DuckDB and Polars", "wherry bench load --python ~/venv/bin/python --json", "shm", 1, fabric.Balanced},
		{"hostile", "Run functions that mean ill, and time what others notice", "wherry bench hostile --form bitcode --json", "shm", 1, fabric.Balanced},
		{"codegen", "Compare a predicate that a function compiles with the same interpreted", "wherry bench codegen --json", "shm", 2, fabric.Balanced},
	} {
		cmd := &cobra.Command{Use: b.name, Short: b.short, Example: "  " + b.example, Args: cobra.NoArgs}
		f := cmd.Flags()
		c := bench.Config{Kind: b.name, Schemes: a.schemes, Servers: b.servers}
		transport, policy := b.transport, b.policy.String()
		f.StringVar(&transport, "transport", transport, strings.Join(a.schemes.Names(), " or "))
		f.StringVar(&policy, "policy", policy, "wake-up policy: latency, balanced or efficient")
		f.IntVar(&c.Rounds, "rounds", 0, fmt.Sprintf("measurements of each kind, %d to %d; 0 is the benchmark's own number", bench.MinRounds(b.name), bench.MaxRounds))
		f.BoolVar(&c.Pin, "pin", true, "client on CPU 0, servers on CPU 1; the elements of ring and rounds on them in turn")
		cpus, tls := "split", "off"
		f.StringVar(&cpus, "cpus", cpus, "split: client and servers on a CPU each; same: all processes on one")
		f.StringVar(&tls, "tls", tls, "on: TLS 1.3 between the processes, with certificates made for the occasion (tcp only)")
		f.StringVar(&c.Profiles, "cpuprofile", "", "directory for a CPU profile of each process (go tool pprof reads them)")
		benchFlags(cmd, &c)
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			if err := atLeastOne(cmd, &c); err != nil {
				return err
			}
			c.Transport = transport
			for _, e := range []struct {
				flag, value, yes, no string
				to                   *bool
			}{{"tls", tls, "on", "off", &c.TLS}, {"cpus", cpus, "same", "split", &c.SameCPU}} {
				if e.value != e.yes && e.value != e.no {
					return usagef("--%s %q: it is %s or %s", e.flag, e.value, e.no, e.yes)
				}
				*e.to = e.value == e.yes
			}
			if err := callFlags(cmd, &c, &policy); err != nil {
				return err
			}
			return a.bench(cmd, c, policy)
		}
		parent.AddCommand(cmd)
	}
	parent.AddCommand(a.benchFaultsCommand(), a.benchRoleCommand())
	return parent
}

// atLeastOne checks the flags that say how many.
func atLeastOne(cmd *cobra.Command, c *bench.Config) error {
	for name, v := range map[string]int{"servers": c.Servers, "depth": c.Depth, "rows": c.Rows, "callers": c.Callers, "inflight": c.Inflight, "bytes": c.Bytes, "call": c.Call, "processes": c.Processes, "calls": c.Calls, "gib": c.GiB, "elements": c.Elements} {
		if cmd.Flags().Changed(name) && v < 1 {
			return usagef("--%s %d: it must be at least 1", name, v)
		}
	}
	return nil
}

// benchRoleCommand is what the other commands start.
func (a *app) benchRoleCommand() *cobra.Command {
	return &cobra.Command{Use: "role", Hidden: true, Args: cobra.NoArgs, Short: "One of a benchmark's processes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.Role(cmd.Context(), a.in, a.out, a.schemes, demoGraph)
		}}
}

// demoGraph is the demo's graph, which rounds are measured on.
func demoGraph() (*bench.Graph, error) {
	g, err := debgraph.Load()
	if err != nil {
		return nil, err
	}
	return &bench.Graph{Offsets: [2][]uint64{g.Fwd.Off, g.Rev.Off}, Targets: [2][]uint32{g.Fwd.Dst, g.Rev.Dst}}, nil
}

const handlerHelp = "blocking: the server gives each call a goroutine; inline: its handler runs on the goroutine that drives its fabric"

// benchFlags are those that one benchmark alone has.
func benchFlags(cmd *cobra.Command, c *bench.Config) {
	f := cmd.Flags()
	switch c.Kind {
	case "scan":
		f.StringVar(&c.Native, "native", "", "how native code runs: worker (the default) or in-process")
		f.IntVar(&c.GiB, "gib", 0, fmt.Sprintf("in place of these: ask a question to columns of so many GiB in one shard, 1 to %d, which a function's memory does not hold from 4 on", bench.MaxGiB))
	case "query":
		f.IntVar(&c.Servers, "servers", c.Servers, fmt.Sprintf("processes that hold the rows, 1 to %d", bench.MaxServers))
		f.IntVar(&c.Rows, "rows", 4<<20, "rows, in half as many groups at most; a server has 448 MiB of them, some 13 million")
		f.StringVar(&c.Python, "python", "python3", "a Python that has duckdb and pyarrow")
	case "load":
		f.IntVar(&c.Rows, "rows", 3<<20, fmt.Sprintf("rows of the file, some 80 bytes each: at least 2, at most %d", bench.MaxRows))
		f.StringVar(&c.Python, "python", "python3", "a Python that has duckdb, and polars")
	case "hostile":
		f.StringVar(&c.Form, "form", "bitcode", "form of the functions: auto, wasm, bitcode or elf, signed and built on the spot with clang")
	case "chase", "inject":
		f.StringVar(&c.Form, "form", "", "form of the injected code: auto, wasm, bitcode or elf, signed and built on the spot with clang; the ready function, as wasm, if not given")
		f.StringVar(&c.Native, "native", "", "with --form: how servers run native code: worker (the default) or in-process")
	}
	switch c.Kind {
	case "chase":
		f.IntVar(&c.Servers, "servers", c.Servers, fmt.Sprintf("processes that hold the table, 1 to %d", bench.MaxServers))
		f.IntVar(&c.Depth, "depth", 64, fmt.Sprintf("hops of one chase, 1 to %d", bench.MaxDepth))
		f.IntVar(&c.Rows, "rows", 1<<20, fmt.Sprintf("rows of the table, 8 bytes each: at least 2 for each server, at most %d", bench.MaxRows))
	case "codegen":
		f.IntVar(&c.Servers, "servers", c.Servers, fmt.Sprintf("processes that hold the rows, 1 to %d", bench.MaxServers))
	case "crowd":
		f.IntVar(&c.Calls, "calls", 64, fmt.Sprintf("closures at once, a goroutine each, 1 to %d", bench.MaxCalls))
	case "rpc":
		f.IntVar(&c.Callers, "callers", 1, fmt.Sprintf("goroutines that each call and wait, 1 to %d", bench.MaxInflight))
		f.IntVar(&c.Inflight, "inflight", 0, fmt.Sprintf("in place of callers: one goroutine that starts calls and keeps so many under way, 1 to %d; handlers are inline and the policy is latency then, if the flags do not say otherwise", bench.MaxInflight))
		f.String("handler", "blocking", handlerHelp)
		f.IntVar(&c.Bytes, "bytes", 8, fmt.Sprintf("bytes of a request, which is its answer too, 1 to %d", bench.MaxCallBytes))
		f.IntVar(&c.Processes, "processes", 1, fmt.Sprintf("client processes with one caller each, all on CPU 0, 1 to %d: several take turns with one", bench.MaxProcesses))
		f.BoolVar(&c.BesideLoad, "beside-load", false, "keep each CPU busy meanwhile, with a process that runs an empty loop")
		f.DurationVar(&c.Turn, "turn", 0, fmt.Sprintf("how long callers or client processes call at a time, at least 1ms and at most %v; 0 is the benchmark's own time", bench.MaxTurn))
		f.IntVar(&c.ServerCPUs, "server-cpus", 1, "CPUs that the server may use, 1 to 2: CPU 1, or CPU 0, where the client is, as well")
	case "bulk":
		f.IntVar(&c.Bytes, "bytes", 1<<20, fmt.Sprintf("bytes of one transfer, 1 to %d", bench.MaxBytes))
		f.BoolVar(&c.WithSends, "with-sends", false, "time active messages beside running Puts too")
		f.IntVar(&c.Call, "call", 0, fmt.Sprintf("in place of transfers: calls with answers, and with requests, of so many bytes, 1 to %d", bench.MaxCallBytes))
		f.String("handler", "blocking", "with --call: "+handlerHelp)
	case "dev":
		f.BoolVar(&c.Faults, "faults", false, "in place of reads and writes: kill borrowers, and watch an idle drive that is attached by NBD; the policy is balanced then, if --policy does not say otherwise")
		f.StringVar(&c.Front, "front", "", "in place of these: nbd, for reads by fio beside those of nbdkit's memory, or guest, for reads in a virtual machine beside those of its own nvmet and of QEMU's drive (scripts/folder-tools.sh guest); the policy is balanced then, and nothing is pinned, if the flags do not say otherwise")
	case "ring":
		f.IntVar(&c.Elements, "elements", 4, fmt.Sprintf("processes in the ring, 2 to %d", bench.MaxElements))
	case "rounds":
		f.IntVar(&c.Elements, "elements", bench.MaxElements, fmt.Sprintf("processes that hold the graph, 4 to %d", bench.MaxElements))
	}
}

// callFlags reads what flags say together of how calls are made.
func callFlags(cmd *cobra.Command, c *bench.Config, policy *string) error {
	f := cmd.Flags()
	flight, call, handler := f.Changed("inflight"), f.Changed("call"), f.Lookup("handler")
	if (c.Faults || c.Front != "") && !f.Changed("policy") { // latency spends a processor while idle, and says so
		*policy = fabric.Balanced.String()
	}
	if c.Front != "" && !f.Changed("pin") { // other people's programs are not pinned either
		c.Pin = false
	}
	switch {
	case handler == nil:
		return nil
	case flight && f.Changed("callers"):
		return usagef("--callers and --inflight together: --callers N are N goroutines that each wait for their call, --inflight N is one that keeps N calls under way; give one of them")
	case call && (f.Changed("bytes") || f.Changed("with-sends")):
		return usagef("--call with --bytes or --with-sends: --call N measures calls whose answers have N bytes, in place of transfers")
	case c.Kind == "bulk" && !call && handler.Changed:
		return usagef("--handler without --call: transfers have no handler")
	case flight:
		c.Callers = 0
		if !f.Changed("policy") {
			*policy = fabric.Latency.String()
		}
	case call:
		c.Bytes = 0
	}
	switch handler.Value.String() {
	case "blocking":
		c.Inline = flight && !handler.Changed
	case "inline":
		c.Inline = true
	default:
		return usagef("--handler %q: it is blocking or inline", handler.Value.String())
	}
	return nil
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
	c.Command, c.WasmCompiler = []string{self, "bench", "role"}, []string{self, compileWasm}
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
	c.Aside = func(text string) { fmt.Fprintf(a.err, "wherry: %s\n", text) }
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
