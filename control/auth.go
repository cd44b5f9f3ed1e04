package control

import (
	"crypto/hmac"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
)

// Auth is a fabric.Auth made of tokens: it shows one of them, and admits
// those who hold any. Without a token no peer is admitted; those whom their
// certificate names need none. What it goes by can be replaced while it is in use.
type Auth struct {
	now atomic.Pointer[credentials]
}

// credentials are what an Auth goes by.
type credentials struct {
	tokens *cluster.Tokens // nil: none
	self   cluster.Token
}

func newAuth(tokens *cluster.Tokens, self cluster.Token) *Auth {
	a := &Auth{}
	a.now.Store(&credentials{tokens, self})
	return a
}

// Replace makes a go by what next goes by. It returns the names of the tokens that a knew and that are
// gone, or have other capabilities or another secret now.
func (a *Auth) Replace(next *Auth) (withdrawn []string) {
	old := a.now.Swap(next.now.Load())
	if old.tokens == nil {
		return nil
	}
	now := a.now.Load().tokens
	for _, name := range old.tokens.Names() {
		before, _ := old.tokens.Lookup(name)
		if now != nil {
			if t, ok := now.Lookup(name); ok && t.Caps == before.Caps && hmac.Equal(t.Secret, before.Secret) {
				continue
			}
		}
		withdrawn = append(withdrawn, name)
	}
	return withdrawn
}

// CertAuth is the Auth of an element that has no tokens: its certificate says
// that it is self.
func CertAuth(self cluster.Principal) *Auth {
	return newAuth(nil, cluster.Token{Name: self.Name, Caps: self.Caps})
}

// NewAuth makes an Auth that shows the token called self.
func NewAuth(tokens *cluster.Tokens, self string) (*Auth, error) {
	t, ok := tokens.Lookup(self)
	if !ok {
		return nil, fmt.Errorf("%w: there is no token called %q in the token file", cluster.ErrToken, self)
	}
	return newAuth(tokens, t), nil
}

// NodeAuth is NewAuth for a node: if self is "", the only token with
// capability member is meant.
func NodeAuth(tokens *cluster.Tokens, self string) (*Auth, error) {
	if self == "" {
		var found []string
		for _, name := range tokens.Names() {
			if t, ok := tokens.Lookup(name); ok && t.Caps.Has(cluster.CapMember) {
				found = append(found, name)
			}
		}
		switch len(found) {
		case 0:
			return nil, fmt.Errorf("%w: no token in the file has the capability member, which a node speaks to its peers with: add one with 'wherry token new NAME --node --file FILE'", cluster.ErrToken)
		case 1:
			self = found[0]
		default:
			return nil, fmt.Errorf("%w: several tokens have the capability member (%s): name the one that is this node's with --token NAME (token in its configuration)", cluster.ErrToken, strings.Join(found, ", "))
		}
	}
	a, err := NewAuth(tokens, self)
	if err == nil && !a.Principal().Caps.Has(cluster.CapMember) {
		return nil, fmt.Errorf("%w: token %q has the capabilities %v; a node needs member", cluster.ErrToken, self, a.Principal().Caps)
	}
	return a, err
}

// ClientAuth is NewAuth for a client: if self is "", the file's only token is meant.
func ClientAuth(tokens *cluster.Tokens, self string) (*Auth, error) {
	if names := tokens.Names(); self == "" {
		if len(names) != 1 {
			return nil, fmt.Errorf("%w: the token file has %d tokens (%s): name the one to show with --token NAME", cluster.ErrToken, len(names), strings.Join(names, ", "))
		}
		self = names[0]
	}
	return NewAuth(tokens, self)
}

// Principal is who the bearer of the shown token is, or of the certificate.
func (a *Auth) Principal() cluster.Principal { return a.now.Load().self.Principal() }

// Self is the token shown to peers.
func (a *Auth) Self() (name string, secret []byte) {
	c := a.now.Load()
	if c.tokens == nil {
		return "", nil
	}
	return c.self.Name, c.self.Secret
}

// Lookup finds the token that a peer names.
func (a *Auth) Lookup(name string) (secret []byte, p fabric.Principal, ok bool) {
	c := a.now.Load()
	if c.tokens == nil {
		return nil, fabric.Principal{}, false
	}
	t, ok := c.tokens.Lookup(name)
	if !ok {
		return nil, fabric.Principal{}, false
	}
	return t.Secret, fabric.Principal{Name: t.Name, Caps: uint32(t.Caps)}, true
}

// Anonymous admits no peer.
func (a *Auth) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{Name: "anonymous"}, false
}

// PrincipalOf is the principal at the other end, as cluster's rules know it.
func PrincipalOf(ep *fabric.Endpoint) cluster.Principal {
	p := ep.Principal()
	return cluster.Principal{Name: p.Name, Caps: cluster.Caps(p.Caps)}
}
