package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/demo"
	"github.com/wherry-fabric/wherry/demo/debgraph"
	"github.com/wherry-fabric/wherry/fabric"
)

func small(t *testing.T) *debgraph.Graph {
	t.Helper()
	g, err := debgraph.ReadEdgeList("small", strings.NewReader("app lib\nlib base\ntool lib\napp tool\n"))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// self starts this test as a node: see TestMain.
var self = []Program{{Command: []string{os.Args[0], "role"}}}

// pids are a cluster's processes.
func pids(c *Cluster) (list []int) {
	for _, p := range c.procs {
		list = append(list, p.Pid())
	}
	return list
}

// gone waits until processes have ended.
func gone(t *testing.T, list []int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		alive := 0
		for _, pid := range list {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err == nil && !strings.Contains(string(stat), ") Z ") { // nobody may have waited for it
				alive++
			}
		}
		if alive == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %v still run", alive, list)
		}
	}
}

// The whole demo on processes: every question, every method, every answer checked.
func TestRun(t *testing.T) {
	var said []string
	r, err := Run(t.Context(), Options{Graph: small(t), Programs: self, Elements: 3,
		Run: demo.Options{Repeats: 1, Distance: demo.Distance{RTT: time.Microsecond}}, Progress: func(text string, done, all int) {
			said = append(said, text)
			if done < 0 || all < 1 || done > all {
				t.Errorf("%s: %d of %d", text, done, all)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Failed() || len(r.Questions) != 5 || r.Environment.Elements != 3 || r.Environment.LentBytes == 0 || r.Environment.DataBytes == 0 {
		t.Errorf("%+v", r)
	}
	for _, q := range r.Questions {
		for _, m := range q.Methods {
			if !m.Checked && (q.Name != string(demo.KindChase) || m.Name != "get-batched") {
				t.Errorf("%s: %+v", q.Name, m)
			}
			if m.Name != "injected" && m.BytesBetween != 0 {
				t.Errorf("%s, %s: it counts %d bytes that elements sent each other, but it only reads from here", q.Name, m.Name, m.BytesBetween)
			}
		}
	}
	if text := strings.Join(said, "\n"); !strings.Contains(text, "starting nodes") || !strings.Contains(text, "loading") || !strings.Contains(text, "injected") {
		t.Errorf("the progress was:\n%s", text)
	}
}

// A run that is interrupted says so, and leaves no process behind.
func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	_, err := Run(ctx, Options{Graph: small(t), Programs: self, Progress: func(text string, _, _ int) {
		if strings.Contains(text, "injected") {
			if asked++; asked == 3 {
				cancel()
			}
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

func TestRunRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"an element too few":  {Graph: small(t), Programs: self, Elements: -1},
		"elements too many":   {Graph: small(t), Programs: self, Elements: MaxProcesses + 1},
		"no such question":    {Graph: small(t), Programs: self, Queries: []demo.Query{{Kind: "why"}}},
		"no such package":     {Graph: small(t), Programs: self, Queries: []demo.Query{{Kind: demo.KindNeeds, Package: "x"}}},
		"a distance too long": {Graph: small(t), Programs: self, Run: demo.Options{Distance: demo.Distance{ClientRTT: time.Hour}}},
		"a negative budget":   {Graph: small(t), Programs: self, Run: demo.Options{Budget: -1}},
		"no such program":     {Graph: small(t), Programs: []Program{{Command: []string{"/does/not/exist"}}}},
	} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: it ran", name)
		}
	}
}

// What a process says that does not come up is in the error.
func TestProcessesThatFail(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"a message":        {"echo no room for me >&2; exit 3", "no room for me"},
		"nothing":          {"exit 0", "ended without an answer"},
		"an error of ours": {`echo '{"error":"port taken"}'; cat >/dev/null`, "port taken"},
	} {
		_, err := StartCluster(t.Context(), ClusterConfig{Programs: []Program{{Command: []string{"/bin/sh", "-c", c.script}}}, Nodes: 2, Memory: 1 << 20})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := StartCluster(ctx, ClusterConfig{Programs: []Program{{Command: []string{"/bin/sh", "-c", "exec sleep 60"}}}, Nodes: 1, Memory: 1 << 20})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a process that says nothing: %v", err)
	}
}

// Nodes end with their cluster.
func TestClusterEnds(t *testing.T) {
	c, err := StartCluster(t.Context(), ClusterConfig{Programs: self, Nodes: 2, Memory: 1 << 20, Policy: fabric.Efficient})
	if err != nil {
		t.Fatal(err)
	}
	list := pids(c)
	if err := c.Close(); err != nil || len(list) != 2 {
		t.Error(list, err)
	}
	gone(t, list)
}

func TestRoleRefuses(t *testing.T) {
	for _, in := range []string{"", "no role", `{"name":"a","memory":-1}`, `{"name":"a","memory":1048576,"tokens":["x"]}`, `{"name":"a b","memory":1048576}`} {
		var out bytes.Buffer
		if err := Role(t.Context(), strings.NewReader(in), &out); err == nil {
			t.Errorf("%q: it ran", in)
		}
	}
}

// runParent starts a cluster, says which processes it has, and waits to be killed.
func runParent() error {
	c, err := StartCluster(context.Background(), ClusterConfig{Programs: self, Nodes: 2, Memory: 1 << 20})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(pids(c)); err != nil {
		return err
	}
	time.Sleep(time.Minute)
	return nil
}

// A node ends even if its parent is killed: its standard input ends.
func TestNodeEndsWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0], "parent")
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var list []int
	err = json.NewDecoder(out).Decode(&list)
	parent.Process.Kill()
	parent.Wait()
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	gone(t, list)
}
