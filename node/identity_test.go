package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
)

// certificate issues one and says with which settings it is used.
func certificate(t *testing.T, a *ca.Authority, r ca.Request) ca.Settings {
	t.Helper()
	_, cert, key, err := a.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := ca.Settings{Cert: filepath.Join(dir, "crt"), Key: filepath.Join(dir, "key"), CA: a.File(ca.CertFile), CRL: a.File(ca.ListFile)}
	if err := errors.Join(os.WriteFile(s.Cert, cert, 0o644), os.WriteFile(s.Key, key, 0o600)); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCertificatesThatDoNotServe: a node says at its start what is wrong with who it is.
func TestCertificatesThatDoNotServe(t *testing.T) {
	a, err := ca.Init(filepath.Join(t.TempDir(), "ca"), "test", ca.DefaultLife)
	if err != nil {
		t.Fatal(err)
	}
	good := certificate(t, a, ca.Request{Principal: cluster.Principal{Name: "n1", Caps: cluster.CapMember}, Node: true, Hosts: []string{"127.0.0.1"}})
	person := certificate(t, a, ca.Request{Principal: cluster.Principal{Name: "ann", Caps: cluster.CapAdmin}})
	revoked := certificate(t, a, ca.Request{Principal: cluster.Principal{Name: "bad", Caps: cluster.CapMember}, Node: true, Hosts: []string{"127.0.0.1"}})
	if _, err := a.Revoke("bad"); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		edit func(c *Config)
		says string // "" if it starts
	}{
		"a node's":           {func(c *Config) {}, ""},
		"with tokens too":    {func(c *Config) { c.Tokens = tokens(t, cluster.CapMember, "node") }, ""},
		"off, and no tokens": {func(c *Config) { c.TLS.Mode = "off" }, "token_file"},
		"a person's":         {func(c *Config) { c.TLS = person }, "needs member"},
		"a revoked one":      {func(c *Config) { c.TLS = revoked }, "was revoked"},
		"no key":             {func(c *Config) { c.TLS.Key = "" }, "no --tls-key"},
		"no authority":       {func(c *Config) { c.TLS.CA = "" }, "no --tls-ca"},
		"a key alone":        {func(c *Config) { c.TLS = ca.Settings{Key: good.Key} }, "no --tls-cert"},
		"on, without any":    {func(c *Config) { c.TLS = ca.Settings{Mode: "on"} }, "no --tls-cert"},
		"neither on nor off": {func(c *Config) { c.TLS.Mode = "maybe" }, "on or off"},
		"another's key":      {func(c *Config) { c.TLS.Key = person.Key }, "is not the key of"},
		"over shm alone":     {func(c *Config) { c.Listen = []string{"shm://" + filepath.Join(t.TempDir(), "s")} }, "shm needs token_file"},
		"off, beyond loopback": {func(c *Config) {
			c.TLS.Mode, c.Tokens, c.Listen = "off", tokens(t, cluster.CapMember, "node"), []string{"tcp://192.0.2.1:7000"}
		}, "beyond loopback TLS is needed"},
		"off, beyond loopback, insisting": {func(c *Config) {
			c.TLS.Mode, c.Insecure, c.Tokens, c.Listen = "off", true, tokens(t, cluster.CapMember, "node"), []string{"tcp://0.0.0.0:0"}
			c.Advertise = []string{"tcp://192.0.2.1:7000"}
		}, ""},
		"on, beyond loopback": {func(c *Config) {
			c.Listen, c.Advertise = []string{"tcp://0.0.0.0:0"}, []string{"tcp://192.0.2.1:7000"}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, TLS: good}
			tc.edit(&c)
			n, err := New(c)
			if err == nil {
				n.Close()
			}
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q in it", err, tc.says)
			}
		})
	}
}
