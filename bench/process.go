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

// start starts this program in a role on a CPU; -1: any. The child inherits the
// CPU from the thread that starts it, so its Go runtime sees only that one.
func start(ctx context.Context, c *Config, spec role, cpu int) (*child.Process, error) {
	var p *child.Process
	if err := onCPU(cpu, func() (err error) {
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

// cpu is where the process of an index runs, 0 being the client; -1: anywhere.
func (c *Config) cpu(process int) int {
	switch {
	case !c.Pin:
		return -1
	case c.SameCPU:
		return sharedCPU
	case c.Kind == "ring" || c.Kind == "rounds":
		return process % 2
	}
	return min(process, 1)
}

// sharedCPU is where all processes run that are to share one: not the first,
// which has most of a machine's interrupts.
const sharedCPU = 1

// pinning says where the processes run.
func (c *Config) pinning() string {
	switch {
	case !c.Pin:
		return "none"
	case c.SameCPU:
		return fmt.Sprintf("all on cpu %d", sharedCPU%runtime.NumCPU())
	case c.Kind == "ring" || c.Kind == "rounds":
		return "cpu 0 and cpu 1 in turn"
	}
	return "client cpu 0, servers cpu 1"
}

// onCPU runs f on a thread bound to one CPU.
func onCPU(cpu int, f func() error) error {
	if cpu < 0 {
		return f()
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		var set unix.CPUSet
		set.Set(cpu % runtime.NumCPU())
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			result <- fmt.Errorf("bench: pin to CPU %d: %w (run without --pin)", cpu, err)
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
	r, err := run(ctx, &c)
	if err != nil && ctx.Err() != nil { // the processes were killed for that
		return nil, fmt.Errorf("bench: %s: %w", c.Kind, context.Cause(ctx))
	}
	return r, err
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
	spec := role{Kind: c.Kind, Transport: c.Transport, Policy: c.Policy, Rows: c.Rows, Count: c.Servers, Depth: c.Depth, Rounds: c.Rounds,
		Inflight: c.Inflight, Bytes: c.Bytes, WithSends: c.WithSends, SmallText: c.SmallText, Apart: !c.SameCPU && runtime.NumCPU() > 1, Seed: rand.Uint64()}
	if c.TLS {
		if spec.TLS, err = credentials(dir); err != nil {
			return nil, err
		}
	}
	var servers []*child.Process
	defer func() {
		for _, s := range servers {
			s.End()
		}
	}()
	for i := range c.Servers {
		s := spec
		s.Role, s.Index, s.Name = "server", i, fmt.Sprintf("server%d", i)
		s.Listen = "tcp://127.0.0.1:0"
		if c.Transport == "shm" {
			s.Listen = "shm://" + filepath.Join(dir, s.Name+".sock")
		}
		s.CacheDir = filepath.Join(dir, s.Name)
		s.Profile = profileFile(c, s.Name)
		p, err := start(ctx, c, s, c.cpu(i+1))
		if err != nil {
			return nil, err
		}
		servers = append(servers, p)
		var info serverInfo
		if err := hear(p, &info); err != nil {
			return nil, err
		}
		if info.Error != "" {
			return nil, fmt.Errorf("bench: %s: %s", s.Name, info.Error)
		}
		spec.Servers = append(spec.Servers, info)
	}
	spec.Role, spec.Name, spec.Profile = "client", "client", profileFile(c, "client")
	client, err := start(ctx, c, spec, c.cpu(0))
	if err != nil {
		return nil, err
	}
	defer client.End()
	return collect(client, c)
}

// note is what a client says while it measures, and at the end.
type note struct {
	Text   string
	Done   float64
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
		case c.Progress != nil:
			c.Progress(n.Text, n.Done)
		}
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
