package fabric

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Scheme is a kind of transport as programs choose it: by the word that its addresses begin with. Programs are given the
// list of those they know (package fabric/schemes has this repository's), so that a further transport is one entry more.
type Scheme struct {
	Name    string // "tcp" of "tcp://127.0.0.1:7000"
	Example string // one of its addresses, for messages to people

	// New makes a transport; credentials (nil: none) encrypt its connections and say who is at their ends, unless it is Local.
	New func(Credentials) (Transport, error)
	// Check says what is wrong with a place that peers are to dial, an address without its scheme: "is not tcp://host:port".
	Check func(place string) error
	// Host is the host of a place to listen at, or an error as Check's. It is nil if addresses do not leave the machine.
	Host func(place string) (string, error)
	// Here is an address to listen at for a process of this machine that ends before the folder dir does.
	Here func(dir, name string) string

	// What doctor says: what it looks at, what needs that, what helps, and whether nothing works without it.
	Probe, For, Do string
	Vital          bool
}

// Credentials secure connections: TLS 1.3, nothing older, with a certificate from both sides. Methods may be called
// from several goroutines.
type Credentials interface {
	// Certificate is this element's own, with its key. It is asked for at each
	// connection, so that a renewed one is used.
	Certificate() (*tls.Certificate, error)
	// Roots are the authorities that a peer's certificate must come from.
	Roots() *x509.CertPool
	// Judge is asked about each certificate that is valid and from Roots: who is
	// its holder? named is false if the certificate does not say, and a token must. An
	// error refuses it, as one that was revoked.
	Judge(leaf *x509.Certificate) (who Principal, named bool, err error)
}

// Local reports whether addresses do not leave the machine. Then nothing is encrypted, and a peer needs a token, because
// it shows no certificate.
func (s *Scheme) Local() bool { return s.Host == nil }

// Schemes are the transports that a program knows, those that it prefers first.
type Schemes []Scheme

// Names are the schemes' names.
func (l Schemes) Names() []string {
	names := make([]string, len(l))
	for i := range l {
		names[i] = l[i].Name
	}
	return names
}

// Index is a scheme's place in the list, -1 if it is not there.
func (l Schemes) Index(name string) int {
	return slices.IndexFunc(l, func(s Scheme) bool { return s.Name == name })
}

// Pick is those with the given names, in the list's order.
func (l Schemes) Pick(names ...string) (Schemes, error) {
	for _, name := range names {
		if l.Index(name) < 0 {
			return nil, fmt.Errorf("there is no transport %q, only %s", name, strings.Join(l.Names(), " and "))
		}
	}
	return l.Filter(func(s *Scheme) bool { return slices.Contains(names, s.Name) }), nil
}

// Filter is those that keep says yes to.
func (l Schemes) Filter(keep func(*Scheme) bool) Schemes {
	var out Schemes
	for i := range l {
		if keep(&l[i]) {
			out = append(out, l[i])
		}
	}
	return out
}

// Of is the scheme of an address, and the address without it; nil if it is not in the list.
func (l Schemes) Of(addr string) (s *Scheme, place string) {
	name, place, _ := strings.Cut(addr, "://")
	if i := l.Index(name); i >= 0 {
		return &l[i], place
	}
	return nil, place
}

// Check says what is wrong with an address that peers are to dial. One of a scheme that is not in the list may be right.
func (l Schemes) Check(addr string) error {
	if s, place := l.Of(addr); s != nil {
		if err := s.Check(place); err != nil {
			return fmt.Errorf("the address %q %w", addr, err)
		}
	}
	return nil
}

// Loopback reports whether an address is of a scheme of the list and cannot be reached from other machines.
func (l Schemes) Loopback(addr string) bool {
	s, place := l.Of(addr)
	return s != nil && (s.Local() || LoopbackHost(place))
}

// LoopbackHost is Loopback for host:port.
func LoopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Open makes a transport of each scheme. The element that gets them closes them.
func (l Schemes) Open(c Credentials) (list Transports, err error) {
	for i := range l {
		t, err := l[i].New(c)
		if err != nil {
			return nil, errors.Join(err, list.Close())
		}
		list = append(list, t)
	}
	return list, nil
}

// Transports are some of one element.
type Transports []Transport

// Close closes transports that no element has taken over.
func (l Transports) Close() (err error) {
	for _, t := range l {
		err = errors.Join(err, t.Close())
	}
	return err
}

// Recheck judges the certificates of all connections again, where a transport shows any, and says how many it has ended.
func (l Transports) Recheck() (ended int) {
	for _, t := range l {
		if recheck := t.Features().Recheck; recheck != nil {
			ended += recheck()
		}
	}
	return ended
}
