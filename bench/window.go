package bench

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/internal/child"
	"github.com/wherry-fabric/wherry/internal/memfd"
)

//go:embed native/chase.c
var nativeSource []byte

// windowHops is the length of one timed walk.
const windowHops = 200_000

// window measures a hop inside a window, in a function, against the same hop in
// native C: in this process and a child on the same CPU, in turns.
func (c *client) window(*cluster.Table) error {
	dir, err := os.MkdirTemp("", "wherry-bench-native-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, compiler, err := compileNative(dir)
	if err != nil {
		return err
	}
	c.r.Set("native_compiler", compiler)
	for _, size := range []struct {
		suffix string
		bytes  int
	}{{"", 64 << 20}, {"_256k", 256 << 10}} {
		if err := c.windowSize(binary, size.suffix, size.bytes); err != nil {
			return err
		}
	}
	return nil
}

// compileNative compiles the C side as the benchmark promises: clang -O2.
func compileNative(dir string) (path, version string, err error) {
	src := filepath.Join(dir, "chase.c")
	if err := os.WriteFile(src, nativeSource, 0o600); err != nil {
		return "", "", err
	}
	cc, err := exec.LookPath("clang")
	if err != nil {
		return "", "", fmt.Errorf("the native side of this benchmark needs clang: apt-get install clang (%w)", err)
	}
	path = filepath.Join(dir, "chase")
	if out, err := exec.Command(cc, "-O2", "-o", path, src).CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("clang: %w: %s", err, out)
	}
	out, err := exec.Command(cc, "--version").Output()
	if i := bytes.IndexByte(out, '\n'); i > 0 {
		out = out[:i]
	}
	return path, string(out) + " -O2", err
}

func (c *client) windowSize(native, suffix string, size int) error {
	// The client's own element stands in for a server: what is measured is
	// a function in a window, and both sides must be on one CPU.
	st, err := newStation(&role{Name: "window", scheme: c.spec.scheme, Policy: c.spec.Policy}, true)
	if err != nil {
		return err
	}
	defer st.close()
	rows := size / 8
	seg, err := st.el.NewSegment(uint64(size), fabric.Writable)
	if err != nil {
		return err
	}
	for i, next := range permutation(rows, c.spec.Seed) {
		binary.LittleEndian.PutUint64(seg.Bytes()[i*8:], next)
	}
	key, err := seg.Key(fabric.RightRead)
	if err != nil {
		return err
	}
	t := &cluster.Table{Name: "window", Version: 1, Kind: cluster.Raw, Sharding: cluster.Sharding{Kind: cluster.Block, Elements: 1, Rows: uint64(rows)},
		Shards: []cluster.Shard{{Element: "window", Incarnation: st.el.Incarnation(), Addrs: []string{c.spec.scheme.Example}, Windows: []cluster.Window{{Key: key, Size: uint64(size)}}}}}
	t.FillRows()
	f, err := st.rt.Prepare(xrdma.Chase(), t)
	if err != nil {
		return err
	}
	defer f.Close()
	fd, _ := seg.FD()
	p, err := startNative(native, fd, size)
	if err != nil {
		return err
	}
	defer p.End()
	return c.compareWindow(suffix, size, f, p)
}

func (c *client) compareWindow(suffix string, size int, f *inject.Function, p *child.Process) error {
	var inside, outside samples
	row, nativeRow := uint64(0), uint64(0)
	const turns = 30
	for turn := range turns + 1 {
		c.say("hops in a window, in a function and in native C"+suffix, float64(turn)/turns)
		t := time.Now()
		got, err := f.Do(c.ctx, inject.Root{Payload: xrdma.ChaseArgs(row, windowHops)}, nil)
		took := time.Since(t)
		if err != nil {
			return err
		}
		if row, err = xrdma.ChaseResult(got); err != nil {
			return err
		}
		var a struct {
			Ns  float64
			Row uint64
		}
		if err := p.Tell(windowHops); err != nil {
			return err
		}
		if err := hear(p, &a); err != nil {
			return err
		}
		if nativeRow = a.Row; nativeRow != row {
			return fmt.Errorf("the function is at row %d, native C at %d", row, nativeRow)
		}
		if turn > 0 { // the first walk faults the pages in
			inside = append(inside, float64(took)/windowHops)
			outside = append(outside, a.Ns)
		}
	}
	c.r.Set("window_bytes"+suffix, size)
	c.r.Set("window_ns_per_hop"+suffix, inside.p(0.5))
	c.r.Set("native_ns_per_hop"+suffix, outside.p(0.5))
	c.r.Set("window_over_native"+suffix, inside.p(0.5)/outside.p(0.5))
	return nil
}

// startNative starts the C side on this process's CPU, the segment as its descriptor 3.
func startNative(path string, fd, size int) (*child.Process, error) {
	dup, err := memfd.Dup(fd)
	if err != nil {
		return nil, err
	}
	defer dup.Close()
	cmd := exec.Command(path, fmt.Sprint(size))
	cmd.ExtraFiles = []*os.File{dup}
	return child.Start(cmd)
}
