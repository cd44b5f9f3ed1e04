package codecache

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestShared: a directory that others can write to, or that belongs to another user, holds no code that runs.
func TestShared(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(dir string) error
		says string
	}{
		{"anybody's", func(dir string) error { return os.Chmod(dir, 0o777) }, "chmod go-w"},
		{"a group's", func(dir string) error { return os.Chmod(dir, 0o770) }, "mode 0770"},
		{"sticky", func(dir string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, ""},
		{"anybody's secret", func(dir string) error {
			path := filepath.Join(dir, secretName)
			return errors.Join(os.WriteFile(path, make([]byte, secretBytes), 0o600), os.Chmod(path, 0o666))
		}, "only its owner can write to"},
		{"a link for a secret", func(dir string) error { return os.Symlink("/dev/zero", filepath.Join(dir, secretName)) }, "too many levels"},
		{"half a secret", func(dir string) error { return os.WriteFile(filepath.Join(dir, secretName), []byte("x"), 0o600) }, "1 bytes, want 32"},
		{"another's", func(dir string) error { return os.Chown(dir, 12345, -1) }, "does not belong"},
		{"another's secret", func(dir string) error {
			path := filepath.Join(dir, secretName)
			return errors.Join(os.WriteFile(path, make([]byte, secretBytes), 0o600), os.Chown(path, 12345, -1))
		}, "does not belong"},
	} {
		dir := t.TempDir()
		if err := c.do(dir); errors.Is(err, os.ErrPermission) {
			continue // only root gives files away
		} else if err != nil {
			t.Fatal(err)
		}
		cache, err := Open(dir, 1<<20, kind, quiet())
		if err == nil {
			cache.Close()
		}
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

// TestPlanted: what another program put under a key, with a checksum that is right but for the secret, or with rights that let others change it, is not read.
func TestPlanted(t *testing.T) {
	dir := t.TempDir()
	c, err := Open(dir, 1<<20, kind, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	e := Entry{Key: "k", Name: "n", Data: []byte("code")}
	stranger := &Cache{kind: kind, secret: make([]byte, secretBytes)}
	if err := os.WriteFile(c.path("k"), stranger.Encode(e), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, state := c.Load("k"); state != Damaged {
		t.Errorf("a stranger's code is %v", state)
	}
	for _, do := range []func(path string) error{
		func(path string) error { return os.Chmod(path, 0o622) },
		func(path string) error { return os.Chown(path, 12345, -1) },
		func(path string) error { return errors.Join(os.Rename(path, path+"x"), os.Symlink(path+"x", path)) },
	} {
		if err := c.store(e); err != nil {
			t.Fatal(err)
		}
		if err := do(c.path("k")); errors.Is(err, os.ErrPermission) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if _, state := c.Load("k"); state != Missing {
			t.Errorf("it is %v", state)
		}
	}
	if err := c.store(e); err != nil {
		t.Fatal(err)
	}
	if got, state := c.Load("k"); state != Good || string(got.Data) != "code" {
		t.Errorf("its own is %v", state)
	}
}
