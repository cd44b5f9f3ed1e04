package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster/ca"
)

// sizeBytes is the size of a file of which caches hold little.
const sizeBytes = 16 << 30

// mountTLS mounts with a certificate, and opens a file there.
func mountTLS(t *testing.T, addr, file string, flags []string) (dir string, open *os.File) {
	t.Helper()
	dir = t.TempDir()
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	m := start(t, append(append([]string{"mount", "--timeout", timeout, "--cache", "10ms"}, flags...), addr, dir)...)
	m.line()
	open, err := os.Open(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { open.Close() })
	return dir, open
}

// losesAccess waits until neither a name nor an open file can be read any more.
func losesAccess(t *testing.T, dir string, open *os.File) {
	t.Helper()
	var byName, byHandle error
	at := int64(0) // each time where nothing was read before, or ahead
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		at += sizeBytes / 4096
		byName = within(t, mustAnswer, "list", func() error { _, err := os.ReadDir(dir); return err })
		byHandle = within(t, mustAnswer, "read", func() error { _, err := open.ReadAt(make([]byte, 4096), at); return err })
		if byName != nil && byHandle != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("revoked, and it still has access: list %v, read %v", byName, byHandle)
		}
	}
	for what, err := range map[string]error{"list": byName, "read": byHandle} {
		if err := isErrno(err, syscall.EIO); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestRevokedWhileMounted: a mount whose certificate is revoked loses access while it is
// up, and those of others go on. So does a mount of a node whose certificate is revoked.
func TestRevokedWhileMounted(t *testing.T) {
	needMount(t)
	for _, which := range []string{"ann", "node"} {
		t.Run(which, func(t *testing.T) {
			authority, served := filepath.Join(t.TempDir(), "ca"), t.TempDir()
			node := certificate(t, authority, "node", true)
			ann, bob := certificate(t, authority, "ann", false), certificate(t, authority, "bob", false)
			a, err := ca.Open(authority)
			if err != nil {
				t.Fatal(err)
			}
			list := []string{"--tls-crl", a.File(ca.ListFile)}
			if which == "ann" { // only the node looks
				node = append(node, list...)
			} else { // only ann does
				ann = append(ann, list...)
			}
			if err := os.WriteFile(filepath.Join(served, "f"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(filepath.Join(served, "f"), sizeBytes); err != nil {
				t.Fatal(err)
			}
			p := start(t, append(append([]string{"serve"}, node...), "--listen", anyPort, served)...)
			_, addr, _ := strings.Cut(p.line(), " at ")
			annDir, annFile := mountTLS(t, addr, "f", ann)
			bobDir, bobFile := mountTLS(t, addr, "f", bob)
			if _, err := a.Revoke(which); err != nil {
				t.Fatal(err)
			}
			losesAccess(t, annDir, annFile)
			if _, err := os.ReadDir(bobDir); err != nil {
				t.Errorf("bob's mount: %v", err)
			}
			if _, err := bobFile.ReadAt(make([]byte, 4096), sizeBytes/2); err != nil {
				t.Errorf("bob's open file: %v", err)
			}
		})
	}
}
