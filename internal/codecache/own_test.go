package codecache

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// TestDamagedSecret: a secret that was cut short, or is too long, is made anew, once by all that open the directory; what was signed with it is made anew too.
func TestDamagedSecret(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, secretName)
	for _, size := range []int{0, 1, secretBytes - 1, secretBytes + 1, 4096} {
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		caches := make([]*Cache, 8)
		errs := make([]error, len(caches))
		var all sync.WaitGroup
		for i := range caches {
			all.Go(func() { caches[i], errs[i] = Open(dir, 1<<20, kind, quiet()) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%d bytes: %v", size, err)
			continue
		}
		kept, err := os.ReadFile(path)
		if err != nil || len(kept) != secretBytes {
			t.Errorf("%d bytes became %d, %v", size, len(kept), err)
		}
		for _, c := range caches {
			if !bytes.Equal(c.secret, kept) {
				t.Errorf("%d bytes: a cache uses another secret than is kept", size)
			}
		}
		if state := stateOf(caches[0]); state == Good {
			t.Errorf("%d bytes: what was signed with the secret before is %v", size, state)
		}
		if err := caches[0].store(Entry{Key: "k", Name: "n", Data: []byte("code")}); err != nil {
			t.Error(err)
		}
		for _, c := range caches {
			if state := stateOf(c); state != Good {
				t.Errorf("%d bytes: what one cache wrote is %v to another", size, state)
			}
			c.Close()
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, tempPattern)); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
	var said bytes.Buffer
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Open(dir, 1<<20, kind, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if got := said.String(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, path) || !strings.Contains(got, "0 bytes, want 32") {
		t.Errorf("an operator is told %q", got)
	}
}

func stateOf(c *Cache) State {
	_, state := c.Load("k")
	return state
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
