package client_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
)

// Load Go structs as columns over all nodes, and have the nodes find some of them.
func ExampleLoadRows() {
	node, end, err := startNodes()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{Nodes: []cluster.Member{{Addrs: []string{node}}}, TokenFile: "token"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	type Order struct {
		User  int64   `wherry:"user id"`
		Total float64 `wherry:"total"`
		Note  *string `wherry:"note"` // may be missing
	}
	gift := "a gift"
	orders := []Order{{User: 7, Total: 12.5}, {User: 8, Total: 3, Note: &gift}, {User: 7, Total: 20, Note: &gift}}
	if _, err := client.LoadRows(ctx, c, "orders", slices.Values(orders)); err != nil {
		fmt.Println(err)
		return
	}
	for o, err := range client.All[Order](ctx, c, client.From("orders").Where(`total > 9`).Order("-total")) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(o.User, o.Total, o.Note != nil)
	}
	type sum struct {
		User  int64   `wherry:"user id"`
		Total float64 `wherry:"total"`
	}
	for s, err := range client.All[sum](ctx, c, client.From("orders").Group("user id").Agg("total=sum(total)").Order("user id")) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(s.User, s.Total)
	}
	// Output:
	// 7 20 true
	// 7 12.5 false
	// 7 32.5
	// 8 3
}
