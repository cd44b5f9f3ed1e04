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
	rows, _ := schema.Parse("name:str,status:u16")
	in := dataset.NewText("access.csv", []byte("name,status\n/,200\n/a,404\n/b,200\n/c,500\n/d,200\n"))
	ctx := context.Background()
	plan, err := dataset.Scan(ctx, in, dataset.Options{Format: dataset.CSV, Schema: rows, Header: true,
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
	for e := range plan.Sharding.Elements {
		first, n := plan.Sharding.ElementRows(e)
		fmt.Printf("element %d: %d rows from %d, text %q\n", e, n, first, sink.Memory(e, cluster.HeapWindow))
	}
	// Output:
	// element 0: 3 rows from 0, text "//a/b"
	// element 1: 2 rows from 3, text "/c/d"
}

func ExampleScan_mistake() {
	rows, _ := schema.Parse("name:str,status:u16")
	in := dataset.NewText("access.csv", []byte("/,200\n/a,abc\n"))
	_, err := dataset.Scan(context.Background(), in, dataset.Options{Format: dataset.CSV, Schema: rows})
	fmt.Println(err)
	// Output:
	// access.csv: line 2: column status: "abc" is not a u16
}
