package node

import (
	"fmt"
	"log/slog"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
)

// identify reads who a node is: its certificate, its tokens, or both. Without TLS id is nil.
func (c *Config) identify(log *slog.Logger) (auth *control.Auth, id *ca.Identity, err error) {
	if id, err = c.TLS.Load(log); err != nil {
		return nil, nil, err
	}
	tokens := c.Tokens
	if tokens == nil && c.TokenFile != "" {
		if tokens, err = cluster.LoadTokens(c.TokenFile); err != nil {
			return nil, nil, err
		}
	}
	var who cluster.Principal
	named := false
	if id != nil {
		who, named = id.Principal()
		if named && !who.Caps.Has(cluster.CapMember) {
			return nil, nil, fmt.Errorf("%w: %s: the certificate of %s has the capabilities %v; a node needs member: wherry ca issue %s --node", ca.ErrFile, c.TLS.Cert, who.Name, who.Caps, c.Name)
		}
		if !id.Accepts() {
			return nil, nil, fmt.Errorf("%w: %s is good for dialling only; a node's is made by: wherry ca issue %s --node", ca.ErrFile, c.TLS.Cert, c.Name)
		}
	}
	switch {
	case tokens != nil:
		auth, err = control.NodeAuth(tokens, c.Token)
		return auth, id, err
	case !named:
		return nil, nil, fmt.Errorf("%w: %s does not say who this node is, so it needs token_file too", ca.ErrFile, c.TLS.Cert)
	}
	return control.CertAuth(who), id, nil
}

// transports makes those that the configuration's addresses need.
func (n *Node) transports() (err error) {
	var used []string
	for _, addr := range n.cfg.addrs() {
		if s, _ := n.cfg.Schemes.Of(addr); s != nil {
			used = append(used, s.Name)
		}
	}
	if n.schemes, err = n.cfg.Schemes.Pick(used...); err != nil {
		return err
	}
	n.made, err = n.schemes.Open(n.tls.Credentials())
	return err
}

// dialled are the schemes of addresses that this node dials: without a token
// a node that shows no certificate has no principal.
func (n *Node) dialled() fabric.Schemes {
	if name, _ := n.auth.Self(); name != "" {
		return n.schemes
	}
	return n.schemes.Filter(func(s *fabric.Scheme) bool { return !s.Local() })
}

// checkHosts warns of addresses that others would dial in vain.
func (n *Node) checkHosts() {
	if n.tls == nil {
		return
	}
	for _, addr := range n.Addrs() {
		s, place := n.schemes.Of(addr)
		if s == nil || s.Local() {
			continue
		}
		if host, err := s.Host(place); err == nil {
			if err := n.tls.VerifyHost(host); err != nil {
				n.log.Warn("others cannot dial this address: the certificate is not for its host", "addr", addr, "err", err)
			}
		}
	}
}
