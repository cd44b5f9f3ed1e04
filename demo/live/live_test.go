package live

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/demo"
	"github.com/wherry-fabric/wherry/demo/demotest"
	"github.com/wherry-fabric/wherry/internal/sockdir"
	"github.com/wherry-fabric/wherry/node"
	"github.com/wherry-fabric/wherry/schema"
)

// TestMain runs the tests, or, in a child, the role that it is told.
func TestMain(m *testing.M) {
	roles := map[string]func() error{
		"role":   func() error { return Role(context.Background(), os.Stdin, os.Stdout) },
		"parent": runParent,
	}
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		if err := roles[os.Args[1]](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := sockdir.Shorten(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// nodes runs nodes in this process and connects to them.
func nodes(t testing.TB, scheme string, n int) (*client.Client, []string) {
	t.Helper()
	member, err := cluster.NewToken(memberToken, cluster.CapMember|cluster.CapInject|cluster.CapRead)
	if err != nil {
		t.Fatal(err)
	}
	own, err := cluster.NewToken(clientToken, cluster.CapInject|cluster.CapRead|cluster.CapWrite)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := cluster.NewTokens([]cluster.Token{member, own})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "wherry") // short: a socket's path has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	members := make([]cluster.Member, n)
	var names []string
	for i := n - 1; i >= 0; i-- {
		cfg := node.Config{Name: fmt.Sprintf("n%d", i), Listen: []string{"tcp://127.0.0.1:0"}, Peers: members[i+1:], Tokens: tokens, Token: memberToken, StopTime: time.Second}
		if scheme == "shm" {
			cfg.Listen[0] = "shm://" + filepath.Join(dir, cfg.Name+".sock")
		}
		nd, err := node.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- nd.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("node %s: %v", nd.Name(), err)
			}
		})
		members[i] = cluster.Member{Name: cfg.Name, Addrs: nd.Addrs()}
	}
	for _, m := range members {
		names = append(names, m.Name)
	}
	c, err := client.Connect(t.Context(), client.Config{Name: "test", Nodes: members, Only: true, Tokens: tokens, Token: clientToken})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := Meshed(ctx, c, names); err != nil {
		t.Fatal(err)
	}
	return c, names
}

func le64(b []byte) (out []uint64) {
	for ; len(b) > 0; b = b[8:] {
		out = append(out, binary.LittleEndian.Uint64(b))
	}
	return out
}

// loaded loads shards as a dataset.
func loaded(t *testing.T, c *client.Client, names []string, l demo.Layout, shards []demo.Shard) *Backend {
	t.Helper()
	name := fmt.Sprintf("check-%d", time.Now().UnixNano())
	spec := client.LoadSpec{Name: name, Nodes: names}
	var next []uint64
	if len(shards[0].Windows) == 1 {
		var all []byte
		for _, s := range shards {
			all = append(all, s.Windows[0]...)
		}
		next = le64(all)
		rows, err := schema.Parse("next:u64")
		if err != nil {
			t.Fatal(err)
		}
		spec.Input, spec.Options = dataset.NewText("next", all), dataset.Options{Format: dataset.RawFile, Schema: rows}
	} else {
		csr := &dataset.CSR{Offsets: []uint64{0}, RevOffsets: []uint64{0}, Targets: []uint32{}, RevTargets: []uint32{}}
		add := func(offsets *[]uint64, targets *[]uint32, o, t []byte) {
			base := uint64(len(*targets))
			for _, end := range le64(o)[1:] {
				*offsets = append(*offsets, base+end)
			}
			for ; len(t) > 0; t = t[4:] {
				*targets = append(*targets, binary.LittleEndian.Uint32(t))
			}
		}
		for _, s := range shards {
			add(&csr.Offsets, &csr.Targets, s.Windows[demo.FwdOffsets], s.Windows[demo.FwdTargets])
			add(&csr.RevOffsets, &csr.RevTargets, s.Windows[demo.RevOffsets], s.Windows[demo.RevTargets])
		}
		var err error
		if spec.Plan, err = dataset.PlanCSR(csr, dataset.Spread{Elements: uint32(len(names))}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Load(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), c, name, l, next)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	})
	return b
}

// TestBackend holds the real thing against the specification.
func TestBackend(t *testing.T) {
	for _, scheme := range []string{"tcp", "shm"} {
		t.Run(scheme, func(t *testing.T) {
			c, names := nodes(t, scheme, 4)
			demotest.Check(t, len(names), func(t *testing.T, l demo.Layout, shards []demo.Shard) demo.Backend {
				b := loaded(t, c, names, l, shards)
				if got := strings.Join(b.Transports(), ","); got != scheme {
					t.Errorf("the transports are %q", got)
				}
				return b
			})
		})
	}
}
