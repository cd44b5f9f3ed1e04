package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset/batch"
)

// memGet is what mem get is to read, and how it is to be written.
type memGet struct {
	options         client.ReadOptions
	format, out     string
	element, window int
}

func (a *app) memGetCommand() *cobra.Command {
	g := memGet{element: -1}
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Read a dataset's rows back",
		Example: `  wherry mem get logs --first 1000 --count 20
  wherry mem get logs --format ndjson --out logs.ndjson
  wherry mem get orders --format arrow --out orders.arrows
  wherry mem get web --element 0 --window 1 --out targets.bin`,
		Args: cobra.ExactArgs(1),

		ValidArgsFunction: a.completing(completeDatasets, 1),
	}
	p := cmd.Flags()
	p.Uint64Var(&g.options.First, "first", 0, "number of the first row, from 0")
	p.Uint64Var(&g.options.Count, "count", 0, "rows to read, 0 for all that follow")
	p.StringVar(&g.format, "format", "csv", "csv, json, ndjson or table; arrow (a stream), parquet; raw of records")
	p.StringVar(&g.out, "out", "-", "file to write, - for standard output")
	p.IntVar(&g.element, "element", -1, "number of an element, from 0: write one of its windows, byte by byte, instead of rows (-1: rows)")
	p.IntVar(&g.window, "window", 0, "with --element: number of the window, from 0")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.json && !cmd.Flags().Changed("format") {
			g.format = string(batch.JSON)
		}
		if err := g.check(cmd); err != nil {
			return err
		}
		if err := checkOut(g.out, a.client.reads()...); err != nil {
			return err
		}
		return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
			b := a.bar(false)
			defer b.end()
			g.options.Progress = func(done, total uint64) { b.at("rows", int64(done), int64(total)) }
			return a.writeTo(g.out, func(w io.Writer) error { return g.write(ctx, c, args[0], w) })
		})
	}
	return cmd
}

// check finds flags that do not go together.
func (g *memGet) check(cmd *cobra.Command) (err error) {
	set := cmd.Flags().Changed
	switch {
	case set("element") && g.element < 0:
		return usagef("--element %d: elements are numbered from 0", g.element)
	case set("window") && !set("element"):
		return usagef("--window %d is of an element: give --element too", g.window)
	case set("element") && (set("first") || set("count") || set("format")):
		return usagef("--element gives a window as it is: --first, --count and --format are for rows")
	}
	g.options.Format, err = formatOrRaw(g.format)
	return err
}

// write reads what there is to read.
func (g *memGet) write(ctx context.Context, c *client.Client, name string, w io.Writer) error {
	if g.element >= 0 {
		return c.ReadWindow(ctx, name, g.element, g.window, w)
	}
	r, err := c.Reader(ctx, name)
	if err != nil {
		return err
	}
	format := g.options.Format
	arrow := format == batch.Arrow || format == batch.Parquet
	if arrow && r.Table.Kind == cluster.CSR {
		return c.Changed(ctx, r.Table, r.WriteGraph(ctx, g.options, format, w))
	}
	if _, is := r.Table.Readable(); arrow && !is {
		return usagef("--format %s is for columns, records and graphs; %s is of kind %v", g.format, name, r.Table.Kind)
	}
	if r.Table.Kind == cluster.CSR {
		return usagef("--format %s is for rows; %s is a graph: use arrow or parquet, or read a window as it is (--element and --window)", g.format, name)
	}
	return c.Changed(ctx, r.Table, r.Write(ctx, g.options, w))
}
