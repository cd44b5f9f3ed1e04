package etcd_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/cluster/etcd"
	"github.com/wherry-fabric/wherry/internal/ports"
)

// issued writes a certificate of an authority and its key, and returns their files.
func issued(t *testing.T, a *ca.Authority, dir string, r ca.Request) ca.Files {
	t.Helper()
	_, cert, key, err := a.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	f := ca.Files{Cert: filepath.Join(dir, r.Principal.Name+".crt"), Key: filepath.Join(dir, r.Principal.Name+".key"), CA: a.File(ca.CertFile), List: a.File(ca.ListFile)}
	if err := os.WriteFile(f.Cert, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Key, key, 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestTLS: members with certificates of one authority make a cluster; a client's certificate of the same authority opens nothing there.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := ca.Init(filepath.Join(dir, "ca"), "test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	free, err := ports.Free(2)
	if err != nil {
		t.Fatal(err)
	}
	members := []etcd.Member{{Name: "a", Addr: fmt.Sprintf("127.0.0.1:%d", free[0])}, {Name: "b", Addr: fmt.Sprintf("127.0.0.1:%d", free[1])}}
	var stores []*etcd.Store
	var files ca.Files
	for _, m := range members {
		files = issued(t, a, dir, ca.Request{Principal: cluster.Principal{Name: m.Name, Caps: cluster.CapMember}, Node: true, Hosts: []string{"127.0.0.1"}})
		s, err := etcd.Start(t.Context(), etcd.ServerConfig{Name: m.Name, Dir: filepath.Join(dir, m.Name), Members: members, New: m.Name == "a", TLS: files})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		stores = append(stores, s.Store())
	}
	answers(t, stores[0])
	answers(t, stores[1])
	if _, err := stores[0].Commit(t.Context(), cluster.Txn{Put: []cluster.Pair{{Key: "k", Value: []byte("v")}}}); err != nil {
		t.Fatal(err)
	}
	if list, _, err := stores[1].Get(t.Context(), "k"); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	client := issued(t, a, dir, ca.Request{Principal: cluster.Principal{Name: "ann", Caps: cluster.CapRead}})
	if err := shows(t, members[0].Addr, files); err != nil {
		t.Errorf("a member's certificate: %v", err)
	}
	if err := shows(t, members[0].Addr, client); err == nil {
		t.Error("a client's certificate opens a member's port")
	}
}

// shows connects with a certificate, asks for the version, and reports that the other side ends the connection.
func shows(t *testing.T, addr string, f ca.Files) error {
	t.Helper()
	own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	text, err := os.ReadFile(f.CA)
	if err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", addr, &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: roots, ServerName: "127.0.0.1"})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET /version HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	answer := make([]byte, 12)
	if _, err := c.Read(answer); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.0 200") {
		return fmt.Errorf("%q: %w", answer, err)
	}
	return nil
}

// TestLists: etcd's members judge each other by one list of revoked certificates, and a file with two is refused.
func TestLists(t *testing.T) {
	dir := t.TempDir()
	a, err := ca.Init(filepath.Join(dir, "ca"), "test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	f := issued(t, a, dir, ca.Request{Principal: cluster.Principal{Name: "a", Caps: cluster.CapMember}, Node: true, Hosts: []string{"127.0.0.1"}})
	one, err := os.ReadFile(f.List)
	if err != nil {
		t.Fatal(err)
	}
	f.List = filepath.Join(dir, "two.crl")
	if err := os.WriteFile(f.List, append(one, one...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Start(t.Context(), etcd.ServerConfig{Name: "a", Dir: filepath.Join(dir, "a"), TLS: f}); err == nil || !strings.Contains(err.Error(), "several lists") {
		t.Error(err)
	}
}
