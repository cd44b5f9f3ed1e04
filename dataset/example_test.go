package dataset_test

import (
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/schema"
)

// Five rows are spread over two elements.
func Example() {
	columns, _ := schema.Parse("name:str,status:u16")
	in := dataset.NewText("access.csv", []byte("name,status\n/,200\n/a,404\n/b,200\n/c,500\n/d,200\n"))
	ctx := context.Background()
	plan, err := dataset.Scan(ctx, in, dataset.Options{Format: dataset.CSV, Schema: columns, Header: true,
		Spread: dataset.Spread{Kind: cluster.Block, Elements: 2}})
	if err != nil {
		fmt.Println(err)
		return
	}
	var sink dataset.Buffers // a node's makes shared memory
	if err := plan.Fill(ctx, &sink); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan.Columns.List())
	rows := uint64(0)
	for e := range plan.Sharding.Elements {
		_, n := plan.Sharding.ElementRows(e)
		rows += n
	}
	fmt.Printf("%d rows on %d elements\n", rows, plan.Sharding.Elements)
	// Output:
	// name:utf8,status:u16
	// 5 rows on 2 elements
}

func ExampleScan_mistake() {
	columns, _ := schema.Parse("name:str,status:u16")
	in := dataset.NewText("access.csv", []byte("/,200\n/a,abc\n"))
	ctx := context.Background()
	plan, err := dataset.Scan(ctx, in, dataset.Options{Format: dataset.CSV, Schema: columns})
	if err == nil {
		err = plan.Fill(ctx, dataset.Discard{})
	}
	fmt.Println(err)
	// Output:
	// access.csv: line 2: column status: "abc" is no u16
}
