package client

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
)

// TestFewFiles: on a node with few descriptors, datasets leave some for connections, say what they lack, and can go on once
// others are removed.
func TestFewFiles(t *testing.T) {
	f := newFarm(t, "tcp", "n1")
	const files = 256
	cmd := f.procs["n1"]
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	f.procs["n1"] = await(t, exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" run-node "$1"`, files), os.Args[0], filepath.Join(f.dir, "n1.yaml")))
	c := f.connect(t)
	load := func(c *Client, i int) error {
		_, err := c.Load(t.Context(), LoadSpec{Name: fmt.Sprintf("d%d", i), Input: dataset.NewText("p.csv", []byte(peopleHeader+people(1))), Options: csvOptions(t, dataset.Spread{})}, nil)
		return err
	}
	var err error
	n := 0
	for ; err == nil && n < files; n++ {
		err = load(c, n)
	}
	const windows = 2 // rows and their text
	if n != files/2/windows+1 || !errors.Is(err, control.ErrMemory) || !strings.Contains(err.Error(), "takes 2 descriptors") ||
		!strings.Contains(err.Error(), "0 are left of the 128 for datasets and regions, half of the process's open files (256)") || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("load %d: %v", n, err)
	}
	var others []*Client
	for range 40 {
		other, err := Connect(t.Context(), Config{Nodes: []cluster.Member{f.peers[0]}, TokenFile: f.tokens, Token: tokenOwner})
		if err != nil {
			t.Fatalf("connection %d: %v", len(others), err)
		}
		defer other.Close()
		others = append(others, other)
	}
	last := others[len(others)-1]
	if err := last.Remove(t.Context(), "d0"); err != nil {
		t.Fatal(err)
	}
	if err := load(last, 0); err != nil {
		t.Errorf("after one was removed: %v", err)
	}
}
