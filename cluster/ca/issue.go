package ca

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
)

// Request says what a certificate is for.
type Request struct {
	Principal cluster.Principal
	// Node: it is a node's, who has the capability member and the given hosts
	// (names or IP addresses), at which others dial it.
	Node  bool
	Hosts []string
	Term  time.Duration // 0: DefaultTerm. It never outlives the authority.
}

func (r *Request) validate() error {
	if err := cluster.ValidateName(r.Principal.Name); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if r.Term == 0 {
		r.Term = DefaultTerm
	}
	member := r.Principal.Caps.Has(cluster.CapMember)
	switch {
	case r.Term < minTerm || r.Term > MaxLife:
		return fmt.Errorf("%w: a term of %v, want %v to %v", ErrRequest, r.Term, minTerm, MaxLife)
	case r.Principal.Caps&^cluster.CapsAll != 0:
		return fmt.Errorf("%w: unknown capabilities %v", ErrRequest, r.Principal.Caps)
	case r.Node && !member:
		return fmt.Errorf("%w: a node needs the capability member", ErrRequest)
	case !r.Node && member:
		return fmt.Errorf("%w: the capability member is for nodes", ErrRequest)
	case r.Node && len(r.Hosts) == 0:
		return fmt.Errorf("%w: a node needs the hosts at which others dial it", ErrRequest)
	case !r.Node && len(r.Hosts) > 0:
		return fmt.Errorf("%w: only a node has hosts", ErrRequest)
	case len(r.Hosts) > MaxHosts:
		return fmt.Errorf("%w: %d hosts, at most %d are allowed", ErrRequest, len(r.Hosts), MaxHosts)
	}
	for _, h := range r.Hosts {
		if net.ParseIP(h) == nil && !hostname(h) {
			return fmt.Errorf("%w: %q is neither an IP address nor the name of one host", ErrRequest, clip(h))
		}
	}
	return nil
}

// hostname reports whether a certificate can be for h: a DNS name, no pattern.
func hostname(h string) bool {
	if len(h) == 0 || len(h) > 253 {
		return false
	}
	for label := range strings.SplitSeq(h, ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range label {
			if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
				return false
			}
		}
	}
	return true
}

// Issue makes a key and a certificate for it; both in PEM. The key is kept nowhere.
func (a *Authority) Issue(r Request) (cert *Cert, certText, keyText []byte, err error) {
	if err := r.validate(); err != nil {
		return nil, nil, nil, err
	}
	err = a.change(func(key crypto.Signer) error {
		have, err := a.List()
		if err != nil {
			return err
		}
		for _, c := range have {
			if c.Principal.Name == r.Principal.Name && c.State == Good {
				return fmt.Errorf("%w: %s has a certificate until %s: renew it, or revoke it first", ErrRequest, r.Principal.Name, c.Until.Format(time.DateOnly))
			}
		}
		if len(have) >= MaxCerts {
			return fmt.Errorf("%w: the authority has issued %d certificates, its limit: remove old ones from %s", ErrRequest, len(have), filepath.Join(a.dir, issuedDir))
		}
		own, text, err := newKey()
		if err != nil {
			return err
		}
		keyText = text
		spec := &x509.Certificate{Subject: pkix.Name{CommonName: r.Principal.Name, Organization: []string{"wherry"}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, URIs: []*url.URL{PrincipalURI(r.Principal)}}
		if r.Node {
			spec.ExtKeyUsage = append(spec.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		}
		for _, h := range r.Hosts {
			if ip := net.ParseIP(h); ip != nil {
				spec.IPAddresses = append(spec.IPAddresses, ip)
			} else {
				spec.DNSNames = append(spec.DNSNames, h)
			}
		}
		cert, certText, err = a.sign(key, spec, own.Public(), r.Term)
		return err
	})
	return cert, certText, keyText, err
}

// sign completes a certificate, and keeps a copy.
func (a *Authority) sign(key crypto.Signer, spec *x509.Certificate, public crypto.PublicKey, term time.Duration) (*Cert, []byte, error) {
	now := a.now()
	spec.SerialNumber, spec.KeyUsage, spec.BasicConstraintsValid = newSerial(), x509.KeyUsageDigitalSignature, true
	spec.NotBefore, spec.NotAfter = now.Add(-skew), now.Add(term)
	if spec.NotAfter.After(a.cert.NotAfter) {
		spec.NotAfter = a.cert.NotAfter
	}
	if !spec.NotAfter.After(now) {
		return nil, nil, fmt.Errorf("ca: the authority itself has expired on %s: make a new one", a.cert.NotAfter.Format(time.DateOnly))
	}
	der, err := x509.CreateCertificate(rand.Reader, spec, a.cert, public, key)
	if err != nil {
		return nil, nil, fmt.Errorf("ca: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("ca: %w", err)
	}
	text := encode(blockCert, der)
	if err := WriteNew(filepath.Join(a.dir, issuedDir, serialText(leaf.SerialNumber)+certEnd), text, 0o644); err != nil {
		return nil, nil, err
	}
	c, err := a.describe(leaf, nil)
	return c, text, err
}

// Renew issues a certificate for the same key, principal and hosts as the
// newest good or expired one that which names (a principal's name, or a serial number). The
// older one stays good until it expires.
func (a *Authority) Renew(which string, term time.Duration) (cert *Cert, certText []byte, err error) {
	if term == 0 {
		term = DefaultTerm
	}
	if term < minTerm || term > MaxLife {
		return nil, nil, fmt.Errorf("%w: a term of %v, want %v to %v", ErrRequest, term, minTerm, MaxLife)
	}
	err = a.change(func(key crypto.Signer) error {
		have, err := a.find(which)
		if err != nil {
			return err
		}
		have = slices.DeleteFunc(have, func(c *Cert) bool { return c.State == Revoked })
		if len(have) == 0 {
			return fmt.Errorf("%w: %s was revoked, and stays so: issue a new one", ErrRequest, which)
		}
		old := slices.MaxFunc(have, func(x, y *Cert) int { return x.leaf.NotAfter.Compare(y.leaf.NotAfter) }).leaf
		spec := &x509.Certificate{Subject: old.Subject, ExtKeyUsage: old.ExtKeyUsage, URIs: old.URIs, IPAddresses: old.IPAddresses, DNSNames: old.DNSNames}
		cert, certText, err = a.sign(key, spec, old.PublicKey, term)
		return err
	})
	return cert, certText, err
}
