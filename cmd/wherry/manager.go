package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/cluster/etcd"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/node"
)

// managerFlags are what a node knows of managers, by flags.
type managerFlags struct {
	managers, peers, etcd string
}

func (f *managerFlags) add(cmd *cobra.Command, c *node.Config) {
	p := cmd.Flags()
	p.Var(newList(&f.managers, ""), "managers", "names of the peers that manage the cluster; may be repeated. This node tells one of them of itself each second (docs/cluster.md)")
	p.StringVar(&c.Manager, "manager", "", "manage the cluster, and keep its state in this directory by an etcd member inside the node")
	p.Var(newList(&f.peers, ""), "manager-peers", "all nodes with --manager, this one too, and where their etcd members listen for each other, as in a=host:2380,b=…; may be repeated (default: this one alone, which listens nowhere)")
	p.BoolVar(&c.ManagerNew, "manager-new", false, "begin the cluster of --manager-peers: on one of them, at its very first start only; without it, a manager that has no data waits for the others and joins them")
	p.Var(newList(&f.etcd, ""), "etcd", "manage the cluster, and keep its state in this etcd cluster: http://host:2379 or https://…; may be repeated")
	p.StringVar(&c.EtcdCert, "etcd-cert", "", "certificate that is shown to --etcd")
	p.StringVar(&c.EtcdKey, "etcd-key", "", "its key")
	p.StringVar(&c.EtcdCA, "etcd-ca", "", "certificate of the authority of --etcd, for https")
}

// set puts the flags over a file's configuration. ctx bounds how long the node waits for other managers when it begins.
func (f *managerFlags) set(ctx context.Context, c, flags *node.Config, set func(string) bool) error {
	for _, s := range []struct {
		flag     string
		to, from *string
	}{{"manager", &c.Manager, &flags.Manager}, {"etcd-cert", &c.EtcdCert, &flags.EtcdCert}, {"etcd-key", &c.EtcdKey, &flags.EtcdKey}, {"etcd-ca", &c.EtcdCA, &flags.EtcdCA}} {
		if set(s.flag) {
			*s.to = *s.from
		}
	}
	if f.managers != "" {
		c.Managers = strings.Split(f.managers, ",")
	}
	if f.etcd != "" {
		c.Etcd = strings.Split(f.etcd, ",")
	}
	if f.peers != "" {
		c.ManagerPeers = nil
		for entry := range strings.SplitSeq(f.peers, ",") {
			name, addr, ok := strings.Cut(entry, "=")
			if !ok {
				return fmt.Errorf("--manager-peers: %q is not name=host:port", entry)
			}
			c.ManagerPeers = append(c.ManagerPeers, node.ManagerPeer{Name: strings.TrimSpace(name), Addr: strings.TrimSpace(addr)})
		}
	}
	c.ManagerNew = flags.ManagerNew
	c.OpenStore = func(c *node.Config) (*node.Store, error) { return openStore(ctx, c) }
	return nil
}

// openStore opens what a manager keeps the cluster's state in.
func openStore(ctx context.Context, c *node.Config) (*node.Store, error) {
	if len(c.Etcd) > 0 {
		s, err := etcd.Dial(etcd.Config{Endpoints: c.Etcd, TLS: ca.Files{Cert: c.EtcdCert, Key: c.EtcdKey, CA: c.EtcdCA}, Log: c.Log})
		if err != nil {
			return nil, err
		}
		return &node.Store{Store: s, Where: s.Where(), Close: s.Close}, nil
	}
	cfg := etcd.ServerConfig{Name: c.Name, Dir: c.Manager, New: c.ManagerNew, Log: c.Log, Join: func(ctx context.Context, m etcd.Member) ([]cluster.StoreMember, error) {
		return joinManagers(ctx, c, m)
	}}
	if c.TLS.On() {
		cfg.TLS = ca.Files{Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA, List: c.TLS.CRL}
	}
	for _, p := range c.ManagerPeers {
		if host, _, err := net.SplitHostPort(p.Addr); err == nil && !c.TLS.On() && !c.Insecure && !fabric.LoopbackHost(p.Addr) {
			return nil, fmt.Errorf("manager_peers: %s=%s: beyond loopback etcd's members need TLS (tls_cert, tls_key, tls_ca), or insecure on a network that you trust; %s could read and change the cluster's state", p.Name, p.Addr, host)
		}
		cfg.Members = append(cfg.Members, etcd.Member{Name: p.Name, Addr: p.Addr})
	}
	s, err := etcd.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &node.Store{Store: s.Store(), Where: s.Store().Where(), Members: s, Close: s.Close, Failed: s.Failed()}, nil
}

// joinManagers asks a manager that is up to take this node's etcd member in.
func joinManagers(ctx context.Context, c *node.Config, m etcd.Member) ([]cluster.StoreMember, error) {
	var nodes []cluster.Member
	for _, p := range c.Peers {
		if p.Name != c.Name && (len(c.Managers) == 0 || slices.Contains(c.Managers, p.Name)) {
			nodes = append(nodes, p)
		}
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("%w: it is another manager that takes this one in, and this node knows none: give --peers and --managers", cluster.ErrNoMember)
	}
	ctx, end := context.WithTimeout(ctx, joinTime)
	defer end()
	to, err := client.Connect(ctx, client.Config{Nodes: nodes, Only: true, TokenFile: c.TokenFile, Token: c.Token, TLS: c.TLS, Schemes: c.Schemes, Insecure: c.Insecure, Log: c.Log})
	if err != nil {
		return nil, err
	}
	defer to.Close()
	return to.JoinManagers(ctx, m.Name, m.Addr)
}

// joinTime bounds one attempt.
const joinTime = 10 * time.Second

func (a *app) managerCommand() *cobra.Command {
	parent := noun(&cobra.Command{
		Use:   "manager",
		Short: "List and remove the managers that keep a cluster's state",
		Long: `A node with --manager and --manager-peers is a manager that keeps the cluster's state
together with the others, in an etcd member of its own. It joins by itself when it is
started; wherry manager lists who is there, and removes one that does not come back.
docs/cluster.md describes how one manager becomes three, and how one is replaced.`,
		Example: "  wherry manager ls\n  wherry manager rm m3",
	})
	a.client.add(parent)
	parent.AddCommand(a.managerListCommand(), a.managerRemoveCommand())
	return parent
}

func (a *app) managerListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List the managers that keep the state, whether each has a vote, and whether it answers",
		Long:    "List the managers that keep the state, and whether each has a vote. The manager that gives\nthe list asks the others, for 2 seconds at most, and says which of them do not answer it.",
		Example: "  wherry manager ls\n  wherry manager ls --json | jq '.[] | select(.silent)'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withPool(cmd, "", func(ctx context.Context, c *client.Client) error {
				list, err := c.ManagerMembers(ctx)
				if err != nil {
					return err
				}
				return a.print(list, func(w io.Writer) {
					tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
					fmt.Fprintln(tab, "MANAGER\tADDRESS\tSTATE")
					for _, m := range list {
						state := "votes"
						switch {
						case !m.Started:
							state = "was taken in, and has not started"
						case !m.Voting:
							state = "catches up"
						}
						if m.Silent {
							state += ", but does not answer"
						}
						fmt.Fprintf(tab, "%s\t%s\t%s\n", m.Name, m.Addr, state)
					}
					tab.Flush()
				})
			})
		},
	}
}

func (a *app) managerRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a manager that does not come back, so that the others need not wait for it",
		Long: `Remove a manager from those that keep the cluster's state. It takes the capability
member or admin. More than half of the managers must be up, before and after. A node
that is removed while it runs ends. What it lends is not lost by that; a node that
is removed and started again without --manager goes on lending.`,
		Example: "  wherry manager rm m3",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withPool(cmd, "", func(ctx context.Context, c *client.Client) error {
				if err := c.RemoveManager(ctx, args[0]); err != nil {
					return err
				}
				return a.print(struct {
					Removed string `json:"removed"`
				}{args[0]}, func(w io.Writer) { fmt.Fprintf(w, "manager %s is removed\n", args[0]) })
			})
		},
	}
}

var _ cluster.Store = (*etcd.Store)(nil)
