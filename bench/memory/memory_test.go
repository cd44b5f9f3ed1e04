package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/internal/memcg"
	"github.com/wherry-fabric/wherry/internal/uffd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPlan: what is asked for is checked before anything is begun.
func TestPlan(t *testing.T) {
	good := options{rounds: 1, sides: "local,shm,zram,shm", workloads: "scan,zipf"}
	p, err := good.plan(nil)
	if err != nil || fmt.Sprint(p.sides) != "[shm zram]" || len(p.workloads) != 2 || p.workloads[1].name != "zipf" {
		t.Errorf("%+v, %v", p, err)
	}
	for want, o := range map[string]options{
		"--rounds":           {sides: "shm", workloads: "scan"},
		`--sides: no "swap"`: {rounds: 1, sides: "swap", workloads: "scan"},
		`--workloads: no ""`: {rounds: 1, sides: "shm"},
	} {
		if _, err := o.plan(nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
	if _, err := good.plan([]string{"more"}); err == nil {
		t.Error("an argument too many")
	}
}

// TestWatch: a run that does nothing for long enough is noticed, one that goes on slowly is not.
func TestWatch(t *testing.T) {
	n := uint64(0)
	if err := watch(t.Context(), func() uint64 { return 7 }, time.Millisecond, 5*time.Millisecond); err == nil || !strings.Contains(err.Error(), "stood still") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := watch(ctx, func() uint64 {
		if n++; n == 40 {
			cancel()
		}
		return n / 3
	}, time.Millisecond, 5*time.Millisecond)
	if err != nil {
		t.Error(err)
	}
	const stat = "12 (a (b) c) S 1 12 12 0 -1 4194304 100 5 20 6 3 4 0 0 20 0 1"
	if got := counted(stat); got != 127 {
		t.Errorf("%d of %s", got, stat)
	}
	if counted("") != 0 || used([]int{os.Getpid()}) == 0 {
		t.Error("this process does nothing")
	}
}

// memory is a store in this process.
type memory []byte

func (m memory) Get(_ context.Context, p []byte, off uint64) error { copy(p, m[off:]); return nil }
func (m memory) Put(_ context.Context, p []byte, off uint64) error { copy(m[off:], p); return nil }

// TestFile: what is written to remote swap's file is read again, as far as it reaches.
func TestFile(t *testing.T) {
	const swapBytes = 8 << 20
	f, plain := &file{store: make(memory, swapBytes), size: swapBytes}, make([]byte, swapBytes)
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		off := r.Int64N(swapBytes/4096-16) * 4096
		b := bytes.Repeat([]byte{byte(r.Uint32())}, int(1+r.Int64N(16))*4096)
		if n, errno := f.Write(t.Context(), nil, b, off); int(n) != len(b) || errno != 0 {
			t.Fatal(n, errno)
		}
		copy(plain[off:], b)
		off = max(0, off-3*4096)
		got, errno := f.Read(t.Context(), nil, make([]byte, 20*4096), off)
		if b, _ := got.Bytes(nil); errno != 0 || !bytes.Equal(b, plain[off:min(off+20*4096, swapBytes)]) {
			t.Fatalf("at %d: %v", off, errno)
		}
	}
	if _, errno := f.Write(t.Context(), nil, make([]byte, 8192), swapBytes-4096); errno != syscall.ENOSPC {
		t.Errorf("a write over the end: %v", errno)
	}
	if got, errno := f.Read(t.Context(), nil, make([]byte, 8192), swapBytes-4096); got.Size() != 4096 || errno != 0 {
		t.Errorf("a read over the end: %d bytes, %v", got.Size(), errno)
	}
}

// TestOnDisk: no swap is made in memory that could be swapped itself.
func TestOnDisk(t *testing.T) {
	if err := onDisk("/dev/shm"); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("/dev/shm: %v", err)
	}
}

// TestRound: a round over both transports finds what the local run finds, with a quarter of the memory.
func TestRound(t *testing.T) {
	root, err := memcg.Find()
	if err == nil {
		err = root.Usable()
	}
	if err == nil {
		err = uffd.Probe()
	}
	if err != nil {
		t.Skip(err)
	}
	wherry := filepath.Join(t.TempDir(), "wherry")
	if out, err := exec.Command("go", "build", "-C", "../..", "-pgo=off", "-ldflags=-w", "-tags", "invariants", "-o", wherry, "./cmd/wherry").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := t.TempDir()
	program, err := compile(dir)
	if err != nil {
		t.Fatal(err)
	}
	n, err := startNode(t.Context(), wherry, dir, workload{mib: 8}.needs(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer n.stop()
	p := &plan{options: options{rounds: 1}, sides: []string{"shm", "tcp"}}
	var rows []*row
	for _, name := range []string{"quicksort", "scan"} {
		row, err := p.measure(t.Context(), &bench{wherry: wherry, program: program, dir: dir, root: root, node: n}, workload{name, 8, 2, false})
		if err != nil {
			t.Fatal(err)
		}
		if row.limit < 2<<20 || row.limit > 100<<20 {
			t.Errorf("%s takes %d bytes of memory", name, row.limit)
		}
		rows = append(rows, row)
	}
	r := &results{rounds: 1, sides: p.sides, rows: rows}
	flat := r.flat()
	for _, name := range []string{"quicksort_shm", "quicksort_tcp", "scan_shm", "scan_tcp"} {
		if x, ok := flat[name].(float64); !ok || x <= 0 {
			t.Errorf("%s: %v", name, flat[name])
		}
	}
	var text bytes.Buffer
	if err := r.print(&text); err != nil || strings.Count(text.String(), "×") != 4 {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// TestKilled: rounds that the kernel ended have no slowdown, and are counted; of a side that cannot be had, the reason is told.
func TestKilled(t *testing.T) {
	r := &results{rounds: 2, sides: []string{"zram", "file", "ram"}, rows: []*row{{workload: workloads[0], local: []float64{1, 2, 4},
		ratios: map[string][]float64{"file": {3, 5}}, killed: map[string]int{"zram": 2}}}, without: map[string]string{"ram": "cannot be had here: no ramfs"}}
	flat := r.flat()
	if v, ok := flat["quicksort_zram"]; v != nil || !ok || flat["quicksort_zram_killed"] != 2 || flat["quicksort_file"] != 4.0 || flat["quicksort_local_s"] != 2.0 {
		t.Errorf("%v", flat)
	}
	var text bytes.Buffer
	if err := r.print(&text); err != nil || !strings.Contains(text.String(), "killed") || !strings.Contains(text.String(), "no ram: it cannot be had here: no ramfs") ||
		flat["quicksort_ram"] != nil || flat["ram_missing"] == nil {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// TestSwapStays: what lies under a swap that cannot be ended stays, however often that is tried.
func TestSwapStays(t *testing.T) {
	s := &swap{path: filepath.Join(t.TempDir(), "none")}
	s.later(func() error {
		t.Error("what lies under it was taken away")
		return nil
	})
	for range 2 {
		if err := errors.Join(s.off(), s.close()); err == nil || !strings.Contains(err.Error(), "swapoff") {
			t.Errorf("a swap that there is not was ended: %v", err)
		}
	}
}

// TestWorkloadLeftOut: a workload that the machine cannot run is left out, and the answer says why.
func TestWorkloadLeftOut(t *testing.T) {
	had := python
	defer func() { python = had }()
	python = "/nonexistent/python3"
	p, err := options{rounds: 1, sides: "shm", workloads: "train_512,scan"}.plan(nil)
	if err != nil {
		t.Fatal(err)
	}
	if list := p.possible(); len(list) != 1 || list[0].name != "scan" {
		t.Errorf("%v is run", list)
	}
	r := &results{without: p.without}
	if why, _ := r.flat()["train_512_missing"].(string); !strings.Contains(why, "apt-get install python3-torch") {
		t.Errorf("train_512: %q", why)
	}
}

// turns answers for each side; a side with an error fails.
type turns struct {
	fails map[string]error
	taken []string
	then  func(side string)
}

func (t *turns) turn(_ context.Context, side string, _ workload, _ int64) (answer, int64, error) {
	t.taken = append(t.taken, side)
	if t.then != nil {
		t.then(side)
	}
	return answer{"same", 2}, 1 << 20, t.fails[side]
}

// TestSideFails: a side that fails takes no more turns in its workload, and its row says why; the other sides and workloads are measured.
func TestSideFails(t *testing.T) {
	p, err := options{rounds: 3, sides: "shm,zram", workloads: "scan,zipf"}.plan(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, r := &turns{fails: map[string]error{"zram": errors.New("the run stood still")}}, &results{rounds: 3, sides: p.sides, without: p.without}
	if err := p.all(t.Context(), b, r); err == nil || !strings.Contains(err.Error(), "zipf, zram: the run stood still") {
		t.Errorf("it ends with %v", err)
	}
	if n := strings.Count(strings.Join(b.taken, " "), "zram"); n != 2 || len(r.rows) != 2 {
		t.Errorf("%d rows of two, from the turns %v", len(r.rows), b.taken)
	}
	flat := r.flat()
	if flat["scan_shm"] != 1.0 || flat["zipf_shm"] != 1.0 || flat["zipf_zram"] != nil || flat["zipf_zram_failed"] != "the run stood still" {
		t.Errorf("%v", flat)
	}
	var text bytes.Buffer
	if err := r.print(&text); err != nil || strings.Count(text.String(), "failed") != 2 {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// TestLocalFails: a workload that fails with all of its memory local is left out with the reason, and the next one is measured.
func TestLocalFails(t *testing.T) {
	p, err := options{rounds: 1, sides: "shm", workloads: "scan"}.plan(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, r := &turns{fails: map[string]error{"local": errors.New("exit status 3")}}, &results{rounds: 1, sides: p.sides, without: p.without}
	if err := p.all(t.Context(), b, r); err == nil || len(r.rows) != 0 {
		t.Errorf("%v, %d rows", err, len(r.rows))
	}
	if why, _ := r.flat()["scan_missing"].(string); !strings.Contains(why, "exit status 3") {
		t.Errorf("scan: %q", why)
	}
}

// TestInterrupted: an interrupt ends the whole; what was measured before it is told.
func TestInterrupted(t *testing.T) {
	p, err := options{rounds: 5, sides: "shm,tcp", workloads: "scan,zipf"}.plan(nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b, r := &turns{fails: map[string]error{}}, &results{rounds: 5, sides: p.sides, without: p.without}
	b.then = func(side string) {
		if side == "tcp" && len(b.taken) > 1 { // the first one is for the limit
			cancel()
			b.fails["tcp"] = errors.New("signal: killed")
		}
	}
	if err := p.all(ctx, b, r); !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	if len(b.taken) != 4 || r.flat()["scan_shm"] != 1.0 || r.flat()["scan_tcp_failed"] != nil {
		t.Errorf("after %v: %v", b.taken, r.flat())
	}
}
