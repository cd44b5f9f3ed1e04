package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/internal/flock"
)

const (
	// DefaultLife and MaxLife are how long an authority lives: longer than any machine it serves.
	DefaultLife = 10 * 365 * 24 * time.Hour
	MaxLife     = 50 * 365 * 24 * time.Hour
	// DefaultTerm is how long a certificate is good for.
	DefaultTerm = 365 * 24 * time.Hour
	// minTerm is the shortest: a second, for tests of what comes after.
	minTerm = time.Second
	// skew is how far a certificate reaches back, because clocks differ.
	skew = 5 * time.Minute
	// MaxCerts bounds the certificates that an authority keeps, and MaxHosts the hosts in one.
	MaxCerts = 16384
	MaxHosts = 64
	// lockTime bounds the wait for another program that changes the same authority.
	lockTime = 10 * time.Second
)

// Names of an authority's files in its folder.
const (
	CertFile  = "ca.crt"  // its certificate, which everybody gets
	keyFile   = "ca.key"  // its key, which stays with the authority
	ListFile  = "ca.crl"  // what it revoked, which nodes get
	issuedDir = "issued"  // what it issued, by serial number
	certEnd   = ".crt"    // of issued certificates
	serialLen = 16        // bytes of a serial number
	listFirst = int64(1)  // number of the first list
	lifeFloor = time.Hour // the shortest life of an authority
)

// Authority is a certificate authority in a folder. Several programs may use
// one at once; a lock on its key keeps changes apart.
type Authority struct {
	dir  string
	cert *x509.Certificate
	now  func() time.Time
}

// Init makes an authority in dir, which must be new or hold none yet.
func Init(dir, name string, life time.Duration) (*Authority, error) {
	if err := cluster.ValidateName(name); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if life < lifeFloor || life > MaxLife {
		return nil, fmt.Errorf("%w: a life of %v, want %v to %v", ErrRequest, life, lifeFloor, MaxLife)
	}
	for _, f := range []string{CertFile, keyFile, ListFile} {
		if _, err := os.Lstat(filepath.Join(dir, f)); err == nil {
			return nil, fmt.Errorf("%w: there is an authority in %s already", ErrRequest, dir)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, issuedDir), 0o700); err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	key, keyText, err := newKey()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	spec := &x509.Certificate{SerialNumber: newSerial(), Subject: pkix.Name{CommonName: name, Organization: []string{"wherry"}},
		NotBefore: now.Add(-skew), NotAfter: now.Add(life), IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	der, err := x509.CreateCertificate(rand.Reader, spec, spec, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	a := &Authority{dir: dir, now: time.Now}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	if err := WriteNew(filepath.Join(dir, keyFile), keyText, 0o600); err != nil {
		return nil, err
	}
	if err := a.writeList(key, nil, listFirst); err != nil {
		return nil, err
	}
	return a, WriteNew(filepath.Join(dir, CertFile), encode(blockCert, der), 0o644)
}

// Open finds the authority in dir. Its key is needed, and read, only for changes.
func Open(dir string) (*Authority, error) {
	certs, err := readCerts(filepath.Join(dir, CertFile), maxCertBytes)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: no authority in %s: make one with: wherry ca init", ErrNotFound, dir)
	}
	if err != nil {
		return nil, ofFile(err)
	}
	if !certs[0].IsCA {
		return nil, fmt.Errorf("%w: %s is not the certificate of an authority", ErrFile, filepath.Join(dir, CertFile))
	}
	return &Authority{dir: dir, cert: certs[0], now: time.Now}, nil
}

// Cert is the authority's own certificate.
func (a *Authority) Cert() *x509.Certificate { return a.cert }

// File is the path of one of the authority's files: CertFile or ListFile.
func (a *Authority) File(name string) string { return filepath.Join(a.dir, name) }

func newSerial() *big.Int {
	b := make([]byte, serialLen)
	rand.Read(b)
	b[0] = b[0]&0x7f | 0x40 // positive, and always as long
	return new(big.Int).SetBytes(b)
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("ca: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("ca: %w", err)
	}
	return key, encode(blockKey, der), nil
}

// change runs fn with the authority's key, one change at a time.
func (a *Authority) change(fn func(key crypto.Signer) error) error {
	path := filepath.Join(a.dir, keyFile)
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	defer f.Close() // gives the lock back
	if err := flock.Lock(f, lockTime); err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	key, err := readKey(path)
	if err != nil {
		return ofFile(err)
	}
	if public, ok := a.cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(key.Public()) {
		return fmt.Errorf("%w: %s is not the key of %s", ErrFile, path, filepath.Join(a.dir, CertFile))
	}
	return fn(key)
}
