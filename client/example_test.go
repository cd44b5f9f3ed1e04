package client_test

import (
	"context"
	"fmt"
	"os"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/schema"
)

// Load a CSV file over all nodes, and write its first rows.
func Example() {
	node, end, err := startNodes() // as "wherry node" does, and where the first listens
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{
		Nodes:     []cluster.Member{{Addrs: []string{node}}}, // tcp://127.0.0.1:7001, say; it names the others
		TokenFile: "token",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	rows, err := schema.Parse("name:str,age:u8")
	if err != nil {
		fmt.Println(err)
		return
	}
	file, err := dataset.OpenFile("people.csv")
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := c.Load(ctx, client.LoadSpec{Name: "people", Input: file,
		Options: dataset.Options{Format: dataset.CSV, Header: true, Schema: rows}}, nil)
	if err != nil {
		fmt.Println(err) // nothing of it is left at any node
		return
	}
	fmt.Println(report.Table.Rows, "rows on", len(report.Table.Shards), "nodes")
	if err := c.Read(ctx, "people", client.ReadOptions{Count: 10, Format: batch.Table}, os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 3 rows on 2 nodes
	// name    age
	// Ada      36
	// Grace    85
	// Edsger   72
}
