package ca

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
)

// Files are an element's own certificate and key, and what it judges others by.
type Files struct {
	Cert string // its certificate
	Key  string // its key, mode 0600
	CA   string // certificates of the authorities that it trusts
	List string // what they revoked; "": nothing counts as revoked
}

// Identity is an element's own certificate, and the rules for those that it accepts. It has the methods that
// a transport's credentials need. They may be called from any goroutine, and
// look at the files again if those have changed.
type Identity struct {
	log   *slog.Logger
	first stamp // of the list that was read first

	mu      sync.Mutex
	files   Files
	roots   []*x509.Certificate
	dropped []*x509.Certificate // authorities that Replace has taken out
	pool    *x509.CertPool
	own     *tls.Certificate
	certAt  stamp
	keyAt   stamp
	listAt  stamp
	badOwn  [2]stamp                       // certificate and key that could not be used, so that it is logged once
	badList [2]stamp                       // the same of the list
	numbers map[*x509.Certificate]*big.Int // of the lists in force, by root
	revoked map[string]bool                // by issuer and serial number
}

// stamp tells whether a file has changed.
type stamp struct {
	inode      uint64
	size       int64
	wrote, set syscall.Timespec
}

func stampOf(path string) (stamp, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return stamp{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return stamp{st.Ino, st.Size, st.Mtim, st.Ctim}, nil
}

// Load reads an element's files. log may be nil.
func Load(files Files, log *slog.Logger) (*Identity, error) {
	if files.Cert == "" || files.Key == "" || files.CA == "" {
		return nil, fmt.Errorf("%w: TLS needs a certificate, its key, and the authority's certificate", ErrRequest)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	id := &Identity{files: files, log: log, pool: x509.NewCertPool(), numbers: map[*x509.Certificate]*big.Int{}}
	if err := id.readAll(); err != nil {
		return nil, ofFile(err)
	}
	id.first = id.listAt
	return id, nil
}

// readAll reads all files for the first time.
func (id *Identity) readAll() (err error) {
	files := id.files
	if id.roots, err = readCerts(files.CA, maxRootBytes); err != nil {
		return err
	}
	for _, r := range id.roots {
		if !r.IsCA {
			return fmt.Errorf("ca: %s: the certificate of %s is not an authority's", files.CA, r.Subject)
		}
		id.pool.AddCert(r)
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.readOwn(); err != nil {
		return err
	}
	if files.List != "" {
		if err := id.readList(); err != nil {
			return err
		}
	}
	if err := id.refused(id.own.Leaf); err != nil {
		return fmt.Errorf("%s: %w", files.Cert, err)
	}
	return nil
}

// readOwn reads certificate and key; mu is held.
func (id *Identity) readOwn() error {
	certAt, err := stampOf(id.files.Cert)
	if err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	keyAt, err := stampOf(id.files.Key)
	if err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	chain, err := readCerts(id.files.Cert, maxCertBytes)
	if err != nil {
		return err
	}
	key, err := readKey(id.files.Key)
	if err != nil {
		return err
	}
	leaf := chain[0]
	own := &tls.Certificate{PrivateKey: key, Leaf: leaf}
	among := x509.NewCertPool()
	for _, c := range chain {
		own.Certificate = append(own.Certificate, c.Raw)
		among.AddCert(c)
	}
	if public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(key.Public()) {
		return fmt.Errorf("ca: %s is not the key of %s", id.files.Key, id.files.Cert)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: id.pool, Intermediates: among, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && time.Now().After(leaf.NotAfter):
		return fmt.Errorf("ca: %s has expired on %s: have it renewed (wherry ca renew)", id.files.Cert, leaf.NotAfter.Format(time.DateTime))
	case errors.As(err, &unknown):
		return fmt.Errorf("ca: %s was not issued by the authority in %s", id.files.Cert, id.files.CA)
	case err != nil:
		return fmt.Errorf("ca: %s is no good with %s: %w", id.files.Cert, id.files.CA, err)
	}
	if _, _, err := PrincipalOf(leaf); err != nil {
		return fmt.Errorf("%s: %w", id.files.Cert, err)
	}
	id.own, id.certAt, id.keyAt = own, certAt, keyAt
	return nil
}

// readList reads what was revoked; mu is held.
func (id *Identity) readList() error {
	at, err := stampOf(id.files.List)
	if err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	lists, err := readLists(id.files.List, id.roots)
	if err != nil {
		return err
	}
	revoked, numbers := map[string]bool{}, map[*x509.Certificate]*big.Int{}
	for _, l := range lists {
		if n := numbers[l.by]; n == nil || n.Cmp(l.Number) < 0 {
			numbers[l.by] = l.Number
		}
		for _, e := range l.RevokedCertificateEntries {
			revoked[string(l.RawIssuer)+e.SerialNumber.String()] = true
		}
	}
	for root, had := range id.numbers {
		if n := numbers[root]; n == nil || n.Cmp(had) < 0 {
			return fmt.Errorf("ca: %s: list %v of %s was read before, and there is only %v now: an older one is not taken", id.files.List, had, root.Subject, n)
		}
	}
	id.revoked, id.numbers, id.listAt = revoked, numbers, at
	return nil
}

// signedList is a list and its signer.
type signedList struct {
	*x509.RevocationList
	by *x509.Certificate
}

// readLists reads a file of lists, at least one, each signed by one of issuers.
func readLists(path string, issuers []*x509.Certificate) ([]signedList, error) {
	text, err := readFile(path, maxListBytes, false)
	if err != nil {
		return nil, err
	}
	lists, err := parseLists(text, issuers)
	if err != nil {
		return nil, fmt.Errorf("ca: %s: %w", path, err)
	}
	return lists, nil
}

func parseLists(text []byte, issuers []*x509.Certificate) ([]signedList, error) {
	var lists []signedList
	for _, der := range blocks(text, blockList) {
		l, err := x509.ParseRevocationList(der)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(issuers, func(c *x509.Certificate) bool { return l.CheckSignatureFrom(c) == nil })
		if i < 0 {
			return nil, errors.New("the list of revoked certificates is not signed by the authority")
		}
		if l.Number == nil {
			return nil, errors.New("the list of revoked certificates has no number")
		}
		lists = append(lists, signedList{l, issuers[i]})
	}
	if len(lists) == 0 {
		return nil, errors.New("there is no list of revoked certificates in PEM")
	}
	return lists, nil
}

// refresh reads what has changed and reports whether the list has. What cannot be
// used is logged once, and what was good before stays; mu is held.
func (id *Identity) refresh() (changed bool) {
	certAt, cerr := stampOf(id.files.Cert)
	keyAt, kerr := stampOf(id.files.Key)
	if cerr == nil && kerr == nil && (certAt != id.certAt || keyAt != id.keyAt) {
		if err := id.readOwn(); err != nil {
			id.complain(&id.badOwn, [2]stamp{certAt, keyAt}, "the new certificate is not used; the one before stays", err)
		} else {
			id.log.Info("certificate read again", "until", id.own.Leaf.NotAfter)
		}
	}
	if id.files.List == "" {
		return false
	}
	if at, err := stampOf(id.files.List); err == nil && at != id.listAt {
		if err := id.readList(); err != nil {
			id.complain(&id.badList, [2]stamp{at}, "the new list of revoked certificates is not used; the one before stays", err)
			return false
		}
		id.log.Info("list of revoked certificates read again", "revoked", len(id.revoked))
		return true
	}
	return false
}

// complain logs what is wrong with files once, until they change again.
func (id *Identity) complain(known *[2]stamp, at [2]stamp, what string, err error) {
	if *known != at {
		*known = at
		id.log.Error(what, "err", err)
	}
}

// Credentials are what transports take; nil for no identity.
func (id *Identity) Credentials() fabric.Credentials {
	if id == nil {
		return nil
	}
	return id
}

// Certificate is the element's own.
func (id *Identity) Certificate() (*tls.Certificate, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.refresh()
	return id.own, nil
}

// Roots are the authorities.
func (id *Identity) Roots() *x509.CertPool {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.pool
}

// Judge says who a certificate's holder is, and refuses one that was revoked.
func (id *Identity) Judge(leaf *x509.Certificate) (fabric.Principal, bool, error) {
	id.mu.Lock()
	id.refresh()
	err := id.refused(leaf)
	id.mu.Unlock()
	if err != nil {
		return fabric.Principal{}, false, err
	}
	p, named, err := PrincipalOf(leaf)
	return fabric.Principal{Name: p.Name, Caps: uint32(p.Caps)}, named, err
}

// refused says that a certificate was revoked; mu is held.
func (id *Identity) refused(leaf *x509.Certificate) error {
	for _, root := range id.dropped {
		if bytes.Equal(leaf.RawIssuer, root.RawSubject) && leaf.CheckSignatureFrom(root) == nil {
			return fmt.Errorf("%w: the certificate of %s is from an authority that is not trusted any more", ErrRefused, clip(leaf.Subject.CommonName))
		}
	}
	if !id.revoked[string(leaf.RawIssuer)+leaf.SerialNumber.String()] {
		return nil
	}
	return fmt.Errorf("%w: the certificate of %s (serial number %s) was revoked", ErrRefused, clip(leaf.Subject.CommonName), serialText(leaf.SerialNumber))
}

// Principal is who the element itself is; named is false if its certificate does not say.
func (id *Identity) Principal() (p cluster.Principal, named bool) {
	id.mu.Lock()
	defer id.mu.Unlock()
	p, named, _ = PrincipalOf(id.own.Leaf) // it was looked at when it was read
	return p, named
}

// Until is when the element's own certificate ends.
func (id *Identity) Until() time.Time {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.own.Leaf.NotAfter
}

// Accepts reports whether others accept the certificate when they dial the element, as they do a node's.
func (id *Identity) Accepts() bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	return slices.Contains(id.own.Leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
}

// VerifyHost says why others that dial host would not accept the certificate.
func (id *Identity) VerifyHost(host string) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.own.Leaf.VerifyHostname(host)
}

// revokedEvery is how often Guard looks whether the list of revoked certificates has
// changed; each new connection looks too.
const revokedEvery = time.Second

// Guard ends a transport's connections as soon as their certificates are revoked, until the
// context ends, and warns before the element's own certificate does, and when it has. recheck judges all connections again, and says how many it has ended.
func (id *Identity) Guard(ctx context.Context, recheck func() int) {
	id.watch(ctx, revokedEvery, func() {
		if ended := recheck(); ended > 0 {
			id.log.Warn("connections ended: their certificates were revoked", "connections", ended)
		}
	})
}

// watch looks at the files again and again until the context ends, and calls
// revoked, on this goroutine, when the list of revoked certificates has changed since Load.
// When the element's own certificate is about to end, or has, it says so.
func (id *Identity) watch(ctx context.Context, every time.Duration, revoked func()) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var reminder reminder
	for seen := id.first; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		id.mu.Lock()
		id.refresh()
		reminder.remind(id.log, id.files.Cert, id.own.Leaf.NotAfter, time.Now())
		id.mu.Unlock()
		if now := id.version(); now != seen { // also where a new connection has read it first
			seen = now
			revoked()
		}
	}
}

func (id *Identity) version() stamp {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.listAt
}
