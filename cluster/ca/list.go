package ca

import (
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
)

// Revoke puts certificates on the list of those that nodes refuse: all of a
// principal that are not on it yet, or the one with a serial number.
func (a *Authority) Revoke(which string) (revoked []*Cert, err error) {
	err = a.change(func(key crypto.Signer) error {
		found, err := a.find(which)
		if err != nil {
			return err
		}
		list, err := a.list()
		if err != nil {
			return err
		}
		entries := slices.Clone(list.RevokedCertificateEntries)
		for _, c := range found {
			if c.State != Revoked {
				c.State = Revoked
				revoked = append(revoked, c)
				entries = append(entries, x509.RevocationListEntry{SerialNumber: c.leaf.SerialNumber, RevocationTime: a.now()})
			}
		}
		if len(revoked) == 0 {
			return fmt.Errorf("%w: %s is revoked already", ErrRequest, which)
		}
		return a.writeList(key, entries, list.Number.Int64()+1)
	})
	return revoked, err
}

func (a *Authority) writeList(key crypto.Signer, entries []x509.RevocationListEntry, number int64) error {
	// Its next update is the authority's end: nodes take the newest that they were given.
	spec := &x509.RevocationList{Number: big.NewInt(number), ThisUpdate: a.now().Add(-skew), NextUpdate: a.cert.NotAfter, RevokedCertificateEntries: entries}
	der, err := x509.CreateRevocationList(rand.Reader, spec, a.cert, key)
	if err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	return Replace(filepath.Join(a.dir, ListFile), encode(blockList, der), 0o644)
}

// restoreList is what to do about a list that cannot be read. Without one, what was revoked would count again.
const restoreList = "put the newest good copy in its place: a node's tls_crl is one"

// list reads the authority's own list.
func (a *Authority) list() (*x509.RevocationList, error) {
	path := filepath.Join(a.dir, ListFile)
	lists, err := readLists(path, []*x509.Certificate{a.cert})
	if err != nil {
		return nil, fmt.Errorf("%w; %s", ofFile(err), restoreList)
	}
	if len(lists) != 1 {
		return nil, fmt.Errorf("%w: %s holds %d lists, want one; %s", ErrFile, path, len(lists), restoreList)
	}
	return lists[0].RevocationList, nil
}

// State says what a certificate is worth.
type State string

// What a certificate is worth.
const (
	Good    State = "good"
	Expired State = "expired"
	Revoked State = "revoked"
)

// Cert is a certificate that was issued.
type Cert struct {
	Principal cluster.Principal
	Node      bool
	Hosts     []string
	Serial    string // in hexadecimal
	From      time.Time
	Until     time.Time
	State     State
	leaf      *x509.Certificate
}

func serialText(n *big.Int) string { return fmt.Sprintf("%032x", n) }

func (a *Authority) describe(leaf *x509.Certificate, revoked map[string]bool) (*Cert, error) {
	p, _, err := PrincipalOf(leaf)
	if err != nil {
		return nil, err
	}
	c := &Cert{Principal: p, Serial: serialText(leaf.SerialNumber), From: leaf.NotBefore, Until: leaf.NotAfter, State: Good, leaf: leaf,
		Node: slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth), Hosts: hostsOf(leaf)}
	switch {
	case revoked[c.Serial]:
		c.State = Revoked
	case a.now().After(leaf.NotAfter):
		c.State = Expired
	}
	return c, nil
}

func hostsOf(leaf *x509.Certificate) []string {
	hosts := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// List is what the authority has issued, by name and age.
func (a *Authority) List() ([]*Cert, error) {
	list, err := a.list()
	if err != nil {
		return nil, err
	}
	revoked := map[string]bool{}
	for _, e := range list.RevokedCertificateEntries {
		revoked[serialText(e.SerialNumber)] = true
	}
	dir := filepath.Join(a.dir, issuedDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	var out []*Cert
	for _, e := range entries {
		if filepath.Ext(e.Name()) != certEnd {
			continue
		}
		path := filepath.Join(dir, e.Name())
		certs, err := readCerts(path, maxCertBytes)
		if err != nil {
			return nil, err
		}
		if err := certs[0].CheckSignatureFrom(a.cert); err != nil {
			return nil, fmt.Errorf("ca: %s is not from this authority: %w", path, err)
		}
		c, err := a.describe(certs[0], revoked)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(x, y *Cert) int {
		return cmp.Or(cmp.Compare(x.Principal.Name, y.Principal.Name), x.From.Compare(y.From), cmp.Compare(x.Serial, y.Serial))
	})
	return out, nil
}

// find are the certificates of a principal, or the one with a serial number.
func (a *Authority) find(which string) ([]*Cert, error) {
	all, err := a.List()
	if err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(all, func(c *Cert) bool { return c.Principal.Name != which && c.Serial != strings.ToLower(which) })
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: the authority has issued none to %q: see wherry ca ls", ErrNotFound, clip(which))
	}
	return found, nil
}
