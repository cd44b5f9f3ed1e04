package ca

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
)

func load(t testing.TB, f Files) *Identity {
	t.Helper()
	id, err := Load(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestIdentity(t *testing.T) {
	a := newAuthority(t)
	_, nodeFiles := issue(t, a, nodeOf("n1", "127.0.0.1"))
	ann, annFiles := issue(t, a, client("ann", cluster.CapInject))
	node, one := load(t, nodeFiles), load(t, annFiles)
	if p, named := one.Principal(); !named || p != (cluster.Principal{Name: "ann", Caps: cluster.CapInject}) || one.Accepts() || !node.Accepts() {
		t.Errorf("ann is %v, %v", p, named)
	}
	if node.VerifyHost("127.0.0.1") != nil || node.VerifyHost("10.0.0.1") == nil {
		t.Error("the node's hosts")
	}
	who, named, err := node.Judge(ann.leaf)
	if err != nil || !named || who.Name != "ann" || cluster.Caps(who.Caps) != cluster.CapInject {
		t.Errorf("judged %v, %v, %v", who, named, err)
	}
	if _, err := a.Revoke("ann"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := node.Judge(ann.leaf); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("after it was revoked: %v", err)
	}
	if _, err := Load(annFiles, nil); !errors.Is(err, ErrRefused) {
		t.Errorf("one's own was revoked: %v", err)
	}
	annFiles.List = ""
	if _, _, err := load(t, annFiles).Judge(ann.leaf); err != nil {
		t.Errorf("without a list: %v", err)
	}
}

// TestLoadFaults: what is wrong with the files is said when they are read.
func TestLoadFaults(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	_, good := issue(t, a, client("ann", 0))
	_, bob := issue(t, a, client("bob", 0))
	ends, old := issue(t, a, Request{Principal: cluster.Principal{Name: "old"}, Term: time.Second})
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, maxRootBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for !time.Now().After(ends.Until) {
		time.Sleep(10 * time.Millisecond)
	}
	for name, c := range map[string]struct {
		change func(*Files)
		want   string
	}{
		"no key":                {func(f *Files) { f.Key = "" }, "TLS needs"},
		"no certificate":        {func(f *Files) { f.Cert = f.Cert + "x" }, "no such file"},
		"another's key":         {func(f *Files) { f.Key = bob.Key }, "is not the key of"},
		"a key for certificate": {func(f *Files) { f.Cert = f.Key }, "no certificate"},
		"certificate for key":   {func(f *Files) { f.Key = empty }, "0 private keys"},
		"another authority":     {func(f *Files) { f.CA = other.File(CertFile) }, "was not issued by the authority in"},
		"no authority":          {func(f *Files) { f.CA = good.Cert }, "not an authority's"},
		"expired":               {func(f *Files) { f.Cert, f.Key = old.Cert, old.Key }, "wherry ca renew"},
		"another's list":        {func(f *Files) { f.List = other.File(ListFile) }, "not signed by the authority"},
		"no list":               {func(f *Files) { f.List = empty }, "no list"},
		"too large":             {func(f *Files) { f.CA = big }, "more than"},
		"a folder":              {func(f *Files) { f.CA = a.dir }, "regular file"},
	} {
		f := good
		c.change(&f)
		if _, err := Load(f, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		} else if !errors.Is(err, ErrFile) && !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v is neither ErrFile nor ErrRequest", name, err)
		}
	}
}

// TestReload: new files are used from the next connection on; broken ones, and
// lists older than the one in force, are not.
func TestReload(t *testing.T) {
	a := newAuthority(t)
	_, files := issue(t, a, nodeOf("n1", "127.0.0.1"))
	ann, _ := issue(t, a, client("ann", 0))
	bob, _ := issue(t, a, client("bob", 0))
	var log bytes.Buffer
	files.List = filepath.Join(t.TempDir(), "list")
	give := func() []byte {
		b, err := os.ReadFile(a.File(ListFile))
		if err != nil {
			t.Fatal(err)
		}
		if err := Replace(files.List, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := give()
	id, err := Load(files, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	refuses := func(c *Cert, want bool) {
		t.Helper()
		if _, _, err := id.Judge(c.leaf); (err != nil) != want {
			t.Errorf("%s: %v", c.Principal.Name, err)
		}
	}
	if _, err := a.Revoke("ann"); err != nil {
		t.Fatal(err)
	}
	refuses(ann, false)
	give()
	refuses(ann, true)
	for _, bad := range [][]byte{first, []byte("half a fi"), nil, bytes.Replace(first, []byte("\n"), []byte("\nA"), 3)} {
		if err := os.WriteFile(files.List, bad, 0o644); err != nil { // in place, as an editor would
			t.Fatal(err)
		}
		refuses(ann, true)
		refuses(bob, false)
	}
	if err := os.Remove(files.List); err != nil {
		t.Fatal(err)
	}
	refuses(ann, true)
	if n := strings.Count(log.String(), "level=ERROR"); n != 4 {
		t.Errorf("%d complaints about 4 bad lists:\n%s", n, log.String())
	}
	if _, err := a.Revoke("bob"); err != nil {
		t.Fatal(err)
	}
	give()
	refuses(bob, true)
}

// TestReloadCertificate: the same for the element's own certificate.
func TestReloadCertificate(t *testing.T) {
	a := newAuthority(t)
	_, files := issue(t, a, nodeOf("n1", "127.0.0.1"))
	list, err := os.ReadFile(files.List)
	if err != nil {
		t.Fatal(err)
	}
	files.List = filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(files.List, list, 0o644); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	id, err := Load(files, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	before, _ := id.Certificate()
	renewed, text, err := a.Renew("n1", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := Replace(files.Cert, []byte("broken"), 0o644); err != nil {
		t.Fatal(err)
	}
	if now, err := id.Certificate(); err != nil || now != before {
		t.Errorf("a broken certificate was taken: %v", err)
	}
	if err := os.WriteFile(files.List, []byte("broken"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 3 { // each is told of once, though both are looked at every time
		id.Certificate()
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 2 {
		t.Errorf("%d complaints about a bad certificate and a bad list:\n%s", n, log.String())
	}
	if err := Replace(files.Cert, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if now, err := id.Certificate(); err != nil || !now.Leaf.Equal(renewed.leaf) {
		t.Errorf("the renewed certificate is not used: %v", err)
	}
}

func TestWatch(t *testing.T) {
	a := newAuthority(t)
	_, files := issue(t, a, nodeOf("n1", "127.0.0.1"))
	ann, _ := issue(t, a, client("ann", 0))
	id := load(t, files)
	ctx, cancel := context.WithCancel(context.Background())
	var calls atomic.Int32
	done := make(chan struct{})
	for i := range int32(3) {
		if i == 1 {
			if _, err := a.Revoke("ann"); err != nil {
				t.Fatal(err)
			}
			id.Judge(ann.leaf) // a new connection sees the new list first, before watch begins even
			go func() {
				defer close(done)
				id.watch(ctx, time.Millisecond, func() { calls.Add(1) })
			}()
		} else if i == 2 {
			b, _ := os.ReadFile(files.List)
			if err := Replace(files.List, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(time.Minute); calls.Load() < i; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("change %d went unnoticed", i)
			}
		}
	}
	cancel()
	<-done
	if calls.Load() != 2 {
		t.Errorf("%d calls for 2 changes", calls.Load())
	}
}

// TestTwoAuthorities: while one authority takes over from another, certificates
// of both are good, and each revokes its own.
func TestTwoAuthorities(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	_, files := issue(t, after, nodeOf("n1", "127.0.0.1"))
	var certs [2]*Cert
	var roots, lists []byte
	for i, a := range []*Authority{before, after} {
		certs[i], _ = issue(t, a, client("ann", 0))
		if i == 0 {
			if _, err := a.Revoke("ann"); err != nil {
				t.Fatal(err)
			}
		}
		list, err := os.ReadFile(a.File(ListFile))
		if err != nil {
			t.Fatal(err)
		}
		roots, lists = append(roots, encode(blockCert, a.cert.Raw)...), append(lists, list...)
	}
	dir := t.TempDir()
	files.CA, files.List = filepath.Join(dir, "roots"), filepath.Join(dir, "lists")
	if err := errors.Join(Replace(files.CA, roots, 0o644), Replace(files.List, lists, 0o644)); err != nil {
		t.Fatal(err)
	}
	id := load(t, files)
	if err := Replace(files.List, lists, 0o644); err != nil { // read again, though the numbers of the two differ
		t.Fatal(err)
	}
	if id.mu.Lock(); !id.refresh() {
		t.Error("the lists were not read again")
	}
	id.mu.Unlock()
	if _, _, err := id.Judge(certs[0].leaf); !errors.Is(err, ErrRefused) {
		t.Errorf("revoked by the one before: %v", err)
	}
	if _, _, err := id.Judge(certs[1].leaf); err != nil {
		t.Errorf("of the one after: %v", err)
	}
}
