package ca

import (
	"crypto/x509"
	"net/url"
	"os"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
)

func TestPrincipalURIs(t *testing.T) {
	for text, ok := range map[string]bool{
		"wherry://principal/ann?caps=inject,read":         true,
		"wherry://principal/lab/ann?caps=none":            true,
		"wherry://principal/n1?caps=inject,member":        true,
		"wherry://principal/ann":                          false,
		"wherry://principal/ann?caps=":                    false,
		"wherry://principal/ann?caps=root":                false,
		"wherry://principal/ann?caps=read,inject":         false, // one way to write it
		"wherry://principal/ann?caps=read&caps=admin":     false,
		"wherry://principal/ann?caps=read&x=1":            false,
		"wherry://principal/ann?caps=read#admin":          false,
		"wherry://principal/?caps=read":                   false,
		"wherry://principal//ann?caps=read":               false,
		"wherry://principal/a%6En?caps=read":              false,
		"wherry://principal/a%2Fb?caps=read":              false,
		"wherry://principal/../ann?caps=read":             false,
		"wherry://ann@principal/ann?caps=read":            false,
		"wherry://principal:1/ann?caps=read":              false,
		"wherry://other/ann?caps=read":                    false,
		"wherry:ann?caps=read":                            false,
		"wherry://principal/a%00nn?caps=read":             false,
		"wherry://principal/ann?caps=inject%2Cread":       false,
		"wherry://principal/" + "a?caps=inject,read,read": false,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseURI(u); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	two := &x509.Certificate{URIs: []*url.URL{PrincipalURI(cluster.Principal{Name: "a"}), PrincipalURI(cluster.Principal{Name: "b"})}}
	if _, _, err := PrincipalOf(two); err == nil {
		t.Error("two principals in one certificate")
	}
	other, _ := url.Parse("spiffe://example/x")
	if _, named, err := PrincipalOf(&x509.Certificate{URIs: []*url.URL{other}}); named || err != nil {
		t.Errorf("a certificate of others: %v, %v", named, err)
	}
}

// FuzzPrincipalURI: what is accepted is a principal that is written back as it was read.
func FuzzPrincipalURI(f *testing.F) {
	f.Add("wherry://principal/ann?caps=inject,read")
	f.Add("wherry://principal/a%2Fb?caps=none")
	f.Add("wherry:x?caps=read")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		p, err := parseURI(u)
		if err != nil {
			return
		}
		again, err := parseURI(PrincipalURI(p))
		if err != nil || again != p || cluster.ValidateName(p.Name) != nil {
			t.Errorf("%q is %v, and again %v, %v", text, p, again, err)
		}
	})
}

// FuzzFiles: whatever a file holds, reading it ends with certificates, a list, or an error.
func FuzzFiles(f *testing.F) {
	a := newAuthority(f)
	list, err := os.ReadFile(a.File(ListFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(list)
	f.Add(encode(blockCert, a.cert.Raw))
	f.Add(append(encode(blockCert, a.cert.Raw), list...))
	f.Fuzz(func(t *testing.T, text []byte) {
		if certs, err := parseCerts(text, "file"); err == nil {
			for _, c := range certs {
				PrincipalOf(c)
			}
		}
		parseLists(text, []*x509.Certificate{a.Cert()})
	})
}
