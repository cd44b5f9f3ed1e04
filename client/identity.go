package client

import (
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
)

// identify reads who this client is: its certificate, its token, or both.
func (c *Client) identify() (err error) {
	if c.tls, err = c.cfg.TLS.Load(c.log); err != nil {
		return err
	}
	tokens := c.cfg.Tokens
	if tokens == nil && c.cfg.TokenFile != "" {
		if tokens, err = cluster.LoadTokens(c.cfg.TokenFile); err != nil {
			return err
		}
	}
	var who cluster.Principal
	named := false
	if c.tls != nil {
		who, named = c.tls.Principal()
	}
	if tokens == nil {
		if !named {
			return fmt.Errorf("%s does not say who you are, so a token is needed too", c.cfg.TLS.Cert)
		}
		c.auth = control.CertAuth(who)
		if c.cfg.Transports == nil { // a client that shows no certificate would have no principal
			c.schemes = c.schemes.Filter(func(s *fabric.Scheme) bool { return !s.Local() })
		}
		return nil
	}
	if c.auth, err = control.ClientAuth(tokens, c.cfg.Token); err != nil {
		return err
	}
	if own := c.auth.Principal().Name; named && own != who.Name {
		return fmt.Errorf("the certificate is %s's and the token %s's: nodes would know you by two names; use one of them, or name the token to use", who.Name, own)
	}
	return nil
}
