package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestModesOfFiles sets modes on a mount: they are the node's, 0 too.
func TestModesOfFiles(t *testing.T) {
	served := t.TempDir()
	_, addr := serveDir(t, served, anyPort)
	dir, p := mountAt(t, addr, "--cache", "1ms") // go to the node for each
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "folder"} {
		for _, mode := range []os.FileMode{0o400, 0, 0o751, 0o007} {
			if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
			for _, at := range []string{served, dir} {
				info, err := os.Lstat(filepath.Join(at, name))
				if err != nil {
					t.Fatal(err)
				}
				if got := info.Mode().Perm(); got != mode {
					t.Errorf("%s, set to %v, is %v at %s", name, mode, got, at)
				}
			}
		}
	}
	unmounts(t, dir, p)
}
