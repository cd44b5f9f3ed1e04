// Command orders loads Go structs as columns, has the nodes filter and add them up, and reads the answers: as structs, and as
// Arrow record batches.
//
//	go run ./examples/orders tcp://127.0.0.1:7000 tokens orders
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
)

// Order is a row. A field is a column; a pointer may be missing.
type Order struct {
	User  int64     `wherry:"user id"`
	Total float64   `wherry:"total"`
	When  time.Time `wherry:"when,timestamp[ms, UTC]"`
	Note  *string   `wherry:"note"`
}

// Spent is a row of an answer.
type Spent struct {
	User  int64   `wherry:"user id"`
	Count int64   `wherry:"n"`
	Total float64 `wherry:"total"`
}

func made() []Order {
	gift, day := "a gift", time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return []Order{
		{7, 12.5, day, nil}, {8, 3, day.Add(time.Hour), &gift}, {7, 20, day.Add(24 * time.Hour), &gift}, {9, 99, day.Add(48 * time.Hour), nil},
	}
}

// run loads the orders, asks two questions, and writes the second one's answer as an Arrow stream.
func run(ctx context.Context, node, tokenFile, dataset string, out, stream io.Writer) error {
	c, err := client.Connect(ctx, client.Config{Nodes: []cluster.Member{{Addrs: []string{node}}}, TokenFile: tokenFile})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := client.LoadRows(ctx, c, dataset, slices.Values(made())); err != nil {
		return err
	}
	for o, err := range client.All[Order](ctx, c, client.From(dataset).Where(`total > 9 && isnull(note)`).Order("when")) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: user %d ordered for %g\n", o.When.Format(time.DateOnly), o.User, o.Total)
	}
	perUser := client.From(dataset).Group("user id").Agg("n=count()", "total=sum(total)").Order("-total").Limit(2)
	for s, err := range client.All[Spent](ctx, c, perUser) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "user %d: %d orders, %g\n", s.User, s.Count, s.Total)
	}
	rows, err := c.Ask(ctx, perUser)
	if err != nil {
		return err
	}
	defer rows.Close()
	var w *ipc.Writer
	for batch, err := range rows.Batches() {
		if err != nil {
			return err
		}
		if w == nil {
			w = ipc.NewWriter(stream, ipc.WithSchema(batch.Schema()))
		}
		if err := w.Write(batch); err != nil {
			return err
		}
	}
	if w == nil {
		return rows.Err()
	}
	return w.Close()
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: orders NODE TOKENFILE DATASET > answer.arrows")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3], os.Stderr, os.Stdout); err != nil {
		log.Fatal(err)
	}
}
