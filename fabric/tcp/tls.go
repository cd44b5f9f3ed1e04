package tcp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// Credentials secure a transport's connections.
type Credentials = fabric.Credentials

// protocol is what both sides must have in mind (ALPN): a certificate that
// serves other programs too cannot be used to mix them up.
const protocol = "wherry/1"

// securePending is a connection in TLS's handshake or in HELLO.
type securePending struct {
	pending
	conn *tls.Conn
	wire *records
	self bool // our own certificate says who we are

	// Of the peer, once the handshake is done.
	leaf  *x509.Certificate
	who   fabric.Principal
	named bool
}

// secure lays TLS over a connection; the handshake happens with the first
// bytes of HELLO. host is the name that was dialled, "" on the accepting side.
func (t *Transport) secure(p pending, host string) (fabric.Pending, error) {
	own, err := t.cfg.TLS.Certificate()
	if err != nil {
		return nil, fmt.Errorf("tcp: this element's certificate: %w", err)
	}
	if own.Leaf == nil {
		return nil, errors.New("tcp: this element's certificate was not parsed: set its Leaf")
	}
	_, self, err := t.cfg.TLS.Judge(own.Leaf)
	if err != nil {
		return nil, fmt.Errorf("tcp: this element's own certificate: %w", err)
	}
	s := &securePending{pending: p, self: self, wire: &records{c: p.c, raw: make([]byte, maxRecordBytes)}}
	roots := t.cfg.TLS.Roots()
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13, MaxVersion: tls.VersionTLS13,
		NextProtos: []string{protocol},
		RootCAs:    roots, ClientCAs: roots, ServerName: host,
		ClientAuth:           tls.RequireAndVerifyClientCert,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own, nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil },
		VerifyConnection:     s.verify,
		// A resumed session would go by a certificate that was good once.
		SessionTicketsDisabled: true,
		// Records as large as they can be: what is latency-sensitive here is small anyway.
		DynamicRecordSizingDisabled: true,
	}
	if host == "" {
		s.conn = tls.Server(s.wire, cfg)
	} else {
		s.conn = tls.Client(s.wire, cfg)
	}
	return s, nil
}

// verify has the last word on a peer, after its certificate was found valid.
func (p *securePending) verify(cs tls.ConnectionState) (err error) {
	if cs.NegotiatedProtocol != protocol {
		return fmt.Errorf("the peer's TLS is not for wherry: it does not ask for the protocol %q", protocol)
	}
	p.leaf = cs.PeerCertificates[0]
	p.who, p.named, err = p.t.cfg.TLS.Judge(p.leaf)
	return err
}

// dialHost is the name that the certificate at addr must have.
func dialHost(addr string) (string, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	host, _, _ = strings.Cut(host, "%") // a zone is this machine's own affair
	if host == "" {
		return "", fmt.Errorf("tcp: %q names no host, and a certificate must have its name", addr)
	}
	return host, nil
}

func (p *securePending) Read(b []byte) (int, error) {
	n, err := p.conn.Read(b)
	return n, p.explain(err)
}

func (p *securePending) Write(b []byte) (int, error) {
	n, err := p.conn.Write(b)
	return n, p.explain(err)
}

// Close says goodbye in TLS's way, so that a refusal is known to be whole.
func (p *securePending) Close() error {
	p.c.SetWriteDeadline(time.Now().Add(farewellTime))
	p.conn.CloseWrite()
	return p.c.Close()
}

// farewellTime bounds the goodbye to a peer that was not accepted.
const farewellTime = time.Second

// Features implements fabric.Pending.
func (p *securePending) Features() fabric.PendingFeatures {
	return fabric.PendingFeatures{Certified: p}
}

// SelfCertified reports whether our certificate tells the peer who we are.
func (p *securePending) SelfCertified() bool { return p.self }

// PeerPrincipal is who the peer is by its certificate.
func (p *securePending) PeerPrincipal() (fabric.Principal, bool) { return p.who, p.named }

// Start makes a link of the connection.
func (p *securePending) Start(r fabric.Receiver, _ bool) (fabric.Link, error) {
	if p.leaf == nil {
		return nil, errors.New("tcp: no handshake of TLS has taken place")
	}
	fd, err := p.detach()
	if err != nil {
		return nil, err
	}
	l, err := p.t.start(fd, r, newSealed(p.t, p.conn, p.wire, p.leaf))
	if err != nil {
		return nil, err
	}
	// It may have been revoked since verify, and before Recheck could find the link.
	if _, _, err := p.t.cfg.TLS.Judge(p.leaf); err != nil {
		l.refuse(err)
	}
	return l, nil
}

// Recheck judges the certificates of all links again and ends the links of
// those that are refused now. Whoever learns of revoked certificates calls it, from any goroutine.
func (t *Transport) Recheck() (ended int) {
	t.mu.Lock()
	var secured []*link
	for _, l := range t.links {
		if l.sec != nil {
			secured = append(secured, l)
		}
	}
	t.mu.Unlock()
	for _, l := range secured {
		if _, _, err := t.cfg.TLS.Judge(l.sec.leaf); err != nil {
			l.refuse(err)
			ended++
		}
	}
	return ended
}

// refuse has the leader find that the link is over, and why.
func (l *link) refuse(why error) {
	l.sec.refused.CompareAndSwap(nil, &why)
	l.txMu.Lock()
	defer l.txMu.Unlock()
	if !l.txDone {
		l.breakOff(why)
	}
}

// explain says what to do about a failure of TLS. What trying again would not help is refused.
func (p *securePending) explain(err error) error {
	if err == nil || errors.Is(err, fabric.ErrRefused) {
		return err
	}
	var local *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var remote *net.OpError
	switch {
	case errors.As(err, &local):
		return fmt.Errorf("%w: the certificate of %s is not good here: %w", fabric.ErrRefused, p.RemoteAddr(), local.Err)
	case errors.As(err, &record):
		if p.leaf == nil {
			p.c.Write([]byte{tlsAlert, 3, 3, 0, 2, 2, byte(alertVersion)}) // crypto/tls says nothing to what is no TLS
		}
		return fmt.Errorf("%w: %s does not speak TLS (%s): is TLS off there, or is it no wherry?", fabric.ErrRefused, p.RemoteAddr(), record.Msg)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return fmt.Errorf("%w: %s ends TLS: %s%w", fabric.ErrRefused, p.RemoteAddr(), advice(remote.Err), remote.Err)
	case p.leaf == nil && !errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no handshake of TLS with %s: %w (is TLS off there?)", p.RemoteAddr(), err)
	}
	return err
}

// Alerts by their number in RFC 8446, section 6.
const (
	alertBadCertificate tls.AlertError = 42
	alertRevoked        tls.AlertError = 44
	alertExpired        tls.AlertError = 45
	alertUnknownCA      tls.AlertError = 48
	alertDecrypt        tls.AlertError = 51
	alertVersion        tls.AlertError = 70
	alertNoCertificate  tls.AlertError = 116
)

// advice says what a peer's alert may come from. crypto/tls gives alerts a type
// of its own, so the text decides, which is the same.
func advice(alert error) string {
	switch alert.Error() {
	case alertBadCertificate.Error(), alertRevoked.Error():
		return "it refuses this element's certificate (revoked, for another host or purpose, or of another authority; its log says which): "
	case alertExpired.Error():
		return "this element's certificate has expired there: renew it; "
	case alertUnknownCA.Error():
		return "this element's certificate is not from an authority that it knows; "
	case alertDecrypt.Error():
		return "this element's key is not that of its certificate; "
	case alertNoCertificate.Error():
		return "it wants a certificate; "
	case alertVersion.Error():
		return "it does not speak TLS 1.3; "
	}
	return ""
}

// dialSecure lays TLS over a dialled connection.
func (t *Transport) dialSecure(c *net.TCPConn, addr string) (fabric.Pending, error) {
	host, err := dialHost(addr)
	if err == nil {
		var p fabric.Pending
		if p, err = t.secure(pending{t: t, c: c}, host); err == nil {
			return p, nil
		}
	}
	c.Close()
	return nil, err
}
