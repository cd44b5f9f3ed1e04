package ca

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/wherry-fabric/wherry/cluster"
)

var (
	// ErrRequest says that something asked for cannot be; the message says why.
	ErrRequest = errors.New("ca: bad request")
	// ErrNotFound says that there is no such certificate.
	ErrNotFound = errors.New("ca: no such certificate")
	// ErrRefused says that a certificate is not accepted.
	ErrRefused = errors.New("ca: certificate refused")
	// ErrFile says that a file is not what it should be; the message says which and why.
	ErrFile = errors.New("ca: bad file")
)

// fileError is an error of a file: it is ErrFile, whatever else it is.
type fileError struct{ error }

func (e fileError) Unwrap() error { return e.error }

// Is makes errors.Is find ErrFile.
func (e fileError) Is(target error) bool { return target == ErrFile }

// ofFile marks what is wrong with a file, unless the error says already what kind it is.
func ofFile(err error) error {
	if err == nil || errors.Is(err, ErrRequest) || errors.Is(err, ErrRefused) || errors.Is(err, ErrNotFound) {
		return err
	}
	return fileError{err}
}

const (
	uriScheme = "wherry"
	uriHost   = "principal"
)

// PrincipalURI is the name in a certificate that says who its holder is.
func PrincipalURI(p cluster.Principal) *url.URL {
	return &url.URL{Scheme: uriScheme, Host: uriHost, Path: "/" + p.Name, RawQuery: "caps=" + p.Caps.String()}
}

// PrincipalOf reads who a certificate's holder is. named is false if the certificate does not
// say; one that says it wrongly, or twice, is refused.
func PrincipalOf(cert *x509.Certificate) (p cluster.Principal, named bool, err error) {
	for _, u := range cert.URIs {
		if u.Scheme != uriScheme {
			continue
		}
		if named {
			return cluster.Principal{}, false, fmt.Errorf("%w: it names two principals", ErrRefused)
		}
		if p, err = parseURI(u); err != nil {
			return cluster.Principal{}, false, fmt.Errorf("%w: %q: %w", ErrRefused, clip(u.String()), err)
		}
		named = true
	}
	return p, named, nil
}

func parseURI(u *url.URL) (cluster.Principal, error) {
	p := cluster.Principal{Name: strings.TrimPrefix(u.Path, "/")}
	caps, ok := strings.CutPrefix(u.RawQuery, "caps=")
	if !ok {
		return p, errors.New("it has no caps")
	}
	if err := cluster.ValidateName(p.Name); err != nil {
		return p, err
	}
	var err error
	if p.Caps, err = cluster.ParseCaps(caps); err != nil {
		return p, err
	}
	if *u != *PrincipalURI(p) { // one way to write it, and nothing besides
		return p, fmt.Errorf("it is not of the form %s://%s/NAME?caps=CAPS", uriScheme, uriHost)
	}
	return p, nil
}

// clipBytes is how much of a stranger's text an error shows.
const clipBytes = 80

func clip(s string) string {
	if len(s) <= clipBytes {
		return s
	}
	return s[:clipBytes] + "…"
}
