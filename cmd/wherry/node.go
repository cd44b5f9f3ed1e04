package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/internal/compiler"
	"github.com/wherry-fabric/wherry/node"
)

// nodeFlags are the node's settings that flags can set over the file's.
type nodeFlags struct {
	config     string
	listen     []string
	peers      string
	memory     string
	poolMemory string
	logLevel   string
	logJSON    bool

	codeCacheBytes string

	manager managerFlags
}

func (a *app) nodeCommand() *cobra.Command {
	var f nodeFlags
	var c node.Config
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run a node: lend memory, keep datasets, run functions",
		Long: `Run a node until it is told to stop (Ctrl-C or SIGTERM). Settings come from a
YAML file and from flags; a flag wins. A client or node that connects must show
a certificate of the authority, over TLS, or a token of the node's token file.
Beyond loopback and Unix sockets a node listens with TLS only, unless you insist
with --insecure. wherry node status shows the state of running nodes.
On SIGHUP a node reads its configuration, tokens, trusted keys and certificates
again and keeps its data; what changes only with a restart, or is wrong, its log names.`,
		Example: `  wherry token new a --node --file tokens
  wherry node --name a --listen tcp://127.0.0.1:7000 --token-file tokens --memory 4GiB
  wherry ca issue a --node --host 10.0.0.5
  wherry node --name a --listen tcp://10.0.0.5:7000 --tls-cert a.crt --tls-key a.key --tls-ca ca.crt --tls-crl ca.crl
  wherry node --config /etc/wherry/node.yaml`,
		Args: cobra.NoArgs,
	}
	p := cmd.Flags()
	p.StringVar(&f.config, "config", "", "configuration file (docs/operations.md)")
	p.StringVar(&c.Name, "name", "", "this node's name")
	p.StringArrayVar(&f.listen, "listen", nil, fmt.Sprintf("address to listen at; may be repeated, %d at most: 127.0.0.1:7000 (that is tcp://127.0.0.1:7000), shm:///run/wherry/a.sock", cluster.MaxAddrs))
	p.StringArrayVar(&c.Advertise, "advertise", nil, fmt.Sprintf("address that others are told to dial; may be repeated, %d at most (default: the addresses of --listen)", cluster.MaxAddrs))
	p.Var(newList(&f.peers, ""), "peers", "the other nodes; may be repeated: a=tcp://host:port,b=…; this node's own entry is passed over")
	p.StringVar(&f.memory, "memory", "", fmt.Sprintf("memory to lend at most, as in 512MiB: from %v to what this machine has, with swap space (default %v)", node.Bytes(fabric.SegmentAlign), node.DefaultMemory))
	p.StringVar(&f.poolMemory, "pool-memory", "", "how much of --memory regions of remote memory may take, as in 1GiB (default: nothing, and the node lends no regions; docs/pool.md)")
	p.StringArrayVar(&c.Lend, "lend", nil, "device to lend: nvme=NAME:/PATH of a file or a block device, and ,direct (past the page cache) and ,readonly may follow; may be repeated (docs/devices.md)")
	f.manager.add(cmd, &c)
	p.StringArrayVar(&c.DataRoots, "data-root", nil, "absolute directory that --at may load files from; may be repeated (default: none, and --at is refused)")
	p.StringVar(&c.LendGrants, "lend-grants", "", "file that keeps who may borrow the devices (wherry dev grant); without it grants end with the node")
	p.StringVar(&c.TokenFile, "token-file", "", "tokens of all who may connect, mode 0600 ($WHERRY_TOKEN_FILE, else ~/.config/wherry/token unless TLS is on)")
	p.StringVar(&c.Token, "token", "", "name of the token that this node shows to its peers, if several have the capability member")
	addTLS(p, &c.TLS, false)
	p.StringVar(&c.Policy, "policy", "", "wake-up policy: balanced, latency or efficient (balanced)")
	p.BoolVar(&c.Insecure, "insecure", false, "listen and dial beyond loopback without TLS")
	p.StringVar(&c.HTTP, "http", "", "host:port for /metrics, /healthz and /readyz (default: none)")
	p.StringVar(&c.CodeCache, "code-cache", "", "directory for compiled functions (default: they are kept in memory only)")
	p.StringVar(&f.codeCacheBytes, "code-cache-bytes", "", fmt.Sprintf("size of that directory at most, as in 512MiB: at least %v (default %v)", node.MinCodeCache, node.Bytes(wasm.DefaultCacheBytes)))
	p.StringVar(&c.Native, "native", "off", "where native code (bitcode, ELF) runs: off (nowhere), worker (in processes of their own, locked down) or in-process (in the node: a function that faults ends it, one that runs on cannot be stopped)")
	p.StringArrayVar(&c.Compiler, "compiler", nil, "program that compiles bitcode, and its arguments, each with a --compiler of its own (default: wherry-llvm beside this program, else on PATH)")
	p.BoolVar(&c.UnconfinedCompiler, "unconfined-compiler", false, "compile bitcode where compilers cannot be locked down (no seccomp): what takes one over can do what this node's user can")
	p.DurationVar(&c.CompileTime, "compile-time", compiler.DefaultDeadline, "processor time that compiling one function may take in a compiler process: more than 0, at most 10m (of wasm, if this is not given: 5s)")
	p.StringVar(&c.TrustFile, "trust-file", "", "file of the keys whose signatures native code needs; wherry fn keys writes it")
	p.StringToStringVar(&c.LimitsByName, "limit", nil, "limit that a message names, as in max_instances=512 or held_bytes=128MiB; may be repeated (docs/operations.md)")
	p.DurationVar(&c.StopTime, "stop-time", node.DefaultStopTime, "how long running functions and loads may take to finish when the node is stopped: more than 0")
	p.DurationVar(&c.LoadTime, "load-time", node.DefaultLoadTime, "how long a load may be idle before it is given up: more than 0")
	p.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	p.BoolVar(&f.logJSON, "log-json", false, "log in JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.runNode(cmd, &f, c) }
	cmd.AddCommand(a.nodeStatusCommand())
	return cmd
}

// nodeConfig is the file's configuration with the flags' on top.
func (f *nodeFlags) nodeConfig(cmd *cobra.Command, flags node.Config) (node.Config, error) {
	var c node.Config
	if f.config != "" {
		file, err := os.Open(f.config)
		if err != nil {
			return c, err
		}
		defer file.Close()
		if c, err = node.ReadConfig(file); err != nil {
			return c, fmt.Errorf("%s: %w", f.config, err)
		}
	}
	set := cmd.Flags().Changed
	for _, s := range []struct {
		flag     string
		to, from *string
	}{{"name", &c.Name, &flags.Name}, {"token-file", &c.TokenFile, &flags.TokenFile}, {"token", &c.Token, &flags.Token},
		{"policy", &c.Policy, &flags.Policy}, {"http", &c.HTTP, &flags.HTTP}, {"code-cache", &c.CodeCache, &flags.CodeCache},
		{"native", &c.Native, &flags.Native}, {"trust-file", &c.TrustFile, &flags.TrustFile}, {"lend-grants", &c.LendGrants, &flags.LendGrants}} {
		if set(s.flag) {
			*s.to = *s.from
		}
	}
	mergeTLS(&c.TLS, &flags.TLS, set)
	if err := f.manager.set(cmd.Context(), &c, &flags, set); err != nil {
		return c, err
	}
	if set("insecure") {
		c.Insecure = flags.Insecure
	}
	if set("unconfined-compiler") {
		c.UnconfinedCompiler = flags.UnconfinedCompiler
	}
	if set("listen") {
		c.Listen = f.listen
	}
	if set("lend") {
		c.Lend = flags.Lend
	}
	if set("data-root") {
		c.DataRoots = flags.DataRoots
	}
	if set("limit") {
		c.LimitsByName = mergeLimits(c.LimitsByName, flags.LimitsByName)
	}
	if set("advertise") {
		c.Advertise = flags.Advertise
	}
	if f.peers != "" {
		members, err := cluster.ParsePeers(withSchemes(f.peers))
		if err != nil {
			return c, err
		}
		c.Peers = members
	}
	for _, list := range [][]string{c.Listen, c.Advertise} {
		for i := range list {
			list[i] = withScheme(list[i])
		}
	}
	if err := f.sizes(cmd, &c, &flags); err != nil {
		return c, err
	}
	if c.TokenFile == "" {
		c.TokenFile = tokenBesides(c.TLS, defaultTokenFile())
	}
	c.Program, c.WasmCompiler = version(), []string{"/proc/self/exe", compileWasm}
	return c, nil
}

// mergeLimits is the file's limits with the flags' on top: the file's stay where no flag sets the same.
func mergeLimits(file, flags map[string]string) map[string]string {
	all := maps.Clone(file)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, flags)
	return all
}

// sizes sets the compiler's command, and what has a unit: times and bytes.
func (f *nodeFlags) sizes(cmd *cobra.Command, c, flags *node.Config) error {
	for _, s := range []struct {
		flag     string
		to, from *time.Duration
	}{{"stop-time", &c.StopTime, &flags.StopTime}, {"load-time", &c.LoadTime, &flags.LoadTime}, {"compile-time", &c.CompileTime, &flags.CompileTime}} {
		if !cmd.Flags().Changed(s.flag) {
			continue
		}
		if *s.from <= 0 {
			return fmt.Errorf("--%s %v: it must be positive, as in 30s", s.flag, *s.from)
		}
		*s.to = *s.from
	}
	if cmd.Flags().Changed("compiler") {
		c.Compiler = flags.Compiler
	}
	for _, s := range []struct {
		flag, text string
		to         *node.Bytes
	}{{"memory", f.memory, &c.Memory}, {"pool-memory", f.poolMemory, &c.PoolMemory}, {"code-cache-bytes", f.codeCacheBytes, &c.CodeCacheBytes}} {
		if s.text == "" {
			continue
		}
		b, err := node.ParseBytes(s.text)
		if err != nil {
			return fmt.Errorf("--%s: %w", s.flag, err)
		}
		*s.to = b
	}
	return nil
}

func (f *nodeFlags) logger(a *app) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: it is debug, info, warn or error", f.logLevel)
	}
	o := &slog.HandlerOptions{Level: level}
	if f.logJSON {
		return slog.New(slog.NewJSONHandler(a.err, o)), nil
	}
	return slog.New(slog.NewTextHandler(a.err, o)), nil
}

func (a *app) runNode(cmd *cobra.Command, f *nodeFlags, flags node.Config) error {
	c, err := f.nodeConfig(cmd, flags)
	if err == nil {
		c.Log, err = f.logger(a)
	}
	c.Schemes = a.schemes
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return usageError{err}
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // before the node is built: a signal that comes early must not end it
	defer signal.Stop(hup)
	n, err := node.New(c)
	if err != nil {
		return err
	}
	// One line says that the node is up and where: scripts that start nodes wait for it.
	up := struct {
		Name        string   `json:"name"`
		Incarnation string   `json:"incarnation"`
		Addrs       []string `json:"addrs"`
		HTTP        string   `json:"http,omitempty"`
	}{n.Name(), n.Element().Incarnation().String(), n.Addrs(), n.HTTPAddr()}
	if a.json {
		err = json.NewEncoder(a.out).Encode(up)
	} else {
		_, err = fmt.Fprintf(a.out, "node %s (%s) listens at %v\n", up.Name, up.Incarnation, up.Addrs)
	}
	if err != nil {
		return errors.Join(err, n.Close())
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	var reloads sync.WaitGroup
	notify(c.Log, stateReady)
	reloads.Go(func() {
		for {
			select {
			case <-hup:
				notify(c.Log, stateReloading())
				f.reload(cmd, n, flags, &c)
				notify(c.Log, stateReady)
			case <-ctx.Done():
				notify(c.Log, stateStopping)
				return
			}
		}
	})
	err = n.Run(cmd.Context())
	cancel()
	reloads.Wait()
	return err
}

// reload has a node read its configuration and its files again: the file's settings with the flags' on top, as at the start.
func (f *nodeFlags) reload(cmd *cobra.Command, n *node.Node, flags node.Config, first *node.Config) {
	c, err := f.nodeConfig(cmd, flags)
	c.Log, c.Schemes = first.Log, first.Schemes
	var restart []string
	if err == nil {
		restart, err = n.Reload(c)
	}
	if err != nil {
		first.Log.Error("configuration not reloaded: the one before stays in force", "err", err)
		return
	}
	for _, key := range restart {
		first.Log.Warn("setting changes when the node is restarted, not before", "key", key)
	}
	first.Log.Info("configuration reloaded")
}
