package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/internal/shell"
	"github.com/wherry-fabric/wherry/node"
	"github.com/wherry-fabric/wherry/schema"
)

func (a *app) memCommand() *cobra.Command {
	parent := noun(&cobra.Command{
		Use:   "mem",
		Short: "Load, list, read and remove datasets on nodes",
		Long: `A dataset is kept in the memory of one node or of several, which hold some rows
each. It has a name, stays when the client that loaded it ends, and is open to its
owner and to those it was granted to. docs/datasets.md describes the formats.`,
		Example: "  wherry mem load people people.csv --header --schema name:str,age:u8\n  wherry mem ls",
	})
	a.client.add(parent)
	parent.AddCommand(a.memLoadCommand(), a.memListCommand(), a.memStatCommand(), a.memRemoveCommand(), a.memGetCommand(), a.memGrantCommand())
	return parent
}

// withClient runs f with a connected client.
func (a *app) withClient(cmd *cobra.Command, f func(ctx context.Context, c *client.Client) error) error {
	ctx, cancel := a.context(cmd)
	defer cancel()
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(ctx, c)
}

// withNode is withClient for a command that is for one node; "": for all.
func (a *app) withNode(cmd *cobra.Command, node string, f func(ctx context.Context, c *client.Client) error) error {
	a.client.node = node
	return a.withClient(cmd, f)
}

// withPool is withClient for a command about regions of one node, or else of those that managers know and of all nodes that answer.
func (a *app) withPool(cmd *cobra.Command, on string, f func(ctx context.Context, c *client.Client) error) error {
	a.client.managed = on == ""
	return a.withNode(cmd, on, f)
}

// loadFlags are those of mem load.
type loadFlags struct {
	at         []string
	nodes      []string
	format     string
	formatFlag string // its name
	schema     string
	packed     bool
	types      string
	header     bool
	comma      string
	shard      string
	key        string
	names      bool
	extra      bool
	weights    bool
	empty      bool
	skipBad    int64
	line       string
	replace    bool
	appends    bool
	writable   bool
	nulls      []string
	dryRun     bool

	headerGiven bool
}

func (a *app) memLoadCommand() *cobra.Command {
	var f loadFlags
	cmd := &cobra.Command{
		Use:   "load NAME [FILE… | PATTERN… | -]",
		Short: "Put a file's columns, or a graph, into nodes' memory",
		Long: `Load a dataset. Either the file is read here, and each node fetches the rows that
it is to hold; or each node reads a file of its own (--at NODE:PATH, below one of
its data roots), and the data does not pass through this machine.

csv, ndjson, parquet and arrow are loaded as columns, from one file or several
with the same columns ('logs/*.csv.zst'). Types of csv and ndjson are inferred from
the file's first 4 MiB, but for those that --types gives, and the load says what it
inferred; a later value that does not fit is an error with file, line and column.
A csv file has a header line (without one: --header=false; columns are c1, c2, …).
Lists and objects of ndjson, parquet and arrow become lists and structs. With --key
rows with equal keys go to one node; otherwise each node gets a range of the rows.

With a schema csv and ndjson have the columns that it names, with these types, and
nothing is inferred: name:type,name:type,… with the types i8…i64, u8…u64, f32, f64,
bool, str and bytesN; without --header those of a csv file in this order. One column
of fixed width, as in row:u64, can be followed by chase; --packed makes a C struct
of each row, for functions that read such rows. Both take parquet and arrow too, of
which they name columns. raw are such structs as they lie in
memory, edges is a graph, loaded as compressed sparse rows in both directions: a text
with an edge per line, or with --format edges a parquet or arrow file that has columns
src and dst (or two others first), or a list of targets for each vertex.`,
		Example: `  wherry mem load logs 'logs/*.csv.zst' --types 'status:u16,when:timestamp[ms]' --null NA
  wherry mem load logs --at 'a:logs/*.csv' --at b:/var/log/b.csv --dry-run
  wherry mem load people people.csv --header --schema name:str,age:u8
  wherry mem load logs --at a:/var/log/a.csv --at b:/var/log/b.csv --schema time:i64,level:str,status:u16
  wherry mem load web edges.txt --format edges --nodes a,b,c,d
  wherry mem load web edges.parquet --format edges --weights
  wherry mem load orders orders.parquet
  zcat big.csv.gz | wherry mem load big - --format csv --schema id:u64,v:f64 --key id`,
		Args: cobra.MinimumNArgs(1),
	}
	p := cmd.Flags()
	p.BoolVar(&f.dryRun, "dry-run", false, "read everything, say what would be loaded, and keep nothing")
	p.StringArrayVar(&f.at, "at", nil, "NODE:PATH: the node reads its own file; may be repeated")
	p.StringSliceVar(&f.nodes, "nodes", nil, "names of the nodes to shard over, with commas between, in this order (default: all, by name)")
	f.addFormat(cmd, "format")
	p.BoolVar(&f.appends, "append", false, "add the rows to the dataset of that name, which has the same columns")
	p.BoolVar(&f.replace, "replace", false, "replace the dataset of that name, once the new one is loaded")
	p.BoolVar(&f.writable, "writable", false, "let functions and clients write to it (default: it is sealed)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.memLoad(cmd, args[0], args[1:], &f)
	}
	a.completeFlag(cmd, "nodes", completeNodes)
	return cmd
}

// addFormat puts the flags on a command that say how a file is read and cut into shards; format is the name of the one with its format.
func (f *loadFlags) addFormat(cmd *cobra.Command, format string) {
	p := cmd.Flags()
	f.formatFlag = format
	p.StringVar(&f.format, format, "", "csv, ndjson, parquet, arrow, raw or edges (default: by the file's name)")
	p.StringVar(&f.schema, "schema", "", "the columns that there shall be and their types, as in name:str,age:u8, or a file with them as text or JSON")
	p.BoolVar(&f.packed, "packed", false, "make a C struct of each row, of the fields of --schema: for functions that read such rows, or write to them")
	p.StringVar(&f.types, "types", "", "types of columns, as in status:u16,when:timestamp[ms]; those of others are inferred. With --header and without names: the types of a CSV file's columns, in their order")
	p.StringArrayVar(&f.nulls, "null", nil, "text that means a missing value in csv and ndjson, beside an empty field without quotes; may be repeated")
	p.BoolVar(&f.header, "header", false, "the first line of the CSV file has the columns' names (=false: it has none)")
	p.StringVar(&f.comma, "separator", "", "the byte that separates columns (default: csv: a comma, in .tsv a tab; edges: spaces and tabs)")
	p.StringVar(&f.shard, "shard", "", "block, cyclic or hash (default: block, or with --key hash); columns: block, or by --key")
	p.StringVar(&f.key, "key", "", "the column whose hash says which node a row goes to: equal keys lie on one node, and a query with 'COLUMN == …' asks that one only")
	p.BoolVar(&f.names, "names", false, "edges: vertices have names, not numbers")
	p.BoolVar(&f.extra, "extra-columns", false, "edges: ignore further columns")
	p.BoolVar(&f.weights, "weights", false, "edges: a weight follows the two vertices, a number (parquet, arrow: in the column weight, or the first other one); fn run sssp adds them up")
	p.BoolVar(&f.empty, "empty-is-zero", false, "load empty and missing fields as zero, where no value can be missing: --packed, or --schema with one field")
	p.Int64Var(&f.skipBad, "skip-bad", 0, "leave out at most this many bad lines, of all files together, -1 for any number; they are counted, and the first ten of a file are shown")
	p.StringVar(&f.line, "line-bytes", node.Bytes(dataset.DefaultLineBytes).String(), fmt.Sprintf("the longest line, or CSV record of several lines, at most %v", node.Bytes(dataset.MaxLineBytes)))
}

// readSchema reads --schema: text, or a file's.
func readSchema(text string) (*schema.Schema, error) {
	if text == "" {
		return nil, nil
	}
	if !strings.Contains(text, ":") || strings.HasSuffix(text, ".json") {
		b, err := os.ReadFile(text)
		if err != nil {
			return nil, usagef("--schema: %w: give name:type,name:type,… or a file that holds that", err)
		}
		text = string(b)
	}
	s, err := schema.ParseAny(text)
	if err != nil {
		return nil, usagef("--schema: %w", err)
	}
	return s, nil
}

// columnTypes reads --types where it has names.
func (f *loadFlags) columnTypes() (column.Schema, error) {
	if !strings.Contains(f.types, ":") {
		return nil, nil
	}
	s, err := column.ParseList(f.types)
	if err != nil {
		return nil, usagef("--types: %w", err)
	}
	return s, nil
}

// typeList reads --types where it has none.
func (f *loadFlags) typeList() []schema.Type {
	var out []schema.Type
	if strings.Contains(f.types, ":") {
		return nil
	}
	for t := range strings.SplitSeq(f.types, ",") {
		if t = strings.TrimSpace(t); t != "" {
			out = append(out, schema.Type(t))
		}
	}
	return out
}

// spec is the load that the flags describe, but for its input.
func (f *loadFlags) spec(name string) (client.LoadSpec, error) {
	spec := client.LoadSpec{Name: name, Replace: f.replace, Append: f.appends, Writable: f.writable, Nodes: f.nodes}
	s, err := readSchema(f.schema)
	if err != nil {
		return spec, err
	}
	kind := cluster.ShardKind(0)
	if f.shard != "" {
		if kind, err = cluster.ParseShardKind(f.shard); err != nil {
			return spec, usageError{err}
		}
	}
	if len(f.comma) > 1 {
		return spec, usagef("--separator %q is not one byte: a tab, a semicolon or another ASCII character", f.comma)
	}
	types, err := f.columnTypes()
	if err != nil {
		return spec, err
	}
	rows := f.typeList()
	none := f.headerGiven && !f.header && s == nil // with a schema there is none anyway
	spec.DryRun = f.dryRun
	spec.Options = dataset.Options{Format: dataset.Format(f.format), Schema: s, Packed: f.packed, Types: rows, Header: f.header, EmptyIsZero: f.empty, SkipBad: f.skipBad,
		Names: f.names, ExtraColumns: f.extra, Weights: f.weights, Spread: dataset.Spread{Kind: kind, Key: f.key}, NoHeader: none, ColumnTypes: types, Nulls: f.nulls}
	if f.comma != "" {
		spec.Options.Comma = f.comma[0]
	}
	spec.Format = control.FileOptions{Format: f.format, Schema: s, Packed: f.packed, Types: rows, Header: f.header, Comma: f.comma, EmptyIsZero: f.empty, SkipBad: f.skipBad,
		Names: f.names, ExtraColumns: f.extra, Weights: f.weights, NoHeader: none, ColumnTypes: types, Nulls: f.nulls}
	for _, at := range f.at {
		n, path, ok := strings.Cut(at, ":")
		if !ok || n == "" || path == "" {
			return spec, usagef("--at %q is not NODE:PATH", at)
		}
		spec.At = append(spec.At, client.Source{Node: n, Path: path})
	}
	return spec, nil
}

// longest reads --line-bytes.
func (f *loadFlags) longest(spec *client.LoadSpec) error {
	n, err := node.ParseBytes(f.line)
	if err != nil {
		return usagef("--line-bytes: %w", err)
	}
	if n == 0 {
		return usagef("--line-bytes 0: no line is as short; leave it out for %v", node.Bytes(dataset.DefaultLineBytes))
	}
	spec.Options.LineBytes, spec.Format.LineBytes = int(n), int(n)
	return nil
}

// input looks at what is loaded from here, before any node is asked. Standard
// input is read later, by spool.
func (f *loadFlags) input(names []string, spec *client.LoadSpec) error {
	if names[0] == "-" {
		if f.format == "" {
			return usagef("standard input has no name to tell its format by: give --%s", f.formatFlag)
		}
		return spec.Options.Validate()
	}
	for _, name := range names {
		ins, err := openAll(name)
		if err != nil {
			return err
		}
		spec.Inputs = append(spec.Inputs, ins...)
	}
	if f.format == "" {
		file := spec.Inputs[0].Name()
		format, comma, ok := dataset.FormatOf(file)
		if !ok {
			return usagef("the name of %s does not tell its format: give --%s csv, ndjson, parquet, arrow, raw or edges", file, f.formatFlag)
		}
		for _, in := range spec.Inputs {
			if other, _, _ := dataset.FormatOf(in.Name()); other != format {
				return usagef("%s is %s and %s is %s: load one kind at a time, or give --%s", file, format, in.Name(), other, f.formatFlag)
			}
		}
		if spec.Options.Format = format; spec.Options.Comma == 0 {
			spec.Options.Comma = comma
		}
	}
	return spec.Options.Validate()
}

// openAll looks at a file, or at all that a pattern names.
func openAll(name string) ([]dataset.Input, error) {
	paths := []string{name}
	if _, err := os.Lstat(name); err != nil && strings.ContainsAny(name, "*?[") {
		if paths, err = filepath.Glob(name); err != nil {
			return nil, usagef("%q is no pattern: %w", name, err)
		}
		if len(paths) == 0 {
			return nil, usagef("no file has a name like %s", name)
		}
	}
	var out []dataset.Input
	for _, path := range paths {
		in, err := dataset.OpenFile(path)
		if err != nil {
			return nil, err
		}
		out = append(out, in)
	}
	return out, nil
}

// spool keeps standard input, which a load reads more than once.
func (a *app) spool(ctx context.Context, format dataset.Format) (*dataset.Spool, error) {
	var read atomic.Int64
	b := a.spinner(func(time.Duration) string { return fmt.Sprintf("standard input: %v", node.Bytes(read.Load())) })
	defer b.end()
	return abandon(ctx, func() (*dataset.Spool, error) {
		s, err := dataset.NewSpool(ctx, "standard input", a.in, "", dataset.DefaultSpoolBytes, func(_ dataset.Phase, done, _ int64) { read.Store(done) })
		if err == nil && format != dataset.RawFile { // a raw record may begin with any bytes
			err = s.Unpack()
		}
		return s, err
	})
}

// load loads a dataset and shows how it gets on.
func (a *app) load(ctx context.Context, c *client.Client, spec client.LoadSpec) (*client.LoadReport, error) {
	b := a.bar(true)
	defer b.end()
	return c.Load(ctx, spec, func(p client.LoadProgress) {
		who := p.Phase
		if p.Node != "" {
			who = p.Node + ": " + p.Phase
		}
		b.at(who, p.Done, p.Total)
	})
}

func (a *app) memLoad(cmd *cobra.Command, name string, files []string, f *loadFlags) error {
	f.headerGiven = cmd.Flags().Changed("header")
	spec, err := f.spec(name)
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("line-bytes") { // not for raw, which refuses it
		if err := f.longest(&spec); err != nil {
			return err
		}
	}
	if (len(files) == 0) == (len(spec.At) == 0) {
		return usagef("say what to load: a FILE (- for standard input), or --at NODE:PATH")
	}
	for _, flag := range []string{"nodes", "shard", "key"} {
		if len(spec.At) > 0 && cmd.Flags().Changed(flag) {
			return usagef("--%s goes with a FILE that is read here; with --at each node keeps the rows of its own file, in the order in which the nodes are named", flag)
		}
	}
	for _, flag := range []string{"replace", "writable", "nodes"} {
		if f.appends && cmd.Flags().Changed(flag) {
			return usagef("--%s does not go with --append: rows are added to sealed columns, at the nodes that have them", flag)
		}
	}
	if cmd.Flags().Changed("nodes") && len(f.nodes) == 0 {
		return usagef("--nodes names no node: name one or more, or leave it out for all")
	}
	if len(files) > 1 && slices.Contains(files, "-") {
		return usagef("standard input (-) is loaded alone")
	}
	if len(files) > 0 {
		if err := f.input(files, &spec); err != nil {
			return err
		}
	}
	return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
		start := time.Now()
		if len(files) == 1 && files[0] == "-" {
			spool, err := a.spool(ctx, spec.Options.Format)
			if err != nil {
				return err
			}
			defer spool.Close()
			spec.Input = spool
		}
		report, err := a.load(ctx, c, spec)
		if err != nil {
			return err
		}
		return a.print(report, func(w io.Writer) {
			a.writeLoaded(w, report, time.Since(start))
		})
	})
}

// writeLoaded says what a load has made.
func (a *app) writeLoaded(w io.Writer, report *client.LoadReport, took time.Duration) {
	t := report.Table
	fmt.Fprintf(w, "%s: %d %s", t.Name, report.Rows, plural(report.Rows, "row"))
	if report.Edges > 0 {
		fmt.Fprintf(w, ", %d %s", report.Edges, plural(report.Edges, "edge"))
	}
	if t.Version == 0 {
		fmt.Fprintf(w, ", %v; nothing is kept (--dry-run)\n", node.Bytes(report.Bytes))
	} else {
		fmt.Fprintf(w, " on %d %s, %v, version %d, in %v\n", len(t.Shards), plural(len(t.Shards), "node"), node.Bytes(report.Bytes), t.Version, took.Round(time.Millisecond))
	}
	if n := report.Inferred; n != nil && n.Types != "" {
		of := ""
		if files := sampledFiles(report); files > 1 {
			of = fmt.Sprintf(" of %d files", files)
		}
		fmt.Fprintf(a.err, "wherry: types inferred from the first %d %s%s; to have them so again, or others: --types %s\n", n.Rows, plural(n.Rows, "row"), of, shell.Quote(n.Types))
	}
	writeBad(a.err, report)
}

// sampledFiles is how many files types were inferred from: of those of a node the first.
func sampledFiles(report *client.LoadReport) (n int) {
	for _, f := range report.Files {
		if f.Sampled > 0 {
			n++
		}
	}
	return n
}

// writeBad says which lines a load left out.
func writeBad(w io.Writer, report *client.LoadReport) {
	if report.Bad == 0 {
		return
	}
	fmt.Fprintf(w, "wherry: left out %d bad %s:\n", report.Bad, plural(report.Bad, "line"))
	for _, b := range report.BadLines {
		if b.Node != "" {
			fmt.Fprintf(w, "  %s: %s\n", b.Node, b.Error)
		} else {
			fmt.Fprintf(w, "  %s\n", b.Error)
		}
	}
	if more := report.Bad - int64(len(report.BadLines)); more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
}

// plural is the word for n of what.
func plural[N int | int64 | uint64](n N, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

func (a *app) memListCommand() *cobra.Command {
	return &cobra.Command{Use: "ls", Short: "List the datasets you may see", Example: "  wherry mem ls --json", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
			list, err := c.List(ctx)
			if err != nil {
				return err
			}
			if len(list) == 0 && !a.json && !a.quiet {
				fmt.Fprintln(a.err, "no datasets that you may see; wherry mem load makes one")
			}
			return a.print(list, func(w io.Writer) {
				for _, d := range list {
					fmt.Fprintf(w, "%-20s %-8s %12d rows %3d %-5s %10v  %s%s\n", d.Name, d.Table.Kind, d.Table.Rows, len(d.Table.Shards), plural(len(d.Table.Shards), "node"), node.Bytes(d.LentBytes), access(d.Writable), lostText(&d))
				}
			})
		})
	}}
}

// access says whether a dataset can be written.
func access(writable bool) string {
	if writable {
		return "writable"
	}
	return "sealed"
}

// lostText says how many shards cannot be used: those that are lost, and those
// that may be back.
func lostText(d *client.Dataset) string {
	lost, away := len(d.Lost), len(d.Unreachable)
	switch all := len(d.Table.Shards); {
	case lost+away == 0:
		return ""
	case lost == 0:
		return fmt.Sprintf("  (%d of %d shards unreachable; see mem stat)", away, all)
	case away == 0:
		return fmt.Sprintf("  (%d of %d shards lost; see mem stat)", lost, all)
	default:
		return fmt.Sprintf("  (of %d shards, %d lost and %d unreachable; see mem stat)", all, lost, away)
	}
}

func (a *app) memStatCommand() *cobra.Command {
	var asC bool
	cmd := &cobra.Command{Use: "stat NAME", Short: "Describe a dataset: schema, shards, grants",
		Long: `Describe a dataset: its schema, its shards and who was granted it. A shard that
cannot be used says why: LOST is gone, because its node came back without it
(load the dataset again); UNREACHABLE may come back, because its node is only
not connected, or does not answer. With --json they are in "lost" and in
"unreachable", by the node's name.`,
		Example: "  wherry mem stat logs\n  wherry mem stat logs --c", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completing(completeDatasets, 1)}
	cmd.Flags().BoolVar(&asC, "c", false, "print the C struct of a row that is one (--packed), for function writers")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
			d, err := c.Stat(ctx, args[0])
			if err != nil {
				return err
			}
			if asC && d.Table.Kind != cluster.Records {
				return usagef("%s is of kind %v, and only rows that are one value have a C struct: functions read columns by wherry_columns.h (sdk/README.md)", d.Name, d.Table.Kind)
			}
			if asC {
				name := schema.Identifier(d.Name)
				text, err := d.Table.Schema.CStruct(name[:min(len(name), schema.MaxNameBytes)])
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(a.out, text)
				return err
			}
			return a.print(d, func(w io.Writer) { writeDataset(w, d) })
		})
	}
	return cmd
}

func writeDataset(w io.Writer, d *client.Dataset) {
	t := d.Table
	fmt.Fprintf(w, "%s: %v, %d %s, version %d, owner %s, %v, %s\n", d.Name, t.Kind, t.Rows, plural(t.Rows, "row"), d.Version, d.Owner, node.Bytes(d.LentBytes), access(d.Writable))
	for _, col := range t.Columns {
		fmt.Fprintf(w, "  column  %-20s %v%s\n", batch.Printable(col.Name), col.Type, map[bool]string{true: "?"}[col.Nullable])
	}
	if len(t.Schema.Fields) > 0 {
		fmt.Fprintf(w, "  schema  %v\n", &t.Schema)
	}
	fmt.Fprintf(w, "  shards  %s\n", shardingText(&t.Sharding))
	for i, s := range t.Shards {
		fmt.Fprintf(w, "    %2d %-12s %s", i, s.Element, t.Sharding.Held(uint32(i)))
		if s.Rows > 0 {
			fmt.Fprintf(w, " (%d)", s.Rows)
		}
		for k, win := range s.Windows {
			if len(s.Parts) == 0 {
				fmt.Fprintf(w, "  %d:%v", k, node.Bytes(win.Size))
			}
		}
		if n := len(s.Parts); n > 0 {
			fmt.Fprintf(w, "  %d %s", n, plural(n, "part"))
		}
		if why := d.Lost[s.Element]; why != "" {
			fmt.Fprintf(w, "  LOST: %s", why)
		}
		if why := d.Unreachable[s.Element]; why != "" {
			fmt.Fprintf(w, "  UNREACHABLE: %s", why)
		}
		fmt.Fprintln(w)
	}
	for _, p := range d.Parts {
		fmt.Fprintf(w, "  part    %-12s %d %s from %d, %v\n", p.Node, p.Rows, plural(p.Rows, "row"), p.FirstRow, node.Bytes(p.Bytes))
	}
	for _, who := range slices.Sorted(maps.Keys(d.Grants)) {
		fmt.Fprintf(w, "  granted %s to %s\n", d.Grants[who], who)
	}
}

func shardingText(s *cluster.Sharding) string {
	if s.Key != "" {
		return fmt.Sprintf("%v of %s; rows are numbered node by node", s.Kind, s.Key)
	}
	return s.Kind.String()
}

func (a *app) memRemoveCommand() *cobra.Command {
	return &cobra.Command{Use: "rm NAME…", Short: "Remove datasets from all nodes", Example: "  wherry mem rm logs people", Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completing(completeDatasets, 0), RunE: func(cmd *cobra.Command, args []string) error {
		return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
			removed := []string{}
			var errs []error
			for _, name := range args { // one that cannot be removed does not keep the others
				if err := c.Remove(ctx, name); err != nil {
					errs = append(errs, err)
					continue
				}
				removed = append(removed, name)
			}
			if len(errs) > 0 && len(removed) > 0 && !a.json {
				errs = append(errs, fmt.Errorf("removed: %s", strings.Join(removed, ", "))) // the others are not
			}
			errs = append(errs, a.print(map[string]any{"removed": removed}, func(io.Writer) {}))
			return errors.Join(errs...)
		})
	}}
}

// grantHelp is what all grants take.
const grantHelp = `TOKEN is the name of a token or of a
certificate, or * for everybody. RIGHTS are r (read), w (write), a (atomic
operations), or several of them as in rwa; or words with commas between: read,
write, atomic, all. none takes all rights away, and revokes the keys that were given out.`

func (a *app) memGrantCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "grant NAME TOKEN RIGHTS",
		Short:   "Let another token read or write a dataset",
		Long:    "Set what TOKEN may do with a dataset. " + grantHelp,
		Example: "  wherry mem grant logs reader r",
		Args:    cobra.ExactArgs(3),

		ValidArgsFunction: a.completing(completeDatasets, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := cluster.ParseRights(args[2]); err != nil {
				return usageError{err}
			}
			return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				if err := c.Grant(ctx, args[0], args[1], args[2]); err != nil {
					return err
				}
				return a.print(map[string]string{"dataset": args[0], "to": args[1], "rights": args[2]}, func(io.Writer) {})
			})
		},
	}
}
