// Package doctor finds out what a machine can and cannot do for wherry, and
// what to do about it. It only looks: nothing is changed.
package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/llvm"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/internal/memfd"
	"github.com/wherry-fabric/wherry/internal/sockdir"
)

// State is how a check came out.
type State string

const (
	Good    State = "ok"
	Limited State = "limited" // works, with less
	Missing State = "missing" // a part of wherry does not work here
)

// Check is one thing looked at.
type Check struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail"`
	// Do says what would help, if anything is wrong.
	Do string `json:"do,omitempty"`
	// For says what needs it.
	For   string `json:"for"`
	vital bool   // wherry cannot do without
}

// Run looks at everything, these transports among it. The context bounds it; it takes well under a second.
func Run(ctx context.Context, schemes fabric.Schemes) []Check {
	all := []Check{cpus(ctx), clock(ctx), memory(ctx), segments(ctx)}
	for i := range schemes {
		all = append(all, transport(ctx, &schemes[i]))
	}
	for _, f := range []func(context.Context) Check{mappings, descriptors, compiler, guestCompiler, bitcode, watching, allocator, groups, swapping, disks, direct, guests, virtual, rdma, gpu, sandbox} {
		all = append(all, f(ctx))
	}
	return all
}

// Works reports whether nothing that wherry cannot do without is missing.
func Works(checks []Check) bool {
	for _, c := range checks {
		if c.State == Missing && c.vital {
			return false
		}
	}
	return true
}

func cpus(context.Context) Check {
	c := Check{Name: "processors", State: Good, For: "polling for answers", Detail: fmt.Sprintf("%d, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)}
	if runtime.NumCPU() < 2 {
		c.State, c.Do = Limited, "with one processor use --policy efficient: polling would keep the peer from answering"
	}
	return c
}

func clock(context.Context) Check {
	b, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	source := strings.TrimSpace(string(b))
	if err != nil {
		source = "unknown"
	}
	return judgeClock(source, readingTime(time.Now))
}

const (
	// clockBatches and clockReadings are how often the clock is read. A batch takes some
	// 10 µs, so that of this many one at least runs undisturbed on a busy machine.
	clockBatches, clockReadings = 50, 100
	// slowClock is more than the vDSO takes anywhere, and less than a system call that asks a timer chip.
	slowClock = 200 * time.Nanosecond
)

// readingTime is what one reading of a clock takes when nothing else is in its way.
func readingTime(now func() time.Time) time.Duration {
	least := time.Duration(math.MaxInt64)
	for range clockBatches {
		start := now()
		for range clockReadings - 1 {
			now()
		}
		least = min(least, now().Sub(start)/clockReadings)
	}
	return least
}

// quickClocks are the kernel's clock sources that are read without a system call.
var quickClocks = [...]string{"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "riscv_clocksource"}

func judgeClock(source string, each time.Duration) Check {
	c := Check{Name: "clock", State: Good, For: "latency figures and deadlines", Detail: fmt.Sprintf("source %s, %v a reading", source, each)}
	if each <= slowClock {
		return c
	}
	c.State, c.Do = Limited, "the clock takes a system call to read; set the kernel's clocksource to tsc or kvm-clock"
	if slices.Contains(quickClocks[:], source) {
		c.Do = "nothing to set: this source needs no system call; look again when the machine is less busy. If it stays so, an emulator, a tracer or the kernel's vdso=0 is in the way"
	}
	return c
}

func memory(context.Context) Check {
	c := Check{Name: "memory", State: Good, For: "segments that are lent"}
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return Check{Name: c.Name, State: Limited, Detail: err.Error(), For: c.For}
	}
	free := uint64(si.Freeram+si.Bufferram) * uint64(si.Unit)
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
				if kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64); err == nil {
					free = kb << 10
				}
			}
		}
	}
	c.Detail = fmt.Sprintf("%.1f GiB available of %.1f", gib(free), gib(uint64(si.Totalram)*uint64(si.Unit)))
	if limit, ok := cgroupLimit(); ok {
		c.Detail += fmt.Sprintf(", limited to %.1f GiB by the control group", gib(limit))
	}
	if free < 1<<30 {
		c.State, c.Do = Limited, "lend little (memory: in the node's configuration): segments are memory, and it is short here"
	}
	return c
}

func gib(n uint64) float64 { return float64(n) / (1 << 30) }

func cgroupLimit() (uint64, bool) {
	b, err := os.ReadFile("/sys/fs/cgroup/memory.max")
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

func segments(context.Context) Check {
	c := Check{Name: "segments", State: Good, vital: true, For: "memory that peers and functions reach", Detail: "memfd with seals, F_SEAL_FUTURE_WRITE included"}
	f, err := memfd.Create("wherry-doctor", 64<<10, true)
	if err != nil {
		c.State, c.Detail, c.Do = Missing, err.Error(), "wherry needs Linux 5.1 or later with memfd_create; in a container, allow that system call"
		return c
	}
	f.Close()
	return c
}

// transport looks whether an element of this process can be dialled over a transport.
func transport(ctx context.Context, s *fabric.Scheme) Check {
	c := Check{Name: s.Probe, State: Good, For: s.For, Detail: "a link to this process itself works", vital: s.Vital}
	dir, err := sockdir.Make("wherry-doctor-")
	if err == nil {
		defer os.RemoveAll(dir)
	}
	if err == nil || !s.Local() {
		err = dialSelf(ctx, s, dir)
	}
	if err != nil {
		c.State, c.Detail, c.Do = Missing, err.Error(), s.Do
	}
	return c
}

func dialSelf(ctx context.Context, s *fabric.Scheme, dir string) error {
	t, err := s.New(nil)
	if err != nil {
		return err
	}
	e, err := fabric.New(fabric.Config{Name: "doctor", Transports: []fabric.Transport{t}})
	if err != nil {
		return errors.Join(err, t.Close())
	}
	defer e.Close()
	bound, err := e.Listen(s.Here(dir, "s"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	ep, err := e.Dial(ctx, bound)
	if err != nil {
		return err
	}
	return ep.Flush(ctx)
}

func mappings(context.Context) Check {
	c := Check{Name: "mappings", State: Good, For: "windows: each is a mapping, and each function instance reserves 4 GiB of addresses"}
	b, err := os.ReadFile("/proc/sys/vm/max_map_count")
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	var lim unix.Rlimit
	if e := unix.Getrlimit(unix.RLIMIT_AS, &lim); err == nil {
		err = e
	}
	if err != nil {
		c.State, c.Detail = Limited, err.Error()
		return c
	}
	c.Detail = fmt.Sprintf("%d a process", n)
	switch {
	case lim.Cur != unix.RLIM_INFINITY && lim.Cur < 1<<40:
		c.State, c.Do = Limited, "the address space is limited (ulimit -v): remove the limit, or run few functions at once"
	case n < 65530:
		c.State, c.Do = Limited, "sysctl vm.max_map_count=262144"
	}
	return c
}

func descriptors(context.Context) Check {
	c := Check{Name: "descriptors", State: Good, For: "endpoints: one or two each; and, of at most half of them, windows of datasets: one each"}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		c.State, c.Detail = Limited, err.Error()
		return c
	}
	c.Detail = fmt.Sprintf("%d, at most %d", lim.Cur, lim.Max)
	if lim.Max < 8192 {
		c.State, c.Do = Limited, "raise the hard limit of open files (ulimit -Hn) for many endpoints and datasets"
	}
	return c
}

func compiler(context.Context) Check {
	c := Check{Name: "wasm", State: Good, For: "running functions"}
	e, err := wasm.New(wasm.Config{})
	if err != nil {
		c.State, c.Detail = Missing, err.Error()
		return c
	}
	defer e.Close()
	kind, why := e.Kind()
	c.Detail = kind
	if why != "" {
		c.State, c.Detail, c.Do = Limited, kind+": "+why, "functions run 10 to 100 times slower in the interpreter; use amd64 or arm64"
	}
	return c
}

func guestCompiler(ctx context.Context) Check {
	c := Check{Name: "clang", State: Good, For: "wherry fn build: compiling functions of your own"}
	var found []string
	for _, tools := range [][]string{{"clang", "clang-14", "clang-19"}, {"wasm-ld", "wasm-ld-14", "wasm-ld-19"}} {
		path := ""
		for _, t := range tools {
			if p, err := exec.LookPath(t); err == nil && path == "" {
				path = p
			}
		}
		if path == "" {
			return Check{Name: c.Name, State: Missing, Detail: tools[0] + " is not installed", Do: "apt-get install clang lld (the ready functions work without)", For: c.For}
		}
		found = append(found, path)
	}
	if out, err := exec.CommandContext(ctx, found[0], "--version").Output(); err == nil {
		line, _, _ := bytes.Cut(out, []byte("\n"))
		found[0] = string(line)
	}
	c.Detail = strings.Join(found, ", ")
	return c
}

func bitcode(context.Context) Check {
	c := Check{Name: "llvm", State: Good, For: "compiling functions that come as LLVM bitcode"}
	l := llvm.New(llvm.Config{})
	defer l.Close()
	version, err := l.Version()
	if err != nil {
		c.State, c.Detail, c.Do = Limited, err.Error(), "functions run as wasm; for bitcode put "+llvm.Program+" beside wherry and apt-get install libllvm22"
		return c
	}
	triple, cpu, features, err := l.Target()
	if err != nil {
		c.State, c.Detail = Limited, err.Error()
		return c
	}
	c.Detail = fmt.Sprintf("%s, for %s, %s with %d features", version, triple, cpu, len(features))
	return c
}

func rdma(context.Context) Check {
	c := Check{Name: "rdma", State: Good, For: "transport ucx: not used yet"}
	devices, _ := filepath.Glob("/sys/class/infiniband/*")
	if len(devices) == 0 {
		c.State, c.Detail, c.Do = Missing, "no RDMA device", "use tcp; a RoCE or InfiniBand adapter with its driver would show under /sys/class/infiniband"
		return c
	}
	for i := range devices {
		devices[i] = filepath.Base(devices[i])
	}
	c.Detail = strings.Join(devices, ", ")
	return c
}

func gpu(context.Context) Check {
	c := Check{Name: "gpu", State: Good, For: "borrowed compute devices: not used yet"}
	nodes, _ := filepath.Glob("/dev/nvidia[0-9]*")
	render, _ := filepath.Glob("/dev/dri/renderD*")
	nodes = append(nodes, render...)
	if len(nodes) == 0 {
		c.State, c.Detail, c.Do = Missing, "no accelerator", "nothing: nothing uses one yet"
		return c
	}
	c.Detail = strings.Join(nodes, ", ")
	return c
}

func sandbox(context.Context) Check {
	c := Check{Name: "landlock", State: Good, For: "workers for native code"}
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1)
	if errno != 0 {
		c.State, c.Detail, c.Do = Missing, errno.Error(), "a kernel with Landlock (lsm=landlock,…); functions in wasm do not need it"
		return c
	}
	c.Detail = fmt.Sprintf("ABI %d", abi)
	return c
}
