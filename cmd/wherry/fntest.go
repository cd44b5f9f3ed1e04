package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/demo/live"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/trust"
	"github.com/wherry-fabric/wherry/internal/sockdir"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/node"
)

const (
	// maxTestElements bounds the elements of fn test: each is a whole node, connected to all others.
	maxTestElements = 16
	// testStopTime is how long they wait for what is under way when the test is over: no answer is wanted any more.
	testStopTime = 100 * time.Millisecond
	// testData is the dataset's name.
	testData = "data"
)

// testFlags are those of fn test.
type testFlags struct {
	run      runFlags
	load     loadFlags
	data     string
	elements int
	memory   string
	manifest string
	include  []string
}

func (a *app) fnTestCommand() *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test FUNCTION",
		Short: "Try a function in this process, without nodes",
		Long: `Run a function in this process, on a file that is cut into shards as mem load cuts
it: --elements of them, each with memory of its own, between which the function moves
as between machines. Nothing listens on a network, and nothing is left afterwards.

FUNCTION is a C source (compiled as fn build does), a wasm module, LLVM bitcode or an
ELF object for this machine (packed as fn pack does), an image, or the name of a ready
function. Native code is signed with a key that is made for the test, and runs as on a
node that trusts it (native: worker), unless --form wasm is given. With --workers it
runs a second time, with one worker, and says if that answers otherwise. Where the
manifest says which rows the function reads, --schema can be left out. What the
function logs, and where it trapped, goes to standard error.`,
		Example: `  wherry fn test tally.c --data access.csv --header --elements 4 --arg min_status=500
  wherry fn test chase.wfn --data table.csv --schema row:u64 --arg start=0 --arg depth=64
  wherry fn test tally.c --form bitcode --data access.csv --header --json
  wherry fn test sum.c --data large.parquet --elements 1 --memory 6GiB
  wherry fn test path --data web.edges --names --arg from=index.html --arg to=about.html`,
		Args: cobra.ExactArgs(1),
	}
	p := cmd.Flags()
	p.StringVar(&f.data, "data", "", "the file that it runs on, - for standard input (default: none)")
	p.IntVar(&f.elements, "elements", 2, fmt.Sprintf("how many elements hold the data, 1 to %d", maxTestElements))
	p.StringVar(&f.memory, "memory", "", fmt.Sprintf("memory that each element lends at most, as in 6GiB: from %v to what this machine has, with swap space (default %v)", node.Bytes(fabric.SegmentAlign), node.DefaultMemory))
	p.StringVar(&f.manifest, "manifest", "", "of code that is no image: the manifest; FUNCTION with .json if not given")
	p.StringArrayVar(&f.include, "include", nil, "another file that a C source includes; may be repeated")
	f.run.addCall(cmd)
	f.load.addFormat(cmd, "data-format")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.elements < 1 || f.elements > maxTestElements {
			return usagef("--elements %d: 1 to %d are possible", f.elements, maxTestElements)
		}
		if err := f.run.checkCall(cmd); err != nil {
			return err
		}
		return a.fnTest(cmd, args[0], &f)
	}
	cmd.ValidArgsFunction = a.completing(completeFunctions, 1)
	return cmd
}

func (a *app) fnTest(cmd *cobra.Command, function string, f *testFlags) error {
	ctx, cancel := a.context(cmd)
	defer cancel()
	f.run.function = function
	if f.run.on = testData; f.data == "" {
		f.run.on, f.run.node = "", elementName(0)
	}
	req, err := f.run.request(ctx, a)
	if err != nil {
		return err
	}
	if req.Image, err = a.testImage(ctx, function, f, req.Form); err != nil {
		return err
	}
	format, err := a.runFormat(req.Image, &f.run)
	if err == nil {
		err = checkOut(f.run.out, append(f.run.inputs(function), f.data, manifestFile(stem(function), f.manifest))...)
	}
	if err != nil {
		return err
	}
	spec, err := a.testLoad(ctx, cmd, f, req.Image)
	if err != nil {
		return err
	}
	if spool, ok := spec.Input.(*dataset.Spool); ok {
		defer spool.Close()
	}
	var again atomic.Bool // what it says then was said
	t := &trial{native: runsNative(req.Image, req.Form), output: func(element, function, text string) {
		if !again.Load() {
			fmt.Fprintf(a.err, "%s: %s says: %s\n", element, function, text)
		}
	}}
	if req.Image, err = t.sign(req.Image); err != nil {
		return err
	}
	defer t.close()
	if t.memory, err = f.memoryBytes(); err != nil {
		return err
	}
	if err := t.start(ctx, f.elements); err != nil {
		return err
	}
	if f.data != "" {
		report, err := a.load(ctx, t.client, *spec)
		if errors.Is(err, control.ErrMemory) {
			err = fmt.Errorf("%w: here give more with --memory, or more --elements", err)
		}
		if err != nil {
			return err
		}
		writeBad(a.err, report)
	}
	answer, err := a.runOn(ctx, t.client, &f.run, &req, format != batch.Raw)
	if errors.Is(err, invoke.ErrRequest) && f.data == "" {
		err = fmt.Errorf("%w: here give --data FILE", err)
	}
	if err != nil {
		return err
	}
	if f.run.workers > 1 && !spec.Writable && req.Payload == nil && answer.Found == nil { // else it would run on what it wrote, or for as many as its bytes say
		again.Store(true)
		if err := a.testWorkers(ctx, t.client, f, req, answer, format != batch.Raw); err != nil {
			return err
		}
	}
	return a.writeTo(f.run.out, func(w io.Writer) error { return answer.Write(w, format) })
}

// testWorkers runs a function again with one worker, and says if that answers otherwise. A function that says that it shares rows, and does not, counts them once
// for each worker: its manifest and its imports do not show that.
func (a *app) testWorkers(ctx context.Context, c *client.Client, f *testFlags, req invoke.Request, several *invoke.Answer, names bool) error {
	req.Options.Workers = 1
	req.Args = maps.Clone(req.Args)
	delete(req.Args, invoke.WorkersParam)
	one, err := a.runOn(ctx, c, &f.run, &req, names)
	if err != nil {
		return fmt.Errorf("with one worker, which %d are compared with: %w", f.run.workers, err)
	}
	format := batch.Raw
	if several.Schema != nil {
		format = batch.CSV
	}
	var texts [2][]string
	for i, answer := range []*invoke.Answer{several, one} {
		var text strings.Builder
		if err := answer.Write(&text, format); err != nil {
			return err
		}
		texts[i] = slices.Sorted(strings.Lines(text.String())) // rows that are not merged come as their workers end
	}
	if !slices.Equal(texts[0], texts[1]) {
		fmt.Fprintf(a.err, "wherry: with one worker the answer is another one than with %d: if more than the last digits of floats differ, each worker may read all rows: share them by wherry_chunk_next, or by the parameter %s\n", f.run.workers, invoke.WorkersParam)
	}
	return nil
}

// stem is a file's name without its extension.
func stem(file string) string { return strings.TrimSuffix(file, filepath.Ext(file)) }

// testImage is the function: compiled, packed, or read.
func (a *app) testImage(ctx context.Context, file string, f *testFlags, wish forms.Wish) (*image.Image, error) {
	ext := filepath.Ext(file)
	if made := slices.Contains([]string{".c", ".wasm", ".bc", ".o"}, ext); !made {
		if f.manifest != "" || len(f.include) > 0 {
			return nil, usagef("%s is an image, which has its manifest and all of its code: leave out --manifest and --include", file)
		}
		return loadImage(file)
	}
	m, err := readManifest(stem(file), f.manifest)
	if err != nil {
		return nil, err
	}
	if ext != ".c" {
		targets := []string{runtime.GOARCH}
		entry, err := packEntry(file, &targets)
		if err != nil {
			return nil, err
		}
		img, err := image.Build(m, entry)
		if err != nil {
			return nil, usageError{err}
		}
		return img, nil
	}
	src, err := readSource(file, f.include)
	if err != nil {
		return nil, err
	}
	opts := cbuild.Options{Warnings: a.err, Targets: []string{runtime.GOARCH}}
	switch wish {
	case forms.Bitcode:
		opts.Forms = []image.Form{image.LLVMBitcode}
	case forms.ELF:
		opts.Forms = []image.Form{image.ELF}
	}
	return cbuild.Build(ctx, src, m, opts)
}

// testLoad is what is loaded: nil if there is no data.
func (a *app) testLoad(ctx context.Context, cmd *cobra.Command, f *testFlags, img *image.Image) (*client.LoadSpec, error) {
	if f.data == "" {
		return &client.LoadSpec{}, nil
	}
	m := img.Manifest()
	spec, err := f.load.spec(testData)
	if err != nil {
		return nil, err
	}
	if cmd.Flags().Changed("line-bytes") {
		if err := f.load.longest(&spec); err != nil {
			return nil, err
		}
	}
	spec.Writable = slices.ContainsFunc(m.Windows, func(w image.Window) bool { return w.Writable })
	if format, _, _ := dataset.FormatOf(f.data); spec.Options.Schema == nil && spec.Options.Types == nil && spec.Options.Format != dataset.Edges && (spec.Options.Format != "" || format != dataset.Edges) {
		spec.Options.Schema = m.Rows
		spec.Options.Packed = m.Rows != nil
	}
	if err := f.load.input([]string{f.data}, &spec); err != nil {
		return nil, err
	}
	if f.data == "-" {
		if spec.Input, err = a.spool(ctx, spec.Options.Format); err != nil {
			return nil, err
		}
	}
	return &spec, nil
}

// memoryBytes is what each element lends at most; 0: what nodes do.
func (f *testFlags) memoryBytes() (node.Bytes, error) {
	if f.memory == "" {
		return 0, nil
	}
	b, err := node.ParseBytes(f.memory)
	switch {
	case err != nil:
		return 0, usagef("--memory: %w", err)
	case b < fabric.SegmentAlign:
		return 0, usagef("--memory: %v is too little: at least %v", b, node.Bytes(fabric.SegmentAlign))
	}
	return b, nil
}

// runsNative says whether native code of the image may run: as nodes that trust it do, elements turn to it by themselves, unless wasm is asked for.
// What cannot run here is then refused for its own reason, not because native code is off.
func runsNative(img *image.Image, wish forms.Wish) bool {
	return wish != forms.Wasm && slices.ContainsFunc(img.Entries(), func(e image.Entry) bool { return e.Form != image.Wasm })
}

// trial is elements that only this process can reach, and a client of them.
type trial struct {
	native bool       // machine code may run, if it is signed
	memory node.Bytes // that each lends at most; 0: node.DefaultMemory
	output func(element, function, text string)
	key    ed25519.PublicKey
	dir    string
	nodes  []*node.Node
	ended  []chan error
	client *client.Client
}

func elementName(i int) string { return fmt.Sprintf("e%d", i) }

// sign signs native code with a key that only this trial trusts, and that is forgotten.
func (t *trial) sign(img *image.Image) (*image.Image, error) {
	if !t.native {
		return img, nil
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	t.key = public
	return img.Sign(private)
}

// start makes the elements, connects each with all others, and makes the client.
func (t *trial) start(ctx context.Context, elements int) error {
	token, err := cluster.NewToken("test", cluster.CapsAll)
	if err != nil {
		return err
	}
	tokens, err := cluster.NewTokens([]cluster.Token{token})
	if err != nil {
		return err
	}
	if t.dir, err = sockdir.Make("wherry-test-"); err != nil { // mode 0700
		return err
	}
	members := make([]cluster.Member, elements)
	for i := range members {
		members[i] = cluster.Member{Name: elementName(i), Addrs: []string{"shm://" + filepath.Join(t.dir, elementName(i))}}
	}
	cfg := node.Config{Tokens: tokens, Peers: members, StopTime: testStopTime, Output: t.output, Memory: t.memory}
	if t.native {
		cfg.Native, cfg.Trust = "worker", []node.TrustedKey{{Name: "test", Key: trust.Format(t.key)}}
	}
	names := make([]string, elements)
	for i, m := range members {
		cfg.Name, cfg.Listen, names[i] = m.Name, m.Addrs, m.Name
		n, err := node.New(cfg)
		if err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- n.Run(context.Background()) }()
		t.nodes, t.ended = append(t.nodes, n), append(t.ended, ended)
	}
	if t.client, err = client.Connect(ctx, client.Config{Name: "test", Nodes: members, Only: true, Tokens: tokens}); err != nil {
		return err
	}
	return live.Meshed(ctx, t.client, names)
}

// close ends it all.
func (t *trial) close() {
	if t.client != nil {
		t.client.Close()
	}
	for _, n := range t.nodes {
		n.Close()
	}
	for _, ended := range t.ended {
		<-ended
	}
	if t.dir != "" {
		os.RemoveAll(t.dir)
	}
}
