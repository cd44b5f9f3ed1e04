package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/fabric"
)

// clientFlags say which nodes a command talks to, and as whom.
type clientFlags struct {
	peers     string
	tokenFile string
	token     string
	tls       ca.Settings
	policy    string
	insecure  bool

	// Of no flag: what the command needs, as in client.Config.
	node    string
	managed bool
	silence time.Duration // after which a node is lost; 0: as the fabric has it
}

// add puts the flags on a command and those below it.
func (f *clientFlags) add(cmd *cobra.Command) {
	p := cmd.PersistentFlags()
	p.Var(newList(&f.peers, os.Getenv("WHERRY_PEERS")), "peers", "nodes; may be repeated, as in 127.0.0.1:7000 or a=tcp://127.0.0.1:7000,b=shm:///run/wherry/b.sock; one is enough, it names the others ($WHERRY_PEERS)")
	p.StringVar(&f.tokenFile, "token-file", defaultTokenFile(), "file with your token, mode 0600 ($WHERRY_TOKEN_FILE)")
	p.StringVar(&f.token, "token", os.Getenv("WHERRY_TOKEN"), "name of the token to show, if the file has several ($WHERRY_TOKEN)")
	addTLS(p, &f.tls, true)
	p.StringVar(&f.policy, "policy", "balanced", "wake-up policy: balanced, latency or efficient")
	p.BoolVar(&f.insecure, "insecure", false, "dial addresses beyond loopback without TLS")
}

// reads are the files that say who this is, and to whom: no answer may be written over them.
func (f *clientFlags) reads() []string {
	return []string{f.tokenFile, f.tls.Cert, f.tls.Key, f.tls.CA, f.tls.CRL}
}

// defaultTokenFile is $WHERRY_TOKEN_FILE, or the user's own.
func defaultTokenFile() string {
	if f := os.Getenv("WHERRY_TOKEN_FILE"); f != "" {
		return f
	}
	return standardTokenFile()
}

// standardTokenFile is where a user's token is if nothing else is said; "" if there is no such place.
func standardTokenFile() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "wherry", "token")
}

// connect makes the command's client.
func (a *app) connect(ctx context.Context) (*client.Client, error) {
	f := &a.client
	nodes, err := parseNodes(f.peers)
	if err != nil {
		return nil, usageError{err}
	}
	if len(nodes) == 0 {
		return nil, usagef("no node to talk to: give --peers 127.0.0.1:7000 or set WHERRY_PEERS")
	}
	policy, err := fabric.ParsePolicy(f.policy)
	if err != nil {
		return nil, usageError{err}
	}
	cfg := client.Config{Nodes: nodes, TokenFile: tokenBesides(f.tls, f.tokenFile), Token: f.token, TLS: f.tls, Policy: policy,
		Insecure: f.insecure, Schemes: a.schemes, Log: a.warnings(), Node: f.node, Managed: f.managed, Limits: fabric.Limits{PeerTime: f.silence}}
	if err := cfg.Validate(); err != nil {
		return nil, usageError{err}
	}
	c, err := client.Connect(ctx, cfg)
	if errors.Is(err, cluster.ErrToken) && errors.Is(err, os.ErrNotExist) && !f.tls.On() && (f.tokenFile == defaultTokenFile() || a.far(nodes)) {
		return nil, fmt.Errorf("%w, or name your certificate: --tls-cert, --tls-key, --tls-ca", err)
	}
	return c, err
}

// far reports whether some node is dialled beyond loopback.
func (a *app) far(nodes []cluster.Member) bool {
	return slices.ContainsFunc(nodes, func(m cluster.Member) bool {
		return slices.ContainsFunc(m.Addrs, func(addr string) bool { return !a.schemes.Loopback(addr) })
	})
}

// warnings is the log of a client: what a person may want to know of nodes that
// do not answer, on standard error.
func (a *app) warnings() *slog.Logger {
	if a.quiet || a.json {
		return nil
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(_ []string, at slog.Attr) slog.Attr {
		if at.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return at
	}}))
}

// withScheme is an address with a scheme: host:port without one is of tcp.
func withScheme(addr string) string {
	addr = strings.TrimSpace(addr)
	if !strings.Contains(addr, ":") || strings.Contains(addr, "://") || strings.ContainsAny(addr[:1], "/@.") {
		return addr
	}
	return "tcp://" + addr
}

// withSchemes is withScheme for a list of nodes, name=address with commas between; the names may be missing.
func withSchemes(list string) string {
	items := strings.Split(list, ",")
	for i, item := range items {
		if name, addr, named := strings.Cut(item, "="); named && !strings.Contains(name, "://") {
			items[i] = name + "=" + withScheme(addr)
		} else {
			items[i] = withScheme(item)
		}
	}
	return strings.Join(items, ",")
}

// parseNodes reads a list of nodes, with or without names.
func parseNodes(list string) ([]cluster.Member, error) {
	var bare, named []string
	for item := range strings.SplitSeq(withSchemes(list), ",") {
		item = strings.TrimSpace(item)
		name, _, ok := strings.Cut(item, "=")
		if ok && !strings.Contains(name, "://") {
			named = append(named, item)
		} else if item != "" {
			bare = append(bare, item)
		}
	}
	var out []cluster.Member
	if len(named) > 0 {
		members, err := cluster.ParsePeers(strings.Join(named, ","))
		if err != nil {
			return nil, err
		}
		out = members
	}
	for _, addr := range bare {
		if err := cluster.ValidateAddr(addr); err != nil {
			return nil, err
		}
		out = append(out, cluster.Member{Addrs: []string{addr}})
	}
	return out, nil
}
