package ca

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
)

func newAuthority(t testing.TB) *Authority {
	t.Helper()
	a, err := Init(filepath.Join(t.TempDir(), "ca"), "test", DefaultLife)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func client(name string, caps cluster.Caps) Request {
	return Request{Principal: cluster.Principal{Name: name, Caps: caps}}
}

func nodeOf(name string, hosts ...string) Request {
	return Request{Principal: cluster.Principal{Name: name, Caps: cluster.CapMember | cluster.CapInject}, Node: true, Hosts: hosts}
}

// issue writes a certificate and its key beside the authority and says where.
func issue(t testing.TB, a *Authority, r Request) (*Cert, Files) {
	t.Helper()
	c, cert, key, err := a.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(filepath.Dir(a.dir), strings.ReplaceAll(r.Principal.Name, "/", "-"))
	files := Files{Cert: at + ".crt", Key: at + ".key", CA: a.File(CertFile), List: a.File(ListFile)}
	if err := errors.Join(Replace(files.Cert, cert, 0o644), Replace(files.Key, key, 0o600)); err != nil {
		t.Fatal(err)
	}
	return c, files
}

func verify(a *Authority, c *Cert, host string, usage x509.ExtKeyUsage) error {
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert())
	_, err := c.leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func TestIssue(t *testing.T) {
	a := newAuthority(t)
	node, _ := issue(t, a, nodeOf("n1", "10.0.0.5", "n1.example", "fe80::1"))
	ann, _ := issue(t, a, client("lab/ann", cluster.CapInject|cluster.CapRead))
	for _, c := range []struct {
		cert  *Cert
		host  string
		usage x509.ExtKeyUsage
		ok    bool
	}{
		{node, "10.0.0.5", x509.ExtKeyUsageServerAuth, true},
		{node, "n1.example", x509.ExtKeyUsageServerAuth, true},
		{node, "fe80::1", x509.ExtKeyUsageServerAuth, true},
		{node, "10.0.0.6", x509.ExtKeyUsageServerAuth, false},
		{node, "n2.example", x509.ExtKeyUsageServerAuth, false},
		{node, "", x509.ExtKeyUsageClientAuth, true},
		{ann, "", x509.ExtKeyUsageClientAuth, true},
		{ann, "", x509.ExtKeyUsageServerAuth, false},
	} {
		if err := verify(a, c.cert, c.host, c.usage); (err == nil) != c.ok {
			t.Errorf("%s at %q: %v", c.cert.Principal.Name, c.host, err)
		}
	}
	for _, c := range []*Cert{node, ann} {
		p, named, err := PrincipalOf(c.leaf)
		if err != nil || !named || p != c.Principal || c.State != Good || c.leaf.SerialNumber.BitLen() < 120 {
			t.Errorf("%+v: reads as %v, %v, %v", c, p, named, err)
		}
	}
	if ann.leaf.URIs[0].String() != "wherry://principal/lab/ann?caps=inject,read" {
		t.Errorf("the principal stands there as %s", ann.leaf.URIs[0])
	}
	list, err := a.List()
	if err != nil || len(list) != 2 || list[0].Principal.Name != "lab/ann" || list[1].Serial != node.Serial || fmt.Sprint(list[1].Hosts) != "[n1.example 10.0.0.5 fe80::1]" || !list[1].Node || list[0].Node {
		t.Errorf("the list: %+v, %v", list, err)
	}
	again, err := Open(a.dir)
	if err != nil || !again.Cert().Equal(a.Cert()) {
		t.Errorf("opened again: %v", err)
	}
}

func TestRequests(t *testing.T) {
	a := newAuthority(t)
	issue(t, a, client("taken", 0))
	for name, r := range map[string]Request{
		"no name":         client("", 0),
		"a bad name":      client("a b", 0),
		"a member":        client("x", cluster.CapMember),
		"no member":       {Principal: cluster.Principal{Name: "n"}, Node: true, Hosts: []string{"h"}},
		"no host":         nodeOf("n"),
		"a client's host": {Principal: cluster.Principal{Name: "x"}, Hosts: []string{"h"}},
		"a pattern":       nodeOf("n", "*.example"),
		"an address":      nodeOf("n", "tcp://10.0.0.1:7000"),
		"an empty host":   nodeOf("n", ""),
		"a long host":     nodeOf("n", strings.Repeat("a.", 200)+"b"),
		"many hosts":      nodeOf("n", strings.Split(strings.Repeat("h ", MaxHosts+1), " ")...),
		"too short":       {Principal: cluster.Principal{Name: "x"}, Term: time.Millisecond},
		"too long":        {Principal: cluster.Principal{Name: "x"}, Term: 2 * MaxLife},
		"unknown caps":    client("x", 1<<7),
		"a second one":    client("taken", cluster.CapAdmin),
	} {
		if _, _, _, err := a.Issue(r); !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Init(a.dir, "again", DefaultLife); !errors.Is(err, ErrRequest) {
		t.Errorf("a second authority in the same folder: %v", err)
	}
	if _, err := Init(t.TempDir(), "a b", DefaultLife); !errors.Is(err, ErrRequest) {
		t.Errorf("a bad name: %v", err)
	}
	if _, err := Init(t.TempDir(), "a", time.Second); !errors.Is(err, ErrRequest) {
		t.Errorf("a short life: %v", err)
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNotFound) {
		t.Errorf("no authority: %v", err)
	}
}

func TestTerms(t *testing.T) {
	a := newAuthority(t)
	short, _ := issue(t, a, Request{Principal: cluster.Principal{Name: "short"}, Term: time.Second})
	long, _ := issue(t, a, Request{Principal: cluster.Principal{Name: "long"}, Term: 2 * DefaultLife})
	if d := time.Until(short.Until); d > 2*time.Second {
		t.Errorf("a term of a second is over in %v", d)
	}
	if long.Until.After(a.Cert().NotAfter) {
		t.Error("a certificate outlives its authority")
	}
	a.now = func() time.Time { return time.Now().Add(time.Hour) }
	list, err := a.List()
	if err != nil || list[1].State != Expired || list[0].State != Good {
		t.Errorf("an hour later: %+v, %v", list, err)
	}
	if c, _, err := a.Renew("short", 0); err != nil || c.State != Good || c.Serial == short.Serial {
		t.Errorf("renewed after its end: %+v, %v", c, err)
	}
	a.now = func() time.Time { return a.Cert().NotAfter.Add(time.Hour) }
	if _, _, _, err := a.Issue(client("late", 0)); err == nil || !strings.Contains(err.Error(), "authority itself has expired") {
		t.Errorf("issued by an authority that has expired: %v", err)
	}
}

func TestRenewAndRevoke(t *testing.T) {
	a := newAuthority(t)
	first, _ := issue(t, a, nodeOf("n1", "127.0.0.1"))
	second, text, err := a.Renew("n1", 48*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if second.Serial == first.Serial || second.Principal != first.Principal || fmt.Sprint(second.Hosts) != "[127.0.0.1]" || !second.Node || !bytes.Contains(text, []byte("CERTIFICATE")) {
		t.Errorf("renewed: %+v", second)
	}
	if err := verify(a, second, "127.0.0.1", x509.ExtKeyUsageServerAuth); err != nil {
		t.Error(err)
	}
	states := func() (s []string) {
		list, err := a.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			s = append(s, c.Principal.Name+" "+string(c.State))
		}
		slices.Sort(s) // certificates of one second stand in any order
		return s
	}
	if revoked, err := a.Revoke(strings.ToUpper(first.Serial)); err != nil || len(revoked) != 1 || revoked[0].Serial != first.Serial {
		t.Errorf("by serial number: %v, %v", revoked, err)
	}
	if got := fmt.Sprint(states()); got != "[n1 good n1 revoked]" {
		t.Error(got)
	}
	third, _, err := a.Renew("n1", 0) // there is a good one yet
	if err != nil {
		t.Fatal(err)
	}
	if revoked, err := a.Revoke("n1"); err != nil || len(revoked) != 2 {
		t.Errorf("by name: %v, %v", revoked, err)
	}
	if _, err := a.Revoke("n1"); !errors.Is(err, ErrRequest) {
		t.Errorf("again: %v", err)
	}
	if _, _, err := a.Renew("n1", 0); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "issue a new one") {
		t.Errorf("renew what was revoked: %v", err)
	}
	if _, err := a.Revoke("nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("nobody's: %v", err)
	}
	if _, _, _, err := a.Issue(nodeOf("n1", "127.0.0.1")); err != nil {
		t.Errorf("anew: %v", err)
	}
	if got := fmt.Sprint(states()); !strings.Contains(got, "good") || strings.Count(got, "revoked") != 3 || third.State != Good {
		t.Error(got)
	}
}

// TestAtOnce: several programs change one authority, and nothing is lost.
func TestAtOnce(t *testing.T) {
	a := newAuthority(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			one, err := Open(a.dir)
			if err == nil {
				_, _, _, err = one.Issue(client(fmt.Sprint("c", i), cluster.CapRead))
			}
			if err == nil && i%2 == 0 {
				_, err = one.Revoke(fmt.Sprint("c", i))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, err := a.List()
	if err != nil || len(list) != 8 {
		t.Fatalf("%d certificates, %v", len(list), err)
	}
	for i, c := range list {
		if (c.State == Revoked) != (i%2 == 0) {
			t.Errorf("%s is %s", c.Principal.Name, c.State)
		}
	}
}

// TestPrivateKeys: a key that others can read is not used, on either side.
// TestWriteNewLeavesNothing: a file that could not be written whole is not in the way of the next attempt.
func TestWriteNewLeavesNothing(t *testing.T) {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	path := filepath.Join(t.TempDir(), "key")
	const limit = 1 << 20 // beyond what the test's own log of files may take meanwhile
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	err := WriteNew(path, make([]byte, 2*limit), 0o600)
	if e := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); e != nil {
		t.Fatal(e)
	}
	if err == nil {
		t.Fatal("it was written beyond the limit")
	}
	if err := WriteNew(path, []byte("whole"), 0o600); err != nil {
		t.Error(err)
	}
}

func TestPrivateKeys(t *testing.T) {
	a := newAuthority(t)
	_, files := issue(t, a, client("ann", cluster.CapRead))
	for _, f := range []string{a.File(keyFile), files.Key} {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s was made with %v, %v", f, info.Mode(), err)
		}
	}
	for _, mode := range []os.FileMode{0o644, 0o640, 0o660, 0o604} {
		if err := errors.Join(os.Chmod(files.Key, mode), os.Chmod(a.File(keyFile), mode)); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(files, nil); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("a key of mode %04o: %v", mode, err)
		}
		if _, _, _, err := a.Issue(client("bob", 0)); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("the authority's key of mode %04o: %v", mode, err)
		}
	}
	if _, err := a.List(); err != nil {
		t.Errorf("listing needs no key: %v", err)
	}
	if me, err := user.Current(); err != nil || me.Uid != "0" {
		return // only root can give a file away
	}
	if err := errors.Join(os.Chmod(files.Key, 0o600), os.Chown(files.Key, 12345, -1)); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(files, nil); err == nil || !strings.Contains(err.Error(), "does not belong") {
		t.Errorf("somebody else's key: %v", err)
	}
}
