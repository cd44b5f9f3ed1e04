package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/schemes"
)

// tokenName is what serve calls the token that it makes.
const tokenName = "ioforward"

// options are the flags of both commands: who this is, and how it waits.
type options struct {
	tokens   string
	token    string
	anybody  bool
	insecure bool
	tls      ca.Settings
	policy   string
}

func (o *options) flags(f *flag.FlagSet) {
	f.StringVar(&o.tokens, "tokens", "", "`file` of tokens, which both sides have; serve makes it if there is none, and reads it at its start only")
	f.StringVar(&o.token, "token", "", "`name` of the token to show, if the file has several")
	f.StringVar(&o.tls.Cert, "tls-cert", "", "certificate that says who this is, a `file`; wherry ca issue makes it")
	f.StringVar(&o.tls.Key, "tls-key", "", "its key, a `file` with mode 0600")
	f.StringVar(&o.tls.CA, "tls-ca", "", "`file` with the certificate of the authority that others' must come from")
	f.StringVar(&o.tls.CRL, "tls-crl", "", "`file` of what the authority revoked; looked at again every second, and connections of what is on it end")
	f.BoolVar(&o.anybody, "anybody", false, "no tokens: whoever reaches the address may do everything")
	f.BoolVar(&o.insecure, "insecure", false, "allow tcp addresses beyond loopback without TLS")
	f.StringVar(&o.policy, "policy", "balanced", "how to wait: balanced, latency, efficient")
}

func (o *options) check(addrs []string) error {
	if err := o.tls.Validate(); err != nil {
		return err
	}
	if (o.tokens == "" && !o.tls.On()) != o.anybody {
		return errors.New("give either --tokens FILE or the --tls flags, or --anybody where whoever reaches the address may do everything")
	}
	for _, a := range addrs {
		if !o.insecure && !o.tls.On() && !schemes.All().Loopback(a) {
			return fmt.Errorf("%s is beyond loopback, and the connection is not encrypted: give the --tls flags, use a tunnel, or --insecure on a network that you trust", a)
		}
	}
	return nil
}

// auth is who this program is and whom it lets in: by token if there are tokens,
// else by certificate.
func (o *options) auth(id *ca.Identity) (fabric.Auth, error) {
	if o.tokens != "" {
		tokens, err := cluster.LoadTokens(o.tokens)
		if err != nil {
			return nil, err
		}
		return control.ClientAuth(tokens, o.token)
	}
	who, named := id.Principal()
	if !named {
		return nil, fmt.Errorf("%s does not say who this is, so it needs --tokens too", o.tls.Cert)
	}
	return control.CertAuth(who), nil
}

// element makes this program's element, with all transports. Its user calls end.
func (o *options) element(name string, log *slog.Logger) (el *fabric.Element, end func(), err error) {
	policy, err := fabric.ParsePolicy(o.policy)
	if err != nil {
		return nil, nil, err
	}
	cfg := fabric.Config{Name: name, Policy: policy, Log: log}
	id, err := o.tls.Load(log)
	if err != nil {
		return nil, nil, err
	}
	if !o.anybody {
		if cfg.Auth, err = o.auth(id); err != nil {
			return nil, nil, err
		}
	}
	over, err := schemes.All().Open(id.Credentials())
	if err != nil {
		return nil, nil, err
	}
	cfg.Transports = over
	if el, err = fabric.New(cfg); err != nil {
		return nil, nil, errors.Join(err, over.Close())
	}
	unwatch := watchRevoked(id, over)
	return el, func() { unwatch(); el.Close() }, nil
}

// watchRevoked ends the connections of certificates as soon as they are revoked,
// until stop is called.
func watchRevoked(id *ca.Identity, over fabric.Transports) (stop func()) {
	if id == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { id.Guard(ctx, over.Recheck) })
	return func() { cancel(); work.Wait() }
}

// newTokens writes a token file with one token that may read and write, unless there
// is a file.
func newTokens(file string) error {
	t, err := cluster.NewToken(tokenName, cluster.CapRead|cluster.CapWrite)
	if err != nil {
		return err
	}
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	return ca.WriteNew(file, []byte(t.Line()+"\n"), 0o600)
}
