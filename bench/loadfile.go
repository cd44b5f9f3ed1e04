package bench

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/child"
)

//go:embed native/load.py
var loadScript string

const (
	// loadRows is how many rows the file has by default: some 240 MB, so that a part that grows is little beside the data.
	loadRows  = 3 << 20
	loadTurns = 5
)

// loadWord is what the Python process is told, and what it answers.
type loadWord struct {
	Tool string `json:",omitempty"`
	Path string `json:",omitempty"`

	Ns      float64 `json:",omitempty"`
	Rows    int     `json:",omitempty"`
	Version string  `json:",omitempty"`
	Missing string  `json:",omitempty"` // the tool is not there
	Error   string  `json:",omitempty"`
}

// segments are a dataset.Sink as a node has it.
type segments struct {
	el  *fabric.Element
	all []*fabric.Segment
}

// Create makes windows.
func (s *segments) Create(_ context.Context, _ uint32, sizes []uint64) error {
	for _, n := range sizes {
		seg, err := s.el.NewSegment(max(n, 1), fabric.Sealed)
		if err != nil {
			return err
		}
		s.all = append(s.all, seg)
	}
	return nil
}

// WriteAt copies into a window.
func (s *segments) WriteAt(_ context.Context, _ uint32, window int, p []byte, offset uint64) error {
	return s.all[window].Fill(p, offset)
}

// Memory is a window.
func (s *segments) Memory(_ uint32, window int) []byte { return s.all[window].Bytes() }

func (s *segments) close() {
	for _, seg := range s.all {
		seg.Close()
	}
}

// load measures how fast a CSV file becomes columns, types inferred, beside DuckDB and Polars.
func (c *client) load() error {
	dir, err := os.MkdirTemp("", "wherry-bench-load-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "log.csv")
	size, err := writeLog(path, c.spec.Rows)
	if err != nil {
		return err
	}
	var python *child.Process
	if err := onCPUs(c.spec.ServerCPU, func() (err error) {
		python, err = child.Start(exec.CommandContext(c.ctx, c.spec.Python, "-c", loadScript))
		return err
	}); err != nil {
		return fmt.Errorf("bench: no Python to compare with: %w: give one that has duckdb, and polars, with --python", err)
	}
	defer python.End()
	turns := loadTurns
	if c.spec.Rounds > 0 {
		turns = c.spec.Rounds
	}
	ours, theirs := samples{}, map[string]samples{}
	for turn := range turns {
		c.say("load", float64(turn)/float64(turns))
		took, over, err := c.loadOnce(path)
		if err != nil {
			return err
		}
		ours = append(ours, took)
		c.r.Set("peak_over_data", over)
		for _, tool := range []string{"duckdb", "polars"} {
			got, err := c.loadBy(python, tool, path)
			if err != nil {
				return err
			}
			if got.Missing != "" { // it is said, and the figure is not there
				c.r.Set(tool, got.Missing)
				continue
			}
			c.r.Set(tool, got.Version)
			theirs[tool] = append(theirs[tool], got.Ns)
		}
	}
	best := ours.p(0)
	c.r.Set("rows", c.spec.Rows)
	c.r.Set("mbytes_per_s", float64(size)/1e6/(best/1e9))
	for tool, took := range theirs {
		c.r.Set("over_"+tool, took.p(0)/best)
		c.r.Set(tool+"_mbytes_per_s", float64(size)/1e6/(took.p(0)/1e9))
	}
	return nil
}

// loadBy has a tool read the file.
func (c *client) loadBy(python *child.Process, tool, path string) (got loadWord, err error) {
	_ = python.Tell(loadWord{Tool: tool, Path: path}) // if it fails the process has ended, and Hear says why
	if err := python.Hear(&got); err != nil {
		return got, err
	}
	if got.Error != "" {
		return got, errors.New(got.Error)
	}
	if got.Missing == "" && got.Rows != c.spec.Rows {
		return got, fmt.Errorf("bench: %s finds %d rows, there are %d", tool, got.Rows, c.spec.Rows)
	}
	return got, nil
}

// loadOnce loads the file into segments; over is the memory that this process took at most, by that of the data.
func (c *client) loadOnce(path string) (took, over float64, err error) {
	in, err := dataset.OpenFile(path)
	if err != nil {
		return 0, 0, err
	}
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // forgets the peak; where it cannot, the peak is that of the whole run
	before, err := residentPeak()
	if err != nil {
		return 0, 0, err
	}
	sink := &segments{el: c.el}
	defer sink.close()
	start := time.Now()
	p, err := dataset.Scan(c.ctx, in, dataset.Options{Format: dataset.CSV})
	if err == nil {
		err = p.Fill(c.ctx, sink)
	}
	if err != nil {
		return 0, 0, err
	}
	took = float64(time.Since(start))
	if p.Rows != uint64(c.spec.Rows) {
		return 0, 0, fmt.Errorf("bench: %d rows were loaded, there are %d", p.Rows, c.spec.Rows)
	}
	after, err := residentPeak()
	return took, (after - before) * (1 << 20) / float64(p.TotalBytes()), err
}

// writeLog writes CSV as logs have it.
func writeLog(path string, rows int) (size int64, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	fmt.Fprintln(w, "id,when,status,ms,host,path")
	for i := range rows {
		fmt.Fprintf(w, "%d,2026-03-%02dT%02d:%02d:%02d.%03dZ,%d,%d.%03d,host%03d.example.com,/api/v1/item/%d\n",
			i, i%28+1, i%24, i%60, i%59, i%1000, 200+i%7*50, i%100, i%1000, i%200, i*7919%1000003)
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
