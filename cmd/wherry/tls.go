package main

import (
	"os"

	"github.com/wherry-fabric/wherry/cluster/ca"
)

// tlsFlag is one setting of TLS: its flag, its environment variable, its place.
type tlsFlag struct {
	name, env, usage string
	at               *string
}

func tlsFlags(s *ca.Settings) []tlsFlag {
	return []tlsFlag{
		{"tls", "WHERRY_TLS", "on or off (default: on if there is a certificate)", &s.Mode},
		{"tls-cert", "WHERRY_TLS_CERT", "your certificate (wherry ca issue)", &s.Cert},
		{"tls-key", "WHERRY_TLS_KEY", "its key, mode 0600", &s.Key},
		{"tls-ca", "WHERRY_TLS_CA", "certificate of the authority that must have issued the peers' certificates", &s.CA},
		{"tls-crl", "WHERRY_TLS_CRL", "the authority's list of revoked certificates; read again when it changes", &s.CRL},
	}
}

// addTLS puts the flags for TLS on a command; fromEnv: with the environment's values.
func addTLS(flags interface {
	StringVar(at *string, name, value, usage string)
}, s *ca.Settings, fromEnv bool) {
	for _, f := range tlsFlags(s) {
		value := ""
		if fromEnv {
			value = os.Getenv(f.env)
		}
		flags.StringVar(f.at, f.name, value, f.usage+" ($"+f.env+")")
	}
}

// mergeTLS puts the flags that were given over what a file says; where both are silent,
// the environment counts.
func mergeTLS(file, flags *ca.Settings, given func(flag string) bool) {
	from := tlsFlags(flags)
	for i, f := range tlsFlags(file) {
		if given(f.name) {
			*f.at = *from[i].at
		} else if *f.at == "" {
			*f.at = os.Getenv(f.env)
		}
	}
}

// tokenBesides is the token file to use where TLS is on: one that was asked for.
// Without it the certificate says who this is.
func tokenBesides(s ca.Settings, file string) string {
	if s.On() && file == defaultTokenFile() && os.Getenv("WHERRY_TOKEN_FILE") == "" {
		return ""
	}
	return file
}
