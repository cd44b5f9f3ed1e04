package sockdir

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestShorten(t *testing.T) {
	for dir, want := range map[string]string{
		"":                                     "/tmp",
		"tmp":                                  "/tmp",
		"/var/tmp":                             "/var/tmp",
		strings.Repeat("/", mostBytes):         strings.Repeat("/", mostBytes),
		strings.Repeat("/", mostBytes+1):       "/tmp",
		"/scratch/" + strings.Repeat("x/", 50): "/tmp",
	} {
		t.Setenv("TMPDIR", dir)
		if err := Shorten(); err != nil || os.TempDir() != want {
			t.Errorf("%q: temporary files are in %q, want %q (%v)", dir, os.TempDir(), want, err)
		}
	}
}

// TestMake: a socket can be there, however deep the folder for temporary files is.
func TestMake(t *testing.T) {
	deep := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", deep)
	dir, err := Make("wherry-sockdir-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
