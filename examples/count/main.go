// Command count runs a ready function on a dataset that nodes hold, and prints
// how many rows there are of each value of a column:
//
//	go run ./examples/count tcp://127.0.0.1:7000 tokens logs level
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/invoke"
)

func count(ctx context.Context, node, tokenFile, dataset, column string) error {
	c, err := client.Connect(ctx, client.Config{Nodes: []cluster.Member{{Addrs: []string{node}}}, TokenFile: tokenFile})
	if err != nil {
		return err
	}
	defer c.Close()
	table, err := c.Table(ctx, dataset, "r") // who holds what, and the keys we were granted
	if err != nil {
		return err
	}
	countby, err := xrdma.Lookup("countby") // or image.Parse of your own
	if err != nil {
		return err
	}
	answer, err := invoke.Run(ctx, c.Runtime(), invoke.Request{Image: countby, Table: table, Args: map[string]string{"column": column}})
	if err != nil {
		return err
	}
	return answer.Write(os.Stdout, batch.CSV)
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: count NODE TOKENFILE DATASET COLUMN")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := count(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		log.Fatal(err)
	}
}
