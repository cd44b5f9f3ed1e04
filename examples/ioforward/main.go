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
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/examples/ioforward/ionode"
	"github.com/wherry-fabric/wherry/examples/ioforward/mount"
	"github.com/wherry-fabric/wherry/examples/ioforward/remote"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
	"github.com/wherry-fabric/wherry/fabric/tcp"
)

const usage = `ioforward serves a directory to other machines, and mounts one that is served.

  ioforward serve [flags] DIRECTORY
  ioforward mount [flags] ADDRESS DIRECTORY

Each says more with -h.
`

// tokenName is what serve calls the token that it makes.
const tokenName = "ioforward"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "ioforward:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, errs io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(errs, usage)
		return flag.ErrHelp
	}
	switch args[0] {
	case "serve":
		return serve(ctx, args[1:], out, errs)
	case "mount":
		return mountNode(ctx, args[1:], out, errs)
	}
	fmt.Fprint(errs, usage)
	return fmt.Errorf("there is no %q; serve or mount", args[0])
}

// common are the flags of both.
type common struct {
	tokens   string
	token    string
	anybody  bool
	insecure bool
	policy   string
}

func (o *common) flags(f *flag.FlagSet) {
	f.StringVar(&o.tokens, "tokens", "", "`file` of tokens, which both sides have; serve makes it if there is none")
	f.StringVar(&o.token, "token", "", "`name` of the token to show, if the file has several")
	f.BoolVar(&o.anybody, "anybody", false, "no tokens: whoever reaches the address may do everything")
	f.BoolVar(&o.insecure, "insecure", false, "allow tcp addresses beyond loopback, unencrypted")
	f.StringVar(&o.policy, "policy", "balanced", "how to wait: balanced, latency, efficient")
}

func (o *common) check(addrs []string) error {
	if (o.tokens == "") != o.anybody {
		return errors.New("give either --tokens FILE, or --anybody where whoever reaches the address may do everything")
	}
	for _, a := range addrs {
		if !o.insecure && !control.Loopback(a) {
			return fmt.Errorf("%s is beyond loopback, and the connection is not encrypted: use a tunnel, or --insecure on a network that you trust", a)
		}
	}
	return nil
}

// element makes this program's element, with both transports.
func (o *common) element(name string, log *slog.Logger) (*fabric.Element, error) {
	policy, err := fabric.ParsePolicy(o.policy)
	if err != nil {
		return nil, err
	}
	cfg := fabric.Config{Name: name, Policy: policy, Log: log}
	if !o.anybody {
		tokens, err := cluster.LoadTokens(o.tokens)
		if err != nil {
			return nil, err
		}
		if cfg.Auth, err = control.ClientAuth(tokens, o.token); err != nil {
			return nil, err
		}
	}
	overTCP, err := tcp.New(tcp.Config{})
	if err != nil {
		return nil, err
	}
	overShm, err := shm.New(shm.Config{})
	if err != nil {
		overTCP.Close()
		return nil, err
	}
	cfg.Transports = []fabric.Transport{overTCP, overShm}
	el, err := fabric.New(cfg)
	if err != nil {
		overTCP.Close()
		overShm.Close()
	}
	return el, err
}

// newTokens writes a token file with one token that may read and write, unless there
// is a file.
func newTokens(file string) error {
	t, err := cluster.NewToken(tokenName, cluster.CapRead|cluster.CapWrite)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, t.Line())
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// list is a flag that can be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

func (l *list) Set(s string) error {
	*l = append(*l, s)
	return nil
}

func serve(ctx context.Context, args []string, out, errs io.Writer) error {
	var o common
	var listen list
	var cfg ionode.Config
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	f.SetOutput(errs)
	o.flags(f)
	f.Var(&listen, "listen", "`address`, as tcp://127.0.0.1:7070 (the default) or shm:///run/io.sock; may be repeated")
	f.BoolVar(&cfg.ReadOnly, "read-only", false, "refuse whatever would change something")
	f.DurationVar(&cfg.Limits.Lease, "lease", 0, "how long a client that does not call keeps its files open (default 30s)")
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
	el, err := o.element("ionode", log)
	if err != nil {
		return err
	}
	defer el.Close()
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
	var o common
	var cfg remote.Config
	m := mount.Config{}
	f := flag.NewFlagSet("mount", flag.ContinueOnError)
	f.SetOutput(errs)
	o.flags(f)
	f.IntVar(&cfg.IOBytes, "io-bytes", 0, "one transfer; a power of two up to 1 MiB (default 262144)")
	f.IntVar(&cfg.Window, "window", 0, "transfers at once ahead of a reader or behind a writer (default 8)")
	f.IntVar(&cfg.Slots, "slots", 0, "transfers at once, of all files (default 64)")
	f.DurationVar(&cfg.OpTime, "timeout", 0, "a node that does not answer for so long is an I/O error (default 10s)")
	f.DurationVar(&m.CacheTime, "cache", time.Second, "how long the kernel keeps names and attributes")
	f.BoolVar(&m.AllowOther, "allow-other", false, "let other users look")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 2 {
		return errors.New("mount needs an address and a directory")
	}
	cfg.Addr, m.Dir, m.Source = f.Arg(0), f.Arg(1), f.Arg(0)
	if err := o.check([]string{cfg.Addr}); err != nil {
		return err
	}
	m.Log = slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelWarn}))
	el, err := o.element("ioforward", m.Log)
	if err != nil {
		return err
	}
	defer el.Close()
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
	err = mounted.Close()
	return err
}
