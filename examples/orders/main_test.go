package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/node"
)

// Example runs the example against two nodes, and reads the Arrow stream that it writes.
func Example() {
	if err := example(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 2026-03-01: user 7 ordered for 12.5
	// 2026-03-03: user 9 ordered for 99
	// user 9: 1 orders, 99
	// user 7: 2 orders, 32.5
	// user id [9 7]
	// n [1 2]
	// total [99 32.5]
}

func example() error {
	dir, err := os.MkdirTemp("", "wherry-example-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	token, err := cluster.NewToken("me", cluster.CapsAll)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "tokens")
	if err := os.WriteFile(file, []byte(token.Line()+"\n"), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var members []cluster.Member
	for _, name := range []string{"a", "b"} {
		n, err := node.New(node.Config{Name: name, Listen: []string{"tcp://127.0.0.1:0"}, TokenFile: file, Memory: 16 << 20, Peers: members})
		if err != nil {
			return err
		}
		defer n.Close()
		go n.Run(ctx)
		members = append(members, cluster.Member{Name: name, Addrs: n.Addrs()})
	}
	var stream bytes.Buffer
	if err := run(ctx, members[1].Addrs[0], file, "orders", os.Stdout, &stream); err != nil {
		return err
	}
	r, err := ipc.NewReader(&stream)
	if err != nil {
		return err
	}
	defer r.Release()
	for r.Next() {
		for i, f := range r.Schema().Fields() {
			fmt.Println(f.Name, r.RecordBatch().Column(i))
		}
	}
	return r.Err()
}

func TestUsage(t *testing.T) {
	if err := run(t.Context(), "tcp://127.0.0.1:1", "/nonesuch", "orders", io.Discard, io.Discard); err == nil {
		t.Error("no error without a token file")
	}
}
