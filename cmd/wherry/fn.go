package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/trust"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/node"
	"github.com/wherry-fabric/wherry/schema"
)

func (a *app) fnCommand() *cobra.Command {
	parent := noun(&cobra.Command{
		Use:   "fn",
		Short: "Build, inspect, sign and run functions",
		Long: `A function image (.wfn) is one file with a function's manifest and its code.
Nothing has to be installed on nodes: fn run sends the function to where the data
is. Some functions are part of wherry; wherry fn ls lists them.`,
		Example: "  wherry fn ls\n  wherry fn run countby --on logs --arg column=status",
	})
	parent.AddCommand(a.fnListCommand(), a.fnBuildCommand(), a.fnPackCommand(), a.fnInspectCommand(), a.fnSignCommand(), a.fnVerifyCommand(), a.fnKeysCommand(), a.fnTestCommand(), a.fnRunCommand())
	return parent
}

func (a *app) fnListCommand() *cobra.Command {
	return &cobra.Command{Use: "ls", Short: "List the ready functions", Example: "  wherry fn ls --json", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		type row struct {
			Name        string `json:"name"`
			ID          string `json:"id"`
			Bytes       int    `json:"bytes"`
			Description string `json:"description"`
		}
		var rows []row
		for _, name := range xrdma.List() {
			img, err := xrdma.Lookup(name)
			if err != nil {
				return err
			}
			rows = append(rows, row{name, img.ID().String(), img.Size(), img.Manifest().Description})
		}
		return a.print(rows, func(w io.Writer) {
			for _, r := range rows {
				first, _, _ := strings.Cut(r.Description, "\n")
				fmt.Fprintf(w, "%-12s %s\n", r.Name, first)
			}
		})
	}}
}

// manifestFile is where the manifest is looked for.
func manifestFile(stem, given string) string {
	if given != "" {
		return given
	}
	return stem + ".json"
}

// readManifest reads a manifest, or makes the simplest one.
func readManifest(stem, file string) (image.Manifest, error) {
	given := file != ""
	file = manifestFile(stem, file)
	text, err := os.ReadFile(file)
	if !given && errors.Is(err, os.ErrNotExist) {
		return image.ParseManifest(fmt.Appendf(nil, `{"name":%q,"start":"first"}`, filepath.Base(stem)))
	}
	if err != nil {
		return image.Manifest{}, err
	}
	m, err := image.ParseManifest(text)
	if err != nil {
		return m, usagef("%s: %w", file, err)
	}
	return m, nil
}

// maybeReady says whether a name can be a ready function's: one that has a dot or slash is a file's.
func maybeReady(name string) bool { return !strings.ContainsAny(name, "./") }

// isReady says whether loadImage finds a ready function by a name, and no file.
func isReady(name string) bool {
	_, err := xrdma.ID(name)
	return maybeReady(name) && err == nil
}

// loadImage reads an image: a file, or a ready function by its name.
func loadImage(name string) (*image.Image, error) {
	if maybeReady(name) {
		img, err := xrdma.Lookup(name)
		if err == nil {
			return img, nil
		}
		if _, ferr := os.Stat(name); ferr != nil {
			return nil, fmt.Errorf("%w (and there is no file of that name)", err)
		}
	}
	b, err := os.ReadFile(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", errNoFunction, err)
	case err != nil:
		return nil, usageError{err}
	}
	img, err := image.Parse(b)
	if err != nil {
		return nil, usagef("%s: %w", name, err)
	}
	return img, nil
}

func (a *app) fnInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "inspect FUNCTION",
		Short:   "Describe a function image",
		Example: "  wherry fn inspect closure\n  wherry fn inspect tally.wfn --json",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: a.completing(completeFunctions, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			img, err := loadImage(args[0])
			if err != nil {
				return err
			}
			type entry struct {
				Form   string `json:"form"`
				Triple string `json:"triple,omitempty"`
				Bytes  int    `json:"bytes"`
			}
			v := struct {
				ID       string         `json:"id"`
				Bytes    int            `json:"bytes"`
				Manifest image.Manifest `json:"manifest"`
				Entries  []entry        `json:"entries"`
				Signers  []string       `json:"signers,omitempty"` // keys that are named; fn verify says whether they signed it
			}{ID: img.ID().String(), Bytes: img.Size(), Manifest: img.Manifest()}
			for _, e := range img.Entries() {
				v.Entries = append(v.Entries, entry{e.Form.String(), e.Triple, len(e.Code)})
			}
			for _, s := range img.Signatures() {
				v.Signers = append(v.Signers, trust.Format(s.Key))
			}
			return a.print(v, func(w io.Writer) {
				m := v.Manifest
				fmt.Fprintf(w, "%s\n  id       %s\n  size     %d bytes\n  abi      %d\n  starts   on %s element\n", m.Name, v.ID, v.Bytes, m.ABI, startText(m))
				if m.Description != "" {
					fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(strings.TrimSpace(m.Description), "\n", "\n  "))
				}
				writeFields(w, "parameters", m.Params)
				writeFields(w, "result ("+string(m.ResultForm)+")", m.Result)
				if m.Rows != nil {
					fmt.Fprintf(w, "  rows     of %s\n", m.Rows)
				}
				if m.Ranges {
					fmt.Fprintln(w, "  rows     in ranges: a dataset loaded with --shard block")
				}
				for i, win := range m.Windows {
					fmt.Fprintf(w, "  window %d %s %s\n", i, windowText(win), win.Help)
				}
				for _, e := range v.Entries {
					fmt.Fprintf(w, "  code     %s %s %d bytes\n", e.Form, e.Triple, e.Bytes)
				}
				for _, s := range img.Signatures() {
					fmt.Fprintf(w, "  signed   by %s, it says\n", trust.Short(s.Key))
				}
				fmt.Fprintf(w, "  calls    %s\n", strings.Join(m.Imports, " "))
			})
		},
	}
}

func startText(m image.Manifest) string {
	switch m.Start {
	case image.StartEvery:
		return "every"
	case image.StartChunk:
		return "every, and several workers there"
	case image.StartOwner:
		return "the owner of row " + m.OwnerParam + "'s"
	}
	return "the first"
}

// windowText is a window's name, and what is particular about it.
func windowText(win image.Window) string {
	text := win.Name
	if win.Type != "" {
		text += ", rows of one " + string(win.Type) + " each"
	}
	if win.Writable {
		text += ", writable"
	}
	if text != win.Name {
		text += ":"
	}
	return text
}

func writeFields(w io.Writer, title string, s *schema.Schema) {
	if s == nil {
		fmt.Fprintf(w, "  %s: raw bytes\n", title)
		return
	}
	fmt.Fprintf(w, "  %s:\n", title)
	for i := range s.Fields {
		writeField(w, "    ", &s.Fields[i])
	}
}

// runFlags are those of fn run.
type runFlags struct {
	function string // as it was given
	on, node string
	args     []string
	in, out  string
	format   string
	form     string
	explain  bool
	hops     uint16
	branches uint32
	workers  uint8
}

func (a *app) fnRunCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run FUNCTION --on DATASET|--node NODE",
		Short: "Run a function on a dataset, where the data is",
		Long: `Run a function on a dataset. FUNCTION is an image file or the name of a ready
function. It starts where its manifest says (on every node that holds a part of the
dataset, on the first, or on the one that holds a certain row), moves on by itself,
and its answer comes here.

  wherry fn run FUNCTION --help     what it does, its parameters and its answer

On a graph that was loaded with names, vertices are given by name (#12 is the one
with the number 12), and answers have their names too.`,
		Example: `  wherry fn run countby --on logs --arg column=status
  wherry fn run tally.wfn --on logs --arg min_status=404 --format csv --out tally.csv
  wherry fn run path --on web --arg from=index.html --arg to=about.html
  wherry fn run chase --on table --arg start=0 --arg depth=64 --json
  echo hello | wherry fn run echo --node a --in -`,
		Args: cobra.ExactArgs(1),
	}
	p := cmd.Flags()
	p.Var((*onceValue)(&f.on), "on", "the dataset")
	p.Var((*onceValue)(&f.node), "node", "run it on this node, on no dataset")
	f.addCall(cmd)
	p.BoolVar(&f.explain, "explain", false, "say on standard error in which form it ran at each node, and why not in the others; the same of functions that its runs derived or assembled")
	a.client.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.checkCall(cmd); err != nil {
			return err
		}
		return a.fnRun(cmd, args[0], &f)
	}
	a.functionHelp(cmd)
	cmd.ValidArgsFunction = a.completing(completeFunctions, 1)
	a.completeFlag(cmd, "on", completeDatasets)
	a.completeFlag(cmd, "node", completeNodes)
	a.completeFlag(cmd, "arg", completeArgs)
	return cmd
}

// addCall puts the flags on a command that say how a function is called.
func (f *runFlags) addCall(cmd *cobra.Command) {
	p := cmd.Flags()
	p.StringArrayVar(&f.args, "arg", nil, "a parameter, name=value; may be repeated")
	p.StringVar(&f.in, "in", "", fmt.Sprintf("file with the payload, at most %d bytes, - for standard input, instead of --arg", travel.MaxDataBytes))
	p.StringVar(&f.out, "out", "-", "file for the answer, - for standard output")
	p.StringVar(&f.format, "format", "", "arrow, parquet, csv, json, ndjson, table or raw (default: table on a terminal, otherwise csv; raw for a function that returns plain bytes)")
	p.StringVar(&f.form, "form", forms.Auto.String(), "the form of code that runs, everywhere: auto (as each node finds best), wasm, bitcode or elf")
	p.Uint16Var(&f.hops, "hops", 0, fmt.Sprintf("how often one branch may move to another node, 1 to %d; %d is without bound (default %d; without bound if the function keeps scratch)", travel.MaxHops-1, travel.MaxHops, travel.DefaultHops))
	p.Uint8Var(&f.workers, "workers", 1, fmt.Sprintf("how many workers of each node share its part, 1 to %d, if the function starts by chunk and shares rows (by wherry_chunk_next, or a parameter workers), or is a query as count is; a node lets as many work at once as it has cores, or its limit workers says", travel.MaxWorkers))
	p.Uint32Var(&f.branches, "branches", 0, fmt.Sprintf("branches of the whole call, 1 to %d (default: that many at a time)", travel.DefaultBranches))
}

// checkCall refuses numbers that mean nothing.
func (f *runFlags) checkCall(cmd *cobra.Command) error {
	for name, zero := range map[string]bool{"hops": f.hops == 0, "branches": f.branches == 0, "workers": f.workers == 0} {
		if zero && cmd.Flags().Changed(name) {
			return usagef("--%s 0: it must be at least 1", name)
		}
	}
	return nil
}

// onceValue is the text of a flag that may be given once. Of two datasets or nodes the last one would be taken without a word:
// the answer would be that of half the question, and a command that removes would remove half of what was named.
type onceValue string

func (v *onceValue) String() string { return string(*v) }
func (v *onceValue) Type() string   { return "string" }

func (v *onceValue) Set(text string) error {
	if *v != "" && string(*v) != text { // the shell's completion parses a line twice
		return fmt.Errorf("it is %q already, and only one can be given: run the command once for each", *v)
	}
	*v = onceValue(text)
	return nil
}

func (f *runFlags) request(ctx context.Context, a *app) (invoke.Request, error) {
	r := invoke.Request{Args: map[string]string{}}
	for _, arg := range f.args {
		k, v, ok := strings.Cut(arg, "=")
		if !ok {
			return r, usagef("--arg %q is not name=value", arg)
		}
		if _, twice := r.Args[k]; twice {
			return r, usagef("--arg %s stands twice", k)
		}
		r.Args[k] = v
	}
	switch {
	case f.on == "" && f.node == "":
		return r, usagef("say where to run: --on DATASET, or --node NODE")
	case f.on != "" && f.node != "":
		return r, usagef("--on %s and --node %s: give one or the other; on a dataset a function runs where the data is", f.on, f.node)
	}
	if f.hops > travel.MaxHops {
		return r, usagef("--hops %d: 1 to %d are possible", f.hops, travel.MaxHops)
	}
	if f.branches > travel.DefaultBranches {
		return r, usagef("--branches %d: 1 to %d are possible", f.branches, travel.DefaultBranches)
	}
	if f.workers > travel.MaxWorkers {
		return r, usagef("--workers %d: 1 to %d are possible", f.workers, travel.MaxWorkers)
	}
	r.Options = inject.Options{Hops: f.hops, Branches: f.branches, Workers: f.workers}
	var err error
	if r.Form, err = forms.ParseWish(f.form); err != nil {
		return r, usageError{err}
	}
	if f.in == "" {
		return r, nil
	}
	r.Payload, err = abandon(ctx, func() ([]byte, error) { return a.payload(f.in) })
	return r, err
}

// payload reads a payload from a file or standard input.
func (a *app) payload(name string) ([]byte, error) {
	if name == "-" {
		return readBounded(a.in)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readBounded(file)
}

// readBounded reads a payload: larger data belongs into a dataset.
func readBounded(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, travel.MaxDataBytes+1))
	if err == nil && len(b) > travel.MaxDataBytes {
		err = usagef("the payload has more than %d bytes: load it as a dataset (wherry mem load --format raw)", travel.MaxDataBytes)
	}
	return b, err
}

func (a *app) fnRun(cmd *cobra.Command, name string, f *runFlags) error {
	f.function = name
	img, err := loadImage(name)
	if err != nil {
		return err
	}
	ctx, cancel := a.context(cmd) // for reading the payload and for the call together
	defer cancel()
	cmd.SetContext(ctx)
	req, err := f.request(ctx, a)
	if err != nil {
		return err
	}
	req.Image = img
	format, err := a.runFormat(img, f)
	if err == nil {
		err = checkOut(f.out, append(a.client.reads(), f.inputs(name)...)...)
	}
	if err != nil {
		return err
	}
	return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
		answer, err := a.runOn(ctx, c, f, &req, format != batch.Raw)
		if f.explain {
			err = errors.Join(err, a.explain(ctx, c, f, &req))
		}
		if err != nil {
			return err
		}
		return a.writeTo(f.out, func(w io.Writer) error { return answer.Write(w, format) })
	})
}

// inputs are the files that a run reads.
func (f *runFlags) inputs(function string) (files []string) {
	if _, err := xrdma.Lookup(function); err != nil { // else it comes with the program
		files = append(files, function)
	}
	if f.in != "" && f.in != "-" {
		files = append(files, f.in)
	}
	return files
}

// runFormat is how the answer is written: as asked for, or as fits its reader: a person or a program.
func (a *app) runFormat(img *image.Image, f *runFlags) (batch.Format, error) {
	switch {
	case f.format != "":
		format, err := formatOrRaw(f.format)
		if err != nil {
			return "", err
		}
		return format, invoke.CheckFormat(img, format)
	case a.json:
		return batch.JSON, nil
	case img.Manifest().Result == nil:
		return batch.Raw, nil
	case f.out == "-" && isTerminal(a.out):
		return batch.Table, nil
	}
	return batch.CSV, nil
}

// formatOrRaw checks the name of a format of what may have raw bytes.
func formatOrRaw(name string) (batch.Format, error) {
	if name == string(batch.Raw) {
		return batch.Raw, nil
	}
	format, err := batch.ParseFormat(name)
	if err != nil {
		return "", usagef("there is no format %q; there are arrow, csv, json, ndjson, parquet, raw (the bytes as they are) and table", name)
	}
	return format, nil
}

// moreText says how to get more of what a call has used up.
func (f *runFlags) moreText(err error) error {
	switch hops, forks := errors.Is(err, travel.ErrHopLimit), errors.Is(err, travel.ErrForkLimit); {
	case hops && f.hops < travel.MaxHops:
		return fmt.Errorf("%w: ask for more with --hops, at most %d", err, travel.MaxHops)
	case forks && f.branches > 0 && f.branches < travel.DefaultBranches:
		return fmt.Errorf("%w: ask for more with --branches, at most %d", err, travel.DefaultBranches)
	case hops || forks:
		return fmt.Errorf("%w: that is the most for one call: make several of it, each with a part of the work", err)
	}
	return err
}

// runOn makes the call; names says whether the answer is to have the names of vertices.
func (a *app) runOn(ctx context.Context, c *client.Client, f *runFlags, req *invoke.Request, names bool) (answer *invoke.Answer, err error) {
	if f.on != "" {
		if req.Table, err = c.Table(ctx, f.on, ""); err != nil {
			return nil, err
		}
	} else if req.To, err = c.Reach(ctx, f.node); err != nil {
		return nil, err
	}
	var running atomic.Pointer[inject.Future]
	req.Started = running.Store
	where := f.on + f.node
	b := a.spinner(func(since time.Duration) string {
		text := fmt.Sprintf("%s on %s: %v of %v", req.Image.Name(), where, since.Round(time.Second), a.timeout)
		if fut := running.Load(); fut != nil {
			if parts, bytes := fut.Progress(); parts > 0 {
				text += fmt.Sprintf(", %d parts of the answer, %v", parts, node.Bytes(bytes))
			}
		}
		return text
	})
	defer b.end()
	answer, err = invoke.Run(ctx, c.Runtime(), *req)
	if errors.Is(err, schema.ErrArgument) {
		err = fmt.Errorf("%w\nSee 'wherry fn run %s --help'", err, f.function)
	}
	if err == nil && names {
		err = answer.AddNames(ctx, c.Runtime(), req.Table)
	}
	return answer, f.moreText(whyForbidden(ctx, c, err))
}

// whyForbidden has a node say why a right is missing: whether it was not granted, or the token has not the capability.
func whyForbidden(ctx context.Context, c *client.Client, err error) error {
	var lacks *invoke.RightsError
	if !errors.As(err, &lacks) {
		return err
	}
	if _, why := c.Table(ctx, lacks.Dataset, lacks.Missing.String()); errors.Is(why, cluster.ErrForbidden) {
		return fmt.Errorf("%s: %w", lacks.Does, why)
	}
	return err // it was granted meanwhile, or no node answers
}
