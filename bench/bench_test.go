package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/schemes"
	"github.com/wherry-fabric/wherry/inject/llvm"
	"github.com/wherry-fabric/wherry/inject/native"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/internal/libllvm"
	"github.com/wherry-fabric/wherry/internal/vm"
)

// withCompiler puts this program on PATH as the compiler, for processes that are started.
func withCompiler(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	dir := t.TempDir()
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, llvm.Program))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestMain doubles as the benchmark's processes.
func TestMain(m *testing.M) {
	native.Main()
	if filepath.Base(os.Args[0]) == llvm.Program {
		if err := libllvm.Serve("", false); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "compile-wasm" {
		if err := wasm.ServeCompiler(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "role" {
		if err := Role(context.Background(), os.Stdin, os.Stdout, schemes.All(), smallGraph); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// arrowPython is the Python with pyarrow and DuckDB that scripts/test-tools.sh installs.
func arrowPython() string {
	cache, _ := os.UserCacheDir()
	return filepath.Join(cache, "wherry-test", "python-tables-1", "bin", "python")
}

// workersFields are those of several workers: none where there is one CPU for all.
func workersFields() []string {
	if runtime.NumCPU() < workers {
		return nil
	}
	return []string{"sum_workers2_over_1", "workers2_over_1"}
}

// TestRun runs each benchmark, short, and looks at its fields: that they are
// there and possible. How large they are is no test's business.
func TestRun(t *testing.T) {
	withCompiler(t)
	var runs []*Result
	all := []struct {
		Config
		fields []string
	}{
		{Config{Kind: "verbs", Transport: "shm", Rounds: 2000}, []string{"send_rtt_ns_p50", "get_8b_ns_p50", "put_8b_ns_p50", "fetch_add_ns_p50", "allocs_per_op", "segment_bytes"}},
		{Config{Kind: "verbs", Transport: "tcp", Rounds: 1000}, []string{"send_rtt_ns_p50", "get_8b_ns_p50"}},
		{Config{Kind: "verbs", Transport: "tcp", TLS: true, Rounds: 1000}, []string{"send_rtt_ns_p50", "get_8b_ns_p50"}},
		{Config{Kind: "chase", Transport: "tcp", Servers: 4, Rounds: 40}, []string{"inject_over_get", "inject_over_am", "header_bytes", "first_use_us"}},
		{Config{Kind: "chase", Transport: "shm", Servers: 1, Rounds: 40}, []string{"window_ns_per_hop", "native_ns_per_hop", "window_ns_per_hop_256k", "window_bytes", "window_bytes_256k", "table_bytes"}},
		{Config{Kind: "chase", Transport: "shm", Servers: 4, Rounds: 40, Rows: 17}, []string{"inject_over_get", "inject_over_am"}},
		{Config{Kind: "inject", Transport: "shm", Rounds: 1000}, []string{"cached_rtt_ns_p50", "send_rtt_ns_p50"}},
		{Config{Kind: "inject", Transport: "shm", Rounds: 40, Form: "elf"}, []string{"inject_over_send_ns", "first_use_us"}},
		{Config{Kind: "inject", Transport: "shm", Rounds: 40, Form: "elf", Native: "in-process"}, []string{"inject_over_send_ns", "first_use_us"}},
		{Config{Kind: "inject", Transport: "shm", Rounds: 40, Form: "bitcode"}, []string{"inject_over_send_ns", "first_use_us", "disk_use_us"}},
		{Config{Kind: "chase", Transport: "shm", Servers: 2, Rounds: 40, Form: "auto"}, []string{"inject_over_get", "inject_over_am"}},
		{Config{Kind: "scan", Transport: "shm", Rounds: 2}, []string{"bitcode_over_native", "auto_over_native", "native_ms_p50"}},
		{Config{Kind: "scan", Transport: "shm", Rounds: 1, GiB: 1}, []string{"gbytes_per_s", "scan_ms_p50", "parts"}},
		{Config{Kind: "hostile", Transport: "shm", Rounds: 1, Form: "wasm"}, []string{"slice_ms_max", "slice_cpu_ms_max", "compile_ms_max", "compile_beside_ms", "stalled_ms_max", "rss_mib_max", "charged_mib_max", "rss_over_charged", "rss_uncharged_mib_max", "others_calls", "places_full", "dial_ms_p99"}},
		{Config{Kind: "hostile", Transport: "shm", Rounds: 1, Form: "bitcode"}, []string{"slice_ms_max", "compile_ms_max", "stalled_ms_max", "rss_over_charged", "rss_uncharged_mib_max", "others_calls", "places_full", "dial_ms_p99"}},
		{Config{Kind: "query", Transport: "shm", Servers: 2, Rounds: 1, Rows: 1 << 16, Python: arrowPython()}, append(workersFields(), "sum_over_duckdb", "group2m_over_duckdb", "equal", "client_mib_peak", "ms")},
		{Config{Kind: "load", Transport: "shm", Rounds: 1, Rows: 1 << 14, Python: arrowPython()}, []string{"over_duckdb", "over_polars", "mbytes_per_s", "peak_over_data", "rows"}},
		{Config{Kind: "codegen", Transport: "tcp", Servers: 2, Rounds: 2, Rows: 1 << 14}, []string{"made_over_interpreted", "made_ms_p50", "interpreted_ms_p50", "first_made_ms_p50", "rows"}},
		{Config{Kind: "crowd", Transport: "shm", Rounds: 1, Calls: 40}, []string{"calls", "failed", "over_serial", "calls_per_s", "calls_per_s_of_8", "calls_per_s_serial"}},
		{Config{Kind: "rpc", Transport: "shm", Rounds: 1000}, []string{"rtt_ns_p50", "rtt_ns_p99", "calls_per_s", "callers", "allocs_per_op"}},
		{Config{Kind: "rpc", Transport: "tcp", Rounds: 200, Callers: 4}, []string{"rtt_ns_p50", "rtt_ns_p99", "calls_per_s", "calls_per_s_min", "callers"}},
		{Config{Kind: "rpc", Transport: "tcp", Rounds: 200, Callers: 16, Inline: true, ServerCPUs: 2}, []string{"rtt_ns_p50", "calls_per_s"}},
		{Config{Kind: "rpc", Transport: "shm", Rounds: 1000, Inflight: 1, Inline: true}, []string{"rtt_ns_p50", "rtt_ns_p99", "calls_per_s", "inflight", "allocs_per_op"}},
		{Config{Kind: "rpc", Transport: "tcp", Rounds: 2000, Inflight: 64}, []string{"rtt_ns_p50", "rtt_ns_p99", "calls_per_s", "calls_per_s_unheld"}},
		{Config{Kind: "rpc", Transport: "shm", Rounds: 5000, Inflight: MaxInflight}, []string{"calls_per_s"}},
		{Config{Kind: "rpc", Transport: "shm", Rounds: 1000, SameCPU: true}, []string{"rtt_ns_p50"}},
		{Config{Kind: "rpc", Transport: "tcp", Rounds: 100, Callers: 2, Bytes: 8193}, []string{"rtt_ns_p50", "calls_per_s", "payload_bytes"}},
		{Config{Kind: "rpc", Transport: "shm", Rounds: 640, Inflight: 64, Bytes: 65536, Inline: true}, []string{"rtt_ns_p50", "calls_per_s", "payload_bytes"}},
		{Config{Kind: "rpc", Transport: "shm", Rounds: 40, Bytes: 1}, []string{"rtt_ns_p50", "payload_bytes"}},
		{Config{Kind: "rpc", Transport: "tcp", Rounds: 40, Callers: 2, BesideLoad: true}, []string{"calls_per_s", "busy_loops", "busy_loops_share"}},
		{Config{Kind: "rpc", Transport: "tcp", Turn: 5 * time.Millisecond, BesideLoad: true}, []string{"calls_per_s", "busy_loops"}},
		{Config{Kind: "rpc", Transport: "shm", Turn: 20 * time.Millisecond, Processes: 3}, []string{"processes", "calls_per_s", "one_process_calls_per_s", "over_one", "least_over_most", "rtt_ns_p50"}},
		{Config{Kind: "pool", Transport: "shm", Rounds: 200}, []string{"get_4k_ns_p50", "put_4k_ns_p50", "verb_get_4k_ns_p50", "verb_put_4k_ns_p50", "gather_64_us_p50", "gets_64_us_p50", "get_over_verb", "gather_over_gets"}},
		{Config{Kind: "pool", Transport: "tcp", Rounds: 200}, []string{"get_4k_ns_p50", "put_4k_ns_p50", "gather_64_us_p50", "gets_64_us_p50"}},
		{Config{Kind: "dev", Transport: "shm", Rounds: 200}, []string{"read_4k_ns_p50", "pread_4k_ns_p50", "write_4k_ns_p50", "mapped_iops_32", "read_over_get", "sum_over_one", "min_over_max"}},
		{Config{Kind: "dev", Transport: "shm", Faults: true}, []string{"reclaim_ms_p50", "reclaim_ms_p99", "kills", "idle_cpu_percent"}},
		{Config{Kind: "dev", Transport: "shm", Front: FrontNBD, Rounds: 1}, []string{"iops_1", "nbdkit_iops_1", "iops_1_over_nbdkit", "iops_32", "nbdkit_iops_32", "iops_32_over_nbdkit"}},
		{Config{Kind: "dev", Transport: "shm", Front: FrontGuest, Rounds: 1}, []string{"hot_add_ms_p50", "return_ms_p50", "idle_cpu_percent", "iops_32", "nvmet_iops_32", "qemu_iops_32", "iops_32_over_nvmet", "iops_32_over_qemu"}},
		{Config{Kind: "dev", Transport: "tcp", Rounds: 200}, []string{"read_4k_ns_p50", "get_4k_ns_p50", "far_iops_32"}},
		{Config{Kind: "bulk", Transport: "shm", Rounds: 40, Call: 1 << 20}, []string{"gbytes_per_s", "over_memcpy", "memcpy_gbytes_per_s", "rtt_ns_p50", "request_gbytes_per_s", "request_over_memcpy"}},
		{Config{Kind: "bulk", Transport: "tcp", Rounds: 40, Call: 100_001, Inline: true}, []string{"gbytes_per_s", "over_memcpy"}},
		{Config{Kind: "bulk", Transport: "shm", Rounds: 40, WithSends: true}, []string{"get_gbytes_per_s", "put_gbytes_per_s", "memcpy_gbytes_per_s", "send_rtt_ns_p99", "bytes"}},
		{Config{Kind: "bulk", Transport: "tcp", Rounds: 40, Bytes: 300_001, WithSends: true}, []string{"get_gbytes_per_s", "put_gbytes_per_s", "send_rtt_ns_p99", "puts_beside"}},
		{Config{Kind: "excache", Transport: "shm", Rounds: 500}, []string{"miss_4k_us_p50", "miss_64k_us_p50", "seq_gbytes_per_s", "misses_over_fifo", "allocs_per_miss", "get_4k_us_p50",
			"floor_4k_us_p50", "floor_64k_us_p50", "floor_seq_gbytes_per_s", "miss_4k_over_floor", "miss_64k_over_floor", "seq_over_floor"}},
		{Config{Kind: "excache", Transport: "tcp", Rounds: 100}, []string{"miss_4k_us_p50", "get_4k_us_p50", "floor_4k_us_p50", "miss_4k_over_floor"}},
		{Config{Kind: "ring", Transport: "shm", Rounds: 400}, []string{"hops_per_s", "hops"}},
		{Config{Kind: "rounds", Transport: "shm", Rounds: 3, Elements: 10}, []string{"path_ms_p50", "dependents_ms_p50", "path_over_few", "dependents_over_few", "vertices"}},
		{Config{Kind: "ring", Transport: "tcp", Rounds: 100, Elements: 2}, []string{"hops_per_s", "hops"}},
	}
	for _, c := range all {
		t.Run(fmt.Sprintf("%s-%s", c.Kind, c.Transport), func(t *testing.T) {
			if c.Pin = c.Front == ""; !slices.Contains([]string{"chase", "crowd", "scan", "hostile", "codegen"}, c.Kind) && c.Front == "" && (c.Kind != "rpc" || c.Inflight > 0) { // as the commands have it
				c.Policy = fabric.Latency
			}
			c.Command, c.WasmCompiler = []string{os.Args[0], "role"}, []string{os.Args[0], "compile-wasm"}
			if c.Front == FrontGuest {
				needGuest(t)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			r, err := Run(ctx, c.Config)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s", text)
			wants := runtime.NumCPU() > 1 && !c.SameCPU && (c.Kind == "verbs" || c.Inflight == 1)
			if has := r.Get("floor_rtt_ns_p50") != nil; has != wants {
				t.Errorf("it has a floor: %t, want %t", has, wants)
			}
			for _, f := range c.fields {
				if n, err := strconv.ParseFloat(fmt.Sprint(r.Get(f)), 64); err != nil || n < 0 && f != "inject_over_send_ns" || n == 0 && strings.HasSuffix(f, "_per_s") {
					t.Errorf("%s is %v (%v)", f, r.Get(f), err)
				}
			}
			if right := r.Get("right"); (c.GiB > 0) != (right == true) {
				t.Errorf("the answer is right: %v", right)
			}
			handler := map[bool]string{false: "blocking", true: "inline"}[c.Inline]
			if got := r.Get("handler"); c.Kind == "rpc" && (got != handler || (r.Get("callers") != nil) != (c.Inflight == 0 && c.Processes == 0)) {
				t.Errorf("handler %v, want %s; callers %v and inflight %v", got, handler, r.Get("callers"), r.Get("inflight"))
			}
			if share := r.float("busy_loops_share"); c.BesideLoad && (share <= 0 || share > 1.01) { // they are not one clock
				t.Errorf("busy loops had %v of their CPUs", share)
			}
			if r.float("least_over_most") > 1 || r.float("least_over_most_min") > r.float("least_over_most") {
				t.Errorf("the process with fewest calls has %v of the one with most, in the worst turn %v", r.Get("least_over_most"), r.Get("least_over_most_min"))
			}
			if h, ok := r.Get("header_bytes").(json.Number); ok {
				if n, err := h.Int64(); err != nil || n < 1 || n > 26 {
					t.Errorf("a cached injection has %s bytes of header (%v)", h, err)
				}
			}
			runs = append(runs, r)
		})
	}
	if len(runs) == len(all) {
		documented(t, runs)
	}
}

// needGuest skips where there are no tools for a guest.
func needGuest(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the guest is amd64's, as its tools are")
	}
	if _, err := vm.Find(); err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	} else if err != nil {
		t.Skip(err)
	}
}

// TestNoFaultFloor: without a compiler for C, or where its program fails, misses are measured all the same, without a floor, and somebody hears why.
func TestNoFaultFloor(t *testing.T) {
	none, fails := t.TempDir(), t.TempDir()
	for dir, script := range map[string]string{none: "echo no such compiler >&2; exit 9", fails: `echo 'int main(void) { return 7; }' >"$4".7.c; exec "$REAL_CLANG" -o "$3" "$4".7.c`} {
		if err := os.WriteFile(filepath.Join(dir, "clang"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	compiler, err := exec.LookPath("clang")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("REAL_CLANG", compiler)
	path := os.Getenv("PATH")
	for dir, why := range map[string]string{none: "no such compiler", fails: "exit status 7"} {
		t.Setenv("PATH", dir+":"+path)
		var told []string
		r, err := Run(t.Context(), Config{Kind: "excache", Transport: "shm", Rounds: 100, Pin: true, Command: []string{os.Args[0], "role"}, Aside: func(text string) { told = append(told, text) }})
		if err != nil {
			t.Fatal(err)
		}
		if len(told) != 1 || !strings.Contains(told[0], "no floor") || !strings.Contains(told[0], why) {
			t.Errorf("it tells %q, want one line with %q", told, why)
		}
		if r.Get("miss_4k_us_p50") == nil || slices.ContainsFunc(r.Names(), func(name string) bool { return strings.Contains(name, "floor") }) {
			t.Errorf("the fields are %q", r.Names())
		}
	}
}

// smallGraph is a random one.
func smallGraph() (*Graph, error) {
	const n = 500
	r := rand.New(rand.NewPCG(1, 2))
	var rows [2][n][]uint32
	for range 2 * n {
		from, to := r.Uint32N(n), r.Uint32N(n)
		rows[0][from], rows[1][to] = append(rows[0][from], to), append(rows[1][to], from)
	}
	g := &Graph{}
	for d := range rows {
		g.Offsets[d] = []uint64{0}
		for _, row := range rows[d] {
			g.Targets[d] = append(g.Targets[d], row...)
			g.Offsets[d] = append(g.Offsets[d], uint64(len(g.Targets[d])))
		}
	}
	return g, nil
}

// TestDeepFolder: a folder for temporary files that is too deep for a socket's path does not end a benchmark.
func TestDeepFolder(t *testing.T) {
	deep := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", deep)
	if _, err := Run(t.Context(), Config{Kind: "ring", Elements: 2, Transport: "shm", Rounds: MinRounds("ring"), Command: []string{os.Args[0], "role"}}); err != nil {
		t.Error(err)
	}
}

// TestOwnerOf: the deployed chase sends each row to who has it, however they are divided.
func TestOwnerOf(t *testing.T) {
	for rows := 1; rows < 70; rows++ {
		for count := 1; count < 9; count++ {
			spec := &role{Rows: rows, Count: count}
			owner, shards := ownerOf(spec), sharding(spec)
			for row := range uint64(rows) {
				if want, _, ok := shards.Owner(row); !ok || owner(row) != int(want) {
					t.Fatalf("row %d of %d at %d servers: sent to %d, and is at %d", row, rows, count, owner(row), want)
				}
			}
		}
	}
}

// documented holds results against docs/cli.md: the fields that it says every benchmark has are those
// that all have, and where it names fields to look at, they are there.
func documented(t *testing.T, runs []*Result) {
	text, err := os.ReadFile("../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, doc, _ := strings.Cut(string(text), "Every benchmark has these fields:")
	doc, _, _ = strings.Cut(doc, "\n#")
	code := regexp.MustCompile("`([a-z0-9_]+)`")
	var says []string
	rows := 0
	for line := range strings.Lines(doc) {
		cells := strings.Split(strings.ReplaceAll(line, "\\|", "/"), "|")
		if len(cells) < 4 {
			continue
		}
		if kind, ok := strings.CutPrefix(cells[1], " `bench "); ok {
			rows++
			kind, _, _ = strings.Cut(strings.TrimRight(kind, "` "), " ")
			for _, f := range code.FindAllStringSubmatch(cells[3], -1) {
				if !slices.ContainsFunc(runs, func(r *Result) bool { return r.Get("benchmark") == kind && r.Get(f[1]) != nil }) {
					t.Errorf("bench %s has no field %s, which docs/cli.md names", kind, f[1])
				}
			}
		} else if rows == 0 {
			for _, f := range code.FindAllStringSubmatch(cells[1], -1) {
				says = append(says, f[1])
			}
		}
	}
	common := slices.DeleteFunc(slices.Clone(runs[0].Names()), func(name string) bool {
		return slices.ContainsFunc(runs, func(r *Result) bool { return r.Get(name) == nil })
	})
	slices.Sort(says)
	slices.Sort(common)
	if !slices.Equal(says, common) || rows != 29 {
		t.Errorf("docs/cli.md says that every benchmark has the fields\n%q, they have\n%q (%d rows of fields to look at)", says, common, rows)
	}
}

// TestValidate: what cannot be measured is refused before anything starts.
// TestRunIsEnded: whoever ends a benchmark, or has no time left for it, hears that and not how its processes died.
func TestRunIsEnded(t *testing.T) {
	for _, c := range []struct {
		end  func(context.Context) (context.Context, context.CancelFunc)
		want error
	}{
		{func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Millisecond)
		}, context.DeadlineExceeded},
		{func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(100*time.Millisecond, cancel)
			return ctx, cancel
		}, context.Canceled},
	} {
		ctx, cancel := c.end(t.Context())
		r, err := Run(ctx, Config{Kind: "verbs", Transport: "tcp", Rounds: 10_000_000, Command: []string{os.Args[0], "role"}})
		cancel()
		if r != nil || !errors.Is(err, c.want) {
			t.Errorf("%v, %v; want %v", r, err, c.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		edit func(*Config)
		says string
	}{
		{func(c *Config) { c.Transport = "pigeon" }, "only shm and tcp"},
		{func(c *Config) { c.Servers = -1 }, "servers"},
		{func(c *Config) { c.Depth = -1 }, "depth"},
		{func(c *Config) { c.Rows = 1 }, "rows"},
		{func(c *Config) { c.Rounds = -1 }, "rounds"},
		{func(c *Config) { c.Kind, c.GiB = "scan", MaxGiB+1 }, "between 1 and 10"},
		{func(c *Config) { c.Kind, c.GiB, c.Native = "scan", 1, "worker" }, "--native with --gib"},
		{func(c *Config) { c.Rounds = 3 }, "between 40"},
		{func(c *Config) { c.Kind, c.Rounds = "inject", 3 }, "between 20"},
		{func(c *Config) { c.Kind, c.Rounds = "chase", 3 }, "between 20"},
		{func(c *Config) { c.Rounds = MaxRounds + 1 }, "rounds"},
		{func(c *Config) { c.Command = nil }, "Command"},
		{func(c *Config) { c.Inflight = MaxInflight + 1 }, "in flight"},
		{func(c *Config) { c.Callers = -1 }, "callers"},
		{func(c *Config) { c.Callers = MaxInflight + 1 }, "callers"},
		{func(c *Config) { c.Callers, c.Inflight = 2, 2 }, "one or the other"},
		{func(c *Config) { c.ServerCPUs = 3 }, "1 or 2"},
		{func(c *Config) { c.ServerCPUs = 2 }, "no pinning"},
		{func(c *Config) { c.Pin, c.SameCPU, c.ServerCPUs = true, true, 2 }, "all processes on one"},
		{func(c *Config) { c.Bytes = -1 }, "bytes"},
		{func(c *Config) { c.Kind, c.Bytes = "rpc", MaxCallBytes+1 }, "requests of 16777217 bytes"},
		{func(c *Config) { c.Kind, c.Bytes, c.Callers = "rpc", MaxCallBytes, 65 }, "bytes together"},
		{func(c *Config) { c.Processes = -1 }, "client processes"},
		{func(c *Config) { c.Processes = MaxProcesses + 1 }, "client processes"},
		{func(c *Config) { c.Processes, c.Callers = 2, 2 }, "each process has one caller"},
		{func(c *Config) { c.Processes, c.Inflight = 2, 1 }, "each process has one caller"},
		{func(c *Config) { c.Processes, c.Rounds = 2, 1000 }, "--turn"},
		{func(c *Config) { c.Turn = -1 }, "a turn of"},
		{func(c *Config) { c.Turn = time.Microsecond }, "a turn of"},
		{func(c *Config) { c.Turn = MaxTurn + 1 }, "a turn of"},
		{func(c *Config) { c.Turn, c.Rounds = time.Second, 1000 }, "one or the other"},
		{func(c *Config) { c.Call = -1 }, "answers of"},
		{func(c *Config) { c.Call = MaxCallBytes + 1 }, "answers of"},
		{func(c *Config) { c.Call, c.Bytes = 1000, 2000 }, "one or the other"},
		{func(c *Config) { c.Call, c.WithSends = 1000, true }, "one or the other"},
		{func(c *Config) { c.Elements = 1 }, "ring"},
		{func(c *Config) { c.Kind, c.Elements = "rounds", 3 }, "rounds of 3"},
		{func(c *Config) { c.SameCPU = true }, "pinning"},
		{func(c *Config) { c.TLS = true }, "TLS over shm"},
		{func(c *Config) { c.Front = FrontNBD }, "dev has the fronts"},
		{func(c *Config) { c.Kind, c.Front = "dev", "tape" }, "dev has the fronts"},
		{func(c *Config) { c.Kind, c.Front, c.Faults = "dev", FrontNBD, true }, "one or the other"},
		{func(c *Config) { c.Kind, c.Form = "inject", "java" }, "none of auto, wasm, bitcode, elf"},
		{func(c *Config) { c.Kind, c.Form, c.Native = "inject", "elf", "off" }, "native \"off\""},
		{func(c *Config) { c.Kind, c.Native = "hostile", "in-process" }, "nothing contains"},
		{func(c *Config) { c.Kind, c.Native = "inject", "worker" }, "--form"},
	} {
		ok := Config{Kind: "verbs", Transport: "shm", Command: []string{"x"}}
		if err := ok.Validate(); err != nil {
			t.Fatal(err)
		}
		ok = Config{Kind: "verbs", Transport: "shm", Command: []string{"x"}} // without the defaults that are filled in
		c.edit(&ok)
		if err := ok.Validate(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", ok, err)
		}
	}
}

// TestFewestRounds: the fewest that are taken give figures for everything.
func TestFewestRounds(t *testing.T) {
	for _, kind := range []string{"verbs", "inject", "rpc", "bulk", "pool", "ring"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := Run(ctx, Config{Kind: kind, Transport: "shm", Rounds: MinRounds(kind), Command: []string{os.Args[0], "role"}})
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestGivenUp: whoever gives up hears that, and not how the processes ended of it.
func TestGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(300*time.Millisecond, cancel).Stop()
	_, err := Run(ctx, Config{Kind: "verbs", Transport: "shm", Rounds: MaxRounds, Command: []string{os.Args[0], "role"}})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestRingRounds: a ring of four is measured as it ever was, one of dozens in a tenth of the rounds, and as long as asked for.
func TestRingRounds(t *testing.T) {
	for _, c := range []struct{ elements, given, want int }{{4, 0, 200_000}, {40, 0, 20_000}, {2, 0, 400_000}, {MaxElements, 0, 12_500}, {40, 77, 77}} {
		if got := ringRounds(&role{Count: c.elements - 1, Rounds: c.given}); got != c.want {
			t.Errorf("%d elements, --rounds %d: %d rounds, want %d", c.elements, c.given, got, c.want)
		}
		if c.want < MinRounds("ring") || c.want > MaxRounds {
			t.Errorf("%d elements: %d rounds", c.elements, c.want)
		}
	}
}

// TestServerKilled: a benchmark whose server dies says so, and does not wait for it.
func TestServerKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	killed := make(chan error, 1)
	c := Config{Kind: "ring", Elements: 3, Transport: "shm", Rounds: 400_000, Command: []string{os.Args[0], "role"}}
	var once sync.Once
	c.Progress = func(string, float64) { once.Do(func() { killed <- killChild() }) }
	_, err := Run(ctx, c)
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "lost server") {
		t.Errorf("%v", err)
	}
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
}

// killChild kills this process's oldest child: server 0 of a benchmark.
func killChild() error {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return err
	}
	oldest := math.MaxInt
	for _, path := range stats {
		text, _ := os.ReadFile(path) // it may have ended
		var pid, parent int
		var state rune
		head, rest, ok := strings.Cut(string(text), ") ") // the name, in parentheses, has none in it: it is ours
		if _, err := fmt.Sscanf(head, "%d", &pid); !ok || err != nil {
			continue
		}
		if _, err := fmt.Sscanf(rest, "%c %d", &state, &parent); err == nil && parent == os.Getpid() {
			oldest = min(oldest, pid)
		}
	}
	if oldest == math.MaxInt {
		return errors.New("no child")
	}
	return syscall.Kill(oldest, syscall.SIGKILL)
}

// TestNoFigure: what is no number is no field.
func TestNoFigure(t *testing.T) {
	for _, f := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
		var r Result
		r.Set("good", 1.5)
		r.Set("per_second", f)
		r.Set("other", f)
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), "per_second") || len(r.Names()) != 1 {
			t.Errorf("%v: %v, %v", f, err, r.Names())
		}
		if _, err := json.Marshal(&r); err == nil || !strings.Contains(err.Error(), "rounds") {
			t.Errorf("%v: %v", f, err)
		}
	}
}
