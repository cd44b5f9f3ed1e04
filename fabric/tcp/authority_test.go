package tcp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// authority is a certificate authority for one test.
type authority struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial atomic.Int64
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key}
	spec := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	a.cert = sign(t, spec, spec, key.Public(), key)
	a.serial.Store(1)
	return a
}

func sign(t testing.TB, spec, parent *x509.Certificate, public, key any) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, spec, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// issue makes a certificate that is good on both ends of a connection on this
// machine, unless change says otherwise.
func (a *authority) issue(t testing.TB, name string, change ...func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	spec := &x509.Certificate{SerialNumber: big.NewInt(a.serial.Add(1)), Subject: pkix.Name{CommonName: name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour)}
	for _, c := range change {
		c(spec)
	}
	cert := sign(t, spec, a.cert, key.Public(), a.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// holder are Credentials with one certificate. It is named if principals is
// set: then each certificate's holder is who its subject says, except for nobody.
type holder struct {
	own        tls.Certificate
	roots      *x509.CertPool
	principals bool
	revoked    atomic.Int64 // a serial number
}

func (a *authority) holder(t testing.TB, name string, change ...func(*x509.Certificate)) *holder {
	t.Helper()
	return a.holderOf(a.issue(t, name, change...))
}

func (a *authority) holderOf(own tls.Certificate) *holder {
	h := &holder{own: own, roots: x509.NewCertPool()}
	h.roots.AddCert(a.cert)
	return h
}

func (h *holder) Certificate() (*tls.Certificate, error) { return &h.own, nil }
func (h *holder) Roots() *x509.CertPool                  { return h.roots }

var errRevoked = errors.New("the certificate was revoked")

func (h *holder) Judge(leaf *x509.Certificate) (fabric.Principal, bool, error) {
	if leaf.SerialNumber.Int64() == h.revoked.Load() {
		return fabric.Principal{}, false, errRevoked
	}
	return fabric.Principal{Name: leaf.Subject.CommonName, Caps: 9}, h.principals && leaf.Subject.CommonName != "nobody", nil
}

// shared is a holder that this process and its children have in common: the
// first one leaves it in a folder that the environment names.
func shared(t *testing.T) *holder {
	t.Helper()
	const where = "WHERRY_TCP_TEST_HOLDER"
	dir := os.Getenv(where)
	if dir == "" {
		dir = t.TempDir()
		a := newAuthority(t, "shared")
		own := a.issue(t, "everybody")
		key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		for name, block := range map[string]*pem.Block{"ca": {Type: "CERTIFICATE", Bytes: a.cert.Raw},
			"cert": {Type: "CERTIFICATE", Bytes: own.Certificate[0]}, "key": {Type: "PRIVATE KEY", Bytes: key}} {
			if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv(where, dir)
	}
	h := &holder{roots: x509.NewCertPool()}
	var err error
	if h.own, err = tls.LoadX509KeyPair(filepath.Join(dir, "cert"), filepath.Join(dir, "key")); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca"))
	if err != nil || !h.roots.AppendCertsFromPEM(ca) {
		t.Fatal("the shared authority cannot be read", err)
	}
	return h
}
