package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/node"
	"github.com/wherry-fabric/wherry/schema"
)

// Example runs the example against two nodes.
func Example() {
	if err := example(); err != nil {
		os.Stdout.WriteString(err.Error())
	}
	// Output:
	// key,n
	// error,1
	// info,3
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
	c, err := client.Connect(ctx, client.Config{Nodes: members, TokenFile: file})
	if err != nil {
		return err
	}
	defer c.Close()
	rows, err := schema.Parse("time:i64,level:str")
	if err != nil {
		return err
	}
	_, err = c.Load(ctx, client.LoadSpec{Name: "logs", Input: dataset.NewText("logs", []byte("1,info\n2,info\n3,error\n4,info\n")),
		Options: dataset.Options{Format: dataset.CSV, Schema: rows}}, nil)
	if err != nil {
		return err
	}
	return count(ctx, members[1].Addrs[0], file, "logs", "level")
}

func TestUsage(t *testing.T) {
	if err := count(t.Context(), "tcp://127.0.0.1:1", "/nonesuch", "logs", "level"); err == nil {
		t.Error("no error without a token file")
	}
}
