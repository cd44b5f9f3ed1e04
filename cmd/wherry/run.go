package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/node"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/excache"
)

// programFlags are those of run.
type programFlags struct {
	on, local, least, heap string
	share, write           []string
	stats                  bool
}

// What --heap puts at the node.
const (
	heapLarge = "large"
	heapAll   = "all"
)

func (a *app) runCommand() *cobra.Command {
	var f programFlags
	cmd := &cobra.Command{
		Use:   "run --on NODE PROGRAM [ARGUMENT…]",
		Short: "Run a program whose memory is on a node, as it is",
		Long: `Run a program whose large allocations lie in a node's memory; a part of them, at
most --local bytes, is here at a time. The program needs no change: a small library
is preloaded, which takes over malloc and mmap, and this command answers the page
faults. Programs that it starts are served in the same way, from the same --local.
--heap all has small allocations there too, by the system's jemalloc.

--share REGION:ITEM, or a region, is memory that others have too: the program opens
/wherry/REGION:ITEM and maps it, and its processes share what is here of it. With
--share-write one of them at a time may change it.

The node lends with --pool-memory. What it does not lend is an allocation that fails
(ENOMEM). A program that touches memory at random is slow where --local is much
smaller than what it touches. If the node is lost, the program gets SIGBUS at its next access to what
was there. Programs that are linked statically or set-user-id are refused.
docs/pool.md says what else cannot be done.

The exit code is the program's, 128 and the number of a signal that killed it.
--stats writes what was moved to standard error at the end, with --json as JSON.`,
		Example: `  wherry run --on n1 --local 64M -- python3 -c 'import numpy; print(numpy.ones(2**27).sum())'
  wherry run --on n1 --local 256M --stats python3 train.py
  wherry run --on n1 --share work:table ./lookup /wherry/work:table`,
		Args: cobra.MinimumNArgs(1),
	}
	a.client.add(cmd)
	p := cmd.Flags()
	p.SetInterspersed(false) // what follows the program is the program's
	p.Var((*onceValue)(&f.on), "on", "the node whose memory is used")
	p.StringVar(&f.local, "local", "256MiB", fmt.Sprintf("how much of it may be here at a time, of all processes together, at least %v", node.Bytes(excache.MinLocalBytes)))
	p.StringVar(&f.least, "least", "128KiB", "allocations from this size on are remote, at least 4KiB")
	p.StringVar(&f.heap, "heap", heapLarge, "large: allocations from --least on; all: smaller ones too, by the system's jemalloc")
	p.StringArrayVar(&f.share, "share", nil, "a region, or an item as REGION:ITEM (either with @NODE behind), that the program may map as /wherry/NAME, to be read; may be given several times")
	p.StringArrayVar(&f.write, "share-write", nil, "the same, and one process at a time may change it")
	p.BoolVar(&f.stats, "stats", false, "say at the end what was moved, and what stayed outside")
	a.completeFlag(cmd, "on", completeNodes)
	a.completeFlag(cmd, "share", completeRegions)
	a.completeFlag(cmd, "share-write", completeRegions)
	a.completeFlag(cmd, "heap", func(*app, *cobra.Command, string) []string { return []string{heapLarge, heapAll} })
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.run(cmd, &f, args) }
	return cmd
}

// config reads the flags.
func (f *programFlags) config() (excache.Config, error) {
	var c excache.Config
	for _, size := range []struct {
		flag, text string
		least      int64
		to         *int64
	}{{"local", f.local, excache.MinLocalBytes, &c.LocalBytes}, {"least", f.least, excache.PageBytes, &c.MinBytes}} {
		n, err := node.ParseBytes(size.text)
		if err != nil {
			return c, usagef("--%s: %w", size.flag, err)
		}
		if *size.to = int64(n); *size.to < size.least {
			return c, usagef("--%s %s: it is at least %v", size.flag, size.text, node.Bytes(size.least))
		}
	}
	if f.on == "" {
		return c, usagef("say which node's memory to use: --on NODE")
	}
	return c, nil
}

// preload is the library that --heap asks for.
func (f *programFlags) preload() ([]string, error) {
	switch f.heap {
	case heapLarge:
		return nil, nil
	case heapAll:
		path, err := excache.Heap(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...)
		if err != nil {
			return nil, fmt.Errorf("--heap all: %w", err)
		}
		return []string{path}, nil
	}
	return nil, usagef("--heap %s: it is %s or %s", f.heap, heapLarge, heapAll)
}

// shares opens what --share and --share-write name.
func (f *programFlags) shares(ctx context.Context, c *client.Client, store *excache.Regions) (all []excache.Share, err error) {
	for i, text := range slices.Concat(f.share, f.write) {
		writable := i >= len(f.share)
		flag := "--share"
		if writable {
			flag = "--share-write"
		}
		p, err := parsePlace(text)
		if err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(text, "@")
		if slices.ContainsFunc(all, func(s excache.Share) bool { return s.Name == name }) {
			return nil, usagef("%s %s: that name is given twice", flag, name)
		}
		mem, err := p.memory(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", flag, text, err)
		}
		share, err := store.Share(name, mem, writable)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", flag, text, err)
		}
		all = append(all, share)
	}
	return all, nil
}

// memory opens what a place names.
func (p place) memory(ctx context.Context, c *client.Client) (*pool.Memory, error) {
	if p.item != "" {
		it, err := p.openItem(ctx, c, "")
		if err != nil {
			return nil, err
		}
		return &it.Memory, nil
	}
	r, err := p.openRegion(ctx, c, "")
	if err != nil {
		return nil, err
	}
	return &r.Memory, nil
}

func (a *app) run(cmd *cobra.Command, f *programFlags, args []string) error {
	config, err := f.config()
	if err != nil {
		return err
	}
	preload, err := f.preload()
	if err != nil {
		return err
	}
	if err := excache.Limits(); err != nil {
		return err
	}
	ctx, cancel := a.context(cmd)
	defer cancel()
	a.client.node, a.client.silence = f.on, excache.Silence
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Reach(ctx, f.on); err != nil {
		return err
	}
	store := excache.NewRegions(c.Pool(), f.on)
	config.Store = store
	if config.Shares, err = f.shares(ctx, c, store); err != nil {
		return err
	}
	config.Told = func(err error) { fmt.Fprintf(a.err, "wherry run: %v\n", err) }
	signals := make(chan os.Signal, 16)
	passed := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	done := make(chan struct{})
	defer close(done)
	defer signal.Stop(signals)
	go pass(signals, passed, done)
	go suspend(c, done)
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), excache.LeastProcessors))
	o, err := excache.Run(config, excache.Program{Args: args, Env: os.Environ(), Preload: preload, In: a.in, Out: a.out, Err: a.err, Signals: passed})
	if err != nil {
		return err
	}
	if o.Left > 0 {
		fmt.Fprintf(a.err, "wherry run: ended %d %s that %s left behind: their memory was served by this command\n", o.Left, plurals(o.Left, "process", "processes"), args[0])
	}
	if f.stats {
		if err := a.runStats(&o.Stats); err != nil {
			return err
		}
	}
	if o.Code != 0 {
		return exitError(o.Code)
	}
	return nil
}

func plurals(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// pass hands signals on to the program, but for those that a terminal sends to both.
func pass(from <-chan os.Signal, to chan<- os.Signal, done <-chan struct{}) {
	for {
		select {
		case s := <-from:
			if (s == syscall.SIGINT || s == syscall.SIGQUIT) && foreground() {
				continue
			}
			select {
			case to <- s:
			case <-done:
				return
			}
		case <-done:
			return
		}
	}
}

// foreground reports whether this process group is the one that a terminal sends Ctrl-C to.
func foreground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// runStats writes the counts to standard error: standard output is the program's.
func (a *app) runStats(s *excache.Stats) error {
	if a.json {
		return json.NewEncoder(a.err).Encode(s)
	}
	pages := func(n uint64) node.Bytes { return node.Bytes(n * excache.PageBytes) }
	_, err := io.WriteString(a.err, fmt.Sprintf(`wherry run: %d %s, %d faults, %d of them first writes to clean pages
  fetched    %v; %v came back soon after it had left
  zeroed     %v; of what was fetched or zeroed, %v before the program asked for it
  left       %v, %v of it written back; freed by the program before: %v
  given back %v that was freed, of the node's memory
  forks      %d, %d of them failed for want of a copy
  outside    %d mappings of %v; O_DIRECT taken away %d times, io_uring refused %d times; %d allocations failed
  besides    %v of memory that is small allocations, stacks and the like, at the most that was seen
`, s.Processes, plurals(s.Processes, "process", "processes"), s.Faults, s.WriteFaults, pages(s.Fetched), pages(s.Returned), pages(s.Zeroed), pages(s.Ahead),
		pages(s.Evicted), pages(s.Saved), pages(s.Freed), pages(s.Discarded), s.Forks, s.ForksRefused, s.Outside.Mappings, node.Bytes(s.Outside.Bytes), s.Outside.Direct, s.Outside.Uring, s.Outside.Refused,
		node.Bytes(s.Outside.Anonymous)))
	return err
}
