package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/child"
	"github.com/wherry-fabric/wherry/internal/sockdir"
)

// start starts this program in a role on these CPUs; none: any. The child inherits them
// from the thread that starts it, so its Go runtime sees only those.
func start(ctx context.Context, c *Config, spec role, cpus []int) (*child.Process, error) {
	var p *child.Process
	if err := onCPUs(cpus, func() (err error) {
		p, err = child.Start(exec.CommandContext(ctx, c.Command[0], c.Command[1:]...))
		return err
	}); err != nil {
		return nil, err
	}
	_ = p.Tell(spec) // if it fails the process has ended, and hear says why
	return p, nil
}

// hear reads a child's next answer.
func hear(p *child.Process, v any) error {
	if err := p.Hear(v); err != nil {
		return fmt.Errorf("bench: a process of the benchmark failed: %w", err)
	}
	return nil
}

// cpus is where the process of an index runs, 0 being the client; none: anywhere.
func (c *Config) cpus(process int) []int {
	switch {
	case !c.Pin:
		return nil
	case c.SameCPU:
		return []int{sharedCPU}
	case c.Kind == "ring" || c.Kind == "rounds":
		return []int{process % 2}
	case process == 0:
		return []int{0}
	case c.ServerCPUs == 2:
		return []int{0, 1}
	}
	return []int{1}
}

// sharedCPU is where all processes run that are to share one: not the first,
// which has most of a machine's interrupts.
const sharedCPU = 1

// pinning says where the processes run.
func (c *Config) pinning() string {
	clients := "client"
	if c.Processes > 1 {
		clients = "clients"
	}
	switch {
	case !c.Pin:
		return "none"
	case c.SameCPU:
		return fmt.Sprintf("all on cpu %d", sharedCPU%runtime.NumCPU())
	case c.Kind == "ring" || c.Kind == "rounds":
		return "cpu 0 and cpu 1 in turn"
	case c.ServerCPUs == 2:
		return clients + " cpu 0, servers cpu 0 and 1"
	}
	return clients + " cpu 0, servers cpu 1"
}

// onCPUs runs f on a thread bound to these CPUs, if there are any.
func onCPUs(cpus []int, f func() error) error {
	if len(cpus) == 0 {
		return f()
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		var set unix.CPUSet
		for _, cpu := range cpus {
			set.Set(cpu % runtime.NumCPU())
		}
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			result <- fmt.Errorf("bench: pin to CPUs %v: %w (run with --pin=false)", cpus, err)
			return
		}
		result <- f()
	}()
	return <-result
}

// Run measures and returns the figures. If the context ends first, its error is Run's.
func Run(ctx context.Context, c Config) (*Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r, err := besideLoad(ctx, &c)
	if err != nil && ctx.Err() != nil { // the processes were killed for that
		return nil, fmt.Errorf("bench: %s: %w", c.Kind, context.Cause(ctx))
	}
	return r, err
}

// besideLoad is run with busy loops beside, if the benchmark wants them.
func besideLoad(ctx context.Context, c *Config) (*Result, error) {
	if !c.BesideLoad {
		return run(ctx, c)
	}
	l, err := startLoops(ctx, c)
	if err != nil {
		return nil, err
	}
	defer l.end()
	r, err := run(ctx, c)
	if err != nil {
		return nil, err
	}
	share, err := l.share()
	if err != nil {
		return nil, err
	}
	r.Set("busy_loops", len(l))
	r.Set("busy_loops_share", share)
	return r, nil
}

func run(ctx context.Context, c *Config) (*Result, error) {
	dir, err := sockdir.Make("wherry-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	switch c.Kind {
	case "ring":
		c.Servers = c.Elements - 1 // the client is an element of it too
	case "rounds":
		c.Servers = c.Elements
	}
	spec := role{Kind: c.Kind, Transport: c.Transport, Policy: c.Policy, Rows: c.Rows, Calls: c.Calls, Count: c.Servers, Depth: c.Depth, GiB: c.GiB, Rounds: c.Rounds,
		Callers: c.Callers, Inflight: c.Inflight, Inline: c.Inline, Bytes: c.Bytes, Call: c.Call, WithSends: c.WithSends,
		Apart: !c.SameCPU && !c.BesideLoad && c.ServerCPUs == 1 && runtime.NumCPU() > 1, Loaded: c.BesideLoad, Turn: c.Turn, Python: c.Python, ServerCPU: c.cpus(1), Seed: rand.Uint64(), WasmCompiler: c.WasmCompiler}
	if c.TLS {
		if spec.TLS, err = credentials(dir); err != nil {
			return nil, err
		}
	}
	if spec.Code, err = c.code(ctx, dir); err != nil {
		return nil, err
	}
	if c.Kind == "dev" {
		if spec.Disk, err = newDisk(); err != nil {
			return nil, err
		}
		defer os.Remove(spec.Disk)
		switch {
		case c.Faults:
			return c.driveFaults(ctx, spec, dir)
		case c.Front == FrontNBD:
			return c.driveNBD(ctx, spec, dir)
		case c.Front == FrontGuest:
			return c.driveGuest(ctx, spec, dir)
		}
	}
	if c.Kind == "excache" {
		if spec.FaultFloor, err = compileFaultFloor(ctx, dir); err != nil {
			c.aside(noFloor(err))
		}
	}
	if c.Processes > 1 {
		return c.processes(ctx, spec, dir)
	}
	crew, err := c.muster(ctx, spec, dir, 1)
	if err != nil {
		return nil, err
	}
	defer crew.end()
	r, err := collect(crew.clients[0], c)
	if err == nil && c.Kind == "query" {
		crew.end() // its memory, above all
		err = c.addWorkers(ctx, spec, dir, r)
	}
	return r, err
}

// crew is a benchmark's processes.
type crew struct {
	servers, clients []*child.Process
	infos            []serverInfo
}

// end ends the clients, then the servers.
func (w *crew) end() {
	for _, all := range [][]*child.Process{w.clients, w.servers} {
		for _, p := range all {
			p.EndInput()
		}
		for _, p := range all {
			p.End()
		}
	}
}

// muster starts the servers, and so many clients of theirs, whose sockets and files are in dir.
func (c *Config) muster(ctx context.Context, spec role, dir string, clients int) (_ *crew, err error) {
	w := &crew{}
	defer func() {
		if err != nil {
			w.end()
		}
	}()
	for i := range c.Servers {
		s := spec
		s.Role, s.Index, s.Name = "server", i, fmt.Sprintf("server%d", i)
		s.Listen = c.scheme.Here(dir, s.Name)
		s.CacheDir = filepath.Join(dir, s.Name)
		s.Profile = profileFile(c, s.Name)
		p, err := start(ctx, c, s, c.cpus(i+1))
		if err != nil {
			return nil, err
		}
		w.servers = append(w.servers, p)
		var info serverInfo
		if err := hear(p, &info); err != nil {
			return nil, err
		}
		if info.Error != "" {
			return nil, fmt.Errorf("bench: %s: %s", s.Name, info.Error)
		}
		spec.Servers = append(spec.Servers, info)
	}
	w.infos = spec.Servers
	spec.Role = "client"
	for i := range clients {
		if spec.Name = "client"; clients > 1 {
			spec.Name = fmt.Sprintf("client%d", i)
		}
		spec.Profile = profileFile(c, spec.Name)
		p, err := start(ctx, c, spec, c.cpus(0))
		if err != nil {
			return nil, err
		}
		w.clients = append(w.clients, p)
	}
	return w, nil
}

// note is what a client says while it measures, and at the end.
type note struct {
	Text   string
	Done   float64
	Ready  bool   // it waits for its turn
	Aside  string // what cannot be measured, and why
	Result *Result
	Error  string
}

func collect(client *child.Process, c *Config) (*Result, error) {
	for {
		var n note
		if err := hear(client, &n); err != nil {
			return nil, err
		}
		switch {
		case n.Error != "":
			return nil, fmt.Errorf("bench: %s", n.Error)
		case n.Result != nil:
			r := &Result{}
			hostInfo(r, c)
			for _, name := range n.Result.Names() {
				r.Set(name, n.Result.Get(name))
			}
			return r, nil
		case n.Aside != "":
			c.aside(n.Aside)
		case c.Progress != nil:
			c.Progress(n.Text, n.Done)
		}
	}
}

// aside tells what cannot be measured.
func (c *Config) aside(text string) {
	if c.Aside != nil {
		c.Aside(text)
	}
}

// machine says where the figures were taken.
func machine(r *Result) {
	r.Set("cpu", "unknown") // some kernels do not say
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				r.Set("cpu", strings.TrimSpace(v))
				break
			}
		}
	}
	r.Set("cores", runtime.NumCPU())
	r.Set("os", runtime.GOOS+"/"+runtime.GOARCH)
	r.Set("go", runtime.Version())
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		r.Set("kernel", unix.ByteSliceToString(u.Release[:]))
	}
}
