package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/query"
)

// queryFlags are those of query.
type queryFlags struct {
	query           query.Query
	selected, group string
	agg, order      string
	format, out     string
	explain         bool
}

func (a *app) queryCommand() *cobra.Command {
	var f queryFlags
	cmd := &cobra.Command{
		Use:   "query NAME",
		Short: "Filter, group and add up a dataset's columns where they lie",
		Long: `Ask a dataset of columns (a CSV, NDJSON, Parquet or Arrow file that was loaded).
What the query does is done at the nodes; only what is left comes back, as a table,
or as an Arrow stream that Python, DuckDB and Polars read.

Expressions are Go's: status >= 500 && !isnull(ms). A column whose name is no Go
name is col("user id"). Functions: isnull, hasprefix, hassuffix, contains, i64, u64,
f64. Beside a timestamp, "2026-03-01T12:00:00Z" is one. Aggregates: count, sum, mean
(avg), min, max, stddev, distinct; approximate are approx_distinct and
quantile(x, 0.99). docs/columns.md describes them all.`,
		Example: `  wherry query orders --where 'total > 9 && !isnull(paid)' --limit 10
  wherry query logs --where 'status >= 500' --group level,host --agg 'n=count(), ms=mean(ms)' --order -n --limit 10
  wherry query logs --group level --agg 'count()' --format arrow | python3 -c 'import sys, pyarrow as pa; print(pa.ipc.open_stream(sys.stdin.buffer).read_all())'`,
		Args: cobra.ExactArgs(1),

		ValidArgsFunction: a.completing(completeDatasets, 1),
	}
	a.client.add(cmd)
	p := cmd.Flags()
	p.StringVar(&f.query.Where, "where", "", "keep the rows for which this is true (default: all)")
	p.Var(newList(&f.selected, ""), "select", "columns to give, or NAME=EXPRESSION, with commas between (default: all)")
	p.Var(newList(&f.group, ""), "group", "columns to group by, or NAME=EXPRESSION, with commas between")
	p.Var(newList(&f.agg, ""), "agg", "NAME=FUNCTION(EXPRESSION), with commas between: what to compute of each group, or of all rows")
	p.Var(newList(&f.order, ""), "order", "names of what comes out, with commas between; -NAME for the greatest first")
	p.Uint64Var(&f.query.Limit, "limit", 0, "rows to give at most, 0 for all")
	p.StringVar(&f.format, "format", "", "arrow, parquet, csv, json, ndjson or table (default: table on a terminal, else csv)")
	p.StringVar(&f.out, "out", "-", "file to write, - for standard output")
	p.IntVar(&f.query.Workers, "workers", 1, fmt.Sprintf("how many workers of each node share its part, 1 to %d; a node lets as many work at once as it has cores, or its limit workers says", query.MaxWorkers))
	p.BoolVar(&f.explain, "explain", false, "say on standard error what was done where, and how long it took; with --json instead of the answer")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.query(cmd, args[0], &f) }
	return cmd
}

// items splits a list at commas that stand in no brackets and quotes.
func items(list string) (out []string) {
	depth, start, quote := 0, 0, rune(0)
	escaped := false
	for i, c := range list {
		switch {
		case escaped:
			escaped = false
		case quote == '"' && c == '\\':
			escaped = true
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '`':
			quote = c
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			out = append(out, strings.TrimSpace(list[start:i]))
			start = i + 1
		}
	}
	if last := strings.TrimSpace(list[start:]); last != "" || start > 0 {
		out = append(out, last)
	}
	return out
}

func (a *app) query(cmd *cobra.Command, name string, f *queryFlags) error {
	f.query.Select, f.query.Group, f.query.Agg, f.query.Order = items(f.selected), items(f.group), items(f.agg), items(f.order)
	format, err := a.batchFormat(f.format, f.out)
	if err == nil {
		err = checkOut(f.out, a.client.reads()...)
	}
	if err != nil {
		return err
	}
	return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
		b := a.spinner(func(since time.Duration) string {
			return fmt.Sprintf("query %s: %v of %v", name, since.Round(time.Second), a.timeout)
		})
		found, err := c.Query(ctx, name, f.query)
		b.end()
		if err != nil {
			return whyForbidden(ctx, c, err)
		}
		if f.explain && a.json {
			return a.print(found.Explanation, func(io.Writer) {})
		}
		if f.explain {
			writeExplanation(a.err, &found.Explanation)
		}
		return a.writeTo(f.out, func(w io.Writer) error { return found.Write(w, format) })
	})
}

// batchFormat is how columns are written: as asked for, or as fits its reader: a person or a program.
func (a *app) batchFormat(format, out string) (batch.Format, error) {
	switch {
	case format != "":
		f, err := batch.ParseFormat(format)
		if err != nil {
			return "", usageError{err}
		}
		return f, nil
	case a.json:
		return batch.JSON, nil
	case out == "-" && isTerminal(a.out):
		return batch.Table, nil
	}
	return batch.CSV, nil
}

func writeExplanation(w io.Writer, e *invoke.Explanation) {
	for _, step := range e.Plan {
		fmt.Fprintf(w, "wherry: %s\n", step)
	}
	fmt.Fprintf(w, "wherry: %d rows and %d chunks read, %d chunks skipped (%s), %d bytes moved, %.1f ms at nodes, %.1f ms to put together\n",
		e.RowsRead, e.ChunksRead, e.ChunksSkipped, strings.Join(e.Pushed, ", "), e.BytesMoved, e.NodeMs, e.MergeMs)
}
