package bench

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/fabric"
)

// credentials makes an authority for one benchmark under dir, and one
// certificate of its that all processes show each other.
func credentials(dir string) (*ca.Files, error) {
	home := filepath.Join(dir, "ca")
	a, err := ca.Init(home, "bench", ca.DefaultLife)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	_, cert, key, err := a.Issue(ca.Request{Principal: cluster.Principal{Name: "bench", Caps: cluster.CapsAll}, Node: true, Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	f := &ca.Files{Cert: filepath.Join(dir, "bench.crt"), Key: filepath.Join(dir, "bench.key"), CA: filepath.Join(home, ca.CertFile)}
	for name, text := range map[string][]byte{f.Cert: cert, f.Key: key} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			return nil, fmt.Errorf("bench: %w", err)
		}
	}
	return f, nil
}

// newTransport makes a process's transport: the one to be measured.
func newTransport(spec *role) (fabric.Transport, error) {
	if spec.TLS == nil {
		return spec.scheme.New(nil)
	}
	id, err := ca.Load(*spec.TLS, nil)
	if err != nil {
		return nil, err
	}
	return spec.scheme.New(id)
}
