package ca

import (
	"fmt"
	"log/slog"
)

// Settings say whether an element uses TLS, and with which files. The zero value
// is: without. The yaml names are those of a node's configuration file.
type Settings struct {
	Mode string `yaml:"tls"`      // on, off, or "": on if there is a certificate
	Cert string `yaml:"tls_cert"` // this element's certificate
	Key  string `yaml:"tls_key"`  // its key, mode 0600
	CA   string `yaml:"tls_ca"`   // the authority's certificate
	CRL  string `yaml:"tls_crl"`  // what the authority revoked; "": nothing counts as revoked
}

// On reports whether TLS is used.
func (s Settings) On() bool { return s.Mode == "on" || s.Mode == "" && s.Cert != "" }

// Validate reports what is wrong.
func (s Settings) Validate() error {
	if s.Mode != "" && s.Mode != "on" && s.Mode != "off" {
		return fmt.Errorf("%w: tls is %q: it is on or off, or left out: then it is on if there is a certificate", ErrRequest, clip(s.Mode))
	}
	if s.Mode == "off" || !s.On() && s.Key == "" && s.CA == "" && s.CRL == "" {
		return nil
	}
	for _, f := range []struct{ flag, name, file, what, makes string }{
		{"--tls-cert", "tls_cert", s.Cert, "this element's certificate", "issue"},
		{"--tls-key", "tls_key", s.Key, "its key", "issue"},
		{"--tls-ca", "tls_ca", s.CA, "the authority's certificate, " + CertFile, "init"},
	} {
		if f.file == "" {
			return fmt.Errorf("%w: no %s (%s in a node's file), and TLS needs %s: wherry ca %s makes it", ErrRequest, f.flag, f.name, f.what, f.makes)
		}
	}
	return nil
}

// Load reads the files; nil if TLS is not used. log may be nil.
func (s Settings) Load(log *slog.Logger) (*Identity, error) {
	if err := s.Validate(); err != nil || !s.On() {
		return nil, err
	}
	return Load(Files{Cert: s.Cert, Key: s.Key, CA: s.CA, List: s.CRL}, log)
}
