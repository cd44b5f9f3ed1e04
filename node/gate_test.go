package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
	"github.com/wherry-fabric/wherry/schema"
)

// fileLoads makes loads from files of one node.
type fileLoads struct {
	t    *testing.T
	p    *rpc.Peer
	ep   *fabric.Endpoint
	made int
}

func newFileLoads(t *testing.T, loadTime time.Duration) (*fileLoads, *Node) {
	t.Helper()
	ts := tokensOf(t, map[string]cluster.Caps{"node": cluster.CapMember, "user": cluster.CapWrite | cluster.CapRead})
	dir := t.TempDir()
	for name, text := range map[string]string{"g.edges": "0 1\n1 2\n", "r.csv": "1\n2\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n, _ := run(t, Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: ts, DataRoots: []string{dir}, LoadTime: loadTime})
	el, p := guest(t, ts, "user")
	ep, err := el.Dial(t.Context(), n.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	return &fileLoads{t: t, p: p, ep: ep}, n
}

// load begins one and says how it ends, and in which phases it is.
func (f *fileLoads) load(path string, o control.FileOptions) (<-chan error, <-chan control.Progress) {
	f.t.Helper()
	id := control.LoadID(fmt.Sprintf("%032d", f.made))
	f.made++
	if _, err := control.Do[control.BeginReply](f.t.Context(), f.p, f.ep, control.CallBegin, control.BeginRequest{Load: id, Name: "d" + string(id)}); err != nil {
		f.t.Fatal(err)
	}
	done, notes := make(chan error, 1), make(chan control.Progress, 16)
	go func() {
		_, err := control.DoNotes[control.FileReply](f.t.Context(), f.p, f.ep, control.CallFile, control.FileRequest{Load: id, Path: path, Format: o},
			func(p control.Progress) { notes <- p })
		done <- err
	}()
	return done, notes
}

func (f *fileLoads) graph() (<-chan error, <-chan control.Progress) {
	f.t.Helper()
	return f.load("g.edges", control.FileOptions{Format: "edges"})
}

// refused wants a graph to be refused, in these words.
func (f *fileLoads) refused(when string, words ...string) {
	f.t.Helper()
	done, _ := f.graph()
	err := <-done
	if !errors.Is(err, control.ErrMemory) {
		f.t.Errorf("%s: %v", when, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			f.t.Errorf("%s: %v, not %q", when, err, w)
		}
	}
}

// TestFilesAtOnce: a node reads a few files at once for loads, and fewer graphs, so that what their loaders
// take is bounded together. What is beyond that waits in line, so many and so long.
func TestFilesAtOnce(t *testing.T) {
	f, n := newFileLoads(t, patience)
	rows, err := schema.Parse("a:u32")
	if err != nil {
		t.Fatal(err)
	}
	for range maxGraphs {
		n.graphs.in <- struct{}{} // as if graphs were being loaded
	}
	waits, notes := f.graph()
	if note := <-notes; note.Phase != control.PhaseWait {
		t.Errorf("the first note: %+v", note)
	}
	if done, _ := f.load("r.csv", control.FileOptions{Format: "csv", Schema: rows}); true {
		if err := <-done; err != nil {
			t.Errorf("a file that is no graph: %v", err)
		}
	}
	n.graphs.leave()
	if err := <-waits; err != nil {
		t.Errorf("a load that has waited: %v", err)
	}
	f, n = newFileLoads(t, 3*time.Second) // one where they wait in vain
	for range maxGraphs {
		n.graphs.in <- struct{}{}
	}
	f.refused("no graph ends", "2 graphs are being loaded", "none has ended for 3s")
	for range maxGateLine {
		n.graphs.line <- struct{}{}
	}
	f.refused("the line is full", "32 loads wait")
	for range maxGraphs {
		n.graphs.leave()
	}
	for range maxFiles {
		n.files.in <- struct{}{}
	}
	f.refused("no file ends", "8 files are being loaded")
	if len(n.graphs.in) != 0 || len(n.files.in) != maxFiles || len(n.files.line) != 0 {
		t.Errorf("%d graphs, %d files, %d in line are left", len(n.graphs.in), len(n.files.in), len(n.files.line))
	}
}
