package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/schemes"
)

// Config says what to measure.
type Config struct {
	Kind      string         // "verbs", "chase", "inject", "rpc", "bulk", "pool", "dev", "crowd", "ring", "rounds", "scan", "query", "load", "hostile" or "codegen"
	Schemes   fabric.Schemes // the transports that there are; nil: schemes.All
	Transport string         // the name of one of them
	Policy    fabric.Policy  // of every element
	Servers   int            // default 1
	Depth     int            // hops of one chase; default 64
	Rows      int            // of the chase's table; default 1 Mi (8 MiB) over all servers
	Rounds    int            // of each measurement; 0: the benchmark's default
	Callers   int            // of rpc: goroutines that each call and wait; default 1, where Inflight is 0
	Inflight  int            // of rpc: calls that one goroutine keeps under way; 0: Callers call
	Inline    bool           // of rpc: the handler runs on the goroutine that drives the server's fabric, not on one of its own
	Bytes     int            // of bulk: one transfer, default 1 MiB; of rpc: one request, which is its answer too, default 8
	Call      int            // of bulk: not 0: calls are measured whose answers have so many bytes, in place of transfers
	Faults    bool           // of dev: kill borrowers
	Front     string         // of dev: FrontNBD, a drive by NBD beside nbdkit's, or FrontGuest, one in a guest beside two others there; "": none
	WithSends bool           // of bulk: time active messages beside running Puts too
	Calls     int            // of crowd: functions at once; default 64
	Form      string         // of inject, chase and hostile: the form of code that is asked for, "auto" among them; "": ready functions, as wasm
	Native    string         // with Form: how servers run native code; default "worker"
	Elements  int            // of ring: the processes in it, default 4; of rounds: the servers, default 64
	GiB       int            // of scan: not 0: columns of so much are scanned in one shard, in place of a window that native C scans too
	Pin       bool           // client on CPU 0, servers on CPU 1; a ring's elements, and those of rounds, on each in turn
	SameCPU   bool           // with Pin: all processes on one CPU
	// ServerCPUs is how many CPUs a server may use, with Pin: 1, the default, is CPU 1, and 2 are CPU 0 and 1.
	ServerCPUs int
	// Processes is how many client processes of rpc call at once, one caller each; default 1.
	Processes int
	// BesideLoad has a busy loop beside rpc on each CPU that its processes use.
	BesideLoad bool
	// Python is the program that runs DuckDB, for query, and Polars too, for load.
	Python string
	// Turn is how long a turn of rpc's callers or client processes measures; 0: the benchmark's own time.
	Turn time.Duration
	// TLS has the processes talk TLS 1.3 with certificates made for the occasion; tcp only.
	TLS bool
	// Profiles is a directory where each process leaves a CPU profile; "": none.
	Profiles string
	// Command starts this program in a role: its first argument is the path.
	// The role's specification comes on standard input.
	Command []string
	// WasmCompiler starts what a node compiles wasm with (node.Config); of hostile.
	WasmCompiler []string
	// Progress is told what is being measured; may be nil.
	Progress func(text string, done float64)
	// Aside is told what the machine lacks of what a benchmark compares with: its fields are absent then; may be nil.
	Aside func(text string)

	scheme fabric.Scheme // of Transport, by Validate
}

// Limits of a Config.
const (
	// MaxInflight is what an rpc.Peer has under way by default (rpc.Limits.Outgoing), and so the most callers too.
	MaxInflight = 1024
	// MaxCallBytes is the largest request and answer that an rpc.Peer takes by default (rpc.Limits.MaxBytes), and
	// MaxCallersBytes bounds the requests of all callers together.
	MaxCallBytes    = 16 << 20
	MaxCallersBytes = 1 << 30
	// MaxBytes bounds one transfer: with Puts beside sends the client keeps a few such buffers.
	MaxBytes = 256 << 20
	// MaxServers, MaxElements and MaxProcesses bound the processes: far more than a machine has processors.
	MaxServers   = 64
	MaxElements  = 64
	MaxProcesses = 64
	// MaxDepth bounds one chase, and MaxRows the table: 2 GiB.
	MaxDepth = 1 << 20
	MaxRows  = 1 << 28
	// MaxRounds bounds the samples that are kept: 80 MB of each kind.
	MaxRounds = 10_000_000
	// MaxTurn bounds one turn of rpc's callers.
	MaxTurn = 10 * time.Second
)

const (
	// chaseTurns is how often the ways of a chase take turns; verbTurns,
	// injectTurns, … the same of the others.
	chaseTurns  = 20
	verbTurns   = 10
	injectTurns = 20
	rpcTurns    = 20
	bulkTurns   = 20
	ringTurns   = 20
	roundTurns  = 20
	// verbShare is which part of the rounds what is timed in batches takes.
	verbShare = 4
)

// MinRounds is the least Config.Rounds of a kind of benchmark: one sample a turn.
func MinRounds(kind string) int {
	switch kind {
	case "verbs":
		return verbTurns * verbShare
	case "inject":
		return injectTurns
	case "crowd":
		return 1 // they are its turns
	case "rounds", "scan", "query", "load", "hostile", "codegen":
		return 1
	}
	return chaseTurns
}

// leastRounds is the least Rounds: a front's are its turns.
func (c *Config) leastRounds() int {
	if c.Front != "" {
		return 1
	}
	return MinRounds(c.Kind)
}

// validateFront reports what is wrong with a front.
func (c *Config) validateFront() error {
	switch {
	case c.Front == "":
		return nil
	case c.Kind != "dev" || c.Front != FrontNBD && c.Front != FrontGuest:
		return fmt.Errorf("bench: %s by the front %q: dev has the fronts %s and %s", c.Kind, c.Front, FrontNBD, FrontGuest)
	case c.Faults:
		return errors.New("bench: faults and a front: one or the other")
	}
	return nil
}

// Validate fills in defaults and reports what cannot be measured.
func (c *Config) Validate() error {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.Servers, 1)
	def(&c.Depth, 64)
	if c.Kind == "query" || c.Kind == "load" {
		if c.Kind == "load" {
			def(&c.Rows, loadRows)
		}
		def(&c.Rows, queryRows)
		if c.Python == "" {
			c.Python = "python3"
		}
	}
	def(&c.Rows, 1<<20)
	switch c.Kind {
	case "rounds":
		def(&c.Elements, MaxElements)
	case "excache":
		def(&c.Bytes, cachedBytes)
	}
	def(&c.Elements, 4)
	def(&c.Calls, 64)
	if err := errors.Join(c.validateCalls(), c.validateForm(), c.validateFront(), c.validateLarge()); err != nil {
		return err
	}
	if c.Schemes == nil {
		c.Schemes = schemes.All()
	}
	picked, err := c.Schemes.Pick(c.Transport)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	c.scheme = picked[0]
	if c.Kind == "pool" || c.Kind == "dev" {
		c.Bytes = poolPage
	}
	def(&c.Bytes, 1<<20)
	switch {
	case c.Kind == "rounds" && c.Elements < fewElements:
		return fmt.Errorf("bench: rounds of %d elements: between %d and %d", c.Elements, fewElements, MaxElements)
	case c.Kind == "codegen" && c.Rows%(whereColumns*c.Servers) != 0:
		return fmt.Errorf("bench: %d numbers on %d servers: rows are of %d of them, and each server has as many rows", c.Rows, c.Servers, whereColumns)
	case c.Bytes < 1 || c.Bytes > MaxBytes:
		return fmt.Errorf("bench: transfers of %d bytes: between 1 and %d", c.Bytes, MaxBytes)
	case c.Calls < 1 || c.Calls > MaxCalls:
		return fmt.Errorf("bench: a crowd of %d calls: between 1 and %d", c.Calls, MaxCalls)
	case c.Elements < 2 || c.Elements > MaxElements:
		return fmt.Errorf("bench: a ring of %d elements: between 2 and %d", c.Elements, MaxElements)
	case c.SameCPU && !c.Pin:
		return errors.New("bench: all processes on one CPU, and no pinning: one or the other")
	case c.Servers < 1 || c.Servers > MaxServers:
		return fmt.Errorf("bench: %d servers: between 1 and %d", c.Servers, MaxServers)
	case c.Depth < 1 || c.Depth > MaxDepth:
		return fmt.Errorf("bench: depth %d: between 1 and %d", c.Depth, MaxDepth)
	case c.Rows < 2*c.Servers || c.Rows > MaxRows:
		return fmt.Errorf("bench: %d rows: between %d and %d", c.Rows, 2*c.Servers, MaxRows)
	case c.Rounds != 0 && (c.Rounds < c.leastRounds() || c.Rounds > MaxRounds):
		return fmt.Errorf("bench: %d rounds of %s: between %d and %d, or 0 for the usual number", c.Rounds, c.Kind, c.leastRounds(), MaxRounds)
	case c.TLS && c.scheme.Local():
		return fmt.Errorf("bench: TLS over %s, which does not leave the machine", c.Transport)
	case len(c.Command) == 0:
		return errors.New("bench: Config.Command says how to start this program in a role")
	}
	return nil
}

// Result is one benchmark's outcome: a flat object, in the order it was filled.
type Result struct {
	names  []string
	values map[string]any
	err    error
}

// Set adds a field. A figure that is no number makes Err say so, and is left out.
func (r *Result) Set(name string, v any) {
	if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
		if r.err == nil {
			r.err = fmt.Errorf("bench: %s comes out as %v: too little was measured; give more --rounds", name, f)
		}
		return
	}
	if r.values == nil {
		r.values = map[string]any{}
	}
	if _, ok := r.values[name]; !ok {
		r.names = append(r.names, name)
	}
	if f, ok := v.(float64); ok {
		v = rounded(f)
	}
	r.values[name] = v
}

// Err says which figure could not be computed, if one could not.
func (r *Result) Err() error { return r.err }

// rounded keeps what a measurement can mean.
func rounded(f float64) json.Number {
	switch {
	case f >= 100 || f <= -100:
		return json.Number(fmt.Sprintf("%.0f", f))
	case f >= 10:
		return json.Number(fmt.Sprintf("%.1f", f))
	}
	decimals := 3
	if f != 0 { // of small ones three digits that say something
		decimals = max(decimals, 2-int(math.Floor(math.Log10(math.Abs(f)))))
	}
	return json.Number(strconv.FormatFloat(f, 'f', decimals, 64))
}

// allocsPerOp is what the process that allocates most allocated for each operation, to the thousandth: now and then the runtime
// allocates for itself.
func allocsPerOp(before, after []uint64, ops int) float64 {
	var most uint64
	for i := range after {
		most = max(most, after[i]-before[i])
	}
	return math.Round(1000*float64(most)/float64(ops)) / 1000
}

// Names lists the fields in order.
func (r *Result) Names() []string { return r.names }

// Get is a field's value, nil if there is none.
func (r *Result) Get(name string) any { return r.values[name] }

// MarshalJSON writes the fields in order.
func (r *Result) MarshalJSON() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	b := []byte{'{'}
	for i, n := range r.names {
		if i > 0 {
			b = append(b, ',')
		}
		k, _ := json.Marshal(n)
		v, err := json.Marshal(r.values[n])
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, k...), ':'), v...)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads a flat object, keeping the order.
func (r *Result) UnmarshalJSON(b []byte) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	var order []string
	dec := json.NewDecoder(bytes.NewReader(b))
	for depth := 0; ; {
		t, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if d, ok := t.(json.Delim); ok {
			if d == '{' || d == '[' {
				depth++
			} else {
				depth--
			}
			continue
		}
		if s, ok := t.(string); ok && depth == 1 && m[s] != nil {
			order = append(order, s)
			var skip json.RawMessage
			if err := dec.Decode(&skip); err != nil {
				return err
			}
		}
	}
	for _, n := range order {
		var v any
		d := json.NewDecoder(bytes.NewReader(m[n]))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return err
		}
		if r.values == nil {
			r.values = map[string]any{}
		}
		r.names = append(r.names, n)
		r.values[n] = v
	}
	return nil
}

// role is what a child process is told to be.
type role struct {
	Role         string // "server", "client", "loop", of excache "program", or of dev guestReader
	Kind         string
	Name         string
	Transport    string
	scheme       fabric.Scheme // of Transport
	Listen       string        // server
	Policy       fabric.Policy
	Servers      []serverInfo // servers that are up already: to be dialled
	Rows         int
	Calls        int
	Index        int
	Count        int
	Depth        int
	Rounds       int
	Callers      int
	Inflight     int
	Inline       bool
	Bytes        int
	Call         int
	InStep       bool          // of rpc: one of several client processes
	Loaded       bool          // there are busy loops beside
	Turn         time.Duration // as Config's
	WithSends    bool
	Apart        bool // the processes have a CPU each
	Seed         uint64
	CacheDir     string
	WasmCompiler []string
	Disk         string    // of dev: a file on a disk, or what is read in a guest
	TLS          *ca.Files // nil: none
	Code         *codeOf   // nil: ready functions, as wasm
	Python       string    // of query: what runs DuckDB …
	ServerCPU    []int     // … on the servers' CPUs
	GiB          int       // as Config's
	FaultFloor   string    // of excache: the program beside it; "": there is none
	Workers      int       // of query: nothing is measured but so many workers at each server, beside one
	Profile      string    // file for a CPU profile; "": none
}

// serverInfo is what a server says once it is up.
type serverInfo struct {
	Name        string
	Addr        string
	Incarnation fabric.Incarnation
	Key         []byte // of its segment, for verbs; of its shard, for chases
	Size        uint64
	Keys        [][]byte // of the graph's windows, for crowds
	Columns     columns  // of query
	Few         columns  // the same with few rows
	Graphs      [][]lent // of rounds: its shard's windows, of a few elements and of all
	Error       string
}

// everybody lets the benchmark's processes in: they are on this machine only, for
// a few seconds, and have nothing but random numbers.
type everybody struct{}

func (everybody) Self() (string, []byte) { return "", nil }
func (everybody) Lookup(string) ([]byte, fabric.Principal, bool) {
	return nil, fabric.Principal{}, false
}
func (everybody) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{Name: "bench", Caps: uint32(cluster.CapsAll)}, true
}

// Role runs this process as a benchmark's client or server: what the
// specification on r says, over one of the transports that there are. It returns when r ends, or the client is
// done. graph is what rounds are measured on; nil: they cannot be.
func Role(ctx context.Context, r io.Reader, w io.Writer, known fabric.Schemes, graph Load) error {
	dec := json.NewDecoder(r)
	var spec role
	if err := dec.Decode(&spec); err != nil {
		return fmt.Errorf("bench: no role on standard input (this command is started by the benchmark itself): %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	stop, err := startProfile(spec.Profile)
	if err != nil {
		return err
	}
	defer stop()
	switch spec.Role {
	case "loop":
		return runLoop(dec, w)
	case "program":
		return runProgram(&spec, json.NewEncoder(w))
	case guestReader:
		return runGuestReader(&spec, w)
	}
	picked, err := known.Pick(spec.Transport)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if spec.scheme = picked[0]; spec.Role == "server" {
		return runServer(ctx, &spec, dec, w, graph)
	}
	return runClient(ctx, &spec, dec, w, graph)
}

func hostInfo(r *Result, c *Config) {
	r.Set("benchmark", c.Kind)
	r.Set("transport", c.Transport)
	r.Set("tls", map[bool]string{false: "off", true: "on"}[c.TLS])
	r.Set("policy", c.Policy.String())
	if c.Kind == "ring" || c.Kind == "rounds" {
		r.Set("elements", c.Elements)
	} else {
		r.Set("servers", c.Servers)
	}
	r.Set("pinning", c.pinning())
	if c.Form != "" {
		r.Set("form", c.Form)
		r.Set("native", c.Native)
	}
	machine(r)
	r.Set("time", time.Now().UTC().Format(time.RFC3339))
	if host, err := os.Hostname(); err == nil {
		r.Set("host", host)
	}
}
