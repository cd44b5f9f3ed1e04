// Command ioforward serves a directory to other machines, and mounts one that is served:
//
//	ioforward serve --tokens t /srv/data
//	ioforward mount --tokens t tcp://127.0.0.1:7070 /mnt
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/examples/ioforward/ionode"
	"github.com/wherry-fabric/wherry/examples/ioforward/mount"
	"github.com/wherry-fabric/wherry/examples/ioforward/remote"
	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
)

const usage = `ioforward serves a directory to other machines, and mounts one that is served.

  ioforward serve [flags] DIRECTORY
  ioforward mount [flags] ADDRESS DIRECTORY

Each says more with -h.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ioforward:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, errs io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(errs, usage)
		return errors.New("say what to do: serve or mount")
	}
	switch args[0] {
	case "-h", "-help", "--help", "help":
		fmt.Fprint(out, usage)
		return nil
	case "serve":
		return serve(ctx, args[1:], out, errs)
	case "mount":
		return mountNode(ctx, args[1:], out, errs)
	}
	fmt.Fprint(errs, usage)
	return fmt.Errorf("there is no %q; serve or mount", args[0])
}

// list is a flag that can be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

func (l *list) Set(s string) error {
	*l = append(*l, s)
	return nil
}

func serve(ctx context.Context, args []string, out, errs io.Writer) error {
	var o options
	var listen list
	var cfg ionode.Config
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	f.SetOutput(errs)
	o.flags(f)
	f.Var(&listen, "listen", "`address`, as tcp://127.0.0.1:7070 (the default) or shm:///run/io.sock; may be repeated")
	f.BoolVar(&cfg.ReadOnly, "read-only", false, "refuse whatever would change something")
	f.DurationVar(&cfg.Limits.Lease, "lease", 0, fmt.Sprintf("how long a client that does not call keeps its files open, %v to %v (default 30s)", wire.MinLease, wire.MaxLease))
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return errors.New("serve needs one directory")
	}
	if len(listen) == 0 {
		listen = list{"tcp://127.0.0.1:7070"}
	}
	if err := o.check(listen); err != nil {
		return err
	}
	if o.tokens != "" {
		if err := newTokens(o.tokens); err != nil {
			return err
		}
	}
	log := slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelWarn}))
	el, end, err := o.element("ionode", log)
	if err != nil {
		return err
	}
	defer end()
	cfg.Dir, cfg.Open, cfg.Log = f.Arg(0), o.anybody, log
	n, err := ionode.New(el, cfg)
	if err != nil {
		return err
	}
	defer n.Close()
	for _, a := range listen {
		addr, err := el.Listen(a)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "serving %s at %s\n", cfg.Dir, addr)
	}
	<-ctx.Done()
	return nil
}

func mountNode(ctx context.Context, args []string, out, errs io.Writer) error {
	var o options
	var cfg remote.Config
	m := mount.Config{}
	f := flag.NewFlagSet("mount", flag.ContinueOnError)
	f.SetOutput(errs)
	o.flags(f)
	f.IntVar(&cfg.IOBytes, "io-bytes", 0, "bytes of one transfer, a power of two from 4096 to 1048576 (default 262144)")
	f.IntVar(&cfg.Window, "window", 0, "transfers at once ahead of a reader or behind a writer, 1 to 256 (default 8)")
	f.IntVar(&cfg.Slots, "slots", 0, "transfers at once, of all files, 4 to 4096 (default 64)")
	f.DurationVar(&cfg.OpTime, "timeout", 0, "a node that does not answer for so long is an I/O error, at most 1h (default 10s)")
	f.DurationVar(&m.CacheTime, "cache", time.Second, "how long the kernel keeps names and attributes; 0: not at all")
	f.BoolVar(&m.AllowOther, "allow-other", false, "let other users of this machine in, as far as the files' modes, owners and groups let them; without it they are kept out")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 2 {
		return errors.New("mount needs an address and a directory")
	}
	cfg.Addr, m.Dir, m.Source = f.Arg(0), f.Arg(1), f.Arg(0)
	if err := m.Validate(); err != nil {
		return err
	}
	if err := o.check([]string{cfg.Addr}); err != nil {
		return err
	}
	m.Log = slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelWarn}))
	el, end, err := o.element("ioforward", m.Log)
	if err != nil {
		return err
	}
	defer end()
	if m.Client, err = remote.New(ctx, el, cfg); err != nil {
		return err
	}
	defer m.Client.Close()
	mounted, err := mount.New(m)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "mounted %s on %s; interrupt, or umount it, to end\n", m.Source, m.Dir)
	ended := make(chan struct{})
	go func() {
		mounted.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	if err := mounted.Close(); !errors.Is(err, mount.ErrInUse) {
		return err
	}
	fmt.Fprintf(errs, "ioforward: files are open on %s, which was detached; this ends when the last is closed, or at once if it is interrupted again\n", m.Dir)
	<-ended
	return nil
}
