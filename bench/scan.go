package bench

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/internal/child"
)

var (
	//go:embed native/scan.c
	scanSource []byte
	//go:embed native/scan.h
	scanHeader []byte
	//go:embed native/scan_main.c
	scanMain []byte
)

const (
	// scanBytes is what is scanned: more than any cache holds.
	scanBytes = 64 << 20
	scanTurns = 30
	// scanTime is how long the best code may take to be there.
	scanTime = 10 * time.Second
)

// scan measures a scan of a window by a function, asked for as bitcode and by auto, beside the same in a process in C on the same CPU.
func (c *client) scan() error {
	dir, err := os.MkdirTemp("", "wherry-bench-scan-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	spec := &role{Name: "scan", scheme: c.spec.scheme, Policy: c.spec.Policy, Code: c.spec.Code, CacheDir: filepath.Join(dir, "cache")}
	st, err := newStation(spec, true)
	if err != nil {
		return err
	}
	defer st.close()
	seg, err := st.el.NewSegment(scanBytes, fabric.Writable)
	if err != nil {
		return err
	}
	for i := 0; i < scanBytes; i += 8 {
		binary.LittleEndian.PutUint64(seg.Bytes()[i:], c.rand.Uint64())
	}
	key, err := seg.Key(fabric.RightRead)
	if err != nil {
		return err
	}
	t := &cluster.Table{Name: "scan", Version: 1, Kind: cluster.Raw, Sharding: cluster.Sharding{Kind: cluster.Block, Elements: 1, Rows: scanBytes / 8},
		Shards: []cluster.Shard{{Element: "scan", Incarnation: st.el.Incarnation(), Addrs: []string{c.spec.scheme.Example}, Windows: []cluster.Window{{Key: key, Size: scanBytes}}}}}
	t.FillRows()
	native, err := c.compileScan(dir)
	if err != nil {
		return err
	}
	fd, _ := seg.FD()
	p, err := startNative(native, fd, scanBytes)
	if err != nil {
		return err
	}
	defer p.End()
	ways := []*scanner{{name: "native", run: c.scanNative(p)}}
	for _, w := range []forms.Wish{forms.Bitcode, forms.Auto} {
		img, err := spec.image(w.String() + "-scan") // one each, so that neither finds what the other had made
		if err != nil {
			return err
		}
		f, err := st.rt.PrepareAs(img, t, w)
		if err != nil {
			return err
		}
		defer f.Close()
		way := &scanner{name: w.String(), run: c.scanInjected(f)}
		if err := way.settle(st, img, w); err != nil {
			return err
		}
		ways = append(ways, way)
	}
	return c.compareScans(ways)
}

// scanner is one way to scan.
type scanner struct {
	name  string
	run   func(below uint64) (sum uint64, took time.Duration, err error)
	times samples
}

// settle scans until the best code is there that there will be.
func (s *scanner) settle(st *station, img *image.Image, wish forms.Wish) error {
	var e inject.Explanation
	for end := time.Now().Add(scanTime); time.Now().Before(end); {
		if _, _, err := s.run(1); err != nil {
			return err
		}
		if e, _ = st.rt.Explain(img.ID(), wish); e.Form == image.LLVMBitcode.String() && strings.HasPrefix(e.Tier, "compiled for") {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("after %v %s still runs as %s (%s): %s", scanTime, wish, e.Form, e.Tier, e.Why)
}

func (c *client) scanInjected(f *inject.Function) func(uint64) (uint64, time.Duration, error) {
	return func(below uint64) (uint64, time.Duration, error) {
		t := time.Now()
		got, err := f.Do(c.ctx, inject.Root{Payload: binary.LittleEndian.AppendUint64(nil, below)}, nil)
		took := time.Since(t)
		if err == nil && len(got) != 8 {
			err = errors.New("the scan replied with no sum")
		}
		if err != nil {
			return 0, 0, err
		}
		return binary.LittleEndian.Uint64(got), took, nil
	}
}

func (c *client) scanNative(p *child.Process) func(uint64) (uint64, time.Duration, error) {
	return func(below uint64) (uint64, time.Duration, error) {
		var a struct {
			Ns  float64
			Sum uint64
		}
		err := p.Tell(below)
		if err == nil {
			err = hear(p, &a)
		}
		return a.Sum, time.Duration(a.Ns), err
	}
}

func (c *client) compareScans(ways []*scanner) error {
	turns := c.spec.Rounds
	if turns == 0 {
		turns = scanTurns
	}
	for turn := range turns + 1 {
		c.say("scans in C, as bitcode and by auto", float64(turn)/float64(turns))
		below, want := c.rand.Uint64(), uint64(0)
		for i, w := range ways {
			sum, took, err := w.run(below)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if i == 0 {
				want = sum
			}
			if sum != want {
				return fmt.Errorf("%s finds %d, native C %d", w.name, sum, want)
			}
			if turn > 0 { // the first one faults the pages in
				w.times = append(w.times, float64(took))
			}
		}
	}
	c.r.Set("scan_bytes", scanBytes)
	for i, w := range ways {
		c.r.Set(w.name+"_ms_p50", w.times.p(0.5)/1e6)
		if i > 0 {
			c.r.Set(w.name+"_over_native", ways[0].times.p(0.5)/w.times.p(0.5))
		}
	}
	return nil
}

func (c *client) compileScan(dir string) (string, error) {
	path, main := filepath.Join(dir, "scan"), filepath.Join(dir, "scan_main.c")
	if err := errors.Join(os.WriteFile(main, scanMain, 0o600), os.WriteFile(filepath.Join(dir, "scan.h"), scanHeader, 0o600)); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(c.ctx, "clang", "-O3", "-march=native", "-o", path, main).CombinedOutput(); err != nil {
		return "", fmt.Errorf("the native side needs clang (apt-get install clang): %w: %s", err, out)
	}
	return path, nil
}
