package main

import (
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"

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
	p.Var(newList(&f.etcd, ""), "etcd", "manage the cluster, and keep its state in this etcd cluster: http://host:2379 or https://…; may be repeated")
	p.StringVar(&c.EtcdCert, "etcd-cert", "", "certificate that is shown to --etcd")
	p.StringVar(&c.EtcdKey, "etcd-key", "", "its key")
	p.StringVar(&c.EtcdCA, "etcd-ca", "", "certificate of the authority of --etcd, for https")
}

// set puts the flags over a file's configuration.
func (f *managerFlags) set(c, flags *node.Config, set func(string) bool) error {
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
	c.OpenStore = openStore
	return nil
}

// openStore opens what a manager keeps the cluster's state in.
func openStore(c *node.Config) (*node.Store, error) {
	if len(c.Etcd) > 0 {
		s, err := etcd.Dial(etcd.Config{Endpoints: c.Etcd, TLS: ca.Files{Cert: c.EtcdCert, Key: c.EtcdKey, CA: c.EtcdCA}, Log: c.Log})
		if err != nil {
			return nil, err
		}
		return &node.Store{Store: s, Where: s.Where(), Close: s.Close}, nil
	}
	cfg := etcd.ServerConfig{Name: c.Name, Dir: c.Manager, Log: c.Log}
	if c.TLS.On() {
		cfg.TLS = ca.Files{Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA, List: c.TLS.CRL}
	}
	for _, p := range c.ManagerPeers {
		if host, _, err := net.SplitHostPort(p.Addr); err == nil && !c.TLS.On() && !c.Insecure && !fabric.LoopbackHost(p.Addr) {
			return nil, fmt.Errorf("manager_peers: %s=%s: beyond loopback etcd's members need TLS (tls_cert, tls_key, tls_ca), or insecure on a network that you trust; %s could read and change the cluster's state", p.Name, p.Addr, host)
		}
		cfg.Members = append(cfg.Members, etcd.Member{Name: p.Name, Addr: p.Addr})
	}
	s, err := etcd.Start(cfg)
	if err != nil {
		return nil, err
	}
	return &node.Store{Store: s.Store(), Where: s.Store().Where(), Close: s.Close, Failed: s.Failed()}, nil
}

var _ cluster.Store = (*etcd.Store)(nil)
